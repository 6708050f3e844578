//! Sockets (Linux: `include/linux/socket.h`, `include/uapi/asm-generic/socket.h`).

use crate::{constants, plain};

constants! { u32:
    AF_UNSPEC = 0, "No domain.";
    AF_UNIX = 1, "Sockets of one machine.";
    AF_INET = 2, "Internet, version 4.";
    AF_INET6 = 10, "Internet, version 6.";
    IPPROTO_UDP = 17, "UDP.";
    IPPROTO_TCP = 6, "TCP, and options of it.";
    IPPROTO_IPV6 = 41, "Options of version 6.";
    IPV6_V6ONLY = 26, "No connections of version 4.";
    TCP_NODELAY = 1, "Send at once.";
    TCP_CORK = 3, "Send full packets only.";
    TCP_KEEPIDLE = 4, "When to ask whether the other side is there.";
    TCP_QUICKACK = 12, "Acknowledge at once.";
    TCP_USER_TIMEOUT = 18, "How long bytes may be on their way.";
    SOCK_STREAM = 1, "Bytes in order.";
    SOCK_DGRAM = 2, "Messages.";
    SOCK_SEQPACKET = 5, "Messages in order, on a connection.";
    SOCK_TYPE_MASK = 0xf, "The kind of a socket, without flags.";
    SHUT_RD = 0, "No more comes in.";
    SHUT_WR = 1, "No more goes out.";
    SHUT_RDWR = 2, "Both.";
    SOL_SOCKET = 1, "Options of all sockets.";
    SCM_RIGHTS = 1, "A control message with descriptors.";
    SCM_CREDENTIALS = 2, "A control message that names a process.";
    SO_REUSEADDR = 2, "An address may be bound while old connections have it.";
    SO_TYPE = 3, "The kind.";
    SO_ERROR = 4, "The error that is pending.";
    SO_BROADCAST = 6, "Messages to all may be sent.";
    SO_SNDBUF = 7, "Bytes that can be on their way out.";
    SO_RCVBUF = 8, "Bytes that can be on their way in.";
    SO_KEEPALIVE = 9, "Ask whether the other side is there.";
    SO_LINGER = 13, "Close waits until bytes have arrived.";
    SO_PASSCRED = 16, "Messages name their senders.";
    SO_PEERCRED = 17, "The process, user and group of the other side.";
    SO_RCVTIMEO = 20, "How long a call waits to receive.";
    SO_SNDTIMEO = 21, "How long a call waits to send.";
    SO_ACCEPTCONN = 30, "Whether it listens.";
    SO_PROTOCOL = 38, "The protocol.";
    SO_DOMAIN = 39, "The domain.";
    SO_RCVTIMEO_NEW = 66, "The same as SO_RCVTIMEO.";
    SO_SNDTIMEO_NEW = 67, "The same as SO_SNDTIMEO.";
    MSG_PEEK = 2, "Leave the bytes where they are.";
    MSG_DONTROUTE = 4, "To directly connected machines only.";
    MSG_CTRUNC = 8, "There was no room for a control message.";
    MSG_TRUNC = 0x20, "The message was longer. Asks for its length.";
    MSG_DONTWAIT = 0x40, "Do not wait.";
    MSG_EOR = 0x80, "The end of a record.";
    MSG_WAITALL = 0x100, "Wait for all bytes.";
    MSG_CONFIRM = 0x800, "The other side has answered.";
    MSG_NOSIGNAL = 0x4000, "No SIGPIPE.";
    MSG_MORE = 0x8000, "More follows.";
    MSG_WAITFORONE = 0x1_0000, "Wait for the first of several messages only.";
    MSG_CMSG_CLOEXEC = 0x4000_0000, "Descriptors that arrive are closed by exec.";
}

plain! {
    /// The head of a control message.
    pub struct CmsgHdr {
        /// Its bytes, with the head.
        pub len: u64,
        /// The level, `SOL_*`.
        pub level: i32,
        /// The kind, `SCM_*`.
        pub kind: i32,
    }

    /// A process as messages name it.
    pub struct Ucred {
        /// The process.
        pub pid: u32,
        /// Its user.
        pub uid: u32,
        /// Its group.
        pub gid: u32,
    }

    /// One of the arguments of `sendmmsg` and `recvmmsg`.
    pub struct MMsgHdr {
        /// The message.
        pub message: MsgHdr,
        /// The bytes that were sent or received.
        pub len: u32,
        /// Zero.
        pub padding: u32,
    }

    /// The argument of `sendmsg` and `recvmsg`.
    pub struct MsgHdr {
        /// The address of an address.
        pub name: u64,
        /// Its bytes.
        pub name_len: u32,
        /// Zero.
        pub padding: u32,
        /// The address of a list of buffers.
        pub list: u64,
        /// Their number.
        pub count: u64,
        /// The address of control messages.
        pub control: u64,
        /// Their bytes.
        pub control_len: u64,
        /// The flags of the message that was received.
        pub flags: u32,
        /// Zero.
        pub padding_after: u32,
    }
}

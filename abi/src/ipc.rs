//! SysV shared memory, semaphores and messages, POSIX message queues.

use crate::{constants, plain};

constants! { i32:
    IPC_PRIVATE = 0, "The key of an object that has none.";
}

constants! { u32:
    IPC_CREAT = 0o1000, "Make the object if there is none.";
    IPC_EXCL = 0o2000, "Fail if there is one.";
    IPC_NOWAIT = 0o4000, "Fail instead of waiting.";
    S_IRWXUGO = 0o777, "The rights in a mode.";

    SHM_HUGETLB = 0o4000, "Huge pages from the pool.";
    SHM_NORESERVE = 0o10000, "Reserve no swap.";
    SHM_HUGE_SHIFT = 26, "Where the logarithm of a huge page's size is, or 0.";
    SHM_HUGE_MASK = 0x3f, "Its bits, shifted.";
    SHM_RDONLY = 0o10000, "Attach for reading only.";
    SHM_RND = 0o20000, "Round the address down.";
    SHM_REMAP = 0o40000, "Replace what is mapped there.";
    SHM_EXEC = 0o100000, "Attach for executing too.";
    SHM_DEST = 0o1000, "In a mode: it goes with the last detach.";
    SHM_LOCKED = 0o2000, "In a mode: it is locked.";
}

constants! { u32:
    IPC_RMID = 0, "Remove it.";
    IPC_SET = 1, "Set owner and rights.";
    IPC_STAT = 2, "Describe it.";
    IPC_INFO = 3, "The limits.";
    SHM_LOCK = 11, "Lock it in memory.";
    SHM_UNLOCK = 12, "Unlock it.";
    SHM_STAT = 13, "Describe the one at an index.";
    SHM_INFO = 14, "The use of all.";
    SHM_STAT_ANY = 15, "Describe the one at an index without rights.";
}

constants! { u64:
    SHMMAX = u64::MAX - (1 << 24), "The largest segment.";
    SHMMIN = 1, "The smallest segment.";
    SHMMNI = 4096, "The most segments.";
    SHMALL = u64::MAX - (1 << 24), "The most pages of all.";
}

constants! { u32:
    SEM_UNDO = 0x1000, "Undo the operation when the process ends.";
    GETPID = 11, "The process that changed a semaphore last.";
    GETVAL = 12, "The value of a semaphore.";
    GETALL = 13, "The values of all.";
    GETNCNT = 14, "The calls that wait for it to rise.";
    GETZCNT = 15, "The calls that wait for it to be 0.";
    SETVAL = 16, "Set a semaphore.";
    SETALL = 17, "Set all.";
    SEM_STAT = 18, "Describe the set at an index.";
    SEM_INFO = 19, "The use of all sets.";
    SEM_STAT_ANY = 20, "Describe the set at an index without rights.";

    MSG_STAT = 11, "Describe the queue at an index.";
    MSG_INFO = 12, "The use of all queues.";
    MSG_STAT_ANY = 13, "Describe the queue at an index without rights.";
    MSG_NOERROR = 0o10000, "Cut a message that is too long.";
    MSG_EXCEPT = 0o20000, "Any type but this one.";
    MSG_COPY = 0o40000, "Copy the message at an index.";
}

constants! { i32:
    SEMMNI = 32_000, "The most sets.";
    SEMMSL = 32_000, "The most semaphores of a set.";
    SEMMNS = 1_024_000_000, "The most semaphores.";
    SEMOPM = 500, "The most operations of a call.";
    SEMVMX = 32_767, "The highest value.";
    SEMAEM = SEMVMX, "The largest change to undo.";
    SEMUSZ = 20, "The size of something to undo.";

    MSGMNI = 32_000, "The most queues.";
    MSGMAX = 8192, "The most bytes of a message.";
    MSGMNB = 16_384, "The most bytes of a queue.";
    MSGSSZ = 16, "The size of a segment.";
}

constants! { i64:
    MQ_MSG_MAX = 10, "The most messages of a queue without attributes.";
    MQ_MSGSIZE_MAX = 8192, "The most bytes of a message of such a queue.";
    MQ_HARD_MSG_MAX = 16_384, "The most messages of any queue (65,536 on Linux).";
    MQ_HARD_MSGSIZE_MAX = 16 << 20, "The most bytes of a message of any queue.";
}

constants! { u64:
    MQ_QUEUES_MAX = 256, "The most POSIX message queues.";
    MQ_BYTES_MAX = 819_200, "RLIMIT_MSGQUEUE of the first process.";
}

constants! { u32:
    MQ_PRIO_MAX = 32_768, "Priorities are below this.";
}

/// The most segments.
pub const MSGSEG: u16 = u16::MAX;

plain! {
    /// `struct mq_attr`: the attributes of a POSIX message queue.
    #[derive(Default)]
    pub struct MqAttr {
        /// `O_NONBLOCK`, of the open file.
        pub flags: i64,
        /// The most messages.
        pub max_messages: i64,
        /// The most bytes of a message.
        pub message_bytes: i64,
        /// The messages now.
        pub messages: i64,
        /// Zero.
        pub reserved: [i64; 4],
    }

    /// Owner and rights of an object.
    #[derive(Default)]
    pub struct IpcPerm {
        /// Its key.
        pub key: i32,
        /// Its owner's user.
        pub uid: u32,
        /// Its owner's group.
        pub gid: u32,
        /// Its maker's user.
        pub cuid: u32,
        /// Its maker's group.
        pub cgid: u32,
        /// Its rights, and flags.
        pub mode: u32,
        /// The part of the identifier that differs when an index is used again.
        pub seq: u16,
        /// Padding.
        pub padding: [u16; 3],
        /// Not used.
        pub unused: [u64; 2],
    }

    /// `struct sembuf`: an operation on a semaphore.
    pub struct Sembuf {
        /// The semaphore.
        pub number: u16,
        /// The number to add, or 0 to wait for 0.
        pub change: i16,
        /// `IPC_NOWAIT`, `SEM_UNDO`.
        pub flags: u16,
    }

    /// `struct semid_ds`.
    #[derive(Default)]
    pub struct SemidDs {
        /// Owner and rights.
        pub perm: IpcPerm,
        /// The time of the last operation, in seconds.
        pub otime: i64,
        /// Not used.
        pub unused: u64,
        /// The time of the last change.
        pub ctime: i64,
        /// Not used.
        pub unused_too: u64,
        /// The number of semaphores.
        pub nsems: u64,
        /// Not used.
        pub rest: [u64; 2],
    }

    /// `struct seminfo`.
    #[derive(Default)]
    pub struct SemInfo {
        /// Not used.
        pub semmap: i32,
        /// The most sets.
        pub semmni: i32,
        /// The most semaphores.
        pub semmns: i32,
        /// Not used.
        pub semmnu: i32,
        /// The most semaphores of a set.
        pub semmsl: i32,
        /// The most operations of a call.
        pub semopm: i32,
        /// Not used.
        pub semume: i32,
        /// The size of something to undo, or the sets.
        pub semusz: i32,
        /// The highest value.
        pub semvmx: i32,
        /// The largest change to undo, or the semaphores of all sets.
        pub semaem: i32,
    }

    /// `struct msqid_ds`.
    #[derive(Default)]
    pub struct MsqidDs {
        /// Owner and rights.
        pub perm: IpcPerm,
        /// The time of the last message that was sent, in seconds.
        pub stime: i64,
        /// The time of the last one that was received.
        pub rtime: i64,
        /// The time of the last change.
        pub ctime: i64,
        /// The bytes in the queue.
        pub cbytes: u64,
        /// The messages in the queue.
        pub qnum: u64,
        /// The most bytes.
        pub qbytes: u64,
        /// The process that sent last.
        pub lspid: u32,
        /// The process that received last.
        pub lrpid: u32,
        /// Not used.
        pub unused: [u64; 2],
    }

    /// `struct msginfo`.
    #[derive(Default)]
    pub struct MsgInfo {
        /// The size of all in KiB, or the queues.
        pub msgpool: i32,
        /// Not used, or the messages of all queues.
        pub msgmap: i32,
        /// The most bytes of a message.
        pub msgmax: i32,
        /// The most bytes of a queue.
        pub msgmnb: i32,
        /// The most queues.
        pub msgmni: i32,
        /// The size of a segment.
        pub msgssz: i32,
        /// Not used, or the bytes of all queues.
        pub msgtql: i32,
        /// The most segments.
        pub msgseg: u16,
        /// Padding.
        pub padding: u16,
    }

    /// `struct shmid_ds`.
    #[derive(Default)]
    pub struct ShmidDs {
        /// Owner and rights.
        pub perm: IpcPerm,
        /// Its size in bytes.
        pub segsz: u64,
        /// The time of the last attach, in seconds.
        pub atime: i64,
        /// The time of the last detach.
        pub dtime: i64,
        /// The time of the last change.
        pub ctime: i64,
        /// The process that made it.
        pub cpid: u32,
        /// The process that attached or detached it last.
        pub lpid: u32,
        /// How often it is attached.
        pub nattch: u64,
        /// Not used.
        pub unused: [u64; 2],
    }

    /// `struct shminfo`.
    #[derive(Default)]
    pub struct ShmInfo64 {
        /// The largest segment.
        pub shmmax: u64,
        /// The smallest segment.
        pub shmmin: u64,
        /// The most segments.
        pub shmmni: u64,
        /// The most segments of a process.
        pub shmseg: u64,
        /// The most pages.
        pub shmall: u64,
        /// Not used.
        pub unused: [u64; 4],
    }

    /// `struct shm_info`.
    #[derive(Default)]
    pub struct ShmInfo {
        /// The segments.
        pub used_ids: i32,
        /// Padding.
        pub padding: u32,
        /// Their pages.
        pub shm_tot: u64,
        /// Those in memory.
        pub shm_rss: u64,
        /// Those swapped out.
        pub shm_swp: u64,
        /// Attempts to swap, and successes.
        pub swap: [u64; 2],
    }
}

impl IpcPerm {
    /// Describes an object by its key, its owner and its maker, each a user and a group, and its rights.
    pub fn new(key: i32, owner: [u32; 2], maker: [u32; 2], mode: u32, seq: u16) -> Self {
        let ([uid, gid], [cuid, cgid]) = (owner, maker);
        Self { key, uid, gid, cuid, cgid, mode, seq, ..Self::default() }
    }
}

//! Users, groups and capabilities (`credentials(7)`, `capabilities(7)`).

use crate::{constants, plain};

/// A user or a group that stands for none: the identity stays as it is.
pub const NO_ID: u32 = u32::MAX;
/// The most supplementary groups of a thread.
pub const NGROUPS_MAX: usize = 65_536;

constants! { u32:
    CAP_CHOWN = 0, "Change the owner of any file.";
    CAP_DAC_OVERRIDE = 1, "Read, write and execute any file.";
    CAP_DAC_READ_SEARCH = 2, "Read any file, search any directory.";
    CAP_FOWNER = 3, "Do what only a file's owner may do.";
    CAP_FSETID = 4, "Keep set-id bits.";
    CAP_KILL = 5, "Send signals to any process.";
    CAP_SETGID = 6, "Change groups.";
    CAP_SETUID = 7, "Change users.";
    CAP_SETPCAP = 8, "Change the bounding set and the secure bits.";
    CAP_LINUX_IMMUTABLE = 9, "Change immutable files.";
    CAP_NET_BIND_SERVICE = 10, "Bind ports below 1,024.";
    CAP_IPC_LOCK = 14, "Lock any memory.";
    CAP_IPC_OWNER = 15, "Use any SysV object.";
    CAP_SYS_PTRACE = 19, "Trace any process.";
    CAP_SYS_ADMIN = 21, "Many duties of an administrator.";
    CAP_SYS_NICE = 23, "Raise priorities.";
    CAP_SYS_RESOURCE = 24, "Exceed limits.";
    CAP_MKNOD = 27, "Make devices.";
    CAP_MAC_OVERRIDE = 32, "Override mandatory access control.";
    CAP_LAST_CAP = 40, "The last one.";
}

constants! { u32:
    SECBIT_NOROOT = 1, "The user root gets no capabilities by `execve`.";
    SECBIT_NO_SETUID_FIXUP = 1 << 2, "A change of users changes no capabilities.";
    SECBIT_KEEP_CAPS = 1 << 4, "The permitted capabilities stay when all users stop being root.";
    SECBIT_KEEP_CAPS_LOCKED = 1 << 5, "The bit before is locked.";
    SECBIT_NO_CAP_AMBIENT_RAISE = 1 << 6, "The ambient set only shrinks.";
    SECURE_ALL_BITS = 0x55, "All bits.";
    SECURE_ALL_LOCKS = 0xaa, "The locks of all bits.";
}

constants! { u32:
    LINUX_CAPABILITY_VERSION_1 = 0x1998_0330, "Sets of 32 capabilities.";
    LINUX_CAPABILITY_VERSION_2 = 0x2007_1026, "Sets of 64 capabilities.";
    LINUX_CAPABILITY_VERSION_3 = 0x2008_0522, "Sets of 64 capabilities, the version to use.";
}

plain! {
    /// The thread whose capabilities are meant, and the version of the call.
    pub struct CapHeader {
        /// `LINUX_CAPABILITY_VERSION_*`.
        pub version: u32,
        /// The thread, or 0 for the caller.
        pub pid: i32,
    }

    /// 32 capabilities of each set.
    pub struct CapData {
        /// The ones that checks find.
        pub effective: u32,
        /// The ones that may become effective.
        pub permitted: u32,
        /// The ones that an `execve` may keep.
        pub inheritable: u32,
    }
}

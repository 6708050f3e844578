//! SysV shared memory, semaphores and messages.

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

plain! {
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
    /// Describes an object of root.
    pub fn new(key: i32, (uid, gid): (u32, u32), mode: u32, seq: u16) -> Self {
        Self { key, uid, gid, mode, seq, ..Self::default() }
    }
}

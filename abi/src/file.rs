//! Files.

use crate::time::Timespec;
use crate::{constants, plain};

constants! { u32:
    O_ACCMODE = 0o3, "The bits of the access mode.";
    O_RDONLY = 0, "Read.";
    O_WRONLY = 1, "Write.";
    O_RDWR = 2, "Read and write.";
    O_CREAT = 0o100, "Create if missing.";
    O_EXCL = 0o200, "Fail if it exists.";
    O_NOCTTY = 0o400, "Not the controlling terminal.";
    O_TRUNC = 0o1000, "Empty it.";
    O_APPEND = 0o2000, "Write at the end.";
    O_NONBLOCK = 0o4000, "Do not wait.";
    O_DSYNC = 0o10000, "Data is on disk when a write returns.";
    O_ASYNC = 0o20000, "Signal when I/O is possible.";
    O_DIRECT = 0o40000, "Without cache; pipes: packets.";
    O_LARGEFILE = 0o100000, "Ignored.";
    O_DIRECTORY = 0o200000, "Must be a directory.";
    O_NOFOLLOW = 0o400000, "Must not be a symbolic link.";
    O_NOATIME = 0o1000000, "Leave the access time.";
    O_CLOEXEC = 0o2000000, "Close on exec.";
    O_PATH = 0o10000000, "A place, not an open file.";
    O_TMPFILE = 0o20200000, "A file without a name.";

    S_IFMT = 0o170000, "The bits of the type.";
    S_IFSOCK = 0o140000, "Socket.";
    S_IFLNK = 0o120000, "Symbolic link.";
    S_IFREG = 0o100000, "Regular file.";
    S_IFBLK = 0o060000, "Block device.";
    S_IFDIR = 0o040000, "Directory.";
    S_IFCHR = 0o020000, "Character device.";
    S_IFIFO = 0o010000, "Pipe.";

    F_OK = 0, "access: does it exist?";
    X_OK = 1, "access: may it be executed?";
    W_OK = 2, "access: may it be written?";
    R_OK = 4, "access: may it be read?";

    AT_SYMLINK_NOFOLLOW = 0x100, "Do not follow a symbolic link at the end.";
    AT_REMOVEDIR = 0x200, "unlinkat: a directory.";
    AT_EACCESS = 0x200, "faccessat: with effective ids.";
    AT_SYMLINK_FOLLOW = 0x400, "Follow a symbolic link at the end.";
    AT_NO_AUTOMOUNT = 0x800, "Ignored.";
    AT_EMPTY_PATH = 0x1000, "An empty path means the descriptor itself.";
    AT_STATX_SYNC_TYPE = 0x6000, "statx: how fresh.";

    RENAME_NOREPLACE = 1, "renameat2: fail if the new name exists.";
    RENAME_EXCHANGE = 2, "renameat2: swap.";
    RENAME_WHITEOUT = 4, "renameat2: leave a whiteout.";

    CLOSE_RANGE_UNSHARE = 2, "close_range: in a private table.";
    CLOSE_RANGE_CLOEXEC = 4, "close_range: only mark.";

    FD_CLOEXEC = 1, "Close on exec.";
    STATX_BASIC_STATS = 0x7ff, "statx: what stat has.";
    STATX_RESERVED = 0x8000_0000, "statx: may not be asked for.";
}

/// Stands for the current directory in place of a directory's descriptor.
pub const AT_FDCWD: i32 = -100;
/// Maximum length of a path with its NUL.
pub const PATH_MAX: usize = 4096;
/// Maximum length of a name in a directory.
pub const NAME_MAX: usize = 255;
/// Maximum number of buffers of one readv or writev.
pub const IOV_MAX: usize = 1024;
/// Maximum number of bytes that one read or write moves.
pub const MAX_RW_COUNT: usize = 0x7fff_f000;

constants! { u64:
    SEEK_SET = 0, "From the start.";
    SEEK_CUR = 1, "From here.";
    SEEK_END = 2, "From the end.";
    SEEK_DATA = 3, "The next data.";
    SEEK_HOLE = 4, "The next hole.";

    SYNC_FILE_RANGE_ALL = 7, "sync_file_range: all flags.";

    POSIX_FADV_DONTNEED = 4, "fadvise64: the pages are not needed soon.";

    F_DUPFD = 0, "Duplicate, not below the argument.";
    F_GETFD = 1, "Descriptor flags.";
    F_SETFD = 2, "Set descriptor flags.";
    F_GETFL = 3, "Status flags.";
    F_SETFL = 4, "Set status flags.";
    F_GETLK = 5, "Would a lock fit?";
    F_SETLK = 6, "Lock or unlock.";
    F_SETLKW = 7, "Lock or unlock, waiting.";
    F_SETOWN = 8, "Who gets SIGIO.";
    F_GETOWN = 9, "Who gets SIGIO?";
    F_OFD_GETLK = 36, "Would a lock of the open file fit?";
    F_OFD_SETLK = 37, "Lock or unlock for the open file.";
    F_OFD_SETLKW = 38, "Lock or unlock for the open file, waiting.";
    F_DUPFD_CLOEXEC = 1030, "Duplicate with close-on-exec.";
    F_SETPIPE_SZ = 1031, "Set a pipe's capacity.";
    F_GETPIPE_SZ = 1032, "A pipe's capacity.";
    F_ADD_SEALS = 1033, "Promises that a file will not change.";
    F_GET_SEALS = 1034, "What is promised.";

    FALLOC_FL_KEEP_SIZE = 1, "The length stays.";
    FALLOC_FL_PUNCH_HOLE = 2, "Free the range.";
    MFD_CLOEXEC = 1, "Close on exec.";
    MFD_ALLOW_SEALING = 2, "Seals may be added.";
    MFD_NOEXEC_SEAL = 8, "Not executable.";
    MFD_EXEC = 0x10, "Executable.";

    FIONREAD = 0x541b, "Bytes waiting.";
    FIONBIO = 0x5421, "Set or clear O_NONBLOCK.";
    FIOASYNC = 0x5452, "Set or clear O_ASYNC.";
    FIONCLEX = 0x5450, "Clear close-on-exec.";
    FIOCLEX = 0x5451, "Set close-on-exec.";
}

constants! { u32:
    F_SEAL_SEAL = 1, "No more seals.";
    F_SEAL_SHRINK = 2, "It does not get shorter.";
    F_SEAL_GROW = 4, "It does not get longer.";
    F_SEAL_WRITE = 8, "Nobody writes.";
    F_SEAL_FUTURE_WRITE = 0x10, "Nobody writes who does not yet.";
}

constants! { u8:
    DT_UNKNOWN = 0, "Unknown.";
    DT_FIFO = 1, "Pipe.";
    DT_CHR = 2, "Character device.";
    DT_DIR = 4, "Directory.";
    DT_BLK = 6, "Block device.";
    DT_REG = 8, "Regular file.";
    DT_LNK = 10, "Symbolic link.";
    DT_SOCK = 12, "Socket.";
}

constants! { u32:
    LOCK_SH = 1, "Share the file.";
    LOCK_EX = 2, "Have the file alone.";
    LOCK_NB = 4, "Do not wait.";
    LOCK_UN = 8, "Unlock the file.";
}

constants! { i16:
    F_RDLCK = 0, "Share the bytes.";
    F_WRLCK = 1, "Have the bytes alone.";
    F_UNLCK = 2, "Unlock the bytes.";
}

plain! {
    /// A lock of bytes, for `fcntl` (`struct flock`).
    #[derive(Default)]
    pub struct Flock {
        /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
        pub kind: i16,
        /// `SEEK_*`: where `start` counts from.
        pub whence: i16,
        /// Zero.
        pub padding: u32,
        /// The first byte.
        pub start: i64,
        /// The number of bytes, 0 for all that follow.
        pub len: i64,
        /// The process that has it.
        pub pid: i32,
        /// Zero.
        pub padding_after: u32,
    }
}

constants! { u32:
    EPOLL_CTL_ADD = 1, "Add a file.";
    EPOLL_CTL_DEL = 2, "Remove a file.";
    EPOLL_CTL_MOD = 3, "Change the events of a file.";
    EPOLLERR = 0x008, "Error. Always reported.";
    EPOLLHUP = 0x010, "The other side is gone. Always reported.";
    EPOLLEXCLUSIVE = 1 << 28, "Wake one waiter only.";
    EPOLLONESHOT = 1 << 30, "Report once, until the events are changed.";
    EPOLLET = 1 << 31, "Report changes, not states.";
    EFD_SEMAPHORE = 1, "A read takes 1.";
}

/// An event of `epoll`. Linux packs it: the number lies on no boundary of its own.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable,
)]
pub struct EpollEvent {
    events: u32,
    data: [u32; 2],
}

impl EpollEvent {
    /// Returns an event with the caller's number.
    pub fn new(events: u32, data: u64) -> Self {
        Self { events, data: [data as u32, (data >> 32) as u32] }
    }

    /// Returns the events, `EPOLL*`.
    pub fn events(self) -> u32 {
        self.events
    }

    /// Returns the caller's number.
    pub fn data(self) -> u64 {
        u64::from(self.data[0]) | u64::from(self.data[1]) << 32
    }
}

constants! { i16:
    POLLIN = 0x001, "Can be read.";
    POLLPRI = 0x002, "Urgent data.";
    POLLOUT = 0x004, "Can be written.";
    POLLERR = 0x008, "Error, or a pipe without readers.";
    POLLHUP = 0x010, "The other side is gone.";
    POLLNVAL = 0x020, "Not a descriptor.";
    POLLRDNORM = 0x040, "Can be read.";
    POLLWRNORM = 0x100, "Can be written.";
    POLLRDHUP = 0x2000, "The other side of a socket writes no more.";
}

plain! {
    /// `struct stat`.
    #[derive(Default)]
    pub struct Stat {
        /// Device.
        pub dev: u64,
        /// Inode number.
        pub ino: u64,
        /// Hard links.
        pub nlink: u64,
        /// Type and permissions.
        pub mode: u32,
        /// Owner.
        pub uid: u32,
        /// Group.
        pub gid: u32,
        /// Zero.
        pub padding: u32,
        /// Number of the device, for a device file.
        pub rdev: u64,
        /// Bytes.
        pub size: i64,
        /// Good unit of I/O.
        pub blksize: i64,
        /// Units of 512 bytes in use.
        pub blocks: i64,
        /// Last access.
        pub atime: Timespec,
        /// Last change of the contents.
        pub mtime: Timespec,
        /// Last change.
        pub ctime: Timespec,
        /// Zero.
        pub reserved: [i64; 3],
    }

    /// `struct statx_timestamp`.
    #[derive(Default)]
    pub struct StatxTimestamp {
        /// Seconds.
        pub seconds: i64,
        /// Nanoseconds.
        pub nanoseconds: u32,
        /// Zero.
        pub reserved: i32,
    }

    /// `struct statx`.
    #[derive(Default)]
    pub struct Statx {
        /// Which fields are filled.
        pub mask: u32,
        /// Good unit of I/O.
        pub blksize: u32,
        /// Attributes.
        pub attributes: u64,
        /// Hard links.
        pub nlink: u32,
        /// Owner.
        pub uid: u32,
        /// Group.
        pub gid: u32,
        /// Type and permissions.
        pub mode: u16,
        /// Zero.
        pub padding: u16,
        /// Inode number.
        pub ino: u64,
        /// Bytes.
        pub size: u64,
        /// Units of 512 bytes in use.
        pub blocks: u64,
        /// Which attributes are known.
        pub attributes_mask: u64,
        /// Last access.
        pub atime: StatxTimestamp,
        /// Creation.
        pub btime: StatxTimestamp,
        /// Last change.
        pub ctime: StatxTimestamp,
        /// Last change of the contents.
        pub mtime: StatxTimestamp,
        /// Number of the device, for a device file: major, minor.
        pub rdev: [u32; 2],
        /// Device: major, minor.
        pub dev: [u32; 2],
        /// Zero.
        pub spare: [u64; 14],
    }

    /// `struct statfs`.
    #[derive(Default)]
    pub struct Statfs {
        /// Magic number of the file system.
        pub kind: i64,
        /// Unit of the sizes.
        pub bsize: i64,
        /// Size.
        pub blocks: u64,
        /// Free.
        pub bfree: u64,
        /// Free for users.
        pub bavail: u64,
        /// Inodes.
        pub files: u64,
        /// Free inodes.
        pub ffree: u64,
        /// Identity.
        pub fsid: [i32; 2],
        /// Longest name.
        pub namelen: i64,
        /// Fragment size.
        pub frsize: i64,
        /// Mount flags.
        pub flags: i64,
        /// Zero.
        pub spare: [i64; 4],
    }

    /// `struct iovec`.
    #[derive(Default)]
    pub struct IoVec {
        /// Address.
        pub base: u64,
        /// Bytes.
        pub len: u64,
    }

    /// `struct pollfd`.
    #[derive(Default)]
    pub struct PollFd {
        /// Descriptor. Negative ones are skipped.
        pub fd: i32,
        /// Events to wait for.
        pub events: i16,
        /// Events that are ready.
        pub revents: i16,
    }
}

/// Bytes of `struct linux_dirent64` before the name: ino, off, reclen, type.
pub const DIRENT64_HEAD: usize = 19;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_linux() {
        assert_eq!(size_of::<Stat>(), 144);
        assert_eq!(size_of::<Statx>(), 256);
        assert_eq!(size_of::<Statfs>(), 120);
        assert_eq!(size_of::<PollFd>(), 8);
    }
}

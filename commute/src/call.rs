//! One call with its arguments, as text for the guest and for keys.

use std::fmt;
use std::str::FromStr;

/// The operations of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// `open(name, how)`.
    Open,
    /// `open(name, O_CREAT | O_RDWR)`, with `O_EXCL` if the second argument is 1.
    Creat,
    /// `close(fd)`.
    Close,
    /// `dup(fd)`.
    Dup,
    /// `dup2(fd, fd)`.
    Dup2,
    /// `pipe()`.
    Pipe,
    /// `link(name, name)`.
    Link,
    /// `unlink(name)`.
    Unlink,
    /// `rename(name, name)`.
    Rename,
    /// `stat(name)`.
    Stat,
    /// `fstat(fd)`.
    Fstat,
    /// `lseek(fd, page, whence)`.
    Lseek,
    /// `read(fd)` of a page.
    Read,
    /// `write(fd, value)` of a page.
    Write,
    /// `pread(fd, page)` of a page.
    Pread,
    /// `pwrite(fd, page, value)` of a page.
    Pwrite,
    /// `mmap(slot, fd, writable)` of a page, anonymous if the descriptor is [`ANONYMOUS`].
    Mmap,
    /// `munmap(slot)`.
    Munmap,
    /// `mprotect(slot, writable)`.
    Mprotect,
    /// A load from a slot.
    Load,
    /// A store of a value to a slot.
    Store,
    /// `kill(process of a side, signal)`.
    Kill,
    /// `tgkill(thread of a side, signal)`.
    Tgkill,
    /// `sigpending()`.
    Sigpending,
    /// `pthread_sigmask(how)` of SIGURG.
    Sigmask,
    /// `sigaction(signal, disposition)`.
    Sigaction,
    /// `futex(slot, FUTEX_WAKE)`. No thread waits there.
    FutexWake,
    /// `futex(slot, FUTEX_WAIT)` with a value that the slot does not have.
    FutexWait,
    /// `ftruncate(fd, pages)`.
    Ftruncate,
    /// `mremap(slot, slot)` of a page to a fixed place.
    Mremap,
    /// `socketpair(AF_UNIX, SOCK_STREAM)`.
    Socketpair,
    /// `send(fd, value)` of a page, which does not wait.
    Send,
    /// `recv(fd)` of a page, which does not wait.
    Recv,
    /// `eventfd(0, EFD_NONBLOCK)`.
    Eventfd,
    /// `write(fd, value)` of eight bytes, for an eventfd.
    EventWrite,
    /// `read(fd)` of eight bytes, for an eventfd.
    EventRead,
    /// `fcntl(fd, kind)` of a lock on a whole file, which does not wait.
    Lock,
}

/// All operations, with their names and numbers of arguments.
#[rustfmt::skip]
pub const OPS: [(Op, &str, usize); 37] = [
    (Op::Open, "open", 2), (Op::Creat, "creat", 2), (Op::Close, "close", 1), (Op::Dup, "dup", 1),
    (Op::Dup2, "dup2", 2), (Op::Pipe, "pipe", 0), (Op::Link, "link", 2), (Op::Unlink, "unlink", 1),
    (Op::Rename, "rename", 2), (Op::Stat, "stat", 1), (Op::Fstat, "fstat", 1), (Op::Lseek, "lseek", 3),
    (Op::Read, "read", 1), (Op::Write, "write", 2), (Op::Pread, "pread", 2), (Op::Pwrite, "pwrite", 3),
    (Op::Mmap, "mmap", 3), (Op::Munmap, "munmap", 1), (Op::Mprotect, "mprotect", 2), (Op::Load, "load", 1),
    (Op::Store, "store", 2), (Op::Kill, "kill", 2), (Op::Tgkill, "tgkill", 2),
    (Op::Sigpending, "sigpending", 0), (Op::Sigmask, "sigmask", 1), (Op::Sigaction, "sigaction", 2),
    (Op::FutexWake, "futexwake", 1), (Op::FutexWait, "futexwait", 1),
    (Op::Ftruncate, "ftruncate", 2), (Op::Mremap, "mremap", 2), (Op::Socketpair, "socketpair", 0),
    (Op::Send, "send", 2), (Op::Recv, "recv", 1), (Op::Eventfd, "eventfd", 0),
    (Op::EventWrite, "eventwrite", 2), (Op::EventRead, "eventread", 1), (Op::Lock, "lock", 2),
];

/// The names that calls use, below the current directory.
pub const NAMES: [&str; 8] = ["x/a", "x/b", "x/c", "x/d", "x/e", "y/a", "y/b", "y/c"];
/// Descriptors below this number belong to the program that runs the tests.
pub const FIRST_FD: u8 = 3;
/// The number of descriptors that calls use.
pub const FDS: usize = 12;
/// The slots: pages of memory at fixed distances.
pub const SLOTS: usize = 10;
/// Distance of each slot from the first, in pages. The first [`NEAR_SLOTS`] lie in one page table, two of
/// them side by side. The others have page tables of their own.
pub const SLOT_PAGES: [usize; SLOTS] = [0, 1, 64, 128, 1024, 2048, 3072, 4096, 5120, 6144];
/// The number of slots in one page table.
pub const NEAR_SLOTS: u8 = 4;
/// The descriptor of `mmap` that stands for anonymous memory.
pub const ANONYMOUS: u8 = 99;
/// Bytes of a page, the unit of all contents and offsets.
pub const PAGE: usize = 4096;

/// `open` for reading only.
pub const READ_ONLY: u8 = 0;
/// `open` for reading and writing.
pub const READ_WRITE: u8 = 1;
/// `open` for both with `O_TRUNC`.
pub const TRUNCATE: u8 = 2;

/// `lseek` from the start.
pub const SET: u8 = 0;
/// `lseek` from the offset.
pub const CUR: u8 = 1;
/// `lseek` from the end.
pub const END: u8 = 2;
/// A `whence` that does not exist.
pub const BAD_WHENCE: u8 = 99;

/// The number of signals that calls send: SIGUSR1 and SIGUSR2, which all threads block.
pub const SIGNALS: usize = 2;
/// `sigmask` and `sigaction` that only ask.
pub const ASK: u8 = 0;
/// `sigmask` that blocks SIGURG.
pub const BLOCK: u8 = 1;
/// `sigmask` that unblocks SIGURG.
pub const UNBLOCK: u8 = 2;
/// `sigaction` with SIG_DFL.
pub const DEFAULT: u8 = 1;
/// `sigaction` with SIG_IGN.
pub const IGNORE: u8 = 2;

/// `lock` that takes a lock for reading.
pub const SHARED: u8 = 1;
/// `lock` that takes a lock for writing.
pub const EXCLUSIVE: u8 = 2;
/// `lock` that releases the lock. [`ASK`] asks which lock of another process is in the way of one for
/// writing.
pub const UNLOCK: u8 = 3;

/// A call with its arguments. Those that the operation has not are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Call {
    /// The operation.
    pub op: Op,
    /// Its arguments.
    pub args: [u8; 3],
}

impl Op {
    /// Returns the operation's name.
    pub fn name(self) -> &'static str {
        OPS[self as usize].1
    }

    /// Returns the number of its arguments.
    pub fn arity(self) -> usize {
        OPS[self as usize].2
    }

    /// Makes a call. Missing arguments are 0.
    pub fn with(self, given: &[u8]) -> Call {
        let mut args = [0; 3];
        args[..given.len()].copy_from_slice(given);
        Call { op: self, args }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.op.name())?;
        self.args[..self.op.arity()].iter().try_for_each(|arg| write!(f, ".{arg}"))
    }
}

impl FromStr for Call {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a call");
        let mut words = text.split('.');
        let name = words.next().unwrap_or_default();
        let &(op, _, arity) = OPS.iter().find(|(_, known, _)| *known == name).ok_or_else(wrong)?;
        let args = words.map(str::parse).collect::<Result<Vec<u8>, _>>().map_err(|_| wrong())?;
        if args.len() == arity { Ok(op.with(&args)) } else { Err(wrong()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_have_their_numbers() {
        assert!(OPS.iter().enumerate().all(|(number, (op, ..))| *op as usize == number));
    }

    #[test]
    fn calls_are_read_as_they_are_written() {
        for (op, _, arity) in OPS {
            let call = op.with(&[7, 8, 9][..arity]);
            assert_eq!(call.to_string().parse(), Ok(call));
        }
        assert_eq!(Op::Pread.with(&[3, 1]).to_string(), "pread.3.1");
        for bad in ["", "reed.1", "read", "read.1.2", "read.x", "read.300"] {
            assert!(bad.parse::<Call>().is_err(), "{bad}");
        }
    }
}

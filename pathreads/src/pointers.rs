//! The memory that the kernel touches in a system call, for calls of which that is plain.
//!
//! Threads with address spaces of their own have the memory mapped that a call names before it is made. For a
//! call that is not in the table all memory is mapped, which is right and slow, and has others ask for the
//! memory when they unmap it.

/// The memory at an address in an argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Memory {
    /// The address is in this argument. A number of bytes.
    Bytes(usize, u64),
    /// The address is in this argument. Elements of this size, and the argument that has their number.
    Elements(usize, u64, usize),
    /// A string.
    Text(usize),
    /// A set of descriptors. The first argument has the number of its bits.
    Set(usize),
}

use Memory::{Bytes, Elements, Set, Text};

/// The most bytes of a string, a path.
const TEXT: u64 = 4096;

/// The bytes of a `timespec`, an address of a socket, and a status of a file.
const TIME: u64 = 16;
const ADDRESS: u64 = 128;
const STATUS: u64 = 144;

impl Memory {
    /// Returns the address and the length, by a call's number and arguments. An address of 0 is no memory.
    pub fn range(self, call: &[u64; 7]) -> (u64, u64) {
        match self {
            Bytes(at, length) => (call[at + 1], length),
            Elements(at, size, count) => (call[at + 1], size.saturating_mul(call[count + 1])),
            Text(at) => (call[at + 1], TEXT),
            Set(at) => (call[at + 1], u64::from(call[1] as u32).div_ceil(64) * 8),
        }
    }
}

/// Returns the memory that a call names, or `None` if that is not known. Arguments are counted from 0.
pub const fn of(number: u64) -> Option<&'static [Memory]> {
    Some(match number {
        // open, stat, lstat, access, readlink, unlink
        2 | 21 | 87 => &[Text(0)],
        4 | 6 => &[Text(0), Bytes(1, STATUS)],
        89 => &[Text(0), Elements(1, 1, 2)],
        // openat, unlinkat, faccessat, newfstatat, readlinkat, faccessat2
        257 | 263 | 269 | 439 => &[Text(1)],
        262 => &[Text(1), Bytes(2, STATUS)],
        267 => &[Text(1), Elements(2, 1, 3)],
        // fstat, getdents64, getrandom
        5 => &[Bytes(1, STATUS)],
        217 => &[Elements(1, 1, 2)],
        318 => &[Elements(0, 1, 1)],
        // poll, select, epoll_wait, epoll_ctl
        7 => &[Elements(0, 8, 1)],
        23 => &[Set(1), Set(2), Set(3), Bytes(4, TIME)],
        232 => &[Elements(1, 12, 2)],
        233 => &[Bytes(3, 12)],
        // nanosleep, gettimeofday, clock_gettime, clock_getres, clock_nanosleep
        35 => &[Bytes(0, TIME), Bytes(1, TIME)],
        96 => &[Bytes(0, TIME), Bytes(1, 8)],
        228 | 229 => &[Bytes(1, TIME)],
        230 => &[Bytes(2, TIME), Bytes(3, TIME)],
        // rt_sigprocmask, sched_setaffinity, sched_getaffinity
        14 => &[Bytes(1, 8), Bytes(2, 8)],
        203 | 204 => &[Elements(2, 1, 1)],
        // connect, bind, accept, accept4, sendto, recvfrom
        42 | 49 => &[Elements(1, 1, 2)],
        43 | 288 => &[Bytes(1, ADDRESS), Bytes(2, 4)],
        44 => &[Elements(1, 1, 2), Elements(4, 1, 5)],
        45 => &[Elements(1, 1, 2), Bytes(4, ADDRESS), Bytes(5, 4)],
        // dup, alarm, socket, shutdown, listen, kill, getuid, getgid, geteuid, getegid, fdatasync, tkill,
        // set_robust_list, eventfd2, epoll_create1
        32 | 37 | 41 | 48 | 50 | 62 | 75 | 102 | 104 | 107 | 108 | 200 | 273 | 290 | 291 => &[],
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_where_the_arguments_say() {
        let call = [0, 1, 2, 3, 4, 5, 6];
        assert_eq!(Bytes(2, 7).range(&call), (3, 7));
        assert_eq!(Elements(0, 10, 5).range(&call), (1, 60));
        let sets = [0, 64, 65, 3000].map(|bits| Set(1).range(&[23, bits, 7, 0, 0, 0, 0]));
        assert_eq!(sets, [0, 8, 16, 376].map(|bytes| (7, bytes)));
        assert_eq!(Text(4).range(&call), (5, 4096));
        assert_eq!(Elements(0, 8, 1).range(&[7, 9, u64::MAX, 0, 0, 0, 0]), (9, u64::MAX));
    }

    #[test]
    fn every_entry_names_arguments() {
        let index = |memory: &Memory| match *memory {
            Bytes(at, _) | Text(at) | Set(at) => at,
            Elements(at, _, count) => at.max(count),
        };
        let entries = (0..600).filter_map(of);
        assert!(entries.clone().count() > 40);
        assert!(entries.flatten().all(|memory| index(memory) < 6));
        // writev, ioctl and clone name more than this table can say.
        assert!([16, 20, 56].map(of).iter().all(Option::is_none));
    }
}

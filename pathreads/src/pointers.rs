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
    /// The address of `iovec` elements, and the argument that has their number. They name memory themselves.
    Vectors(usize, usize),
    /// The address of a `msghdr`, which names memory itself.
    Message(usize),
    /// The address of `mmsghdr` elements, which name memory, and the argument that has their number.
    Messages(usize, usize),
}

use Memory::{Bytes, Elements, Message, Messages, Set, Text, Vectors};

/// The most bytes of a string, a path.
const TEXT: u64 = 4096;

/// The bytes of a `timespec`, an `itimerval`, an address of a socket, a status of a file, of a file system,
/// and of what a process used.
const TIME: u64 = 16;
const TIMER: u64 = 32;
const ADDRESS: u64 = 128;
const STATUS: u64 = 144;
const FILE_SYSTEM: u64 = 120;
const USAGE: u64 = 144;

/// The bytes of an `iovec`.
pub const VECTOR: u64 = 16;
/// The bytes of a `msghdr`.
const MESSAGE: u64 = 56;
/// The bytes of a `mmsghdr`, which begins with a `msghdr`.
pub const MESSAGE_OF_MANY: u64 = 64;
/// The most elements of an array of `iovec` or `mmsghdr`.
pub const MOST_VECTORS: u64 = 1024;
/// More messages than a program receives by one call. Linux has no limit there.
const MOST_RECEIVED: u64 = 1 << 16;
const RECVMMSG: u64 = 299;
/// More than what a `prctl` or an `ioctl` of a terminal reads or writes.
const SMALL: u64 = 512;

impl Memory {
    /// Returns the address and the length, by a call's number and arguments. An address of 0 is no memory.
    pub fn range(self, call: &[u64; 7]) -> (u64, u64) {
        match self {
            Bytes(at, length) => (call[at + 1], length),
            Elements(at, size, count) => (call[at + 1], size.saturating_mul(call[count + 1])),
            Text(at) => (call[at + 1], TEXT),
            Set(at) => (call[at + 1], u64::from(call[1] as u32).div_ceil(64) * 8),
            Vectors(at, count) => (call[at + 1], VECTOR * call[count + 1].min(MOST_VECTORS)),
            Message(at) => (call[at + 1], MESSAGE),
            Messages(at, count) => {
                let most = if call[0] == RECVMMSG { MOST_RECEIVED } else { MOST_VECTORS };
                let count = u64::from(call[count + 1] as u32);
                (call[at + 1], MESSAGE_OF_MANY * count.min(most))
            }
        }
    }
}

/// Returns the memory that a call names, or `None` if that is not known. `second` is its second argument.
/// Arguments are counted from 0.
pub const fn of(number: u64, second: u64) -> Option<&'static [Memory]> {
    const IOCTL: u64 = 16;
    if number == IOCTL { of_ioctl(second) } else { of_call(number) }
}

/// Does this for the `ioctl` calls of terminals, and those of all files.
const fn of_ioctl(request: u64) -> Option<&'static [Memory]> {
    const TERMINAL: u64 = 0x54;
    match request >> 8 {
        TERMINAL => Some(&[Bytes(2, SMALL)]),
        _ => None,
    }
}

const fn of_call(number: u64) -> Option<&'static [Memory]> {
    Some(match number {
        // open, chdir, mkdir, rmdir, creat, unlink, chmod, chown, lchown, truncate
        2 | 76 | 80 | 83 | 84 | 85 | 87 | 90 | 92 | 94 => &[Text(0)],
        // stat, lstat, statfs, access, readlink, getcwd
        4 | 6 => &[Text(0), Bytes(1, STATUS)],
        137 => &[Text(0), Bytes(1, FILE_SYSTEM)],
        21 => &[Text(0)],
        89 => &[Text(0), Elements(1, 1, 2)],
        79 => &[Elements(0, 1, 1)],
        // rename, link, symlink
        82 | 86 | 88 => &[Text(0), Text(1)],
        // openat, mkdirat, fchownat, unlinkat, fchmodat, faccessat, faccessat2
        257 | 258 | 260 | 263 | 268 | 269 | 439 => &[Text(1)],
        // newfstatat, statx, readlinkat, utimensat
        262 => &[Text(1), Bytes(2, STATUS)],
        332 => &[Text(1), Bytes(4, 256)],
        267 => &[Text(1), Elements(2, 1, 3)],
        280 => &[Text(1), Bytes(2, 2 * TIME)],
        // renameat, linkat, renameat2, symlinkat
        264 | 265 | 316 => &[Text(1), Text(3)],
        266 => &[Text(0), Text(2)],
        // fstat, fstatfs, getdents64, getrandom, memfd_create, fcntl
        5 => &[Bytes(1, STATUS)],
        138 => &[Bytes(1, FILE_SYSTEM)],
        217 => &[Elements(1, 1, 2)],
        318 => &[Elements(0, 1, 1)],
        319 => &[Text(0)],
        72 => &[Bytes(2, 32)],
        // readv, writev, preadv, pwritev, preadv2, pwritev2
        19 | 20 | 295 | 296 | 327 | 328 => &[Vectors(1, 2)],
        // process_vm_readv, process_vm_writev: the other list names memory of a process
        310 | 311 => &[Vectors(1, 2), Elements(3, VECTOR, 4)],
        // pipe, pipe2, sendfile, splice, copy_file_range
        22 | 293 => &[Bytes(0, 8)],
        40 => &[Bytes(2, 8)],
        275 | 326 => &[Bytes(1, 8), Bytes(3, 8)],
        // poll, ppoll, select, epoll_wait, epoll_pwait, epoll_ctl
        7 => &[Elements(0, 8, 1)],
        271 => &[Elements(0, 8, 1), Bytes(2, TIME), Bytes(3, 8)],
        23 => &[Set(1), Set(2), Set(3), Bytes(4, TIME)],
        232 => &[Elements(1, 12, 2)],
        281 => &[Elements(1, 12, 2), Bytes(4, 8)],
        233 => &[Bytes(3, 12)],
        // nanosleep, gettimeofday, time, clock_gettime, clock_getres, clock_nanosleep
        35 => &[Bytes(0, TIME), Bytes(1, TIME)],
        96 => &[Bytes(0, TIME), Bytes(1, 8)],
        201 => &[Bytes(0, 8)],
        228 | 229 => &[Bytes(1, TIME)],
        230 => &[Bytes(2, TIME), Bytes(3, TIME)],
        // getitimer, setitimer, timer_gettime, timer_settime, timerfd_gettime, timerfd_settime
        36 | 224 | 287 => &[Bytes(1, TIMER)],
        38 => &[Bytes(1, TIMER), Bytes(2, TIMER)],
        223 | 286 => &[Bytes(2, TIMER), Bytes(3, TIMER)],
        // rt_sigaction, rt_sigprocmask, rt_sigpending, rt_sigtimedwait, rt_sigsuspend, signalfd, signalfd4
        13 => &[Bytes(1, 32), Bytes(2, 32)],
        14 => &[Bytes(1, 8), Bytes(2, 8)],
        127 | 130 => &[Bytes(0, 8)],
        128 => &[Bytes(0, 8), Bytes(1, 128), Bytes(2, TIME)],
        282 | 289 => &[Bytes(1, 8)],
        // sched_setparam, sched_getparam, sched_setscheduler, sched_rr_get_interval, sched_setaffinity,
        // sched_getaffinity, getcpu
        142 | 143 => &[Bytes(1, 4)],
        144 => &[Bytes(2, 4)],
        148 => &[Bytes(1, TIME)],
        203 | 204 => &[Elements(2, 1, 1)],
        309 => &[Bytes(0, 4), Bytes(1, 4)],
        // connect, bind, accept, accept4, getsockname, getpeername, sendto, recvfrom
        42 | 49 => &[Elements(1, 1, 2)],
        43 | 51 | 52 | 288 => &[Bytes(1, ADDRESS), Bytes(2, 4)],
        44 => &[Elements(1, 1, 2), Elements(4, 1, 5)],
        45 => &[Elements(1, 1, 2), Bytes(4, ADDRESS), Bytes(5, 4)],
        // sendmsg, recvmsg, sendmmsg, recvmmsg, socketpair
        46 | 47 => &[Message(1)],
        307 => &[Messages(1, 2)],
        299 => &[Messages(1, 2), Bytes(4, TIME)],
        53 => &[Bytes(3, 8)],
        // arch_prctl, inotify_add_watch
        158 => &[Bytes(1, 8)],
        254 => &[Text(1)],
        // uname, getrlimit, getrusage, sysinfo, times, getgroups, getresuid, getresgid, prctl
        63 => &[Bytes(0, 390)],
        97 => &[Bytes(1, TIME)],
        98 => &[Bytes(1, USAGE)],
        99 => &[Bytes(0, 112)],
        100 => &[Bytes(0, 32)],
        115 => &[Elements(1, 4, 0)],
        118 | 120 => &[Bytes(0, 4), Bytes(1, 4), Bytes(2, 4)],
        157 => &[Bytes(1, SMALL), Text(4)],
        // wait4, waitid
        61 => &[Bytes(1, 4), Bytes(3, USAGE)],
        247 => &[Bytes(2, 128), Bytes(4, USAGE)],
        // sched_yield, dup, pause, alarm, getpid, socket, shutdown, listen, kill, flock, fdatasync,
        // ftruncate, fchdir, fchmod, fchown, umask
        24 | 32 | 34 | 37 | 39 | 41 | 48 | 50 | 62 | 73 | 75 | 77 | 81 | 91 | 93 | 95 => &[],
        // getuid, getgid, geteuid, getegid, setpgid, getpgrp, setsid, getpgid, getsid, getpriority,
        // setpriority, sched_getscheduler, sched_get_priority_max, sched_get_priority_min, sync, readahead,
        // tkill, fadvise64, timer_getoverrun, timer_delete, tgkill
        102
        | 104
        | 107
        | 108
        | 109
        | 111
        | 112
        | 121
        | 124
        | 140
        | 141
        | 145..=147
        | 162
        | 187
        | 200
        | 221
        | 225
        | 226
        | 234 => &[],
        // set_robust_list, timerfd_create, eventfd, fallocate, eventfd2, epoll_create, epoll_create1,
        // inotify_init1, inotify_rm_watch
        213 | 255 | 273 | 283 | 284 | 285 | 290 | 291 | 294 => &[],
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
        assert_eq!(Vectors(1, 2).range(&call), (2, 3 * VECTOR));
        assert_eq!(Vectors(1, 2).range(&[0, 1, 2, u64::MAX, 0, 0, 0]), (2, MOST_VECTORS * VECTOR));
        assert_eq!(Message(1).range(&call), (2, MESSAGE));
        assert_eq!(Messages(1, 2).range(&call), (2, 3 * MESSAGE_OF_MANY));
        assert_eq!(Messages(1, 2).range(&[0, 1, 2, u64::MAX, 0, 0, 0]), (2, MOST_VECTORS * MESSAGE_OF_MANY));
        assert_eq!(Messages(1, 2).range(&[299, 1, 2, 3000, 0, 0, 0]), (2, 3000 * MESSAGE_OF_MANY));
        assert_eq!(
            Messages(1, 2).range(&[299, 1, 2, u64::MAX, 0, 0, 0]),
            (2, MOST_RECEIVED * MESSAGE_OF_MANY)
        );
        assert_eq!(Elements(0, 8, 1).range(&[7, 9, u64::MAX, 0, 0, 0, 0]), (9, u64::MAX));
    }

    #[test]
    fn every_entry_names_arguments() {
        let index = |memory: &Memory| match *memory {
            Bytes(at, _) | Text(at) | Set(at) | Message(at) => at,
            Elements(at, _, count) | Vectors(at, count) | Messages(at, count) => at.max(count),
        };
        let entries = (0..600).filter_map(|number| of(number, 0));
        assert!(entries.clone().count() > 150);
        assert!(entries.flatten().all(|memory| index(memory) < 6));
        // clone and pselect6 name more than this table can say.
        assert!([56, 270].iter().all(|number| of(*number, 0).is_none()));
    }

    #[test]
    fn ioctl_is_known_by_its_request() {
        const TCGETS: u64 = 0x5401;
        const TIOCGPTN: u64 = 0x8004_5430;
        const SIOCGIFCONF: u64 = 0x8912;
        assert_eq!(of(16, TCGETS), Some(&[Bytes(2, SMALL)][..]));
        assert_eq!([TIOCGPTN, SIOCGIFCONF].map(|request| of(16, request)), [None, None]);
    }
}

//! System calls of the runtime itself.

use core::arch::asm;

use abi::Errno;

use crate::isolate;

/// The result of a call, or its error.
pub type Result<T = u64> = core::result::Result<T, Errno>;

/// Numbers of calls.
pub mod nr {
    pub const READ: u64 = 0;
    pub const WRITE: u64 = 1;
    pub const OPEN: u64 = 2;
    pub const CLOSE: u64 = 3;
    pub const FSTAT: u64 = 5;
    pub const POLL: u64 = 7;
    pub const LSEEK: u64 = 8;
    pub const FSTATFS: u64 = 138;
    pub const MMAP: u64 = 9;
    pub const MPROTECT: u64 = 10;
    pub const MUNMAP: u64 = 11;
    pub const BRK: u64 = 12;
    pub const SIGACTION: u64 = 13;
    pub const SIGPROCMASK: u64 = 14;
    pub const IOCTL: u64 = 16;
    pub const PREAD: u64 = 17;
    pub const WRITEV: u64 = 20;
    pub const PWRITE: u64 = 18;
    pub const READV: u64 = 19;
    pub const ACCESS: u64 = 21;
    pub const SELECT: u64 = 23;
    pub const SCHED_YIELD: u64 = 24;
    pub const MREMAP: u64 = 25;
    pub const MSYNC: u64 = 26;
    pub const MINCORE: u64 = 27;
    pub const MADVISE: u64 = 28;
    pub const SHMAT: u64 = 30;
    pub const DUP: u64 = 32;
    pub const DUP2: u64 = 33;
    pub const GETITIMER: u64 = 36;
    pub const ALARM: u64 = 37;
    pub const SETITIMER: u64 = 38;
    pub const GETPID: u64 = 39;
    pub const SETSOCKOPT: u64 = 54;
    pub const CLONE: u64 = 56;
    pub const FORK: u64 = 57;
    pub const VFORK: u64 = 58;
    pub const EXECVE: u64 = 59;
    pub const EXIT: u64 = 60;
    pub const WAIT4: u64 = 61;
    pub const KILL: u64 = 62;
    pub const FCNTL: u64 = 72;
    pub const FSYNC: u64 = 74;
    pub const FTRUNCATE: u64 = 77;
    pub const READLINK: u64 = 89;
    pub const GETRUSAGE: u64 = 98;
    pub const TIMES: u64 = 100;
    pub const PTRACE: u64 = 101;
    pub const GETUID: u64 = 102;
    pub const SETUID: u64 = 105;
    pub const SETGID: u64 = 106;
    pub const SETPGID: u64 = 109;
    pub const GETPPID: u64 = 110;
    pub const GETPGRP: u64 = 111;
    pub const SETSID: u64 = 112;
    pub const SETREUID: u64 = 113;
    pub const GETGROUPS: u64 = 115;
    pub const GETRESUID: u64 = 118;
    pub const GETRESGID: u64 = 120;
    pub const GETPGID: u64 = 121;
    pub const SETFSGID: u64 = 123;
    pub const GETSID: u64 = 124;
    pub const CAPSET: u64 = 126;
    pub const SIGPENDING: u64 = 127;
    pub const SIGTIMEDWAIT: u64 = 128;
    pub const SIGQUEUEINFO: u64 = 129;
    pub const SIGSUSPEND: u64 = 130;
    pub const SIGALTSTACK: u64 = 131;
    pub const PERSONALITY: u64 = 135;
    pub const SETPRIORITY: u64 = 141;
    pub const SCHED_SETPARAM: u64 = 142;
    pub const SCHED_SETSCHEDULER: u64 = 144;
    pub const MLOCK: u64 = 149;
    pub const MUNLOCK: u64 = 150;
    pub const MLOCKALL: u64 = 151;
    pub const PRCTL: u64 = 157;
    pub const ARCH_PRCTL: u64 = 158;
    pub const SETRLIMIT: u64 = 160;
    pub const IOPL: u64 = 172;
    pub const IOPERM: u64 = 173;
    pub const NANOSLEEP: u64 = 35;
    pub const PROCESS_MADVISE: u64 = 440;
    pub const GETTID: u64 = 186;
    pub const FGETXATTR: u64 = 193;
    pub const TKILL: u64 = 200;
    pub const FUTEX: u64 = 202;
    pub const SCHED_SETAFFINITY: u64 = 203;
    pub const IO_SETUP: u64 = 206;
    pub const REMAP_FILE_PAGES: u64 = 216;
    pub const SET_TID_ADDRESS: u64 = 218;
    pub const TIMER_CREATE: u64 = 222;
    pub const TIMER_SETTIME: u64 = 223;
    pub const TIMER_GETTIME: u64 = 224;
    pub const TIMER_GETOVERRUN: u64 = 225;
    pub const TIMER_DELETE: u64 = 226;
    pub const CLOCK_GETTIME: u64 = 228;
    pub const CLOCK_GETRES: u64 = 229;
    pub const EXIT_GROUP: u64 = 231;
    pub const EPOLL_WAIT: u64 = 232;
    pub const EPOLL_CTL: u64 = 233;
    pub const TGKILL: u64 = 234;
    pub const MBIND: u64 = 237;
    pub const SET_MEMPOLICY: u64 = 238;
    pub const WAITID: u64 = 247;
    pub const ADD_KEY: u64 = 248;
    pub const REQUEST_KEY: u64 = 249;
    pub const KEYCTL: u64 = 250;
    pub const IOPRIO_SET: u64 = 251;
    pub const OPENAT: u64 = 257;
    pub const READLINKAT: u64 = 267;
    pub const PSELECT6: u64 = 270;
    pub const PPOLL: u64 = 271;
    pub const SET_ROBUST_LIST: u64 = 273;
    pub const GET_ROBUST_LIST: u64 = 274;
    pub const VMSPLICE: u64 = 278;
    pub const EPOLL_PWAIT: u64 = 281;
    pub const SIGNALFD: u64 = 282;
    pub const FALLOCATE: u64 = 285;
    pub const SIGNALFD4: u64 = 289;
    pub const DUP3: u64 = 292;
    pub const TGSIGQUEUEINFO: u64 = 297;
    pub const PERF_EVENT_OPEN: u64 = 298;
    pub const PRLIMIT64: u64 = 302;
    pub const PROCESS_VM_READV: u64 = 310;
    pub const PROCESS_VM_WRITEV: u64 = 311;
    pub const SCHED_SETATTR: u64 = 314;
    pub const SECCOMP: u64 = 317;
    pub const GETRANDOM: u64 = 318;
    pub const MEMFD_CREATE: u64 = 319;
    pub const EXECVEAT: u64 = 322;
    pub const USERFAULTFD: u64 = 323;
    pub const MEMBARRIER: u64 = 324;
    pub const MLOCK2: u64 = 325;
    pub const COPY_FILE_RANGE: u64 = 326;
    pub const PKEY_MPROTECT: u64 = 329;
    pub const STATX: u64 = 332;
    pub const IO_PGETEVENTS: u64 = 333;
    pub const IO_URING_SETUP: u64 = 425;
    pub const CLONE3: u64 = 435;
    pub const CLOSE_RANGE: u64 = 436;
    pub const OPENAT2: u64 = 437;
    pub const EPOLL_PWAIT2: u64 = 441;
    pub const LANDLOCK_RESTRICT_SELF: u64 = 446;
    pub const LSM_SET_SELF_ATTR: u64 = 460;
    pub const MSEAL: u64 = 462;
}

pub const PROT_READ: u64 = 1;
pub const PROT_WRITE: u64 = 2;
pub const PROT_EXEC: u64 = 4;
pub const MAP_SHARED: u64 = 1;
pub const MAP_PRIVATE: u64 = 2;
pub const MAP_FIXED: u64 = 0x10;
pub const MAP_ANONYMOUS: u64 = 0x20;
pub const MAP_NORESERVE: u64 = 0x4000;
pub const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;
pub const NO_FILE: u64 = u64::MAX;
pub const O_CLOEXEC: u64 = 0x8_0000;
pub const O_NONBLOCK: u64 = 0o4000;
pub const AT_FDCWD: u64 = -100_i64 as u64;
pub const SIGSYS: u64 = 31;
/// The bit of SIGSYS in a set of signals.
pub const SIGSYS_BIT: u64 = 1 << (SIGSYS - 1);
const SIG_BLOCK: u64 = 0;
pub const SIG_SETMASK: u64 = 2;
/// The signals that are blocked in parts of the runtime: all but SIGSEGV and SIGBUS, which end copies from
/// wrong addresses, and SIGSYS, by which their handlers return.
pub const ALL_BUT_FAULTS: u64 = !(SIGSYS_BIT | 1 << (11 - 1) | 1 << (7 - 1));

/// Makes a call and returns rax.
///
/// # Safety
/// The call must not change memory that Rust relies on.
#[inline]
pub unsafe fn raw(number: u64, arguments: [u64; 6]) -> u64 {
    let [a, b, c, d, e, f] = arguments;
    let result;
    // SAFETY: the caller answers for the call. The kernel changes no register but these three.
    unsafe {
        asm!("syscall", inlateout("rax") number => result, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
            in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _);
    }
    result
}

/// Makes a call with the arguments that it needs.
///
/// # Safety
/// As for [`raw`].
pub unsafe fn call<const N: usize>(number: u64, arguments: [u64; N]) -> Result {
    let mut all = [0; 6];
    all[..N].copy_from_slice(&arguments);
    // SAFETY: the caller answers for the call.
    let result = unsafe { raw(number, all) };
    Errno::from_result(result).map_or(Ok(result), Err)
}

/// Makes a call that changes no memory of this process, or only what it is given to write to.
macro_rules! harmless {
    ($number:expr $(, $argument:expr)*) => {
        // SAFETY: the kernel writes to nothing but the buffer in the arguments, if there is one, which
        // is borrowed.
        unsafe { $crate::sys::call($number, [$($argument),*]) }
    };
}
pub(crate) use harmless;

/// Ends the process with a message.
pub fn fail(message: &[u8], status: u64) -> ! {
    say(&[b"pathreads: ", message, b"\n"]);
    exit(status)
}

/// Ends the process.
pub fn exit(status: u64) -> ! {
    loop {
        let _ = harmless!(nr::EXIT_GROUP, status);
    }
}

/// Writes to standard error, by one call: what several threads say does not get mixed.
pub fn say(parts: &[&[u8]]) {
    let mut buffers = [[0; 2]; 13];
    for (buffer, part) in buffers.iter_mut().zip(parts) {
        *buffer = [part.as_ptr() as u64, part.len() as u64];
    }
    let _ = harmless!(nr::WRITEV, 2, buffers.as_ptr() as u64, parts.len().min(buffers.len()) as u64);
}

/// Opens a file to read, by the address of its path. The kernel checks the address.
pub fn open(path: u64, flags: u64) -> Result {
    harmless!(nr::OPEN, path, flags | O_CLOEXEC)
}

/// Opens a file to read it. If it is a pipe, this does not wait for one that writes to it.
pub fn open_to_look(path: u64) -> Result {
    open(path, O_NONBLOCK)
}

pub fn close(file: u64) {
    let _ = harmless!(nr::CLOSE, file);
}

/// The most bytes of data that a process may have.
pub const RLIMIT_DATA: u64 = 2;

/// The most descriptors.
pub const RLIMIT_NOFILE: u64 = 7;

/// The most bytes of addresses.
pub const RLIMIT_AS: u64 = 9;

/// Returns a limit of this process.
pub fn limit_of(kind: u64) -> u64 {
    let mut limits = [u64::MAX; 2];
    let _ = harmless!(nr::PRLIMIT64, 0, kind, 0, limits.as_mut_ptr() as u64);
    limits[0]
}

/// Reads from an offset of a file.
pub fn read_at(file: u64, buffer: &mut [u8], offset: u64) -> Result<usize> {
    let read = harmless!(nr::PREAD, file, buffer.as_mut_ptr() as u64, buffer.len() as u64, offset)?;
    Ok(read as usize)
}

/// Maps memory.
///
/// # Safety
/// A fixed address must not hold memory that Rust relies on.
pub unsafe fn mmap(address: u64, length: u64, protection: u64, flags: u64, file: u64, offset: u64) -> Result {
    // SAFETY: the caller answers for the address.
    unsafe { call(nr::MMAP, [address, length, protection, flags, file, offset]) }
}

/// Maps zeroes where the kernel likes.
pub fn map_zeroes(length: u64) -> Result {
    // SAFETY: the kernel chooses a free address.
    unsafe { mmap(0, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, NO_FILE, 0) }
}

/// Unmaps memory.
///
/// # Safety
/// Nothing may use the memory any more.
pub unsafe fn munmap(address: u64, length: u64) {
    // SAFETY: the caller answers for it.
    let _ = unsafe { call(nr::MUNMAP, [address, length]) };
}

/// Unblocks a set of signals.
pub fn unblock(set: u64) {
    const SIG_UNBLOCK: u64 = 1;
    let _ = harmless!(nr::SIGPROCMASK, SIG_UNBLOCK, &raw const set as u64, 0, 8);
}

/// Blocks all signals that the kernel lets a thread block.
pub fn block_all() {
    let mask = u64::MAX;
    let _ = harmless!(nr::SIGPROCMASK, SIG_SETMASK, &raw const mask as u64, 0, 8);
}

/// Replaces the set of blocked signals and returns the old one. Those that must not be blocked are left out.
pub fn set_mask(mask: u64) -> u64 {
    let mask = if isolate::is_on() { mask & !isolate::never_blocked() } else { mask };
    change_mask(SIG_SETMASK, mask)
}

/// Blocks signals, besides those that are, and returns the set before.
pub fn block(signals: u64) -> u64 {
    change_mask(SIG_BLOCK, signals)
}

/// Runs `f` with signals blocked that may be, and those that were blocked before.
pub fn with_signals_blocked<R>(f: impl FnOnce() -> R) -> R {
    let before = block(!isolate::never_blocked());
    let result = f();
    change_mask(SIG_SETMASK, before);
    result
}

/// Changes the set of blocked signals and returns the old one.
fn change_mask(how: u64, mask: u64) -> u64 {
    let mut old = 0_u64;
    let (new, old_at) = (&raw const mask as u64, &raw mut old as u64);
    let _ = harmless!(nr::SIGPROCMASK, how, new, old_at, 8);
    old
}

/// Formats a number.
pub fn decimal(mut number: u64, buffer: &mut [u8; 20]) -> &[u8] {
    let mut at = buffer.len();
    loop {
        at -= 1;
        buffer[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &buffer[at..];
        }
    }
}

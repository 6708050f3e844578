//! Performs one call of a test. The call alone stands between the two marks of the meter.

use std::arch::asm;
use std::ffi::CString;
use std::ptr;

use commute::call::*;
use libc::c_int;
use programs::marker;

use crate::sides::Board;

/// The address of the first slot.
const BASE: usize = 0x2000_0000_0000;

/// The address of a slot.
fn slot(number: u8) -> usize {
    BASE + SLOT_PAGES[number as usize] * PAGE
}

/// The signals that calls send.
const SIGNALS_SENT: [c_int; SIGNALS] = [libc::SIGUSR1, libc::SIGUSR2];
/// Bytes of a set of signals.
const SET_BYTES: usize = 8;
/// A value that no slot has: all their bytes are small.
const NEVER: usize = 0xffff_ff00;

/// A call with its arguments in place.
enum Action {
    System(libc::c_long, [usize; 6]),
    Load(usize),
    Store(usize, u8),
}

/// The memory that calls of one side use.
pub struct Executor {
    names: Vec<CString>,
    buffer: Vec<u8>,
    stat: libc::stat,
    ends: [c_int; 2],
    /// A set of signals that a call takes or writes.
    set: u64,
    /// The actions that `sigaction` takes and writes, in the form of the kernel.
    new_action: [usize; 4],
    old_action: [usize; 4],
    /// The count that a call writes to an eventfd.
    count: u64,
    /// The lock that a call takes, or asks for.
    lock: libc::flock,
    board: &'static Board,
}

impl Executor {
    /// Makes the memory, and says on the board which thread a side is. Blocks the signals that calls send.
    pub fn new(board: &'static Board, side: usize) -> Self {
        board.enter(side);
        let mut blocked = SIGNALS_SENT.into_iter().fold(0, |set, signal| set | bit(signal));
        change_mask(libc::SIG_BLOCK, &mut blocked);
        let names = NAMES.iter().map(|name| CString::new(*name).expect("no name has a zero")).collect();
        // SAFETY: all zero is a value of this structure.
        let stat = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let lock = unsafe { std::mem::zeroed() };
        Executor {
            names,
            buffer: vec![1; PAGE],
            stat,
            ends: [0; 2],
            set: 0,
            new_action: [0; 4],
            old_action: [0; 4],
            count: 0,
            lock,
            board,
        }
    }

    /// Performs a call and returns its values: the result or the negative error number, and what it wrote.
    pub fn execute(&mut self, call: Call, is_marked: bool) -> Vec<i64> {
        let action = self.action(call);
        if is_marked {
            marker::call();
        }
        let result = perform(&action);
        if is_marked {
            marker::call_returned();
        }
        let mut values = vec![result];
        match call.op {
            Op::Stat | Op::Fstat if result == 0 => {
                let size =
                    if self.stat.st_mode & libc::S_IFMT == libc::S_IFIFO { 0 } else { self.stat.st_size };
                // A pipe and a file in memory may have the same inode number on Linux, but not on one device.
                let number = (self.stat.st_dev as i64) << 40 ^ self.stat.st_ino as i64;
                values.extend([number, self.stat.st_nlink as i64, size]);
            }
            Op::Read | Op::Pread | Op::Recv if result > 0 => values.push(self.buffer[0].into()),
            Op::EventRead if result > 0 => values.push(self.count as i64),
            Op::Lock if result == 0 && call.args[1] == ASK => values.push(kind_of_lock(self.lock.l_type)),
            Op::Pipe | Op::Socketpair if result == 0 => values.extend(self.ends.map(i64::from)),
            Op::Sigpending if result == 0 => {
                let is_pending = |signal: &c_int| self.set & bit(*signal) != 0;
                let bits = SIGNALS_SENT.iter().map(is_pending).enumerate();
                values.push(bits.map(|(place, is_set)| i64::from(is_set) << place).sum());
            }
            Op::Sigmask if result == 0 => values.push((self.set & bit(libc::SIGURG) != 0).into()),
            Op::Sigaction if result == 0 => values.push((self.old_action[0] == libc::SIG_IGN).into()),
            _ => {}
        }
        values
    }

    fn action(&mut self, call: Call) -> Action {
        use Action::System;
        let [first, second, third] = call.args;
        let [a, b] = [first, second].map(usize::from);
        let name = |number: u8| self.names.get(number as usize).map_or(0, |name| name.as_ptr() as usize);
        match call.op {
            Op::Open => System(libc::SYS_open, [name(first), open_flags(second), 0, 0, 0, 0]),
            Op::Creat => {
                let flags = libc::O_CREAT | libc::O_RDWR | if second == 1 { libc::O_EXCL } else { 0 };
                System(libc::SYS_open, [name(first), flags as usize, 0o600, 0, 0, 0])
            }
            Op::Close => System(libc::SYS_close, [a, 0, 0, 0, 0, 0]),
            Op::Dup => System(libc::SYS_dup, [a, 0, 0, 0, 0, 0]),
            Op::Dup2 => System(libc::SYS_dup2, [a, b, 0, 0, 0, 0]),
            Op::Pipe => System(libc::SYS_pipe2, [self.ends.as_mut_ptr() as usize, 0, 0, 0, 0, 0]),
            Op::Link => System(libc::SYS_link, [name(first), name(second), 0, 0, 0, 0]),
            Op::Unlink => System(libc::SYS_unlink, [name(first), 0, 0, 0, 0, 0]),
            Op::Rename => System(libc::SYS_rename, [name(first), name(second), 0, 0, 0, 0]),
            Op::Stat => System(libc::SYS_stat, [name(first), &raw mut self.stat as usize, 0, 0, 0, 0]),
            Op::Fstat => System(libc::SYS_fstat, [a, &raw mut self.stat as usize, 0, 0, 0, 0]),
            Op::Lseek => System(libc::SYS_lseek, [a, b * PAGE, third.into(), 0, 0, 0]),
            Op::Read => System(libc::SYS_read, [a, self.buffer.as_mut_ptr() as usize, PAGE, 0, 0, 0]),
            Op::Pread => {
                System(libc::SYS_pread64, [a, self.buffer.as_mut_ptr() as usize, PAGE, b * PAGE, 0, 0])
            }
            Op::Write => System(libc::SYS_write, [a, self.filled(second), PAGE, 0, 0, 0]),
            Op::Pwrite => System(libc::SYS_pwrite64, [a, self.filled(third), PAGE, b * PAGE, 0, 0]),
            Op::Mmap => System(libc::SYS_mmap, mmap(first, second, third == 1)),
            Op::Munmap => System(libc::SYS_munmap, [slot(first), PAGE, 0, 0, 0, 0]),
            Op::Mprotect => System(libc::SYS_mprotect, [slot(first), PAGE, protection(second == 1), 0, 0, 0]),
            Op::Load => Action::Load(slot(first)),
            Op::Store => Action::Store(slot(first), second),
            Op::Kill => {
                let (process, _) = self.board.thread(a);
                System(libc::SYS_kill, [process, SIGNALS_SENT[b] as usize, 0, 0, 0, 0])
            }
            Op::Tgkill => {
                let (process, thread) = self.board.thread(a);
                System(libc::SYS_tgkill, [process, thread, SIGNALS_SENT[b] as usize, 0, 0, 0])
            }
            Op::Sigpending => {
                System(libc::SYS_rt_sigpending, [&raw mut self.set as usize, SET_BYTES, 0, 0, 0, 0])
            }
            Op::Sigmask => System(libc::SYS_rt_sigprocmask, self.mask(first)),
            Op::Sigaction => System(libc::SYS_rt_sigaction, self.sigaction(SIGNALS_SENT[a], second)),
            Op::FutexWake => System(libc::SYS_futex, futex(first, libc::FUTEX_WAKE, 1)),
            Op::FutexWait => System(libc::SYS_futex, futex(first, libc::FUTEX_WAIT, NEVER)),
            Op::Ftruncate => System(libc::SYS_ftruncate, [a, b * PAGE, 0, 0, 0, 0]),
            Op::Mremap => {
                let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
                System(libc::SYS_mremap, [slot(first), PAGE, PAGE, flags as usize, slot(second), 0])
            }
            Op::Socketpair => {
                let [family, kind] = [libc::AF_UNIX, libc::SOCK_STREAM].map(|number| number as usize);
                System(libc::SYS_socketpair, [family, kind, 0, self.ends.as_mut_ptr() as usize, 0, 0])
            }
            Op::Send => {
                let flags = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as usize;
                System(libc::SYS_sendto, [a, self.filled(second), PAGE, flags, 0, 0])
            }
            Op::Recv => {
                let buffer = self.buffer.as_mut_ptr() as usize;
                System(libc::SYS_recvfrom, [a, buffer, PAGE, libc::MSG_DONTWAIT as usize, 0, 0])
            }
            Op::Eventfd => System(libc::SYS_eventfd2, [0, libc::EFD_NONBLOCK as usize, 0, 0, 0, 0]),
            Op::EventWrite => {
                self.count = second.into();
                System(libc::SYS_write, [a, &raw const self.count as usize, size_of::<u64>(), 0, 0, 0])
            }
            Op::EventRead => {
                System(libc::SYS_read, [a, &raw mut self.count as usize, size_of::<u64>(), 0, 0, 0])
            }
            Op::Lock => System(libc::SYS_fcntl, self.lock(a, second)),
        }
    }

    /// Returns the arguments of a call that takes or releases a lock on a whole file, or asks which lock is
    /// in the way of one for writing.
    fn lock(&mut self, fd: usize, how: u8) -> [usize; 6] {
        self.lock.l_type = match how {
            SHARED => libc::F_RDLCK,
            UNLOCK => libc::F_UNLCK,
            _ => libc::F_WRLCK,
        } as libc::c_short;
        (self.lock.l_whence, self.lock.l_start, self.lock.l_len) = (libc::SEEK_SET as libc::c_short, 0, 0);
        let command = if how == ASK { libc::F_GETLK } else { libc::F_SETLK };
        [fd, command as usize, &raw mut self.lock as usize, 0, 0, 0]
    }

    /// Returns the arguments of a call that asks for the mask, and may block or unblock SIGURG.
    fn mask(&mut self, how: u8) -> [usize; 6] {
        self.new_action[0] = bit(libc::SIGURG) as usize;
        let set = &raw const self.new_action as usize;
        let (how, set) = match how {
            BLOCK => (libc::SIG_BLOCK, set),
            UNBLOCK => (libc::SIG_UNBLOCK, set),
            _ => (libc::SIG_BLOCK, 0),
        };
        [how as usize, set, &raw mut self.set as usize, SET_BYTES, 0, 0]
    }

    /// Returns the arguments of a call that asks for the disposition of a signal, and may set it.
    fn sigaction(&mut self, signal: c_int, how: u8) -> [usize; 6] {
        self.new_action = [if how == IGNORE { libc::SIG_IGN } else { libc::SIG_DFL }, 0, 0, 0];
        let new = if how == ASK { 0 } else { &raw const self.new_action as usize };
        [signal as usize, new, &raw mut self.old_action as usize, SET_BYTES, 0, 0]
    }

    fn filled(&mut self, value: u8) -> usize {
        self.buffer.fill(value);
        self.buffer.as_ptr() as usize
    }

    /// Closes all descriptors of calls, unmaps all slots of this process, and takes its pending signals away.
    pub fn clean(&mut self) {
        for (signal, how) in [(0, IGNORE), (0, DEFAULT), (1, IGNORE), (1, DEFAULT)] {
            self.execute(Op::Sigaction.with(&[signal, how]), false);
        }
        self.execute(Op::Sigmask.with(&[UNBLOCK]), false);
        for fd in FIRST_FD..FIRST_FD + FDS as u8 {
            self.execute(Op::Close.with(&[fd]), false);
        }
        let pages = SLOT_PAGES[SLOTS - 1] + 1;
        perform(&Action::System(libc::SYS_munmap, [BASE, pages * PAGE, 0, 0, 0, 0]));
    }

    /// Removes all names.
    pub fn remove_names(&mut self) {
        for name in 0..NAMES.len() as u8 {
            self.execute(Op::Unlink.with(&[name]), false);
        }
    }
}

/// Returns the number in the model of the lock that the kernel has found.
fn kind_of_lock(kind: libc::c_short) -> i64 {
    match c_int::from(kind) {
        libc::F_UNLCK => 0,
        libc::F_RDLCK => SHARED.into(),
        _ => EXCLUSIVE.into(),
    }
}

/// Returns the set of one signal, as the kernel has it.
fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

fn change_mask(how: c_int, set: &mut u64) {
    perform(&Action::System(
        libc::SYS_rt_sigprocmask,
        [how as usize, ptr::from_mut(set) as usize, 0, SET_BYTES, 0, 0],
    ));
}

fn futex(place: u8, operation: c_int, value: usize) -> [usize; 6] {
    [slot(place), (operation | libc::FUTEX_PRIVATE_FLAG) as usize, value, 0, 0, 0]
}

fn open_flags(how: u8) -> usize {
    let flags = match how {
        READ_ONLY => libc::O_RDONLY,
        TRUNCATE => libc::O_RDWR | libc::O_TRUNC,
        _ => libc::O_RDWR,
    };
    flags as usize
}

fn protection(is_writable: bool) -> usize {
    (libc::PROT_READ | if is_writable { libc::PROT_WRITE } else { 0 }) as usize
}

fn mmap(place: u8, fd: u8, is_writable: bool) -> [usize; 6] {
    let (flags, fd) = match fd {
        ANONYMOUS => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, usize::MAX),
        _ => (libc::MAP_SHARED, fd.into()),
    };
    [slot(place), PAGE, protection(is_writable), (flags | libc::MAP_FIXED) as usize, fd, 0]
}

/// Performs the call. The address that `mmap` returns counts as 0.
#[inline(always)]
fn perform(action: &Action) -> i64 {
    match action {
        Action::System(number, args) => {
            let result = system_call(*number, args);
            if matches!(*number, libc::SYS_mmap | libc::SYS_mremap) && result > 0 { 0 } else { result }
        }
        // SAFETY: the model has seen that the slot is mapped, and nothing else lies there.
        Action::Load(address) => i64::from(unsafe { (*address as *const u8).read_volatile() }),
        Action::Store(address, value) => {
            // SAFETY: as above, and the slot may be written.
            unsafe { (*address as *mut u8).write_volatile(*value) };
            0
        }
    }
}

/// Returns the result of a system call, which is a negative error number if it fails.
#[inline(always)]
fn system_call(number: libc::c_long, args: &[usize; 6]) -> i64 {
    let result: i64;
    // SAFETY: the arguments describe this program's own buffers, files and slots.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _,
        );
    }
    result
}

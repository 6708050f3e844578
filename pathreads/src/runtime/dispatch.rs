//! The calls of interest, and what is done with each.
//!
//! | call | why it is of interest |
//! |---|---|
//! | `mmap` | code of a file is rewritten before its first instruction, and small mappings come from the pool |
//! | `munmap` | blocks go back to the pool |
//! | calls that name a range of memory | blocks of the pool in it become the kernel's |
//! | limits, `mlockall`, and calls by which the kernel keeps pages in mind | the pool is switched off |
//! | `clone`, `clone3`, `fork`, `vfork` | the child must have its calls dispatched before its first instruction |
//! | `execve`, `execveat` | the program is to run under the runtime again |
//! | `rt_sigaction` | handlers are shown the program's registers, and SIGSYS is the runtime's |
//! | `rt_sigprocmask`, and calls that wait with a set of signals | SIGSYS must not be blocked: the kernel kills a thread whose call is dispatched then |
//! | `readlink`, `readlinkat`, `open`, `openat` | `/proc/self/exe` is the runtime's file, and `/proc/self/maps` is to show what is mapped |
//! | `seccomp` | a filter would meet the runtime's own calls |
//! | `prctl` | dispatching is the runtime's, and a filter may come this way, too |

use core::sync::atomic::{AtomicU8, Ordering};

use abi::Errno;
use pathreads::refused;
use pathreads::slot::NUMBERS;

use crate::entry::Frame;
use crate::sys::{self, nr};
use crate::{boot, exec, isolate, patch, pool, sigaction, spawn, stack, user};

/// A table of calls: not 0 for those of interest. Slots read it.
pub static OF_INTEREST: [AtomicU8; NUMBERS as usize] = {
    let mut table = [const { AtomicU8::new(0) }; NUMBERS as usize];
    let numbers = [
        nr::OPEN,
        nr::MMAP,
        nr::MPROTECT,
        nr::MUNMAP,
        nr::MREMAP,
        nr::MSYNC,
        nr::MINCORE,
        nr::MADVISE,
        nr::SHMAT,
        nr::MLOCK,
        nr::MUNLOCK,
        nr::MLOCKALL,
        nr::SETRLIMIT,
        nr::IO_SETUP,
        nr::REMAP_FILE_PAGES,
        nr::MBIND,
        nr::VMSPLICE,
        nr::PRLIMIT64,
        nr::USERFAULTFD,
        nr::MLOCK2,
        nr::PKEY_MPROTECT,
        nr::IO_URING_SETUP,
        nr::MSEAL,
        nr::PROCESS_MADVISE,
        nr::EXIT_GROUP,
        nr::SECCOMP,
        nr::SIGACTION,
        nr::SIGPROCMASK,
        nr::CLONE,
        nr::FORK,
        nr::VFORK,
        nr::EXECVE,
        nr::READLINK,
        nr::SIGSUSPEND,
        nr::PRCTL,
        nr::OPENAT,
        nr::READLINKAT,
        nr::PSELECT6,
        nr::PPOLL,
        nr::EPOLL_PWAIT,
        nr::EXECVEAT,
        nr::IO_PGETEVENTS,
        nr::CLONE3,
        nr::EPOLL_PWAIT2,
    ];
    let mut index = 0;
    while index < numbers.len() {
        table[numbers[index] as usize] = AtomicU8::new(1);
        index += 1;
    }
    table
};

/// Makes all calls of interest.
pub fn handle_all() {
    OF_INTEREST.iter().for_each(|entry| entry.store(1, Ordering::Relaxed));
}

/// The way to go on after [`handle`].
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Then {
    /// Go on with the program: the result is in the frame.
    Return = 0,
    /// Perform the call in the frame.
    Perform = 1,
    /// Make the program's call as it is, in its slot. If it has none, perform it.
    Pass = 2,
}

/// The option of `prctl` for dispatching.
const PR_SET_SYSCALL_USER_DISPATCH: u64 = 59;

/// The option of `prctl` for a filter.
const PR_SET_SECCOMP: u64 = 22;

/// The option of `prctl` for naming a range.
const PR_SET_VMA: u64 = 0x5356_4d41;

/// Handles a call of interest.
pub extern "C" fn handle(frame: &mut Frame) -> Then {
    let number = u64::from(frame.rax as u32);
    let [a, b, c, d, e, f] = frame.arguments();
    frame.call = [number, a, b, c, d, e, f];
    patch::rewrite_if_due();
    if isolate::is_on() { handle_isolated(frame) } else { handle_call(frame) }
}

/// Handles a call under `--isolate`. Its frame is small, because Go makes calls with little stack.
#[inline(never)]
fn handle_isolated(frame: &mut Frame) -> Then {
    isolate::calls::begin_call();
    isolate::signals::pass_unread_on();
    if let Some(result) = isolate::blocks::serve(frame) {
        frame.rax = result;
        return Then::Return;
    }
    let Some(then) = isolate::calls::handle(frame) else { return handle_call(frame) };
    // A request may have come while the runtime waited for the lock.
    isolate::signals::pass_unread_on();
    then
}

#[inline(never)]
fn handle_call(frame: &mut Frame) -> Then {
    let arguments = frame.arguments();
    let [number, a, b, c, d, e, f] = frame.call;
    match number {
        nr::MMAP => return map(frame),
        nr::MUNMAP => return unmap(frame),
        nr::MADVISE if is_transient(c) => return advise(frame),
        nr::MREMAP => settle_for_move(arguments),
        nr::MPROTECT => {
            if let Some(result) = pool::reservations::open(a, b, c) {
                frame.rax = result;
                return Then::Return;
            }
            settle(a, b);
        }
        nr::MSYNC
        | nr::MINCORE
        | nr::MADVISE
        | nr::MLOCK
        | nr::MUNLOCK
        | nr::REMAP_FILE_PAGES
        | nr::MBIND
        | nr::MLOCK2
        | nr::PKEY_MPROTECT
        | nr::MSEAL => settle(a, b),
        nr::SHMAT if b != 0 => pool::switch_off(),
        nr::SETRLIMIT if limits_memory(a) => pool::switch_off(),
        nr::PRLIMIT64 if limits_memory(b) && c != 0 => pool::switch_off(),
        nr::EXIT_GROUP => boot::at_exit(),
        nr::SIGACTION => return stack::with(frame, sigaction::set),
        nr::SIGPROCMASK => {
            isolate::faults::note_mask(frame);
            if b != 0 {
                strip_mask(frame, 1, d);
            }
        }
        nr::SIGSUSPEND => strip_mask(frame, 0, b),
        nr::SIGTIMEDWAIT if isolate::is_on() => strip_mask(frame, 0, d),
        nr::PPOLL => strip_mask(frame, 3, e),
        nr::EPOLL_PWAIT | nr::EPOLL_PWAIT2 => strip_mask(frame, 4, f),
        nr::PSELECT6 | nr::IO_PGETEVENTS => strip_packed_mask(frame, f),
        nr::CLONE | nr::CLONE3 | nr::FORK | nr::VFORK => return stack::with(frame, spawn::spawn),
        nr::EXECVE | nr::EXECVEAT => return stack::with(frame, exec::prepare),
        nr::READLINK | nr::READLINKAT | nr::OPEN | nr::OPENAT => return stack::with(frame, look_at_path),
        nr::PRCTL if a == PR_SET_SYSCALL_USER_DISPATCH => return refuse(frame, Errno::EINVAL),
        nr::SECCOMP => prepare_for_filter(),
        nr::PRCTL if a == PR_SET_SECCOMP => prepare_for_filter(),
        nr::PRCTL if a == PR_SET_VMA => pool::settle(c, d),
        _ if refused::ends_pool(number) => pool::switch_off(),
        _ => {}
    }
    Then::Perform
}

/// Returns an error to the program.
fn refuse(frame: &mut Frame, error: Errno) -> Then {
    frame.rax = error.to_result();
    Then::Return
}

/// Makes the calls now that a filter of the program may forbid later, and none of them from then on.
fn prepare_for_filter() {
    pool::switch_off();
    patch::end();
}

/// Makes the call have a copy of a set of signals without SIGSYS. The argument `index` is the set's
/// address. A wrong address or size is left to the kernel.
fn strip_mask(frame: &mut Frame, index: usize, size: u64) {
    let address = frame.call[index + 1];
    if size == 8
        && address != 0
        && let Ok([mask]) = user::words(address)
    {
        frame.scratch[0] = mask & !isolate::never_blocked();
        frame.call[index + 1] = &raw const frame.scratch[0] as u64;
    }
}

/// Does the same if the last argument is the address of the set's address and size.
fn strip_packed_mask(frame: &mut Frame, address: u64) {
    if address != 0
        && let Ok([set, 8]) = user::words(address)
        && set != 0
        && let Ok([mask]) = user::words(set)
    {
        let copy = &raw const frame.scratch[0] as u64;
        frame.scratch[..3].copy_from_slice(&[mask & !isolate::never_blocked(), copy, 8]);
        frame.call[6] = &raw const frame.scratch[1] as u64;
    }
}

/// Takes memory from the pool, or maps it otherwise. Not inlined, as some others here, so that its frame
/// takes the place of its caller's: Go makes calls with little stack.
#[inline(never)]
fn map(frame: &mut Frame) -> Then {
    if is_for_pool(frame.call[1], frame.call[3], frame.call[4], frame.call[6])
        && let Some(block) = pool::map(frame.call[2])
    {
        frame.rax = block;
        return Then::Return;
    }
    map_otherwise(frame)
}

/// Takes a reservation, or has the kernel map memory. Code of a file is rewritten.
#[inline(never)]
fn map_otherwise(frame: &mut Frame) -> Then {
    let [address, length, protection, flags, file, offset] = frame.arguments();
    if is_reservation(address, protection, flags, offset)
        && let Some(start) = pool::reservations::map(length, flags)
    {
        frame.rax = start;
        return Then::Return;
    }
    if pool::reservations::map_file(frame.arguments()) {
        frame.rax = address;
        return Then::Return;
    }
    match flags & (sys::MAP_FIXED | sys::MAP_FIXED_NOREPLACE) {
        0 if address == 0 => {}
        // Linux maps there if it is free.
        0 => pool::settle_blocks(address, length),
        _ => settle(address, length),
    }
    let is_code = protection & sys::PROT_EXEC != 0
        && flags & (sys::MAP_PRIVATE | sys::MAP_ANONYMOUS) == sys::MAP_PRIVATE;
    if !is_code {
        return Then::Pass;
    }
    // SAFETY: the call is the program's, on memory of its own. Should it name the runtime's, it ends as
    // it would if it overwrote its own code.
    let address = unsafe { sys::raw(nr::MMAP, frame.arguments()) };
    if Errno::from_result(address).is_none() {
        patch::add(patch::Mapping { address, length, protection, file, offset });
    }
    frame.rax = address;
    Then::Return
}

/// Returns whether a mapping is plain memory anywhere.
pub fn is_for_pool(address: u64, protection: u64, flags: u64, offset: u64) -> bool {
    const MAP_STACK: u64 = 0x2_0000;
    let plain = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS;
    address == 0
        && protection == sys::PROT_READ | sys::PROT_WRITE
        && flags & !MAP_STACK == plain
        && offset == 0
}

/// Returns whether a mapping only reserves addresses anywhere for plain memory. One for a stack does not:
/// Linux makes no huge pages of it.
pub fn is_reservation(address: u64, protection: u64, flags: u64, offset: u64) -> bool {
    let plain = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS;
    address == 0 && flags & !sys::MAP_NORESERVE == plain && offset == 0 && protection == 0
}

/// Takes an advice that is about the present only: the mapping stays as it is.
#[inline(never)]
fn advise(frame: &mut Frame) -> Then {
    const NEAR: u64 = 2 * pathreads::PAGE;
    let [at, length, advice, ..] = frame.arguments();
    let result = if pool::is_used(at, length) {
        pool::reservations::advise(at, length, advice)
    } else {
        pool::settle(at, length);
        patch::forget(at, length);
        None
    };
    match result {
        Some(result) => {
            frame.rax = result;
            Then::Return
        }
        // The runtime's frame lies below the program's stack.
        None if at < frame.rsp && frame.rsp - NEAR < at.saturating_add(length) => Then::Pass,
        None => Then::Perform,
    }
}

/// Gives memory back to the pool, or has the kernel unmap it. A thread may unmap its own stack. That
/// must not become another thread's while this one is on its way back.
#[inline(never)]
fn unmap(frame: &mut Frame) -> Then {
    let [address, length, ..] = frame.arguments();
    if frame.rsp.wrapping_sub(address) <= length {
        settle(address, length);
        return if frame.pass != 0 { Then::Pass } else { leave_stack(frame) };
    }
    match pool::unmap(address, length) {
        pool::Unmapped::Done => {
            frame.rax = 0;
            Then::Return
        }
        pool::Unmapped::Anew => {
            patch::forget(address, length);
            frame.rax = 0;
            Then::Return
        }
        pool::Unmapped::Kernels => {
            patch::forget(address, length);
            Then::Pass
        }
    }
}

/// Has the program make a dispatched call again that unmaps its own stack. Without a stack the kernel can
/// dispatch no call, so this thread's are not dispatched any more. All that it can do is to exit.
fn leave_stack(frame: &mut Frame) -> Then {
    const CALL: u64 = 2;
    spawn::stop_dispatching();
    frame.rip -= CALL;
    Then::Return
}

/// Makes what `mremap` moves, and the place that it goes to, the kernel's.
fn settle_for_move([from, length, new_length, flags, to, _]: [u64; 6]) {
    const MREMAP_FIXED: u64 = 2;
    settle(from, length);
    pool::settle_blocks(from, new_length);
    if flags & MREMAP_FIXED != 0 {
        settle(to, new_length);
    }
}

/// Makes all mappings in a range the kernel's alone.
fn settle(at: u64, length: u64) {
    pool::settle(at, length);
    patch::forget(at, length);
}

/// Returns whether an advice is about the present only: pages are dropped, or brought in. Others stay
/// with the memory.
fn is_transient(advice: u64) -> bool {
    const WILLNEED: u64 = 3;
    const DONTNEED: u64 = 4;
    const FREE: u64 = 8;
    const COLD_TO_POPULATE_WRITE: core::ops::RangeInclusive<u64> = 20..=23;
    matches!(advice, WILLNEED | DONTNEED | FREE) || COLD_TO_POPULATE_WRITE.contains(&advice)
}

/// Returns whether a limit is one of the size of memory.
fn limits_memory(kind: u64) -> bool {
    matches!(kind, sys::RLIMIT_DATA | sys::RLIMIT_AS)
}

/// Handles a call that names a path, and opens it, if it leads into `/proc`, or reads a link.
extern "C" fn look_at_path(frame: &mut Frame) -> Then {
    let [number, _, b, c, d, ..] = frame.call;
    let (first, is_open) = match number {
        nr::OPEN => (0, true),
        nr::OPENAT => (1, true),
        nr::READLINK => (0, false),
        _ => (1, false),
    };
    let is_exe = boot::is_exe_link(frame.call[first + 1]);
    match (is_open, is_exe) {
        (true, true) => frame.call[first + 1] = boot::exe_path(),
        (true, false) if isolate::is_on() => {
            isolate::devices::look(frame.call[first + 1]);
            if let Some(path) = isolate::thread::task_path(frame.call[first + 1]) {
                frame.call[first + 1] = path;
            }
        }
        (true, false) => pool::revoke(),
        (false, true) if number == nr::READLINK => return read_exe_link(frame, b, c),
        (false, true) => return read_exe_link(frame, c, d),
        (false, false) => {}
    }
    Then::Perform
}

/// Answers what `/proc/self/exe` leads to.
fn read_exe_link(frame: &mut Frame, buffer: u64, size: u64) -> Then {
    let target = boot::exe();
    if (size as i64) <= 0 {
        return Then::Perform;
    }
    let length = target.len().min(size as usize);
    frame.rax = match user::write(buffer, &target[..length]) {
        Ok(()) => length as u64,
        Err(error) => error.to_result(),
    };
    Then::Return
}

//! The Linux system calls: one file per call or family of calls, and the dispatch table.
//!
//! The list of calls is in `abi::syscalls`, where the host's tools find it too. [`route`] is generated from
//! the same list. A call listed as `full` or `partial` is dispatched to the function of its name in
//! [`calls`], and a missing function is a compile error. Every other number returns ENOSYS.
//!
//! A handler gets a [`Call`] and returns rax or an [`Errno`]. It runs on the thread's kernel stack with
//! interrupts on, may sleep, and holds no counted reference when it ends the thread.
#![deny(unsafe_code, clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

mod attributes;
mod calls;
mod capabilities;
mod clock;
mod clone;
mod copies;
mod descriptors;
mod epoll;
mod exec;
mod exit;
mod file_args;
mod futex;
mod identity;
mod inotify;
mod io;
mod limits;
mod locks;
mod machine;
mod madvise;
mod map_file;
mod memory_files;
mod messages;
mod mmap;
mod modes;
mod mqueue;
mod mremap;
mod msg;
mod names;
mod of_others;
mod open;
mod poll;
mod position;
mod prctl;
mod process_vm;
mod ptrace;
mod ranges;
mod residence;
mod scheduling;
mod select;
mod sem;
mod shm;
mod signals;
mod socket_options;
mod socket_transfer;
mod sockets;
mod stat;
mod threads;
mod timers;
pub mod trace;
mod transfer;
mod usage;
mod users;
mod wait;

use abi::Errno;
use sync::atomic::{AtomicU64, Ordering};

use crate::arch::TrapFrame;
use crate::control;
use crate::counters::{Counter, bump};
use crate::options;
use crate::process::fault;
use crate::sched::{self, Task};

/// A call that is being handled.
pub struct Call<'a> {
    /// The thread that called.
    pub task: &'a Task,
    /// Its registers.
    pub frame: &'a mut TrapFrame,
    args: [u64; 6],
}

/// The result of a call, which goes to rax.
pub type Outcome = Result<u64, Errno>;

impl Call<'_> {
    /// Returns argument `index`, from 0 to 5.
    #[inline(always)]
    pub fn arg(&self, index: usize) -> u64 {
        self.args.get(index).copied().unwrap_or_default()
    }

    /// Returns argument `index` as a C `int`, which ignores the high half of the register.
    #[inline(always)]
    pub fn int(&self, index: usize) -> i32 {
        self.arg(index) as i32
    }
}

/// Handles the call in `frame`. Interrupts are on.
#[inline]
pub fn dispatch(frame: &mut TrapFrame) {
    bump(Counter::Syscalls);
    let args = frame.args();
    let outcome = sched::with_current(|task| {
        let mut call = Call { task, frame, args };
        route(&mut call)
    });
    frame.set_result(outcome.unwrap_or_else(Errno::to_result));
}

macro_rules! outcome {
    ($call:ident $name:ident full) => {
        calls::$name($call)
    };
    ($call:ident $name:ident partial $missing:literal) => {
        calls::$name($call)
    };
    ($call:ident $name:ident none) => {
        unknown($call)
    };
    ($call:ident $name:ident declined) => {
        Err(Errno::ENOSYS)
    };
}

macro_rules! route {
    ($($number:literal $name:ident $support:ident $($missing:literal)?;)*) => {
        #[inline(always)]
        fn route(call: &mut Call<'_>) -> Outcome {
            match call.frame.number() {
                $($number => outcome!(call $name $support $($missing)?),)*
                _ => unknown(call),
            }
        }
    };
}

abi::for_each_syscall!(route);

/// The calls that were reported already, one bit each by a hash of the number. A program that tries one in a
/// loop is reported once.
static NAMED: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// Reports a call that is not implemented to the host, and returns ENOSYS.
#[cold]
fn unknown(call: &mut Call<'_>) -> Outcome {
    let number = call.frame.number();
    let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
    let (word, bit) = (NAMED.get(hash as usize / 64), 1 << (hash % 64));
    // Relaxed: at worst two cores both report it.
    if word.is_some_and(|word| word.fetch_or(bit, Ordering::Relaxed) & bit == 0) {
        control::unknown_syscall(number, call.args);
    }
    if options::get().strict {
        fault::unsupported(call.task, call.frame);
    }
    Err(Errno::ENOSYS)
}

//! Threads of the leader that make calls for members: Linux keeps children for a process, and all children of
//! the program are the leader's.
//!
//! A *helper* is a real thread of the leader in the runtime's code, with all signals blocked, as the watcher
//! is. Each member has one job. It asks, and waits for the result with its own signals blocked.
//!
//! | `state` of a job | the job | becomes |
//! |---|---|---|
//! | [`FREE`] | is not in use | asked, by its member |
//! | [`ASKED`] | is complete | taken, by a helper |
//! | [`TAKEN`] | is being done | done, by that helper |
//! | [`DONE`] | has its result | free, by its member |
//!
//! 1. *A helper is always idle.* One that is about to wait for a child makes another one before, or does not
//!    wait. So a job is taken at once.
//! 2. *A helper that waits takes nothing* (WNOWAIT): it says that there is something, and the member then
//!    asks for it with WNOHANG. So nothing is lost when the member does not wait any more.
//! 3. *A watch has a number*, which its member increases. The end of an older one changes nothing.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use abi::Errno;

use super::{MILLISECOND, control, cpu_timers, fork, me, wait, waiting, wake};
use crate::dispatch::Then;
use crate::entry::{self, Frame};
use crate::sys::{self, Result, harmless, nr};

const FREE: u32 = 0;
const ASKED: u32 = 1;
const TAKEN: u32 = 2;
const DONE: u32 = 3;

/// The work of a helper.
#[derive(Clone, Copy)]
pub enum What {
    /// Makes this call, which changes no memory but [`Job::answer`].
    Call([u64; 7]),
    /// Makes the ticker (`cpu_timers`).
    Ticker,
    /// Makes the child that `fork` describes.
    Child,
    /// Waits until a call of `waitid` with these arguments would return, and says so for this watch.
    Watch { kind: u64, id: u64, options: u64, number: u32 },
}

/// The words of an answer: a `siginfo`, then a `rusage`.
pub const INFORMATION: usize = 16;
pub const ANSWER: usize = INFORMATION + 18;

/// The work that a member asks for, and its result.
pub struct Job {
    state: AtomicU32,
    /// Written by the member before it asks.
    what: UnsafeCell<What>,
    result: AtomicU64,
    /// Memory that the call writes to.
    pub answer: [AtomicU64; ANSWER],
    /// Twice the number of the newest watch, and 1 more when it has ended.
    pub watch: AtomicU32,
    /// The arguments of the watch, which only the member reads.
    pub watched: [AtomicU64; 3],
}

impl Job {
    /// Forgets all, in a new process.
    pub fn forget(&self) {
        self.state.store(FREE, Ordering::Relaxed);
        self.watch.store(0, Ordering::Relaxed);
    }

    /// Returns the address of a word of the answer.
    pub fn answer_at(&self, word: usize) -> u64 {
        self.answer[word].as_ptr() as u64
    }
}

/// Returns the job of this member.
pub fn own_job() -> &'static Job {
    &control().members[me()].job
}

/// Returns whether this task makes its own children, and waits for them itself.
pub fn is_alone() -> bool {
    me() == 0 || fork::is_sharing() || waiting::makes_own_children()
}

/// Has a helper do something, and returns the result. Signals are blocked. The leader does it itself.
pub fn ask(what: What) -> Result {
    let job = own_job();
    if is_alone() {
        return do_now(job, what);
    }
    // SAFETY: the job is free, and this member's.
    unsafe { job.what.get().write(what) };
    // Release pairs with the acquire in `take`.
    job.state.store(ASKED, Ordering::Release);
    control().asked.fetch_add(1, Ordering::Release);
    wake(&control().asked);
    loop {
        // Acquire pairs with the release in `help`.
        match job.state.load(Ordering::Acquire) {
            DONE => break,
            state => wait(&job.state, state, 10 * MILLISECOND),
        }
    }
    job.state.store(FREE, Ordering::Relaxed);
    let result = job.result.load(Ordering::Relaxed);
    Errno::from_result(result).map_or(Ok(result), Err)
}

fn do_now(job: &Job, what: What) -> Result {
    match what {
        What::Call([number, a, b, c, d, e, _]) => harmless!(number, a, b, c, d, e),
        What::Ticker => cpu_timers::begin(),
        What::Child => fork::make_here(),
        What::Watch { kind, id, options, number } => {
            watch(job, [kind, id, options], number);
            Ok(0)
        }
    }
}

/// Handles a call without memory that only the parent of a child may make.
pub extern "C" fn make_call(frame: &mut Frame) -> Then {
    frame.rax = ask(What::Call(frame.call)).unwrap_or_else(Errno::to_result);
    Then::Return
}

/// The helpers' stacks. They lie in the runtime: the addresses of the program's memory are those of all
/// members, and the kernel would choose one of them.
const STACK: usize = 16 << 10;
const MOST: usize = 64;

#[repr(align(16))]
struct Stacks(UnsafeCell<[[u8; STACK]; MOST]>);

// SAFETY: each stack is one helper's.
unsafe impl Sync for Stacks {}

static STACKS: Stacks = Stacks(UnsafeCell::new([[0; STACK]; MOST]));

/// The helpers of this process, and those of them that do not wait for a child.
static COUNT: AtomicU32 = AtomicU32::new(0);
static IDLE: AtomicU32 = AtomicU32::new(0);

/// Returns whether this thread is a helper, by its stack.
pub fn is_helper() -> bool {
    let here = 0_u8;
    let start = STACKS.0.get() as u64;
    (start..start + (MOST * STACK) as u64).contains(&(&raw const here as u64))
}

/// Makes a helper, in the leader, with signals blocked. Returns whether there is one more.
pub fn begin() -> bool {
    let less = |count: u32| (count < MOST as u32).then_some(count + 1);
    let Ok(number) = COUNT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) else { return false };
    let end = STACKS.0.get() as u64 + (number as usize + 1) as u64 * STACK as u64;
    IDLE.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the stack is this helper's, and it stays in the runtime.
    let is_made = unsafe { entry::spawn_helper(super::thread::HELPER_FLAGS, end, help) } >> 63 == 0;
    if !is_made {
        IDLE.fetch_sub(1, Ordering::Relaxed);
        // Unless another one was made meanwhile.
        let _ = COUNT.compare_exchange(number + 1, number, Ordering::Relaxed, Ordering::Relaxed);
    }
    is_made
}

/// Forgets all, in a new process.
pub fn forget() {
    COUNT.store(0, Ordering::Relaxed);
    IDLE.store(0, Ordering::Relaxed);
}

/// Does jobs.
extern "C" fn help() -> ! {
    sys::block_all();
    loop {
        // Acquire pairs with the release in `ask`.
        let asked = control().asked.load(Ordering::Acquire);
        let Some(job) = take() else {
            wait(&control().asked, asked, 1000 * MILLISECOND);
            continue;
        };
        // SAFETY: the job is taken.
        let what = unsafe { *job.what.get() };
        match what {
            What::Watch { kind, id, options, number } => help_to_watch(job, [kind, id, options], number),
            what => finish(job, do_now(job, what)),
        }
    }
}

fn take() -> Option<&'static Job> {
    let is_taken =
        |job: &Job| job.state.compare_exchange(ASKED, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok();
    control().members.iter().map(|member| &member.job).find(|job| is_taken(job))
}

fn finish(job: &Job, result: Result) {
    job.result.store(result.unwrap_or_else(Errno::to_result), Ordering::Relaxed);
    // Release pairs with the acquire in `ask`.
    job.state.store(DONE, Ordering::Release);
    wake(&job.state);
}

/// Waits for a child, when there is another idle helper.
fn help_to_watch(job: &Job, what: [u64; 3], number: u32) {
    let idle = IDLE.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |idle| idle.checked_sub(1));
    let is_kept = match idle {
        Ok(1) if !begin() => {
            IDLE.fetch_add(1, Ordering::Relaxed);
            true
        }
        // Another one is about to find that it is the last.
        Err(_) => true,
        Ok(_) => false,
    };
    if is_kept {
        return finish(job, Err(Errno::EAGAIN));
    }
    finish(job, Ok(0));
    watch(job, what, number);
    IDLE.fetch_add(1, Ordering::Relaxed);
}

/// Waits until `waitid` would return, and says so.
fn watch(job: &Job, [kind, id, options]: [u64; 3], number: u32) {
    const WNOWAIT: u64 = 0x100_0000;
    let _ = harmless!(nr::WAITID, kind, id, 0, options | WNOWAIT, 0);
    let ended = job.watch.compare_exchange(2 * number, 2 * number + 1, Ordering::Release, Ordering::Relaxed);
    if ended.is_ok() {
        wake(&job.watch);
    }
}

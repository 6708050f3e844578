//! One wake-up call against many threads that go back to sleep at once: it wakes the threads that slept when
//! it came, each of them once, and ends.

use libc::{FUTEX_PRIVATE_FLAG, FUTEX_WAIT, FUTEX_WAKE, SYS_futex};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// Number of checks that [`surprises`] makes.
pub const CHECKS: usize = 1;

const SLEEPERS: usize = 32;
const CALLS: usize = 50;

static WORD: AtomicU32 = AtomicU32::new(0);
static OVER: AtomicBool = AtomicBool::new(false);

/// Returns the name of the failed check.
pub fn surprises() -> Option<String> {
    let most = thread::scope(|scope| {
        (0..SLEEPERS).for_each(|_| _ = scope.spawn(sleep_on));
        let most = (0..CALLS).map(|_| wake_soon()).max();
        OVER.store(true, Relaxed);
        WORD.store(1, Relaxed);
        futex(FUTEX_WAKE, u32::MAX >> 1);
        most
    });
    most.filter(|&most| most > SLEEPERS)
        .map(|most| format!("futex wake: {most} of {SLEEPERS} sleepers woken by one call"))
}

fn sleep_on() {
    while !OVER.load(Relaxed) {
        futex(FUTEX_WAIT, 0);
    }
}

/// Wakes all threads, once they had time to fall asleep, and returns how many it woke.
fn wake_soon() -> usize {
    thread::sleep(Duration::from_millis(2));
    futex(FUTEX_WAKE, u32::MAX >> 1)
}

fn futex(operation: i32, value: u32) -> usize {
    let operation = operation | FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel reads the word, which lives as long as the program.
    let result = unsafe { libc::syscall(SYS_futex, &raw const WORD, operation, value, 0) };
    usize::try_from(result).unwrap_or(0)
}

//! Measures, when a core starts, by how much its time stamp counter differs from the boot core's.
//!
//! ```text
//!   starting core                       boot core
//!   before := counter
//!   ASKED        ── Release ──▶         theirs := counter
//!   after := counter    ◀── Release ──  ANSWERED
//! ```
//! The boot core's counter showed `theirs` between `before` and `after`: [`firmware::Offset`] narrows that
//! down.

use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use firmware::Offset;
use percore::MAX_CORES;

use super::cpu::{finish_stores, msr, tsc, write_msr};
use super::{percpu, time};

/// Exchanges for a good measurement, and how long they may take if there are two.
const MOST_EXCHANGES: usize = 24;
const LONG_NS: i64 = 100_000;
/// Ticks by which a core that is told to be off is ahead.
const SKEW: u64 = 1 << 32;

const IDLE: u32 = 0;
const ASKED: u32 = 1;
const ANSWERED: u32 = 2;

/// The core whose turn it is, or [`NO_CORE`].
static TURN: AtomicUsize = AtomicUsize::new(NO_CORE);
const NO_CORE: usize = 0;
static STATE: AtomicU32 = AtomicU32::new(IDLE);
/// Relaxed: published by [`STATE`].
static THEIRS: AtomicU64 = AtomicU64::new(0);
/// Nanoseconds by which each core's counter was ahead. Relaxed: written before the core says that it is
/// ready.
static OFF_NS: [AtomicI64; MAX_CORES] = [const { AtomicI64::new(0) }; MAX_CORES];

/// Reads the counter after all instructions before it in the program.
fn ordered_tsc() -> u64 {
    finish_stores();
    tsc()
}

/// Asks core `number` to compare its counter with the boot core's.
pub fn begin(number: usize) {
    TURN.store(number, Ordering::Release);
}

/// Compares this core's counter with the boot core's, which [answers](answer), and sets this core's clock, if
/// it is its turn.
pub fn compare_if_asked(number: usize) {
    // Acquire and Release pair with those in `begin` and `answer`.
    if TURN.load(Ordering::Acquire) != number {
        return;
    }
    let (mut offset, start) = (Offset::unknown(), tsc());
    for exchange in 0..MOST_EXCHANGES {
        let before = ordered_tsc();
        STATE.store(ASKED, Ordering::Release);
        while STATE.load(Ordering::Acquire) != ANSWERED {
            core::hint::spin_loop();
        }
        offset.narrow(before, THEIRS.load(Ordering::Relaxed), ordered_tsc());
        if exchange > 0 && time::ticks_to_ns((tsc() - start) as i64) > LONG_NS {
            break;
        }
    }
    let behind = offset.value();
    percpu::set_tsc_at_boot(time::boot_tsc().wrapping_sub(behind as u64));
    OFF_NS[number].store(-time::ticks_to_ns(behind), Ordering::Relaxed);
    TURN.store(NO_CORE, Ordering::Release);
}

/// Passes the boot core's counter to core `number`, whose turn it is, as often as it asks.
pub fn answer(number: usize) {
    while TURN.load(Ordering::Acquire) == number {
        if STATE.load(Ordering::Acquire) == ASKED {
            THEIRS.store(ordered_tsc(), Ordering::Relaxed);
            STATE.store(ANSWERED, Ordering::Release);
        }
        core::hint::spin_loop();
    }
}

/// Returns the nanoseconds by which the counter of core `number` was ahead of the boot core's when it
/// started.
pub fn off_ns(number: usize) -> i64 {
    OFF_NS[number].load(Ordering::Relaxed)
}

/// Sets this core's counter wrong, for tests. QEMU's translator does not let it be set.
pub fn skew(number: usize) {
    // SAFETY: this core's counter has not been read yet.
    unsafe { write_msr(msr::TSC, tsc() + number as u64 * SKEW) };
}

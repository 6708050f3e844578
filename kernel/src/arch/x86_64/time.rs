//! Time from the time stamp counter, and this core's timer.
//!
//! Both the counter and the APIC's timer are measured once against the PIT, whose frequency is known. The
//! PIT's count and the counter are read back to back, so that a pause of this virtual CPU only widens the
//! window.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::cpu::{cpuid_if_known, in8, msr, out8, tsc, write_msr};
use super::vdso;
use super::{apic, interrupts, percpu, rtc};

const PIT_HZ: u64 = 1_193_182;
const PIT_CHANNEL_2: u16 = 0x42;
const PIT_COMMAND: u16 = 0x43;
const SPEAKER: u16 = 0x61;
/// The duration of a measurement: 10 ms.
const WINDOW: u64 = PIT_HZ / 100;
/// Tries for a reading without an interruption.
const READINGS: usize = 5;
/// Two windows agree if their rates differ by at most one part in `CLOSE`.
const CLOSE: u64 = 64;
const SECOND: u64 = 1_000_000_000;
/// The latest time for a timer: 36 years, which is still less than 2^64 ticks. A longer wait wakes early, and
/// checks again.
const LATEST: u64 = 1 << 60;

/// The boot core's counter when the clocks began. `percpu` has each core's own.
static BOOT_TSC: AtomicU64 = AtomicU64::new(0);
/// Ticks of the counter, and of the APIC's timer, in a nanosecond, times 2^32.
static TICKS_PER_NS: AtomicU64 = AtomicU64::new(1 << 32);
static APIC_TICKS_PER_NS: AtomicU64 = AtomicU64::new(1 << 32);
static HAS_DEADLINE: AtomicBool = AtomicBool::new(false);

fn scale(value: u64, factor: &AtomicU64) -> u64 {
    // Relaxed: set once by the boot core before the others start.
    ((u128::from(value) * u128::from(factor.load(Ordering::Relaxed))) >> 32) as u64
}

/// Returns the nanoseconds since boot. The vDSO calculates the same. The time never goes back, whichever core
/// reads it ([`clocks`](super::clocks)).
pub fn now_ns() -> u64 {
    let ticks = tsc().wrapping_sub(percpu::tsc_at_boot()) as i64;
    scale(ticks.max(0) as u64, &vdso::data().ns_per_tick)
}

/// Returns the boot core's counter when the clocks began.
pub(super) fn boot_tsc() -> u64 {
    BOOT_TSC.load(Ordering::Relaxed)
}

/// Converts ticks of the counter to nanoseconds.
pub(super) fn ticks_to_ns(ticks: i64) -> i64 {
    ticks.signum() * scale(ticks.unsigned_abs(), &vdso::data().ns_per_tick) as i64
}

/// Returns the nanoseconds since 1970.
pub fn wall_ns() -> u64 {
    vdso::data().wall_at_boot.load(Ordering::Relaxed) + now_ns()
}

/// Sets the time of this core's next timer interrupt, or stops the timer if `None`. If the time has passed,
/// the timer interrupts at once.
pub fn set_timer(deadline_ns: Option<u64>) {
    let _off = interrupts::off();
    let deadline_ns = deadline_ns.map(|at| at.min(LATEST));
    if HAS_DEADLINE.load(Ordering::Relaxed) {
        let at = deadline_ns.map_or(0, |at| {
            percpu::tsc_at_boot().wrapping_add(scale(at, &TICKS_PER_NS)).wrapping_add(1).max(1)
        });
        // SAFETY: sets this core's timer, and 0 stops it.
        unsafe { write_msr(msr::TSC_DEADLINE, at) };
        return;
    }
    let count =
        |at: u64| scale(at.saturating_sub(now_ns()), &APIC_TICKS_PER_NS).clamp(1, u64::from(u32::MAX)) as u32;
    apic::one_shot(deadline_ns.map_or(0, count));
}

/// Spins until `deadline_ns`, or until `done` returns true.
pub(super) fn spin_until(deadline_ns: u64, done: impl Fn() -> bool) {
    while now_ns() < deadline_ns && !done() {
        core::hint::spin_loop();
    }
}

pub(super) fn spin_ns(ns: u64) {
    spin_until(now_ns() + ns, || false);
}

/// The result of one window.
struct Measured {
    ns: u64,
    ticks: u64,
    apic_ticks: u64,
}

/// Measures the clocks. Called once, on the boot core, with its APIC on.
pub(super) fn init() {
    BOOT_TSC.store(tsc(), Ordering::Relaxed);
    percpu::set_tsc_at_boot(boot_tsc());
    let Measured { ns, ticks, apic_ticks } = measure();
    let per = |ticks: u64, of: u64| ((u128::from(ticks) << 32) / u128::from(of)) as u64;
    vdso::data().ns_per_tick.store(per(ns, ticks), Ordering::Relaxed);
    TICKS_PER_NS.store(per(ticks, ns), Ordering::Relaxed);
    APIC_TICKS_PER_NS.store(per(apic_ticks, ns), Ordering::Relaxed);
    vdso::data().wall_at_boot.store(rtc::seconds() * SECOND, Ordering::Relaxed);
    HAS_DEADLINE.store(cpuid_if_known(1, 0).ecx & 1 << 24 != 0, Ordering::Relaxed);
}

/// Measures until two windows agree: a pause of this virtual CPU may hide a whole turn of the PIT.
fn measure() -> Measured {
    let mut before = window();
    loop {
        let now = window();
        let rate = |of: &Measured| of.ticks * 1000 / of.ns;
        if rate(&now).abs_diff(rate(&before)) <= rate(&before) / CLOSE {
            return now;
        }
        before = now;
    }
}

fn window() -> Measured {
    loop {
        start_pit();
        apic::count_down_silently(u32::MAX);
        let (pit, counter, apic_left) = reading();
        let mut last = reading();
        while last.0 <= pit && pit - last.0 < WINDOW {
            last = reading();
        }
        // A count that went up has wrapped.
        if last.0 <= pit {
            let ns = (pit - last.0) * SECOND / PIT_HZ;
            return Measured { ns, ticks: last.1 - counter, apic_ticks: apic_left - last.2 };
        }
    }
}

/// Initialises this core's timer.
pub(super) fn init_core() {
    if HAS_DEADLINE.load(Ordering::Relaxed) {
        apic::use_tsc_deadline();
    } else {
        apic::one_shot(0);
    }
}

/// Lets channel 2 of the PIT count down from 65536, silently.
fn start_pit() {
    // SAFETY: the PIT's second channel drives the speaker, which stays off, and only this function uses it.
    unsafe {
        out8(SPEAKER, in8(SPEAKER) & !2 | 1);
        out8(PIT_COMMAND, 0b1011_0000); // channel 2, low then high byte, count down once
        out8(PIT_CHANNEL_2, 0xff);
        out8(PIT_CHANNEL_2, 0xff);
    }
}

/// Returns the PIT's count, the time stamp counter and the APIC's count at about the same time: the closest
/// of a few.
fn reading() -> (u64, u64, u64) {
    let once = |_| {
        let before = tsc();
        // SAFETY: latches and reads channel 2's count.
        let pit = unsafe {
            out8(PIT_COMMAND, 0b1000_0000);
            u64::from(in8(PIT_CHANNEL_2)) | u64::from(in8(PIT_CHANNEL_2)) << 8
        };
        let left = u64::from(apic::count_left());
        (tsc() - before, (pit, before, left))
    };
    (0..READINGS).map(once).min_by_key(|(took, _)| *took).expect("some readings").1
}

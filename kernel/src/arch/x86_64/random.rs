//! Random numbers: RDRAND where the CPU has it, else a mix of the time stamp counter.

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

use super::cpu::{cpuid_if_known, tsc};

const TRIES: usize = 10;

/// 64 random bits. Good enough for stack protectors and hash seeds; from the CPU's generator where it has one.
pub fn random_u64() -> u64 {
    hardware().unwrap_or_else(mixed)
}

fn hardware() -> Option<u64> {
    let has_rdrand = cpuid_if_known(1, 0).ecx & 1 << 30 != 0;
    has_rdrand.then(|| (0..TRIES).find_map(|_| rdrand())).flatten()
}

fn rdrand() -> Option<u64> {
    let (value, ok): (u64, u8);
    // SAFETY: the CPU has the instruction; it touches registers only.
    unsafe { asm!("rdrand {}", "setc {}", out(reg) value, out(reg_byte) ok, options(nomem, nostack)) };
    (ok != 0).then_some(value)
}

/// SplitMix64 over the time stamp counter and what came before.
fn mixed() -> u64 {
    static STATE: AtomicU64 = AtomicU64::new(0);
    // Relaxed: any interleaving of states is as good.
    let state = STATE.fetch_add(tsc() | 1, Ordering::Relaxed) ^ tsc();
    let mut z = state.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

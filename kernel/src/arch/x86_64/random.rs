//! Random numbers: each core has a generator of its own, and all start from one seed.
//!
//! | what the seed comes from | if there is |
//! |---|---|
//! | the CPU's generator | RDRAND |
//! | what the command handed over | `.radixvm/seed` in the boot image |
//! | how long reading a clock takes, the time of day | always |
//!
//! An attacker with much effort can guess the last one alone, and then the log says so.

use core::arch::asm;

use firmware::{Generator, Seed};
use sync::SpinLock;

use super::cpu::{cpuid_if_known, tsc};
use super::{percpu, rtc, time};
use crate::arch::per_core::all_cores;

/// Reads of the CPU's generator, each of which may fail a few times.
const WORDS: usize = 8;
const TRIES: usize = 10;
/// Rounds of readings, with something better and without.
const FEW: usize = 4;
const MANY: usize = 256;

all_cores! {
    /// Each core's generator. No other core takes the lock.
    static GENERATORS: SpinLock<Option<Generator>> = SpinLock::new(None);
}

/// Gives every core its generator. `handed` is a seed from outside. Returns whether numbers are hard to
/// guess.
pub fn init(handed: Option<&[u8]>) -> bool {
    let mut seed = Seed::new();
    let (known, handed) = (hardware(), handed.unwrap_or_default());
    let is_strong = known.is_some() || !handed.is_empty();
    known.iter().flatten().for_each(|word| seed.stir(&word.to_le_bytes()));
    seed.stir(handed);
    gather(&mut seed, if is_strong { FEW } else { MANY });
    let cores = GENERATORS.first(percpu::cores());
    cores.for_each(|generator| *generator.lock() = Some(seed.generator()));
    is_strong
}

/// Returns 64 random bits.
pub fn random_u64() -> u64 {
    with_mine(Generator::word)
}

/// Fills bytes with random ones.
pub fn fill_random(bytes: &mut [u8]) {
    with_mine(|generator| generator.fill(bytes));
}

fn with_mine<R>(f: impl FnOnce(&mut Generator) -> R) -> R {
    let pin = percore::pin();
    f(GENERATORS.mine(&pin).lock().as_mut().expect("seeded at boot"))
}

/// Returns words of the CPU's generator, if it has one that works.
fn hardware() -> Option<[u64; WORDS]> {
    let has_rdrand = cpuid_if_known(1, 0).ecx & 1 << 30 != 0;
    if !has_rdrand {
        return None;
    }
    let words = [(); WORDS].map(|()| (0..TRIES).find_map(|_| rdrand()));
    // Broken generators return the same value for ever.
    let works = words.iter().all(Option::is_some) && words.iter().any(|word| *word != words[0]);
    works.then(|| words.map(Option::unwrap_or_default))
}

fn rdrand() -> Option<u64> {
    let (value, ok): (u64, u8);
    // SAFETY: the CPU has the instruction, which changes registers only.
    unsafe { asm!("rdrand {}", "setc {}", out(reg) value, out(reg_byte) ok, options(nomem, nostack)) };
    (ok != 0).then_some(value)
}

/// Mixes in data that differs between boots on any machine: `rounds` times three readings of a clock.
fn gather(seed: &mut Seed, rounds: usize) {
    seed.stir(&time::wall_ns().to_le_bytes());
    for _ in 0..rounds {
        let readings = [(); 3].map(|()| {
            // The duration of a port access depends on many other things.
            rtc::touch();
            tsc().to_le_bytes()
        });
        seed.stir(readings.as_flattened());
    }
}

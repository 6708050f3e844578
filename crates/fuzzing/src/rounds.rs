use std::env;
use std::thread;
use std::time::{Duration, Instant};

use crate::Dice;

/// Calls `round` with one seed after the other: `usual` times, once under Miri, or for `FUZZ_SECONDS`.
///
/// # Panics
/// Panics if `round` does, or a variable is no number.
pub fn rounds(usual: u64, mut round: impl FnMut(&mut Dice)) {
    let first = number("FUZZ_SEED").unwrap_or(0);
    let usual = if cfg!(miri) { 1 } else { usual };
    let deadline = number("FUZZ_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    for seed in first.. {
        let is_over = deadline.map_or(seed == first + usual, |end| Instant::now() >= end);
        if is_over {
            println!("{} rounds", seed - first);
            return;
        }
        let _named = Named(seed);
        round(&mut Dice::new(seed));
    }
}

/// Prints the round's seed when the round panics.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("this was the round of FUZZ_SEED={}", self.0);
        }
    }
}

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

//! The common part of the fuzz drivers.
//!
//! A driver is a crate's test named `fuzz`. It forbids unsafe code and calls the crate's public functions at
//! random, with misuse and with callbacks that panic or call back. `cargo xtask test asan` runs every driver
//! under AddressSanitizer, and `cargo xtask test unit` and `miri` run the same tests for a few rounds.
//!
//! | variable | meaning |
//! |---|---|
//! | `FUZZ_SECONDS` | each test begins rounds for that long, instead of its usual number of rounds |
//! | `FUZZ_SEED` | the first round's seed, instead of 0: a failed round prints its own |
#![forbid(unsafe_code)]

mod dice;
mod forever;
mod panics;
mod rounds;

pub use dice::Dice;
pub use forever::forever;
pub use panics::attempt;
pub use rounds::rounds;

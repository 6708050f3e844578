//! The protocols under a model checker. The tree is small: three levels of two slots, keys 0 to 7. With
//! `--cfg loom_wide` it has two levels of four slots, in groups of two, for the models of groups.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p radixvm-radixmap --test loom --release`
//!
//! `RUSTFLAGS="--cfg loom --cfg loom_wide" cargo test -p radixvm-radixmap --test loom --release`
#![cfg(loom)]
#![cfg_attr(loom_wide, allow(dead_code, reason = "its models need a part of the machine only"))]

#[cfg(not(loom_wide))]
mod collapse;
#[cfg(not(loom_wide))]
mod copies;
#[cfg(not(loom_wide))]
mod expansion;
#[cfg(not(loom_wide))]
mod folds;
#[cfg(not(loom_wide))]
mod looks;
mod machine;
#[cfg(not(loom_wide))]
mod ranges;
#[cfg(not(loom_wide))]
mod sections;
#[cfg(not(loom_wide))]
mod sides;
#[cfg(loom_wide)]
mod wide;

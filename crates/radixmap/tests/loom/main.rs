//! The protocols under a model checker. The tree is small: three levels of two slots, keys 0 to 7.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p radixvm-radixmap --test loom --release`
#![cfg(loom)]

mod collapse;
mod copies;
mod expansion;
mod folds;
mod looks;
mod machine;
mod ranges;
mod sections;
mod sides;

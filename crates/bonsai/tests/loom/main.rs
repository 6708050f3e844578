//! Lookups against the writer, model-checked. A key that is there all the time is always found. One that
//! comes or goes is found or not. A node that is found is alive.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p radixvm-bonsai --test loom --release`
#![cfg(loom)]

mod changes;
mod machine;

//! The protocol, model-checked: every interleaving within a bound on preemptions, and every weak-memory
//! behaviour that loom knows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p radixvm-refcache --test loom --release`
#![cfg(loom)]

mod cores;
mod counts;
mod machine;
mod outside;
mod sole;
mod weak_words;

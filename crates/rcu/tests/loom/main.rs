//! The protocol, model-checked: every interleaving within a bound on preemptions, and every weak-memory
//! behaviour that loom knows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p radixvm-rcu --test loom --release`
#![cfg(loom)]

mod callbacks;
mod machine;
mod readers;
mod trie;
mod words;

//! The counters and the skip list, model-checked. Refcache has models of its own.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p radixvm-baselines --test loom --release`
#![cfg(loom)]

mod claimed;
mod counters;
mod embedded;
#[path = "../support/forgetful.rs"]
mod forgetful;
mod queried;
mod skiplist;
mod slots;
mod split;

//! Refcache on a simulated machine: one thread plays all cores, so every schedule here is exact and
//! repeatable.
#![cfg(not(loom))]

mod cores;
mod counts;
mod random;
mod sole;
mod sole_random;
mod weak_words;
mod world;

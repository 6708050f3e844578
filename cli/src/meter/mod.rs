//! The contention meter: it counts the cache lines that virtual CPUs take from each other.
//!
//! ```text
//!   program with markers ──▶ guest under QEMU (one thread per CPU) ── plugin ──▶ JSON
//!                                                                                │ output
//!    kernel's owners, symbols ──▶ blame ◀─────────── lines, pairs ◀──────────────┤
//!                                                                                │ rounds
//!    published latencies ──▶ model ──▶ predicted rounds/s ◀── counts per round ◀─┘
//!                                 └──▶ table, JSON rows, HTML page
//! ```
//!
//! One run is one boot of one guest ([`run`]). A cell is a program on a system with a number of CPUs. It is
//! measured by one or more runs, and the median run counts ([`experiment`]). Everything after [`output`] is
//! arithmetic on the plugin's output, and is tested without a guest.

pub mod benchmarks;
pub mod blame;
pub mod commute;
pub mod experiment;
pub mod kallsyms;
pub mod model;
pub mod names;
pub mod output;
pub mod owner;
pub mod part;
pub mod plugin;
pub mod report;
pub mod row;
pub mod run;
pub mod statistics;
pub mod why;

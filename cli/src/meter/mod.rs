//! The contention meter: what virtual CPUs take from each other, counted.
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
//! One run is one boot of one guest ([`run`]); a cell is a program on a system with a number of CPUs, measured by one or
//! more runs of which the middle one counts ([`experiment`]). Everything past [`output`] is arithmetic on what the plugin
//! wrote, and tested without a guest.

pub mod benchmarks;
pub mod blame;
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

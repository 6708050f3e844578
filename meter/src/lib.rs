//! The contention meter counts the cache lines that move between CPUs when a guest runs on many, on a host of
//! any size.
//!
//! It is a plugin for QEMU's translator. QEMU reports every block of instructions and every access to memory.
//! The meter keeps a [`directory`] of cache lines over the virtual CPUs and counts the transfers that real
//! caches would have made. The guest says with [marker instructions](decode::Marker), which do nothing
//! elsewhere, when counting begins and ends ([`window`]). A [`gate`] keeps the CPUs in step and a [`clock`]
//! keeps time in step with them, so that two host CPUs look like any number.
//!
//! ```text
//! qemu-system-x86_64 … -plugin FILE,out=PATH,memory=BYTES[,cpus=N][,slack=200][,rounds=N][,quantum_ns=1][,events=PATH][,sites=N]
//! ```
//!
//! The same file is in `LD_PRELOAD`, for the clock.
//!
//! ```text
//! plugin ────▶ meter ─┬▶ cpu ──▶ counts, blame
//! (QEMU's    (what a  ├▶ directory, calls, sites
//! callbacks) callback ├▶ window
//!            means)   └▶ gate, clock
//!        └───▶ output ──▶ report
//! ```
//!
//! The meter does not see instruction fetches, page-table walks of the hardware, the frames that exceptions
//! push, evictions, and interrupts that are sent by `wrmsr` (x2APIC, which this QEMU's translator does not
//! emulate). A block that a fault ends early counts in full, and so does its repetition.

#![deny(unsafe_code)]

pub mod args;
pub mod blame;
pub mod calls;
pub mod clock;
pub mod counts;
pub mod cpu;
pub mod data;
pub mod decode;
pub mod directory;
pub mod gate;
#[allow(unsafe_code)]
pub mod host;
pub mod meter;
pub mod output;
#[allow(unsafe_code)]
#[cfg(not(test))]
mod plugin;
pub mod report;
pub mod sites;
pub mod window;

//! Everything that judges an address space without a kernel: a naive model of what must happen, and a
//! simulated machine that notices what must not.
//!
//! - [`Model`] is a map from pages to contents, and [`Disk`] one from files to contents. They know no frames,
//!   cores or locks, so there is little in them to get wrong.
//! - [`Machine`] has cores played by host threads, interrupts, memory, and a Refcache domain.
//! - [`SimMmu`] has software tables and TLBs. Every translation holds its frame: freeing a frame that a core
//!   can still reach, using a freed one, freeing twice and losing one each stop the test with a message.
//! - [`World`] is a space on a machine, with loads and stores that go through the TLB and fault like a
//!   program's.
//! - [`Trial`] takes a space and the model through the same steps and compares everything.
//! - [`for_each_design`] runs a test on every design and every kind of table.
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

mod cache;
mod compressed;
mod debug;
mod dice;
mod disk;
mod files;
mod frames;
mod huge_frames;
mod interpose;
mod judge;
mod machine;
mod memory;
mod model;
mod sharing;
mod sim_mmu;
mod step;
mod trial;
mod world;

pub use cache::Translation;
pub use dice::Dice;
pub use disk::Disk;
pub use files::{FileStore, original};
pub use frames::{FrameStore, WORDS};
pub use interpose::Call;
pub use machine::{Attended, Machine};
pub use model::Model;
pub use sharing::{Forks, Shows};
pub use sim_mmu::SimMmu;
pub use step::{Step, StepPlacement, Target};
pub use trial::{FILES, Trial};
pub use world::{ALL_TABLES, Design, Kept, Setup, World, for_each_design};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

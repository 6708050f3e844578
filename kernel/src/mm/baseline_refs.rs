//! The counts that Refcache is measured against (`refs=`): one for each page of a file.
//!
//! | `refs=` | a page that is mapped, or unmapped, writes | the frame is freed by |
//! |---|---|---|
//! | `refcache` | this core's delta cache | the review, some epochs after the last reference is dropped |
//! | `atomic` | the count | the last holder |
//! | `locked` | the count and its lock | the last holder |
//! | `snzi` | this core's leaf, and what is above it when that comes from 0 or goes there | the last holder |
//! | `sloppy` | this core's spares, or the count if there are none | the query for zero, every few epochs, once the file has dropped its reference |
//! | `none` | nothing | no one: a page that leaves its file is lost until the machine ends |
//!
//! A page's word has no room to say where its reference was counted. SNZI does without
//! ([`Snzi::dec_anywhere`]). PayGo cannot, so it is not here. Spares have no threshold: a query for zero
//! collects all of them.

use alloc::boxed::Box;

use abi::Errno;
use abi::config::Refs;
use baselines::{Locked, Scheme, Shared, Sloppy, SloppyCount, Snzi, SnziCount};
use percore::Pinned;
use sync::SpinLock;
use sync::atomic::AtomicU64;

use super::fallible;
use crate::arch;

const SLOPPY: Sloppy = Sloppy { threshold: u64::MAX };

/// The count of one frame. On lines of its own.
#[repr(align(64))]
pub enum BaselineRefs {
    Atomic(AtomicU64),
    Locked(SpinLock<u64>),
    Snzi(SnziCount),
    Sloppy(SloppyCount),
    Uncounted,
}

impl BaselineRefs {
    /// Creates a count of one reference, the file's. Returns `None` if Refcache counts.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new(refs: Refs) -> Result<Option<Box<Self>>, Errno> {
        let cores = arch::cores();
        let count = match refs {
            Refs::Refcache => return Ok(None),
            Refs::Atomic => Shared::count(cores).map(Self::Atomic),
            Refs::Locked => Locked::count(cores).map(Self::Locked),
            Refs::Snzi => Snzi::count(cores).map(Self::Snzi),
            Refs::Sloppy => Sloppy::count(cores).map(Self::Sloppy),
            Refs::None => Ok(Self::Uncounted),
        };
        fallible::boxed(count.map_err(|_| Errno::ENOMEM)?).map(Some)
    }

    /// Adds a page's reference to the frame. The caller knows of another reference.
    #[inline]
    pub fn inc(&self, pin: &Pinned) {
        match self {
            Self::Atomic(count) => Shared.inc(pin, count),
            Self::Locked(count) => Locked.inc(pin, count),
            Self::Snzi(count) => drop(Snzi.inc(pin, count)),
            Self::Sloppy(count) => SLOPPY.inc(pin, count),
            Self::Uncounted => {}
        }
    }

    /// Drops a page's reference. Returns whether it was the last of all.
    #[inline]
    pub fn dec(&self, pin: &Pinned) -> bool {
        match self {
            Self::Atomic(count) => Shared.dec(pin, count, Shared::FIRST),
            Self::Locked(count) => Locked.dec(pin, count, Locked::FIRST),
            Self::Snzi(count) => Snzi.dec_anywhere(pin, count),
            Self::Sloppy(count) => SLOPPY.dec(pin, count, Sloppy::FIRST),
            Self::Uncounted => false,
        }
    }

    /// Drops the file's reference, after which no page takes its first reference to the frame. Returns
    /// whether it was the last of all.
    pub fn dec_of_file(&self, pin: &Pinned) -> bool {
        match self {
            Self::Snzi(count) => Snzi.dec(pin, count, Snzi::FIRST),
            _ => self.dec(pin),
        }
    }

    /// Returns whether the count has to be polled for zero ([`settle`](Self::settle)), because no `dec`
    /// reports that it was the last.
    pub fn is_asked(&self) -> bool {
        matches!(self, Self::Sloppy(_))
    }

    /// Returns whether the last reference is gone, asked after the file has dropped its own. Returns true
    /// once.
    pub fn settle(&self, pin: &Pinned) -> bool {
        match self {
            Self::Sloppy(count) => SLOPPY.settle(pin, count),
            _ => false,
        }
    }
}

//! Seals: promises of a file without a name about its contents, which last for ever (`F_ADD_SEALS`).
//!
//! They are under the lock `changing`. Every write to a sealable file takes it, also below the end, so when a
//! seal is set, no earlier write is still under way. For writes through mappings there are two rules:
//!
//! 1. A call that maps the file for shared writing counts itself in `mapping_calls` under the lock, where it
//!    also checks the seals, and counts itself out when the pages are mapped.
//! 2. A call that seals against writing fails (EBUSY) if, with the lock held, it finds such a call or a page
//!    that may be written. No new call begins meanwhile, and pages that are moved or forked are found in one
//!    place or the other (see `mm::mappings`, 4).

use core::ops::ControlFlow;

use abi::Errno;
use abi::file::{F_SEAL_FUTURE_WRITE, F_SEAL_GROW, F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_WRITE};
use percore::pin;
use vm::Flags;

use super::changing::Changing;
use super::{Kind, PAGE, PageCache};
use crate::mm::file_mapping::Held;

const ALL: u32 = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_FUTURE_WRITE;
const WRITING: u32 = F_SEAL_WRITE | F_SEAL_FUTURE_WRITE;

/// The seals of a file.
pub struct Seals {
    /// `F_SEAL_*`.
    set: u32,
    /// The calls that are about to map the file for shared writing.
    mapping_calls: u32,
}

impl Seals {
    /// Creates the seals `set`.
    pub const fn new(set: u32) -> Self {
        Self { set, mapping_calls: 0 }
    }

    fn forbid_if_set(&self, seals: u32) -> Result<(), Errno> {
        if self.set & seals == 0 { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// Checks that the file may be written.
    ///
    /// # Errors
    /// EPERM if a seal forbids it.
    pub fn allow_write(&self) -> Result<(), Errno> {
        self.forbid_if_set(WRITING)
    }

    /// Checks that the length may change from `old` to `new`.
    ///
    /// # Errors
    /// EPERM if a seal forbids it.
    pub fn allow_len(&self, old: u64, new: u64) -> Result<(), Errno> {
        match () {
            () if new < old => self.forbid_if_set(F_SEAL_SHRINK),
            () if new > old => self.forbid_if_set(F_SEAL_GROW),
            () => Ok(()),
        }
    }

    /// Returns how many bytes of a write of `bytes` bytes at `at` may be done to a file of `len` bytes. If
    /// the file must not grow, those are whole pages below the end, as on Linux.
    ///
    /// # Errors
    /// EPERM if there are none.
    pub fn room(&self, len: u64, at: u64, bytes: u64) -> Result<u64, Errno> {
        self.allow_write()?;
        if at + bytes <= len || self.forbid_if_set(F_SEAL_GROW).is_ok() {
            return Ok(bytes);
        }
        let whole = len - len % PAGE as u64;
        whole.checked_sub(at).filter(|&room| room > 0).ok_or(Errno::EPERM)
    }
}

impl PageCache {
    /// Returns the seals.
    ///
    /// # Errors
    /// EINVAL if the file cannot have seals.
    pub fn seals(&self) -> Result<u32, Errno> {
        match self.kind {
            Kind::Anonymous => Ok(self.changing.lock().seals.set),
            Kind::File | Kind::Image(_) | Kind::Host(_) | Kind::Over(_) => Err(Errno::EINVAL),
        }
    }

    /// Adds the seals `more`.
    ///
    /// # Errors
    /// EINVAL if the file cannot have seals or does not know these, EPERM if it is sealed against that, EBUSY
    /// if a mapping that may be written would violate the new seal.
    pub fn seal(&self, more: u32) -> Result<(), Errno> {
        if !matches!(self.kind, Kind::Anonymous) || more & !ALL != 0 {
            return Err(Errno::EINVAL);
        }
        let seals = &mut self.lock_when(Changing::is_idle).seals;
        seals.forbid_if_set(F_SEAL_SEAL)?;
        if more & F_SEAL_WRITE != 0 && (seals.mapping_calls > 0 || self.is_mapped_to_write()) {
            return Err(Errno::EBUSY);
        }
        seals.set |= more;
        Ok(())
    }

    /// Calls `map`, which maps the file shared. `map` is told whether the file is sealed against writing.
    ///
    /// # Errors
    /// EPERM if it is sealed and the mapping is to be `written`, and those of `map`.
    pub fn map_shared<R>(
        &self,
        written: bool,
        map: impl FnOnce(bool) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        if !self.is_sealable {
            return map(false);
        }
        match self.begin_mapping() {
            Err(error) if written => Err(error),
            Err(_) => map(true),
            Ok(()) => {
                let mapped = map(false);
                self.changing.lock().seals.mapping_calls -= 1;
                mapped
            }
        }
    }

    fn begin_mapping(&self) -> Result<(), Errno> {
        let seals = &mut self.changing.lock().seals;
        seals.allow_write()?;
        seals.mapping_calls += 1;
        Ok(())
    }

    /// Returns whether a mapping may write, now or after an mprotect.
    pub fn is_mapped_to_write(&self) -> bool {
        let mut found = false;
        self.mappings.for_each(|mapping| found = found || may_write(mapping));
        found
    }
}

/// Returns whether a page shows `mapping` so that it can be written, now or after an mprotect.
fn may_write(mapping: &Held) -> bool {
    let Some(space) = mapping.space() else { return false };
    let mut found = false;
    space.regions(&pin(), mapping.shown(), &mut |region| {
        let (flags, backing) = (region.mapping.flags(), region.mapping.backing());
        found = backing == Some(mapping.number())
            && flags.contains(Flags::SHARED)
            && !flags.contains(Flags::SEALED);
        if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    found
}

//! Seals: what a file without a name promises for ever to whoever it is handed to.
//!
//! They lie under the lock `changing`, which every write to a file that can be sealed takes, those below the end too: when a
//! seal is there, no write from before it is still under way. Writing through mappings is settled so:
//!
//! 1. Who maps the file so that it can be written says so under the lock, looks at the seals there, and takes it back
//!    when the pages are mapped.
//! 2. Who seals against writing finds, with the lock held, nobody on the way and no such page; or gives up (EBUSY).
//!    Nobody sets out meanwhile, and pages that move or are inherited are found in one place or the other (see
//!    `mm::mappings`, 4).

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

/// See the module.
pub struct Seals {
    /// `F_SEAL_*`.
    set: u32,
    /// Calls that are about to map the file so that it can be written.
    coming: u32,
}

impl Seals {
    /// `set` from the start.
    pub const fn new(set: u32) -> Self {
        Self { set, coming: 0 }
    }

    fn refuse(&self, seals: u32) -> Result<(), Errno> {
        if self.set & seals == 0 { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// # Errors
    /// EPERM if nothing may be written.
    pub fn allow_write(&self) -> Result<(), Errno> {
        self.refuse(WRITING)
    }

    /// # Errors
    /// EPERM if the length may not change so.
    pub fn allow_len(&self, old: u64, new: u64) -> Result<(), Errno> {
        match () {
            () if new < old => self.refuse(F_SEAL_SHRINK),
            () if new > old => self.refuse(F_SEAL_GROW),
            () => Ok(()),
        }
    }

    /// How much of a write of `bytes` bytes at `at` may be done to a file of `len` bytes: of one that must not grow, whole
    /// pages, as on Linux.
    ///
    /// # Errors
    /// EPERM if that is nothing.
    pub fn room(&self, len: u64, at: u64, bytes: u64) -> Result<u64, Errno> {
        self.allow_write()?;
        if at + bytes <= len || self.refuse(F_SEAL_GROW).is_ok() {
            return Ok(bytes);
        }
        let whole = len - len % PAGE as u64;
        whole.checked_sub(at).filter(|&room| room > 0).ok_or(Errno::EPERM)
    }
}

impl PageCache {
    /// What is promised.
    ///
    /// # Errors
    /// EINVAL of a file that knows no seals.
    pub fn seals(&self) -> Result<u32, Errno> {
        match self.kind {
            Kind::Anonymous => Ok(self.changing.lock().seals.set),
            Kind::File | Kind::Image(_) => Err(Errno::EINVAL),
        }
    }

    /// Promises `more`.
    ///
    /// # Errors
    /// EINVAL if it knows no seals, or not these; EPERM if it is sealed against that; EBUSY if somebody may write whom that
    /// would forbid.
    pub fn seal(&self, more: u32) -> Result<(), Errno> {
        if !matches!(self.kind, Kind::Anonymous) || more & !ALL != 0 {
            return Err(Errno::EINVAL);
        }
        let seals = &mut self.lock_when(Changing::is_calm).seals;
        seals.refuse(F_SEAL_SEAL)?;
        if more & F_SEAL_WRITE != 0 && (seals.coming > 0 || self.is_mapped_to_write()) {
            return Err(Errno::EBUSY);
        }
        seals.set |= more;
        Ok(())
    }

    /// Does `map`, which maps the file so that others see what is written, with whether it is sealed against writing.
    ///
    /// # Errors
    /// EPERM if it is, and is to be `written`; what `map` says.
    pub fn map_shared<R>(
        &self,
        written: bool,
        map: impl FnOnce(bool) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        if !self.is_sealable {
            return map(false);
        }
        match self.set_out() {
            Err(error) if written => Err(error),
            Err(_) => map(true),
            Ok(()) => {
                let mapped = map(false);
                self.changing.lock().seals.coming -= 1;
                mapped
            }
        }
    }

    fn set_out(&self) -> Result<(), Errno> {
        let seals = &mut self.changing.lock().seals;
        seals.allow_write()?;
        seals.coming += 1;
        Ok(())
    }

    fn is_mapped_to_write(&self) -> bool {
        let mut found = false;
        self.mappings.for_each(|mapping| found = found || may_write(mapping));
        found
    }
}

/// Whether a page shows `mapping` so that it can be written, now or after an mprotect.
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

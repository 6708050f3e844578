//! Numbers of descriptors that calls reserve until they have a file for them.

use core::mem;

use abi::Errno;
use rcu::Found;

use super::slots::{Slot, fill};
use super::{END, FdTable};
use crate::fs::open_file::Opened;

/// A reserved number. It becomes free again when this is dropped without a file.
pub struct Reserved<'t> {
    table: &'t FdTable,
    fd: usize,
}

impl Reserved<'_> {
    /// Returns the number.
    pub fn number(&self) -> i32 {
        self.fd as i32
    }

    /// Puts `file` at the number and returns the number.
    pub fn fill(self, file: Opened, close_on_exec: bool) -> i32 {
        self.set(|slot| {
            let _reserved = fill(slot, file, close_on_exec);
        });
        let number = self.number();
        mem::forget(self);
        number
    }

    /// Sets the slot. The table is not closed meanwhile, because the thread that reserved the number uses it.
    fn set(&self, set: impl FnOnce(&Slot)) {
        self.table.change(|writer| {
            if let Some(slot) = writer.slots().get(self.fd) {
                set(slot);
            }
        });
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.set(|slot| {
            let _reserved = slot.take();
        });
    }
}

impl FdTable {
    /// Reserves the lowest free descriptor from `lowest` on.
    ///
    /// # Errors
    /// EMFILE, ENOMEM.
    pub fn reserve(&self, lowest: usize) -> Result<Reserved<'_>, Errno> {
        let fd = self.change(|writer| {
            let slots = writer.slots();
            let is_free = |&fd: &usize| slots.get(fd).is_none_or(|slot| slot.look() == Found::Free);
            let fd = (lowest..END).find(is_free).ok_or(Errno::EMFILE)?;
            writer.grown(fd)?.reserve();
            Ok(fd)
        })?;
        Ok(Reserved { table: self, fd })
    }
}

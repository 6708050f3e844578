//! Numbers of descriptors that calls reserve until they have a file for them.

use core::mem;

use abi::Errno;
use rcu::Found;

use super::FdTable;
use super::slots::{Slot, fill, fill_unlocked};
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
        let left = self.table.unlocked(self.fd, |slot| match slot {
            Some(slot) => fill_unlocked(slot, file, close_on_exec).err(),
            None => Some(file),
        });
        if let Some(file) = left {
            self.set(|slot| {
                let _reserved = fill(slot, file, close_on_exec);
            });
        }
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
            let is_free = |fd| slots.get(fd).is_none_or(|slot| slot.look() == Found::Free);
            let mut numbers = lowest..self.limit();
            let found = match self.is_alone() {
                true => numbers.find(|&fd| is_free(fd)),
                false => rcu::lowest_free(numbers, is_free),
            };
            let fd = found.ok_or(Errno::EMFILE)?;
            writer.grown(fd)?.reserve();
            Ok(fd)
        })?;
        Ok(Reserved { table: self, fd })
    }
}

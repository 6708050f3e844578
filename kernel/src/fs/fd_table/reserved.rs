//! Numbers of descriptors that calls reserve until they have a file for them.

use core::mem;

use abi::Errno;

use super::slots::{Descriptor, Slot, grow};
use super::{END, FdTable};
use crate::fs::open_file::OpenFile;
use crate::mm::static_or_arc::StaticOrArc;

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
    pub fn fill(self, file: StaticOrArc<OpenFile>, close_on_exec: bool) -> i32 {
        self.set(Slot::Open(Descriptor { file, close_on_exec }));
        let number = self.number();
        mem::forget(self);
        number
    }

    /// Sets the slot. The table is not closed meanwhile, because the thread that reserved the number uses it.
    fn set(&self, slot: Slot) {
        self.table.change(|slots| {
            if let Some(place) = slots.get_mut(self.fd) {
                *place = slot;
            }
        });
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.set(Slot::Free);
    }
}

impl FdTable {
    /// Reserves the lowest free descriptor from `lowest` on.
    ///
    /// # Errors
    /// EMFILE, ENOMEM.
    pub fn reserve(&self, lowest: usize) -> Result<Reserved<'_>, Errno> {
        let fd = self.change(|slots| {
            let is_free = |&fd: &usize| matches!(slots.get(fd), None | Some(Slot::Free));
            let fd = (lowest..END).find(is_free).ok_or(Errno::EMFILE)?;
            grow(slots, fd)?;
            *slots.get_mut(fd).ok_or(Errno::EMFILE)? = Slot::Reserved;
            Ok(fd)
        })?;
        Ok(Reserved { table: self, fd })
    }
}

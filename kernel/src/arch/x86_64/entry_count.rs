//! LODIC's local counters of reads (`read_refs=lodic`): bits 58 to 52 of a page's entry in the one table of
//! its space. The CPU ignores them there. The protocol is that of [`EmbeddedCount`], and the owner of an
//! entry is the core that has its page's slot locked.
//!
//! A reader looks its entry up in the table that its core runs on. It walks it as the CPU does, without a
//! lock: tables of a shared table stay until the space goes. So a reader that counts itself out uses the
//! entry that it found, whatever core it runs on by then.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::reads::ENTRY;
use baselines::EmbeddedCount;
use vm::{FrameNum, PageNum};

use super::above::KernelFrames;
use super::cpu;
use super::page_table::{TOP, Table, bits};
use crate::above::Above;
use crate::options;

const COUNT: EmbeddedCount = EmbeddedCount::new(ENTRY.0, ENTRY.1);

/// A page's entry that counts a read of the running task's process.
pub struct CountedEntry(NonNull<AtomicU64>);

/// Counts a read of `frame` in this process's entry of `page`, if that shows the frame and has room. Returns
/// the entry if it did.
#[inline]
pub fn count_read(page: PageNum, frame: FrameNum) -> Option<CountedEntry> {
    let entry = entry(page)?;
    COUNT.take(entry, shows(frame)).then(|| CountedEntry(NonNull::from(entry)))
}

/// Drops a read of `frame` from the entry. Returns whether it was, or another is, counted there.
///
/// # Safety
/// The caller is the task that counted the read, and has had the same space since.
#[inline]
pub unsafe fn uncount_read(entry: &CountedEntry, frame: FrameNum) -> bool {
    // SAFETY: the space has not gone, so its tables have not either.
    COUNT.leave(unsafe { entry.0.as_ref() }, shows(frame))
}

fn shows(frame: FrameNum) -> impl Fn(u64) -> bool {
    move |value| value & bits::PRESENT != 0 && value & bits::ADDRESS == frame.get() << 12
}

/// Returns the entry of `page` in the table that this core runs on, if there is one.
fn entry<'t>(page: PageNum) -> Option<&'t AtomicU64> {
    // SAFETY: the caller is a task in its call, so the core runs on the shared table of the task's space.
    // That stays while the task has the space, and so do the tables below it.
    let mut table = unsafe { Table::at(cpu::cr3()) };
    for level in (1..=TOP).rev() {
        // Acquire: a table is seen zeroed, as for `below_or_new` in `shared_table.rs`.
        let value = table.toward(page.get(), level).load(Ordering::Acquire);
        // SAFETY: an upper entry of a user half.
        table = unsafe { Table::below(value) }?;
    }
    Some(table.toward(page.get(), 0))
}

/// Returns whether entries may have counts.
pub(super) fn is_used() -> bool {
    options::get().counts_in_entries()
}

/// Moves the count of `old`, the former value of an entry, to the frame that it showed.
#[inline]
pub(super) fn carry(old: u64) {
    if COUNT.of(old) > 0 {
        Above::add_reads((old & bits::ADDRESS) >> 12, COUNT.of(old));
    }
}

//! Calls on a range of existing mappings: munmap, mprotect, msync. Helpers for such calls.

use core::ops::ControlFlow;

use abi::Errno;
use abi::memory::*;
use percore::pin;
use vm::{Flags, PAGE_SIZE, PageNum, PageRange, Prot, VirtAddr, VmError};

use super::{Call, Outcome};
use crate::fs::host;
use crate::mm::space::{LOWEST, SpaceHandle};
use crate::mm::user;
use crate::process::pieces::in_pieces;
use crate::process::{Growth, retry, within_limits};
use crate::sched::Task;

/// Returns the number of pages that hold `length` bytes, or `None` if it overflows.
#[inline]
pub(super) fn pages_for(length: u64) -> Option<u64> {
    length.checked_next_multiple_of(PAGE_SIZE).map(|bytes| bytes / PAGE_SIZE)
}

/// Returns the errno for an error. Only munmap returns EINVAL for a range outside user space.
pub(super) fn errno_of(error: VmError) -> Errno {
    match error {
        VmError::Empty => Errno::EINVAL,
        VmError::Exists => Errno::EEXIST,
        VmError::Denied => Errno::EACCES,
        VmError::Mixed => Errno::EFAULT,
        VmError::OutOfRange | VmError::NoSpace | VmError::OutOfMemory | VmError::NotMapped => Errno::ENOMEM,
    }
}

/// Returns the pages of `length` bytes from the page-aligned `address` on.
///
/// # Errors
/// EINVAL for an unaligned address, `overflow` for a range that wraps.
#[inline]
pub(super) fn range(address: u64, length: u64, overflow: Errno) -> Result<PageRange, Errno> {
    if !address.is_multiple_of(PAGE_SIZE) {
        return Err(Errno::EINVAL);
    }
    let bytes = length.checked_next_multiple_of(PAGE_SIZE).ok_or(overflow)?;
    address.checked_add(bytes).ok_or(overflow)?;
    PageRange::new(VirtAddr::new(address).page(), bytes / PAGE_SIZE).ok_or(overflow)
}

/// Removes every mapping in the range.
pub fn munmap(call: &mut Call<'_>) -> Outcome {
    let pages = range(call.arg(0), call.arg(1), Errno::EINVAL)?;
    let space = call.task.space();
    detached(call.task, Some(pages), || match in_pieces(space, pages, |piece| space.unmap(&pin(), piece)) {
        Ok(()) => Ok(0),
        Err(VmError::OutOfRange) => unmap_above_lowest(call.task, pages),
        Err(error) => Err(errno_of(error)),
    })
}

/// Calls `change`, which unmaps or replaces `pages`, and detaches the segments there. If it fails, those that
/// are still there stay attached.
#[inline(always)]
pub(super) fn detached<R>(
    task: &Task,
    pages: Option<PageRange>,
    change: impl FnOnce() -> Result<R, Errno>,
) -> Result<R, Errno> {
    let attachments = &task.shared().memory.attachments;
    let taken = match pages {
        Some(pages) => retry(|| attachments.take(pages))?,
        None => None,
    };
    let outcome = change();
    if let (Err(_), Some(taken)) = (&outcome, taken) {
        taken.put_back(|page| shows_file(task.space(), page));
    }
    outcome
}

/// Returns whether a file is mapped at `page`.
pub(super) fn shows_file(space: &SpaceHandle, page: PageNum) -> bool {
    let mut shows = false;
    space.look(&pin(), page, &mut |mapping| shows = mapping.backing().is_some());
    shows
}

/// Unmaps a range that begins below the lowest page that can be mapped. The pages below that are no error.
/// Other ranges outside of user space are (EINVAL).
#[cold]
fn unmap_above_lowest(task: &Task, pages: PageRange) -> Outcome {
    let lowest = VirtAddr::new(LOWEST).page();
    if pages.start() >= lowest {
        return Err(Errno::EINVAL);
    }
    let rest = PageRange::between(lowest, pages.end().max(lowest));
    let space = task.space();
    if !rest.is_empty() {
        in_pieces(space, rest, |piece| space.unmap(&pin(), piece)).map_err(|_| Errno::EINVAL)?;
    }
    Ok(0)
}

/// Changes the rights of the range, up to the first hole.
pub fn mprotect(call: &mut Call<'_>) -> Outcome {
    let prot = call.arg(2);
    if prot & !(PROT_READ | PROT_WRITE | PROT_EXEC | PROT_SEM) != 0 {
        return Err(Errno::EINVAL);
    }
    let pages = range(call.arg(0), call.arg(1), Errno::ENOMEM)?;
    if pages.is_empty() {
        return Ok(0);
    }
    let prot = Prot::from_bits(prot);
    match protect(call.task, pages, prot) {
        Ok(()) => Ok(0),
        Err(VmError::OutOfRange) => protect_below_top(call.task, pages, prot),
        Err(error) => Err(errno_of(error)),
    }
}

fn protect(task: &Task, pages: PageRange, prot: Prot) -> Result<(), VmError> {
    let space = task.space();
    in_pieces(space, pages, |piece| {
        within_limits(task, || new_data(space, piece, prot), || space.protect(&pin(), piece, prot))
    })
}

/// Returns the pages that become private writable pages when they get the rights `prot`.
fn new_data(space: &SpaceHandle, pages: PageRange, prot: Prot) -> Growth {
    let mut data = 0;
    if !prot.contains(Prot::WRITE) {
        return Growth { pages: 0, data };
    }
    space.regions(&pin(), pages, &mut |region| {
        let (mapping, pages) = (region.mapping, region.pages.common(pages).pages());
        let is_private = !mapping.flags().contains(Flags::SHARED);
        if is_private && !mapping.prot().contains(Prot::WRITE) {
            data += pages;
        }
        ControlFlow::Continue(())
    });
    Growth { pages: 0, data }
}

/// Changes the pages in user space, and returns ENOMEM as for a hole, because the range goes beyond it.
#[cold]
fn protect_below_top(task: &Task, pages: PageRange, prot: Prot) -> Outcome {
    let top = VirtAddr::new(user::USER_END).page();
    if pages.start() < top && pages.end() > top {
        protect(task, PageRange::between(pages.start(), top), prot).map_err(errno_of)?;
    }
    Err(Errno::ENOMEM)
}

/// Calls `operation` for those of `pages` that are in user space. The others are treated as a hole.
///
/// # Errors
/// Returns the errors of `operation`, and `NotMapped` if there are others.
pub(super) fn in_user_space(
    pages: PageRange,
    operation: impl FnOnce(PageRange) -> Result<(), VmError>,
) -> Result<(), VmError> {
    let [lowest, top] = [LOWEST, user::USER_END].map(|at| VirtAddr::new(at).page());
    let inside = PageRange::between(pages.start().clamp(lowest, top), pages.end().clamp(lowest, top));
    if !inside.is_empty() {
        operation(inside)?;
    }
    if inside == pages { Ok(()) } else { Err(VmError::NotMapped) }
}

/// Checks that all of the range is mapped.
///
/// # Errors
/// ENOMEM otherwise.
pub(super) fn check_mapped(task: &Task, pages: PageRange) -> Result<(), Errno> {
    is_mapped(task.space(), pages).then_some(()).ok_or(Errno::ENOMEM)
}

/// Returns whether all of `pages` is mapped in `space`. Each piece is checked at another moment.
pub(super) fn is_mapped(space: &SpaceHandle, pages: PageRange) -> bool {
    let look = |piece| if space.mapped(&pin(), piece) { Ok(()) } else { Err(VmError::NotMapped) };
    pages.is_empty() || in_pieces(space, pages, look).is_ok()
}

/// Checks the range. Files are in memory and mappings show their pages, so only files of mounted directories
/// need to be written back: all of them.
pub fn msync(call: &mut Call<'_>) -> Outcome {
    let flags = call.arg(2);
    let both = MS_ASYNC | MS_SYNC;
    if flags & !(MS_ASYNC | MS_INVALIDATE | MS_SYNC) != 0 || flags & both == both {
        return Err(Errno::EINVAL);
    }
    check_mapped(call.task, range(call.arg(0), call.arg(1), Errno::ENOMEM)?)?;
    let mut failed = Ok(0);
    if flags & MS_SYNC != 0 {
        host::write_back(false, &mut |_, error| failed = Err(error))?;
    }
    failed
}

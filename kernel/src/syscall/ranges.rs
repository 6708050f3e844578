//! Calls on a range of existing mappings: munmap, mprotect, mremap, msync, mincore, the mlock family.

use abi::Errno;
use abi::memory::*;
use percore::pin;
use vm::{PAGE_SIZE, PageNum, PageRange, Prot, VirtAddr, VmError};

use super::{Call, Outcome};
use crate::mm::space::LOWEST;
use crate::mm::user;
use crate::process::Patience;
use crate::sched::Task;

/// Pages that hold `length` bytes; `None` if that is not a number.
#[inline]
pub(super) fn pages_for(length: u64) -> Option<u64> {
    length.checked_next_multiple_of(PAGE_SIZE).map(|bytes| bytes / PAGE_SIZE)
}

/// What a caller is told; munmap alone says EINVAL to a range outside user space.
pub(super) fn refusal(error: VmError) -> Errno {
    match error {
        VmError::Empty => Errno::EINVAL,
        VmError::Exists => Errno::EEXIST,
        VmError::Denied => Errno::EACCES,
        VmError::Mixed => Errno::EFAULT,
        VmError::OutOfRange | VmError::NoSpace | VmError::OutOfMemory | VmError::NotMapped => Errno::ENOMEM,
    }
}

/// The pages of `length` bytes from the page-aligned `address`.
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

/// Does `operation`, again if memory was found after it ran out.
#[inline]
pub(super) fn retry(mut operation: impl FnMut() -> Result<(), VmError>) -> Result<(), VmError> {
    let mut patience = Patience::new();
    loop {
        match operation() {
            Err(VmError::OutOfMemory) if patience.found_memory() => {}
            done => return done,
        }
    }
}

/// Removes every mapping in the range.
pub fn munmap(call: &mut Call<'_>) -> Outcome {
    let pages = range(call.arg(0), call.arg(1), Errno::EINVAL)?;
    let space = call.task.space();
    match retry(|| space.unmap(&pin(), pages)) {
        Ok(()) => Ok(0),
        Err(VmError::OutOfRange) => unmap_above_lowest(call.task, pages),
        Err(error) => Err(refusal(error)),
    }
}

/// The lowest pages can never be mapped, but a program may unmap them.
#[cold]
fn unmap_above_lowest(task: &Task, pages: PageRange) -> Outcome {
    let lowest = VirtAddr::new(LOWEST).page();
    if pages.start() >= lowest {
        return Err(Errno::EINVAL);
    }
    let rest = PageRange::between(lowest, pages.end().max(lowest));
    let space = task.space();
    if !rest.is_empty() {
        retry(|| space.unmap(&pin(), rest)).map_err(|_| Errno::EINVAL)?;
    }
    Ok(0)
}

/// Changes the rights of the range, up to the first hole.
pub fn mprotect(call: &mut Call<'_>) -> Outcome {
    let prot = call.arg(2);
    if prot & !(PROT_READ | PROT_WRITE | PROT_EXEC) != 0 {
        return Err(Errno::EINVAL);
    }
    let pages = range(call.arg(0), call.arg(1), Errno::ENOMEM)?;
    if pages.is_empty() {
        return Ok(0);
    }
    let (space, prot) = (call.task.space(), Prot::from_bits(prot));
    match retry(|| space.protect(&pin(), pages, prot)) {
        Ok(()) => Ok(0),
        Err(VmError::OutOfRange) => protect_below_top(call.task, pages, prot),
        Err(error) => Err(refusal(error)),
    }
}

/// What lies above user space is a hole like any other: the pages before the first one change.
#[cold]
fn protect_below_top(task: &Task, pages: PageRange, prot: Prot) -> Outcome {
    let top = VirtAddr::new(user::USER_END).page();
    if pages.start() < top && pages.end() > top {
        let _hole_or_none =
            retry(|| task.space().protect(&pin(), PageRange::between(pages.start(), top), prot));
    }
    Err(Errno::ENOMEM)
}

/// Shrinks a mapping. Growing is refused as if there were no room, which makes allocators copy instead.
pub fn mremap(call: &mut Call<'_>) -> Outcome {
    let [address, old, new, flags] = [0, 1, 2, 3].map(|index| call.arg(index));
    let moves = flags & (MREMAP_FIXED | MREMAP_DONTUNMAP) != 0;
    let unknown = flags & !(MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP) != 0;
    if unknown || moves && flags & MREMAP_MAYMOVE == 0 || new == 0 || old == 0 {
        return Err(Errno::EINVAL);
    }
    let mapped = range(address, old, Errno::EINVAL)?;
    let wanted = range(address, new, Errno::EINVAL)?;
    let space = call.task.space();
    if !space.mapped(&pin(), mapped) {
        return Err(Errno::EFAULT);
    }
    if moves || wanted.pages() > mapped.pages() {
        return Err(Errno::ENOMEM);
    }
    let rest = PageRange::between(wanted.end(), mapped.end());
    if !rest.is_empty() {
        retry(|| space.unmap(&pin(), rest)).map_err(refusal)?;
    }
    Ok(address)
}

/// # Errors
/// ENOMEM unless all of the range is mapped.
pub(super) fn check_mapped(task: &Task, pages: PageRange) -> Result<(), Errno> {
    if pages.is_empty() || task.space().mapped(&pin(), pages) { Ok(()) } else { Err(Errno::ENOMEM) }
}

/// Nothing waits to be written back; the range is checked.
pub fn msync(call: &mut Call<'_>) -> Outcome {
    let flags = call.arg(2);
    let both = MS_ASYNC | MS_SYNC;
    if flags & !(MS_ASYNC | MS_INVALIDATE | MS_SYNC) != 0 || flags & both == both {
        return Err(Errno::EINVAL);
    }
    check_mapped(call.task, range(call.arg(0), call.arg(1), Errno::ENOMEM)?).map(|()| 0)
}

/// Every mapped page counts as resident: none is ever paged out.
pub fn mincore(call: &mut Call<'_>) -> Outcome {
    const CHUNK: usize = 256;
    let pages = range(call.arg(0), call.arg(1), Errno::ENOMEM)?;
    check_mapped(call.task, pages)?;
    let mut done = 0;
    while done < pages.pages() {
        let count = (pages.pages() - done).min(CHUNK as u64);
        user::copy_out(call.arg(2).wrapping_add(done), &[1; CHUNK][..count as usize])?;
        done += count;
    }
    Ok(0)
}

/// The pages that a range of bytes touches.
fn touched(call: &Call<'_>) -> Result<PageRange, Errno> {
    let start = call.arg(0);
    let end = start.checked_add(call.arg(1)).and_then(|end| end.checked_next_multiple_of(PAGE_SIZE));
    let end = end.ok_or(Errno::EINVAL)?;
    Ok(PageRange::between(PageNum::new(start / PAGE_SIZE), PageNum::new(end / PAGE_SIZE)))
}

/// Memory is never paged out: locking checks the range.
pub fn mlock(call: &mut Call<'_>) -> Outcome {
    check_mapped(call.task, touched(call)?).map(|()| 0)
}

/// See [`mlock`].
pub fn mlock2(call: &mut Call<'_>) -> Outcome {
    const MLOCK_ONFAULT: u64 = 1;
    if call.arg(2) & !MLOCK_ONFAULT != 0 { Err(Errno::EINVAL) } else { mlock(call) }
}

/// See [`mlock`].
pub fn munlock(call: &mut Call<'_>) -> Outcome {
    mlock(call)
}

/// See [`mlock`].
pub fn mlockall(call: &mut Call<'_>) -> Outcome {
    const CURRENT_FUTURE: u64 = 3;
    const ONFAULT: u64 = 4;
    match call.arg(0) & !ONFAULT {
        1..=CURRENT_FUTURE => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

/// See [`mlock`].
pub fn munlockall(_call: &mut Call<'_>) -> Outcome {
    Ok(0)
}

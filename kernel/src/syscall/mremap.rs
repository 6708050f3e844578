//! mremap: a mapping shrinks, grows where it is, or moves.

use abi::Errno;
use abi::memory::*;
use percore::pin;
use vm::{PAGE_SIZE, PageNum, PageRange, Placement, Remap, VmError};

use super::ranges::{pages_for, range, refusal, retry};
use super::{Call, Outcome};
use crate::mm::file_mapping;
use crate::mm::space::{LOWEST, SpaceHandle};
use crate::mm::user::USER_END;

/// What an mremap asks for, checked.
struct Request {
    old: PageRange,
    /// Pages of the new mapping.
    pages: u64,
    flags: u64,
    /// Where it goes, if it moves.
    to: Placement,
}

/// Moving is for one mapping at a time; to map shared memory a second time (an old size of 0) is refused.
pub fn mremap(call: &mut Call<'_>) -> Outcome {
    let request = check(call)?;
    let space = call.task.space();
    if !space.mapped(&pin(), PageRange::one(request.old.start())) {
        return Err(Errno::EFAULT);
    }
    let kept = shrink(space, &request)?;
    if request.flags & (MREMAP_FIXED | MREMAP_DONTUNMAP) != 0 {
        return relocate(space, kept, &request);
    }
    match request.pages - kept.pages() {
        0 => Ok(call.arg(0)),
        more => grow(space, kept, more, &request),
    }
}

fn check(call: &Call<'_>) -> Result<Request, Errno> {
    let [address, old, new, flags, to] = [0, 1, 2, 3, 4].map(|index| call.arg(index));
    let places = flags & (MREMAP_FIXED | MREMAP_DONTUNMAP);
    let unknown = flags & !(MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP) != 0;
    if unknown || places != 0 && flags & MREMAP_MAYMOVE == 0 || old == 0 || new == 0 {
        return Err(Errno::EINVAL);
    }
    let old = range(address, old, Errno::EINVAL)?;
    let pages = pages_for(new).filter(|&pages| pages <= USER_END / PAGE_SIZE).ok_or(Errno::EINVAL)?;
    if flags & MREMAP_DONTUNMAP != 0 && pages != old.pages() {
        return Err(Errno::EINVAL);
    }
    let to = if places == 0 { Placement::Anywhere { hint: None } } else { target(old, to, new, flags)? };
    Ok(Request { old, pages, flags, to })
}

/// Where a mapping must move to, or best would; it may not meet itself there.
fn target(old: PageRange, to: u64, length: u64, flags: u64) -> Result<Placement, Errno> {
    let new = range(to, length, Errno::EINVAL)?;
    match to {
        _ if new.end().get() > USER_END / PAGE_SIZE || !new.common(old).is_empty() => Err(Errno::EINVAL),
        _ if flags & MREMAP_FIXED == 0 => Ok(Placement::Anywhere { hint: (to != 0).then_some(new.start()) }),
        ..LOWEST => Err(Errno::EPERM),
        _ => Ok(Placement::Fixed(new.start())),
    }
}

/// Unmaps what the new mapping has no pages for; says what is left.
fn shrink(space: &SpaceHandle, request: &Request) -> Result<PageRange, Errno> {
    let old = request.old;
    let kept = PageRange::new(old.start(), old.pages().min(request.pages)).ok_or(Errno::EINVAL)?;
    let rest = PageRange::between(kept.end(), old.end());
    if !rest.is_empty() {
        retry(|| space.unmap(&pin(), rest)).map_err(refusal)?;
    }
    Ok(kept)
}

fn grow(space: &SpaceHandle, kept: PageRange, more: u64, request: &Request) -> Outcome {
    match retry(|| space.extend(&pin(), kept, more)) {
        Ok(()) => Ok(kept.start().get() * PAGE_SIZE),
        Err(VmError::Exists | VmError::OutOfRange) if request.flags & MREMAP_MAYMOVE != 0 => {
            relocate(space, kept, request)
        }
        Err(VmError::Exists | VmError::OutOfRange) => Err(Errno::ENOMEM),
        Err(error) => Err(moving(error)),
    }
}

fn relocate(space: &SpaceHandle, from: PageRange, request: &Request) -> Outcome {
    let keep = request.flags & MREMAP_DONTUNMAP != 0;
    let what = Remap { from, pages: request.pages, to: request.to, keep };
    let mut start = PageNum::new(0);
    let moved = retry(|| {
        let pin = pin();
        let mut mover = |backing, from, to| file_mapping::moved(&pin, backing, from, to);
        space.remap(&pin, &what, &mut mover).map(|at| start = at)
    });
    moved.map(|()| start.get() * PAGE_SIZE).map_err(moving)
}

/// What is told of pages that cannot move or grow.
fn moving(error: VmError) -> Errno {
    match error {
        VmError::NotMapped => Errno::EFAULT,
        error => refusal(error),
    }
}

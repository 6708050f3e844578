//! mremap: shrinking a mapping, growing it in place, or moving it.

use alloc::sync::Arc;

use abi::Errno;
use abi::memory::*;
use percore::pin;
use vm::{
    Access, Flags, Mapping, PAGE_SIZE, PageNum, PageRange, Placement, Progress, Relocation, Remap, VmError,
};

use super::mmap::replaced;
use super::ranges::{detached, errno_of, pages_for, range, shows_file};
use super::{Call, Outcome};
use crate::mm::file_mapping::{self, FileMapping, Held};
use crate::mm::space::{LOWEST, SpaceHandle};
use crate::mm::user::USER_END;
use crate::process::pieces::{SHORT, in_pieces};
use crate::process::{Growth, retry, within_limits};
use crate::sched::{Task, pause};

/// The arguments of an mremap, checked.
struct Request {
    old: PageRange,
    /// The pages of the new mapping.
    pages: u64,
    flags: u64,
    /// The place that it moves to, if it moves.
    to: Placement,
}

/// Resizes or moves one mapping.
pub fn mremap(call: &mut Call<'_>) -> Outcome {
    let request = check(call)?;
    let (task, space) = (call.task, call.task.space());
    let (mapping, is_kernel) = mapping(space, request.old.start()).ok_or(Errno::EFAULT)?;
    if request.old.is_empty() {
        return map_second_time(task, mapping, &request);
    }
    if is_kernel {
        check_kernel(&request)?;
    }
    let kept = shrink(task, &request)?;
    if request.flags & (MREMAP_FIXED | MREMAP_DONTUNMAP) != 0 {
        return relocate(task, mapping, kept, &request);
    }
    match request.pages - kept.pages() {
        0 => Ok(call.arg(0)),
        _ => grow(task, mapping, kept, &request),
    }
}

/// Checks what is done to a mapping of a file of the kernel.
///
/// # Errors
/// EINVAL if it is to stay where it is too, EFAULT if it is to grow.
fn check_kernel(request: &Request) -> Result<(), Errno> {
    match request.flags & MREMAP_DONTUNMAP {
        0 if request.pages > request.old.pages() => Err(Errno::EFAULT),
        0 => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

fn check(call: &Call<'_>) -> Result<Request, Errno> {
    let [address, old, new, flags, to] = [0, 1, 2, 3, 4].map(|index| call.arg(index));
    let places = flags & (MREMAP_FIXED | MREMAP_DONTUNMAP);
    let unknown = flags & !(MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP) != 0;
    if unknown || places != 0 && flags & MREMAP_MAYMOVE == 0 || new == 0 {
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

/// Returns the place that a mapping must or should move to. The old and the new place may not overlap.
fn target(old: PageRange, to: u64, length: u64, flags: u64) -> Result<Placement, Errno> {
    let new = range(to, length, Errno::EINVAL)?;
    match to {
        _ if new.end().get() > USER_END / PAGE_SIZE || !new.common(old).is_empty() => Err(Errno::EINVAL),
        _ if flags & MREMAP_FIXED == 0 => Ok(Placement::Anywhere { hint: (to != 0).then_some(new.start()) }),
        ..LOWEST => Err(Errno::EPERM),
        _ => Ok(Placement::Fixed(new.start())),
    }
}

/// Unmaps the pages beyond the new size, and returns the rest.
fn shrink(task: &Task, request: &Request) -> Result<PageRange, Errno> {
    let (space, old) = (task.space(), request.old);
    let kept = PageRange::new(old.start(), old.pages().min(request.pages)).ok_or(Errno::EINVAL)?;
    let rest = PageRange::between(kept.end(), old.end());
    if !rest.is_empty() {
        let unmap = || in_pieces(space, rest, |piece| space.unmap(&pin(), piece)).map_err(errno_of);
        detached(task, Some(rest), unmap)?;
    }
    Ok(kept)
}

fn grow(task: &Task, mapping: Mapping, kept: PageRange, request: &Request) -> Outcome {
    let (space, more) = (task.space(), request.pages - kept.pages());
    let extend = || space.extend(&pin(), kept, more);
    match retry(|| within_limits(task, || Growth::of(mapping, more), extend)) {
        Ok(()) => {
            task.shared().memory.attachments.lengthen(kept.end(), more);
            Ok(kept.start().get() * PAGE_SIZE)
        }
        Err(VmError::Exists | VmError::OutOfRange) if request.flags & MREMAP_MAYMOVE != 0 => {
            relocate(task, mapping, kept, request)
        }
        Err(VmError::Exists | VmError::OutOfRange) => Err(Errno::ENOMEM),
        Err(error) => Err(move_errno(error)),
    }
}

fn relocate(task: &Task, mapping: Mapping, from: PageRange, request: &Request) -> Outcome {
    let keep = request.flags & MREMAP_DONTUNMAP != 0;
    let more = request.pages - if keep { 0 } else { from.pages() };
    let what = Remap { from, pages: request.pages, to: request.to, keep };
    let moved = retry(|| task.shared().memory.attachments.take_to_move(from, keep))?;
    let replaced = replaced(request.to, request.pages);
    let start = detached(task, replaced, || remap(task, mapping, more, what));
    match (&start, moved) {
        (Ok(start), Some(moved)) => moved.move_to(from, whole(*start, request)),
        (Err(_), Some(moved)) if !keep => moved.put_back(|page| shows_file(task.space(), page)),
        _ => {}
    }
    start.map(|start| start.get() * PAGE_SIZE)
}

/// Returns the pages of the new mapping, which begins at `start`.
fn whole(start: PageNum, request: &Request) -> PageRange {
    PageRange::new(start, request.pages).unwrap_or(PageRange::EMPTY)
}

fn remap(task: &Task, mapping: Mapping, more: u64, what: Remap) -> Result<PageNum, Errno> {
    if is_long(task.space(), &what) {
        let growth = || Growth::of(mapping, more);
        let moved =
            task.shared().memory.heap.move_alone(|| within_limits(task, growth, || in_steps(task, what)));
        return moved.map_err(move_errno);
    }
    let mut start = PageNum::new(0);
    let mut remap = || {
        let pin = pin();
        let mut remap_backing = |backing, from, to| file_mapping::moved(&pin, backing, from, to);
        task.space().remap(&pin, &what, &mut remap_backing).map(|at| start = at)
    };
    let moved = retry(|| within_limits(task, || Growth::of(mapping, more), &mut remap));
    moved.map(|()| start).map_err(move_errno)
}

/// Returns whether a move takes more than one piece, at either place. Short moves do not ask the space.
fn is_long(space: &SpaceHandle, what: &Remap) -> bool {
    let Some(parts) = space.moves_in_pieces().filter(|_| what.pages > SHORT) else { return false };
    parts.piece_to_move(&pin(), what.from) != what.from
        || replaced(what.to, what.pages).is_some_and(|pages| space.piece(&pin(), pages) != pages)
}

/// Moves pages piece by piece. The caller keeps other moves and copies away. If the task is killed meanwhile,
/// the move stays unfinished.
fn in_steps(task: &Task, what: Remap) -> Result<PageNum, VmError> {
    let mut relocation = Relocation::begin(&**task.space().as_ref(), what, u64::MAX).ok_or(VmError::Mixed)?;
    let mut last = None;
    loop {
        let mut step = || {
            let mut remap_backing =
                |backing, from, to| file_mapping::moved_again(&mut last, backing, from, to);
            relocation.step(&pin(), &mut remap_backing)
        };
        match retry(&mut step) {
            Ok(Progress::Over(answer)) => return answer,
            Ok(Progress::More) => {}
            Err(_) => relocation.abort(&pin()),
        }
        if !pause() {
            return Ok(what.from.start());
        }
    }
}

/// Returns the mapping of `page`, and whether it shows a file of the kernel.
fn mapping(space: &SpaceHandle, page: PageNum) -> Option<(Mapping, bool)> {
    let is_kernel = |backing| file_mapping::with(backing, |record: &FileMapping| record.source().is_kernel());
    let mut found = None;
    space.look(&pin(), page, &mut |mapping| {
        found = Some((mapping, mapping.backing().is_some_and(is_kernel)));
    });
    found
}

/// Handles an old size of 0: maps shared memory a second time, from the old page on.
fn map_second_time(task: &Task, mapping: Mapping, request: &Request) -> Outcome {
    if !mapping.flags().contains(Flags::SHARED) {
        return Err(Errno::EINVAL);
    }
    if request.flags & MREMAP_MAYMOVE == 0 {
        return Err(Errno::ENOMEM);
    }
    let record = second_record(task.space(), request)?;
    record.file().map_shared(mapping.prot().allows(Access::Write), |is_sealed| {
        let shared = Mapping::shared(mapping.prot(), record.number());
        let is_sealed = is_sealed || mapping.flags().contains(Flags::SEALED);
        map_second(task, request, if is_sealed { shared.sealed() } else { shared })
    })
}

fn map_second(task: &Task, request: &Request, mapping: Mapping) -> Outcome {
    let page = PageRange::one(request.old.start());
    let second = retry(|| task.shared().memory.attachments.take_to_move(page, true))?;
    let map = || {
        let map = || task.space().map(&pin(), request.to, request.pages, mapping);
        retry(|| within_limits(task, || Growth::of(mapping, request.pages), map)).map_err(errno_of)
    };
    let start = detached(task, replaced(request.to, request.pages), map)?;
    if let Some(second) = second {
        second.move_to(page, whole(start, request));
    }
    Ok(start.get() * PAGE_SIZE)
}

/// Creates a record for the file pages from the one on that the old page shows.
fn second_record(space: &Arc<SpaceHandle>, request: &Request) -> Result<Held, Errno> {
    let (page, mut source) = (request.old.start(), None);
    space.look(&pin(), page, &mut |mapping| {
        source = mapping.backing().map(|backing| {
            file_mapping::with(backing, |record| (record.share_source(), record.file_page(page)))
        });
    });
    let (source, first) = source.ok_or(Errno::EFAULT)?;
    Held::second(source, space, first, request.pages)
}

/// Returns the error for pages that cannot move or grow.
fn move_errno(error: VmError) -> Errno {
    match error {
        VmError::NotMapped => Errno::EFAULT,
        error => errno_of(error),
    }
}

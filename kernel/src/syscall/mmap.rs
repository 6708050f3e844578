//! mmap and brk.

use core::ops::ControlFlow;

use abi::Errno;
use abi::memory::*;
use percore::pin;
use sync::atomic::Ordering;
use vm::{Access, Flags, Mapping, PAGE_SIZE, PageNum, PageRange, Placement, Prot, VmError};

use super::map_file::{map_file, map_shared_memory};
use super::ranges::{detached, errno_of, pages_for};
use super::{Call, Outcome};
use crate::mm::space::{LOWEST, SpaceHandle};
use crate::mm::user::USER_END;
use crate::process::pieces::{in_pieces, over_holes};
use crate::process::{Growth, retry, within_limits};
use crate::sched::{Task, pause};

/// The end of MAP_32BIT mappings.
const LOW_END: PageNum = PageNum::new((1 << 31) / PAGE_SIZE);
const PROT_KNOWN: u64 = PROT_READ | PROT_WRITE | PROT_EXEC;
/// Logarithms of the sizes of huge pages on Linux, where 0 is the default one.
const HUGE_SIZES: [u64; 3] = [0, 21, 30];

/// The arguments of an mmap, checked.
pub(super) struct Request {
    pub place: Placement,
    pub pages: u64,
    pub prot: Prot,
    pub flags: u64,
}

impl Request {
    /// Returns whether writes are seen by others.
    pub fn is_shared(&self) -> bool {
        self.flags & MAP_TYPE != MAP_PRIVATE
    }
}

/// Maps memory. Files and shared memory are in `map_file`.
pub fn mmap(call: &mut Call<'_>) -> Outcome {
    if !call.arg(5).is_multiple_of(PAGE_SIZE) {
        return Err(Errno::EINVAL);
    }
    if call.arg(3) & MAP_ANONYMOUS == 0 {
        let file = call.file(4)?.counted();
        return map_file(call, &file, &check(call)?);
    }
    if call.arg(3) & MAP_HUGETLB != 0 {
        return Err(no_huge_pages(call));
    }
    let request = check(call)?;
    if request.is_shared() {
        return map_shared_memory(call, &request);
    }
    map(call, &request, Mapping::anonymous(request.prot))
}

/// Returns the error of MAP_HUGETLB. No huge pages are reserved. Errors in other arguments come first.
#[cold]
fn no_huge_pages(call: &Call<'_>) -> Errno {
    let size = call.arg(3) >> MAP_HUGE_SHIFT & MAP_HUGE_MASK;
    match check(call) {
        Ok(_) if HUGE_SIZES.contains(&size) => Errno::ENOMEM,
        _ => Errno::EINVAL,
    }
}

#[inline]
fn check(call: &Call<'_>) -> Result<Request, Errno> {
    let [address, length, prot, flags] = [0, 1, 2, 3].map(|index| call.arg(index));
    let known_type = match flags & MAP_TYPE {
        MAP_PRIVATE | MAP_SHARED => true,
        kind => kind == MAP_SHARED_VALIDATE && flags & MAP_ANONYMOUS == 0,
    };
    if length == 0 || !known_type || flags & MAP_GROWSDOWN != 0 {
        return Err(Errno::EINVAL);
    }
    let pages = pages_for(length).filter(|&pages| pages <= USER_END / PAGE_SIZE).ok_or(Errno::ENOMEM)?;
    Ok(Request { place: placement(address, flags)?, pages, prot: Prot::from_bits(prot & PROT_KNOWN), flags })
}

#[inline]
fn placement(address: u64, flags: u64) -> Result<Placement, Errno> {
    let page = PageNum::new(address / PAGE_SIZE);
    if flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0 {
        return match address {
            _ if !address.is_multiple_of(PAGE_SIZE) => Err(Errno::EINVAL),
            ..LOWEST => Err(Errno::EPERM),
            _ if flags & MAP_FIXED_NOREPLACE != 0 => Ok(Placement::FixedNoReplace(page)),
            _ => Ok(Placement::Fixed(page)),
        };
    }
    if flags & MAP_32BIT != 0 {
        return Ok(Placement::Below(LOW_END));
    }
    Ok(Placement::Anywhere { hint: (page.get() != 0).then_some(page) })
}

/// Calls `AddressSpace::map` within the limits, and again if memory ran out and reclaim found some. Faults
/// the pages in if that is wanted.
#[inline]
pub(super) fn map(call: &Call<'_>, request: &Request, mapping: Mapping) -> Outcome {
    let locks = Locks::of(call, request.flags);
    let start = place(call.task, request, locks.mark(mapping))?;
    if request.flags & MAP_POPULATE != 0 || locks.populates() {
        let pages = PageRange::new(start, request.pages).unwrap_or(PageRange::EMPTY);
        populate(call.task, pages, request.prot);
    }
    Ok(start.get() * PAGE_SIZE)
}

/// `MCL_*` for new pages: whether they are locked.
struct Locks(u64);

impl Locks {
    #[inline]
    fn of(call: &Call<'_>, flags: u64) -> Self {
        let all = call.task.shared().memory.locks.load(Ordering::Relaxed);
        Self(if flags & MAP_LOCKED != 0 { MCL_FUTURE } else { all })
    }

    fn mark(&self, mapping: Mapping) -> Mapping {
        if self.0 & MCL_FUTURE != 0 { mapping.with(Flags::LOCKED) } else { mapping }
    }

    fn populates(&self) -> bool {
        self.0 & MCL_FUTURE != 0 && self.0 & MCL_ONFAULT == 0
    }
}

#[inline(always)]
fn place(task: &Task, request: &Request, mapping: Mapping) -> Result<PageNum, Errno> {
    detached(task, replaced(request.place, request.pages), || place_alone(task, request, mapping))
}

/// Returns the pages that a mapping of `pages` pages replaces.
#[inline(always)]
pub(super) fn replaced(place: Placement, pages: u64) -> Option<PageRange> {
    match place {
        Placement::Fixed(start) => PageRange::new(start, pages),
        _ => None,
    }
}

#[inline(always)]
fn place_alone(task: &Task, request: &Request, mapping: Mapping) -> Result<PageNum, Errno> {
    let space = task.space();
    if let Some(pages) = long_place(space, request) {
        // The limit is checked for the whole mapping before any of the old pages are lost.
        let all = || growth(space, request.place, request.pages, mapping);
        within_limits(task, all, || Ok(())).map_err(errno_of)?;
        if mapping.backing().is_none() {
            replace(task, pages, mapping).map_err(errno_of)?;
            return Ok(pages.start());
        }
        // The record of a file's mapping must hold for all of it at once.
        let _holes = over_holes(space, pages, |piece| space.discard(&pin(), piece));
    }
    let map = || space.map(&pin(), request.place, request.pages, mapping);
    retry(|| within_limits(task, || growth(space, request.place, request.pages, mapping), map))
        .map_err(errno_of)
}

/// Returns the pages of a fixed place in user space, if there is more than one piece to replace.
fn long_place(space: &SpaceHandle, request: &Request) -> Option<PageRange> {
    let top = PageNum::new(USER_END / PAGE_SIZE);
    let pages = replaced(request.place, request.pages).filter(|pages| pages.end() <= top)?;
    (space.piece(&pin(), pages) != pages).then_some(pages)
}

/// Maps over `pages` piece by piece. Each piece is one step, so no part of the place is ever free for other
/// mappings.
fn replace(task: &Task, pages: PageRange, mapping: Mapping) -> Result<(), VmError> {
    let space = task.space();
    in_pieces(space, pages, |piece| {
        let (place, pages) = (Placement::Fixed(piece.start()), piece.pages());
        let map = || space.map(&pin(), place, pages, mapping).map(drop);
        within_limits(task, || growth(space, place, pages, mapping), map)
    })
}

/// Returns the pages that the mapping adds. Pages that it replaces do not count again.
fn growth(space: &SpaceHandle, place: Placement, pages: u64, mapping: Mapping) -> Growth {
    let mut replaced = 0;
    if let Placement::Fixed(start) = place {
        let pages = PageRange::new(start, pages).unwrap_or(PageRange::EMPTY);
        let _cannot_fail = in_pieces(space, pages, |piece| {
            space.regions(&pin(), piece, &mut |region| {
                replaced += region.pages.common(piece).pages();
                ControlFlow::Continue(())
            });
            Ok(())
        });
    }
    Growth::of(mapping, pages.saturating_sub(replaced))
}

/// Faults the pages in, until memory runs out or the task is killed.
fn populate(task: &Task, pages: PageRange, prot: Prot) {
    let access = if prot.allows(Access::Write) { Access::Write } else { Access::Read };
    let mut addresses = pages.iter().filter_map(PageNum::address);
    let comes = |at| pause() && task.space().fault(&pin(), at, access).is_ok();
    let _enough = addresses.all(comes);
}

/// Moves the end of the heap if possible, and returns the end.
pub fn brk(call: &mut Call<'_>) -> Outcome {
    let (memory, locks) = (&call.task.shared().memory, Locks::of(call, 0));
    let what = locks.mark(Mapping::anonymous(Prot::READ | Prot::WRITE));
    let old = memory.heap.bounds().1;
    let new = memory.heap.set_break(call.task, call.arg(0), what);
    if new < old {
        let pages = [new, old].map(|end| PageNum::new(end.div_ceil(PAGE_SIZE)));
        // Only a program that attaches a segment over its heap cuts one.
        drop(memory.attachments.take(PageRange::between(pages[0], pages[1])));
    }
    if new > old && locks.populates() {
        let [old, new] = [old, new].map(|end| PageNum::new(end.div_ceil(PAGE_SIZE)));
        populate(call.task, PageRange::between(old, new), what.prot());
    }
    Ok(new)
}

//! madvise: dropping contents, inheritance by children, holes in files, and hints.

use alloc::sync::Arc;
use core::ops::ControlFlow;

use abi::Errno;
use abi::memory::*;
use percore::pin;
use vm::{
    Access, FaultError, Flags, HUGE_PAGES, Mapping, PAGE_SIZE, PageNum, PageRange, Region, VirtAddr, VmError,
};

use super::ranges::{check_mapped, errno_of, in_user_space, range};
use super::{Call, Outcome};
use crate::fs::page_cache::PageCache;
use crate::mm::{file_mapping, read_refs};
use crate::process::fault::with_room;
use crate::process::pieces::{in_pieces, over_holes};
use crate::process::retry;
use crate::sched::{Task, pause};

/// Carries out advice. Advice that is only a hint is checked and has no effect.
pub fn madvise(call: &mut Call<'_>) -> Outcome {
    let (pages, task) = (range(call.arg(0), call.arg(1), Errno::EINVAL)?, call.task);
    let is_hint = matches!(
        call.arg(2),
        MADV_NORMAL
            | MADV_RANDOM
            | MADV_SEQUENTIAL
            | MADV_WILLNEED
            | MADV_MERGEABLE
            | MADV_UNMERGEABLE
            | MADV_DONTDUMP
            | MADV_DODUMP
    );
    let is_locked = |mapping: Mapping| mapping.flags().contains(Flags::LOCKED);
    match call.arg(2) {
        _ if is_hint => check_mapped(task, pages).map(|()| 0),
        MADV_COLD | MADV_PAGEOUT => {
            check_advice(task, pages, is_locked)?;
            check_mapped(task, pages).map(|()| 0)
        }
        MADV_FREE => {
            check_advice(task, pages, |mapping| is_locked(mapping) || mapping.backing().is_some())?;
            check_mapped(task, pages).map(|()| 0)
        }
        MADV_DONTNEED => discard(task, pages, Flags::LOCKED),
        MADV_DONTNEED_LOCKED => discard(task, pages, Flags::NONE),
        MADV_DONTFORK => advise(task, pages, Flags::DONTFORK, Flags::NONE),
        MADV_DOFORK => advise(task, pages, Flags::NONE, Flags::DONTFORK),
        MADV_WIPEONFORK => advise(task, pages, Flags::WIPEONFORK, Flags::NONE),
        MADV_KEEPONFORK => advise(task, pages, Flags::NONE, Flags::WIPEONFORK),
        MADV_HUGEPAGE => advise(task, pages, Flags::HUGE, Flags::NOHUGE),
        MADV_NOHUGEPAGE => advise(task, pages, Flags::NOHUGE, Flags::HUGE),
        MADV_COLLAPSE => collapse(task, pages),
        MADV_REMOVE => remove(task, pages),
        MADV_COUNT_READS => count_reads(task, pages),
        MADV_POPULATE_READ => populate(task, pages, Access::Read),
        MADV_POPULATE_WRITE => populate(task, pages, Access::Write),
        _ => Err(Errno::EINVAL),
    }
}

/// Checks the mappings of `pages`.
///
/// # Errors
/// EINVAL if `is_refused` holds for one of them.
fn check_advice(task: &Task, pages: PageRange, is_refused: impl Fn(Mapping) -> bool) -> Result<(), Errno> {
    let space = task.space();
    let look = |piece| {
        let mut refused = false;
        space.regions(&pin(), piece, &mut |region| {
            refused = is_refused(region.mapping);
            if refused { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if refused { Err(VmError::Mixed) } else { Ok(()) }
    };
    in_pieces(space, pages, look).map_err(|_| Errno::EINVAL)
}

/// Drops the contents of `pages`, up to a piece that has a page with one of the flags `refused`.
fn discard(task: &Task, pages: PageRange, refused: Flags) -> Outcome {
    if pages.is_empty() {
        return Ok(0);
    }
    let space = task.space();
    let discard = |piece| space.discard_without(&pin(), piece, refused);
    done(in_user_space(pages, |pages| over_holes(space, pages, discard)))
}

/// Sets and clears flags of the mappings (`AddressSpace::advise`).
pub(super) fn advise(task: &Task, pages: PageRange, set: Flags, clear: Flags) -> Outcome {
    if pages.is_empty() {
        return Ok(0);
    }
    let space = task.space();
    let advise = |piece| space.advise(&pin(), piece, set, clear);
    done(in_user_space(pages, |pages| over_holes(space, pages, advise)))
}

/// Converts an outcome to the result of madvise and mlock.
fn done(outcome: Result<(), VmError>) -> Outcome {
    match outcome {
        Ok(()) => Ok(0),
        Err(VmError::Mixed) => Err(Errno::EINVAL),
        Err(error) => Err(errno_of(error)),
    }
}

/// Makes huge pages of the blocks in `pages`, up to the first that cannot be one. As on Linux, EINVAL is
/// returned if the mapping at the start of a block does not fill the block.
fn collapse(task: &Task, pages: PageRange) -> Outcome {
    let start = pages.start().get().next_multiple_of(HUGE_PAGES);
    let end = pages.end().get();
    if start + HUGE_PAGES > end {
        return Err(Errno::EINVAL);
    }
    for block in (start..=end - HUGE_PAGES).step_by(HUGE_PAGES as usize) {
        if !pause() {
            return Err(Errno::EINTR);
        }
        match task.space().collapse(&pin(), PageNum::new(block)) {
            Ok(()) => {}
            Err(VmError::NotMapped) => {
                check_mapped(task, PageRange::one(PageNum::new(block)))?;
                return Err(Errno::EINVAL);
            }
            Err(VmError::Mixed) => return Err(Errno::EINVAL),
            Err(error) => return Err(errno_of(error)),
        }
    }
    Ok(0)
}

/// A part of a file that a mapping shows.
struct FilePart {
    file: Arc<PageCache>,
    first: u64,
    pages: PageRange,
    /// Whether it is from a mounted directory. The host's file would keep the bytes of a hole.
    is_mounted: bool,
}

/// Punches holes into the files behind shared mappings, up to the first page without such a file.
fn remove(task: &Task, pages: PageRange) -> Outcome {
    let mut rest = pages;
    while !rest.is_empty() && pause() {
        let part = part(task, rest, may_punch)?;
        if part.is_mounted {
            return Err(Errno::EOPNOTSUPP);
        }
        part.file.punch(part.first * PAGE_SIZE, part.pages.pages() * PAGE_SIZE)?;
        rest = PageRange::between(part.pages.end(), rest.end());
    }
    Ok(0)
}

/// Returns the part of a file at the start of `pages`. It holds the file, so that the hole can be punched
/// without a lock on the pages.
fn part(
    task: &Task,
    pages: PageRange,
    check: impl Fn(Mapping) -> Result<(), Errno>,
) -> Result<FilePart, Errno> {
    let mut found = Err(Errno::ENOMEM);
    task.space().regions(&pin(), pages, &mut |region: &Region| {
        if region.pages.start() == pages.start() {
            found = check(region.mapping).and_then(|()| shown(region));
        }
        ControlFlow::Break(())
    });
    found
}

/// Checks that a hole may be punched through a mapping.
fn may_punch(mapping: Mapping) -> Result<(), Errno> {
    let flags = mapping.flags();
    match () {
        () if mapping.backing().is_none() || flags.contains(Flags::LOCKED) => Err(Errno::EINVAL),
        () if !flags.contains(Flags::SHARED) || flags.contains(Flags::SEALED) => Err(Errno::EACCES),
        () => Ok(()),
    }
}

fn shown(region: &Region) -> Result<FilePart, Errno> {
    let (mapping, pages) = (region.mapping, region.pages);
    let backing = mapping.backing().ok_or(Errno::EINVAL)?;
    let part = |record: &file_mapping::FileMapping| FilePart {
        file: record.file().clone(),
        first: record.file_page(pages.start()),
        pages,
        is_mounted: record.source().opened().is_some_and(|file| file.is_mounted()),
    };
    Ok(file_mapping::with(backing, part))
}

/// Counts this process's reads of the file that `pages` show in their entries of its page table, from now on.
/// As hints do, this succeeds where the kernel counts in another way.
///
/// # Errors
/// ENOMEM if `pages` are not mapped. EINVAL if they show no file.
fn count_reads(task: &Task, pages: PageRange) -> Outcome {
    let part = part(task, pages, |_| Ok(()))?;
    if read_refs::has_entries() {
        task.shared().memory.local_counts.add(&part.file, part.first, part.pages);
    }
    Ok(0)
}

/// Faults the pages in, up to the first that cannot be.
///
/// # Errors
/// EINTR if the process ends meanwhile, EINVAL, EFAULT, ENOMEM.
pub(super) fn populate(task: &Task, pages: PageRange, access: Access) -> Outcome {
    for address in pages.iter().map(PageNum::address) {
        if !pause() {
            return Err(Errno::EINTR);
        }
        touch(task, address.ok_or(Errno::ENOMEM)?, access)?;
    }
    Ok(0)
}

fn touch(task: &Task, address: VirtAddr, access: Access) -> Result<(), Errno> {
    match with_room(|| retry(|| task.space().fault(&pin(), address, access))) {
        Ok(_) => Ok(()),
        Err(FaultError::Denied) => Err(Errno::EINVAL),
        Err(FaultError::BeyondEnd) => Err(Errno::EFAULT),
        Err(FaultError::NotMapped | FaultError::OutOfMemory) => Err(Errno::ENOMEM),
    }
}

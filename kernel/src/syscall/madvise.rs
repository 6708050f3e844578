//! madvise: dropping contents, what children get, holes in files, and hints.

use alloc::sync::Arc;
use core::ops::ControlFlow;

use abi::Errno;
use abi::memory::*;
use percore::pin;
use vm::{Access, FaultError, Flags, PAGE_SIZE, PageNum, PageRange, Region, VirtAddr, VmError};

use super::ranges::{check_mapped, range, refusal, retry};
use super::{Call, Outcome};
use crate::fs::page_cache::PageCache;
use crate::mm::file_mapping;
use crate::process::Patience;
use crate::sched::Task;

/// What is only a hint is accepted without effect.
pub fn madvise(call: &mut Call<'_>) -> Outcome {
    let (pages, task) = (range(call.arg(0), call.arg(1), Errno::EINVAL)?, call.task);
    let is_hint = matches!(
        call.arg(2),
        MADV_NORMAL
            | MADV_RANDOM
            | MADV_SEQUENTIAL
            | MADV_WILLNEED
            | MADV_FREE
            | MADV_MERGEABLE
            | MADV_UNMERGEABLE
            | MADV_DONTDUMP
            | MADV_DODUMP
            | MADV_COLD
            | MADV_PAGEOUT
    );
    match call.arg(2) {
        _ if is_hint => check_mapped(task, pages).map(|()| 0),
        MADV_DONTNEED if pages.is_empty() => Ok(0),
        MADV_DONTNEED => {
            retry(|| task.space().discard(&pin(), pages)).map_err(refusal)?;
            Ok(0)
        }
        MADV_DONTFORK => advise(task, pages, Flags::DONTFORK, Flags::NONE),
        MADV_DOFORK => advise(task, pages, Flags::NONE, Flags::DONTFORK),
        MADV_WIPEONFORK => advise(task, pages, Flags::WIPEONFORK, Flags::NONE),
        MADV_KEEPONFORK => advise(task, pages, Flags::NONE, Flags::WIPEONFORK),
        MADV_HUGEPAGE => advise(task, pages, Flags::HUGE, Flags::NOHUGE),
        MADV_NOHUGEPAGE => advise(task, pages, Flags::NOHUGE, Flags::HUGE),
        MADV_REMOVE => remove(task, pages),
        MADV_POPULATE_READ => populate(task, pages, Access::Read),
        MADV_POPULATE_WRITE => populate(task, pages, Access::Write),
        _ => Err(Errno::EINVAL),
    }
}

/// `AddressSpace::advise`, as madvise and mlock answer.
pub(super) fn advise(task: &Task, pages: PageRange, set: Flags, clear: Flags) -> Outcome {
    if pages.is_empty() {
        return Ok(0);
    }
    match retry(|| task.space().advise(&pin(), pages, set, clear)) {
        Ok(()) => Ok(0),
        Err(VmError::Mixed) => Err(Errno::EINVAL),
        Err(error) => Err(refusal(error)),
    }
}

/// A stretch of a file that a mapping shows.
struct Stretch {
    file: Arc<PageCache>,
    first: u64,
    pages: PageRange,
}

/// Punches holes into the files behind shared mappings, up to the first page that is none's.
fn remove(task: &Task, pages: PageRange) -> Outcome {
    let mut rest = pages;
    while !rest.is_empty() {
        let stretch = stretch(task, rest)?;
        stretch.file.punch(stretch.first * PAGE_SIZE, stretch.pages.pages() * PAGE_SIZE);
        rest = PageRange::between(stretch.pages.end(), rest.end());
    }
    Ok(0)
}

/// The stretch that begins `pages`. The file is held, so that the hole can be made without a lock on them.
fn stretch(task: &Task, pages: PageRange) -> Result<Stretch, Errno> {
    let mut found = Err(Errno::ENOMEM);
    task.space().regions(&pin(), pages, &mut |region: &Region| {
        if region.pages.start() == pages.start() {
            found = shown(region);
        }
        ControlFlow::Break(())
    });
    found
}

fn shown(region: &Region) -> Result<Stretch, Errno> {
    let (mapping, pages) = (region.mapping, region.pages);
    let backing = mapping.backing().ok_or(Errno::EINVAL)?;
    if !mapping.flags().contains(Flags::SHARED) || mapping.flags().contains(Flags::SEALED) {
        return Err(Errno::EACCES);
    }
    let (file, first) =
        file_mapping::with(backing, |record| (record.file().clone(), record.file_page(pages.start())));
    Ok(Stretch { file, first, pages })
}

/// Faults the pages in, up to the first that cannot be.
pub(super) fn populate(task: &Task, pages: PageRange, access: Access) -> Outcome {
    for address in pages.iter().map(PageNum::address) {
        touch(task, address.ok_or(Errno::ENOMEM)?, access)?;
    }
    Ok(0)
}

fn touch(task: &Task, address: VirtAddr, access: Access) -> Result<(), Errno> {
    let mut patience = Patience::new();
    loop {
        match task.space().fault(&pin(), address, access) {
            Ok(_) => return Ok(()),
            Err(FaultError::OutOfMemory) if patience.found_memory() => {}
            Err(FaultError::Denied) => return Err(Errno::EINVAL),
            Err(FaultError::BeyondEnd) => return Err(Errno::EFAULT),
            Err(FaultError::NotMapped | FaultError::OutOfMemory) => return Err(Errno::ENOMEM),
        }
    }
}

//! Residence of pages in memory: mincore, the mlock family.

use core::ops::ControlFlow;

use abi::Errno;
use abi::memory::{MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT};
use percore::pin;
use sync::atomic::Ordering;
use vm::{Access, Detail, Flags, PAGE_SIZE, PageNum, PageRange};

use super::madvise::{advise, populate};
use super::ranges::range;
use super::{Call, Outcome};
use crate::bytes::prefix;
use crate::mm::space::user_pages;
use crate::mm::{file_mapping, user};
use crate::sched::{Task, pause};

/// Reports which pages are resident. A page is resident if the program or its file has it in memory.
pub fn mincore(call: &mut Call<'_>) -> Outcome {
    const CHUNK: u64 = 2048;
    let pages = range(call.arg(0), call.arg(1), Errno::ENOMEM)?;
    for done in (0..pages.pages()).step_by(CHUNK as usize) {
        let start = PageNum::new(pages.start().get() + done);
        let chunk = PageRange::between(start, pages.end().min(PageNum::new(start.get() + CHUNK)));
        let mut found = [0; CHUNK as usize];
        let mut note = |run: PageRange| {
            let from = (run.start().get() - start.get()) as usize;
            found.iter_mut().skip(from).take(run.pages() as usize).for_each(|found| *found = 1);
        };
        if call.task.space().resident(&pin(), chunk, &mut note).map_err(|_| Errno::ENOMEM)? {
            note_files(call.task, chunk, &mut found);
        }
        user::copy_out(call.arg(2).wrapping_add(done), prefix(&found, chunk.pages()))?;
        if !pause() {
            break;
        }
    }
    Ok(0)
}

/// Marks in `found` which of `pages` show a page of a file that is in memory.
fn note_files(task: &Task, pages: PageRange, found: &mut [u8]) {
    task.space().regions(&pin(), pages, &mut |region| {
        let Some(backing) = region.mapping.backing() else { return ControlFlow::Continue(()) };
        file_mapping::with(backing, |record| {
            for (page, found) in
                pages.iter().zip(&mut *found).filter(|(page, _)| region.pages.contains(*page))
            {
                *found |= u8::from(record.file().has(record.file_page(page)));
            }
        });
        ControlFlow::Continue(())
    });
}

/// Returns the pages that a range of bytes touches.
fn touched(call: &Call<'_>) -> Result<PageRange, Errno> {
    let (start, offset) = (call.arg(0) / PAGE_SIZE, call.arg(0) % PAGE_SIZE);
    // A length that overflows when it is rounded up counts as 0, as on Linux.
    let bytes = call.arg(1).checked_add(offset).and_then(|bytes| bytes.checked_next_multiple_of(PAGE_SIZE));
    let end = start + bytes.unwrap_or(0) / PAGE_SIZE;
    if end > u64::MAX / PAGE_SIZE {
        return Err(Errno::EINVAL);
    }
    Ok(PageRange::between(PageNum::new(start), PageNum::new(end)))
}

/// Marks the pages as locked and faults them in.
pub fn mlock(call: &mut Call<'_>) -> Outcome {
    let pages = touched(call)?;
    advise(call.task, pages, Flags::LOCKED, Flags::NONE)?;
    populate(call.task, pages, Access::Read).map_err(|_| Errno::ENOMEM)
}

/// Does the same as [`mlock`], or only marks the pages.
pub fn mlock2(call: &mut Call<'_>) -> Outcome {
    const MLOCK_ONFAULT: u64 = 1;
    match call.arg(2) {
        0 => mlock(call),
        MLOCK_ONFAULT => advise(call.task, touched(call)?, Flags::LOCKED, Flags::NONE),
        _ => Err(Errno::EINVAL),
    }
}

/// Clears the mark of [`mlock`].
pub fn munlock(call: &mut Call<'_>) -> Outcome {
    advise(call.task, touched(call)?, Flags::NONE, Flags::LOCKED)
}

/// Does the same as [`mlock`] for all pages, for all future ones, or for both.
pub fn mlockall(call: &mut Call<'_>) -> Outcome {
    let (flags, memory) = (call.arg(0), &call.task.shared().memory);
    if flags & !(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) != 0 || flags & (MCL_CURRENT | MCL_FUTURE) == 0 {
        return Err(Errno::EINVAL);
    }
    let future = if flags & MCL_FUTURE != 0 { flags } else { 0 };
    memory.locks.store(future, Ordering::Relaxed);
    if flags & MCL_CURRENT != 0 {
        advise_all(call, Flags::LOCKED, Flags::NONE);
    }
    if flags & (MCL_CURRENT | MCL_ONFAULT) == MCL_CURRENT {
        populate_all(call);
    }
    Ok(0)
}

/// Clears the marks of [`mlockall`].
pub fn munlockall(call: &mut Call<'_>) -> Outcome {
    call.task.shared().memory.locks.store(0, Ordering::Relaxed);
    advise_all(call, Flags::NONE, Flags::LOCKED);
    Ok(0)
}

/// Sets and clears flags of all mappings. Holes between them are no error.
fn advise_all(call: &Call<'_>, set: Flags, clear: Flags) {
    let _holes = advise(call.task, user_pages(), set, clear);
}

/// Faults all pages in, as far as memory goes and the pages may be accessed.
fn populate_all(call: &Call<'_>) {
    for mapped in call.task.shared().memory.mappings(user_pages().start(), Detail::Mappings) {
        let _enough = populate(call.task, mapped.region.pages, Access::Read);
    }
}

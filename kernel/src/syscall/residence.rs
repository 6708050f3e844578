//! What is in memory, and stays there: mincore, the mlock family.

use abi::Errno;
use percore::pin;
use vm::{Access, Flags, PAGE_SIZE, PageNum, PageRange};

use super::madvise::{advise, populate};
use super::ranges::{check_mapped, range};
use super::{Call, Outcome};
use crate::mm::space::LOWEST;
use crate::mm::user::{self, USER_END};

/// A page is resident if the program has it in memory; a file's page that it has not touched is not.
pub fn mincore(call: &mut Call<'_>) -> Outcome {
    const CHUNK: u64 = 256;
    let pages = range(call.arg(0), call.arg(1), Errno::ENOMEM)?;
    check_mapped(call.task, pages)?;
    for done in (0..pages.pages()).step_by(CHUNK as usize) {
        let start = PageNum::new(pages.start().get() + done);
        let chunk = PageRange::between(start, pages.end().min(PageNum::new(start.get() + CHUNK)));
        let mut found = [0; CHUNK as usize];
        let mut note = |run: PageRange| {
            run.iter().for_each(|page| found[(page.get() - start.get()) as usize] = 1);
        };
        call.task.space().resident(&pin(), chunk, &mut note).map_err(|_| Errno::ENOMEM)?;
        user::copy_out(call.arg(2).wrapping_add(done), &found[..chunk.pages() as usize])?;
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

/// Brings the pages in, and notes that they stay: memory of programs is never paged out anyway.
pub fn mlock(call: &mut Call<'_>) -> Outcome {
    let pages = touched(call)?;
    advise(call.task, pages, Flags::LOCKED, Flags::NONE)?;
    populate(call.task, pages, Access::Read).map_err(|_| Errno::ENOMEM)
}

/// See [`mlock`].
pub fn mlock2(call: &mut Call<'_>) -> Outcome {
    const MLOCK_ONFAULT: u64 = 1;
    match call.arg(2) {
        0 => mlock(call),
        MLOCK_ONFAULT => advise(call.task, touched(call)?, Flags::LOCKED, Flags::NONE),
        _ => Err(Errno::EINVAL),
    }
}

/// See [`mlock`].
pub fn munlock(call: &mut Call<'_>) -> Outcome {
    advise(call.task, touched(call)?, Flags::NONE, Flags::LOCKED)
}

/// Every page that there is stays; none is brought in, and none to come is noted.
pub fn mlockall(call: &mut Call<'_>) -> Outcome {
    const ONFAULT: u64 = 4;
    const CURRENT: u64 = 1;
    const FUTURE: u64 = 2;
    match call.arg(0) & !ONFAULT {
        FUTURE => Ok(0),
        flags if flags & !(CURRENT | FUTURE) == 0 && flags != 0 => {
            advise_all(call, Flags::LOCKED, Flags::NONE)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// See [`mlockall`].
pub fn munlockall(call: &mut Call<'_>) -> Outcome {
    advise_all(call, Flags::NONE, Flags::LOCKED)
}

/// Advises whatever is mapped; that there are holes is no error.
fn advise_all(call: &Call<'_>, set: Flags, clear: Flags) -> Outcome {
    let page = |address| PageNum::new(address / PAGE_SIZE);
    let _holes = advise(call.task, PageRange::between(page(LOWEST), page(USER_END)), set, clear);
    Ok(0)
}

//! madvise: dropping contents, and hints.

use abi::Errno;
use abi::memory::*;
use percore::pin;
use vm::{Access, FaultError, PageNum, PageRange, VirtAddr};

use super::ranges::{check_mapped, range, refusal, retry};
use super::{Call, Outcome};
use crate::process::Patience;
use crate::sched::Task;

/// MADV_DONTNEED drops the contents at once, MADV_POPULATE_* touch the pages; what is only a hint is accepted, and what
/// is about children, since there are none.
pub fn madvise(call: &mut Call<'_>) -> Outcome {
    let pages = range(call.arg(0), call.arg(1), Errno::EINVAL)?;
    let is_hint = matches!(
        call.arg(2),
        MADV_NORMAL
            | MADV_RANDOM
            | MADV_SEQUENTIAL
            | MADV_WILLNEED
            | MADV_FREE
            | MADV_DONTFORK
            | MADV_DOFORK
            | MADV_MERGEABLE
            | MADV_UNMERGEABLE
            | MADV_HUGEPAGE
            | MADV_NOHUGEPAGE
            | MADV_DONTDUMP
            | MADV_DODUMP
            | MADV_WIPEONFORK
            | MADV_KEEPONFORK
            | MADV_COLD
            | MADV_PAGEOUT
    );
    match call.arg(2) {
        _ if is_hint => check_mapped(call.task, pages).map(|()| 0),
        MADV_DONTNEED if pages.is_empty() => Ok(0),
        MADV_DONTNEED => {
            let space = call.task.space();
            retry(|| space.discard(&pin(), pages)).map_err(refusal)?;
            Ok(0)
        }
        MADV_POPULATE_READ => populate(call.task, pages, Access::Read),
        MADV_POPULATE_WRITE => populate(call.task, pages, Access::Write),
        _ => Err(Errno::EINVAL),
    }
}

/// Faults the pages in, up to the first that cannot be.
fn populate(task: &Task, pages: PageRange, access: Access) -> Outcome {
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

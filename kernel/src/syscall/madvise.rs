//! madvise: dropping contents, and hints.

use abi::Errno;
use abi::memory::*;
use percore::pin;

use super::ranges::{check_mapped, range, refusal, retry};
use super::{Call, Outcome};

/// MADV_DONTNEED drops the contents at once; what is only a hint is accepted.
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
            | MADV_COLD
            | MADV_PAGEOUT
    );
    match call.arg(2) {
        _ if is_hint => check_mapped(call.task, pages).map(|()| 0),
        MADV_DONTNEED if pages.is_empty() => Ok(0),
        MADV_DONTNEED => {
            let space = call.task.process().space();
            retry(|| space.discard(&pin(), pages)).map_err(refusal)?;
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}

//! Operations on long ranges of memory, a piece at a time.
//!
//! Each piece is one step for everybody else. A piece ends where a page is mapped, so what `mmap` puts anywhere meanwhile lies in
//! one piece: a long munmap takes it away as a whole or not at all.

use percore::pin;
use vm::{PageRange, VmError};

use super::reclaim::retry;
use crate::mm::space::SpaceHandle;
use crate::sched::pause;

/// So many pages are one piece: what most calls are about does not even ask.
pub const SHORT: u64 = 512;

/// Does `operation` with one piece of `pages` after the other, each again if memory was found after it ran out. The caller
/// holds no lock. A task that is killed meanwhile leaves the rest.
///
/// # Errors
/// What `operation` says first. The pieces before are done.
#[inline]
pub fn in_pieces(
    space: &SpaceHandle,
    pages: PageRange,
    mut operation: impl FnMut(PageRange) -> Result<(), VmError>,
) -> Result<(), VmError> {
    if pages.pages() <= SHORT {
        return retry(|| operation(pages));
    }
    let mut rest = pages;
    loop {
        let piece = space.piece(&pin(), rest);
        retry(|| operation(piece))?;
        rest = PageRange::between(piece.end(), rest.end());
        if rest.is_empty() || !pause() {
            return Ok(());
        }
    }
}

/// The same for an operation that goes on behind a hole, and tells of it at the end.
///
/// # Errors
/// `NotMapped` if a piece has a hole; what else `operation` says first.
pub fn over_holes(
    space: &SpaceHandle,
    pages: PageRange,
    mut operation: impl FnMut(PageRange) -> Result<(), VmError>,
) -> Result<(), VmError> {
    let mut whole = Ok(());
    in_pieces(space, pages, |piece| match operation(piece) {
        Err(VmError::NotMapped) => {
            whole = Err(VmError::NotMapped);
            Ok(())
        }
        done => done,
    })?;
    whole
}

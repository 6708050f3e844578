//! Operations on long ranges of memory, a piece at a time.
//!
//! Each piece is one atomic step for other tasks. A piece ends where a page is mapped, so a mapping that
//! `mmap` places meanwhile is in one piece: a long munmap removes it as a whole or not at all.

use percore::pin;
use vm::{PageRange, VmError};

use super::reclaim::retry;
use crate::mm::space::SpaceHandle;
use crate::sched::pause;

/// Ranges of at most this many pages are one piece. Most calls are so short and need not ask the space.
pub const SHORT: u64 = 512;

/// Calls `operation` with one piece of `pages` after the other, and again for each that failed if reclaim
/// found memory. The caller holds no lock. If the task is killed meanwhile, the rest is left.
///
/// # Errors
/// The first error of `operation`. The pieces before are done.
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

/// Does the same for an operation that goes on behind a hole, and reports the hole at the end.
///
/// # Errors
/// `NotMapped` if a piece has a hole, and the first other error of `operation`.
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

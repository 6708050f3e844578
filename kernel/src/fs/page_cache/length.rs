//! Changes of a file's length, and writes beyond the end.

use core::sync::atomic::Ordering;

use abi::Errno;
use percore::pin;
use vm::Copies;

use super::changing::Changing;
use super::{FREED_AT_ONCE, Kind, LARGE, MAX_LEN, PAGE, PageCache, pages};
use crate::bytes::prefix;
use crate::fs::content::WriteAt;
use crate::mm::page_tree;

/// Returns the end of `len` bytes from `at` on.
///
/// # Errors
/// EFBIG if no file can be so long.
pub(super) fn end_of(at: u64, len: u64) -> Result<u64, Errno> {
    at.checked_add(len).filter(|&end| end <= MAX_LEN).ok_or(Errno::EFBIG)
}

impl PageCache {
    /// Writes with the file locked, and returns where and the number of bytes.
    ///
    /// # Errors
    /// EBUSY while another task changes the length: the caller releases its locks and tries again. ENOMEM,
    /// ENOSPC, EFBIG, EPERM by a seal.
    pub(super) fn write_locked(&self, at: WriteAt, from: &[u8]) -> Result<(u64, usize), Errno> {
        let start = |len| match at {
            WriteAt::Offset(at) => at,
            WriteAt::End => len,
        };
        let fits = |len| start(len).saturating_add(from.len() as u64) <= len;
        let state = self.lock_if(|state| state.is_idle() || fits(self.len()))?;
        let len = self.len();
        let at = start(len);
        let room = MAX_LEN.saturating_sub(at).min(from.len() as u64);
        if room == 0 && !from.is_empty() {
            return Err(Errno::EFBIG);
        }
        let room = state.seals.room(len, at, room)? as usize;
        self.clear_beyond_end(len, at, at + room as u64);
        let done = self.put(at, prefix(from, room as u64))?;
        if done > 0 {
            self.put_end(len.max(at + done as u64));
        }
        Ok((at, done))
    }

    /// Truncates the file, or extends it with zeroes.
    pub fn set_len(&self, new: u64) -> Result<(), Errno> {
        if new > MAX_LEN {
            return Err(Errno::EFBIG);
        }
        let condition =
            |state: &Changing| if new > self.len() { state.is_idle() } else { state.allows_removal() };
        let state = self.lock_when(condition);
        let len = self.len();
        state.seals.allow_len(len, new)?;
        if new > len {
            self.clear_beyond_end(len, new, new);
        } else {
            self.end_cover(new)?;
        }
        self.put_end(new);
        if new < len {
            self.clear(new, pages(new) * PAGE as u64);
            let _removal = self.removal(state);
            self.remove(pages(new), page_tree::END, Copies::Drop);
        }
        Ok(())
    }

    /// Stores the end. The caller has locked `changing`.
    pub(super) fn put_end(&self, end: u64) {
        if end > FREED_AT_ONCE && self.len() <= FREED_AT_ONCE {
            self.note(LARGE);
        }
        self.len.store(end, Ordering::Release);
    }

    /// Makes bytes from `end` on zeroes if the file grows again: they are not those of the file under this
    /// one any more. The caller has locked `changing`.
    fn end_cover(&self, end: u64) -> Result<(), Errno> {
        let Kind::Over(over) = &self.kind else { return Ok(()) };
        if end < over.bytes.load(Ordering::Relaxed) {
            if !end.is_multiple_of(PAGE as u64) {
                self.get_or_make(&pin(), end / PAGE as u64)?;
            }
            over.bytes.store(end, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Prepares raising the end from `len` to `end`: clears the bytes beyond the end, except those from `at`
    /// on, which the caller writes.
    pub(super) fn clear_beyond_end(&self, len: u64, at: u64, end: u64) {
        let tail_end = pages(len) * PAGE as u64;
        self.clear(len, at.clamp(len, tail_end));
        self.drop_pages(pages(len), pages(end).max(pages(len)));
    }

    /// Checks that the file can be extended to hold `len` bytes from `at` on.
    ///
    /// # Errors
    /// EFBIG if no file can, EPERM if a seal forbids it.
    pub fn check_extension(&self, at: u64, len: u64) -> Result<(), Errno> {
        let end = end_of(at, len)?;
        let state = self.changing.lock();
        let old = self.len();
        state.seals.allow_len(old, end.max(old))
    }
}

//! Holes: punching, finding and filling them.

use core::ops::Range;

use abi::Errno;
use percore::pin;
use vm::Copies;

use super::changing::Changing;
use super::frames::PIECE;
use super::{Kind, MAX_LEN, PAGE, PageCache, pages};
use crate::mm::page_tree;
use crate::sched;

impl PageCache {
    /// Punches a hole of `len` bytes from `at` on. The length stays.
    ///
    /// # Errors
    /// EPERM if a seal forbids writing, EOPNOTSUPP if the file begins as one of the host's there: a page
    /// that is missing shows that file's bytes.
    pub fn punch(&self, at: u64, len: u64) -> Result<(), Errno> {
        if let Kind::Over(over) = &self.kind
            && over.covers(at / PAGE as u64)
        {
            return Err(Errno::EOPNOTSUPP);
        }
        let state = self.lock_when(Changing::allows_removal);
        state.seals.allow_write()?;
        let _hole = self.removal(state);
        let end = at.saturating_add(len).min(MAX_LEN);
        let (first, last) = (pages(at), end / PAGE as u64);
        if first > last {
            self.clear(at, end);
            return Ok(());
        }
        self.clear(at, first * PAGE as u64);
        self.clear(last * PAGE as u64, end);
        self.remove(first, last, Copies::Keep);
        Ok(())
    }

    /// Returns the position of the next data, or of the next hole, from byte `at` on.
    ///
    /// # Errors
    /// ENXIO if data is wanted and there is none up to the end.
    pub fn seek(&self, at: u64, data: bool) -> Result<u64, Errno> {
        let (len, page) = (self.len(), at / PAGE as u64);
        let found = match (&self.kind, data) {
            (Kind::Image(_) | Kind::Host(_) | Kind::Over(_), true) => at,
            (Kind::Image(_) | Kind::Host(_) | Kind::Over(_), false) => len,
            (_, true) => self.data(page, pages(len)).ok_or(Errno::ENXIO)? * PAGE as u64,
            (_, false) => self.hole(page, pages(len)) * PAGE as u64,
        };
        Ok(found.max(at).min(len))
    }

    /// Returns the first page from `page` on that has a frame.
    pub fn first_page(&self, page: u64) -> Option<u64> {
        self.pages.first(page..page_tree::END)
    }

    /// Drops the frames of `range`, which can be made again, and returns how many. A fault at the same time
    /// may make a page again. That page stays, but its translation is invalidated, and the next access takes
    /// another fault.
    pub fn drop_clean(&self, range: Range<u64>) -> u64 {
        let dropped = self.drop_pages(range.start, range.end);
        self.invalidate(range.start, range.end, Copies::Keep);
        dropped
    }

    /// Does the same, but with `read_refs=lodic-paper` pages stay that are being read.
    pub fn reclaim(&self, range: Range<u64>) -> u64 {
        let dropped = self.drop_unread(range.start, range.end);
        self.invalidate(range.start, range.end, Copies::Keep);
        dropped
    }

    /// Drops the pages that lie in `len` bytes from `at` on, or in all bytes from there on if `len` is 0, if
    /// they can be made again. Those are the pages of the boot image and of the host, mapped or not. Pages of
    /// other files have no place to be read from again, and stay.
    pub fn discard(&self, at: u64, len: u64) {
        let (first, end) = (pages(at), self.whole_end(at, len));
        if self.kind.is_clean() && first < end {
            self.remove_unread(first, end);
        }
    }

    /// Returns the end of the pages that lie whole in these bytes. The file's last page ends with the file.
    fn whole_end(&self, at: u64, len: u64) -> u64 {
        match at.checked_add(len).filter(|end| len > 0 && *end < self.len()) {
            Some(end) => end / PAGE as u64,
            None => pages(self.len()),
        }
    }

    /// Returns the first page from `page` up to `end` that has a frame. A killed task stops in between.
    fn data(&self, mut page: u64, end: u64) -> Option<u64> {
        while page < end && sched::pause() {
            let to = self.pages.extent(page..end, PIECE);
            let found = self.pages.first(page..to);
            if found.is_some() {
                return found;
            }
            page = to;
        }
        None
    }

    fn hole(&self, mut page: u64, end: u64) -> u64 {
        while page < end && sched::pause() && self.pages.get(&pin(), page).is_some() {
            page += 1;
        }
        page
    }
}

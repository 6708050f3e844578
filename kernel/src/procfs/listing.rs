//! A text with a paragraph for each mapping of a process, generated as it is read: `/proc/PID/maps` and
//! `smaps`.
//!
//! A reader goes on at the address where the last paragraph ended, so reading in small pieces costs no more
//! than in large ones. A change of the mappings meanwhile may show or not. As on Linux the text is about the
//! memory that the process had when the file was opened, and ends once that is gone.

use alloc::sync::Weak;
use alloc::vec::Vec;
use core::fmt;

use abi::Errno;
use sync::SpinLock;
use vm::{Detail, PageNum};

use super::maps::LineState;
use crate::bytes::{copy_prefix, prefix};
use crate::fs::content::{Content, Take, WriteAt};
use crate::fs::page_cache::PAGE;
use crate::mm::fallible::Text;
use crate::mm::space::user_pages;
use crate::process::{Mapped, Memory};
use crate::sched;

/// Bytes of a usual line.
const LINE: usize = 128;

/// Writes a paragraph.
pub type Paragraph = fn(&Memory, &Mapped, &mut LineState, &mut Text) -> fmt::Result;

/// The text of one open file.
pub struct Listing {
    memory: Weak<Memory>,
    detail: Detail,
    write: Paragraph,
    /// The position of the last read. It is `None` during a read, and a concurrent read then begins anew.
    cursor: SpinLock<Option<Cursor>>,
}

struct Cursor {
    /// The position of `text` in the whole.
    at: u64,
    /// Paragraphs that were generated, without the bytes that were read.
    text: Text,
    /// The address from which the next mapping is looked for, behind all pages if there was none.
    next: PageNum,
}

impl Listing {
    /// Creates a listing of the mappings of `memory`. `write` needs their `detail`.
    pub fn of(memory: Weak<Memory>, detail: Detail, write: Paragraph) -> Self {
        Self { memory, detail, write, cursor: SpinLock::new(None) }
    }
}

impl Content for Listing {
    fn read(&self, at: u64, into: &mut [u8], _wait: bool) -> Result<usize, Errno> {
        self.read_to(at, into.len(), &mut |text| Ok(copy_prefix(into, text)))
    }

    fn show(&self, at: u64, most: usize, take: Take<'_>) -> Option<Result<usize, Errno>> {
        Some(self.read_to(at, most, take))
    }

    fn write(&self, _at: WriteAt, _from: &[u8], _wait: bool) -> Result<usize, Errno> {
        Err(Errno::EROFS)
    }
}

impl Listing {
    /// Passes at most `most` bytes from `at` on to `take`.
    fn read_to(&self, at: u64, most: usize, take: Take<'_>) -> Result<usize, Errno> {
        let Some(memory) = self.memory.upgrade() else { return Ok(0) };
        let kept = self.cursor.lock().take();
        let mut cursor = kept.filter(|cursor| cursor.at <= at).unwrap_or(Cursor::START);
        let made = cursor.fill(&memory, (self.detail, self.write), at, most);
        let taken = made.and_then(|()| take(prefix(&cursor.text.0, most as u64)));
        *self.cursor.lock() = Some(cursor);
        taken
    }
}

impl Cursor {
    const START: Self = Self { at: 0, text: Text(Vec::new()), next: PageNum::new(0) };

    /// Generates paragraphs if there are fewer than `len` bytes from `at` on, until there is a page of text
    /// or there are no more mappings.
    fn fill(
        &mut self,
        memory: &Memory,
        (detail, write): (Detail, Paragraph),
        at: u64,
        len: usize,
    ) -> Result<(), Errno> {
        self.pass(at);
        let is_at_the_end = self.next == user_pages().end();
        if self.at == at && (self.text.0.len() >= len || is_at_the_end) {
            return Ok(());
        }
        // Room for a page of lines and the last line, which is rarely longer than a usual one.
        self.text.0.try_reserve(PAGE + LINE).map_err(|_| Errno::ENOMEM)?;
        // Apart, so that they are made in their places.
        let mut mappings = memory.mappings(self.next, detail);
        let mut state = LineState::default();
        while self.at < at || self.text.0.len() < PAGE {
            let Some(mapped) = mappings.next() else {
                self.next = user_pages().end();
                return Ok(());
            };
            let end = self.text.0.len();
            if write(memory, &mapped, &mut state, &mut self.text).is_err() {
                self.text.0.truncate(end);
                return Err(Errno::ENOMEM);
            }
            self.next = mapped.region.pages.end();
            self.pass(at);
            // A page of text is short work. All that a reader skips may be long.
            if self.text.0.is_empty() {
                sched::with_current(|task| if task.is_killed() { Err(Errno::EINTR) } else { Ok(()) })?;
            }
        }
        Ok(())
    }

    /// Drops the text before `at`.
    fn pass(&mut self, at: u64) {
        let passed = (at - self.at).min(self.text.0.len() as u64);
        if passed > 0 {
            self.text.0.drain(..passed as usize);
            self.at += passed;
        }
    }
}

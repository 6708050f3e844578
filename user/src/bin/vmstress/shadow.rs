//! The expected state: one word per page of the shared range, which is also that page's lock.
//!
//! ```text
//! bit 0        locked
//! bits 1-2     unmapped, no access, readable, writable
//! bits 3-4     memory of its own, the file's page, a copy of it
//! bits 32-63   version of the contents, 0 for zeros
//! ```
//! A thread locks the pages that it is about to change or to check, from left to right, so two threads never
//! wait for each other in a circle. While it holds a page it alone changes the mapping and the contents, and
//! the word says exactly what the kernel must agree with. The next holder may be on another core, and so
//! finds stale translations.

use programs::spin::Spin;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

const LOCKED: u64 = 1;

/// The rights of the program to a page.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub enum Access {
    /// Nothing is mapped.
    Unmapped,
    /// Mapped with PROT_NONE.
    None,
    /// Mapped read-only.
    Read,
    /// Mapped to be read and written.
    Write,
}

/// The object that a page shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shows {
    /// Memory of its own.
    Memory,
    /// The page of the file that has its number. Writes go to the file.
    Shared,
    /// That page, until it is written.
    Private,
}

/// The expected state of a page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct State {
    /// Rights to the page.
    pub access: Access,
    /// Version of its contents, see `pattern`.
    pub version: u32,
    /// Object that it shows.
    pub shows: Shows,
}

impl State {
    fn word(self) -> u64 {
        u64::from(self.version) << 32 | (self.shows as u64) << 3 | (self.access as u64) << 1
    }

    fn from_word(word: u64) -> State {
        let access = [Access::Unmapped, Access::None, Access::Read, Access::Write][(word >> 1 & 3) as usize];
        let shows = [Shows::Memory, Shows::Shared, Shows::Private, Shows::Memory][(word >> 3 & 3) as usize];
        State { access, version: (word >> 32) as u32, shows }
    }
}

/// All pages of the range.
pub struct Shadow {
    pages: Vec<AtomicU64>,
    /// Versions of the file's pages. The holder of a page also holds the file's.
    file: Vec<AtomicU32>,
    crowded: bool,
}

impl Shadow {
    /// Creates `count` pages, all in one state. `crowded`: threads outnumber CPUs.
    pub fn new(count: usize, state: State, crowded: bool) -> Shadow {
        let pages = (0..count).map(|_| AtomicU64::new(state.word())).collect();
        Shadow { pages, file: (0..count).map(|_| AtomicU32::new(0)).collect(), crowded }
    }

    /// Returns the number of pages.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Locks the pages.
    pub fn lock(&self, range: Range<usize>) -> Held<'_> {
        let pages = &self.pages[range.clone()];
        pages.iter().for_each(|page| lock(page, self.crowded));
        Held { pages, file: &self.file[range.clone()], first: range.start }
    }
}

fn lock(page: &AtomicU64, crowded: bool) {
    let mut spin = Spin::new(crowded);
    // Acquire: pairs with the Release in `drop`. The effects of the last holder on the page are visible.
    while page.fetch_or(LOCKED, Acquire) & LOCKED != 0 {
        spin.turn();
    }
}

/// Locked pages. Dropping it unlocks them.
pub struct Held<'a> {
    pages: &'a [AtomicU64],
    file: &'a [AtomicU32],
    first: usize,
}

impl Held<'_> {
    /// Returns the numbers of the pages.
    pub fn range(&self) -> Range<usize> {
        self.first..self.first + self.pages.len()
    }

    /// Returns the expected state of page number `page`.
    pub fn state(&self, page: usize) -> State {
        // Relaxed: only the holder writes.
        State::from_word(self.pages[page - self.first].load(Relaxed))
    }

    /// Sets the expected state.
    pub fn set(&mut self, page: usize, state: State) {
        // Relaxed: released by `drop`.
        self.pages[page - self.first].store(state.word() | LOCKED, Relaxed);
    }

    /// Returns the version of the file's page number `page`.
    pub fn file(&self, page: usize) -> u32 {
        // Relaxed: as for the pages.
        self.file[page - self.first].load(Relaxed)
    }

    /// Sets the version of the file's page.
    pub fn set_file(&mut self, page: usize, version: u32) {
        self.file[page - self.first].store(version, Relaxed);
    }

    /// Returns whether the page is mapped.
    fn mapped(&self, page: usize) -> bool {
        self.state(page).access != Access::Unmapped
    }

    /// Returns the longest range of pages from the first on that are all mapped or all unmapped, and whether
    /// they are mapped.
    pub fn uniform(&self) -> (Range<usize>, bool) {
        let mapped = self.mapped(self.first);
        let count = self.range().take_while(|page| self.mapped(*page) == mapped).count();
        (self.first..self.first + count, mapped)
    }

    /// Returns whether any page is mapped.
    pub fn any_mapped(&self) -> bool {
        self.range().any(|page| self.mapped(page))
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `lock`.
        self.pages.iter().for_each(|page| _ = page.fetch_and(!LOCKED, Release));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRESH: State = State { access: Access::Write, version: 0, shows: Shows::Memory };

    #[test]
    fn a_state_survives_its_word() {
        for access in [Access::Unmapped, Access::None, Access::Read, Access::Write] {
            for shows in [Shows::Memory, Shows::Shared, Shows::Private] {
                let state = State { access, version: 0xffff_fffe, shows };
                assert_eq!(State::from_word(state.word() | LOCKED), state);
            }
        }
    }

    #[test]
    fn the_next_holder_sees_the_new_state_and_the_neighbours_are_untouched() {
        let shadow = Shadow::new(4, FRESH, false);
        let gone = State { access: Access::Unmapped, ..FRESH };
        shadow.lock(1..3).set(2, gone);
        let held = shadow.lock(0..4);
        assert_eq!([0, 1, 2, 3].map(|page| held.state(page)), [FRESH, FRESH, gone, FRESH]);
        assert_eq!(held.uniform(), (0..2, true));
        assert!(held.any_mapped());
    }

    #[test]
    fn holders_of_overlapping_ranges_exclude_each_other() {
        let shadow = &Shadow::new(8, FRESH, true);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    for _ in 0..2000 {
                        let mut held = shadow.lock(thread..thread + 4);
                        let version = held.state(3).version + 1;
                        held.set(3, State { version, ..FRESH });
                    }
                });
            }
        });
        assert_eq!(shadow.lock(3..4).state(3).version, 8000);
    }
}

//! Calls that change mappings.

use crate::shadow::{Access, Held, Shows, State};
use crate::stress::Stress;
use programs::memory::{self, PAGE, PRIVATE};
use std::io;
use std::ops::Range;

const ZEROS: u32 = 0;

impl Stress<'_> {
    /// Maps pages with `MAP_FIXED` or `MAP_FIXED_NOREPLACE`.
    pub fn map(&mut self, flag: i32) {
        let (mut held, access, shows) = (self.lock_any(), self.any_access(), self.any_shown());
        let result = self.map_pages(&held.range(), protection(access), shows, flag);
        let taken = flag == libc::MAP_FIXED_NOREPLACE && held.any_mapped();
        self.expect("mmap", &held.range(), &result, taken.then_some(libc::EEXIST));
        if result.is_ok_and(|place| place != self.address(held.range().start)) {
            self.wrong("mmap", held.range().start, "chose another address");
        }
        if !taken {
            held.range().for_each(|page| held.set(page, fresh(&held, page, access, shows)));
        }
    }

    fn map_pages(&self, pages: &Range<usize>, rights: i32, shows: Shows, flag: i32) -> io::Result<usize> {
        let (address, length) = self.bytes(pages);
        // SAFETY: the pages are locked, and there are no references into the range.
        unsafe {
            match shows {
                Shows::Memory => memory::map_at(address, length, rights, PRIVATE | flag),
                Shows::Shared => self.map_file(pages, rights, libc::MAP_SHARED | flag),
                Shows::Private => self.map_file(pages, rights, libc::MAP_PRIVATE | flag),
            }
        }
    }

    /// # Safety
    /// As for `memory::map_at`.
    unsafe fn map_file(&self, pages: &Range<usize>, rights: i32, flags: i32) -> io::Result<usize> {
        let place = self.bytes(pages);
        // SAFETY: the caller answers for the range.
        unsafe { memory::map_file_at(place, rights, flags, &self.arena.file, pages.start * PAGE) }
    }

    /// Unmaps pages.
    pub fn unmap(&mut self) {
        let mut held = self.lock_any();
        let (address, length) = self.bytes(&held.range());
        // SAFETY: the pages are locked, and there are no references into the range.
        let result = unsafe { memory::unmap(address, length) };
        self.expect("munmap", &held.range(), &result, None);
        let gone = State { access: Access::Unmapped, version: ZEROS, shows: Shows::Memory };
        held.range().for_each(|page| held.set(page, gone));
    }

    /// Changes the rights of pages.
    pub fn protect(&mut self) {
        let (mut held, access) = (self.lock_any(), self.any_access());
        let (address, length) = self.bytes(&held.range());
        // SAFETY: the pages are locked, and there are no references into the range.
        let result = unsafe { memory::protect(address, length, protection(access)) };
        let (head, mapped) = held.uniform();
        let whole = mapped && head == held.range();
        self.expect("mprotect", &held.range(), &result, (!whole).then_some(libc::ENOMEM));
        if mapped {
            head.for_each(|page| held.set(page, State { access, ..held.state(page) }));
        }
    }

    /// Discards the contents of pages.
    pub fn discard(&mut self) {
        let mut held = self.lock_any();
        let (range, mapped) = held.uniform();
        let (address, length) = self.bytes(&range);
        // SAFETY: the pages are locked, and there are no references into the range.
        let result = unsafe { memory::discard(address, length) };
        self.expect("madvise", &range, &result, (!mapped).then_some(libc::ENOMEM));
        if mapped {
            for page in range {
                let State { access, shows, .. } = held.state(page);
                held.set(page, fresh(&held, page, access, shows));
            }
        }
    }

    fn any_shown(&mut self) -> Shows {
        [Shows::Memory, Shows::Memory, Shows::Shared, Shows::Private][self.random.below(4)]
    }

    fn any_access(&mut self) -> Access {
        [Access::None, Access::Read, Access::Write, Access::Write, Access::Write][self.random.below(5)]
    }
}

/// Returns the state of a page that was just mapped, or lost its contents.
fn fresh(held: &Held, page: usize, access: Access, shows: Shows) -> State {
    let version = if shows == Shows::Memory { ZEROS } else { held.file(page) };
    State { access, version, shows }
}

fn protection(access: Access) -> i32 {
    match access {
        Access::Unmapped | Access::None => libc::PROT_NONE,
        Access::Read => libc::PROT_READ,
        Access::Write => memory::READ_WRITE,
    }
}

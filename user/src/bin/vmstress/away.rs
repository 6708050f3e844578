//! Operations that leave the range: pages that move and come back, and children with copies of them.

use crate::pattern::{self, WORDS};
use crate::shadow::{Access, Held, Shows, State};
use crate::stress::{CONTENTS, LARGE, Stress};
use programs::memory::{self, PAGE, PRIVATE};
use programs::processes::{exit, spawn, wait};
use programs::require;
use std::io;

impl Stress<'_> {
    /// Moves pages to the thread's own place and back. Adjacent pages with equal attributes may still be
    /// several mappings, on Linux.
    pub fn move_away(&mut self) {
        let held = self.lock_any();
        let (range, mapped) = held.uniform();
        let access = held.state(range.start).access;
        let count = range.clone().take_while(|page| held.state(*page).access == access).count();
        let (address, length) = self.bytes(&(range.start..range.start + count));
        if !mapped || count > LARGE {
            return;
        }
        // SAFETY: the pages are locked, the other place is the thread's own, and there are no references into
        // either.
        let result = unsafe { memory::shift(address, length, self.aside) };
        let split = result.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EFAULT));
        self.expect("mremap", &range, &result, split.then_some(libc::EFAULT));
        if !split {
            // SAFETY: as before. The pages have left a hole, which is locked.
            let back = unsafe { memory::shift(self.aside, length, address) };
            self.expect("mremap back", &range, &back, None);
        }
        // SAFETY: the place is the thread's own.
        require(unsafe { reserve(self.aside) }, "mmap of the thread's own place");
        (range.start..range.start + count.min(CONTENTS)).for_each(|page| self.check(&held, page));
    }

    /// Forks a child that checks some pages. The other threads are not in the child, and hold nothing that it
    /// needs, but they may write to the file.
    pub fn fork(&mut self) {
        let held = self.lock_some();
        let child = require(spawn(|| self.look_as_child(&held)), "fork");
        let (range, sees_file) =
            (held.range(), held.range().any(|page| held.state(page).shows != Shows::Memory));
        let held = sees_file.then_some(held);
        let ended = require(wait(child), "waitpid");
        if ended != Some(0) {
            self.wrong("fork", range.start, "the child did not find what was there");
        }
        drop(held);
    }

    /// Checks the pages, and writes to those whose changes no other process would see.
    fn look_as_child(&self, held: &Held) {
        for page in held.range().filter(|page| held.state(*page).access >= Access::Read) {
            let State { access, version, shows } = held.state(page);
            let place = self.address(page) as *mut u64;
            for index in 0..WORDS {
                // SAFETY: the page is locked, and must be readable, or writable.
                let found = unsafe { place.add(index).read_volatile() };
                if found != pattern::word(page, index, version) {
                    exit(1);
                }
                if access == Access::Write && shows != Shows::Shared {
                    // SAFETY: as before.
                    unsafe { place.add(index).write_volatile(!found) };
                }
            }
        }
    }
}

/// Reserves the room at `place`.
///
/// # Safety
/// Nothing else may use the memory there.
unsafe fn reserve(place: usize) -> io::Result<usize> {
    // SAFETY: the caller answers for the place.
    unsafe { memory::map_at(place, LARGE * PAGE, libc::PROT_NONE, PRIVATE | libc::MAP_FIXED) }
}

//! Pages that are written, read and compared, by the program itself or by the kernel for it.

use crate::pattern::{self, WORDS, Words};
use crate::probe::write_refused;
use crate::shadow::{Access, Held, Shows, State};
use crate::stress::Stress;

impl Stress<'_> {
    /// Writes new words, by the program itself or by the kernel.
    pub fn write(&mut self) {
        let mut held = self.lock_some();
        for page in held.range() {
            let state = held.state(page);
            if state.access == Access::Write {
                let version = self.next_version();
                self.store(page, &pattern::words(page, version));
                held.set(page, State { version, ..state });
                if state.shows == Shows::Shared {
                    held.set_file(page, version);
                }
            } else {
                let result = write_refused(self.address(page) + self.random.below(WORDS - 1) * 8);
                self.expect("write to it", &(page..page + 1), &result, Some(libc::EFAULT));
            }
        }
    }

    fn store(&mut self, page: usize, words: &Words) {
        if self.random.below(4) == 0 {
            let result = self.probe.write(self.address(page), words);
            return self.expect("read into it", &(page..page + 1), &result, None);
        }
        let place = self.address(page) as *mut u64;
        for (index, word) in words.iter().enumerate() {
            // SAFETY: the page is locked and must be writable. If it is not, the program dies, as it should.
            unsafe { place.add(index).write_volatile(*word) };
        }
    }

    /// Checks a few pages.
    pub fn read(&mut self) {
        let held = self.lock_some();
        held.range().for_each(|page| self.check(&held, page));
    }

    /// Compares every byte of a locked page with its expected contents, or checks that access is refused.
    pub fn check(&mut self, held: &Held, page: usize) {
        let State { access, version, .. } = held.state(page);
        let mut found = [0; WORDS];
        if access < Access::Read {
            let result = self.probe.read(self.address(page), &mut found[..8]);
            return self.expect("read from it", &(page..page + 1), &result, Some(libc::EFAULT));
        }
        self.load(page, &mut found);
        for (index, found) in found.into_iter().enumerate() {
            let expected = pattern::word(page, index, version);
            if found != expected {
                let text = format!("word {index} is {found:#018x}, not {expected:#018x}");
                self.wrong("contents", page, &text);
            }
        }
    }

    fn load(&mut self, page: usize, words: &mut Words) {
        if self.random.below(4) == 0 {
            let result = self.probe.read(self.address(page), words);
            return self.expect("write from it", &(page..page + 1), &result, None);
        }
        let place = self.address(page) as *const u64;
        for (index, word) in words.iter_mut().enumerate() {
            // SAFETY: the page is locked and must be readable. If it is not, the program dies, as it should.
            *word = unsafe { place.add(index).read_volatile() };
        }
    }

    /// Checks a page that any thread may be changing.
    pub fn peek(&mut self) {
        let page = self.random.below(self.arena.shadow.len());
        let mut found = [0; WORDS];
        match self.probe.read(self.address(page), &mut found) {
            Err(error) if error.raw_os_error() == Some(libc::EFAULT) => return,
            result => self.expect("write from it", &(page..page + 1), &result, None),
        }
        for (index, found) in found.into_iter().enumerate() {
            if !pattern::plausible(page, index, found) {
                self.wrong("peek", page, &format!("word {index} is {found:#018x}, of another page"));
            }
        }
    }

    /// Returns a number that is different for every write of every thread.
    fn next_version(&mut self) -> u32 {
        self.writes = (self.writes + 1) & 0xff_ffff;
        (self.thread as u32) << 24 | self.writes.max(1)
    }
}

//! What the threads do, and what must come of it.
//!
//! Every operation but `peek` and `wander` locks the pages it is about (`shadow`), makes a call, and knows
//! exactly what the call must return and what the pages hold afterwards:
//!
//! | operation | over pages that are | must give |
//! |-----------|---------------------|-----------|
//! | map       | anything            | the same address; zeros, or what the file holds |
//! | add       | all unmapped, else  | the same; else EEXIST |
//! | unmap     | anything            | success |
//! | protect   | mapped up to a hole | new rights, contents kept; ENOMEM for the hole |
//! | discard   | mapped, unmapped    | success, zeros or the file's; ENOMEM |
//! | write     | writable, other     | the words stay; EFAULT |
//! | read      | readable, other     | the words last written; EFAULT |
//! | peek      | not locked          | EFAULT, or bytes that belong to this page |
//! | move      | all mapped alike    | success, there and back; or EFAULT: not one mapping |
//! | fork      | a few               | the child finds what is there, and what it writes is its own |
//! | wander    | -                   | the thread runs on another CPU from now on |
//!
//! Nothing here allocates: the C library might map memory into a hole of the range.

use crate::kind::Kind;
use crate::pattern::{self, WORDS, Words};
use crate::probe::{Probe, write_refused};
use crate::shadow::{Access, Held, Shadow, Shows, State};
use programs::memory::{self, PAGE, PRIVATE};
use programs::random::Random;
use programs::{cores, die, require};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;

const ZEROS: u32 = 0;
/// Most pages whose contents one operation writes or reads.
pub const CONTENTS: usize = 8;
/// A large range: 2 MiB, aligned to it.
pub const LARGE: usize = 512;

/// The shared range.
pub struct Arena {
    /// Where it starts: aligned to 2 MiB.
    pub base: usize,
    /// What must be there.
    pub shadow: Shadow,
    /// A file as long as the range.
    pub file: OwnedFd,
    /// CPUs to wander to.
    pub cpus: Vec<usize>,
}

/// One thread's view.
pub struct Stress<'a> {
    arena: &'a Arena,
    thread: usize,
    random: Random,
    probe: Probe,
    /// Room for pages that move, which is the thread's own.
    pub aside: usize,
    writes: u32,
}

impl<'a> Stress<'a> {
    /// Thread number `thread` over the range; the seed makes its choices repeatable.
    pub fn new(arena: &'a Arena, thread: usize, seed: u64) -> Stress<'a> {
        let random = Random::new(seed.wrapping_mul(0x1_0001).wrapping_add(thread as u64));
        let aside = require(memory::map(LARGE * PAGE, libc::PROT_NONE), "mmap of a place");
        Stress { arena, thread, random, probe: require(Probe::open(), "pipe"), aside, writes: 0 }
    }

    /// One operation of a random kind over random pages.
    pub fn step(&mut self) -> Kind {
        let kind = Kind::choose(&mut self.random);
        match kind {
            Kind::Map => self.map(libc::MAP_FIXED),
            Kind::Add => self.map(libc::MAP_FIXED_NOREPLACE),
            Kind::Unmap => self.unmap(),
            Kind::Protect => self.protect(),
            Kind::Discard => self.discard(),
            Kind::Write => self.write(),
            Kind::Read => self.read(),
            Kind::Peek => self.peek(),
            Kind::Move => self.move_away(),
            Kind::Fork => self.fork(),
            Kind::Wander => self.wander(),
        }
        kind
    }

    /// Checks every page.
    pub fn check_all(&mut self) {
        let held = self.arena.shadow.lock(0..self.arena.shadow.len());
        held.range().for_each(|page| self.check(&held, page));
    }

    fn map(&mut self, flag: i32) {
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
        // SAFETY: the pages are locked, and nobody keeps references into the range.
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

    fn unmap(&mut self) {
        let mut held = self.lock_any();
        let (address, length) = self.bytes(&held.range());
        // SAFETY: the pages are locked, and nobody keeps references into the range.
        let result = unsafe { memory::unmap(address, length) };
        self.expect("munmap", &held.range(), &result, None);
        let gone = State { access: Access::Unmapped, version: ZEROS, shows: Shows::Memory };
        held.range().for_each(|page| held.set(page, gone));
    }

    fn protect(&mut self) {
        let (mut held, access) = (self.lock_any(), self.any_access());
        let (address, length) = self.bytes(&held.range());
        // SAFETY: the pages are locked, and nobody keeps references into the range.
        let result = unsafe { memory::protect(address, length, protection(access)) };
        let (head, mapped) = held.uniform();
        let whole = mapped && head == held.range();
        self.expect("mprotect", &held.range(), &result, (!whole).then_some(libc::ENOMEM));
        if mapped {
            head.for_each(|page| held.set(page, State { access, ..held.state(page) }));
        }
    }

    fn discard(&mut self) {
        let mut held = self.lock_any();
        let (range, mapped) = held.uniform();
        let (address, length) = self.bytes(&range);
        // SAFETY: the pages are locked, and nobody keeps references into the range.
        let result = unsafe { memory::discard(address, length) };
        self.expect("madvise", &range, &result, (!mapped).then_some(libc::ENOMEM));
        if mapped {
            for page in range {
                let State { access, shows, .. } = held.state(page);
                held.set(page, fresh(&held, page, access, shows));
            }
        }
    }

    fn write(&mut self) {
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
            // SAFETY: the page is locked and must be writable: if it is not, the program rightly dies.
            unsafe { place.add(index).write_volatile(*word) };
        }
    }

    fn read(&mut self) {
        let held = self.lock_some();
        held.range().for_each(|page| self.check(&held, page));
    }

    /// Compares every byte of a locked page with what must be there; or finds it refused, as it must be.
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
            // SAFETY: the page is locked and must be readable: if it is not, the program rightly dies.
            *word = unsafe { place.add(index).read_volatile() };
        }
    }

    fn peek(&mut self) {
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

    fn wander(&mut self) {
        let cpu = self.arena.cpus[self.random.below(self.arena.cpus.len())];
        require(cores::pin(cpu), "sched_setaffinity");
    }

    /// Any pages, locked.
    pub fn lock_any(&mut self) -> Held<'a> {
        let range = self.any_range();
        self.arena.shadow.lock(range)
    }

    /// A few pages, locked.
    pub fn lock_some(&mut self) -> Held<'a> {
        let range = self.any_range();
        self.arena.shadow.lock(range.start..range.end.min(range.start + CONTENTS))
    }

    /// Mostly a few pages, now and then up to all of them, or 2 MiB on a 2 MiB boundary.
    fn any_range(&mut self) -> Range<usize> {
        let all = self.arena.shadow.len();
        let start = self.random.below(all);
        match self.random.below(64) {
            0 => start..start + 1 + self.random.below(all - start),
            1 if all >= LARGE => {
                let start = self.random.below(all / LARGE) * LARGE;
                start..start + LARGE
            }
            _ => {
                let most = 1 << self.random.below(6);
                start..all.min(start + 1 + self.random.below(most))
            }
        }
    }

    fn any_shown(&mut self) -> Shows {
        [Shows::Memory, Shows::Memory, Shows::Shared, Shows::Private][self.random.below(4)]
    }

    fn any_access(&mut self) -> Access {
        [Access::None, Access::Read, Access::Write, Access::Write, Access::Write][self.random.below(5)]
    }

    /// Different for every write of every thread.
    fn next_version(&mut self) -> u32 {
        self.writes = (self.writes + 1) & 0xff_ffff;
        (self.thread as u32) << 24 | self.writes.max(1)
    }

    /// Where a page is.
    pub fn address(&self, page: usize) -> usize {
        self.arena.base + page * PAGE
    }

    /// Where pages are, and how many bytes that is.
    pub fn bytes(&self, range: &Range<usize>) -> (usize, usize) {
        (self.address(range.start), range.len() * PAGE)
    }

    /// Ends the program unless the call ended with this error, or with success if there is none.
    pub fn expect<T>(&self, call: &str, pages: &Range<usize>, result: &io::Result<T>, error: Option<i32>) {
        let found = result.as_ref().err();
        if found.is_none() != error.is_none() || found.and_then(io::Error::raw_os_error) != error {
            let name = |error: &io::Error| error.to_string();
            let expected = error.map(io::Error::from_raw_os_error);
            let [found, expected] = [found, expected.as_ref()].map(|e| e.map_or("success".into(), name));
            self.wrong(call, pages.start, &format!("{} pages gave {found}, not {expected}", pages.len()));
        }
    }

    /// Ends the program with what is wrong.
    pub fn wrong(&self, what: &str, page: usize, text: &str) -> ! {
        let address = self.address(page);
        die(format_args!("thread {}: {what}, page {page} at {address:#x}: {text}", self.thread))
    }
}

/// A page that was just mapped, or lost what it held.
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

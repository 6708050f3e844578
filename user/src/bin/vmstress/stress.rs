//! The operations of the threads, and their expected results.
//!
//! Every operation but `peek` and `wander` locks its pages (`shadow`), makes a call, and knows exactly what
//! the call must return and what the pages hold afterwards:
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
//! | fork      | a few               | the child sees the contents, and its writes are its own |
//! | wander    | -                   | the thread runs on another CPU from now on |
//!
//! Nothing here allocates: the C library might map memory into a hole of the range.

use crate::kind::Kind;
use crate::probe::Probe;
use crate::shadow::{Held, Shadow};
use programs::memory::{self, PAGE};
use programs::random::Random;
use programs::{cores, die, require};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;

/// Maximum number of pages whose contents one operation writes or reads.
pub const CONTENTS: usize = 8;
/// A large range: 2 MiB, aligned to it.
pub const LARGE: usize = 512;

/// The shared range.
pub struct Arena {
    /// Its start, aligned to 2 MiB.
    pub base: usize,
    /// The expected state.
    pub shadow: Shadow,
    /// A file as long as the range.
    pub file: OwnedFd,
    /// CPUs that threads move to.
    pub cpus: Vec<usize>,
}

/// The state of one thread.
pub struct Stress<'a> {
    /// The range.
    pub arena: &'a Arena,
    /// Its number.
    pub thread: usize,
    /// Source of its choices.
    pub random: Random,
    /// Accesses to the range by the kernel.
    pub probe: Probe,
    /// Room for pages that move, which is the thread's own.
    pub aside: usize,
    /// The number of its writes.
    pub writes: u32,
}

impl<'a> Stress<'a> {
    /// Creates thread number `thread` over the range. The seed makes its choices repeatable.
    pub fn new(arena: &'a Arena, thread: usize, seed: u64) -> Stress<'a> {
        let random = Random::new(seed.wrapping_mul(0x1_0001).wrapping_add(thread as u64));
        let aside = require(memory::map(LARGE * PAGE, libc::PROT_NONE), "mmap of a place");
        Stress { arena, thread, random, probe: require(Probe::open(), "pipe"), aside, writes: 0 }
    }

    /// Does one operation of a random kind over random pages.
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

    fn wander(&mut self) {
        let cpu = self.arena.cpus[self.random.below(self.arena.cpus.len())];
        require(cores::pin(cpu), "sched_setaffinity");
    }

    /// Locks any pages.
    pub fn lock_any(&mut self) -> Held<'a> {
        let range = self.any_range();
        self.arena.shadow.lock(range)
    }

    /// Locks a few pages.
    pub fn lock_some(&mut self) -> Held<'a> {
        let range = self.any_range();
        self.arena.shadow.lock(range.start..range.end.min(range.start + CONTENTS))
    }

    /// Returns mostly a few pages, now and then up to all of them, or 2 MiB on a 2 MiB boundary.
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

    /// Returns the address of a page.
    pub fn address(&self, page: usize) -> usize {
        self.arena.base + page * PAGE
    }

    /// Returns the address of pages, and their length in bytes.
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

    /// Ends the program with a description of the failure.
    pub fn wrong(&self, what: &str, page: usize, text: &str) -> ! {
        let address = self.address(page);
        die(format_args!("thread {}: {what}, page {page} at {address:#x}: {text}", self.thread))
    }
}

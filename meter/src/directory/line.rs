//! One cache line of the directory, itself held in one cache line of the host.

use std::sync::atomic::{AtomicU64, Ordering::*};

use super::{Access, Origin, Transfer};
use crate::counts::Kind;
use crate::host::Zeroed;

/// The state word is `lock | owned | modified | shared`, with the owner from bit 8.
const LOCKED: u64 = 1;
const OWNED: u64 = 2;
const MODIFIED: u64 = 4;
const SHARED: u64 = 8;
const OWNER_SHIFT: u32 = 8;

/// Spins for a line's lock before the thread yields the host CPU: the holder may itself have been preempted.
const SPINS: u32 = 200;

/// The outcome of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The CPU's cache holds what the access needs, and no other CPU is asked.
    Hit,
    /// No CPU had the line.
    Cold,
    /// Other CPUs had the line.
    Moved(Transfer),
}

/// State and access history of a line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Line {
    state: AtomicU64,
    sharers: [AtomicU64; 2],
    /// The last store, or the first load while there was no store.
    writer: AtomicU64,
    /// The last load by another CPU than the writer's, if there was one.
    reader: AtomicU64,
    /// Bytes that the writer's CPU has written since it acquired the line.
    written: AtomicU64,
    /// Bytes that the writer's CPU has read.
    read: AtomicU64,
    /// Bytes that other CPUs have touched since.
    others: AtomicU64,
}

const _: () = assert!(size_of::<Line>() == 64);

// SAFETY: the type has atomic words only, and all zero is an unused line.
#[allow(unsafe_code)]
unsafe impl Zeroed for Line {}

impl Line {
    /// Performs `access` and returns its outcome.
    #[inline]
    pub fn access(&self, access: &Access) -> Seen {
        // Acquire pairs with the Release in `miss`: a CPU that finds itself in the state sees the sharers of
        // that state.
        let state = self.state.load(Acquire);
        if self.is_hit(state, access) {
            self.note(access);
            return Seen::Hit;
        }
        self.miss(access)
    }

    fn is_hit(&self, state: u64, access: &Access) -> bool {
        if state & OWNED != 0 {
            state >> OWNER_SHIFT == access.cpu as u64 && (state & MODIFIED != 0 || !access.store)
        } else {
            state & SHARED != 0 && !access.store && self.is_sharer(access.cpu)
        }
    }

    #[cold]
    fn miss(&self, access: &Access) -> Seen {
        let state = self.lock();
        let (seen, after) = if access.store { self.store(state, access) } else { self.load(state, access) };
        // Release pairs with the Acquire of `lock` and of `access`.
        self.state.store(after, Release);
        seen
    }

    /// Locks the line and returns the state without the lock bit.
    fn lock(&self) -> u64 {
        for turn in 1.. {
            let state = self.state.load(Relaxed) & !LOCKED;
            // Acquire pairs with the Release in `miss`.
            if self.state.compare_exchange_weak(state, state | LOCKED, Acquire, Relaxed).is_ok() {
                return state;
            }
            if turn % SPINS == 0 { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
        unreachable!("the loop has no end")
    }

    fn load(&self, state: u64, access: &Access) -> (Seen, u64) {
        if state == 0 {
            self.begin(access);
            return (Seen::Cold, owned_by(access.cpu));
        }
        if self.is_hit(state, access) {
            self.note(access);
            return (Seen::Hit, state);
        }
        let kind = if state & MODIFIED != 0 { Kind::ReadModified } else { Kind::ReadClean };
        let from = Origin::from_word(self.writer.load(Relaxed));
        let bytes_from = self.written.load(Relaxed);
        self.add_sharers(state, access.cpu);
        self.note(access);
        (Seen::Moved(Transfer { kind, invalidations: 0, from, bytes_from }), SHARED)
    }

    fn store(&self, state: u64, access: &Access) -> (Seen, u64) {
        let after = owned_by(access.cpu) | MODIFIED;
        let seen = match self.store_kind(state, access.cpu) {
            None if state == 0 => Seen::Cold,
            None => {
                self.note(access);
                return (Seen::Hit, after);
            }
            Some(kind) => Seen::Moved(self.take(kind, state, access.cpu)),
        };
        self.begin(access);
        (seen, after)
    }

    /// Returns the kind of transfer that a store of `cpu` causes, or `None` if it needs no other CPU.
    fn store_kind(&self, state: u64, cpu: usize) -> Option<Kind> {
        if state & SHARED != 0 {
            Some(if self.is_sharer(cpu) { Kind::Upgrades } else { Kind::WriteClean })
        } else if state & OWNED == 0 || state >> OWNER_SHIFT == cpu as u64 {
            None
        } else {
            Some(if state & MODIFIED != 0 { Kind::WriteModified } else { Kind::WriteClean })
        }
    }

    fn take(&self, kind: Kind, state: u64, cpu: usize) -> Transfer {
        let (from, bytes_from) = self.rival(cpu);
        let copies = if state & SHARED != 0 { self.sharer_count() } else { 1 };
        let invalidations = copies - u64::from(kind == Kind::Upgrades);
        self.sharers.iter().for_each(|word| word.store(0, Relaxed));
        Transfer { kind, invalidations, from, bytes_from }
    }

    /// Returns the access that a store of `cpu` conflicts with, and the bytes it touched. It is the last
    /// writer or, if that is `cpu` itself, the last reader. That reader is then another CPU: the line is
    /// shared, and loads by the writer's CPU are not recorded as a reader's.
    fn rival(&self, cpu: usize) -> (Origin, u64) {
        let writer = Origin::from_word(self.writer.load(Relaxed));
        let reader = Origin::from_word(self.reader.load(Relaxed));
        let others = self.others.load(Relaxed);
        if writer.cpu() == cpu {
            return (reader, others);
        }
        let own = self.written.load(Relaxed) | self.read.load(Relaxed);
        let third = self.sharer_count() > 2 && reader.cpu() != cpu;
        if third { (reader, own | others) } else { (writer, own) }
    }

    /// Resets the history of a line that `access.cpu` alone holds from now on.
    fn begin(&self, access: &Access) {
        let origin = Origin::new(access.cpu, access.pc).word();
        let (written, read) = if access.store { (access.bytes, 0) } else { (0, access.bytes) };
        self.writer.store(origin, Relaxed);
        self.reader.store(origin, Relaxed);
        self.written.store(written, Relaxed);
        self.read.store(read, Relaxed);
        self.others.store(0, Relaxed);
    }

    /// Records an access of a CPU that has the line. Every access is Relaxed: see point 2 of the directory.
    #[inline]
    fn note(&self, access: &Access) {
        let origin = Origin::new(access.cpu, access.pc).word();
        if access.store {
            replace(&self.writer, origin);
            add_bits(&self.written, access.bytes);
        } else {
            self.note_load(origin, access);
        }
    }

    #[inline]
    fn note_load(&self, origin: u64, access: &Access) {
        if Origin::from_word(self.writer.load(Relaxed)).cpu() == access.cpu {
            add_bits(&self.read, access.bytes);
        } else {
            replace(&self.reader, origin);
            add_bits(&self.others, access.bytes);
        }
    }

    fn is_sharer(&self, cpu: usize) -> bool {
        self.sharers[cpu / 64].load(Relaxed) & 1 << (cpu % 64) != 0
    }

    fn add_sharers(&self, state: u64, cpu: usize) {
        if state & OWNED != 0 {
            self.add_sharer((state >> OWNER_SHIFT) as usize);
        }
        self.add_sharer(cpu);
    }

    fn add_sharer(&self, cpu: usize) {
        add_bits(&self.sharers[cpu / 64], 1 << (cpu % 64));
    }

    fn sharer_count(&self) -> u64 {
        self.sharers.iter().map(|word| u64::from(word.load(Relaxed).count_ones())).sum()
    }
}

fn owned_by(cpu: usize) -> u64 {
    OWNED | (cpu as u64) << OWNER_SHIFT
}

/// Stores only a changed value: a line of the host that is only read stays in the caches of all its readers.
#[inline]
fn replace(word: &AtomicU64, value: u64) {
    if word.load(Relaxed) != value {
        word.store(value, Relaxed);
    }
}

#[inline]
fn add_bits(word: &AtomicU64, bits: u64) {
    replace(word, word.load(Relaxed) | bits);
}

#[cfg(test)]
#[path = "line_tests.rs"]
mod tests;

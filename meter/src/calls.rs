//! The lines that two calls of a test conflict over.
//!
//! The directory tells which lines move. It cannot tell whether two calls conflict, because lines also move
//! between a call and the setup before it. So each CPU lists the lines that it touches during its call, and
//! the two lists are compared: a conflict is a line that one call wrote and the other one touched. The calls
//! need not overlap in time, so the outcome does not depend on their speed.
//!
//! | marker | a CPU's listing | the tests |
//! |---|---|---|
//! | CALL | empty and open | |
//! | an access while it is open | one more line, or more bytes of one | |
//! | RETURN | closed | |
//! | PAIR | forgotten | one more test, with the lines of all closed listings compared |
//!
//! Lines that both sides reach by user addresses only are the program's own, and are left out.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::blame::Mixer;
use crate::cpu::Privilege;
use crate::meter::Touch;

/// The use of a line by a call.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    /// Bytes written.
    written: u64,
    /// Bytes read.
    read: u64,
    /// The first instruction that wrote, or 0.
    writer: u64,
    /// The first instruction that read, or 0.
    reader: u64,
    /// The last address under which the line was touched.
    address: u64,
    /// Set if it was touched by a kernel address.
    kernel: bool,
}

impl Use {
    fn add(&mut self, touch: &Touch) {
        let (bytes, first) = match touch.store {
            true => (&mut self.written, &mut self.writer),
            false => (&mut self.read, &mut self.reader),
        };
        *bytes |= touch.bytes;
        if *first == 0 {
            *first = touch.pc;
        }
        self.address = touch.address;
        self.kernel |= Privilege::of(touch.address) == Privilege::Kernel;
    }

    fn touched(&self) -> u64 {
        self.written | self.read
    }
}

/// Interrupts of a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interrupts {
    /// Interrupts sent to CPUs.
    pub sent: u64,
    /// Timer ticks handled.
    pub ticks: u64,
}

impl Interrupts {
    fn since(self, before: Self) -> Self {
        Self { sent: self.sent - before.sent, ticks: self.ticks - before.ticks }
    }

    fn plus(self, other: Self) -> Self {
        Self { sent: self.sent + other.sent, ticks: self.ticks + other.ticks }
    }
}

type Lines = HashMap<u64, Use, BuildHasherDefault<Mixer>>;

/// The lines that a CPU touches during its call.
#[derive(Debug, Default)]
pub struct Listing {
    /// Set between CALL and RETURN. Relaxed: only the CPU's own thread reads and writes it.
    is_open: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    lines: Lines,
    interrupts: Interrupts,
    is_closed: bool,
}

impl Listing {
    /// Handles CALL. `now` are the CPU's interrupts so far.
    pub fn begin(&self, now: Interrupts) {
        *self.inner() = Inner { interrupts: now, ..Inner::default() };
        self.is_open.store(true, Relaxed);
    }

    /// Handles RETURN.
    pub fn end(&self, now: Interrupts) {
        self.is_open.store(false, Relaxed);
        let mut inner = self.inner();
        inner.interrupts = now.since(inner.interrupts);
        inner.is_closed = true;
    }

    /// Records an access, if a call is going on.
    #[inline]
    pub fn access(&self, line: u64, touch: &Touch) {
        if self.is_open.load(Relaxed) {
            self.inner().lines.entry(line).or_default().add(touch);
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A line that one call wrote and another one touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The line's number.
    pub line: u64,
    /// An address under which it was touched.
    pub address: u64,
    /// The first instruction that wrote it.
    pub writer: u64,
    /// The first instruction of the other call that wrote it, or else that read it.
    pub other: u64,
    /// Set if both calls wrote it.
    pub both_write: bool,
    /// Set if no byte was written by one and touched by the other.
    pub disjoint: bool,
}

/// The outcome of a test.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Test {
    /// The lines, by number.
    pub conflicts: Vec<Conflict>,
    /// The interrupts of both calls.
    pub interrupts: Interrupts,
}

/// The outcomes of all tests, in order.
#[derive(Debug, Default)]
pub struct Calls(Mutex<Vec<Test>>);

impl Calls {
    /// Handles PAIR: compares the closed listings of the CPUs and forgets them.
    pub fn pair<'a>(&self, listings: impl Iterator<Item = &'a Listing>) {
        let mut closed = Vec::new();
        for listing in listings {
            let mut inner = listing.inner();
            if inner.is_closed {
                closed.push(std::mem::take(&mut *inner));
            }
        }
        let mut test = Test::default();
        for (number, one) in closed.iter().enumerate() {
            test.interrupts = test.interrupts.plus(one.interrupts);
            closed[number + 1..].iter().for_each(|other| test.conflicts.extend(compare(one, other)));
        }
        test.conflicts.sort_by_key(|conflict| conflict.line);
        self.tests().push(test);
    }

    /// Returns the outcomes so far.
    pub fn tests(&self) -> MutexGuard<'_, Vec<Test>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn compare(one: &Inner, other: &Inner) -> impl Iterator<Item = Conflict> {
    one.lines.iter().filter_map(|(line, mine)| conflict(*line, mine, other.lines.get(line)?))
}

fn conflict(line: u64, one: &Use, other: &Use) -> Option<Conflict> {
    let (first, second) = if one.writer != 0 { (one, other) } else { (other, one) };
    let is_conflict = first.writer != 0 && (first.kernel || second.kernel);
    let both_write = second.writer != 0;
    is_conflict.then(|| Conflict {
        line,
        address: if first.kernel { first.address } else { second.address },
        writer: first.writer,
        other: if both_write { second.writer } else { second.reader },
        both_write,
        disjoint: first.written & second.touched() == 0 && second.written & first.touched() == 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: u64 = 0xffff_8000_0000_0000;

    fn touch(address: u64, bytes: u64, store: bool, pc: u64) -> Touch {
        Touch { physical: address & 0xffff_ffff, address, bytes, store, pc }
    }

    /// Returns the conflicts of two calls that touch one line.
    fn conflicts(one: Touch, other: Touch) -> Vec<Conflict> {
        let (listings, calls) = ([Listing::default(), Listing::default()], Calls::default());
        for (listing, touch) in listings.iter().zip([one, other]) {
            listing.access(7, &touch);
            listing.begin(Interrupts { sent: 5, ticks: 5 });
            listing.access(7, &touch);
            listing.end(Interrupts { sent: 6, ticks: 5 });
            listing.access(8, &Touch { store: true, ..touch });
        }
        calls.pair(listings.iter());
        calls.pair(listings.iter());
        let tests = calls.tests();
        assert_eq!((tests.len(), tests[0].interrupts), (2, Interrupts { sent: 2, ticks: 0 }));
        assert_eq!(tests[1], Test::default(), "a listing is compared once");
        tests[0].conflicts.clone()
    }

    #[test]
    fn a_line_that_one_call_writes_and_the_other_touches_is_a_conflict() {
        let found = conflicts(touch(KERNEL, 1, false, 10), touch(KERNEL, 1, true, 20));
        assert_eq!((found[0].line, found[0].writer, found[0].other), (7, 20, 10));
        assert!(!found[0].both_write && !found[0].disjoint);
        let found = conflicts(touch(KERNEL, 1, true, 10), touch(KERNEL, 2, true, 20));
        assert!(found[0].both_write && found[0].disjoint, "false sharing is a conflict too");
    }

    #[test]
    fn reads_and_the_programs_own_lines_are_none() {
        assert_eq!(conflicts(touch(KERNEL, 1, false, 10), touch(KERNEL, 1, false, 20)), []);
        assert_eq!(conflicts(touch(0x1000, 1, true, 10), touch(0x1000, 1, true, 20)), []);
        assert_eq!(conflicts(touch(0x1000, 1, true, 10), touch(KERNEL, 1, false, 20)).len(), 1);
    }
}

//! `/proc/PID/maps`, `smaps`, `smaps_rollup` and `pagemap`: what is mapped, straight from the address space.
//!
//! Each line was true at one moment, and the lines are in order and do not overlap; what other threads do meanwhile shows or
//! does not. Nobody counts who else maps a page: one that others may have counts in full (`Pss` equals `Rss`), and as
//! shared.

use alloc::sync::{Arc, Weak};
use core::fmt::{self, Write};

use abi::Errno;
use percore::pin;
use vm::{Flags, PAGE_SIZE, PageNum, PageRange, Prot, Resident};

use super::digits;
use crate::fs::bytes::after_mut;
use crate::fs::content::{Content, Place};
use crate::fs::fallible::Text;
use crate::mm::space::user_pages;
use crate::mm::user::USER_END;
use crate::process::{Mapped, Memory, Process};

/// Where the names stand in a line.
const NAME_COLUMN: usize = 73;
/// Where the numbers begin in a line of smaps.
const KIB_COLUMN: usize = 16;
const KIB: u64 = PAGE_SIZE / 1024;

/// A paragraph of smaps: the line of maps, and what is in memory.
pub fn smaps_paragraph(memory: &Memory, mapped: &Mapped, text: &mut Text) -> fmt::Result {
    maps_line(memory, mapped, text)?;
    write_kib(text, "Size:", mapped.region.pages.pages())?;
    text.write_str("KernelPageSize:        4 kB\nMMUPageSize:           4 kB\n")?;
    Sums::of(mapped).write(text)?;
    write_flags(mapped, text)
}

/// The sums of all mappings.
pub fn smaps_rollup(process: &Process, text: &mut Text) -> fmt::Result {
    let Some(memory) = process.memory() else { return Ok(()) };
    let (mut sums, mut bounds) = (Sums::default(), (u64::MAX, 0));
    for mapped in memory.mappings(PageNum::new(0)) {
        let [start, end] = place(&mapped);
        bounds = (bounds.0.min(start), end);
        sums.add(Sums::of(&mapped));
    }
    let line = text.0.len();
    write_bounds(text, bounds.0.min(bounds.1), bounds.1)?;
    text.write_str(" ---p 00000000 00:00 0 ")?;
    digits::pad(text, line, NAME_COLUMN)?;
    text.write_str("[rollup]\n")?;
    sums.write(text)
}

fn place(mapped: &Mapped) -> [u64; 2] {
    [mapped.region.pages.start(), mapped.region.pages.end()].map(|page| page.get() * PAGE_SIZE)
}

fn write_bounds(text: &mut Text, start: u64, end: u64) -> fmt::Result {
    digits::hex(text, start, 8)?;
    text.write_char('-')?;
    digits::hex(text, end, 8)
}

/// A line of maps.
pub fn maps_line(memory: &Memory, mapped: &Mapped, text: &mut Text) -> fmt::Result {
    let (line, [start, end]) = (text.0.len(), place(mapped));
    write_bounds(text, start, end)?;
    digits::bytes(text, &rights(mapped))?;
    digits::hex(text, mapped.source.as_ref().map_or(0, |source| source.first * PAGE_SIZE), 8)?;
    let stat = mapped.file().map(|file| file.node().stat());
    let (device, number) = stat.map_or((0, 0), |stat| (stat.dev, stat.ino));
    text.write_str(" 00:")?;
    digits::hex(text, device, 2)?;
    text.write_char(' ')?;
    digits::decimal(text, number, 0)?;
    text.write_char(' ')?;
    write_name(memory, mapped, line, text)?;
    text.write_char('\n')
}

/// The rights between two spaces.
fn rights(mapped: &Mapped) -> [u8; 6] {
    let mapping = mapped.region.mapping;
    let right = |right: Prot, letter| if mapping.prot().contains(right) { letter } else { b'-' };
    let kind = if mapping.flags().contains(Flags::SHARED) { b's' } else { b'p' };
    [b' ', right(Prot::READ, b'r'), right(Prot::WRITE, b'w'), right(Prot::EXEC, b'x'), kind, b' ']
}

/// Writes the name of the mapping, if it has one, in its column of the line that begins at `line`.
fn write_name(memory: &Memory, mapped: &Mapped, line: usize, text: &mut Text) -> fmt::Result {
    let ([start, end], heap) = (place(mapped), memory.heap.bounds());
    let name = match (&mapped.source, mapped.file()) {
        (_, Some(file)) => {
            digits::pad(text, line, NAME_COLUMN)?;
            return digits::bytes(text, &file.path().map_err(|_| fmt::Error)?);
        }
        (Some(_), None) => "/dev/zero (deleted)",
        (None, _) if mapped.is_stack() => "[stack]",
        (None, _) if start <= heap.1 && end >= heap.0 && heap.0 < heap.1 => "[heap]",
        (None, _) => return Ok(()),
    };
    digits::pad(text, line, NAME_COLUMN)?;
    text.write_str(name)
}

/// Writes a line of smaps: `name` and as many KiB as `pages` have.
fn write_kib(text: &mut Text, name: &str, pages: u64) -> fmt::Result {
    let line = text.0.len();
    text.write_str(name)?;
    digits::pad(text, line, KIB_COLUMN)?;
    digits::decimal(text, pages * KIB, 8)?;
    text.write_str(" kB\n")
}

/// Pages in memory, by what smaps tells of them.
#[derive(Default)]
struct Sums {
    resident: Resident,
    locked: u64,
}

impl Sums {
    fn of(mapped: &Mapped) -> Self {
        let resident = mapped.region.resident;
        let is_locked = mapped.region.mapping.flags().contains(Flags::LOCKED);
        Self { resident, locked: if is_locked { resident.total() } else { 0 } }
    }

    fn add(&mut self, other: Self) {
        self.resident.alone += other.resident.alone;
        self.resident.huge += other.resident.huge;
        self.resident.counted += other.resident.counted;
        self.resident.shown += other.resident.shown;
        self.resident.compressed += other.resident.compressed;
        self.locked += other.locked;
    }

    fn write(&self, text: &mut Text) -> fmt::Result {
        let Resident { alone, huge, counted, shown, compressed } = self.resident;
        let total = self.resident.total();
        let lines = [
            ("Rss:", total),
            ("Pss:", total),
            ("Pss_Dirty:", alone + counted),
            ("Shared_Clean:", shown),
            ("Shared_Dirty:", counted),
            ("Private_Clean:", 0),
            ("Private_Dirty:", alone),
            ("Referenced:", total),
            ("Anonymous:", alone + counted),
            ("LazyFree:", 0),
            ("AnonHugePages:", huge),
            ("ShmemPmdMapped:", 0),
            ("FilePmdMapped:", 0),
            ("Shared_Hugetlb:", 0),
            ("Private_Hugetlb:", 0),
            ("Swap:", compressed),
            ("SwapPss:", compressed),
            ("Locked:", self.locked),
        ];
        lines.into_iter().try_for_each(|(name, pages)| write_kib(text, name, pages))
    }
}

/// Two letters for each thing that may be done to the pages, or was said of them.
fn write_flags(mapped: &Mapped, text: &mut Text) -> fmt::Result {
    let (prot, flags) = (mapped.region.mapping.prot(), mapped.region.mapping.flags());
    let sealed = flags.contains(Flags::SEALED);
    let letters = [
        (prot.contains(Prot::READ), "rd"),
        (prot.contains(Prot::WRITE), "wr"),
        (prot.contains(Prot::EXEC), "ex"),
        (flags.contains(Flags::SHARED), "sh"),
        (true, "mr"),
        (!sealed, "mw"),
        (true, "me"),
        (flags.contains(Flags::SHARED) && !sealed, "ms"),
        (flags.contains(Flags::LOCKED), "lo"),
        (flags.contains(Flags::DONTFORK), "dc"),
        (flags.contains(Flags::WIPEONFORK), "wf"),
        (flags.contains(Flags::HUGE), "hg"),
        (flags.contains(Flags::NOHUGE), "nh"),
    ];
    text.write_str("THPeligible:           0\nVmFlags: ")?;
    letters.into_iter().filter(|(is, _)| *is).try_for_each(|(_, letters)| {
        text.write_str(letters)?;
        text.write_char(' ')
    })?;
    text.write_char('\n')
}

/// `/proc/PID/pagemap`: a word for each page, of which only the bit of those in memory is told.
pub struct PageMap(Weak<Process>);

const PRESENT: u64 = 1 << 63;
const WORD: usize = size_of::<u64>();

impl PageMap {
    pub fn of(process: &Arc<Process>) -> Self {
        Self(Arc::downgrade(process))
    }
}

impl Content for PageMap {
    fn read(&self, at: u64, into: &mut [u8], _wait: bool) -> Result<usize, Errno> {
        if !at.is_multiple_of(WORD as u64) || !into.len().is_multiple_of(WORD) {
            return Err(Errno::EINVAL);
        }
        let Some(memory) = self.0.upgrade().and_then(|process| process.memory()) else { return Ok(0) };
        let first = at / WORD as u64;
        let end = (first + (into.len() / WORD) as u64).min(USER_END / PAGE_SIZE).max(first);
        into.fill(0);
        let pages = PageRange::between(PageNum::new(first), PageNum::new(end));
        let mut note = |run: PageRange| {
            let words = after_mut(into, (run.start().get() - first) as usize * WORD).chunks_exact_mut(WORD);
            words.take(run.pages() as usize).for_each(|word| word.copy_from_slice(&PRESENT.to_le_bytes()));
        };
        // Holes are no error here.
        let _ = memory.space.resident(&pin(), pages.common(user_pages()), &mut note);
        Ok(pages.pages() as usize * WORD)
    }

    fn write(&self, _place: Place, _from: &[u8], _wait: bool) -> Result<usize, Errno> {
        Err(Errno::EROFS)
    }
}

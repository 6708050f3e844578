//! `/proc/PID/maps`, `smaps`, `smaps_rollup` and `pagemap`, read directly from the address space.
//!
//! Each line was true at one moment, and the lines are in order and do not overlap. A change by another
//! thread while they are read may show or not. Nothing counts how many processes map a page. A page that
//! others may map counts in full (`Pss` equals `Rss`), and as shared.

use alloc::sync::Weak;
use alloc::vec::Vec;
use core::fmt::{self, Write};

use abi::Errno;
use abi::users::CAP_SYS_ADMIN;
use vm::{Detail, Flags, FrameRun, PAGE_SIZE, PageNum, PageRange, Prot, Resident};

use super::digits::Line;
use crate::bytes::after_mut;
use crate::fs::OpenFile;
use crate::fs::content::{Content, WriteAt};
use crate::mm::fallible::Text;
use crate::mm::space::user_pages;
use crate::mm::static_or_arc::StaticOrArc;
use crate::mm::user::USER_END;
use crate::process::{Mapped, Memory};
use crate::sched;

/// The column of the names in a line.
const NAME_COLUMN: usize = 73;
/// The column of the numbers in a line of smaps.
const KIB_COLUMN: usize = 16;
const KIB: u64 = PAGE_SIZE / 1024;

/// Writes a paragraph of smaps: the line of maps, and the pages in memory.
pub fn smaps_paragraph(
    memory: &Memory,
    mapped: &Mapped,
    state: &mut LineState,
    text: &mut Text,
) -> fmt::Result {
    maps_line(memory, mapped, state, text)?;
    write_kib(text, "Size:", mapped.region.pages.pages())?;
    text.write_str("KernelPageSize:        4 kB\nMMUPageSize:           4 kB\n")?;
    Sums::of(mapped).write(text)?;
    write_flags(mapped, text)
}

/// Writes the sums of all mappings.
pub fn smaps_rollup(memory: &Memory, text: &mut Text) -> fmt::Result {
    let (mut sums, mut bounds) = (Sums::default(), (u64::MAX, 0));
    for mapped in memory.mappings(PageNum::new(0), Detail::Resident) {
        let [start, end] = bounds_of(&mapped);
        bounds = (bounds.0.min(start), end);
        sums.add(Sums::of(&mapped));
    }
    let mut line = Line::default();
    add_bounds(&mut line, [bounds.0.min(bounds.1), bounds.1]);
    line.add(b" ---p 00000000 00:00 0 ");
    line.pad(NAME_COLUMN);
    line.end(b"[rollup]", text)?;
    sums.write(text)
}

fn bounds_of(mapped: &Mapped) -> [u64; 2] {
    [mapped.region.pages.start(), mapped.region.pages.end()].map(|page| page.get() * PAGE_SIZE)
}

fn add_bounds(line: &mut Line, [start, end]: [u64; 2]) {
    line.hex(start, 8);
    line.add(b"-");
    line.hex(end, 8);
}

/// State that one line of maps leaves for the next.
#[derive(Default)]
pub struct LineState {
    line: Line,
    /// The last file named. Neighbouring mappings are often of one file.
    named: Option<NamedFile>,
}

/// The text about a file.
struct NamedFile {
    file: StaticOrArc<OpenFile>,
    /// Its device and inode number.
    numbers: Line,
    path: Vec<u8>,
}

impl NamedFile {
    /// Returns `last` if it is about `file`, and otherwise replaces it.
    fn get<'n>(last: &'n mut Option<Self>, file: &StaticOrArc<OpenFile>) -> Result<&'n Self, Errno> {
        if last.as_ref().is_some_and(|last| !last.file.is(file)) {
            *last = None;
        }
        match last {
            Some(last) => Ok(last),
            None => Ok(last.insert(Self::new(file)?)),
        }
    }

    fn new(file: &StaticOrArc<OpenFile>) -> Result<Self, Errno> {
        let (stat, mut numbers) = (file.node().stat(), Line::default());
        numbers.add(b" 00:");
        numbers.hex(stat.dev, 2);
        numbers.add(b" ");
        numbers.decimal(stat.ino, 0);
        numbers.add(b" ");
        Ok(Self { file: file.clone(), numbers, path: file.path()? })
    }
}

/// Writes a line of maps.
pub fn maps_line(memory: &Memory, mapped: &Mapped, state: &mut LineState, text: &mut Text) -> fmt::Result {
    let LineState { line, named } = state;
    line.clear();
    add_bounds(line, bounds_of(mapped));
    line.add(&rights(mapped));
    line.hex(mapped.source.as_ref().map_or(0, |source| source.first * PAGE_SIZE), 8);
    if let Some(file) = mapped.file() {
        let named = NamedFile::get(named, file).map_err(|_| fmt::Error)?;
        line.add_name(named.numbers.bytes());
        line.pad(NAME_COLUMN);
        return line.end(&named.path, text);
    }
    line.add(b" 00:00 0 ");
    let name = name(memory, mapped);
    if !name.is_empty() {
        line.pad(NAME_COLUMN);
    }
    line.end(name, text)
}

/// Returns the rights between two spaces.
fn rights(mapped: &Mapped) -> [u8; 6] {
    let mapping = mapped.region.mapping;
    let right = |right: Prot, letter| if mapping.prot().contains(right) { letter } else { b'-' };
    let kind = if mapping.flags().contains(Flags::SHARED) { b's' } else { b'p' };
    [b' ', right(Prot::READ, b'r'), right(Prot::WRITE, b'w'), right(Prot::EXEC, b'x'), kind, b' ']
}

/// Returns the name of a mapping without a file, or nothing if it has none.
fn name(memory: &Memory, mapped: &Mapped) -> &'static [u8] {
    let [start, end] = bounds_of(mapped);
    let is_heap = || {
        let heap = memory.heap.bounds();
        start <= heap.1 && end >= heap.0 && heap.0 < heap.1
    };
    match &mapped.source {
        Some(source) if source.is_kernel() => b"[vdso]",
        Some(_) => b"/dev/zero (deleted)",
        None if mapped.is_stack() => b"[stack]",
        None if is_heap() => b"[heap]",
        None => b"",
    }
}

/// Writes a line of smaps: `name` and the size of `pages` in KiB.
fn write_kib(text: &mut Text, name: &str, pages: u64) -> fmt::Result {
    let mut line = Line::default();
    line.add_name(name.as_bytes());
    line.pad(KIB_COLUMN);
    line.decimal(pages * KIB, 8);
    line.end(b" kB", text)
}

/// Pages in memory, by the categories of smaps.
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

/// Writes the VmFlags: two letters for each right and each flag of the mapping.
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

/// `/proc/PID/pagemap`: a word for each page. It has the frame's number, or 0 for readers without
/// CAP_SYS_ADMIN, and says whether the page is in memory and whether the frame is a file's. No other bit is
/// ever set.
pub struct PageMap(Weak<Memory>);

const PRESENT: u64 = 1 << 63;
const OF_FILE: u64 = 1 << 61;
const WORD: usize = size_of::<u64>();

impl PageMap {
    /// Returns the file of this memory.
    pub fn of(memory: Weak<Memory>) -> Self {
        Self(memory)
    }
}

impl Content for PageMap {
    fn read(&self, at: u64, into: &mut [u8], _wait: bool) -> Result<usize, Errno> {
        if !at.is_multiple_of(WORD as u64) || !into.len().is_multiple_of(WORD) {
            return Err(Errno::EINVAL);
        }
        let Some(memory) = self.0.upgrade() else { return Ok(0) };
        let is_told = sched::with_credentials(|of| of.can(CAP_SYS_ADMIN));
        let first = at / WORD as u64;
        let end = (first + (into.len() / WORD) as u64).min(USER_END / PAGE_SIZE).max(first);
        into.fill(0);
        let pages = PageRange::between(PageNum::new(first), PageNum::new(end));
        let mut note = |run: FrameRun| {
            let kind = PRESENT | if run.is_shown { OF_FILE } else { 0 };
            let words = after_mut(into, (run.pages.start().get() - first) as usize * WORD);
            let words = words.as_chunks_mut::<WORD>().0.iter_mut().zip(run.frames());
            words.for_each(|(word, frame)| {
                *word = (kind | if is_told { frame.get() } else { 0 }).to_le_bytes()
            });
        };
        let mut rest = pages.common(user_pages());
        while !rest.is_empty() {
            rest = memory.space.frames_of(rest, &mut note);
        }
        Ok(pages.pages() as usize * WORD)
    }

    fn write(&self, _at: WriteAt, _from: &[u8], _wait: bool) -> Result<usize, Errno> {
        Err(Errno::EROFS)
    }
}

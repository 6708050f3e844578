//! `/proc/PID/maps`, `smaps`, `smaps_rollup` and `pagemap`: what is mapped, straight from the address space.
//!
//! Each line was true at one moment, and the lines are in order and do not overlap; what other threads do meanwhile shows or
//! does not. Nobody counts who else maps a page: one that others may have counts in full (`Pss` equals `Rss`), and as
//! shared.

use alloc::sync::{Arc, Weak};
use core::fmt::{self, Write};
use core::ops::ControlFlow;

use abi::Errno;
use percore::pin;
use vm::{Flags, PAGE_SIZE, PageNum, PageRange, Prot, Resident};

use crate::fs::bytes::after_mut;
use crate::fs::content::{Content, Place};
use crate::fs::fallible::{Text, extended};
use crate::mm::space::user_pages;
use crate::mm::user::USER_END;
use crate::process::{Mapped, Memory, Process};

/// Where the names stand in a line.
const NAME_COLUMN: usize = 73;
const KIB: u64 = PAGE_SIZE / 1024;

/// What is mapped.
pub fn maps(process: &Process, text: &mut Text) -> fmt::Result {
    each(process, |memory, mapped| map_line(memory, mapped, text))
}

/// The same with what is in memory.
pub fn smaps(process: &Process, text: &mut Text) -> fmt::Result {
    each(process, |memory, mapped| {
        map_line(memory, mapped, text)?;
        let size = mapped.region.pages.pages() * KIB;
        write!(
            text,
            "Size:           {size:8} kB\nKernelPageSize:        4 kB\nMMUPageSize:           4 kB\n"
        )?;
        Sums::of(mapped).write(text)?;
        write_flags(mapped, text)
    })
}

/// The sums of all mappings.
pub fn smaps_rollup(process: &Process, text: &mut Text) -> fmt::Result {
    let (mut sums, mut bounds) = (Sums::default(), (u64::MAX, 0));
    each(process, |_, mapped| {
        let [start, end] = place(mapped);
        bounds = (bounds.0.min(start), end);
        sums.add(Sums::of(mapped));
        Ok(())
    })?;
    write_padded(text, format_args!("{:08x}-{:x} ---p 00000000 00:00 0", bounds.0.min(bounds.1), bounds.1))?;
    text.write_str("[rollup]\n")?;
    sums.write(text)
}

fn each(process: &Process, mut visit: impl FnMut(&Memory, &Mapped) -> fmt::Result) -> fmt::Result {
    let Some(memory) = process.memory() else { return Ok(()) };
    let walked = memory.each_mapping(|mapped| match visit(&memory, mapped) {
        Ok(()) => ControlFlow::Continue(()),
        Err(fmt::Error) => ControlFlow::Break(()),
    });
    if walked.is_break() { Err(fmt::Error) } else { Ok(()) }
}

fn place(mapped: &Mapped) -> [u64; 2] {
    [mapped.region.pages.start(), mapped.region.pages.end()].map(|page| page.get() * PAGE_SIZE)
}

fn map_line(memory: &Memory, mapped: &Mapped, text: &mut Text) -> fmt::Result {
    let ([start, end], mapping) = (place(mapped), mapped.region.mapping);
    let right = |right: Prot, letter| if mapping.prot().contains(right) { letter } else { '-' };
    let (read, write, execute) = (right(Prot::READ, 'r'), right(Prot::WRITE, 'w'), right(Prot::EXEC, 'x'));
    let kind = if mapping.flags().contains(Flags::SHARED) { 's' } else { 'p' };
    let offset = mapped.source.as_ref().map_or(0, |source| source.first * PAGE_SIZE);
    let stat = mapped.source.as_ref().and_then(|source| source.file.as_ref()).map(|file| file.node().stat());
    let (device, number) = stat.map_or((0, 0), |stat| (stat.dev, stat.ino));
    let rights = format_args!("{read}{write}{execute}{kind}");
    let line = format_args!("{start:08x}-{end:08x} {rights} {offset:08x} 00:{device:02x} {number}");
    let name = name(memory, mapped).map_err(|_| fmt::Error)?;
    if name.0.is_empty() {
        return writeln!(text, "{line} ");
    }
    write_padded(text, line)?;
    text.0 = extended(core::mem::take(&mut text.0), &name.0).map_err(|_| fmt::Error)?;
    text.write_char('\n')
}

/// Writes the start of a line, up to the column of names.
fn write_padded(text: &mut Text, line: fmt::Arguments<'_>) -> fmt::Result {
    let start = text.0.len();
    write!(text, "{line} ")?;
    let padding = (start + NAME_COLUMN).saturating_sub(text.0.len());
    write!(text, "{:padding$}", "")
}

fn name(memory: &Memory, mapped: &Mapped) -> Result<Text, Errno> {
    let ([start, end], heap) = (place(mapped), memory.heap.bounds());
    let fixed = match &mapped.source {
        Some(source) => match &source.file {
            Some(file) => return file.path().map(Text),
            None => "/dev/zero (deleted)",
        },
        None if mapped.is_stack() => "[stack]",
        None if start <= heap.1 && end >= heap.0 && heap.0 < heap.1 => "[heap]",
        None => "",
    };
    extended(Default::default(), fixed.as_bytes()).map(Text)
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
        lines.into_iter().try_for_each(|(name, pages)| writeln!(text, "{name:<15} {:8} kB", pages * KIB))
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
    letters.into_iter().filter(|(is, _)| *is).try_for_each(|(_, letters)| write!(text, "{letters} "))?;
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

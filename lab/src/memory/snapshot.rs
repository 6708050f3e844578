//! The snapshot of an address space, as readable text:
//!
//! ```text
//! program chromium
//! linux vmas 1203 vma_bytes 192 table_bytes 1421312
//! 55f0a1000 24 r--p 3:0 0+24
//! 7f21b4000 512 rw-p - 0+12 40+8
//! ```
//! A region: its first page in hex, its pages, rights with `p`rivate or `s`hared, the file (a number of its
//! own, and the page of the file at which the region begins) or `-`, and the runs of pages that have
//! memory, counted from the first.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Error, Result, ensure};

/// A snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The name of the program.
    pub program: String,
    /// Linux's cost of the address space.
    pub linux: Linux,
    /// The regions by rising address, without overlap.
    pub regions: Vec<Region>,
}

/// Linux's cost of an address space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Linux {
    /// The number of regions that `/proc/PID/maps` lists.
    pub vmas: u64,
    /// The bytes of one `vm_area_struct`.
    pub vma_bytes: u64,
    /// The bytes of page tables: `VmPTE`.
    pub table_bytes: u64,
}

impl Linux {
    /// Returns the sum. The tree that finds a region is not counted, to Linux's advantage.
    pub fn bytes(self) -> u64 {
        self.vmas * self.vma_bytes + self.table_bytes
    }
}

/// Adjacent pages with the same mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// The first page's number.
    pub start: u64,
    /// The number of pages.
    pub pages: u64,
    /// `r`, `w` and `x`, or `-` in their places.
    pub rights: [bool; 3],
    /// Set if others see the writes.
    pub shared: bool,
    /// The file, and the file's page that is mapped first.
    pub file: Option<(u64, u64)>,
    /// Runs of pages with memory: the first page, counted from `start`, and the number of pages.
    pub resident: Vec<(u64, u64)>,
}

impl Snapshot {
    /// Returns the number of pages that have memory.
    pub fn resident(&self) -> u64 {
        self.regions.iter().flat_map(|region| &region.resident).map(|(_, pages)| pages).sum()
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Linux { vmas, vma_bytes, table_bytes } = self.linux;
        writeln!(to, "program {}", self.program)?;
        writeln!(to, "linux vmas {vmas} vma_bytes {vma_bytes} table_bytes {table_bytes}")?;
        self.regions.iter().try_for_each(|region| writeln!(to, "{region}"))
    }
}

impl fmt::Display for Region {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{:x} {} ", self.start, self.pages)?;
        for (right, name) in self.rights.iter().zip("rwx".chars()) {
            write!(to, "{}", if *right { name } else { '-' })?;
        }
        write!(to, "{} ", if self.shared { 's' } else { 'p' })?;
        match self.file {
            Some((file, page)) => write!(to, "{file}:{page}"),
            None => write!(to, "-"),
        }?;
        self.resident.iter().try_for_each(|(first, pages)| write!(to, " {first}+{pages}"))
    }
}

impl FromStr for Snapshot {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut lines = text.lines();
        let mut head = |name| {
            lines.next().and_then(|line: &str| line.strip_prefix(name)).with_context(|| {
                format!("not a snapshot: no line that begins with {name:?} where one must be")
            })
        };
        let program = head("program ")?.to_owned();
        let linux = head("linux ")?.parse()?;
        let regions = lines
            .map(|line| line.parse().with_context(|| format!("in the snapshot's line {line:?}")))
            .collect::<Result<Vec<Region>>>()?;
        let apart = regions.windows(2).all(|pair| pair[0].start + pair[0].pages <= pair[1].start);
        ensure!(apart, "the regions of a snapshot must rise and not overlap");
        Ok(Self { program, linux, regions })
    }
}

impl FromStr for Linux {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        let ["vmas", vmas, "vma_bytes", vma_bytes, "table_bytes", table_bytes] = words[..] else {
            anyhow::bail!("not what Linux spends: {text:?}");
        };
        Ok(Self { vmas: vmas.parse()?, vma_bytes: vma_bytes.parse()?, table_bytes: table_bytes.parse()? })
    }
}

impl FromStr for Region {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut words = text.split(' ');
        let mut word = || words.next().context("a word is missing");
        let start = u64::from_str_radix(word()?, 16)?;
        let pages: u64 = word()?.parse()?;
        let mode = word()?.as_bytes();
        ensure!(mode.len() == 4, "rights are four letters");
        let file = match word()? {
            "-" => None,
            file => Some(pair(file, ':')?),
        };
        let resident = words.map(|run| pair(run, '+')).collect::<Result<Vec<_>>>()?;
        ensure!(start.checked_add(pages).is_some_and(|end| end <= 1 << 35), "beyond what a program can map");
        let inside =
            resident.iter().all(|(first, run)| first.checked_add(*run).is_some_and(|end| end <= pages));
        ensure!(inside, "a run of pages leaves its region");
        let rights = [mode[0] == b'r', mode[1] == b'w', mode[2] == b'x'];
        Ok(Self { start, pages, rights, shared: mode[3] == b's', file, resident })
    }
}

fn pair(text: &str, between: char) -> Result<(u64, u64)> {
    let (left, right) = text.split_once(between).with_context(|| format!("no {between:?} in {text:?}"))?;
    Ok((left.parse()?, right.parse()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "program cat\nlinux vmas 2 vma_bytes 192 table_bytes 8192\n\
                        55f0a1 24 r-xp 3:7 0+24\n7f21b4000 512 rw-s - 0+12 40+8\n";

    #[test]
    fn a_written_snapshot_is_read() {
        let snapshot: Snapshot = TEXT.parse().unwrap();
        assert_eq!(snapshot.to_string(), TEXT);
        assert_eq!((snapshot.resident(), snapshot.linux.bytes()), (44, 2 * 192 + 8192));
        assert_eq!(snapshot.regions[0].file, Some((3, 7)));
        assert!(snapshot.regions[1].shared && snapshot.regions[1].rights == [true, true, false]);
    }

    #[test]
    fn nonsense_is_refused() {
        for (bad, good) in
            [("program", "prog"), ("24 r-xp", "24 r-x"), ("0+24", "1+24"), ("55f0a1", "7f21b3fff")]
        {
            assert!(TEXT.replacen(bad, good, 1).parse::<Snapshot>().is_err(), "{good}");
        }
    }
}

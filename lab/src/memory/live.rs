//! A snapshot of a process of this machine's Linux.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result};

use super::snapshot::{Linux, Region, Snapshot};

/// The bytes of a `vm_area_struct` of Linux 6.18, used if `/proc/slabinfo` may not be read.
pub const VMA_BYTES: u64 = 192;
/// The pages of a 47-bit user space. Higher pages are the kernel's.
const USER_PAGES: u64 = 1 << 35;
/// Bits of a word of `/proc/PID/pagemap` (Linux: admin-guide/mm/pagemap.rst): present, or swapped out.
const HAS_MEMORY: u64 = 1 << 63 | 1 << 62;

/// Returns a snapshot of process `pid`.
pub fn snapshot(pid: u32) -> Result<Snapshot> {
    let read = |name: &str| {
        fs::read_to_string(format!("/proc/{pid}/{name}")).with_context(|| format!("process {pid}: {name}"))
    };
    let (maps, status) = (read("maps")?, read("status")?);
    let pagemap =
        File::open(format!("/proc/{pid}/pagemap")).with_context(|| format!("process {pid}: pagemap"))?;
    let mut regions = regions(&maps)?;
    for region in &mut regions {
        region.resident =
            resident(&pagemap, region).context("pagemap (needs the right to trace the process)")?;
    }
    let linux = Linux {
        vmas: regions.len() as u64,
        vma_bytes: vma_bytes().unwrap_or(VMA_BYTES),
        table_bytes: 1024 * status_field(&status, "VmPTE:").context("no VmPTE in status")?,
    };
    Ok(Snapshot { program: read("comm")?.trim_end().to_owned(), linux, regions })
}

fn regions(maps: &str) -> Result<Vec<Region>> {
    let mut files = HashMap::new();
    let all = maps.lines().map(|line| region(line, &mut files).with_context(|| format!("maps: {line}")));
    all.filter(|region| region.as_ref().map_or(true, |region| region.start < USER_PAGES)).collect()
}

/// Parses one line of `maps`. Files are numbered in the order in which they occur.
fn region(line: &str, files: &mut HashMap<String, u64>) -> Result<Region> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [range, mode, offset, device, inode, ..] = words[..] else { anyhow::bail!("too short") };
    let (start, end) = range.split_once('-').context("no range")?;
    let page = |text| u64::from_str_radix(text, 16).map(|address| address / 4096);
    let (start, end) = (page(start)?, page(end)?);
    let mode = mode.as_bytes();
    let next = files.len() as u64;
    let file = (inode != "0").then(|| *files.entry(format!("{device} {inode}")).or_insert(next));
    Ok(Region {
        start,
        pages: end - start,
        rights: [mode[0] == b'r', mode[1] == b'w', mode[2] == b'x'],
        shared: mode[3] == b's',
        file: file.map(|file| Ok::<_, anyhow::Error>((file, page(offset)?))).transpose()?,
        resident: Vec::new(),
    })
}

/// Returns the runs of pages of `region` that have memory.
fn resident(pagemap: &File, region: &Region) -> Result<Vec<(u64, u64)>> {
    const CHUNK: u64 = 1 << 16;
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for from in (0..region.pages).step_by(CHUNK as usize) {
        let mut words = vec![0; 8 * CHUNK.min(region.pages - from) as usize];
        pagemap.read_exact_at(&mut words, 8 * (region.start + from))?;
        let backed = words.chunks_exact(8).zip(from..).filter(|(word, _)| has_memory(word));
        for (_, page) in backed {
            match runs.last_mut() {
                Some((first, pages)) if *first + *pages == page => *pages += 1,
                _ => runs.push((page, 1)),
            }
        }
    }
    Ok(runs)
}

fn has_memory(word: &[u8]) -> bool {
    word.try_into().is_ok_and(|word| u64::from_le_bytes(word) & HAS_MEMORY != 0)
}

fn status_field(status: &str, name: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

/// Returns the fourth column of `/proc/slabinfo`, which only root may read.
fn vma_bytes() -> Option<u64> {
    let slabs = fs::read_to_string("/proc/slabinfo").ok()?;
    let line = slabs.lines().find(|line| line.starts_with("vm_area_struct "))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_text_heap_and_tables() {
        let snapshot = snapshot(std::process::id()).unwrap();
        assert!(snapshot.linux.table_bytes >= 4 * 4096 && snapshot.linux.vma_bytes >= 100);
        assert!(snapshot.regions.iter().any(|region| region.rights[2] && region.file.is_some()));
        assert!(snapshot.resident() > 100);
        assert_eq!(snapshot.to_string().parse::<Snapshot>().unwrap(), snapshot);
    }

    #[test]
    fn files_are_numbered_and_the_kernels_part_is_left_out() {
        let maps = "1000-3000 r--p 00001000 08:01 77 /bin/x\n3000-4000 rw-p 00000000 00:00 0\n\
                    5000-6000 r-xs 00000000 08:01 77 /bin/x\nffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0";
        let regions = regions(maps).unwrap();
        let seen: Vec<_> = regions.iter().map(|region| (region.start, region.pages, region.file)).collect();
        assert_eq!(seen, [(1, 2, Some((0, 1))), (3, 1, None), (5, 1, Some((0, 0)))]);
    }

    #[test]
    fn nobody_is_no_process() {
        assert!(format!("{:#}", snapshot(u32::MAX).unwrap_err()).contains("process 4294967295"));
    }
}

//! A snapshot's space in the core, on this machine's memory: the same mappings, and one core that touched
//! the same pages.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, anyhow};
use percore::{Pinned, threads};
use refcache::{Config, Refcache};
use vm::{
    Access, AddressSpace, BackingError, BackingNum, Backings, FrameNum, Frames, Layout, Mapping, PageNum,
    PageRange, Placement, Prot, RadixSpace, Tables,
};

use super::snapshot::{Region, Snapshot};
use super::tables::CountedTables;

/// The cost of a space in our core, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// The nodes of the radix map and the other allocations of the space, counted by the allocator.
    pub metadata: u64,
    /// Page tables of one core.
    pub tables: u64,
}

impl Cost {
    /// Returns the sum.
    pub fn bytes(self) -> u64 {
        self.metadata + self.tables
    }
}

/// Builds the space of `snapshot` with `tables`, counts it, and frees it.
///
/// # Errors
/// If the core refuses the snapshot.
pub fn rebuild(snapshot: &Snapshot, tables: Tables) -> Result<Cost> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let _core = threads::enter_any(1);
    let pin = percore::pin();
    let refcache = Arc::new(Refcache::new(Config { cores: 1, cache_slots: 64, review_budget: 64 }));
    refcache.online(&pin);
    let tables = Arc::new(CountedTables::for_regions(tables, &snapshot.regions));
    let mut built = Err(anyhow!("not built"));
    let allocated =
        allocation_counter::measure(|| built = build(&pin, refcache.clone(), tables.clone(), snapshot));
    drop(built?);
    refcache.drain(&pin);
    Ok(Cost { metadata: allocated.bytes_current.unsigned_abs(), tables: 4096 * tables.frames() })
}

/// Held by the thread that acts as the only core.
static TURN: Mutex<()> = Mutex::new(());

/// Builds a space with everything in the snapshot.
fn build(
    pin: &Pinned,
    refcache: Arc<Refcache>,
    tables: Arc<CountedTables>,
    snapshot: &Snapshot,
) -> Result<impl AddressSpace> {
    let space = RadixSpace::new(pin, refcache, tables, Numbers::default(), layout())
        .map_err(|_| anyhow!("no memory"))?;
    for region in &snapshot.regions {
        add(&space, pin, region).map_err(|error| anyhow!("region {region}: {error}"))?;
    }
    Ok(space)
}

/// Returns the layout of a 47-bit user space with a single arena.
fn layout() -> Layout {
    let pages = |start, end| PageRange::between(PageNum::new(start), PageNum::new(end));
    Layout { cores: 1, user: pages(1, 1 << 35), anywhere: pages(1 << 27, 255 << 27), seed: 0 }
}

fn add(space: &dyn AddressSpace, pin: &Pinned, region: &Region) -> Result<(), String> {
    let said = |error: &dyn std::fmt::Debug| format!("{error:?}");
    let (mapping, access) = describe(region);
    let start = Placement::Fixed(PageNum::new(region.start));
    space.map(pin, start, region.pages, mapping).map_err(|error| said(&error))?;
    for page in region.resident.iter().flat_map(|(first, pages)| *first..first + pages) {
        let address = PageNum::new(region.start + page).address().ok_or("no such page")?;
        space.fault(pin, address, access).map_err(|error| said(&error))?;
    }
    let pages = PageRange::new(PageNum::new(region.start), region.pages).ok_or("no such pages")?;
    space.protect(pin, pages, rights(region)).map_err(|error| said(&error))
}

/// Describes the region as it was while its pages were touched. A page without rights had some once.
fn describe(region: &Region) -> (Mapping, Access) {
    let rights = rights(region) | Prot::READ;
    match region.file {
        None => (Mapping::anonymous(rights | Prot::WRITE), Access::Write),
        // Pages of a mapping have the same difference between file page and page number.
        Some((file, page)) => {
            let backing = BackingNum::new(1 + (file << 36 ^ region.start.abs_diff(page)) % ((1 << 42) - 1));
            let map = if region.shared { Mapping::shared } else { Mapping::private };
            (map(rights, backing), Access::Read)
        }
    }
}

fn rights(region: &Region) -> Prot {
    let all = [Prot::READ, Prot::WRITE, Prot::EXEC].into_iter().zip(region.rights);
    all.filter(|(_, has)| *has).fold(Prot::NONE, |set, (right, _)| set | right)
}

/// Memory that consists of frame numbers only. It has no huge frames, because the snapshot counts single
/// pages.
#[derive(Default)]
struct Numbers(AtomicU64);

impl Numbers {
    fn next(&self) -> FrameNum {
        FrameNum::new(self.0.fetch_add(1, Relaxed))
    }
}

impl Frames for Numbers {
    fn alloc_zeroed(&self, _: &Pinned) -> Option<FrameNum> {
        Some(self.next())
    }

    fn alloc_copy(&self, _: &Pinned, _: FrameNum) -> Option<FrameNum> {
        Some(self.next())
    }

    fn free(&self, _: &Pinned, _: FrameNum) {}

    fn share(&self, _: &Pinned, _: FrameNum) {}

    fn adjust(&self, _: &Pinned, _: FrameNum, _: i64) {}

    fn unshare(&self, _: &Pinned, _: FrameNum) -> bool {
        false
    }
}

impl Backings for Numbers {
    fn frame(&self, _: &Pinned, _: BackingNum, _: PageNum, _: Access) -> Result<FrameNum, BackingError> {
        Ok(self.next())
    }

    fn adjust(&self, _: &Pinned, _: BackingNum, _: i64) {}

    fn placed(&self, _: &Pinned, _: BackingNum, _: PageNum) {}

    fn grown(&self, _: &Pinned, _: BackingNum, _: PageNum) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(text: &str) -> Cost {
        with(Tables::PerCore, text)
    }

    fn with(tables: Tables, text: &str) -> Cost {
        let head = "program test\nlinux vmas 1 vma_bytes 192 table_bytes 0\n";
        rebuild(&format!("{head}{text}").parse().unwrap(), tables).unwrap()
    }

    #[test]
    fn a_gigabyte_nobody_touched_is_one_slot() {
        let (empty, untouched) = (cost(""), cost("40000 262144 rw-p -\n"));
        assert_eq!(untouched.tables, 0);
        assert!(untouched.metadata <= empty.metadata + 3 * 8400, "{untouched:?} {empty:?}");
    }

    #[test]
    fn a_touched_page_costs_a_path_of_tables() {
        assert_eq!(cost("40000 262144 rw-p - 7+1\n").tables, 4 * 4096);
        assert_eq!(cost("40000 262144 rw-p - 7+1 512+1\n").tables, 5 * 4096);
    }

    #[test]
    fn pages_without_rights_keep_their_memory() {
        assert_eq!(cost("40000 512 ---p - 0+512\n").tables, 4 * 4096);
    }

    #[test]
    fn a_leaf_that_is_linked_is_counted_once() {
        let (own, linked) =
            [Tables::PerCore, Tables::Adaptive].map(|tables| with(tables, "40000 512 rw-p - 0+512\n")).into();
        assert_eq!((linked.metadata, linked.tables), (own.metadata, own.tables - 4096));
    }
}

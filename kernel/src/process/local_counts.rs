//! Regions of files whose reads a process counts in its own page table (`read_refs=lodic`): how a read finds
//! the place where a page of its file is mapped in its own process.
//!
//! LODIC calls this the reverse mapping in process space, and walks the mappings from the top of the address
//! space down, where the regions of files usually are. Here a process names the regions itself
//! ([`MADV_COUNT_READS`](abi::memory::MADV_COUNT_READS)), so only those are looked through, the newest first.
//!
//! A region is only a hint. It may be unmapped, moved, or replaced while it is read, half of it old and half
//! of it new: the entry of the page that it leads to shows the frame that is read, or the read is counted in
//! the frame's descriptor. So reads and changes need no lock between them, and a change writes no line that
//! must be right.
//!
//! A child of fork has the regions of its parent. Its page table is new, so it counts a page there once it
//! has touched it.

use alloc::sync::{Arc, Weak};
use core::mem;

use sync::SpinLock;
use sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use vm::{PageNum, PageRange};

use crate::arch::KnownTables;
use crate::fs::page_cache::PageCache;
use crate::mm::space::user_pages;

/// The most regions of one process. A new one takes the place of the oldest.
const MOST: usize = abi::reads::REGIONS;

/// The regions of one process.
pub struct LocalCounts {
    regions: [Region; MOST],
    /// Regions that were ever added. Relaxed: see the module.
    added: AtomicUsize,
    /// The files of the regions. They count this process among those that share them, each once.
    files: SpinLock<[Weak<PageCache>; MOST]>,
    /// The tables of its space in which reads have found entries.
    pub known: KnownTables,
}

/// Pages of a file, and the place of its page 0. Relaxed: see the module.
struct Region {
    /// The file's name, or 0.
    file: AtomicU64,
    first: AtomicU64,
    end: AtomicU64,
    base: AtomicU64,
}

impl LocalCounts {
    /// Creates a list without regions.
    pub const fn new() -> Self {
        Self {
            regions: [const { Region::new() }; MOST],
            added: AtomicUsize::new(0),
            files: SpinLock::new([const { Weak::new() }; MOST]),
            known: KnownTables::new(),
        }
    }

    /// Adds a region: `pages` show the file from page `first` on.
    pub fn add(&self, file: &Arc<PageCache>, first: u64, pages: PageRange) {
        let mut files = self.files.lock();
        let added = self.added.load(Ordering::Relaxed);
        let (Some(region), Some(place)) = (self.regions.get(added % MOST), files.get_mut(added % MOST))
        else {
            return;
        };
        region.set(file.name(), first, pages);
        self.added.store(added + 1, Ordering::Relaxed);
        // A table of the region that was replaced may be known.
        self.known.forget();
        let new = Arc::downgrade(file);
        let replaced = mem::replace(place, new.clone());
        let regions_of = |file: &Weak<PageCache>| files.iter().filter(|other| other.ptr_eq(file)).count();
        let is_new = regions_of(&new) == 1 && !replaced.ptr_eq(&new);
        let is_gone = regions_of(&replaced) == 0;
        // A file may be freed with the reference below, which must not happen under the lock.
        drop(files);
        if is_new {
            file.add_sharer(1);
        }
        if let Some(old) = replaced.upgrade().filter(|_| is_gone) {
            old.add_sharer(-1);
        }
    }

    /// Returns the page of the process that may show `page` of `file`.
    pub fn find(&self, file: u64, page: u64) -> Option<PageNum> {
        let added = self.added.load(Ordering::Relaxed);
        let newest_first = (0..added.min(MOST)).filter_map(|age| self.regions.get((added - 1 - age) % MOST));
        newest_first.filter_map(|region| region.find(file, page)).next()
    }

    /// Takes over the regions of `parent`, of whose memory this one's is a copy. It has none yet.
    pub fn inherit(&self, parent: &Self) {
        let files = {
            let files = parent.files.lock();
            self.regions.iter().zip(&parent.regions).for_each(|(mine, its)| mine.copy(its));
            self.added.store(parent.added.load(Ordering::Relaxed), Ordering::Relaxed);
            files.clone()
        };
        add_sharer(&files, 1);
        *self.files.lock() = files;
    }
}

impl Drop for LocalCounts {
    fn drop(&mut self) {
        let files = mem::replace(&mut *self.files.lock(), [const { Weak::new() }; MOST]);
        add_sharer(&files, -1);
    }
}

/// Adds to the sharers of each of the files, once. The caller holds no lock, because a file may be freed with
/// the reference that this takes.
fn add_sharer(files: &[Weak<PageCache>], by: i64) {
    for (at, file) in files.iter().enumerate() {
        let is_first = !files.iter().take(at).any(|before| before.ptr_eq(file));
        if let Some(file) = file.upgrade().filter(|_| is_first) {
            file.add_sharer(by);
        }
    }
}

impl Region {
    const fn new() -> Self {
        let [file, first, end, base] = [const { AtomicU64::new(0) }; 4];
        Self { file, first, end, base }
    }

    fn set(&self, file: u64, first: u64, pages: PageRange) {
        self.first.store(first, Ordering::Relaxed);
        self.end.store(first + pages.pages(), Ordering::Relaxed);
        self.base.store(pages.start().get().wrapping_sub(first), Ordering::Relaxed);
        self.file.store(file, Ordering::Relaxed);
    }

    fn copy(&self, other: &Self) {
        let words = [(&self.first, &other.first), (&self.end, &other.end), (&self.base, &other.base)];
        for (mine, its) in words.into_iter().chain([(&self.file, &other.file)]) {
            mine.store(its.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    fn find(&self, file: u64, page: u64) -> Option<PageNum> {
        let [name, first, end, base] =
            [&self.file, &self.first, &self.end, &self.base].map(|word| word.load(Ordering::Relaxed));
        let at = PageNum::new(base.wrapping_add(page));
        (name == file && (first..end).contains(&page) && user_pages().contains(at)).then_some(at)
    }
}

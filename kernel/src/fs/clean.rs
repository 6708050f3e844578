//! Clean pages: those of the boot image's files, which can be made again. When memory is short they are
//! dropped first, file by file.

use alloc::sync::Arc;
use alloc::vec::Vec;

use abi::Errno;
use sync::SpinLock;

use super::page_cache::PageCache;
use crate::counters::Counter;
use crate::mm::fallible;
use crate::mm::shrinkers::Shrinker;
use crate::mm::statistics::sum;

/// The pages that one call drops at least, if there are enough. One step drops at most a node of the page
/// tree.
const ENOUGH: u64 = 1024;
const STEP: u64 = 512;

/// Clean pages that stay: those that programs run on would be read back and dropped again for ever.
const WORKING_SET: i64 = 256;

/// The files of the boot image, and the file and page where the last round ended.
struct Files {
    all: Vec<Arc<PageCache>>,
    hand: (usize, u64),
}

static FILES: SpinLock<Files> = SpinLock::new(Files { all: Vec::new(), hand: (0, 0) });

/// Adds a file of the boot image.
pub fn add(file: &Arc<PageCache>) -> Result<(), Errno> {
    fallible::push(&mut FILES.lock().all, file.clone())
}

/// Removes a file, if it is there.
pub fn remove(file: &Arc<PageCache>) {
    let mut files = FILES.lock();
    if let Some(at) = files.all.iter().position(|other| Arc::ptr_eq(other, file)) {
        let _last = files.all.swap_remove(at);
        files.hand = (0, 0);
    }
}

/// The clean pages, which are dropped when memory is short.
pub struct CleanPages;

impl Shrinker for CleanPages {
    fn count(&self) -> u64 {
        (sum(Counter::CleanPages) - WORKING_SET).max(0) as u64
    }

    /// Drops pages, mapped or not, from where the last round ended. Drops none if another core is dropping
    /// pages.
    fn shrink(&self) -> u64 {
        FILES.try_lock().map_or(0, |mut files| files.drop_some())
    }
}

impl Files {
    fn drop_some(&mut self) -> u64 {
        let mut dropped = 0;
        for _ in 0..=self.all.len() {
            dropped += self.drop_of_one(ENOUGH - dropped);
            if dropped >= ENOUGH {
                break;
            }
        }
        dropped
    }

    /// Drops about `wanted` pages of the file at the hand, and moves the hand to the next file if it has no
    /// more.
    fn drop_of_one(&mut self, wanted: u64) -> u64 {
        let (at, mut page) = self.hand;
        let Some(file) = self.all.get(at) else {
            self.hand = (0, 0);
            return 0;
        };
        let mut dropped = 0;
        while let Some(first) = file.first_page(page).filter(|_| dropped < wanted) {
            page = (first / STEP + 1) * STEP;
            dropped += file.reclaim(first..page);
        }
        self.hand = if dropped < wanted { (at + 1, 0) } else { (at, page) };
        dropped
    }
}

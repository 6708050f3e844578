//! What would come back if a process went: its own pages, compressed ones as if they were in memory, and all of the
//! shared memory and files without a name that it maps or has open, mapped or not.
//!
//! Memory that several hold counts for each of them, once: it comes back when the last one goes. Files with a name stay, and
//! pages of the boot image go without anybody's end, so neither counts.

use sync::atomic::{AtomicU64, Ordering};
use vm::Detail;

use super::{Memory, Process};
use crate::fs::FdTable;
use crate::fs::content::Content;

/// The number of the last weighing. Relaxed: only uniqueness matters. Two at once may count a file twice.
static WEIGHINGS: AtomicU64 = AtomicU64::new(0);

impl Process {
    /// In pages; 0 once its threads are gone.
    pub fn weight(&self) -> u64 {
        let weighing = WEIGHINGS.fetch_add(1, Ordering::Relaxed) + 1;
        let own = self.memory().map_or(0, |memory| memory.weigh(weighing));
        let mut open = 0;
        let mut next = self.next_tid(0);
        while let Some(tid) = next {
            open += self.thread(tid).map_or(0, |task| weigh_open(&task.shared().files, weighing));
            next = self.next_tid(tid + 1);
        }
        own + open
    }
}

impl Memory {
    fn weigh(&self, weighing: u64) -> u64 {
        let mut pages = 0;
        self.each_part(Detail::Resident, |region, shown| {
            pages += region.resident.own() + shown.map_or(0, |shown| shown.pages().weigh(weighing));
        });
        pages
    }
}

fn weigh_open(files: &FdTable, weighing: u64) -> u64 {
    let open = core::iter::successors(files.next_open(0), |&fd| files.next_open(fd + 1));
    open.filter_map(|fd| files.get(fd as i32).ok())
        .map(|file| file.node().content().and_then(Content::pages).map_or(0, |pages| pages.weigh(weighing)))
        .sum()
}

//! The badness of a process, in pages, as Linux calls it: what would come back if the process went.
//!
//! That is its own pages, compressed ones as if they were in memory, and all of the shared memory and files
//! without a name that it maps or has open, mapped or not. It is also what the kernel has for it: its page
//! tables, the nodes of its map, and what each thread needs, a kernel stack above all.
//!
//! Memory that several hold counts for each of them, once: it comes back when the last one goes. Files with a name stay, and
//! pages of the boot image go without anybody's end, so neither counts.

use alloc::sync::Arc;

use sync::atomic::{AtomicU64, Ordering};
use vm::{Detail, PAGE_SIZE};

use super::{Memory, Process};
use crate::arch::{FpuState, KernelStack};
use crate::fs::FdTable;
use crate::fs::content::Content;
use crate::sched::Task;

/// The number of the last scan. Relaxed: only uniqueness matters. Two at once may count a file twice.
static SCANS: AtomicU64 = AtomicU64::new(0);

/// Frames that the kernel has for a thread: its stack, its vector registers, its task.
const THREAD: u64 = KernelStack::FRAMES + (size_of::<FpuState>() + size_of::<Task>()).div_ceil(PAGE) as u64;
const PAGE: usize = PAGE_SIZE as usize;

impl Process {
    /// Returns how many pages would come back if it went; 0 once its threads are gone.
    pub fn oom_badness(&self) -> u64 {
        let scan = SCANS.fetch_add(1, Ordering::Relaxed) + 1;
        let memory = self.memory().map_or(0, |memory| memory.oom_badness(scan));
        memory + self.count_threads() as u64 * THREAD + self.open_badness(scan)
    }

    /// Counts what its threads have open, whose tables of descriptors are mostly one and the same.
    fn open_badness(&self, scan: u64) -> u64 {
        let (mut open, mut last) = (0, None);
        let mut next = self.first_thread_from(0);
        while let Some(task) = next {
            let files = &task.shared().files;
            if !last.as_ref().is_some_and(|last| Arc::ptr_eq(last, files)) {
                open += open_badness(files, scan);
                last = Some(files.clone());
            }
            next = self.first_thread_from(task.tid() + 1);
        }
        open
    }
}

impl Memory {
    fn oom_badness(&self, scan: u64) -> u64 {
        let mut pages = self.space.table_pages() + self.space.nodes().total().live();
        self.each_part(Detail::Resident, |region, shown| {
            pages += region.resident.own() + shown.map_or(0, |shown| shown.pages().count_once(scan));
        });
        pages
    }
}

fn open_badness(files: &FdTable, scan: u64) -> u64 {
    let open = core::iter::successors(files.next_open(0), |&fd| files.next_open(fd + 1));
    open.filter_map(|fd| files.get(fd as i32).ok())
        .map(|file| file.node().content().and_then(Content::pages).map_or(0, |pages| pages.count_once(scan)))
        .sum()
}

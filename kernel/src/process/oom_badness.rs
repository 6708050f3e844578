//! The badness of a process (Linux's word): the number of pages that would be freed if the process ended.
//!
//! It counts the process's own pages, compressed ones as if they were in memory, and all pages of the shared
//! memory and of the unnamed files that it maps or has open, mapped or not. It also counts the kernel's
//! memory for it: its page tables, the nodes of its map, and the memory of each thread, which is mostly the
//! kernel stack.
//!
//! Memory that several processes hold counts once for each of them, because it is freed with the last one.
//! Files with a name stay, and pages of the boot image can be dropped without ending a process, so neither
//! counts.

use alloc::sync::Arc;

use sync::atomic::{AtomicU64, Ordering};
use vm::{Detail, PAGE_SIZE};

use super::{Memory, Process};
use crate::arch::{FpuState, KernelStack};
use crate::fs::FdTable;
use crate::fs::content::Content;
use crate::sched::Task;

/// The number of the last scan. Relaxed: only uniqueness matters. Two scans at once may count a file twice.
static SCANS: AtomicU64 = AtomicU64::new(0);

/// The frames that the kernel needs for a thread: its stack, its vector registers, its task.
const THREAD: u64 = KernelStack::FRAMES + (size_of::<FpuState>() + size_of::<Task>()).div_ceil(PAGE) as u64;
const PAGE: usize = PAGE_SIZE as usize;

impl Process {
    /// Returns how many pages would be freed if it ended, or 0 once its threads are gone.
    pub fn oom_badness(&self) -> u64 {
        let scan = SCANS.fetch_add(1, Ordering::Relaxed) + 1;
        let memory = self.memory().map_or(0, |memory| memory.oom_badness(scan));
        memory + self.count_threads() as u64 * THREAD + self.open_badness(scan)
    }

    /// Counts the open files of its threads. Most threads share one table of descriptors.
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

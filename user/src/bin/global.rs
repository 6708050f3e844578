//! Each thread maps its part of a large region, then all threads write to all pages of the large region, in
//! random order, then each thread unmaps its part.
//!
//! This is the pattern of a widely shared library or hash table, and the worst case of the design: every page
//! is seen by every core, so per-core tables fault once per page and core, and each unmap interrupts all the
//! others.

use programs::benchmark::Options;
use programs::memory::{self, PAGE, PRIVATE, READ_WRITE};
use programs::random::Random;
use programs::require;

const USAGE: &str = "usage: global [OPTIONS]\nEach thread maps its part of a large region, all threads write to all of its\n\
                     pages in random order, each thread unmaps its part.";

/// The large region: the parts of all threads, side by side.
struct Shared {
    address: usize,
    part: usize,
}

impl Shared {
    /// Reserves room for the region. The first maps replace the reservation. Afterwards only the parts are
    /// mapped in the measured window, so the room stays free between rounds.
    fn reserve(threads: usize, part: usize) -> Shared {
        let address = require(memory::map(threads * part, libc::PROT_NONE), "mmap of the whole region");
        Shared { address, part }
    }

    fn map_part(&self, index: usize) {
        let (address, flags) = (self.address + index * self.part, PRIVATE | libc::MAP_FIXED);
        // SAFETY: the part is this thread's, and no thread writes to the region before all parts are mapped.
        require(unsafe { memory::map_at(address, self.part, READ_WRITE, flags) }, "mmap");
    }

    fn unmap_part(&self, index: usize) {
        // SAFETY: the part is this thread's, and all threads have finished writing to the region.
        require(unsafe { memory::unmap(self.address + index * self.part, self.part) }, "munmap");
    }

    /// Writes the thread's own word of every page, so that no two threads write to the same one.
    fn write(&self, order: &[usize], index: usize) {
        for page in order {
            let place = (self.address + page * PAGE) as *mut u64;
            // SAFETY: every part is mapped, a page has 512 words, and there are at most 256 threads.
            unsafe { place.add(index).write_volatile(*page as u64) };
        }
    }
}

fn main() {
    let options = Options::parse(USAGE, 16, 100);
    let shared = Shared::reserve(options.threads, options.pages * PAGE);
    let all = options.threads * options.pages;
    let orders: Vec<_> = (0..options.threads).map(|i| Random::new(i as u64).permutation(all)).collect();
    options.run("global", |worker, _| {
        shared.map_part(worker.index);
        worker.barrier.wait();
        shared.write(&orders[worker.index], worker.index);
        worker.barrier.wait();
        shared.unmap_part(worker.index);
    });
}

//! Each thread maps a region, writes to all of its pages and passes it to the next thread, which also writes
//! to all of its pages and unmaps it.
//!
//! This is the pattern of streaming computations. A page is seen by two cores, so an unmap must interrupt
//! exactly one other core. The hand-over is a mailbox per thread, alone on its cache line, so that two
//! threads share only the region itself and one line.

use programs::benchmark::Options;
use programs::memory::Region;
use programs::require;
use programs::spin::{Line, Spin};
use std::sync::atomic::{AtomicUsize, Ordering::*};

const USAGE: &str = "usage: pipeline [OPTIONS]\nEach thread maps a region, writes to all of its pages, passes it on;\n\
                     the next thread writes to all of them again and unmaps it.";

/// The address of the region handed over, or 0 if there is none.
type Mailbox = Line<AtomicUsize>;

fn put(mailbox: &Mailbox, region: Region, crowded: bool) {
    let mut spin = Spin::new(crowded);
    // Acquire: pairs with the Release in `take`. The writer may use the box again once its reader has emptied
    // it.
    while mailbox.0.load(Acquire) != 0 {
        spin.turn();
    }
    // Release: pairs with the Acquire in `take`. The reader sees what this thread wrote to the pages.
    mailbox.0.store(region.into_address(), Release);
}

fn take(mailbox: &Mailbox, pages: usize, crowded: bool) -> Region {
    let mut spin = Spin::new(crowded);
    loop {
        // Acquire: pairs with the Release in `put`.
        let address = mailbox.0.load(Acquire);
        if address != 0 {
            // Release: pairs with the Acquire in `put`.
            mailbox.0.store(0, Release);
            // SAFETY: `put` stored a region of this size, and only this thread empties the box.
            return unsafe { Region::from_address(address, pages) };
        }
        spin.turn();
    }
}

fn main() {
    let options = Options::parse(USAGE, 1, 10_000);
    let mailboxes: Vec<Mailbox> = (0..options.threads).map(|_| Mailbox::default()).collect();
    options.run("pipeline", |worker, round| {
        let next = (worker.index + 1) % options.threads;
        let mut region = require(Region::map(options.pages), "mmap");
        region.write(round);
        put(&mailboxes[next], region, worker.crowded);
        let mut region = take(&mailboxes[worker.index], options.pages, worker.crowded);
        region.write(!round);
        require(region.unmap(), "munmap");
    });
}

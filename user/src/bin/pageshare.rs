//! All threads map one page of one file, read it and unmap it, each at an address of its own.
//!
//! RadixVM's figure 8. Only the page is shared, so the threads contend for the counts by which the kernel
//! knows whether it is still used: that of the page, and those of the file and its descriptor. With --keep a
//! thread keeps its mapping and only drops the page, which leaves the count of the page alone.

use programs::benchmark::{Options, Program};
use programs::memory::{PAGE, discard, file, map_file_at, unmap};
use programs::require;
use serde_json::{Map, json};
use std::os::fd::OwnedFd;

const PROGRAM: Program = Program {
    usage: "usage: pageshare [OPTIONS]\nAll threads map one page of one file, read it and unmap it.",
    options: "  --keep          keep the mapping; only the page is given back (MADV_DONTNEED) and read again\n",
    pages: (0, 0),
    iterations: 10_000,
};

/// A thread's own mapping of the page.
struct View(usize);

impl View {
    fn map(file: &OwnedFd) -> View {
        let (anywhere, read) = ((0, PAGE), libc::PROT_READ);
        // SAFETY: without MAP_FIXED no mapping is replaced, and the file is not written.
        View(require(unsafe { map_file_at(anywhere, read, libc::MAP_SHARED, file, 0) }, "mmap"))
    }

    fn read(&self) {
        // SAFETY: the page is mapped for reading while the view lives, and within the file.
        unsafe { (self.0 as *const u64).read_volatile() };
    }

    fn give_back(&self) {
        // SAFETY: there are no references into it.
        require(unsafe { discard(self.0, PAGE) }, "madvise");
    }

    fn unmap(self) {
        // SAFETY: as for `give_back`, and the view ends here.
        require(unsafe { unmap(self.0, PAGE) }, "munmap");
    }
}

fn main() {
    let (options, keep) = Options::parse_with(&PROGRAM, |args, _| Ok(args.flag("--keep")));
    let file = require(file(PAGE), "memfd_create");
    let more = Map::from_iter([("keep".to_string(), json!(keep))]);
    let prepare = || keep.then(|| View::map(&file));
    options.run_with(
        "pageshare",
        more,
        |_| prepare(),
        |_, kept, _| match kept {
            Some(view) => {
                view.read();
                view.give_back();
            }
            None => {
                let view = View::map(&file);
                view.read();
                view.unmap();
            }
        },
    );
}

//! All threads map one page of one file, read it and unmap it, each at an address of its own.
//!
//! RadixVM's figure 8. Only the page is shared, so the threads contend for the counts by which the kernel
//! knows whether it is still used: that of the page, and those of the file and its descriptor. With --again a
//! thread names no descriptor: it maps a second time what its own mapping shows. With --keep a
//! thread keeps its mapping and only drops the page, which leaves the count of the page alone.

use programs::args::{Args, Parsed};
use programs::benchmark::{Options, Program};
use programs::memory::{PAGE, discard, file, map_again, map_file_at, unmap};
use programs::require;
use serde_json::{Map, json};
use std::os::fd::OwnedFd;

const PROGRAM: Program = Program {
    usage: "usage: pageshare [OPTIONS]\nAll threads map one page of one file, read it and unmap it.",
    options: "  --again         map again what the thread's own mapping shows (mremap), without a descriptor\n  \
         --keep          keep the mapping; only the page is given back (MADV_DONTNEED) and read again\n",
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

    fn again(&self) -> View {
        // SAFETY: as for `map`.
        View(require(unsafe { map_again(self.0, PAGE) }, "mremap"))
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

/// The use that a thread makes of the page.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Maps it from the file.
    Map,
    /// Maps it from its own mapping.
    Again,
    /// Drops and reads it.
    Keep,
}

fn kind(args: &mut Args) -> Parsed<Kind> {
    match (args.flag("--again"), args.flag("--keep")) {
        (true, true) => Err("--again or --keep".to_string()),
        (true, false) => Ok(Kind::Again),
        (false, true) => Ok(Kind::Keep),
        (false, false) => Ok(Kind::Map),
    }
}

fn main() {
    let (options, kind) = Options::parse_with(&PROGRAM, |args, _| kind(args));
    let file = require(file(PAGE), "memfd_create");
    let more = Map::from_iter([
        ("keep".to_string(), json!(kind == Kind::Keep)),
        ("again".to_string(), json!(kind == Kind::Again)),
    ]);
    options.run_with(
        "pageshare",
        more,
        |_| (kind != Kind::Map).then(|| View::map(&file)),
        |_, kept, _| match kept {
            Some(view) if kind == Kind::Keep => {
                view.read();
                view.give_back();
            }
            Some(view) => use_once(view.again()),
            None => use_once(View::map(&file)),
        },
    );
}

fn use_once(view: View) {
    view.read();
    view.unmap();
}

//! Each process makes a child that ends at once, and waits for it. With `--exec` the child runs another
//! program first.
//!
//! This is the pattern of shells and builds. The processes share nothing, so kernels without a global lock on
//! this path need not make one wait for another.

use programs::benchmark::{Options, Program};
use programs::processes::{exit, spawn, wait};
use programs::require;
use std::ffi::CString;

const PROGRAM: Program = Program {
    usage: "usage: forkexit [OPTIONS]\nEach process makes children, one at a time, which end at once.",
    options: "  --exec          children run another program, which ends at once\n",
    pages: (0, 0),
    iterations: 1000,
};

/// The word that makes this program end at once.
const END: &str = "--end-at-once";

/// Runs this program again, to end at once.
fn run_other() {
    let words = ["forkexit", END].map(|word| CString::new(word).expect("no NUL in it"));
    let pointers = [words[0].as_ptr(), words[1].as_ptr(), std::ptr::null()];
    // SAFETY: the words live until the call, which returns only if it fails.
    unsafe { libc::execv(c"/proc/self/exe".as_ptr(), pointers.as_ptr()) };
    exit(1);
}

fn main() {
    if std::env::args().nth(1).is_some_and(|word| word == END) {
        exit(0);
    }
    let (options, executes) = Options::parse_with(&PROGRAM, |args, _| Ok(args.flag("--exec")));
    let round = |_: &mut (), _| {
        let child = require(
            spawn(|| {
                if executes {
                    run_other()
                }
            }),
            "fork",
        );
        assert_eq!(require(wait(child), "waitpid"), Some(0), "a child failed");
    };
    options.run_processes("forkexit", |_| (), round);
}

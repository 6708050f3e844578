//! Each thread reads a page of one open file into a buffer of its own, always the same page.
//!
//! The threads share the descriptor, the open file and the page, and change none of them. So a round moves a
//! line only if the kernel counts or locks what a call uses.

use std::env;
use std::fs::File;
use std::os::unix::fs::FileExt;

use programs::benchmark::{Options, Program};
use programs::memory::PAGE;
use programs::require;
use serde_json::Map;

const PROGRAM: Program = Program {
    usage: "usage: readers [OPTIONS]\nEach thread reads pages of one open file, which has as many pages.",
    options: "",
    pages: (1, 64),
    iterations: 10_000,
};

/// Makes a file of `pages` pages that has no name any more.
fn file_of(pages: usize) -> File {
    let path = env::temp_dir().join(format!("readers-{}", std::process::id()));
    require(std::fs::write(&path, vec![7; pages * PAGE]), "writing the file");
    let file = require(File::open(&path), "opening the file");
    require(std::fs::remove_file(&path), "removing the file's name");
    file
}

fn main() {
    let (options, ()) = Options::parse_with(&PROGRAM, |_, _| Ok(()));
    let file = file_of(options.pages);
    options.run_with(
        "readers",
        Map::new(),
        |_| vec![0; options.pages * PAGE],
        |_, buffer, _| require(file.read_exact_at(buffer, 0), "pread"),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_its_pages_and_no_name() {
        let file = file_of(2);
        let mut buffer = [0; 2 * PAGE];
        file.read_exact_at(&mut buffer, 0).unwrap();
        assert!(buffer.iter().all(|&byte| byte == 7));
        assert_eq!(file.metadata().unwrap().len(), 2 * PAGE as u64);
    }
}

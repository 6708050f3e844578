//! Checks that unsafe code is in a few rooms only.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::root;

/// Folders and files that may say `unsafe`: the concurrency crates, the parts of the baselines that need it,
/// the machine, and the kernel's memory (frames, heap, the copies to and from user memory). The programs for
/// guests call libc. The meter has functions that QEMU calls, and calls the host. The runtime for stock Linux
/// makes system calls and enters programs. The allocator's functions get C's pointers. The tests have
/// allocators of their own.
const ROOMS: [&str; 19] = [
    "crates/sync/",
    "crates/percore/",
    "crates/refcache/",
    "crates/radixmap/",
    "crates/rcu/",
    "crates/bonsai/",
    "crates/iamalloc/",
    "crates/baselines/src/skiplist/",
    "crates/baselines/src/counters/deltas.rs",
    "crates/baselines/tests/",
    "kernel/src/arch/",
    "kernel/src/mm/",
    "user/",
    "meter/src/plugin/",
    "meter/src/host.rs",
    "meter/src/directory/line.rs",
    "crates/test-memory/",
    "pathreads/src/runtime/",
    "malloc/",
];

/// Returns whether no file outside the rooms has unsafe code, and prints the files that do.
pub fn check() -> Result<bool> {
    let root = root();
    let mut files = Vec::new();
    for folder in [
        "crates",
        "kernel",
        "abi",
        "firmware",
        "commute",
        "user",
        "meter",
        "cli",
        "lab",
        "pathreads",
        "malloc",
        "xtask",
    ] {
        sources(&root.join(folder), &mut files)?;
    }
    let mut good = true;
    for file in files {
        let name = file.strip_prefix(&root).unwrap_or(&file).to_string_lossy().into_owned();
        if ROOMS.iter().any(|room| name.starts_with(room)) {
            continue;
        }
        for line in unsafe_lines(&fs::read_to_string(&file)?) {
            println!("{name}:{line}: unsafe code outside its rooms");
            good = false;
        }
    }
    Ok(good)
}

/// Adds the Rust files in `folder` and the folders in it.
pub fn sources(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            sources(&path, files)?;
        } else if path.extension().is_some_and(|end| end == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// Returns the numbers of the lines with the keyword in code: not in a comment, not as a part of another
/// word, not quoted.
fn unsafe_lines(text: &str) -> Vec<usize> {
    let has_keyword = |line: &str| {
        let code = line.split("//").next().unwrap_or("");
        let unquoted = code.split('"').step_by(2);
        unquoted
            .flat_map(|part| part.split(|c: char| !c.is_alphanumeric() && c != '_'))
            .any(|word| word == "unsafe")
    };
    text.lines().enumerate().filter(|(_, line)| has_keyword(line)).map(|(number, _)| number + 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_keyword_counts() {
        let text = "#![forbid(unsafe_code)]\n// unsafe\nlet x = \"unsafe\";\nunsafe { x }\nlet y = 1; // unsafe\nunsafe fn f() {}";
        assert_eq!(unsafe_lines(text), [4, 6]);
    }
}

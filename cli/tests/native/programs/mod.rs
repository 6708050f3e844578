//! Programs of the distribution print the same as without the runtime. Those that are not installed are
//! skipped.

mod compressors;
mod languages;
mod media;
mod redis;
mod stress;
mod wasm;

use std::path::Path;

use super::skipped::skip;
use super::{WAYS, in_way, see};

/// Lines that compress and sort well.
fn sample() -> String {
    (0..60_000_u64).map(|number| format!("{} line {number}\n", number * 7919 % 60_013)).collect()
}

fn is_installed(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(program).is_file())
}

/// Runs a shell's line in each way: the shell, and by it all that it starts. The file `sample` lies beside.
fn compare(program: &str, line: &str) {
    compare_with(program, &[], line);
}

/// Does the same with more files beside, of which the names and the text are given.
fn compare_with(program: &str, files: &[(&str, &str)], line: &str) {
    if !is_installed(program) {
        return skip(&format!("{program} is not installed here"));
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("sample"), sample()).unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let [plain, pool, strict] = WAYS.map(|way| run(way, line, folder.path()));
    assert_eq!(plain.status, Some(0), "{plain:?}");
    assert_eq!(plain, pool, "{program} with the pool");
    assert_eq!(plain, strict, "{program} strictly");
    assert_eq!(plain, run(&["--isolate"], line, folder.path()), "{program} isolated");
}

fn run(way: &[&str], line: &str, folder: &Path) -> super::Seen {
    let mut command = in_way(way, "sh");
    command.args(["-e", "-c", line]).current_dir(folder);
    see(command)
}

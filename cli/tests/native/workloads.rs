//! The workloads of the paper's table 1 print the same in every way, with any number of threads.

use std::path::Path;

use super::{Seen, WAYS, in_way, see};

/// A line of words for each number, which workloads of files read as text, pixels or points.
fn sample() -> String {
    let word = |number: u64| ["address", "space", "thread", "fault", "lock"][(number * number % 5) as usize];
    (0..200_000).map(|number| format!("{}\n{}\n", word(number), number % 30_011)).collect()
}

fn run(way: &[&str], program: &Path, words: &[&str], preload: Option<&Path>) -> Seen {
    let mut command = in_way(way, program);
    if let Some(library) = preload {
        command.env("LD_PRELOAD", library);
    }
    command.args(words);
    see(command)
}

fn compare(name: &str, size: Option<u64>) {
    let program = launch::artifacts::workload(name).expect("the workload can be built");
    let malloc = launch::artifacts::malloc().expect("the allocator can be built");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sample");
    std::fs::write(&file, sample()).unwrap();
    let input = match size {
        Some(size) => vec!["--size".to_owned(), size.to_string()],
        None => vec![file.display().to_string()],
    };
    let words = |threads: &'static str| {
        ["--threads", threads].into_iter().chain(input.iter().map(String::as_str)).collect::<Vec<_>>()
    };
    let expected = run(&[], &program, &words("1"), None);
    assert!(expected.status == Some(0) && expected.text.starts_with(name), "{expected:?}");
    for way in WAYS.into_iter().chain([&["--isolate"][..]]) {
        assert_eq!(expected, run(way, &program, &words("3"), None), "{way:?}");
    }
    assert_eq!(expected, run(&["--isolate"], &program, &words("7"), Some(&malloc)), "with IAmalloc");
}

#[test]
fn string_match() {
    compare("string_match", None);
}

#[test]
fn histogram() {
    compare("histogram", None);
}

#[test]
fn linear_regression() {
    compare("linear_regression", None);
}

#[test]
fn dedup() {
    compare("dedup", None);
}

#[test]
fn matrix_multiply() {
    compare("matrix_multiply", Some(200));
}

#[test]
fn kmeans() {
    compare("kmeans", Some(2000));
}

#[test]
fn pca() {
    compare("pca", Some(200));
}

#[test]
fn swaptions() {
    compare("swaptions", Some(100));
}

#[test]
fn fluidanimate() {
    compare("fluidanimate", Some(3000));
}

#[test]
fn blackscholes() {
    compare("blackscholes", Some(500));
}

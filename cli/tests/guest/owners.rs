//! The kernel's option `meter`: the report of the owners of memory at the end.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::{dry_run_turn, radixvm};

/// A range of bytes and its kind.
type Range = (u64, u64, String);

/// Returns the control lines of a run of `local` with this word added to the kernel's command line.
fn control(tables: &str, word: &str) -> Vec<Value> {
    let _turn = dry_run_turn();
    let words = ["run", "--dry-run", "-c", "4", "-m", "256M", "--tables", tables];
    let local = ["local", "--threads", "4", "--iterations", "50"];
    let output = radixvm().args(words).args(local).output().unwrap();
    let line = String::from_utf8(output.stdout).unwrap().replace(" stats", &format!(" stats{word}"));
    let output =
        Command::new("timeout").args(["600", "sh", "-c", &line]).stdin(Stdio::null()).output().unwrap();
    assert!(output.stdout.starts_with(b"local: 4 threads"), "{output:?}");
    let control = line.split("id=com2,path=").nth(1).and_then(|rest| rest.split([' ', '\'']).next()).unwrap();
    let text = fs::read_to_string(control).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn ranges(lines: &[Value]) -> Vec<Range> {
    let owners: Vec<_> = lines.iter().filter(|line| line["type"] == "owners").collect();
    assert_eq!(owners.len(), 1);
    let number =
        |text: &Value| u64::from_str_radix(text.as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
    let range = |range: &Value| (number(&range[0]), number(&range[1]), range[2].as_str().unwrap().to_owned());
    owners[0]["ranges"].as_array().unwrap().iter().map(range).collect()
}

fn bytes_of(ranges: &[Range], kind: &str) -> u64 {
    ranges.iter().filter(|range| range.2 == kind).map(|(start, end, _)| end - start).sum()
}

/// Checks that every kind is there, and all memory. Returns the bytes of the program's page tables.
fn named(tables: &str) -> u64 {
    let ranges = ranges(&control(tables, " meter"));
    for kind in
        ["process", "space", "tables", "percpu:0", "percpu:3", "idle-stack:1", "image", "pool", "stack"]
    {
        assert!(bytes_of(&ranges, kind) > 0, "no {kind}: {ranges:?}");
    }
    for kind in ["frame", "table", "kernel-table", "node", "slab:64"] {
        assert!(bytes_of(&ranges, kind) >= 4096, "no {kind}: {ranges:?}");
    }
    assert!(bytes_of(&ranges, "free") > 200 << 20);
    // The ranges from address 0 on have no hole.
    let whole = &ranges[ranges.iter().position(|range| range.0 == 0).unwrap()..];
    assert!(whole.windows(2).all(|pair| pair[0].1 == pair[1].0 && pair[0].2 != pair[1].2), "{whole:?}");
    bytes_of(&ranges, "table")
}

#[test]
fn all_memory_has_an_owner() {
    let (percore, shared) = (named("percore"), named("shared"));
    assert!(percore > 2 * shared, "page tables: {percore} bytes for four cores, {shared} for one table");
}

#[test]
fn nobody_is_told_without_the_option() {
    let lines = control("percore", "");
    assert!(lines.iter().all(|line| line["type"] != "owners") && lines.last().unwrap()["type"] == "exit");
}

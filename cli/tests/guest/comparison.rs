//! RadixVM beside stock Linux: the reports of the bench and the demo.

use std::fs;

use serde_json::Value;

use crate::harness::{bench, radixvm, scratch, unless_busy};
use crate::meter::{contend, number};

#[test]
fn a_local_round_takes_at_most_half_of_the_instructions_that_linux_takes() {
    let folder = scratch("bench");
    let (json, svg) = (folder.join("micro.json"), folder.join("micro.svg"));
    let files = ["--json", json.to_str().unwrap(), "--svg", svg.to_str().unwrap()];
    let output = bench("1800").args(["micro", "--quick", "--cpus", "1"]).args(files).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let rows: Vec<Value> = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    assert_eq!(rows.len(), 3 * 3);
    assert!(fs::read_to_string(svg).unwrap().contains("stock Linux"));
    let instructions = |system: &str, tables: Value| {
        let same = |row: &&Value| row["system"] == system && row["tables"] == tables && row["cpus"] == 1;
        let row = rows.iter().filter(|row| row["program"] == "local").find(same).unwrap();
        row["instructions"]["median"].as_f64().unwrap_or_else(|| panic!("not measured: {row}"))
    };
    let (ours, linux) = (instructions("radixvm", "percore".into()), instructions("linux", Value::Null));
    assert!(2.0 * ours <= linux, "{ours} against {linux}");
    assert!(rows.iter().all(|row| row["transfers"]["median"].is_number()));
}

/// Measures each kind of tables that a core can have to itself.
#[test]
fn neither_fork_nor_exec_takes_more_instructions_than_on_linux() {
    for (name, words, most) in [("fork", &["forkexit"][..], 0.95), ("exec", &["forkexit", "--exec"], 0.7)] {
        let rows = contend(name, &["--systems", "percore,adaptive,linux", "--cpus", "1"], words);
        let [percore, adaptive, linux] = [0, 1, 2].map(|at| number(&rows[at], "instructions", "median"));
        assert!(percore <= most * linux && adaptive <= most * linux, "{rows:?}");
    }
}

#[test]
fn the_demo_compares_and_both_indexes_agree() {
    let output = unless_busy(|| radixvm().args(["demo", "--repeats", "1"]).output().unwrap());
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for word in [
        "wordindex on RadixVM",
        "local on stock Linux",
        "instructions",
        "transfers",
        "the same index",
        "shootdowns",
    ] {
        assert!(text.contains(word), "no {word} in {text}");
    }
}

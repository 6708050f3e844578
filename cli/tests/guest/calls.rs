//! The cost of system calls, as a multiple of the cost on stock Linux. The table of calls
//! (`lab/src/calls.rs`) has a target for each, and the present cost if that is higher.

use std::fs;
use std::io::{Write, stderr};

use serde_json::Value;

use crate::harness::{bench, scratch};

/// Seconds for two guests per call.
const LIMIT: &str = "3000";

#[test]
fn calls_cost_no_more_than_is_said() {
    let json = scratch("calls").join("calls.json");
    let output = bench(LIMIT).args(["calls", "--json"]).arg(&json).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows: Vec<Value> = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    assert!(rows.len() >= 25, "{rows:?}");
    let dearer: Vec<String> = rows.iter().filter_map(dearer).collect();
    assert!(dearer.is_empty(), "dearer than their limits: {dearer:#?}");
}

/// Prints the cost of a call and its limit, and returns them if the cost is higher. A target that is not
/// reached is printed even if the test passes, without the harness, which captures output.
fn dearer(row: &Value) -> Option<String> {
    let number = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("no {name}: {row}"));
    let (ratio, limit, target) = (number("ratio"), number("limit"), number("target"));
    assert!(ratio > 0.0 && limit >= target, "{row}");
    let text =
        format!("{}: {ratio:.2} of Linux's instructions, limit {limit}, to reach {target}", row["call"]);
    if limit > target {
        let note = if ratio <= target { " (reached: take its limit away)" } else { "" };
        let _nobody_reads = writeln!(stderr(), "open: {text}{note}");
    }
    (ratio > limit).then_some(text)
}

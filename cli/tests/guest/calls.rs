//! The cost of system calls, as a multiple of the cost on stock Linux. The table of calls
//! (`lab/src/calls.rs`) has a limit for each.

use std::fs;

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

/// Returns the cost of a call and its limit if the cost is higher.
fn dearer(row: &Value) -> Option<String> {
    let number = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("no {name}: {row}"));
    let (ratio, limit) = (number("ratio"), number("limit"));
    assert!(ratio > 0.0, "{row}");
    (ratio > limit).then(|| format!("{}: {ratio:.2} of Linux's instructions, limit {limit}", row["call"]))
}

//! Tests of pairs of calls that commute: results are the model's, and pairs that share nothing stay so.

use std::fs;

use serde_json::Value;

use crate::harness::{radixvm, radixvm_within, scratch};

/// Every how many of the tests run here.
const EVERY: &str = "9";
/// The least percentage of these that is free of conflicts.
const FREE: usize = 90;

/// Returns the outcomes of `radixvm commute OPTIONS`, whose results must be the model's.
fn outcomes(name: &str, options: &[&str]) -> Vec<Value> {
    let json = scratch("commute").join(name).with_extension("json");
    let file = json.display().to_string();
    let output =
        radixvm_within("3600").arg("commute").args(options).args(["--json", &file]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&fs::read(json).unwrap()).unwrap()
}

fn is_free(outcome: &Value) -> bool {
    outcome["conflicts"] == 0 && outcome["interrupts"] == 0
}

#[test]
fn calls_that_commute_have_the_results_of_the_model() {
    let found = outcomes("sample", &["--systems", "adaptive", "--every", EVERY]);
    assert!(found.len() >= 200, "{} tests", found.len());
    let free = found.iter().filter(|outcome| is_free(outcome)).count();
    let percent = 100 * free / found.len();
    assert!(percent >= FREE, "{free} of {} tests are free of conflicts", found.len());
}

/// Loads and stores to pages of their own, in tables that the setup has filled, touch no kernel line. Threads
/// may link a leaf of the process once more, so this asks for processes.
#[test]
fn accesses_of_processes_share_nothing() {
    let all = outcomes("memory", &["--systems", "adaptive", "--only", "store,load"]);
    let of_processes = |outcome: &&Value| outcome["key"].as_str().unwrap().starts_with("processes/");
    let found: Vec<&Value> = all.iter().filter(of_processes).collect();
    assert!(!found.is_empty());
    found.iter().for_each(|outcome| assert!(is_free(outcome), "{outcome}"));
}

/// Look-ups of names, the same or others, there or not, touch no line that one of them writes.
#[test]
fn lookups_share_nothing() {
    let found = outcomes("lookups", &["--systems", "adaptive", "--only", "+stat.,:stat."]);
    assert!(!found.is_empty());
    found.iter().for_each(|outcome| assert!(is_free(outcome), "{outcome}"));
}

/// A signal to a thread looks at a limit, and `mprotect` at whether memory is limited. A position is set
/// without a look at the file's length, which a write changes.
#[test]
fn calls_share_nothing_with_what_they_only_ask() {
    for words in ["tgkill,mprotect", "lseek,pwrite"] {
        let found = outcomes("asked", &["--systems", "adaptive", "--only", words]);
        assert!(!found.is_empty());
        found.iter().for_each(|outcome| assert!(is_free(outcome), "{outcome}"));
    }
}

/// The model is Linux's too. Two creations in one directory conflict there.
#[test]
fn the_stock_kernel_agrees_with_the_model() {
    let found = outcomes("linux", &["--systems", "linux", "--only", "creat"]);
    assert!(found.iter().any(is_free) && !found.iter().all(is_free), "{found:?}");
}

#[test]
fn an_unknown_test_is_refused() {
    let output = radixvm().args(["commute", "--only", "nothing"]).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no test is like that"));
}

//! `radixvm why` blames the functions of a program that make the kernel work, on either system.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::harness::{Compiler, compiled, feed, radixvm_within, scratch};

/// The rounds of all threads of `user/c/why.c`.
const ROUNDS: u64 = 300;

/// Runs `radixvm why OPTIONS -- WORDS`, and returns its output in one line, and its JSON.
fn why(name: &str, options: &[&str], words: &[&str]) -> (String, Value) {
    let json = scratch("why").join(format!("{name}.json"));
    let mut command = radixvm_within("900");
    command.args(["why", "-c", "2", "--json"]).arg(&json).args(options).arg("--").args(words);
    let output = feed(command, b"");
    assert!(output.status.success(), "{output:?}");
    let answer = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    (text.split_whitespace().collect::<Vec<_>>().join(" "), answer)
}

/// Returns the counts of a call from the function whose place begins with `function`.
fn place<'a>(system: &'a Value, call: &str, function: &str) -> &'a Value {
    let is_it =
        |place: &&Value| place["call"] == call && place["place"].as_str().unwrap().starts_with(function);
    let found = system["places"].as_array().unwrap().iter().find(is_it);
    found.unwrap_or_else(|| panic!("no {call} from {function}: {system:#}"))
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("no {key}: {value}"))
}

#[test]
fn the_functions_that_map_and_unmap_are_blamed_on_both_systems() {
    let program = compiled("why", Compiler::Dynamic);
    let page = scratch("why").join("both.html");
    let (text, answer) = why("both", &["--report", &page.display().to_string()], &[&program]);
    let systems = answer["systems"].as_array().unwrap();
    assert_eq!((systems.len(), &systems[0]["is_linux"]), (2, &Value::Bool(true)));
    for system in systems {
        let count = |call: &str, function: &str| number(place(system, call, function), "count");
        assert_eq!(count("mmap", "grow_arena at why.c:"), ROUNDS, "{}", system["system"]);
        assert_eq!(count("munmap", "drop_arena at why.c:"), ROUNDS, "{}", system["system"]);
        // A fault may be taken again.
        let faults = count("page faults", "touch_arena at why.c:");
        assert!((ROUNDS..2 * ROUNDS).contains(&faults), "{faults} faults on {}", system["system"]);
        let callers = place(system, "munmap", "drop_arena")["frames"].as_array().unwrap();
        let named = |name: &str| callers.iter().any(|frame| frame["function"] == name);
        assert!(named("munmap") && named("drop_arena") && named("work"), "{callers:#?}");
        let of = |key: &str| -> u64 {
            system["calls"].as_array().unwrap().iter().map(|call| number(call, key)).sum()
        };
        let (lines, all) = (of("lines"), number(system, "kernel_lines"));
        assert!(lines.abs_diff(all) * 20 <= all, "{lines} of the kernel's {all} lines have a cause");
    }
    let [linux, ours] = [0, 1].map(|at| number(place(&systems[at], "munmap", "drop_arena"), "lines"));
    assert!(linux > 5 * ROUNDS && ours < ROUNDS, "{linux} lines on Linux, {ours} on RadixVM");
    assert!(answer["verdict"].as_str().unwrap().starts_with("the kernel makes it slow"), "{text}");
    assert!(text.contains("come from munmap, called from drop_arena at why.c:"), "{text}");
    assert!(fs::read_to_string(page).unwrap().contains("drop_arena at why.c:"));
}

/// A program without symbols is blamed by its file and the address in it.
#[test]
fn a_program_without_symbols_is_blamed_by_addresses() {
    let program = scratch("why").join("stripped");
    let stripped =
        Command::new("strip").arg("-o").arg(&program).arg(compiled("why", Compiler::Dynamic)).status();
    assert!(stripped.unwrap().success());
    let (_, answer) = why("stripped", &["--systems", "adaptive"], &[&program.display().to_string()]);
    let munmap = place(&answer["systems"][0], "munmap", "stripped+0x");
    assert_eq!(number(munmap, "count"), ROUNDS);
    let lines = number(munmap, "lines");
    assert!(lines < ROUNDS, "{lines} lines");
    assert!(!answer["verdict"].as_str().unwrap().contains("munmap"), "{answer:#}");
}

/// A static program with markers is no different. Its counts begin with its first round.
#[test]
fn a_static_program_with_markers_is_one_too() {
    let words = ["local", "--threads", "2", "--iterations", "100"];
    let (_, answer) = why("marked", &["--systems", "percore"], &words);
    let system = &answer["systems"][0];
    assert_eq!(system["marked"], true);
    assert!(
        number(
            system["calls"].as_array().unwrap().iter().find(|call| call["call"] == "munmap").unwrap(),
            "count"
        ) >= 100
    );
}

#[test]
fn a_program_that_cannot_be_asked_about_is_named_with_the_fix() {
    let script = scratch("why").join("script");
    fs::write(&script, "#!/bin/sh\n").unwrap();
    Command::new("chmod").arg("+x").arg(&script).status().unwrap();
    let script = script.display().to_string();
    for (word, status, text) in [
        ("no-such-program-anywhere", 127, "no such program"),
        (script.as_str(), 126, "a script: name its interpreter"),
        ("/etc/passwd", 126, "not an ELF program"),
    ] {
        let mut command = radixvm_within("60");
        command.args(["why", "--", word]);
        let output = feed(command, b"");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(status) && said.contains(word) && said.contains(text), "{said}");
    }
}

#[test]
fn a_dry_run_prints_a_command_for_each_system() {
    let mut command = radixvm_within("120");
    command.args(["why", "--dry-run", "--", &compiled("why", Compiler::Dynamic)]);
    let output = feed(command, b"");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.lines().filter(|line| line.contains("-initrd")).count(), 2, "{text}");
}

//! Machines that the command does not make by itself: with much memory, with gaps in the numbers of CPUs, or
//! with CPUs that lack features.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::{Compiler, compiled, dry_run_turn, radixvm, run};

#[test]
fn memory_on_both_sides_of_four_gibibytes() {
    for size in ["2100M", "3G", "4G", "6G", "8G", "16G"] {
        let run = run(&["-v", "-c", "2", "-m", size], &[&compiled("hello", Compiler::Static), "3"]);
        assert_eq!((run.status, run.stderr.contains("booted with 2 CPUs")), (3, true), "{size}: {run:?}");
    }
}

/// Two thirds of this memory are above 4 GiB, and page tables, stacks and frames are allocated from there.
#[test]
fn every_byte_is_right_in_memory_above_four_gibibytes() {
    let words = ["vmstress", "--threads", "4", "--operations", "300", "--json"];
    assert!(run(&["-c", "4", "-m", "6G"], &words).report()["counters"]["mprotect"].as_u64().unwrap() > 0);
}

/// The kernel's data for CPUs that the machine does not have is free memory.
#[test]
fn data_of_missing_cpus_takes_no_memory() {
    let [few, many] = ["1", "8"].map(|cpus| {
        let run = run(&["-m", "64M", "-c", cpus], &["show", "/proc/meminfo"]);
        let text = run.text();
        let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next());
        total.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or_else(|| panic!("{run:?}"))
    });
    assert!(many < few, "{many} KiB with 8 CPUs, {few} KiB with 1");
}

/// The output of a machine that was started by hand.
struct Said {
    stdout: String,
    lines: Vec<Value>,
}

impl Said {
    fn lines<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.lines.iter().filter(move |line| line["type"] == kind)
    }

    fn warned(&self, text: &str) -> bool {
        self.lines("log").any(|line| line["text"].as_str().is_some_and(|said| said.contains(text)))
    }

    /// Returns the number of its CPUs and the program's status.
    fn outcome(&self) -> (Option<u64>, Option<u64>) {
        let number = |kind, key: &str| self.lines(kind).next().and_then(|line| line[key].as_u64());
        (number("booted", "cpus"), number("exit", "status"))
    }
}

/// Runs the program on the command's machine, with `change` applied to the command line.
fn on_machine(change: impl Fn(String) -> String, words: &[&str]) -> Said {
    let _turn = dry_run_turn();
    let output = radixvm().args(["run", "--dry-run", "-c", "4", "--"]).args(words).output().unwrap();
    let line = change(String::from_utf8(output.stdout).unwrap());
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", "1800", "sh", "-c", &line]).stdin(Stdio::null());
    let output = command.output().unwrap();
    let control = line.split("path=").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    let said = fs::read_to_string(control).unwrap_or_default();
    let lines = said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    Said { stdout, lines }
}

#[test]
fn apic_numbers_have_gaps() {
    for (smp, cpus) in
        [("9,sockets=3,cores=3", 9), ("10,sockets=2,cores=5", 10), ("6,sockets=1,cores=3,threads=2", 6)]
    {
        let said = on_machine(
            |line| line.replace("-smp 4", &format!("-smp {smp}")),
            &["local", "--threads", &cpus.to_string(), "--iterations", "20"],
        );
        assert_eq!(said.outcome(), (Some(cpus), Some(0)), "{smp}: {:?} {}", said.lines, said.stdout);
    }
}

#[test]
fn cpus_that_the_firmware_lists_as_absent_are_left_out() {
    let said = on_machine(
        |line| line.replace("-smp 4", "-smp 3,sockets=3,cores=4,maxcpus=12"),
        &["local", "--threads", "3", "--iterations", "20"],
    );
    assert_eq!(said.outcome(), (Some(3), Some(0)), "{:?}", said.lines);
    assert!(said.warned("CPUs left out: 9 that the firmware disabled"), "{:?}", said.lines);
}

/// Returns the random values that the kernel gives a program: 16 bytes on its stack, others by a call, an
/// address.
fn random_words(said: &Said) -> Vec<String> {
    let words: Vec<_> = said.stdout.split_whitespace().map(str::to_owned).collect();
    assert_eq!((said.outcome().1, words.len()), (Some(0), 11), "{:?} {}", said.lines, said.stdout);
    words
}

/// The CPU has no generator. Two boots, and the cores of one boot, have nothing in common, and there is no
/// warning as long as the command provides a seed.
#[test]
fn random_numbers_need_no_generator_in_the_cpu() {
    let program = compiled("randomness", Compiler::Static);
    let mut found = std::collections::BTreeSet::new();
    for _ in 0..2 {
        let said = on_machine(|line| line.replace("-cpu max", "-cpu qemu64"), &[&program, "4"]);
        assert!(!said.warned("random numbers"), "{:?}", said.lines);
        for word in random_words(&said) {
            assert!(found.insert(word), "twice the same in {found:?}");
        }
    }
}

/// The functions of the vDSO make system calls if the CPU does not tell its number with the time.
#[test]
fn programs_read_the_clock_without_rdtscp() {
    let program = compiled("vdso", Compiler::Static);
    let said = on_machine(|line| line.replace("-cpu max", "-cpu max,-rdtscp"), &[&program]);
    assert_eq!(said.outcome().1, Some(0), "{:?} {}", said.lines, said.stdout);
    assert!(said.stdout.ends_with("vdso: done\n"), "{}", said.stdout);
}

#[test]
fn predictable_random_numbers_are_reported() {
    let program = compiled("randomness", Compiler::Static);
    let without_seed = |line: String| {
        let image = line.split("-initrd ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
        let mut bytes = fs::read(image).unwrap();
        let name = b".radixvm/seed";
        let at = bytes.windows(name.len()).position(|part| part == name).expect("a seed is handed over");
        bytes[at + name.len() - 1] = b'x';
        fs::write(image, bytes).unwrap();
        line
    };
    let said =
        on_machine(|line| without_seed(line).replace("-cpu max", "-cpu max,-rdrand"), &[&program, "4"]);
    assert!(said.warned("random numbers are predictable"), "{:?}", said.lines);
    let strong = on_machine(without_seed, &[&program, "4"]);
    assert!(!strong.warned("random numbers"), "{:?}", strong.lines);
    let words = [random_words(&said), random_words(&strong)].concat();
    assert_eq!(words.iter().collect::<std::collections::BTreeSet<_>>().len(), words.len(), "{words:?}");
}

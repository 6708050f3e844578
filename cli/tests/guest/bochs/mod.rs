//! The kernel on the CPUs of Bochs, which have features that QEMU's translator lacks: PCIDs, the x2APIC, the
//! TSC deadline. Bochs accepts PCIDs and flushes nevertheless. So these tests show that the CPU accepts what
//! we load, and `crates/vm-testkit/tests/asids` shows that nothing stale is used.
//!
//! `cargo xtask bochs` runs these if there is a Bochs with the display `rfb`, as on Debian. They need no
//! screen.

mod disk;

use std::fs;
use std::path::Path;
use std::process::Command;

use object::{Object, ObjectSegment};
use serde_json::Value;

use crate::harness::{Compiler, compiled, radixvm, scratch};
use disk::{Disk, MEMORY};

/// A CPU with PCIDs and similar features, and one without.
const NEW: &str = "corei7_skylake_x";
const OLD: &str = "core2_penryn_t9600";

/// The results of a run: the program's output, each counter summed over the CPUs, and the lines of the
/// control port.
struct Run {
    stdout: String,
    counters: Value,
    control: String,
}

impl Run {
    fn sum(&self, counter: &str) -> i64 {
        let counts = self.counters[counter].as_array().unwrap_or_else(|| panic!("{}", self.counters));
        counts.iter().map(|count| count.as_i64().expect("a number")).sum()
    }
}

/// Runs the program on `cpus` CPUs of this model, and requires that it succeeds and leaks nothing.
fn run(name: &str, model: &str, cpus: u32, tables: &str, words: &[&str]) -> Run {
    run_told(name, model, cpus, &dry_run(tables, words), |_| {})
}

/// Does the same with the command that would run the program in QEMU, after `change`.
fn run_told(name: &str, model: &str, cpus: u32, line: &str, change: impl FnOnce(&mut Disk<'_>)) -> Run {
    let folder = scratch(&format!("bochs-{name}"));
    let mut disk = Disk {
        kernel: &kernel(Path::new(word_after(line, "-kernel"))),
        image: &fs::read(word_after(line, "-initrd")).expect("the image lies there"),
        command_line: line.split('\'').nth(1).expect("the kernel's words are quoted").to_owned(),
        cpus: Vec::new(),
    };
    change(&mut disk);
    let (bytes, cylinders) = disk.bytes();
    fs::write(folder.join("disk"), bytes).expect("the folder can be written");
    fs::write(folder.join("bochsrc"), settings(model, cpus, cylinders)).expect("the folder can be written");
    boot(&folder);
    ended(&folder)
}

/// Returns the command that would run the program in QEMU.
fn dry_run(tables: &str, words: &[&str]) -> String {
    let output = radixvm().args(["run", "--dry-run", "--tables", tables, "--"]).args(words).output();
    String::from_utf8(output.expect("the command starts").stdout).expect("it prints text")
}

fn word_after<'a>(line: &'a str, option: &str) -> &'a str {
    line.split(' ').skip_while(|word| *word != option).nth(1).expect("QEMU is told")
}

/// Returns the entry of the kernel, and the parts to load.
fn kernel(path: &Path) -> disk::Kernel {
    let bytes = fs::read(path).expect("the kernel lies there");
    let elf = object::File::parse(&*bytes).expect("the kernel is an ELF file");
    // It is linked at its load address, and 2 GiB below the top.
    let physical = |address: u64| address & 0x7fff_ffff;
    let part = |segment: object::Segment<'_, '_>| {
        (physical(segment.address()), segment.data().expect("it is whole").to_vec())
    };
    disk::Kernel { entry: physical(elf.entry()), parts: elf.segments().map(part).collect() }
}

fn settings(model: &str, cpus: u32, cylinders: usize) -> String {
    format!(
        "display_library: rfb, options=\"timeout=0\"\n\
         plugin_ctrl: speaker=0\n\
         sound: waveoutdrv=dummy, waveindrv=dummy, midioutdrv=dummy\n\
         cpu: model={model}, count={cpus}, ips=100000000, reset_on_triple_fault=0\n\
         memory: guest={megabytes}, host={megabytes}\n\
         romimage: file=$BXSHARE/BIOS-bochs-latest, options=fastboot\n\
         vgaromimage: file=$BXSHARE/VGABIOS-lgpl-latest\n\
         ata0-master: type=disk, path=disk, mode=flat, cylinders={cylinders}, heads={heads}, spt={spt}\n\
         boot: disk\n\
         log: log\n\
         com1: enabled=1, mode=file, dev=stdout\n\
         com2: enabled=1, mode=file, dev=control\n\
         com3: enabled=1, mode=file, dev=stderr\n\
         clock: sync=none\n\
         panic: action=fatal\n\
         error: action=report\n",
        megabytes = MEMORY >> 20,
        heads = disk::HEADS,
        spt = disk::SECTORS_PER_TRACK,
    )
}

/// Boots, and returns when the guest has ended the machine. A Bochs with a debugger waits for a command to go
/// on.
fn boot(folder: &Path) {
    fs::write(folder.join("words"), "continue\n").expect("the folder can be written");
    // A file that a killed run left.
    let _ = fs::remove_file(folder.join("disk.lock"));
    let mut bochs = Command::new("timeout");
    bochs.args(["--kill-after=10", "1800", "bochs-bin", "-q", "-f", "bochsrc", "-rc", "words"]);
    bochs.env("BXSHARE", "/usr/share/bochs").current_dir(folder).output().expect("timeout starts");
}

fn ended(folder: &Path) -> Run {
    let read = |file| fs::read_to_string(folder.join(file)).unwrap_or_default();
    let (stdout, control) = (read("stdout"), read("control"));
    let lines: Vec<Value> = control.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let line = |kind| lines.iter().find(|line| line["type"] == kind).cloned().unwrap_or_default();
    assert_eq!(line("exit")["status"], 0, "{stdout} {control} {}", read("stderr"));
    let stats = line("stats");
    assert_eq!((&stats["leaked_frames"], &stats["leaked_nodes"]), (&0.into(), &0.into()), "{control}");
    Run { stdout, counters: stats["counters"].clone(), control }
}

#[test]
#[ignore = "wants Bochs: cargo xtask bochs"]
fn processes_that_take_turns_find_their_translations() {
    for tables in ["percore", "adaptive"] {
        let run = run("turns", NEW, 1, tables, &[&compiled("context_switches", Compiler::Static), "5", "40"]);
        assert_eq!(run.stdout, "context_switches: done\n");
        let (kept, switches) = (run.sum("kept_tlbs"), run.sum("context_switches"));
        assert!(kept > 100 && kept < switches, "{kept} of {switches} switches without a flush");
    }
}

#[test]
#[ignore = "wants Bochs: cargo xtask bochs"]
fn there_are_more_processes_than_numbers() {
    let run = run("many", NEW, 1, "percore", &[&compiled("context_switches", Compiler::Static), "70", "3"]);
    assert_eq!(run.stdout, "context_switches: done\n");
}

#[test]
#[ignore = "wants Bochs: cargo xtask bochs"]
fn four_cpus_fork_and_run_programs() {
    let run = run("storm", NEW, 4, "percore", &[&compiled("processstorm", Compiler::Musl), "10", "1"]);
    assert_eq!(run.stdout, "processstorm: done\n");
    assert!(run.sum("kept_tlbs") > 0 && run.sum("ipis") > 0, "{}", run.counters);
}

#[test]
#[ignore = "wants Bochs: cargo xtask bochs"]
fn every_byte_is_right_under_stress() {
    for tables in ["percore", "adaptive"] {
        let words = ["vmstress", "--threads", "4", "--operations", "300"];
        let run = run("stress", NEW, 4, tables, &words);
        assert!(run.sum("ipi_targets") > 0, "{}", run.counters);
    }
}

#[test]
#[ignore = "wants Bochs: cargo xtask bochs"]
fn a_cpu_without_pcids_flushes() {
    let run = run("old", OLD, 2, "percore", &[&compiled("context_switches", Compiler::Static), "5", "20"]);
    assert_eq!((run.stdout.as_str(), run.sum("kept_tlbs")), ("context_switches: done\n", 0));
}

/// The counter of each CPU but the first is set wrong before it is compared.
#[test]
#[ignore = "wants Bochs: cargo xtask bochs"]
fn clocks_that_disagree_are_corrected() {
    let line = dry_run("adaptive", &[&compiled("clocks", Compiler::Static), "3", "20"]);
    let run = run_told("clocks", NEW, 3, &line, |disk| disk.command_line.push_str(" skew"));
    assert_eq!(run.stdout, "clocks: done\n");
    for core in 1..3 {
        let told = format!("the clock of core {core} was ");
        assert!(
            run.control.contains(&told) && run.control.contains("ahead of the first core's"),
            "{}",
            run.control
        );
    }
}

/// The firmware lists two CPUs that do not exist. One of them has an APIC ID of more than eight bits.
#[test]
#[ignore = "wants Bochs: cargo xtask bochs"]
fn cpus_that_do_not_come_are_left_out() {
    let line = dry_run("adaptive", &[&compiled("clocks", Compiler::Static), "2", "20"]);
    let run = run_told("absent", NEW, 2, &line, |disk| disk.cpus = vec![0, 77, 1, 300]);
    assert_eq!(run.stdout, "clocks: done\n");
    for id in [77, 300] {
        let told = format!("the CPU with APIC ID {id} did not start and is not used");
        assert!(run.control.contains(&told), "{}", run.control);
    }
    assert!(run.control.contains(r#""cpus":2"#), "{}", run.control);
}

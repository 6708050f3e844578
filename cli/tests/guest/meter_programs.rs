//! The programs made for the contention meter have the traffic that they claim, by the kernel's own counters.

use serde_json::Value;

use crate::harness::{radixvm, root, run};

const TABLES: [&str; 2] = ["percore", "shared"];
const CPUS: [u64; 3] = [1, 2, 4];

/// Calls `look` with the report of a program with a thread per CPU, at every size and with each kind of
/// tables.
fn everywhere(words: &[&str], look: impl Fn(&str, u64, &Value)) {
    for tables in TABLES {
        for cpus in CPUS {
            let threads = cpus.to_string();
            let words = [words, &["--threads", &threads, "--json"]].concat();
            let report = run(&["-c", &threads, "--tables", tables], &words).report();
            assert_eq!(report["threads"], cpus);
            look(tables, cpus, &report);
        }
    }
}

fn counter(report: &Value, name: &str) -> u64 {
    report["counters"][name].as_u64().unwrap_or_else(|| panic!("no counter {name}: {report}"))
}

/// Every round of a faulting thread is one fault. It interrupts no core if each core has its own tables.
#[test]
fn faultstorm() {
    everywhere(&["faultstorm", "--iterations", "640", "--warmup", "64"], |tables, cpus, report| {
        let mappers = report["mappers"].as_u64().unwrap();
        assert_eq!(mappers, cpus / 2);
        let faulters = cpus - mappers;
        assert!(counter(report, "alloc_faults") >= faulters * 640, "{report}");
        assert_eq!(counter(report, "munmap"), mappers * 640 + faulters * 640 / 64);
        let shot = if tables == "shared" { (cpus - 1) * faulters * 640 / 64 } else { 0 };
        assert_eq!(counter(report, "ipi_targets"), shot, "{tables}: {report}");
    });
}

/// One thread maps in this many of a hundred rounds, and the others fault.
#[test]
fn faultstorm_maps_for_a_fraction_of_its_time() {
    for tables in TABLES {
        for (fraction, maps) in [("0", 0), ("25", 160), ("100", 640)] {
            let words = ["--threads", "4", "--mmap-fraction", fraction, "--iterations", "640", "--json"];
            let report =
                run(&["-c", "4", "--tables", tables], &[&["faultstorm"], &words[..]].concat()).report();
            assert_eq!(counter(&report, "munmap"), maps + 3 * 640 / 64, "{report}");
            assert!(counter(&report, "alloc_faults") >= 3 * 640, "{report}");
        }
    }
}

/// Every kind of call, in separate regions and in one.
#[test]
fn microbench() {
    for kind in ["mmap", "mmap-PF", "PF", "unmap-virt", "unmap", "mprotect"] {
        for (contention, tables) in
            ["low", "high"].into_iter().flat_map(|word| TABLES.map(|tables| (word, tables)))
        {
            let words = ["--contention", contention, "--threads", "4", "--iterations", "100", "--json"];
            let words = [&["microbench", kind], &words[..]].concat();
            did_what_it_says(kind, tables, &run(&["-c", "4", "--tables", tables], &words).report());
        }
    }
}

/// Checks 400 rounds of a kind. No page has two users, so no core is interrupted if each core has its own
/// tables.
fn did_what_it_says(kind: &str, tables: &str, report: &Value) {
    assert_eq!(report["rounds"], 400);
    assert_eq!(counter(report, "munmap"), if kind.starts_with("unmap") { 400 } else { 0 }, "{report}");
    let faults = if kind.contains("PF") { 400 } else { 0 };
    assert!(counter(report, "alloc_faults").abs_diff(faults) <= 32, "{report}");
    assert!(tables == "shared" || counter(report, "ipi_targets") == 0, "{report}");
}

/// Every kind of call on a range. The unmaps and faults are as many as the program reports.
#[test]
fn calls() {
    let kinds = [("map", 1, 1), ("stack", 1, 1), ("discard", 0, 2), ("protect", 0, 0), ("mincore", 0, 0)];
    let others =
        [("scattered", 1, 0), ("thread", 1, 1), ("kept-thread", 0, 0), ("maps", 0, 0), ("stat", 0, 0)];
    for (kind, unmaps, faults) in kinds.into_iter().chain(others) {
        // Pages far apart are unmapped a piece at a time, and each piece counts. So few pages are one piece.
        let pages = if kind == "scattered" { "8" } else { "300" };
        let words = ["calls", kind, "--pages", pages, "--iterations", "40", "--json"];
        let report = run(&["-c", "1"], &words).report();
        assert_eq!(counter(&report, "munmap"), 40 * unmaps, "{report}");
        assert!(counter(&report, "alloc_faults").abs_diff(40 * faults) <= 8, "{report}");
    }
}

/// The pages are of one leaf, each of one thread.
#[test]
fn neighbours() {
    everywhere(&["neighbours", "--iterations", "200"], |tables, cpus, report| {
        let rounds = report["rounds"].as_u64().unwrap();
        assert_eq!((counter(report, "munmap"), counter(report, "mmap")), (rounds, rounds));
        assert!(counter(report, "alloc_faults") >= rounds, "{report}");
        let shot = if tables == "shared" { (cpus - 1) * rounds } else { 0 };
        assert_eq!(counter(report, "ipi_targets"), shot, "{tables}: {report}");
        assert_eq!(counter(report, "radix_nodes_created"), 0, "{report}");
    });
}

/// Turns are taken in user mode, without unmaps and interrupts. The program itself checks that they are
/// strict.
#[test]
fn probes() {
    let rounds = ["--iterations", "40", "--warmup", "8"];
    let look = |report: &Value, cpus: u64| {
        assert_eq!(report["rounds"], 40 * cpus);
        assert_eq!((counter(report, "munmap"), counter(report, "ipi_targets")), (0, 0));
    };
    everywhere(&[&["probe", "readers"], &rounds[..]].concat(), |_, cpus, report| look(report, cpus));
    for kind in ["private", "read-mostly", "shared", "false-sharing", "ping-pong", "split", "racing"] {
        let words = [&["probe", kind, "--threads", "4", "--json"], &rounds[..]].concat();
        look(&run(&["-c", "4"], &words).report(), 4);
    }
}

#[test]
fn show_on_either_kernel() {
    let file = root().join("Cargo.toml").display().to_string();
    let text = std::fs::read_to_string(&file).unwrap();
    for tables in TABLES {
        let shown = run(&["--tables", tables, "--file", &format!("{file}:/text")], &["show", "/text"]);
        assert_eq!((shown.status, shown.text()), (0, text.clone()));
    }
    let symbols = linux(&["show", "/proc/kallsyms"]);
    let entry = symbols
        .lines()
        .find(|line| line.ends_with(" entry_SYSCALL_64"))
        .expect("a symbol of every x86-64 kernel");
    assert!(entry.starts_with("ffffffff"), "{entry}");
}

/// Returns the output of a program on the stock kernel.
fn linux(words: &[&str]) -> String {
    let mut command = radixvm();
    let output = command.args(["run", "--system", "linux", "--"]).args(words).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

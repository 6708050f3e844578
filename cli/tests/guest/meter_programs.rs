//! The programs made for the contention meter, by the kernel's own counters: what the meter looks at is really there.

use serde_json::Value;

use crate::harness::{radixvm, root, run};

const TABLES: [&str; 2] = ["percore", "shared"];
const CPUS: [u64; 3] = [1, 2, 4];

/// The report of a program with a thread per CPU, at every size and with either kind of tables.
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

/// Every round of a faulting thread is one fault. Where tables are apart, nobody is interrupted for it.
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

/// Pages of one leaf, each of one thread.
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

/// Turns are taken in user mode: no unmap, no interrupt. Whether they are strict the program checks itself.
#[test]
fn probes() {
    let rounds = ["--iterations", "40", "--warmup", "8"];
    let look = |report: &Value, cpus: u64| {
        assert_eq!(report["rounds"], 40 * cpus);
        assert_eq!((counter(report, "munmap"), counter(report, "ipi_targets")), (0, 0));
    };
    everywhere(&[&["probe", "readers"], &rounds[..]].concat(), |_, cpus, report| look(report, cpus));
    for kind in ["private", "read-mostly", "shared", "false-sharing", "ping-pong"] {
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

/// What a program prints on the stock kernel.
fn linux(words: &[&str]) -> String {
    let mut command = radixvm();
    let output = command.args(["run", "--system", "linux", "--"]).args(words).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

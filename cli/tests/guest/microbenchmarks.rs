//! Properties of the design by the programs' own counters: the number of cores that each unmap interrupts.

use serde_json::Value;

use crate::harness::run;

/// The number of threads, one per CPU, the number of rounds, and the counters of the window.
struct Counts {
    cpus: u64,
    rounds: u64,
    counters: Value,
}

impl Counts {
    fn get(&self, name: &str) -> u64 {
        self.counters[name].as_u64().unwrap_or_else(|| panic!("no counter {name}: {}", self.counters))
    }

    /// Checks how many cores every unmap interrupted.
    fn targets_per_unmap(&self, expected: u64) {
        assert_eq!(self.get("munmap"), self.rounds);
        assert_eq!(self.get("ipi_targets"), expected * self.rounds, "{} CPUs: {}", self.cpus, self.counters);
    }
}

fn counts(program: &str, tables: &str, cpus: u64, iterations: u64) -> Counts {
    let (cpus_word, iterations) = (cpus.to_string(), iterations.to_string());
    let options = ["-c", &cpus_word, "--tables", tables];
    let words = [program, "--threads", &cpus_word, "--iterations", &iterations, "--json"];
    let report = run(&options, &words).report();
    assert_eq!(report["threads"], cpus);
    Counts { cpus, rounds: report["rounds"].as_u64().unwrap(), counters: report["counters"].clone() }
}

/// If only one core saw a page, no core is interrupted, at any number of cores.
fn local_percore(cpus: u64) {
    let counts = counts("local", "percore", cpus, 2_000 / cpus);
    counts.targets_per_unmap(0);
    assert_eq!((counts.get("ipis"), counts.get("shootdowns")), (0, 0));
    assert!(counts.get("alloc_faults") >= counts.rounds);
}

/// With one table the kernel does not know which cores saw the page, so every core that runs the program is
/// interrupted.
fn local_shared(cpus: u64) {
    counts("local", "shared", cpus, 800 / cpus).targets_per_unmap(cpus - 1);
}

/// If two cores saw a page, exactly the other one is interrupted.
fn pipeline_percore(cpus: u64) {
    let counts = counts("pipeline", "percore", cpus, 400 / cpus);
    counts.targets_per_unmap(u64::from(cpus > 1));
    if cpus > 1 {
        assert!(counts.get("fill_faults") >= counts.rounds, "{}", counts.counters);
    }
}

fn pipeline_shared(cpus: u64) {
    counts("pipeline", "shared", cpus, 400 / cpus).targets_per_unmap(cpus - 1);
}

/// If all cores saw the pages, all are interrupted, and each took its own fault on each page.
fn global_percore(cpus: u64) {
    let counts = counts("global", "percore", cpus, 80 / cpus);
    counts.targets_per_unmap(cpus - 1);
    let touched = counts.rounds * 16 * cpus;
    assert!(counts.get("alloc_faults") + counts.get("fill_faults") >= touched, "{}", counts.counters);
}

/// With one table there is one fault per page, on any core.
fn global_shared(cpus: u64) {
    let counts = counts("global", "shared", cpus, 80 / cpus);
    counts.targets_per_unmap(cpus - 1);
    assert!(counts.get("alloc_faults") >= counts.rounds * 16);
}

/// Makes one test per number of CPUs.
macro_rules! at_every_size {
    ($($name:ident)*) => {$(
        mod $name {
            #[test]
            fn cpus_1() {
                super::$name(1);
            }
            #[test]
            fn cpus_2() {
                super::$name(2);
            }
            #[test]
            fn cpus_4() {
                super::$name(4);
            }
            #[test]
            fn cpus_8() {
                super::$name(8);
            }
        }
    )*};
}

at_every_size! { local_percore local_shared pipeline_percore pipeline_shared global_percore global_shared }

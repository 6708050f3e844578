//! Many CPUs.

use crate::harness::{Compiler, compiled, run};

#[test]
fn sixty_four_cpus_boot_and_run_a_thread_each() {
    let run = run(&["-c", "64", "-v"], &["local", "--threads", "64", "--iterations", "4", "--json"]);
    assert!(run.stderr.contains("booted with 64 CPUs"), "{}", run.stderr);
    let report = run.report();
    assert_eq!((&report["counters"]["munmap"], &report["counters"]["ipi_targets"]), (&256.into(), &0.into()));
}

#[test]
fn a_hundred_cpus_run_threads_that_wander() {
    let run = run(&["-c", "100"], &[&compiled("pthreads", Compiler::Static), "32"]);
    assert!(run.status == 0 && run.text().ends_with("pthreads: done\n"), "{run:?}");
}

fn stress(tables: &str) {
    let words = ["vmstress", "--threads", "8", "--operations", "1500", "--json"];
    let report = run(&["-c", "8", "--tables", tables], &words).report();
    let counters = &report["counters"];
    assert!(
        counters["shootdowns"].as_u64().unwrap() > 0 && counters["mprotect"].as_u64().unwrap() > 0,
        "{report}"
    );
}

#[test]
fn every_byte_is_right_under_stress_with_a_table_per_core() {
    stress("percore");
}

#[test]
fn every_byte_is_right_under_stress_with_one_table() {
    stress("shared");
}

#[test]
fn every_byte_is_right_under_stress_with_adaptive_tables() {
    stress("adaptive");
}

/// Each thread has a CPU of its own and maps memory on it, with tables per core and with the default ones.
#[test]
#[ignore = "takes half an hour: cargo xtask cpus"]
fn every_number_of_cpus_runs_a_thread_each() {
    for cpus in (1..=64).chain([96, 128, 192, 255]) {
        for tables in ["adaptive", "percore"] {
            let cpus = cpus.to_string();
            let words = ["local", "--threads", &cpus, "--iterations", "4", "--json"];
            let report = run(&["-c", &cpus, "-m", "1G", "--tables", tables], &words).report();
            assert_eq!(report["counters"]["ipi_targets"], 0, "{cpus} CPUs, tables={tables}: {report}");
        }
    }
}

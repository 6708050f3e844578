//! Counts of pages: `/proc/kpagecount`, `/proc/PID/pagemap`, and what each process has in memory, which must
//! be equal over all of them.

use std::fs;

use crate::harness::{Compiler, Run, compiled, here, run, scratch};

const DONE: &str = "pagecounts: done\n";

/// Runs a storm of mappings, and compares the counts whenever it rests.
fn storm(options: &[&str], words: &[&str]) -> Run {
    let run = run(options, &[&[compiled("pagecounts", Compiler::Musl).as_str()], words].concat());
    assert!(run.status == 0 && run.text() == DONE, "{options:?}: {run:?}");
    run
}

/// Linux shows frames only to programs with all rights.
#[test]
fn counts_are_as_on_linux() {
    let program = compiled("pagecounts", Compiler::Musl);
    let (stdout, status) = here(&[&program, "6", "2", "200", "1"], b"");
    let text = String::from_utf8_lossy(&stdout).into_owned();
    assert!(
        status == Some(0) && [DONE, "pagecounts: no frames are shown\n"].contains(&text.as_str()),
        "{text}"
    );
}

#[test]
fn counts_are_sums_over_all_processes_on_all_tables() {
    for (tables, read_refs) in [("adaptive", "pinned"), ("percore", "refcache"), ("shared", "lodic")] {
        let options = ["-m", "256M", "-c", "4", "--tables", tables, "--read-refs", read_refs];
        storm(&options, &["6", "3", "200", "2"]);
    }
    for (refs, read_refs) in [("atomic", "shared"), ("sloppy", "paygo"), ("snzi", "lodic")] {
        storm(&["-m", "256M", "-c", "2", "--refs", refs, "--read-refs", read_refs], &["4", "2", "150", "3"]);
    }
}

#[test]
fn counts_are_sums_over_all_processes_in_all_designs() {
    for design in ["rwlock", "faultlock", "hybrid", "bonsai", "pervma"] {
        storm(&["-m", "256M", "-c", "2", "--vm", design], &["4", "2", "150", "4"]);
    }
}

#[test]
fn counts_are_sums_over_many_processes() {
    storm(&["-m", "512M", "-c", "4"], &["50", "2", "40", "5"]);
}

/// The pages of a large file take the memory of all others, so pages are dropped or compressed meanwhile.
#[test]
fn counts_are_sums_over_all_processes_when_memory_is_short() {
    let path = scratch("page-counts").join("big");
    fs::write(&path, vec![0x77; 16 << 20]).unwrap();
    let file = format!("{}:/big", path.display());
    let plain: &[&str] = &[];
    for (more, tables, read_refs) in [(plain, "adaptive", "pinned"), (&["--compress"], "shared", "lodic")] {
        let options = ["-m", "36M", "-c", "2", "--tables", tables, "--read-refs", read_refs, "--file", &file];
        let run = storm(&[&options, more].concat(), &["3", "3", "150", "6", "/big"]);
        assert!(run.counter("pages_reclaimed") > 0, "{run:?}");
    }
}

/// Threads map, unmap, move, share, fork and reclaim at random. They are stopped some times, at any point.
#[test]
fn counts_are_sums_whenever_a_stress_is_stopped() {
    let program = launch::artifacts::program("vmstress").expect("the program can be built");
    let file = format!("{}:/vmstress", program.display());
    let stress = |options: &[&str]| {
        let options = [&["-m", "256M", "-c", "4", "--file", &file], options].concat();
        let counted = compiled("counted", Compiler::Musl);
        let stops = |operations: &str| {
            let words = [&counted, "20", "/vmstress", "--threads", "4", "--operations", operations];
            let run = run(&options, &words);
            assert!(run.status == 0 && run.text().contains("all as they must be"), "{options:?}: {run:?}");
            let times = run.stderr.split("counted: ").nth(1).and_then(|rest| rest.split(' ').next());
            times.and_then(|number| number.parse::<u32>().ok()).expect("the number of stops")
        };
        // On a busy host the stress may be over before it was stopped as often.
        assert!(["1500", "3000", "6000", "12000"].iter().any(|more| stops(more) >= 5), "{options:?}");
    };
    ["adaptive", "percore", "shared"].iter().for_each(|tables| stress(&["--tables", tables]));
    ["rwlock", "faultlock", "hybrid", "bonsai", "pervma"].iter().for_each(|design| stress(&["--vm", design]));
    stress(&["--compress"]);
}

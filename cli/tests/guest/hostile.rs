//! Programs that mean harm, or want too much.

use crate::harness::{Compiler, compiled, run};

#[test]
fn bad_arguments_get_the_errors_that_linux_gives() {
    for cpus in ["1", "4"] {
        let run = run(&["-c", cpus], &["hostile"]);
        assert_eq!(run.status, 0, "{run:?}");
        assert!(run.text().ends_with(", 0 failed\n"), "{run:?}");
    }
}

/// File calls with arguments from bad to plausible, on names and descriptors that the threads fight for.
#[test]
fn a_storm_of_file_calls_harms_nobody() {
    for (cpus, seed) in [("1", "1"), ("2", "2"), ("8", "3")] {
        let run = run(&["-c", cpus], &[&compiled("filestorm", Compiler::Musl), "8", "50000", seed]);
        assert!(run.status == 0 && run.text() == "filestorm: done\n", "{run:?}");
    }
}

/// A file that is cut, punched, mapped and unmapped while other threads read and write it in every way there is.
#[test]
fn a_storm_on_a_mapped_file_keeps_its_pages_apart() {
    for (cpus, tables) in [("1", "percore"), ("2", "percore"), ("4", "percore"), ("2", "shared")] {
        let options = ["-c", cpus, "--tables", tables];
        let run = run(&options, &[&compiled("mapstorm", Compiler::Musl), "6", "1500", cpus]);
        assert!(run.status == 0 && run.text() == "mapstorm: done\n", "{run:?}");
    }
}

/// Touching more memory than there is: told so by mmap, or killed with a message.
#[test]
fn memory_that_runs_out_ends_the_program_only() {
    for tables in ["percore", "shared"] {
        let run = run(&["-m", "64M", "-c", "2", "--tables", tables], &["exhaust"]);
        assert!(run.text().starts_with("exhaust: 0 chunks"), "{run:?}");
        let told = run.status == 0 && run.text().contains("no memory after");
        let killed = run.status == 128 + 9 && run.stderr.contains("out of memory");
        assert!(told || killed, "{run:?}");
    }
}

/// The page that is not there is the kernel's to write, for a handler.
#[test]
fn memory_that_is_not_there_for_a_signal_is_told() {
    let run = run(&["-m", "64M"], &[&compiled("frames", Compiler::Static), "starve"]);
    assert!(run.status == 128 + 9 && run.stderr.contains("out of memory"), "{run:?}");
}

/// Mapping without touching: it is the kernel's own memory that runs out.
#[test]
fn mappings_without_end_are_refused_in_time() {
    let run = run(&["-m", "64M", "-c", "2"], &["exhaust", "--reserve"]);
    let told = run.status == 0 && run.text().contains("no memory after");
    let killed = run.status == 128 + 9 && run.stderr.contains("out of memory");
    assert!(told || killed, "{run:?}");
}

#[test]
fn the_limit_is_reached_in_good_health_where_there_is_room() {
    let run = run(&["-m", "256M"], &["exhaust", "--limit", "100M"]);
    assert!(run.status == 0 && run.text().ends_with("exhaust: limit reached\n"), "{run:?}");
}

/// More threads than CPUs, all in the kernel at once.
#[test]
fn a_crowd_of_threads() {
    let run = run(&["-c", "2"], &[&compiled("pthreads", Compiler::Musl), "64"]);
    assert!(run.status == 0 && run.text().ends_with("pthreads: done\n"), "{run:?}");
}

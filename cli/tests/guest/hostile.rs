//! Programs that are malicious, or that demand too much.

use crate::harness::{Compiler, compiled, run};

#[test]
fn bad_arguments_get_the_errors_that_linux_gives() {
    for cpus in ["1", "4"] {
        let run = run(&["-c", cpus], &["hostile"]);
        assert_eq!(run.status, 0, "{run:?}");
        assert!(run.text().ends_with(", 0 failed\n"), "{run:?}");
    }
}

/// One thread truncates a file, or reserves room in it, while the other makes it longer.
#[test]
fn a_truncated_files_contents_stay() {
    for (cpus, tables) in [("2", "percore"), ("4", "adaptive"), ("2", "shared")] {
        let run = run(&["-c", cpus, "--tables", tables], &[&compiled("truncate_race", Compiler::Musl), "20"]);
        assert!(run.status == 0 && run.text() == "truncate_race: done\n", "{run:?}");
    }
}

/// A program touches more memory than there is. mmap fails, or the program is killed with a message.
#[test]
fn memory_that_runs_out_ends_the_program_only() {
    for tables in ["adaptive", "percore", "shared"] {
        let run = run(&["-m", "64M", "-c", "2", "--tables", tables], &["exhaust"]);
        assert!(run.text().starts_with("exhaust: 0 chunks"), "{run:?}");
        let told = run.status == 0 && run.text().contains("no memory after");
        let killed = run.status == 128 + 9 && run.stderr.contains("out of memory");
        assert!(told || killed, "{run:?}");
    }
}

/// Only the program that uses most is killed. This is repeated, because all of its memory must be freed.
#[test]
fn memory_that_runs_out_ends_the_largest_program_only() {
    for cpus in ["1", "4"] {
        let run = run(&["-m", "64M", "-c", cpus], &[&compiled("greedy", Compiler::Musl), "3"]);
        assert_eq!((run.status, run.text()), (0, "large: signal 9\nsmall: status 3\n".repeat(3)), "{run:?}");
        assert_eq!(run.stderr.matches("out of memory").count(), 3, "{run:?}");
    }
}

/// One thread forks while another moves the end of the heap.
#[test]
fn a_break_that_moves_while_it_is_copied() {
    let run = run(&["-c", "2"], &[&compiled("breaks", Compiler::Musl)]);
    assert!(run.status == 0 && run.text() == "breaks: done\n", "{run:?}");
}

/// The kernel writes to a missing page for a handler.
#[test]
fn memory_that_is_not_there_for_a_signal_is_told() {
    let run = run(&["-m", "64M"], &[&compiled("frames", Compiler::Static), "exhaust"]);
    assert!(run.status == 128 + 9 && run.stderr.contains("out of memory"), "{run:?}");
}

/// Memory from before an exec may still be freed when the first process ends.
#[test]
fn memory_from_before_an_exec_is_given_up_before_the_machine_ends() {
    let run = run(&["-m", "256M"], &[&compiled("exec_exit", Compiler::Musl)]);
    assert!(run.status == 0 && run.text() == "done\n", "{run:?}");
}

/// The last CPU that is awake frees dead pages before it sleeps.
#[test]
fn dead_pages_of_files_are_free_soon() {
    let options = ["-m", "256M", "-c", "1", "--accel", "count"];
    let run = run(&options, &[&compiled("garbage", Compiler::Static)]);
    assert!(run.status == 0 && run.text().lines().count() == 4, "{run:?}");
}

/// Directories that are made and removed are freed in time, although they are counted by Refcache and have
/// far more memory together than the machine.
#[test]
fn removed_directories_are_free_in_time() {
    let run = run(&["-m", "64M", "-c", "2"], &[&compiled("directories", Compiler::Static), "100000"]);
    assert!(run.status == 0 && run.text().contains("directories: done"), "{run:?}");
}

/// Processes and threads without end fill the machine. Calls fail, SIGKILL to all processes ends them at
/// once, and their memory can be used again. Instructions are counted, so the limit does not depend on the
/// load of this machine.
#[test]
fn bombs_are_gone_soon_after_a_kill() {
    let kinds = ["forks", "defies", "vforks", "threads", "threads-fork", "execs", "tables"];
    for kind in kinds {
        let options = ["-m", "64M", "-c", "1", "--accel", "count"];
        let run = run(&options, &[&compiled("bombs", Compiler::Musl), "4", kind]);
        assert!(run.status == 0 && run.text().lines().count() == 4, "{run:?}");
    }
}

/// On several CPUs there is no time limit, because the time is the emulator's. But if a bomb starves the
/// first process, the test never ends.
#[test]
fn bombs_starve_nobody_on_several_cpus() {
    for (cpus, kind) in [("2", "forks"), ("4", "forks"), ("2", "threads"), ("4", "threads")] {
        let run = run(&["-m", "64M", "-c", cpus], &[&compiled("bombs", Compiler::Musl), "1000", kind]);
        assert!(run.status == 0 && run.text().lines().count() == 4, "{run:?}");
    }
}

/// The kernel's memory for a process counts when memory runs out: mainly a stack for each thread, which is
/// freed.
#[test]
fn the_stacks_of_threads_weigh_when_memory_runs_out() {
    for cpus in ["1", "4"] {
        let run = run(&["-m", "64M", "-c", cpus], &[&compiled("crowd", Compiler::Musl)]);
        assert!(run.status == 0 && run.stderr.matches("out of memory").count() == 1, "{run:?}");
    }
}

/// Memory that is released can be used without waiting for epochs or other CPUs.
#[test]
fn released_memory_is_available_at_once() {
    // The memory of a thread is free once its CPU has done its pending work: on one CPU, before another
    // thread runs.
    for (cpus, threads, lines) in [("1", Some("threads"), 6), ("2", None, 4)] {
        let program = compiled("available", Compiler::Static);
        let words: Vec<_> = [program.as_str()].into_iter().chain(threads).collect();
        let run = run(&["-m", "64M", "-c", cpus], &words);
        assert!(run.status == 0 && run.text().lines().count() == lines, "{run:?}");
    }
}

/// Sleeping CPUs keep free frames in magazines. When memory runs short, other CPUs use them.
#[test]
fn frames_of_sleeping_cpus_are_there_for_others() {
    let run = run(&["-m", "64M", "-c", "8"], &[&compiled("sleepers", Compiler::Static)]);
    assert!(run.status == 0 && run.text().contains("all free memory is there for one: ok"), "{run:?}");
}

/// A program maps without touching, so the kernel's own memory runs out.
#[test]
fn mappings_without_end_are_refused_in_time() {
    let run = run(&["-m", "64M", "-c", "2"], &["exhaust", "--reserve"]);
    let told = run.status == 0 && run.text().contains("no memory after");
    let killed = run.status == 128 + 9 && run.stderr.contains("out of memory");
    assert!(told || killed, "{run:?}");
}

/// Of several programs only the largest is killed.
#[test]
fn memory_that_runs_out_ends_the_largest_program() {
    for tables in ["adaptive", "percore", "shared"] {
        let options = ["-m", "64M", "-c", "2", "--tables", tables];
        let run = run(&options, &[&compiled("oom", Compiler::Musl), "64"]);
        assert!(run.status == 0, "{run:?}");
        assert_eq!(run.stderr.matches("out of memory").count(), 6, "{run:?}");
    }
}

/// One allocation after the other fails, alone or with the following ones.
#[test]
fn every_allocation_may_fail() {
    let runs = [
        ("percore", "1", "1"),
        ("shared", "1", "1"),
        ("adaptive", "8", "3"),
        ("shared", "40", "7"),
        ("adaptive", "300", "50"),
    ];
    for (tables, failures, step) in runs {
        let program = compiled("fail_alloc", Compiler::Musl);
        let run = run(&["--fail-alloc", "-c", "2", "--tables", tables], &[&program, failures, step]);
        assert!(run.status == 0 && run.text() == "fail_alloc: done\n", "{run:?}");
    }
}

#[test]
fn the_limit_is_reached_in_good_health_where_there_is_room() {
    let run = run(&["-m", "256M"], &["exhaust", "--limit", "100M"]);
    assert!(run.status == 0 && run.text().ends_with("exhaust: limit reached\n"), "{run:?}");
}

/// More threads than CPUs are in the kernel at once.
#[test]
fn a_crowd_of_threads() {
    let run = run(&["-c", "2"], &[&compiled("pthreads", Compiler::Musl), "64"]);
    assert!(run.status == 0 && run.text().ends_with("pthreads: done\n"), "{run:?}");
}

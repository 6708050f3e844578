//! Programs that make random calls on several threads or processes, from valid to hostile ones. The machine
//! must survive them and free all their memory.
//!
//! `cargo xtask fuzz` runs the ignored tests, each for `FUZZ_SECONDS` on each number of CPUs of `FUZZ_CPUS`
//! (1,4,8).

use std::env;
use std::time::{Duration, Instant};

use crate::harness::{Compiler, compiled, run};

/// A program and its arguments, without the last, which is the seed.
struct Storm {
    program: &'static str,
    arguments: &'static [&'static str],
}

/// Calls about memory, by children that may destroy their own memory.
const CALLS: Storm = Storm { program: "callstorm", arguments: &["20", "400"] };
/// File calls on names and descriptors that the threads share.
const FILES: Storm = Storm { program: "filestorm", arguments: &["8", "50000"] };
/// A file that is truncated, punched, mapped and unmapped while other threads read and write it in every way.
const MAPPINGS: Storm = Storm { program: "mapstorm", arguments: &["6", "1500"] };
/// Processes that make, signal and wait for one another.
const PROCESSES: Storm = Storm { program: "processstorm", arguments: &["60"] };
/// Descriptors, sockets, lists of epoll, timers and locks, used by threads of several processes.
const SOCKETS: Storm = Storm { program: "socketstorm", arguments: &["12", "3000"] };
/// Processes that trace each other's children and kill some.
const TRACES: Storm = Storm { program: "tracestorm", arguments: &["6000"] };

impl Storm {
    /// Runs it once.
    fn run(&self, cpus: &str, tables: &str, seed: u64) {
        let (program, seed) = (compiled(self.program, Compiler::Musl), seed.to_string());
        let words = [&[program.as_str()], self.arguments, &[seed.as_str()]].concat();
        let run = run(&["-m", "512M", "-c", cpus, "--tables", tables], &words);
        let done = format!("{}: done\n", self.program);
        assert!(run.status == 0 && run.text() == done, "{cpus} CPUs, tables={tables}, seed {seed}: {run:?}");
    }

    /// Runs it for each number of CPUs, tables and seed.
    fn run_each(&self, runs: &[(&str, &str, u64)]) {
        runs.iter().for_each(|&(cpus, tables, seed)| self.run(cpus, tables, seed));
    }

    /// Runs it with one seed after the other, on each number of CPUs of `FUZZ_CPUS` for `FUZZ_SECONDS`, from
    /// the seed `FUZZ_SEED` on.
    #[allow(clippy::disallowed_macros)] // a test's own words
    fn run_on_and_on(&self) {
        let number = |name, usual| {
            env::var(name).map_or(usual, |text| text.parse().expect("a number of the environment"))
        };
        let (seconds, first) = (number("FUZZ_SECONDS", 600), number("FUZZ_SEED", 1000));
        for cpus in env::var("FUZZ_CPUS").unwrap_or("1,4,8".to_owned()).split(',') {
            let end = Instant::now() + Duration::from_secs(seconds);
            let tables = ["adaptive", "percore", "shared"].iter().cycle();
            let rounds = (first..).zip(tables).take_while(|_| Instant::now() < end);
            let rounds = rounds.map(|(seed, tables)| self.run(cpus, tables, seed)).count();
            println!("{}: {rounds} rounds on {cpus} CPUs in {seconds} s", self.program);
        }
    }
}

/// Other threads write to the mapping, map memory, make children and unmap pages.
#[test]
fn a_mapping_that_moves_in_pieces_is_whole_for_everybody() {
    for (cpus, tables) in [("1", "adaptive"), ("4", "adaptive"), ("4", "percore"), ("2", "shared")] {
        let run = run(&["-c", cpus, "--tables", tables], &[&compiled("moving", Compiler::Musl), "40"]);
        assert!(run.status == 0 && run.text() == "moving: done\n", "{cpus} CPUs, tables={tables}: {run:?}");
    }
}

/// Two threads use a page at the place that a long mremap leaves, each by a page table of its own.
#[test]
fn a_page_where_a_mapping_leaves_is_gone_once_it_is_unmapped() {
    let run = run(&["-c", "4"], &[&compiled("stale", Compiler::Musl), "60"]);
    assert!(run.status == 0 && run.text() == "stale: done\n", "{run:?}");
}

/// Threads write to a number onto which another one duplicates pipes. Without the second look of
/// `FdTable::in_use` they find it closed.
#[test]
fn a_number_that_gets_another_pipe_is_always_open() {
    for (cpus, rounds) in [("1", "500"), ("2", "500"), ("4", "1500")] {
        let run = run(&["-c", cpus], &[&compiled("dup_race", Compiler::Musl), rounds]);
        assert!(run.status == 0 && run.text() == "dup_race: done\n", "{cpus} CPUs: {run:?}");
    }
}

/// A process forks while its threads close, replace and open descriptors without the table's lock.
#[test]
fn a_child_has_the_descriptors_of_one_moment() {
    for (cpus, rounds) in [("1", "50"), ("2", "300"), ("4", "500")] {
        let run = run(&["-c", cpus], &[&compiled("table_race", Compiler::Musl), rounds]);
        assert!(run.status == 0 && run.text() == "table_race: done\n", "{cpus} CPUs: {run:?}");
    }
}

/// Processes read the memory and the mappings of another one through shared open files, while that forks.
#[test]
fn a_memory_is_read_by_several_while_it_is_copied() {
    for (cpus, rounds) in [("1", "60"), ("2", "100")] {
        let run = run(&["-m", "512M", "-c", cpus], &[&compiled("mem_reads", Compiler::Musl), rounds]);
        assert!(run.status == 0 && run.text() == "mem_reads: done\n", "{cpus} CPUs: {run:?}");
    }
}

/// A traced process ends, or runs another program, while its main thread leaves.
#[test]
fn a_tracer_has_nothing_to_wait_for_after_the_end() {
    for (cpus, rounds) in [("1", "200"), ("2", "1500"), ("4", "3000")] {
        let run = run(&["-c", cpus], &[&compiled("trace_ends", Compiler::Musl), rounds]);
        assert!(run.status == 0 && run.text() == "trace_ends: done\n", "{cpus} CPUs: {run:?}");
    }
}

/// A process is traced and let go while others send it SIGCONT.
#[test]
fn a_thread_that_is_let_go_goes_on() {
    for (cpus, rounds) in [("1", "100"), ("4", "600")] {
        let run = run(&["-c", cpus], &[&compiled("trace_cont", Compiler::Musl), rounds]);
        assert!(run.status == 0 && run.text() == "trace_cont: done\n", "{cpus} CPUs: {run:?}");
    }
}

/// A thread that traces leaves while its tracee makes children.
#[test]
fn a_child_is_not_traced_by_a_thread_that_left() {
    for (cpus, rounds) in [("1", "100"), ("4", "600")] {
        let run = run(&["-c", cpus], &[&compiled("trace_leave", Compiler::Musl), rounds]);
        assert!(run.status == 0 && run.text() == "trace_leave: done\n", "{cpus} CPUs: {run:?}");
    }
}

/// A thread ignores a signal while another handles it and then sends it.
#[test]
fn an_action_discards_no_later_signal() {
    let run = run(&["-c", "2"], &[&compiled("action_race", Compiler::Musl), "1000", "300"]);
    assert!(run.status == 0 && run.text() == "action_race: done\n", "{run:?}");
}

/// Threads look names up while others create, remove, replace and move names beside them.
#[test]
fn a_name_that_stays_is_always_found() {
    for (cpus, rounds) in [("1", "200"), ("2", "500"), ("4", "1000")] {
        let run = run(&["-c", cpus], &[&compiled("name_race", Compiler::Musl), rounds]);
        assert!(run.status == 0 && run.text() == "name_race: done\n", "{cpus} CPUs: {run:?}");
    }
}

/// A removed file is freed after a grace period of RCU, which a write without room ends.
#[test]
fn removed_files_leave_their_room() {
    for cpus in ["1", "4"] {
        let run = run(&["-m", "128M", "-c", cpus], &[&compiled("room", Compiler::Musl), "5"]);
        assert!(run.status == 0 && run.text() == "room: done\n", "{cpus} CPUs: {run:?}");
    }
}

/// Threads that remove their files and write the next ones at once, and together use nine tenths of the room,
/// never take it from one another.
#[test]
fn living_files_leave_room_to_each_of_many_threads() {
    for (cpus, threads, rounds) in [("2", "3", "120"), ("2", "8", "40"), ("4", "3", "40")] {
        let words = [&compiled("room", Compiler::Musl), rounds, threads];
        let run = run(&["-m", "64M", "-c", cpus], &words);
        assert!(run.status == 0 && run.text() == "room: done\n", "{cpus} CPUs, {threads} threads: {run:?}");
    }
}

#[test]
fn a_storm_of_memory_calls_harms_nobody() {
    CALLS.run_each(&[("1", "percore", 1), ("4", "adaptive", 2), ("2", "shared", 3)]);
}

#[test]
fn a_storm_of_file_calls_harms_nobody() {
    FILES.run_each(&[("1", "adaptive", 1), ("2", "adaptive", 2), ("8", "adaptive", 3)]);
}

#[test]
fn a_storm_on_a_mapped_file_keeps_its_pages_apart() {
    MAPPINGS.run_each(&[("1", "adaptive", 1), ("2", "percore", 2), ("4", "adaptive", 4), ("2", "shared", 2)]);
}

#[test]
fn a_storm_of_process_calls_harms_nobody() {
    PROCESSES.run_each(&[("1", "adaptive", 1), ("2", "adaptive", 2), ("4", "adaptive", 3)]);
}

#[test]
fn a_storm_of_socket_calls_harms_nobody() {
    SOCKETS.run_each(&[("1", "adaptive", 1), ("4", "adaptive", 2), ("8", "adaptive", 3)]);
}

#[test]
fn a_storm_of_tracers_harms_nobody() {
    TRACES.run_each(&[("1", "adaptive", 1), ("2", "adaptive", 2), ("4", "adaptive", 3)]);
}

#[test]
#[ignore = "takes half an hour: cargo xtask fuzz"]
fn on_and_on_tracers() {
    TRACES.run_on_and_on();
}

#[test]
#[ignore = "takes half an hour: cargo xtask fuzz"]
fn on_and_on_socket_calls() {
    SOCKETS.run_on_and_on();
}

#[test]
#[ignore = "takes half an hour: cargo xtask fuzz"]
fn on_and_on_memory_calls() {
    CALLS.run_on_and_on();
}

#[test]
#[ignore = "takes half an hour: cargo xtask fuzz"]
fn on_and_on_file_calls() {
    FILES.run_on_and_on();
}

#[test]
#[ignore = "takes half an hour: cargo xtask fuzz"]
fn on_and_on_a_mapped_file() {
    MAPPINGS.run_on_and_on();
}

#[test]
#[ignore = "takes half an hour: cargo xtask fuzz"]
fn on_and_on_process_calls() {
    PROCESSES.run_on_and_on();
}

//! The rules of `pathreads/conformance`, linked dynamically and statically.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::skipped::skip;
use super::{WAYS, in_way, see};

/// Compiles a file of rules.
pub(super) fn compile(name: &str, folder: &Path, linkage: &[&str]) -> PathBuf {
    let source = launch::place::root().join("pathreads/conformance").join(name).with_extension("c");
    let program = folder.join(name);
    let mut compiler = Command::new("gcc");
    compiler.args(["-O1", "-fexceptions", "-Wall", "-Wextra", "-Werror", "-pthread"]).args(linkage);
    let status = compiler.arg("-o").arg(&program).arg(source).status();
    assert!(status.expect("gcc starts").success(), "{name} does not compile");
    program
}

/// Rules that do not hold with `--isolate`, and why.
const NOT_ISOLATED: [(&str, &str); 9] = [
    ("a_filter_sees_the_programs_calls_only", "filters are refused by name"),
    ("a_file_over_a_part_is_the_programs_copy", "advice to drop a copied mapping of a file is ignored"),
    ("dropped_memory_has_the_files_bytes_again", "advice to drop a copied mapping of a file is ignored"),
    ("dropped_files_survive_random_calls_of_threads", "advice to drop a copied mapping of a file is ignored"),
    ("locked_memory_is_not_dropped", "memory is locked in the thread that asks, and dropped in the file"),
    ("clone_shares_as_it_is_told", "processes that share memory are refused by name"),
    ("descriptors_are_kept_and_closed", "the list of descriptors shows the runtime's"),
    ("a_handler_sees_where_a_read_waits", "the list of mappings names no files"),
    ("a_handler_sees_where_ppoll_waits", "the list of mappings names no files"),
];

/// Rules that hold where no unmapped memory is accessible: with the pool some is, for a while.
const STRICT: [&str; 5] = [
    "memory_outlives_its_thread",
    "no_thread_reads_what_is_unmapped",
    "a_child_has_what_any_thread_mapped",
    "a_new_thread_has_what_its_maker_has",
    "neighbours_are_unmapped_one_by_one",
];

/// Returns the names of the rules of a program.
pub(super) fn names(program: &Path) -> Vec<String> {
    let rules = see(in_way(&[], program)).text;
    assert!(rules.lines().count() > 10, "{rules}");
    rules.lines().map(str::to_owned).collect()
}

/// Returns whether a rule should hold in a way.
pub(super) fn is_kept(way: &[&str], rule: &str) -> bool {
    match way {
        ["--isolate"] => NOT_ISOLATED.iter().all(|(name, _)| *name != rule),
        ["--pool"] => !STRICT.contains(&rule),
        _ => true,
    }
}

/// Runs a rule with threads in address spaces of their own, if it should hold there: as it is, and after the
/// number of calls after which code is rewritten.
fn isolated(program: &Path, rule: &str) -> Vec<super::Seen> {
    if !is_kept(&["--isolate"], rule) {
        return Vec::new();
    }
    let run = |calls: &str| {
        let mut command = in_way(&["--isolate"], program);
        command.arg(rule).env("CALLS", calls);
        see(command)
    };
    ["0", "1000"].map(run).into()
}

/// Runs each rule of a file in each way.
fn compare(name: &str, linkage: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(name, folder.path(), linkage);
    let mut broken = Vec::new();
    for rule in names(&program) {
        let rule = rule.as_str();
        let seen = WAYS.map(|way| {
            let mut command = in_way(way, &program);
            command.arg(rule);
            see(command)
        });
        // The runtime rewrites code after 500 calls.
        let mut command = in_way(WAYS[1], &program);
        command.arg(rule).env("CALLS", "1000");
        let rewritten = see(command);
        let [plain, pool, strict] = &seen;
        assert!(!matches!(plain.status, Some(98 | 99 | 124)), "{rule} does not hold here: {plain:?}");
        let is_lazy = |way: &str| way != "strict" && !is_kept(&["--pool"], rule);
        for (way, other) in [("with the pool", pool), ("strict", strict), ("rewritten", &rewritten)] {
            if plain != other && !is_lazy(way) {
                broken.push(format!("{rule}\nplain: {plain:?}\n{way}: {other:?}"));
            }
        }
        for other in isolated(&program, rule).iter().filter(|other| *other != plain) {
            broken.push(format!("{rule}\nplain: {plain:?}\nisolated: {other:?}"));
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn threads() {
    compare("threads", &[]);
}

#[test]
fn memory() {
    compare("memory", &[]);
}

#[test]
fn reservations() {
    compare("reservations", &[]);
}

#[test]
fn signals() {
    compare("signals", &[]);
}

#[test]
fn sharing() {
    compare("sharing", &[]);
}

#[test]
fn taken() {
    compare("taken", &[]);
}

#[test]
fn process() {
    compare("process", &[]);
}

#[test]
fn buffers() {
    compare("buffers", &[]);
}

#[test]
fn files() {
    compare("files", &[]);
}

#[test]
fn children() {
    compare("children", &[]);
}

#[test]
fn forks() {
    compare("forks", &[]);
}

#[test]
fn delivery() {
    compare("delivery", &[]);
}

#[test]
fn timers() {
    compare("timers", &[]);
}

#[test]
fn timers_linked_statically() {
    compare("timers", &["-static"]);
}

#[test]
fn delivery_linked_statically() {
    compare("delivery", &["-static"]);
}

#[test]
fn threads_linked_statically() {
    compare("threads", &["-static"]);
}

#[test]
fn children_linked_statically() {
    compare("children", &["-static"]);
}

#[test]
fn memory_linked_statically() {
    compare("memory", &["-static"]);
}

#[test]
fn signals_linked_statically() {
    compare("signals", &["-static-pie"]);
}

#[test]
fn process_linked_statically() {
    compare("process", &["-static"]);
}

/// Where Linux has no syscall user dispatch, rewritten calls are enough.
#[test]
fn rules_hold_without_dispatch() {
    let folder = tempfile::tempdir().unwrap();
    let filter = compile("without_dispatch", folder.path(), &[]);
    if see(in_way(&[], &filter)).status == Some(97) {
        return skip("filters for system calls are forbidden here");
    }
    for name in ["signals", "process", "memory"] {
        let program = compile(name, folder.path(), &[]);
        for rule in see(in_way(&[], &program)).text.lines() {
            let seen = [WAYS[0], WAYS[1]].map(|way| {
                let mut command = in_way(&[], &filter);
                if !way.is_empty() {
                    command.arg(super::runtime()).args(way).arg("--");
                }
                command.arg(&program).arg(rule);
                see(command)
            });
            assert_eq!(seen[0], seen[1], "{name} {rule}");
        }
    }
}

/// Calls on reservations and on plain memory, each interrupted by a handler after every instruction, which
/// makes another call.
#[test]
fn calls_about_memory_are_interrupted_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    let [step, program] = ["step", "interrupted"].map(|name| compile(name, folder.path(), &[]));
    let pool = [["0", "0"], ["0", "3"], ["1", "1"], ["1", "2"], ["2", "4"], ["3", "0"], ["4", "1"]];
    let isolated = [["0", "3"], ["0", "6"], ["3", "3"], ["3", "6"]];
    // Each of these calls has some thousand instructions.
    let plain = [["5", "7"], ["6", "7"], ["7", "7"]];
    let ways = pool.map(|words| ("--pool", words, "1")).into_iter();
    let isolated = isolated.map(|words| ("--isolate", words, "1")).into_iter();
    let plain = plain.map(|words| ("--isolate", words, "7"));
    for (way, words, stride) in ways.chain(isolated).chain(plain) {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=10", "3600"]).arg(&step).arg(super::runtime());
        command.arg(way).arg(&program).args(words).env("STRIDE", stride);
        let seen = see(command);
        assert!(seen.status == Some(0) && seen.text.contains("everywhere"), "{way} {words:?}: {seen:?}");
    }
}

/// A signal comes while a thread changes memory of its own, and a second one after any instruction of the
/// runtime's handler of the first. Each comes once, and none stays blocked.
#[test]
fn a_signal_that_waits_is_interrupted_everywhere() {
    const SA_NODEFER: &str = "1073741824";
    let folder = tempfile::tempdir().unwrap();
    let [step, program] = ["step", "nested"].map(|name| compile(name, folder.path(), &[]));
    // How many instructions of the change come before, the first signal, and the flags of its action. The
    // second signal is 10. One that is sent as 11 is held back otherwise.
    let cases =
        [["400", "12", "0"], ["1000", "12", SA_NODEFER], ["1000", "11", "0"], ["2000", "10", SA_NODEFER]];
    for [before, first, flags] in cases {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=10", "3600"]).arg(&step).arg(super::runtime());
        command.arg("--isolate").arg(&program).args([first, flags]);
        command.envs([("FIRST", before), ("FIRST_SIGNAL", first)]);
        let seen = see(command);
        let rounds =
            seen.text.strip_prefix("0 of ").and_then(|text| text.split(' ').next()?.parse::<u32>().ok());
        // The handler has some hundred instructions.
        let is_right = seen.status == Some(0) && rounds.is_some_and(|rounds| rounds > 100);
        assert!(is_right, "{first} after {before}: {seen:?}");
    }
}

/// A round of memory that is no block makes no call of Linux but those that change a mapping.
#[test]
fn a_round_of_plain_memory_blocks_no_signals() {
    let folder = tempfile::tempdir().unwrap();
    let [counts, program] = ["counts", "round"].map(|name| compile(name, folder.path(), &[]));
    for (handler, blocks) in [("0", 0), ("10", 0), ("18", 4), ("20", 4), ("40", 4)] {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=10", "600"]).arg(&counts).arg(super::runtime());
        command.arg("--isolate").arg(&program).arg(handler);
        let seen = see(command);
        let calls = |number: &str| {
            let count = seen.text.lines().find_map(|line| line.strip_prefix(number)?.strip_prefix(": "));
            count.map_or(0, |count| count.parse().unwrap())
        };
        // mmap, munmap and fallocate, and rt_sigprocmask.
        let made = ["9", "11", "285", "14"].map(calls);
        assert_eq!(made, [1, 1, 1, blocks], "handler of {handler}: {seen:?}");
    }
}

/// A `fork` that copies on demand takes rights and mappings away. If Linux refuses that, all is copied.
#[test]
fn a_child_has_its_memory_when_mappings_are_refused() {
    const ROUNDS: usize = 4;
    let folder = tempfile::tempdir().unwrap();
    let [counts, program] = ["counts", "refused"].map(|name| compile(name, folder.path(), &[]));
    // munmap alone, and mprotect as well.
    for (way, refused) in [("0", "10 11"), ("1", "11 11")] {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=10", "600"]).arg(&counts).arg(super::runtime());
        command.arg("--isolate").arg(&program).arg(way).env("REFUSE", refused);
        let seen = see(command);
        let lines = "the child exited with 0\n".repeat(ROUNDS * usize::from(way == "1"));
        let expected = format!("{lines}0 pages are wrong\nthe child exited with 0\n");
        assert!(seen.status == Some(0) && seen.text == expected, "{way}: {seen:?}");
    }
}

/// Runs a program with threads in address spaces of their own under a program that traces it.
fn trace(tracer: &str, program: &str) -> super::Seen {
    let folder = tempfile::tempdir().unwrap();
    let [tracer, program] = [tracer, program].map(|name| compile(name, folder.path(), &[]));
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", "3600"]).arg(&tracer);
    command.arg(super::runtime()).arg("--isolate").arg(&program);
    see(command)
}

/// A member that a request has interrupted at a futex is held after every instruction, and woken there.
#[test]
fn a_member_is_woken_wherever_it_is_held() {
    let seen = trace("held", "woken");
    assert!(seen.status == Some(0) && seen.text == "woken everywhere\n", "{seen:?}");
}

/// A member that begins to map memory is stopped after every instruction, while another one makes a child.
#[test]
fn a_child_does_not_wait_for_what_a_member_was_about() {
    let seen = trace("stopped", "copied");
    assert!(seen.status == Some(0) && seen.text == "children map memory everywhere\n", "{seen:?}");
}

/// A thread that blocks a signal is interrupted after every instruction. From then on it is another thread's.
#[test]
fn a_blocked_signal_is_anothers_wherever_a_handler_comes() {
    let seen = trace("step", "masked");
    assert!(seen.status == Some(0) && seen.text.contains("everywhere"), "{seen:?}");
}

/// Unmapped memory stays accessible up to the documented bound, and not at all with `--strict`.
#[test]
fn unmapped_memory_is_accessible_within_the_bound() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile("bound", folder.path(), &[]);
    let cpus = std::thread::available_parallelism().unwrap().get();
    for words in [&[][..], &["reservations"]] {
        let bytes = WAYS.map(|way| {
            let mut command = in_way(way, &program);
            command.args(words);
            see(command).text.trim().parse::<usize>().unwrap()
        });
        assert_eq!((bytes[0], bytes[2]), (0, 0));
        assert!(0 < bytes[1] && bytes[1] <= cpus * (4 << 20), "{words:?}: {} bytes", bytes[1]);
    }
}

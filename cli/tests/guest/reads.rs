//! Reads of files: how they keep the pages that they copy (`--read-refs`).

use std::fs;

use serde_json::Value;

use crate::harness::{Compiler, Run, compiled, run, scratch};
use crate::meter::{contend, is_private, number};

/// All ways but the unsafe one.
const SAFE: [&str; 4] = ["pinned", "shared", "refcache", "paygo"];
/// The ways in which a read writes to no line that another core writes.
const PRIVATE: [&str; 3] = ["pinned", "refcache", "paygo"];

/// Meters as `contend` does, each row in the window with the fewest timer ticks of ten, or in the first one
/// without. The processes have just started, and the first ticks free the memory that this has left: 150
/// transfers in four ticks were seen. A window is shorter than a tick unless the host is busy.
fn contend_between_ticks(name: &str, options: &[&str], words: &[&str]) -> Vec<Value> {
    let ticks = |row: &Value| number(row, "ticks", "mean");
    let mut best = contend(name, options, words);
    for _ in 1..10 {
        if best.iter().all(|row| ticks(row) == 0.0) {
            break;
        }
        for (best, row) in best.iter_mut().zip(contend(name, options, words)) {
            if ticks(&row) < ticks(best) {
                *best = row;
            }
        }
    }
    best
}

/// Meters FxMark's DRBH, by processes or by threads, on 2 and 4 CPUs.
fn drbh(read_refs: &str, more: &[&str]) -> Vec<Value> {
    let name = format!("drbh-{read_refs}{}", more.concat());
    let options = ["--systems", "adaptive", "--cpus", "2,4", "--read-refs", read_refs];
    let rows = contend_between_ticks(&name, &options, &[&["drbh", "--iterations", "1000"], more].concat());
    assert!(rows.len() == 2 && rows.iter().all(|row| row["read_refs"] == read_refs), "{rows:?}");
    rows
}

#[test]
fn processes_that_read_one_block_share_nothing() {
    for read_refs in PRIVATE {
        drbh(read_refs, &[]).iter().for_each(is_private);
    }
    drbh("pinned", &["--bytes", "64"]).iter().for_each(is_private);
}

#[test]
fn threads_that_read_one_block_share_nothing() {
    for read_refs in PRIVATE {
        drbh(read_refs, &["--by-threads"]).iter().for_each(is_private);
    }
    drbh("pinned", &["--by-threads", "--bytes", "64"]).iter().for_each(is_private);
}

/// Both changes of the word find it at another core.
#[test]
fn a_shared_count_is_transferred_by_each_read() {
    for more in [[].as_slice(), &["--by-threads"]] {
        for row in drbh("shared", more) {
            assert!(number(&row, "transfers", "median") >= 1.0, "{row}");
        }
    }
}

/// Meters processes that map the block and count their reads in their own page tables.
fn lodic(cpus: &str, more: &[&str]) -> Value {
    lodic_with("shared", cpus, more)
}

fn lodic_with(tables: &str, cpus: &str, more: &[&str]) -> Value {
    let options = ["--systems", tables, "--cpus", cpus, "--read-refs", "lodic"];
    let name = format!("lodic-{tables}{}", more.concat());
    let words = [&["drbh", "--mapped", "--iterations", "1000"], more].concat();
    contend_between_ticks(&name, &options, &words).remove(0)
}

/// From four processes on, as in the paper. The others need not read.
#[test]
fn reads_that_are_counted_in_page_tables_share_nothing() {
    is_private(&lodic("4", &[]));
    is_private(&lodic("2", &["--sharers", "2"]));
}

/// With a table for each core, threads count in different tables too, so none meets another one.
#[test]
fn reads_that_are_counted_in_tables_of_cores_share_nothing() {
    is_private(&lodic_with("percore", "4", &[]));
    is_private(&lodic_with("percore", "4", &["--each", "4", "--sharers", "3"]));
    // Reads of several cores that are counted elsewhere would contend.
    let options = ["-c", "4", "--tables", "percore", "--read-refs", "lodic"];
    let by_threads = ["--each", "4", "--sharers", "3"];
    let words = ["drbh", "--threads", "4", "--mapped", "--iterations", "200000"];
    assert_eq!(counters(&run(&options, &[&words[..], &by_threads].concat())), 0);
}

/// Runs the same on two CPUs without a meter, and returns how many counters contention has made: none if all
/// reads are counted in page tables.
fn made_by_contention(more: &[&str]) -> i64 {
    let options = ["-c", "2", "--tables", "shared", "--read-refs", "lodic"];
    let words = ["drbh", "--threads", "2", "--mapped", "--iterations", "200000"];
    counters(&run(&options, &[&words, more].concat()))
}

fn counters(run: &Run) -> i64 {
    assert_eq!(run.status, 0, "{run:?}");
    run.counter("read_counters")
}

/// Checks that reads are not counted in page tables. A busy host may run one CPU after the other, so that
/// none meets the other at the page.
fn contends(more: &[&str]) {
    assert!((0..20).any(|_| made_by_contention(more) > 0), "{more:?}");
}

#[test]
fn fewer_than_four_processes_do_not_count_in_page_tables() {
    assert_eq!(made_by_contention(&["--sharers", "2"]), 0);
    contends(&["--sharers", "1"]);
}

/// No process has mapped the page. The first reads contend, and the rest are counted by the process.
#[test]
fn readers_that_contend_get_counters_of_their_own() {
    for tables in ["adaptive", "percore", "shared"] {
        let options = ["--systems", tables, "--cpus", "4", "--read-refs", "lodic"];
        let words = ["drbh", "--iterations", "1000"];
        contend_between_ticks(&format!("contended-{tables}"), &options, &words).iter().for_each(is_private);
    }
}

/// Checks that some questions about a frame looked at more than its word: at the counters of processes.
fn asks_for_counters(run: &Run) {
    assert!(run.counter("read_query_lines") > run.counter("read_queries"), "{run:?}");
}

/// The counters go while the processes wait, and come back: two processes have one before, and two after. The
/// page is freed as often as it is replaced.
#[test]
fn counters_go_when_their_processes_do_not_read() {
    for tables in ["adaptive", "percore", "shared"] {
        let options = ["-m", "128M", "-c", "4", "--tables", tables, "--read-refs", "lodic"];
        let run = run(&options, &[compiled("hotpage", Compiler::Musl).as_str(), "4", "300"]);
        assert!(run.text() == "hotpage: done\n" && counters(&run) >= 4, "{run:?}");
        asks_for_counters(&run);
    }
}

/// Some of 500 readers have counters when the page is truncated, punched out or dropped by advice. All drains
/// come to an end, and each frame is free when the program has ended (`run` checks that).
#[test]
fn a_page_that_500_processes_read_is_dropped() {
    for tables in ["adaptive", "shared"] {
        let options = ["-m", "512M", "-c", "4", "--tables", tables, "--read-refs", "lodic"];
        let run = run(&options, &[compiled("hotpage", Compiler::Musl).as_str(), "500", "9", "cut"]);
        assert!(run.text() == "hotpage: done\n", "{run:?}");
        assert!(counters(&run) > 1, "{run:?}");
        asks_for_counters(&run);
    }
}

/// The walk of the file's mappings finds the reader's own, so no read counts in the word, and none contends.
#[test]
fn a_walk_of_all_mappings_finds_the_readers_own() {
    let options = ["-c", "2", "--tables", "shared", "--read-refs", "lodic-file"];
    let words = ["drbh", "--threads", "2", "--mapped", "--iterations", "100000", "--among", "4"];
    assert_eq!(counters(&run(&options, &words)), 0);
}

/// A file of 20 pages is truncated twice. Each page takes a query before it is freed, and that looks at the
/// word, or also at a table for each of four cores. Refcache is not asked.
#[test]
fn a_query_looks_at_the_lines_that_may_count() {
    let none: &[&str] = &[];
    let mapped: &[&str] = &["--mapped"];
    let asked = [("shared", none, 1), ("paygo", none, 5), ("lodic", mapped, 1), ("lodic-file", mapped, 1)];
    let asked = asked.map(|(read_refs, more, words)| (read_refs, more, [40, 40 * words]));
    // The paper's query of a file of the boot image: the word, and the entries of four processes.
    let path = scratch("queries").join("file");
    fs::write(&path, [7; 20 * 4096]).unwrap();
    let file = format!("{}:/file", path.display());
    let others =
        [("refcache", none, [0, 0]), ("lodic-paper", &["--mapped", "--file", "/file"], [40, 40 * 5])];
    for (read_refs, more, wanted) in asked.into_iter().chain(others) {
        let options = ["-c", "4", "--tables", "shared", "--read-refs", read_refs, "--file", &file];
        let words =
            ["hotfile", "--pages", "20", "--reads", "1", "--iterations", "2", "--warmup", "0", "--json"];
        let report = run(&options, &[&words, more].concat()).report();
        let counts =
            ["read_queries", "read_query_lines"].map(|name| report["counters"][name].as_u64().unwrap());
        assert_eq!(counts, wanted, "{read_refs}: {report}");
    }
}

/// The parent counts among those that share the file.
#[test]
fn a_child_counts_where_its_parent_does() {
    is_private(&lodic("4", &["--inherit"]));
    // The parent, its two children that read, and one more.
    assert_eq!(made_by_contention(&["--inherit", "--sharers", "1"]), 0);
    contends(&["--inherit"]);
}

/// A process has eight named regions. The ninth takes the place of the oldest, which is the block's.
#[test]
fn a_ninth_region_takes_the_place_of_the_oldest() {
    is_private(&lodic("4", &["--regions", "8"]));
    assert_eq!(made_by_contention(&["--sharers", "2", "--regions", "8"]), 0);
    contends(&["--sharers", "2", "--regions", "9"]);
}

/// Threads of a process meet in the entry of its page table, or in its counter, a few times. Then each of
/// their cores has counters of its own.
#[test]
fn threads_of_a_process_count_apart() {
    is_private(&lodic("4", &["--each", "2", "--sharers", "2"]));
    for tables in ["adaptive", "percore", "shared"] {
        let options = ["--systems", tables, "--cpus", "4", "--read-refs", "lodic"];
        let words = ["drbh", "--by-threads", "--iterations", "1000"];
        contend_between_ticks(&format!("apart-{tables}"), &options, &words).iter().for_each(is_private);
    }
}

/// Mappings that come and go in other processes change nothing for readers.
#[test]
fn mappings_of_others_do_not_disturb_reads() {
    let row = lodic("4", &["--noise", "1", "--sharers", "1"]);
    let phases = row["phases"].as_array().expect("phases");
    let reading = phases.iter().find(|phase| phase["phase"] == 1).expect("a phase of reads");
    assert!(reading["transfers"].as_f64().expect("a number") < 0.05, "{row}");
}

/// Meters three processes that read the block beside one that disturbs them. With `lodic` they count in their
/// own page tables.
fn beside(read_refs: &str, way: &str, more: &[&str]) -> Value {
    let tables = if read_refs == "lodic" { "shared" } else { "adaptive" };
    let mapped: &[&str] = if read_refs == "lodic" { &["--mapped", "--sharers", "1"] } else { &[] };
    let options = [&["--systems", tables, "--cpus", "4", "--read-refs", read_refs], more].concat();
    let words = [&["drbh", "--iterations", "2000", "--noise", "1", "--beside", way], mapped].concat();
    let kind = way.split('=').next().unwrap();
    contend_between_ticks(&format!("{kind}-{read_refs}"), &options, &words).remove(0)
}

/// Returns the transfers per round of the lines that count pages.
fn of_counts(row: &Value) -> f64 {
    row["by_owner"]["page-counts"].as_f64().unwrap_or(0.0)
}

/// A file that readers of another file do not know: its pages are dropped, or reclaimed.
fn other_file() -> String {
    let path = scratch("reads-beside").join("big");
    fs::write(&path, vec![0x77; 16 << 20]).unwrap();
    format!("{}:/big", path.display())
}

/// Truncation looks at no count but those of the pages that go. Each read finds the new length of the file.
#[test]
fn reads_beside_a_truncation_of_another_page_share_no_count() {
    for read_refs in ["pinned", "lodic"] {
        let row = beside(read_refs, "extends", &[]);
        assert_eq!(of_counts(&row), 0.0, "{row}");
        assert!(
            row["by_owner"].as_object().unwrap().values().any(|moved| moved.as_f64() > Some(0.05)),
            "{row}"
        );
    }
    let row = beside("shared", "extends", &[]);
    assert!(of_counts(&row) > 0.5, "{row}");
}

/// The block is truncated and written anew in each 64th round. Its new page is counted in the word until
/// readers have met there a few times.
#[test]
fn reads_beside_truncations_of_the_block_share_its_count_a_few_times() {
    let row = beside("pinned", "truncates", &[]);
    assert_eq!(of_counts(&row), 0.0, "{row}");
    let row = beside("shared", "truncates", &[]);
    assert!(of_counts(&row) > 0.5, "{row}");
    let row = beside("lodic", "truncates", &[]);
    assert!((0.001..0.2).contains(&of_counts(&row)), "{row}");
}

#[test]
fn reads_beside_dropped_pages_of_another_file_share_nothing() {
    let file = other_file();
    for read_refs in ["pinned", "lodic"] {
        let row = beside(read_refs, "drops=/big", &["--file", &file]);
        assert_eq!(of_counts(&row), 0.0, "{row}");
        let phases = row["phases"].as_array().expect("phases");
        assert!(phases[1]["transfers"].as_f64().unwrap() < 0.05, "{row}");
    }
}

/// A core that reclaims makes all others take part in epochs, by interrupts. The few counts that move are
/// those of frames that it gives to other cores.
#[test]
fn reads_beside_reclaim_share_no_count() {
    let file = other_file();
    for read_refs in ["pinned", "lodic"] {
        // A window may have no reclaim, which waits by the host's clock.
        let has_reclaim = || {
            let row = beside(read_refs, "sweeps=/big", &["--file", &file, "--memory", "48M"]);
            assert!(of_counts(&row) < 0.05, "{row}");
            row["phases"][2]["ipis"].as_f64().unwrap() > 0.0
        };
        assert!((0..4).any(|_| has_reclaim()), "no reclaim beside {read_refs}");
    }
}

/// Processes that read a key-value file: random keys, or one block after the other.
#[test]
fn processes_that_read_records_share_nothing() {
    for more in [[].as_slice(), &["--scan"]] {
        let name = format!("kvread{}", more.concat());
        let words = [&["kvread", "--iterations", "1000"], more].concat();
        contend_between_ticks(&name, &["--systems", "adaptive", "--cpus", "4"], &words)
            .iter()
            .for_each(is_private);
    }
}

/// Pairs of a client and a server, each on one CPU, share the page only.
#[test]
fn servers_of_one_page_share_nothing() {
    let words = ["webserve", "--iterations", "500"];
    contend_between_ticks("webserve", &["--systems", "adaptive", "--cpus", "4"], &words)
        .iter()
        .for_each(is_private);
}

/// Runs a storm of reads, into memory that is not there yet, of a file that others change.
fn storm(options: &[&str], words: &[&str]) -> Run {
    let run = run(options, &[&[compiled("readstorm", Compiler::Musl).as_str()], words].concat());
    assert!(run.status == 0 && run.text() == "readstorm: done\n", "{options:?}: {run:?}");
    assert_eq!(run.counter("read_counter_pages"), 0, "{options:?}: {run:?}");
    run
}

#[test]
fn no_read_sees_a_page_that_its_file_has_dropped() {
    for read_refs in SAFE {
        for tables in ["adaptive", "shared"] {
            let options = ["-m", "256M", "-c", "3", "--tables", tables, "--read-refs", read_refs];
            storm(&options, &["4", "500", "7"]);
        }
    }
    for (tables, read_refs) in [
        ("adaptive", "lodic"),
        ("percore", "lodic"),
        ("shared", "lodic"),
        ("shared", "lodic-file"),
        ("shared", "lodic-unsplit"),
        ("shared", "lodic-paper"),
    ] {
        storm(&["-m", "256M", "-c", "3", "--tables", tables, "--read-refs", read_refs], &["6", "500", "7"]);
    }
    for (tables, read_refs) in [("adaptive", "pinned"), ("shared", "lodic"), ("percore", "lodic")] {
        let options = ["-m", "512M", "-c", "8", "--tables", tables, "--read-refs", read_refs];
        storm(&options, &["64", "60", "10"]);
    }
    // With baselines, the file's reference waits for the reads.
    for (refs, read_refs) in
        [("atomic", "shared"), ("sloppy", "paygo"), ("snzi", "refcache"), ("atomic", "lodic")]
    {
        storm(&["-m", "256M", "-c", "3", "--refs", refs, "--read-refs", read_refs], &["4", "300", "8"]);
    }
}

/// The end is read again after the copy. The two threads meet in few of the rounds.
#[test]
fn a_read_that_meets_a_truncation_is_short() {
    for read_refs in SAFE {
        let options = ["-m", "64M", "-c", "2", "--read-refs", read_refs];
        let run = run(&options, &[compiled("shortread", Compiler::Musl).as_str(), "300"]);
        assert!(run.status == 0 && run.text().starts_with("shortread: done"), "{read_refs}: {run:?}");
    }
}

/// Calls copy 1, 2, 4 and 8 bytes by one instruction each. The bytes of a word were copied one by one before.
#[test]
fn a_word_is_read_and_written_as_a_whole() {
    let run = run(&["-c", "4"], &[compiled("wholewords", Compiler::Musl).as_str(), "30000"]);
    assert!(run.status == 0 && run.text() == "wholewords: done\n", "{run:?}");
}

/// A process keeps memory full of a file's pages that can be dropped. So the faults in the middle of a copy
/// have to reclaim, while others drop the page that is being copied.
#[test]
fn a_copy_that_faults_when_memory_is_short_shows_the_page() {
    let path = scratch("reads").join("big");
    fs::write(&path, vec![0x77; 16 << 20]).unwrap();
    let file = format!("{}:/big", path.display());
    let kinds = SAFE
        .map(|read_refs| ("adaptive", read_refs, "3"))
        .into_iter()
        .chain(["adaptive", "percore", "shared"].map(|tables| (tables, "lodic", "6")));
    for (tables, read_refs, processes) in kinds {
        let options = ["-m", "36M", "-c", "2", "--tables", tables, "--read-refs", read_refs, "--file", &file];
        let run = storm(&options, &[processes, "200", "9", "/big"]);
        assert!(run.counter("pages_reclaimed") > 0, "{run:?}");
    }
}

/// Makes a file that fills memory and one that is read, and returns the option that mounts them at `/cold`.
fn cold_files(name: &str) -> String {
    let folder = scratch(name);
    fs::write(folder.join("big"), vec![0x77; 48 << 20]).unwrap();
    let pages: Vec<u8> = (1..=48).flat_map(|page| [page; 4096]).collect();
    fs::write(folder.join("read"), pages).unwrap();
    format!("{}:/cold", folder.display())
}

/// Pages of a file of this machine are dropped and read again, by advice and reclaim, while they are copied.
#[test]
fn a_copy_of_a_page_that_is_reclaimed_shows_the_page() {
    let mount = cold_files("cold-reads");
    let kinds = SAFE.map(|read_refs| ("adaptive", read_refs)).into_iter();
    let lodic = [("adaptive", "lodic"), ("percore", "lodic"), ("shared", "lodic"), ("shared", "lodic-paper")];
    for (tables, read_refs) in kinds.chain(lodic) {
        let memory = ["-m", "40M", "-c", "2", "--tables", tables, "--read-refs", read_refs];
        let options = [&memory[..], &["--rw", &mount]].concat();
        let compressed = [&options[..], &["--compress"]].concat();
        for options in [&options[..], &compressed] {
            let run = storm(options, &["5", "100", "12", "/cold/big", "/cold/read"]);
            assert!(run.counter("pages_reclaimed") > 0, "{run:?}");
        }
    }
}

/// The copy sleeps until there is room for a page of its buffer. Meanwhile the page that it copies leaves the
/// file, and with it the entry of a page table that may count the read. A frame that is freed too early shows
/// other bytes. A count that is lost keeps the frame for ever, which `run` finds.
#[test]
fn a_read_that_sleeps_keeps_the_page_that_its_file_drops() {
    let slow_reads = SlowReads::new();
    for read_refs in SAFE {
        slow_reads.pass("1", "adaptive", read_refs, "40");
    }
    for (cpus, tables, read_refs, rounds) in [
        ("1", "shared", "lodic", "40"),
        ("2", "shared", "lodic", "20"),
        ("1", "shared", "lodic-file", "40"),
        ("1", "shared", "lodic-paper", "40"),
        ("1", "percore", "lodic", "40"),
        ("2", "percore", "lodic", "20"),
    ] {
        slow_reads.pass(cpus, tables, read_refs, rounds);
    }
    // On three CPUs the reads before contend, unless the host is busy. So processes have counters.
    assert!((0..10).any(|_| slow_reads.pass("3", "adaptive", "lodic", "20")));
}

/// An entry is cleared by another core, and in a table of its own by an interrupt of the reader's, while a
/// read is counted there.
#[test]
fn a_count_moves_when_its_entry_is_cleared_in_the_middle_of_a_copy() {
    let program = compiled("midcopy", Compiler::Musl);
    for (tables, read_refs) in [("percore", "lodic"), ("shared", "lodic"), ("shared", "lodic-paper")] {
        let options = ["-c", "2", "--tables", tables, "--read-refs", read_refs];
        let run = run(&options, &[program.as_str(), "4000"]);
        assert!(run.status == 0 && run.text() == "midcopy: done\n", "{tables}: {run:?}");
    }
}

/// As in LODIC's paper, a core that is to drop a page looks at the counts of all processes, and leaves the
/// page if there is one.
#[test]
fn a_page_that_is_being_read_is_not_dropped_where_that_is_asked() {
    let slow_reads = SlowReads::new();
    let arguments = ["40", "/slow/page", "stays"];
    let run = slow_reads.run("1", "shared", "lodic-paper", &arguments);
    assert!(run.status == 0 && run.text() == "slowread: done\n", "{run:?}");
    assert!(run.counter("read_query_lines") > run.counter("read_queries"), "{run:?}");
    let other = slow_reads.run("1", "shared", "lodic", &arguments);
    assert!(other.text().starts_with("slowread: the page was dropped while it was read\n"), "{other:?}");
}

/// The same reads show if nothing keeps the page.
#[test]
fn a_read_that_sleeps_may_return_bytes_of_another_page_if_nothing_keeps_it() {
    let run = SlowReads::new().run("1", "adaptive", "none", &["1000", "/slow/page"]);
    assert!(run.text().contains("a read returned bytes of another page"), "{run:?}");
}

/// Runs `slowread`.
struct SlowReads {
    mount: String,
    program: String,
}

impl SlowReads {
    fn new() -> Self {
        let folder = scratch("slow-reads");
        fs::write(folder.join("page"), [0x11; 4096]).unwrap();
        Self { mount: format!("{}:/slow", folder.display()), program: compiled("slowread", Compiler::Musl) }
    }

    fn run(&self, cpus: &str, tables: &str, read_refs: &str, arguments: &[&str]) -> Run {
        let options =
            ["-m", "64M", "-c", cpus, "--tables", tables, "--read-refs", read_refs, "--rw", &self.mount];
        run(&options, &[&[self.program.as_str()][..], arguments].concat())
    }

    /// Runs it with a file in memory and with one of this machine. Returns whether questions about frames
    /// looked at more than their words in both.
    fn pass(&self, cpus: &str, tables: &str, read_refs: &str, rounds: &str) -> bool {
        let runs = [&[rounds][..], &[rounds, "/slow/page"]].map(|arguments| {
            let run = self.run(cpus, tables, read_refs, arguments);
            assert!(run.status == 0 && run.text() == "slowread: done\n", "{tables} {read_refs}: {run:?}");
            run
        });
        runs.iter().all(|run| run.counter("read_query_lines") > run.counter("read_queries"))
    }
}

/// Copies that fault with memory short, of 64 processes, which share the memory that is left.
#[test]
fn many_copies_that_fault_when_memory_is_short_show_the_page() {
    let path = scratch("many-reads").join("big");
    fs::write(&path, vec![0x77; 16 << 20]).unwrap();
    let file = format!("{}:/big", path.display());
    let options = ["-m", "42M", "-c", "4", "--tables", "shared", "--read-refs", "lodic", "--file", &file];
    let run = storm(&options, &["64", "40", "11", "/big"]);
    assert!(run.counter("pages_reclaimed") > 0, "{run:?}");
}

/// Pages of a file of this machine that 64 processes read are dropped by advice and reclaim.
#[test]
fn many_copies_of_a_page_that_is_reclaimed_show_the_page() {
    let cold = cold_files("many-cold-reads");
    for (tables, read_refs) in [("shared", "lodic"), ("percore", "lodic")] {
        let options = ["-m", "56M", "-c", "4", "--tables", tables, "--read-refs", read_refs, "--rw", &cold];
        let run = storm(&options, &["64", "40", "13", "/cold/big", "/cold/read"]);
        assert!(run.counter("pages_reclaimed") > 0, "{run:?}");
    }
}

/// The kernel says that this one is unsafe.
#[test]
fn a_kernel_that_counts_no_reads_says_so() {
    let hello = compiled("hello", Compiler::Musl);
    let [loud, quiet] = ["none", "shared"].map(|read_refs| run(&["-v", "--read-refs", read_refs], &[&hello]));
    assert!(loud.status == 0 && loud.stderr.contains("read_refs=none"), "{loud:?}");
    assert!(quiet.status == 0 && !quiet.stderr.contains("read_refs=none"), "{quiet:?}");
}

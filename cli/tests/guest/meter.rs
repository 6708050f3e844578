//! The contention meter, on programs whose traffic is known. In the kernel it must find no traffic.

use std::fs;
use std::process::Output;

use launch::artifacts;
use serde_json::Value;

use crate::harness::{Compiler, compiled, radixvm_within, scratch, unless_busy};

/// Sizes at which each build keeps the promise of the design.
const GATED: &str = "2,4,8";
/// The transfers of a timer tick, which drives the epochs: 35 to 74 in 8 to 12 ticks were seen.
pub const OF_A_TICK: f64 = 10.0;
/// The transfers of a CPU that are of no tick: in the window it reads some lines for the first time since
/// another CPU wrote them. 18 at 8 CPUs were seen.
const FIRST_READS: f64 = 4.0;
/// The mean transfers per round of threads that sleep. On a busy host they wake at different times, and an
/// epoch that turns while some are awake moves lines (17 in 279 rounds were seen, and 80 in 248). A line that
/// each round moves would cost 1.0.
const OF_SLEEPERS: f64 = 0.5;
/// The rounds of the racing probe that another CPU does alone during a tick. The longest tick that was seen
/// has 25,000 instructions, as many as 76 rounds.
const ROUNDS_OF_A_TICK: f64 = 100.0;
/// The rounds without a transfer after which racing threads have moved apart.
const MOVED_APART: f64 = 10.0;

fn output(options: &[&str], words: &[&str]) -> Output {
    unless_busy(|| {
        radixvm_within("3600").arg("contend").args(options).arg("--").args(words).output().unwrap()
    })
}

/// Returns the rows of `radixvm contend OPTIONS -- WORDS`.
pub fn contend(name: &str, options: &[&str], words: &[&str]) -> Vec<Value> {
    let json = scratch("meter").join(name).with_extension("json");
    let file = json.display().to_string();
    let output = output(&[options, &["--json", &file]].concat(), words);
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&fs::read(json).unwrap()).unwrap()
}

fn on_radix(name: &str, cpus: &str, words: &[&str]) -> Vec<Value> {
    contend(name, &["--systems", "percore", "--cpus", cpus], words)
}

/// Returns a percentile, or the mean, of a count.
pub fn number(row: &Value, count: &str, of: &str) -> f64 {
    row[count][of].as_f64().unwrap_or_else(|| panic!("no {of} of {count}: {row}"))
}

/// Returns a count of all rounds together.
fn in_the_window(row: &Value, count: &str) -> f64 {
    (number(row, count, "mean") * row["rounds"].as_f64().unwrap()).round()
}

/// Checks that every round of a probe costs exactly this many transfers, not only the median.
fn probe(kind: &str, expected: f64) {
    for row in on_radix(kind, "2,4,8", &["probe", kind]) {
        for of in ["p10", "median", "p90"] {
            assert_eq!(number(&row, "transfers", of), expected, "{of}: {row}");
        }
    }
}

#[test]
fn private_counters_cost_nothing() {
    probe("private", 0.0);
}

#[test]
fn a_line_that_is_only_read_costs_nothing() {
    probe("read-mostly", 0.0);
}

/// The transfers are those of the addition, and of the turn, which is taken and passed on.
#[test]
fn a_shared_counter_costs_one_transfer_per_alternation() {
    probe("shared", 1.0 + 2.0);
}

#[test]
fn phases_are_counted_apart() {
    let rows = on_radix("phases", "2,4", &["probe", "shared"]);
    for row in &rows {
        let phases = row["phases"].as_array().unwrap();
        let told: Vec<_> = phases.iter().map(|phase| phase["phase"].as_u64().unwrap()).collect();
        assert_eq!(told, [0, 1], "{row}");
        for (phase, expected) in phases.iter().zip([2.0, 1.0]) {
            let transfers = phase["transfers"].as_f64().unwrap();
            let of_ticks = OF_A_TICK * number(row, "ticks", "mean");
            assert!((transfers - expected).abs() < 0.02 * expected + of_ticks, "{transfers}: {row}");
        }
    }
    assert!(on_radix("no-phases", "2", &["local"])[0]["phases"].as_array().unwrap().is_empty());
}

#[test]
fn false_sharing_costs_what_sharing_costs_and_is_called_so() {
    probe("false-sharing", 1.0 + 2.0);
    let text = output(&["--systems", "percore", "--cpus", "4"], &["probe", "false-sharing"]).stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains(", false sharing") && text.contains("probe/main.rs:"), "{text}");
}

#[test]
fn ping_pong_costs_two() {
    probe("ping-pong", 2.0);
}

/// The writer upgrades, and each reader is served.
#[test]
fn readers_of_one_writer_cost_one_each() {
    probe("readers", 1.0 + 2.0);
}

/// An instruction that loads and stores a word over two lines takes both lines once.
#[test]
fn an_access_over_two_lines_costs_two() {
    probe("split", 2.0 + 2.0);
}

/// Threads that add in rounds of some 330 instructions, without turns, alternate as long as none of them runs
/// ahead by much of a round.
#[test]
fn short_rounds_have_a_small_slack() {
    for row in on_radix("racing", "2,4", &["probe", "racing", "--iterations", "5000"]) {
        assert!(5.0 * row["slack"].as_f64().unwrap() <= number(&row, "instructions", "median"), "{row}");
        for of in ["p10", "median", "p90"] {
            assert_eq!(number(&row, "transfers", of), 1.0, "{of}: {row}");
        }
        let missing = row["rounds"].as_f64().unwrap() - in_the_window(&row, "transfers");
        let of_ticks = ROUNDS_OF_A_TICK * in_the_window(&row, "ticks");
        assert!(missing <= of_ticks + row["escapes"].as_f64().unwrap() + MOVED_APART, "{missing}: {row}");
    }
    let options = ["--systems", "percore", "--cpus", "2", "--slack", "200"];
    assert!(refused(&options, &["probe", "racing"]).contains("too short for a slack of 200"));
}

/// Checks that nothing is shared except by ticks and first reads, however many rounds there are, and that no
/// core is interrupted.
pub fn is_private(row: &Value) {
    is_private_in_most_rounds(row);
    assert!(is_within_allowance(row), "{row}");
}

fn is_private_in_most_rounds(row: &Value) {
    assert_eq!(number(row, "transfers", "median"), 0.0, "{row}");
    assert_eq!((number(row, "ipis", "mean"), number(row, "ipi_targets", "mean")), (0.0, 0.0), "{row}");
}

fn is_within_allowance(row: &Value) -> bool {
    let allowed = OF_A_TICK * in_the_window(row, "ticks") + FIRST_READS * row["cpus"].as_f64().unwrap();
    in_the_window(row, "transfers") <= allowed
}

/// Checks the same, and measures again if a tick has moved more, at most twice: it may free what the start
/// of the program has left (150 transfers in four ticks were seen).
pub fn are_private(measure: impl Fn() -> Vec<Value>) -> Vec<Value> {
    let is_told = |rows: &Vec<Value>| {
        rows.iter().for_each(is_private_in_most_rounds);
        rows.iter().filter(|row| number(row, "ticks", "mean") == 0.0).for_each(is_private);
        rows.iter().all(is_within_allowance)
    };
    let rows = (0..2).map(|_| measure()).find(is_told).unwrap_or_else(measure);
    rows.iter().for_each(is_private);
    rows
}

#[test]
fn local_shares_nothing() {
    let rows = are_private(|| on_radix("local", "1,2,4,8", &["local"]));
    let alone = number(&rows[0], "instructions", "median");
    for row in &rows[1..] {
        let change = number(row, "instructions", "median") / alone - 1.0;
        assert!(change.abs() <= 0.01, "instructions change by {change} from {alone}: {row}");
    }
}

/// A round of `local` maps, touches and unmaps a block. With one page less, all its pages are small.
#[test]
fn a_huge_page_costs_a_hundredth_of_its_small_ones() {
    let round = |pages| on_radix(pages, "1", &["local", "--pages", pages, "--iterations", "60"]).remove(0);
    let (huge, small) = (round("512"), round("511"));
    assert_eq!((number(&huge, "faults", "median"), number(&small, "faults", "median")), (1.0, 511.0));
    let instructions = |row| number(row, "instructions", "median");
    assert!(100.0 * instructions(&huge) <= instructions(&small), "{huge} {small}");
}

/// Any 1,100 pages contain an aligned block. Both kernels zero a page by 512 iterations of a string
/// instruction, however large it is.
#[test]
fn both_kernels_are_told_the_same_of_huge_pages() {
    for huge in ["never", "always"] {
        let options = ["--systems", "percore,linux", "--cpus", "1", "--huge", huge];
        let words = ["local", "--pages", "1100", "--iterations", "6"];
        let rows = contend(&format!("policy-{huge}"), &options, &words);
        assert_eq!(rows.len(), 2);
        for row in rows {
            assert_eq!(row["huge"], huge);
            assert_eq!(number(&row, "faults", "median") >= 1100.0, huge == "never", "{row}");
            let zeroed = number(&row, "string_iterations", "median") / 512.0;
            assert!((1100.0..1200.0).contains(&zeroed), "{zeroed} pages: {row}");
        }
    }
}

/// Cores map and unmap huge pages without interrupting one another.
#[test]
fn huge_pages_share_nothing() {
    let words = ["local", "--pages", "512", "--iterations", "300"];
    let rows = contend("huge", &["--systems", "percore,adaptive", "--cpus", GATED], &words);
    rows.iter().for_each(is_private);
}

/// The same holds for the default tables: cores that share no memory share no table.
#[test]
fn adaptive_tables_share_nothing_by_themselves() {
    for program in ["local", "faultstorm", "neighbours"] {
        let rows =
            contend(&format!("adaptive-{program}"), &["--systems", "adaptive", "--cpus", GATED], &[program]);
        rows.iter().for_each(is_private);
    }
}

/// The gates above would fail otherwise: with one table for all, every round interrupts all cores.
#[test]
fn one_table_for_all_is_seen() {
    for row in contend("shared", &["--systems", "shared", "--cpus", GATED], &["local"]) {
        let others = row["cpus"].as_f64().unwrap() - 1.0;
        assert!((number(&row, "ipis", "mean") - others).abs() < 0.05 * others, "{row}");
        assert!(number(&row, "transfers", "median") > others, "{row}");
    }
}

#[test]
fn faults_beside_maps_share_nothing() {
    are_private(|| on_radix("faultstorm", GATED, &["faultstorm"]));
}

/// The crates run in the program here, on simulated cores, without any system call. A mutex of the simulated
/// machine, and frames that shared lines, once cost 8 transfers at 8 CPUs.
#[test]
fn the_crates_share_nothing_on_simulated_cores() {
    for tables in ["percore", "adaptive"] {
        let words = ["simulated", "--tables", tables];
        on_radix(&format!("simulated-{tables}"), GATED, &words).iter().for_each(is_private);
    }
}

/// Under `radixvm native` threads on stock Linux share nothing while each maps a page of its own: with the
/// pool, whose chunks once shared lines (4 transfers a round), as in address spaces of their own.
#[test]
fn native_threads_share_nothing_on_stock_linux() {
    let [runtime, local] = [artifacts::runtime(), artifacts::program("local")].map(|path| path.unwrap());
    let (runtime, local) = (runtime.display().to_string(), format!("{}:/local", local.display()));
    for mode in ["--pool", "--isolate"] {
        let options = ["--systems", "linux", "--cpus", "1,2,4", "--file", &local];
        let words = [&runtime, mode, "--", "/local", "--threads", "{cpus}", "--iterations", "1000"];
        for row in contend(&format!("native{mode}"), &options, &words) {
            assert_eq!(number(&row, "transfers", "median"), 0.0, "{mode}: {row}");
            assert_eq!(number(&row, "ipi_targets", "mean").round(), 0.0, "{mode}: {row}");
        }
    }
}

/// Threads sleep in each round. Their CPUs go idle, doze in the epochs, and wake by their own timers. Other
/// CPUs are not involved.
#[test]
fn threads_that_sleep_share_nothing() {
    let words = ["local", "--pages", "100", "--sleep", "30", "--iterations", "40"];
    // A line that each round moves fails all of them.
    let mut rows: Vec<Value> = Vec::new();
    let is_private = (0..5).any(|_| {
        let row = on_radix("sleepers", "8", &words).remove(0);
        assert_eq!((number(&row, "ipis", "mean"), number(&row, "ipi_targets", "mean")), (0.0, 0.0), "{row}");
        let quiet = ["p10", "median", "p90"].iter().all(|of| number(&row, "transfers", of) == 0.0);
        let is_private = quiet && number(&row, "transfers", "mean") <= OF_SLEEPERS;
        rows.push(row);
        is_private
    });
    assert!(is_private, "{rows:?}");
}

/// The threads use different pages of one radix leaf, whose count changes in per-core caches. The huge-page
/// check looks at the tenth thread's page, if the first thread's pages do not already exclude a huge page.
#[test]
fn counting_references_to_one_node_shares_nothing() {
    are_private(|| on_radix("neighbours", "2,4,12", &["neighbours"]));
}

/// The threads read one page of one file, which they have open by one descriptor. A look-up that takes the
/// table's lock, or counts the file, would move a line in each round.
#[test]
fn reading_one_open_file_shares_nothing() {
    are_private(|| on_radix("readers", GATED, &["readers"]));
}

/// The transfers are the page and the hand-over, with one interrupt. They do not depend on other threads.
#[test]
fn pipeline_costs_the_same_at_every_size() {
    pipeline("percore");
    pipeline("adaptive");
}

fn pipeline(system: &str) {
    let rows = contend(&format!("pipeline-{system}"), &["--systems", system, "--cpus", GATED], &["pipeline"]);
    let two = number(&rows[0], "transfers", "median");
    for row in &rows {
        assert_eq!(number(row, "ipi_targets", "median"), 1.0, "{row}");
        assert!((number(row, "ipi_targets", "mean") - 1.0).abs() < 0.01, "{row}");
        assert!(number(row, "transfers", "median") <= two + 1.0, "{two} transfers at 2 CPUs: {row}");
    }
}

/// Waits come in steps as long as the slack. The slack is halved here so that a median at a step does not
/// jump.
#[test]
fn two_runs_agree() {
    let options = ["--systems", "percore", "--cpus", "4", "--slack", "100"];
    for program in ["local", "pipeline"] {
        let run = || contend("agree", &options, &[program]).remove(0);
        let agree = |first: &Value, second: &Value| {
            ["instructions", "transfers", "invalidations", "faults", "ipi_targets"].iter().all(|count| {
                let [a, b] = [first, second].map(|row| number(row, count, "median"));
                (a - b).abs() <= 0.02 * a
            })
        };
        // Where the host keeps a CPU from running, a few rounds are of another kind.
        let pair = || [run(), run()];
        let mut pairs = vec![pair()];
        while !pairs.last().is_some_and(|[first, second]| agree(first, second)) {
            assert!(pairs.len() < 3, "{program}: {pairs:?}");
            pairs.push(pair());
        }
    }
}

/// The same ELF file on the stock kernel moves lines and interrupts in every round. The page names their
/// owners.
#[test]
fn the_stock_kernel_fights_and_the_page_says_over_what() {
    let folder = scratch("meter").join("report");
    let folder_name = folder.display().to_string();
    let options = ["--systems", "percore,linux", "--cpus", "1,4", "--report", &folder_name];
    let rows = contend("linux", &options, &["local"]);
    let row = |system: &str, cpus: u16| {
        rows.iter().find(|row| row["system"] == system && row["cpus"] == cpus).unwrap()
    };
    assert!(number(row("linux", 4), "transfers", "median") > 10.0, "{rows:?}");
    assert!(number(row("linux", 4), "ipi_targets", "mean") > 0.5, "{rows:?}");
    let speedup = |system: &str| {
        number(row(system, 4), "predicted_rounds_per_s", "mean")
            / number(row(system, 1), "predicted_rounds_per_s", "mean")
    };
    assert!(
        speedup("radixvm") > 3.9 && speedup("linux") < 2.0,
        "{} {}",
        speedup("radixvm"),
        speedup("linux")
    );
    let page = fs::read_to_string(folder.join("index.html")).unwrap();
    assert!(
        page.contains("rwsem_down_write_slowpath+") && page.contains("per-CPU "),
        "no names in {folder_name}"
    );
}

#[test]
fn a_program_without_marks_is_one_round() {
    let hello = compiled("hello", Compiler::Static);
    let row = on_radix("hello", "1", &[&hello]).remove(0);
    assert_eq!((&row["marked"], &row["rounds"]), (&false.into(), &1.into()), "{row}");
    assert!(number(&row, "instructions", "mean") > 1000.0 && number(&row, "faults", "mean") >= 1.0, "{row}");
}

fn refused(options: &[&str], words: &[&str]) -> String {
    let output = output(options, words);
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn mistakes_are_named() {
    for cpus in ["0", "129", "two", ""] {
        assert!(refused(&["--cpus", cpus], &["local"]).contains("1 to 128"), "{cpus}");
    }
    let text = refused(&["--systems", "windows"], &["local"]);
    assert!(text.contains("adaptive, percore, shared") && text.contains("linux"), "{text}");
    assert!(refused(&["--slack", "0"], &["local"]).contains("--slack"));
    let text = refused(&["--systems", "percore", "--cpus", "1"], &["local", "--paegs", "1"]);
    assert!(text.contains("status 2") && text.contains("--paegs"), "{text}");
}

/// Checks the cost of processes that share nothing: at most `transfers` transfers, no more of them with more
/// processes, the same instructions at every size, and no interrupts.
fn costs_no_more_among_many(name: &str, words: &[&str], transfers: f64) {
    let rows = on_radix(name, GATED, words);
    let few = number(&rows[0], "instructions", "median");
    for row in &rows {
        assert!(number(row, "transfers", "median") <= transfers, "{row}");
        let change = number(row, "instructions", "median") / few - 1.0;
        assert!(change.abs() <= 0.003, "instructions change by {change} from {few}: {row}");
        assert_eq!(number(row, "ipi_targets", "mean"), 0.0, "{row}");
    }
    let [_, four, eight] = &rows[..] else { panic!("three sizes: {rows:?}") };
    let at = |row| number(row, "transfers", "median");
    assert!(at(eight) <= at(four) + 2.0, "{four} {eight}");
}

/// The processes make and end children. References to inherited objects are counted without sharing a line.
/// The rest are transfers of the frame pool, which a core asks for a block of frames until enough epochs have
/// passed for the frames of the first rounds to return.
#[test]
fn forks_share_nothing_but_the_pool() {
    costs_no_more_among_many("forkexit", &["forkexit", "--iterations", "60"], 2.0);
}

/// The children run a program from the boot image, whose path they all walk and which they all map. Besides
/// the pool they share the counts of the program's frames that leave the delta caches.
#[test]
fn execs_share_little_and_no_more_among_many() {
    costs_no_more_among_many("forkexec", &["forkexit", "--exec", "--iterations", "30"], 3.0);
}

/// The results of the other guests are printed and written, and the status says that one is missing.
#[test]
fn one_guest_that_fails_takes_no_other_along() {
    let json = scratch("meter").join("picky.json");
    let file = json.display().to_string();
    let program = compiled("picky", Compiler::Static);
    let options = ["--systems", "percore", "--cpus", "1,2,4", "--json", &file];
    let output = output(&options, &[&program]);
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(125), "{stdout}{stderr}");
    assert!(stderr.contains("skipped") && stderr.contains("with 2 CPUs"), "{stderr}");
    assert_eq!(stdout.lines().filter(|line| line.starts_with("RadixVM")).count(), 2, "{stdout}");
    let rows: Vec<Value> = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    assert_eq!(rows.iter().map(|row| row["cpus"].as_u64()).collect::<Vec<_>>(), [Some(1), Some(4)]);
}

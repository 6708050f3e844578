//! The baselines of RadixVM in the guest: counters of references to pages (`--refs`), and maps.

use serde_json::Value;

use crate::harness::{Compiler, compiled, run, run_losing};
use crate::meter::{OF_A_TICK, are_private, contend, number};

/// The counters that free unused pages.
const HONEST: [&str; 5] = ["refcache", "atomic", "locked", "snzi", "sloppy"];

/// Runs RadixVM's figure 8: four cores take a page and release it again.
fn sharing(refs: &str, how: &str) -> Value {
    sharing_with(refs, how, "pinned")
}

fn sharing_with(refs: &str, how: &str, read_refs: &str) -> Value {
    let options = ["--systems", "percore", "--cpus", "4", "--refs", refs, "--read-refs", read_refs];
    let row = contend(refs, &options, &["pageshare", how, "--iterations", "300"]).remove(0);
    assert_eq!(row["refs"], refs);
    row
}

#[test]
fn counts_by_core_share_nothing() {
    for refs in ["refcache", "sloppy", "none"] {
        are_private(|| vec![sharing(refs, "--keep")]);
    }
    // With entries that may count reads.
    are_private(|| vec![sharing_with("refcache", "--keep", "lodic")]);
}

/// A thread that maps again the page of its own mapping writes to no line of the file: the record of a
/// mapping counts the open file by core.
#[test]
fn a_second_mapping_of_a_page_shares_nothing() {
    are_private(|| vec![sharing("refcache", "--again")]);
}

/// A word that all cores change is transferred for each reference. If a leaf of SNZI goes to zero and back,
/// the root changes too.
#[test]
fn counts_that_know_zero_at_once_share_lines() {
    for (refs, least) in [("atomic", 2.0), ("locked", 2.0), ("snzi", 1.0)] {
        let row = sharing(refs, "--keep");
        assert!(number(&row, "transfers", "median") >= least, "{row}");
    }
}

/// A core that maps a file writes to its own record, and to the counts of the file and of the open file. It
/// does not write to the space, which all threads read at each call and each fault. That cost three more
/// transfers.
#[test]
fn mapping_a_file_leaves_the_space_alone() {
    let options = ["--systems", "percore", "--cpus", "4"];
    let row = contend("pageshare", &options, &["pageshare", "--iterations", "300"]).remove(0);
    assert!(number(&row, "transfers", "median") <= 7.0, "{row}");
}

/// Threads map and unmap one page, and use the pages that a program starts from. All of them are freed.
#[test]
fn a_page_that_is_mapped_by_all_comes_back_by_every_count() {
    for refs in HONEST {
        let words = ["pageshare", "--threads", "4", "--iterations", "200", "--json"];
        let report = run(&["-c", "4", "--refs", refs], &words).report();
        assert_eq!((&report["rounds"], &report["keep"]), (&800.into(), &false.into()));
        assert_eq!(report["counters"]["mmap"], 800);
    }
}

/// Files are truncated and punched while their pages are mapped. The last user frees the frame, and not too
/// soon.
#[test]
fn a_storm_on_a_mapped_file_by_every_count() {
    for refs in &HONEST[1..] {
        let words = [&compiled("mapstorm", Compiler::Musl), "4", "400", "7"];
        let run = run(&["-c", "3", "--refs", refs], &words);
        assert!(run.status == 0 && run.text() == "mapstorm: done\n", "{refs}: {run:?}");
    }
}

/// Without a count, a page that has left its file is lost. So the other tests can fail.
#[test]
fn uncounted_pages_are_lost() {
    let run = run_losing(&["-c", "2", "--refs", "none"], &["pageshare", "--iterations", "20", "--json"]);
    assert_eq!(run.report()["rounds"], 40);
    assert!(run.stats["leaked_frames"].as_u64() >= Some(1), "{run:?}");
}

/// Returns the transfers of a lookup beside `writers` writers, as in RadixVM's figures 6 and 7.
fn lookup(map: &str, writers: &str) -> f64 {
    const LOOKUPS: f64 = 6400.0;
    let readers = 4.0 - writers.parse::<f64>().unwrap();
    let words = ["treelookup", "--map", map, "--writers", writers, "--lookups", "6400"];
    let row = contend(map, &["--systems", "percore", "--cpus", "4"], &words).remove(0);
    let phases = row["phases"].as_array().unwrap();
    let looking = phases.iter().find(|phase| phase["phase"] == 1).unwrap();
    let transfers = looking["transfers"].as_f64().unwrap() - OF_A_TICK * number(&row, "ticks", "mean");
    transfers.max(0.0) * row["rounds"].as_f64().unwrap() / (readers * LOOKUPS)
}

/// A lookup with fewer transfers than this sees no writer. One with twice as many sees one.
const UNSEEN: f64 = 0.01;

#[test]
fn lookups_of_the_radix_map_do_not_see_writers() {
    for writers in ["0", "1", "2"] {
        let transfers = lookup("radix", writers);
        assert!(transfers < UNSEEN, "{transfers} beside {writers} writers");
    }
}

#[test]
fn lookups_of_the_skip_list_and_of_bonsai_see_writers() {
    for map in ["skiplist", "bonsai"] {
        let (alone, beside) = (lookup(map, "0"), lookup(map, "1"));
        assert!(alone < UNSEEN && beside > 2.0 * UNSEEN, "{map}: {alone}, and {beside} beside a writer");
    }
}

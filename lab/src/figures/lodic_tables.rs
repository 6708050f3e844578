//! The LODIC paper's figure 9, its tables 1 and 2, and its equation (1), computed from the sizes of our
//! structures, from snapshots of programs, and by the code that the kernel asks with.

use std::sync::OnceLock;

use abi::reads;
use anyhow::Result;
use baselines::{ClaimedSet, Deltas, PayGo, Scheme, Shared, Sloppy, Snzi};
use refcache::{Config, Header};

use super::computed::{Table, bytes};
use crate::memory::row::recorded;
use crate::memory::snapshot::{Region, Snapshot};

/// The paper's machine: cores, and page frames of 780 GB.
const CORES: usize = 120;
const FRAMES: u64 = 195_000_000;
/// The processes that share a file in figure 9.
const SHARING: u64 = 120;
const PAGE: u64 = 4096;

fn paygo() -> PayGo {
    PayGo::new(1, reads::PAYGO_ENTRIES)
}

fn deltas() -> Deltas<'static> {
    Deltas::new(Config { cores: 1, cache_slots: reads::DELTA_ENTRIES, review_budget: 1 })
}

/// Returns the bytes of the tables of a process whose entries count the reads of a file: those that show its
/// pages, as the paper counts them.
fn tables(file: u64) -> u64 {
    let (entries, bytes) = reads::TABLE;
    file.div_ceil(PAGE).div_ceil(entries as u64) * bytes as u64
}

/// Returns figure 9: bytes of all counters, by the length of the file.
pub fn memory() -> Result<Table> {
    let cores = CORES as u64;
    let refcache = size_of::<Header>() as u64 * FRAMES + cores * deltas().core_bytes() as u64;
    let paygo = cores * paygo().core_bytes() as u64;
    let mark = reads::MARK as u64 * FRAMES;
    let row = |(file, paper): (u64, &str)| {
        let counters = SHARING * reads::COUNTERS as u64;
        let ours = [refcache, paygo, SHARING * tables(file), counters, mark];
        let paper = ["3.12 GB", "3.3 GB", paper].map(str::to_owned);
        [bytes(file)].into_iter().chain(ours.map(bytes)).chain(paper).collect()
    };
    let files = [(PAGE, "480 KB"), (100 << 20, "24 MB"), (1 << 30, "240 MB")];
    let heading = vec![
        "file",
        "Refcache",
        "PayGo",
        "LODIC, page tables",
        "LODIC, counters of processes",
        "and marks of contention",
        "paper: Refcache",
        "PayGo",
        "LODIC",
    ];
    Ok(Table { heading, rows: files.map(row).to_vec() })
}

/// Returns table 1, with numbers of ours for the paper's machine.
pub fn comparison() -> Result<Table> {
    let row = |name: &str, counting: &str, object: usize, each: &str, query: &str, paper: [&str; 2]| {
        let words = [name, counting].map(str::to_owned).into_iter().chain([bytes(object as u64)]);
        words.chain([each, query].map(str::to_owned)).chain(paper.map(str::to_owned)).collect::<Vec<_>>()
    };
    let per_core = |count: usize| format!("{} a core", bytes(count as u64));
    let rows = vec![
        row(
            "atomic counter",
            "contending atomic ops",
            Shared::object_bytes(CORES),
            "0",
            "1 word",
            ["O(N)", "O(1)"],
        ),
        row(
            "SNZI",
            "atomic ops on the core's leaf, and above if it was 0",
            Snzi::object_bytes(CORES),
            "0",
            "1 word",
            ["O(N C)", "O(1)"],
        ),
        row(
            "sloppy counter",
            "the core's spare references, or the word",
            Sloppy::object_bytes(CORES),
            "0",
            &format!("{CORES} words"),
            ["O(N C)", "O(C)"],
        ),
        row(
            "Refcache",
            "non-atomic ops",
            size_of::<Header>(),
            &per_core(deltas().core_bytes()),
            "1 word, some epochs later",
            ["O(C H + N)", "O(1) + 2 epochs"],
        ),
        row(
            "PayGo",
            "non-atomic ops, atomic on another core",
            reads::WORD,
            &per_core(paygo().core_bytes()),
            &format!("1 word, then {CORES} tables"),
            ["O(C H + N)", "O(C)"],
        ),
        row(
            "LODIC, page tables",
            "non-contending atomic ops",
            reads::WORD,
            "0",
            "1 word, some epochs later",
            ["O(N)", "O(S)"],
        ),
        row(
            "LODIC, counters of processes",
            "non-contending atomic ops",
            reads::WORD + reads::MARK,
            &format!("{} a process", bytes(reads::COUNTERS as u64)),
            "1 word, then a set of 8 a process, up to the first count",
            ["–", "–"],
        ),
    ];
    let heading =
        vec!["", "counting", "bytes an object", "and", "a query reads", "paper: space", "paper: query"];
    Ok(Table { heading, rows })
}

/// Returns the sets of counters that a query looks at on average if each has no count with probability `p`:
/// the paper's equation (1).
pub fn expected(sets: u16, p: f64) -> f64 {
    (1.0 - p.powi(sets.into())) / (1.0 - p)
}

/// Counts the same by the code that the kernel asks with: the mean of many queries over random counters.
fn counted(sets: u16, p: f64) -> f64 {
    const QUERIES: u64 = 1000;
    const OBJECT: u64 = 7;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut is_zero = || {
        // Xorshift: the page is the same whenever it is made.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 11) as f64) / (1_u64 << 53) as f64 <= p
    };
    let looked = (0..QUERIES).map(|_| {
        let counters: Vec<ClaimedSet> = (0..sets).map(|_| ClaimedSet::default()).collect();
        for counter in &counters {
            counter.claim(0, OBJECT, 0);
            if !is_zero() {
                counter.take(OBJECT, 0);
            }
        }
        let first = counters.iter().position(|counter| counter.has(OBJECT));
        first.map_or(counters.len(), |at| at + 1) as u64
    });
    looked.sum::<u64>() as f64 / QUERIES as f64
}

/// Returns equation (1) for numbers of processes, beside counts.
pub fn equation() -> Result<Table> {
    // The page and the document both show it.
    static MADE: OnceLock<Table> = OnceLock::new();
    Ok(MADE.get_or_init(make_equation).clone())
}

fn make_equation() -> Table {
    const P: [f64; 3] = [0.5, 0.9, 0.99];
    let row = |&sets: &u16| {
        let of = |p| [expected(sets, p), counted(sets, p)].map(|value| format!("{value:.2}"));
        [sets.to_string()].into_iter().chain(P.into_iter().flat_map(of)).collect()
    };
    let heading = vec![
        "processes",
        "p = 0.5: equation (1)",
        "counted",
        "p = 0.9: equation (1)",
        "counted",
        "p = 0.99: equation (1)",
        "counted",
    ];
    Table { heading, rows: [1, 2, 4, 8, 16, 32, 60, 120].iter().map(row).collect() }
}

/// Returns the places of a program's shared regions of files, counted from the highest region below the
/// stack down: the order in which the paper's LODIC looks for the one that it reads.
fn places(snapshot: &Snapshot) -> Vec<usize> {
    let below_stack = snapshot.regions.iter().rev().skip(1);
    let is_shared = |region: &Region| region.shared && region.file.is_some();
    below_stack.enumerate().filter(|(_, region)| is_shared(region)).map(|(at, _)| at + 1).collect()
}

/// Returns table 2 for the recorded programs.
pub fn positions() -> Result<Table> {
    const PAPER: [(&str, usize, usize); 3] = [("FxMark", 20, 5), ("RocksDB", 85, 4), ("NGINX", 62, 5)];
    let paper = PAPER.iter().map(|(program, regions, at)| {
        let numbers = [*regions, *at].map(|number| number.to_string());
        let none = ["–"; 3].map(str::to_owned);
        [format!("{program} (the paper)")].into_iter().chain(numbers).chain(none).collect()
    });
    let ours = recorded()?.into_iter().map(|snapshot| {
        let places = places(&snapshot);
        let number = |place: Option<&usize>| place.map_or_else(|| "–".to_owned(), usize::to_string);
        let linux = [places.first(), places.last()].map(number);
        let [nearest, farthest] = linux;
        let named = format!("1 to {}", places.len().min(reads::REGIONS));
        vec![snapshot.program, snapshot.linux.vmas.to_string(), nearest, farthest, named, "0".to_owned()]
    });
    let heading = vec![
        "program",
        "regions",
        "place of a shared region of a file, from the stack down: the first",
        "the last",
        "here, if these are named",
        "here, with counters",
    ];
    Ok(Table { heading, rows: paper.chain(ours).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_tables_have_the_papers_bytes() {
        let lengths = [PAGE, 100 << 20, 1 << 30];
        // 480 KB, 24 MB and 240 MB.
        assert_eq!(lengths.map(|file| SHARING * tables(file)), [480 << 10, 24_000 << 10, 240 << 20]);
        let table = memory().unwrap();
        assert_eq!((&table.rows[0][3], &table.rows[0][4]), (&"480 KiB".to_owned(), &"480 KiB".to_owned()));
    }

    #[test]
    fn counters_of_processes_do_not_grow_with_the_file() {
        let rows = memory().unwrap().rows;
        assert!(rows.iter().all(|row| row[4] == rows[0][4]) && rows[2][3] != rows[0][3]);
    }

    #[test]
    fn a_query_by_the_kernels_code_takes_as_many_looks_as_the_equation_says() {
        for sets in [1, 8, 120] {
            for p in [0.5, 0.9, 0.99] {
                let (expected, counted) = (expected(sets, p), counted(sets, p));
                assert!((counted / expected - 1.0).abs() < 0.1, "{sets}, {p}: {expected} {counted}");
            }
        }
        assert!((expected(120, 0.5) - 2.0).abs() < 1e-9);
    }

    #[test]
    fn a_shared_region_is_found_from_the_stack_down() {
        let text = "program p\nlinux vmas 4 vma_bytes 192 table_bytes 4096\n1000 1 r--s 0:0 0+1\n\
                    2000 1 r--s 1:0 0+1\n3000 1 rw-p - 0+1\n7ffc00000 9 rw-p - 0+1\n";
        assert_eq!(places(&text.parse().unwrap()), [2, 3]);
        let table = positions().unwrap();
        assert!(table.rows.len() > 4 && table.rows.iter().all(|row| row.len() == table.heading.len()));
        assert!(table.rows[3..].iter().all(|row| row[2] != "–"), "{table:?}");
    }

    #[test]
    fn every_table_has_its_columns() {
        for table in [comparison().unwrap(), equation().unwrap(), memory().unwrap()] {
            assert!(table.rows.iter().all(|row| row.len() == table.heading.len()), "{table:?}");
        }
    }
}

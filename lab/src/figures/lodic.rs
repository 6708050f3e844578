//! Figures of *LODIC: Logical Distributed Counting for Scalable File Access* (Park, Hwang, Choi, Min and Won,
//! ATC 2021), section 5, and its tables 1 and 2 and equation (1). `lodic_tables.rs` has those that are
//! computed.
//!
//! The paper times its queries and its reverse mapping. Here the cache lines that a query looks at and
//! instructions are counted.

use super::claims::{Claim, Ours, Says, claim};
use super::{Across, Axes, Content, Figure, Machine, Panel, Plot, Series, Work, lodic_tables, reading};

/// The axes of plots of reads.
const READS: Axes = Axes { across: Across::Cores, up: "reads/s" };

/// Returns the paper's ways to count pages, those of our kernel that it does not have, and Linux. `mapped` is
/// the same work with the file mapped and named, without which LODIC counts as Linux does.
const fn ways(plain: Work, mapped: Work) -> [Series; 7] {
    [
        Series { label: "LODIC", on: reading("lodic"), work: mapped },
        Series { label: "No counter", on: reading("none"), work: plain },
        Series { label: "Global counter", on: reading("shared"), work: plain },
        Series { label: "Refcache", on: reading("refcache"), work: plain },
        Series { label: "PayGo", on: reading("paygo"), work: plain },
        Series { label: "Pinned", on: reading("pinned"), work: plain },
        Series { label: "Linux", on: Machine::Linux, work: plain },
    ]
}

/// The reason why counting in the process's own table is not as good as counting nothing.
const COUNTING: &str = "instructions: a read that counts in the process's own table or counter executes 26 to 55 more than one that counts \
nothing. It transfers no line either";

/// The claim that LODIC is as good as counting nothing.
const AS_NONE: Claim = claim(
    "LODIC of no counter, at 80 cores",
    "5.1",
    "as good",
    Says::AtLeast(1.0),
    Ours::Ratio("LODIC", "No counter", 80),
)
.because(COUNTING)
.in_words();

/// The claim that LODIC is ahead of counting in one word.
const OF_GLOBAL: Claim = claim(
    "LODIC of the global counter, at 80 cores",
    "5.1",
    "1.23",
    Says::AtLeast(1.23),
    Ours::Ratio("LODIC", "Global counter", 80),
);

/// The reason why PayGo's query is as cheap as it is.
const FEW_TABLES: &str = "the number of cores: PayGo looks at a table for each, and the guest has few. With the paper's 120 cores that is 121 lines";

/// Reads of 64 bytes by threads of one process.
const BY_THREADS: Work = Work::new("drbh", &["--by-threads", "--bytes", "64"]);

/// The reason why LODIC is ahead of a newer Linux by less than in the paper.
const FILE_COUNT: &str =
    "the factor is over all of Linux 4.11 at 120 cores. Newer kernels spend other time on a read";

/// A read of the block by `drbh`, with these options before `--mapped`.
macro_rules! drbh {
    ($($option:literal),*) => {
        ways(Work::new("drbh", &[$($option),*]), Work::new("drbh", &[$($option,)* "--mapped"]))
    };
}

/// Reads of the block beside processes that map and unmap it.
macro_rules! beside {
    ($label:literal, $on:expr, $noise:literal $(, $mapped:literal)?) => {
        Series {
            label: $label,
            on: $on,
            work: Work {
                program: "drbh",
                arguments: &["--iterations", "201", "--warmup", "50", "--noise", stringify!($noise) $(, $mapped, "--sharers", "3")?],
                reads: None,
                apart: $noise,
            },
        }
    };
}

/// The axes of a figure without plots.
const NONE: Axes = Axes { across: Across::Cores, up: "" };

/// Returns the axes of plots over numbers of processes.
const fn over_processes(up: &'static str) -> Axes {
    Axes { across: Across::Argument("processes", &["1", "4", "8", "16", "32", "45", "60"]), up }
}

/// A file that processes share, in this way of our kernel or on Linux.
macro_rules! hotfile {
    ($label:literal, $on:expr, $($argument:literal),*) => {
        Series {
            label: $label,
            on: $on,
            work: Work::new("hotfile", &["--processes", "{x}", "--iterations", "9", "--warmup", "2", "--json", $($argument),*]),
        }
    };
}

/// A file that loses 20 pages.
macro_rules! dropped {
    ($label:literal, $on:expr, $($argument:literal),*) => {
        hotfile!($label, $on, "--pages", "20", "--reads", "20", $($argument),*)
    };
}

/// As the paper asks: before the page is dropped, of all processes that have mapped it. Pages of a file of
/// the boot image can be dropped.
macro_rules! asked_first {
    ($pages:literal) => {
        Series {
            label: "LODIC, the paper's query",
            on: reading("lodic-paper"),
            work: Work {
                program: "hotfile",
                arguments: &[
                    "--processes",
                    "{x}",
                    "--iterations",
                    "9",
                    "--warmup",
                    "2",
                    "--json",
                    "--mapped",
                    "--pages",
                    $pages,
                    "--file",
                    "{file}",
                ],
                reads: Some("docs/design/races.md"),
                apart: 0,
            },
        }
    };
}

/// The ways to find out that no read holds one of 20 pages.
const DROPPED: &[Series] = &[
    dropped!("Refcache", reading("refcache"), "--hot", "100"),
    dropped!("Vanilla", reading("shared"), "--hot", "100"),
    dropped!("PayGo", reading("paygo"), "--hot", "100"),
    dropped!("LODIC, 10 % hot", reading("lodic"), "--hot", "10"),
    dropped!("LODIC, 20 % hot", reading("lodic"), "--hot", "20"),
    dropped!("LODIC, 100 % hot", reading("lodic"), "--hot", "100"),
    dropped!("LODIC, page tables", reading("lodic"), "--hot", "100", "--mapped"),
    asked_first!("20"),
];

/// Those of them that ask: all but the first.
const ASKED: &[Series] = match DROPPED.split_first() {
    Some((_, asked)) => asked,
    None => DROPPED,
};

/// Returns a file of `{x}` pages that eight processes read.
macro_rules! eight {
    ($label:literal, $($argument:literal),*) => {
        Series {
            label: $label,
            on: reading("lodic"),
            work: Work::new(
                "hotfile",
                &["--processes", "8", "--pages", "{x}", "--iterations", "1", "--warmup", "0", "--keep", $($argument),*],
            ),
        }
    };
}

/// A block that this number of processes has mapped.
macro_rules! among {
    ($label:literal, $read_refs:literal $(, $mapped:literal)?) => {
        Series {
            label: $label,
            on: reading($read_refs),
            work: Work::new("drbh", &["--among", "{x}" $(, $mapped)?]),
        }
    };
}

/// The figures.
pub const FIGURES: [Figure; 13] = [
    Figure {
        id: "lodic7",
        paper: "LODIC, figure 7 (section 5.1)",
        title: "Performance of RocksDB key-value store",
        note: "kvread stands for RocksDB: processes read the blocks of one file of 1,000 records, by random keys (Zipf, 0.98) or one after the other. The paper's processes run all of RocksDB, so their reads are a smaller part of a round. The paper has 100 processes.",
        content: Content::Curves(
            READS,
            &[
                Panel {
                    title: "random keys",
                    plot: Plot::PerRound(1.0),
                    series: &ways(Work::new("kvread", &[]), Work::new("kvread", &["--mapped"])),
                    claims: &[OF_GLOBAL, AS_NONE],
                },
                Panel {
                    title: "sequential scan",
                    plot: Plot::PerRound(1.0),
                    series: &ways(
                        Work::new("kvread", &["--scan"]),
                        Work::new("kvread", &["--scan", "--mapped"]),
                    ),
                    claims: &[OF_GLOBAL, AS_NONE],
                },
            ],
        ),
    },
    Figure {
        id: "lodic8",
        paper: "LODIC, figure 8 (section 5.1)",
        title: "Performance of NGINX web server",
        note: "webserve stands for NGINX: each client asks a server on its own CPU for a page of 612 bytes, by pipes instead of sockets. The paper has up to 50 clients.",
        content: Content::Curves(
            Axes { across: Across::Cores, up: "requests/s" },
            &[Panel {
                title: "a page of 612 bytes",
                plot: Plot::PerRound(1.0),
                series: &ways(Work::new("webserve", &[]), Work::new("webserve", &["--mapped"])),
                claims: &[
                    claim(
                        "LODIC of Linux, at 48 cores",
                        "5.1",
                        "2.5 at 50 clients",
                        Says::AtLeast(2.5),
                        Ours::Ratio("LODIC", "Linux", 48),
                    ),
                    AS_NONE,
                ],
            }],
        ),
    },
    Figure {
        id: "lodic9",
        paper: "LODIC, figure 9 (section 5.2.1)",
        title: "Memory consumption for RefCache, PayGo, and LODIC",
        note: "Computed from the sizes of our structures, for the paper's machine: 120 cores, 195 million page frames, and 120 processes that share the file. Refcache's header counts all other references too, and marks of contention lie in the line of the word. The plot counts frames of page tables in a guest where eight processes have mapped and touched these pages of a file, with the levels above.",
        content: Content::Computed(
            lodic_tables::memory,
            Axes {
                across: Across::Argument("pages of the file", &["1", "512", "4096", "25600"]),
                up: "frames",
            },
            &[Panel {
                title: "page tables of 8 processes",
                plot: Plot::TablePages,
                series: &[eight!("LODIC, page tables", "--mapped")],
                claims: &[claim(
                    "LODIC, frames for 100 MB, of those for 4 KB",
                    "5.2.1",
                    "24 MB of 480 KB: 50",
                    Says::AtMost(50.0),
                    Ours::Growth("LODIC, page tables", 25600, 1),
                )],
            }],
        ),
    },
    Figure {
        id: "lodic-table1",
        paper: "LODIC, table 1 (section 2.2)",
        title: "Comparison of reference counting techniques",
        note: "Bytes of our structures on 120 cores, each beside the paper's orders: N objects, C cores, H entries of a table, S processes that share.",
        content: Content::Computed(lodic_tables::comparison, NONE, &[]),
    },
    Figure {
        id: "lodic10",
        paper: "LODIC, figure 10 (section 5.2.2)",
        title: "Query latency: reclaiming all page frames (fadvise)",
        note: "The paper times a query of all pages of 1 GB. Here a file of 20 pages is truncated, of which the first ones have been read by these processes, and the cache lines are counted that our kernel looks at for each page before it frees it: the word, and a set of counters of each process or a table of each core. Refcache does not ask: it waits for epochs. The paper's query (read_refs=lodic-paper) is asked when pages of a file of the boot image are dropped by advice, and looks at the entry of each process that has mapped the page. The second plot has the instructions of the core that truncates, for each page, with the epochs that it forces, and in page tables with the unmapping in each process.",
        content: Content::Curves(
            over_processes("lines a query"),
            &[
                Panel {
                    title: "lines that a query looks at",
                    plot: Plot::Counter("read_query_lines", Some("read_queries")),
                    series: ASKED,
                    claims: &[
                        claim(
                            "LODIC, 10 % hot of PayGo, at 45 processes",
                            "5.2.2",
                            "less than 1/4",
                            Says::AtMost(0.25),
                            Ours::Ratio("LODIC, 10 % hot", "PayGo", 45),
                        )
                        .because(FEW_TABLES),
                        claim(
                            "LODIC, page tables of Vanilla, at 60 processes",
                            "5.2.2",
                            "longer: vanilla is the best case, 1",
                            Says::AtMost(1.0),
                            Ours::Ratio("LODIC, page tables", "Vanilla", 60),
                        )
                        .in_words(),
                    ],
                },
                Panel {
                    title: "instructions a page",
                    plot: Plot::InPhase(1, 20.0),
                    series: DROPPED,
                    claims: &[],
                },
            ],
        ),
    },
    Figure {
        id: "lodic11",
        paper: "LODIC, figure 11 (section 5.2.2)",
        title: "Query latency: reclaiming a page frame",
        note: "Cache lines that a query of one page looks at, which no process reads any more: the paper's worst case. Its average case is that of equation (1).",
        content: Content::Curves(
            over_processes("lines a query"),
            &[Panel {
                title: "one page",
                plot: Plot::Counter("read_query_lines", Some("read_queries")),
                series: &[
                    hotfile!("LODIC, worst case", reading("lodic"), "--reads", "200"),
                    hotfile!("LODIC, page tables", reading("lodic"), "--reads", "200", "--mapped"),
                    hotfile!("PayGo", reading("paygo"), "--reads", "200"),
                    asked_first!("1"),
                ],
                claims: &[
                    claim(
                        "LODIC, worst case, 60 processes of 4",
                        "5.2.2",
                        "linear: 15",
                        Says::AtMost(15.0),
                        Ours::Growth("LODIC, worst case", 60, 4),
                    ),
                    claim(
                        "LODIC, page tables, 60 processes of 4",
                        "5.2.2",
                        "linear: 15",
                        Says::AtMost(15.0),
                        Ours::Growth("LODIC, page tables", 60, 4),
                    ),
                    claim(
                        "LODIC, the paper's query, 60 processes of 4",
                        "5.2.2",
                        "linear: 15",
                        Says::AtMost(15.0),
                        Ours::Growth("LODIC, the paper's query", 60, 4),
                    ),
                ],
            }],
        ),
    },
    Figure {
        id: "lodic-equation1",
        paper: "LODIC, equation (1) (section 4.5)",
        title: "Local counters that a query looks at",
        note: "Each counter is 0 with probability p. The equation is (1 - p^N) / (1 - p) for N processes. Beside it stands the mean over 1,000 queries of random counters, by the code that our kernel asks with. The paper has 2 for 120 processes and p = 0.5.",
        content: Content::Computed(lodic_tables::equation, NONE, &[]),
    },
    Figure {
        id: "lodic12",
        paper: "LODIC, figure 12 (section 5.2.3)",
        title: "File-space based reverse mapping vs. process-space based reverse mapping",
        note: "Instructions of a read of a block that this number of processes has mapped. The count and its reverse mapping are what they have more than a read that counts nothing. In file space it is a walk of our file's mappings up to the reader's own (read_refs=lodic-file), as truncation and reclaim walk them. The second plot is a truncation of a page that processes have mapped and not touched, on both kernels: each mapping is looked at.",
        content: Content::Curves(
            Axes {
                across: Across::Argument("processes that map the file", &["4", "8", "16", "32", "60"]),
                up: "instructions",
            },
            &[
                Panel {
                    title: "a read of 4 KiB",
                    plot: Plot::Instructions,
                    series: &[
                        among!("Process space", "lodic", "--mapped"),
                        among!("File space", "lodic-file", "--mapped"),
                        among!("The page's word", "shared", "--mapped"),
                        among!("No counter", "none", "--mapped"),
                    ],
                    claims: &[claim(
                        "reverse mapping in file space of process space, at 60 processes",
                        "5.2.3",
                        "20",
                        Says::AtLeast(20.0),
                        Ours::RatioOver("File space", "Process space", "No counter", 60),
                    )],
                },
                Panel {
                    title: "a page leaves the file",
                    plot: Plot::InPhase(1, 1.0),
                    series: &[
                        hotfile!("RadixVM", reading("pinned"), "--untouched"),
                        hotfile!("Linux", Machine::Linux, "--untouched"),
                    ],
                    claims: &[],
                },
            ],
        ),
    },
    Figure {
        id: "lodic-table2",
        paper: "LODIC, table 2 (section 4.4.2)",
        title: "Total number of segments in the applications and the position of a memory-mapped file segment",
        note: "Programs as they were on Linux 6.1 (docs/snapshots), beside the paper's. Linux's LODIC looks at the regions from the highest below the stack down. Ours looks at the regions that the process has named, the newest first, at most eight, and at none where it counts in counters of the process.",
        content: Content::Computed(lodic_tables::positions, NONE, &[]),
    },
    Figure {
        id: "lodic13",
        paper: "LODIC, figure 13 (section 5.2.3)",
        title: "Read latency with various reverse mapping schemes",
        note: "Cycles of a read of 4 KiB, by processes of which each has a CPU, beside three processes that share the file and do nothing. So LODIC counts in page tables from one reader on.",
        content: Content::Curves(
            Axes { across: Across::Cores, up: "cycles a read" },
            &[Panel {
                title: "4 KiB",
                plot: Plot::Cycles,
                series: &[
                    Series {
                        label: "LODIC, mapped",
                        on: reading("lodic"),
                        work: Work::new("drbh", &["--sharers", "3", "--mapped"]),
                    },
                    Series {
                        label: "LODIC, not mapped",
                        on: reading("lodic"),
                        work: Work::new("drbh", &["--sharers", "3"]),
                    },
                    Series { label: "Pinned", on: reading("pinned"), work: Work::new("drbh", &[]) },
                    Series { label: "Linux", on: Machine::Linux, work: Work::new("drbh", &[]) },
                ],
                claims: &[
                    claim(
                        "LODIC, mapped of not mapped, at 1 core",
                        "5.2.3",
                        "20 % longer: 1.2",
                        Says::AtMost(1.2),
                        Ours::Ratio("LODIC, mapped", "LODIC, not mapped", 1),
                    ),
                    claim(
                        "LODIC, mapped, 80 cores of 1",
                        "5.2.3",
                        "no longer: 1",
                        Says::AtMost(1.0),
                        Ours::Speedup("LODIC, mapped", 80),
                    )
                    .in_words(),
                ],
            }],
        ),
    },
    Figure {
        id: "lodic14",
        paper: "LODIC, figure 14 (section 5.2.3)",
        title: "FxMark (DRBH)",
        note: "The paper's reverse mapping in process space is LODIC here. It has four file systems of Linux, and we have files in memory on either kernel. Reads of 64 bytes by threads leave little but the count and the descriptor.",
        content: Content::Curves(
            READS,
            &[
                Panel {
                    title: "4 KiB, by processes",
                    plot: Plot::PerRound(1.0),
                    series: &drbh!(),
                    claims: &[
                        claim(
                            "LODIC of Linux, at 80 cores",
                            "5.2.3",
                            "65 at 120 cores",
                            Says::AtLeast(65.0),
                            Ours::Ratio("LODIC", "Linux", 80),
                        )
                        .because(FILE_COUNT),
                        claim(
                            "LODIC, 80 cores of 1",
                            "5.2.3",
                            "scales linearly: 80",
                            Says::AtLeast(80.0),
                            Ours::Speedup("LODIC", 80),
                        ),
                        claim(
                            "LODIC, lines transferred a read",
                            "5.2.3",
                            "none",
                            Says::Nothing,
                            Ours::Transfers("LODIC"),
                        ),
                        AS_NONE,
                    ],
                },
                Panel {
                    title: "64 bytes, by threads",
                    plot: Plot::PerRound(1.0),
                    series: &[
                        Series { label: "LODIC", on: reading("lodic"), work: BY_THREADS },
                        Series { label: "Refcache", on: reading("refcache"), work: BY_THREADS },
                        Series { label: "PayGo", on: reading("paygo"), work: BY_THREADS },
                        Series { label: "Global counter", on: reading("shared"), work: BY_THREADS },
                        Series { label: "No counter", on: reading("none"), work: BY_THREADS },
                        Series { label: "Pinned", on: reading("pinned"), work: BY_THREADS },
                        Series { label: "Linux", on: Machine::Linux, work: BY_THREADS },
                    ],
                    claims: &[
                        claim(
                            "LODIC, lines transferred a read by threads",
                            "5.2.3",
                            "not said",
                            Says::Nothing,
                            Ours::Transfers("LODIC"),
                        ),
                        AS_NONE,
                    ],
                },
            ],
        ),
    },
    Figure {
        id: "lodic15",
        paper: "LODIC, figure 15 (section 5.2.3)",
        title: "mmap() interference on the reverse mapping",
        note: "Background processes are among the CPUs: a curve with five of them begins at six. They map, touch and unmap the block all the time, where the paper's sleep for a second between the two calls. Only the readers' work is drawn. Three more processes share the block in LODIC's curves, as in figure 13.",
        content: Content::Curves(
            READS,
            &[Panel {
                title: "4 KiB, beside processes that map and unmap",
                plot: Plot::Lookups(200.0),
                series: &[
                    beside!("LODIC, none", reading("lodic"), 0, "--mapped"),
                    beside!("LODIC, 1 process", reading("lodic"), 1, "--mapped"),
                    beside!("LODIC, 5 processes", reading("lodic"), 5, "--mapped"),
                    beside!("By file, none", reading("lodic-file"), 0, "--mapped"),
                    beside!("By file, 5 processes", reading("lodic-file"), 5, "--mapped"),
                    beside!("Linux, none", Machine::Linux, 0),
                    beside!("Linux, 1 process", Machine::Linux, 1),
                    beside!("Linux, 5 processes", Machine::Linux, 5),
                ],
                claims: &[claim(
                    "LODIC beside 5 processes of beside none, at 65 cores",
                    "5.2.3",
                    "barely affected: 60 of 65",
                    Says::AtLeast(60.0 / 65.0),
                    Ours::Ratio("LODIC, 5 processes", "LODIC, none", 65),
                )
                .in_words()],
            }],
        ),
    },
    Figure {
        id: "lodic-table3",
        paper: "LODIC, table 3 (section 5.2.4)",
        title: "Effect of the contention on the local counters",
        note: "The readers are as many as the CPUs, and no process has more threads than there are. Three more processes share the block, as in figure 13, so that LODIC counts in page tables with few processes, too. LODIC is the paper's here (read_refs=lodic-unsplit): ours gives each core of a process counters of its own once its threads have met, and with a page table for each core they do not meet. The paper has 120 threads.",
        content: Content::Curves(
            Axes {
                across: Across::Argument("threads of each process", &["1", "2", "4", "8", "16"]),
                up: "reads/s",
            },
            &[Panel {
                title: "4 KiB",
                plot: Plot::PerRound(1.0),
                series: &[
                    Series {
                        label: "LODIC",
                        on: reading("lodic-unsplit"),
                        work: Work::new("drbh", &["--mapped", "--sharers", "3", "--each", "{x}"]),
                    },
                    Series {
                        label: "LODIC, split",
                        on: reading("lodic"),
                        work: Work::new("drbh", &["--mapped", "--sharers", "3", "--each", "{x}"]),
                    },
                    Series {
                        label: "LODIC, tables of cores",
                        on: Machine::Ours {
                            design: "radix",
                            tables: "percore",
                            refs: "refcache",
                            read_refs: "lodic",
                        },
                        work: Work::new("drbh", &["--mapped", "--sharers", "3", "--each", "{x}"]),
                    },
                    Series {
                        label: "Pinned",
                        on: reading("pinned"),
                        work: Work::new("drbh", &["--each", "{x}"]),
                    },
                ],
                claims: &[
                    claim(
                        "LODIC, 2 threads of 1",
                        "5.2.4",
                        "58.87 of 164.16 million/s: 0.36",
                        Says::AtLeast(0.36),
                        Ours::Growth("LODIC", 2, 1),
                    ),
                    claim(
                        "LODIC, 4 threads of 1",
                        "5.2.4",
                        "32.54 of 164.16 million/s: 0.20",
                        Says::AtLeast(0.2),
                        Ours::Growth("LODIC", 4, 1),
                    ),
                    claim(
                        "LODIC, 16 threads of 1",
                        "5.2.4",
                        "8.79 of 164.16 million/s: 0.054",
                        Says::AtLeast(0.054),
                        Ours::Growth("LODIC", 16, 1),
                    ),
                ],
            }],
        ),
    },
];

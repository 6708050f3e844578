//! Figures of *LODIC: Logical Distributed Counting for Scalable File Access* (Park, Hwang, Choi, Min and Won,
//! ATC 2021), section 5, as far as our programs give them.
//!
//! Not here: figure 9 and table 1 are computed from the sizes of tables, not measured (`docs/design/lodic.md`
//! has ours). Figures 10 and 11 are about the time to ask whether a page is read: one load in our kernel, or
//! one for each process that has counters, up to the first count. Figure 12 is about the reverse mapping in
//! file space, which our kernel does not use for that. Table 2 is about the regions of programs on Linux.

use super::claims::{Claim, Ours, Says, claim};
use super::{Across, Axes, Content, Figure, Machine, Panel, Plot, Series, Work, reading};

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
const COUNTING: &str = "instructions: a read that counts in the process's own table executes up to 120 more than the 872 of one that counts \
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

/// The figures.
pub const FIGURES: [Figure; 6] = [
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
                        Series { label: "Global counter", on: reading("shared"), work: BY_THREADS },
                        Series { label: "No counter", on: reading("none"), work: BY_THREADS },
                        Series { label: "Pinned", on: reading("pinned"), work: BY_THREADS },
                        Series { label: "Linux", on: Machine::Linux, work: BY_THREADS },
                    ],
                    claims: &[],
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
        note: "The readers are as many as the CPUs, and no process has more threads than there are. Three more processes share the block, as in figure 13, so that LODIC counts in page tables with few processes, too. The paper has 120 threads.",
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
                        on: reading("lodic"),
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

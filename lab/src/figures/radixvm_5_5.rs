//! Figures of the same paper, section 5.5: each of RadixVM's ideas against what it replaces.

use super::claims::{Claim, Ours, Says, claim};
use super::radixvm::{FILLS, GLOBAL, LOCAL, PAGES, PIPELINE, tables};
use super::{Across, Axes, Content, Figure, Panel, Plot, RADIX, Series, Work, ours};

/// The number of look-ups of each reader of figures 6 and 7.
const LOOKUPS: f64 = 6400.0;

/// A series of look-ups in a map, beside a number of writers.
macro_rules! lookups {
    ($label:literal, $map:literal, $writers:literal) => {
        Series {
            label: $label,
            on: RADIX,
            work: Work {
                program: "treelookup",
                arguments: &["--map", $map, "--lookups", "6400", "--writers", stringify!($writers)],
                reads: None,
                apart: $writers,
            },
        }
    };
}

/// Returns the paper's three ways to count references, on one page.
const fn counters(arguments: &'static [&'static str]) -> [Series; 3] {
    let work = Work::new("pageshare", arguments);
    [
        Series { label: "Refcache", on: RADIX, work },
        Series { label: "SNZI", on: ours("radix", "percore", "snzi"), work },
        Series { label: "Shared counter", on: ours("radix", "percore", "atomic"), work },
    ]
}

/// The paper's claims about these three ways.
const COUNTERS: [Claim; 5] = [
    claim(
        "Refcache, 80 cores of 1",
        "5.5",
        "scales perfectly: 80",
        Says::AtLeast(80.0),
        Ours::Speedup("Refcache", 80),
    ),
    claim("Refcache, lines transferred a round", "5.5", "none", Says::Nothing, Ours::Transfers("Refcache")),
    claim("Refcache of SNZI, at 80 cores", "5.5", "more", Says::More, Ours::Ratio("Refcache", "SNZI", 80)),
    claim(
        "SNZI of the shared counter, at 80 cores",
        "5.5",
        "substantially more",
        Says::More,
        Ours::Ratio("SNZI", "Shared counter", 80),
    ),
    claim(
        "Shared counter, 80 cores of 1",
        "5.5",
        "does not scale",
        Says::AtMost(10.0),
        Ours::Speedup("Shared counter", 80),
    )
    .in_words(),
];

/// The reason why mapping a file by its descriptor does not scale.
const DESCRIPTOR: &str = "the benchmark: mmap finds the file by its descriptor, and counts the open file and the file, as Linux counts the \
open file. A round transfers three lines, and they hide the cost of counting the page. The paper's threads name no \
descriptor. The second plot maps without one and transfers none, and the third counts references alone";

/// The reason why readers beside writers scale better than in the paper.
const NO_QUEUE: &str = "the model: it has no queue in front of a line. Readers that want a line which a writer has just changed get it all at \
once, and in the paper they wait for each other";

/// The figures of section 5.5.
pub const FIGURES: [Figure; 4] = [
    Figure {
        id: "fig6",
        paper: "RadixVM, figure 6 (section 5.5)",
        title: "Total throughput of concurrent skip list lookups contending with inserts and deletes",
        note: "Writers are among the cores: a curve with five of them begins at six. The paper has 0, 1 and 5.",
        content: Content::Curves(
            Axes { across: Across::Cores, up: "lookups/s" },
            &[Panel {
                title: "skip list",
                plot: Plot::Lookups(LOOKUPS),
                series: &[
                    lookups!("0 writers", "skiplist", 0),
                    lookups!("1 writer", "skiplist", 1),
                    lookups!("5 writers", "skiplist", 5),
                    lookups!("10 writers", "skiplist", 10),
                    lookups!("20 writers", "skiplist", 20),
                    lookups!("40 writers", "skiplist", 40),
                ],
                claims: &[
                    claim(
                        "0 writers, per core",
                        "5.5",
                        "5.7 million/s",
                        Says::AtLeast(5.7e6),
                        Ours::Value("0 writers", 1),
                    ),
                    claim(
                        "0 writers, 80 cores of 1",
                        "5.5",
                        "scales perfectly: 80",
                        Says::AtLeast(80.0),
                        Ours::Speedup("0 writers", 80),
                    ),
                    claim(
                        "1 writer of none, at 80 cores",
                        "5.5",
                        "not linear: less than 79 of 80",
                        Says::AtMost(79.0 / 80.0),
                        Ours::Ratio("1 writer", "0 writers", 80),
                    )
                    .in_words(),
                    claim(
                        "5 writers, at 80 cores",
                        "5.5",
                        "plateau: 64 million/s",
                        Says::AtMost(64e6),
                        Ours::Value("5 writers", 80),
                    )
                    .because(NO_QUEUE),
                ],
            }],
        ),
    },
    Figure {
        id: "fig7",
        paper: "RadixVM, figure 7 (section 5.5)",
        title: "Total throughput of concurrent radix tree lookups contending with inserts and deletes",
        note: "The paper has 0, 10 and 40 writers.",
        content: Content::Curves(
            Axes { across: Across::Cores, up: "lookups/s" },
            &[Panel {
                title: "radix tree",
                plot: Plot::Lookups(LOOKUPS),
                series: &[
                    lookups!("0 writers", "radix", 0),
                    lookups!("1 writer", "radix", 1),
                    lookups!("5 writers", "radix", 5),
                    lookups!("10 writers", "radix", 10),
                    lookups!("20 writers", "radix", 20),
                    lookups!("40 writers", "radix", 40),
                ],
                claims: &[
                    claim(
                        "10 writers of none, at 80 cores",
                        "5.5",
                        "unaffected: 70 of 80",
                        Says::AtLeast(70.0 / 80.0),
                        Ours::Ratio("10 writers", "0 writers", 80),
                    )
                    .in_words(),
                    claim(
                        "40 writers of none, at 80 cores",
                        "5.5",
                        "unaffected: 40 of 80",
                        Says::AtLeast(40.0 / 80.0),
                        Ours::Ratio("40 writers", "0 writers", 80),
                    )
                    .in_words(),
                    claim(
                        "1 writer of none, at 80 cores",
                        "5.5, as for 10",
                        "unaffected: 79 of 80",
                        Says::AtLeast(79.0 / 80.0),
                        Ours::Ratio("1 writer", "0 writers", 80),
                    )
                    .in_words(),
                ],
            }],
        ),
    },
    Figure {
        id: "fig8",
        paper: "RadixVM, figure 8 (section 5.5)",
        title: "Page sharing throughput for different reference counting methods",
        note: "The page belongs to a file here, and mmap names the file by a descriptor. In the second plot threads name no descriptor: each maps the page of its own mapping again, which is nearest to the paper. In the third plot mappings stay, and a round takes and drops one reference.",
        content: Content::Curves(
            Axes { across: Across::Cores, up: "iterations/s" },
            &[
                Panel {
                    title: "one shared page",
                    plot: Plot::PerRound(1.0),
                    series: &counters(&[]),
                    claims: &[
                        claim(
                            "Refcache, 80 cores of 1",
                            "5.5",
                            "scales perfectly: 80",
                            Says::AtLeast(80.0),
                            Ours::Speedup("Refcache", 80),
                        )
                        .because(DESCRIPTOR),
                        claim(
                            "Refcache of SNZI, at 80 cores",
                            "5.5",
                            "more",
                            Says::More,
                            Ours::Ratio("Refcache", "SNZI", 80),
                        )
                        .because(DESCRIPTOR),
                        claim(
                            "SNZI of the shared counter, at 80 cores",
                            "5.5",
                            "substantially more",
                            Says::More,
                            Ours::Ratio("SNZI", "Shared counter", 80),
                        )
                        .because(DESCRIPTOR),
                    ],
                },
                Panel {
                    title: "one shared page, mapped again",
                    plot: Plot::PerRound(1.0),
                    series: &counters(&["--again"]),
                    claims: &COUNTERS,
                },
                Panel {
                    title: "references alone",
                    plot: Plot::PerRound(1.0),
                    series: &counters(&["--keep"]),
                    claims: &COUNTERS,
                },
            ],
        ),
    },
    Figure {
        id: "fig9",
        paper: "RadixVM, figure 9 (section 5.5)",
        title: "Throughput of local, pipeline, and global microbenchmarks using per-core page tables and shared page tables",
        note: "In global per-core tables fall behind, unlike in the paper, because they take a fault for each page and core. The paper says that contention for the shared table outweighs these faults, but the counts do not show it. Page walks, which the meter does not see, would add a line for eight pages. The model has no queues in front of a line.",
        content: Content::Curves(
            PAGES,
            &[
                Panel {
                    title: "local",
                    plot: Plot::PerRound(1.0),
                    series: &tables(LOCAL),
                    claims: &[claim(
                        "shared of per-core at 80 cores",
                        "5.5",
                        "grinds to a halt",
                        Says::Less,
                        Ours::Ratio("Shared", "Per-core", 80),
                    )],
                },
                Panel {
                    title: "pipeline",
                    plot: Plot::PerRound(2.0),
                    series: &tables(PIPELINE),
                    claims: &[claim(
                        "shared of per-core at 80 cores",
                        "5.5",
                        "grinds to a halt",
                        Says::Less,
                        Ours::Ratio("Shared", "Per-core", 80),
                    )],
                },
                Panel {
                    title: "global",
                    plot: Plot::PerRoundAndCore(16.0),
                    series: &tables(GLOBAL),
                    claims: &[claim(
                        "shared of per-core at 80 cores",
                        "5.5",
                        "below 1, much closer",
                        Says::Less,
                        Ours::Ratio("Shared", "Per-core", 80),
                    )
                    .because(FILLS)],
                },
            ],
        ),
    },
];

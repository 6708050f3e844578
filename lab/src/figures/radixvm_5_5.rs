//! Figures of the same paper, section 5.5: each of RadixVM's ideas against what it replaces.

use super::claims::{Ours, claim};
use super::radixvm::{GLOBAL, LOCAL, PAGES, PIPELINE, tables};
use super::{Across, Axes, Content, Figure, Panel, Plot, RADIX, Series, Work, ours};

/// Look-ups of each reader of figures 6 and 7.
const LOOKUPS: f64 = 6400.0;

/// Look-ups in a map beside so many writers.
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

/// The paper's three ways to count references, on one page.
const fn counters(arguments: &'static [&'static str]) -> [Series; 3] {
    let work = Work::new("pageshare", arguments);
    [
        Series { label: "Refcache", on: RADIX, work },
        Series { label: "SNZI", on: ours("radix", "percore", "snzi"), work },
        Series { label: "Shared counter", on: ours("radix", "percore", "atomic"), work },
    ]
}

/// The figures of section 5.5.
pub const FIGURES: [Figure; 4] = [
    Figure {
        id: "fig6",
        paper: "RadixVM, figure 6 (section 5.5)",
        title: "Total throughput of concurrent skip list lookups contending with inserts and deletes",
        note: "",
        content: Content::Curves(
            Axes { across: Across::Cores, up: "lookups/s" },
            &[Panel {
                title: "skip list",
                plot: Plot::Lookups(LOOKUPS),
                series: &[
                    lookups!("0 writers", "skiplist", 0),
                    lookups!("1 writer", "skiplist", 1),
                    lookups!("5 writers", "skiplist", 5),
                ],
                claims: &[
                    claim("0 writers, per core", "5.5", "5.7 million/s", Ours::Value("0 writers", 1)),
                    claim("5 writers, at 80 cores", "5.5", "64 million/s", Ours::Value("5 writers", 80)),
                ],
            }],
        ),
    },
    Figure {
        id: "fig7",
        paper: "RadixVM, figure 7 (section 5.5)",
        title: "Total throughput of concurrent radix tree lookups contending with inserts and deletes",
        note: "Writers are among the cores: a curve with ten of them begins at eleven. One and five are those of figure 6.",
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
                    lookups!("40 writers", "radix", 40),
                ],
                claims: &[claim(
                    "10 writers of none, at 80 cores",
                    "5.5",
                    "1: unaffected by writers",
                    Ours::Ratio("10 writers", "0 writers", 80),
                )],
            }],
        ),
    },
    Figure {
        id: "fig8",
        paper: "RadixVM, figure 8 (section 5.5)",
        title: "Page sharing throughput for different reference counting methods",
        note: "The page is one of a file here: its mapping costs lines of the file's. In the second plot mappings stay, and a round takes and drops one reference.",
        content: Content::Curves(
            Axes { across: Across::Cores, up: "iterations/s" },
            &[
                Panel {
                    title: "one shared page",
                    plot: Plot::PerRound(1.0),
                    series: &counters(&[]),
                    claims: &[claim(
                        "Refcache, 80 cores of 1",
                        "5.5",
                        "scales perfectly: 80",
                        Ours::Speedup("Refcache", 80),
                    )],
                },
                Panel {
                    title: "references alone",
                    plot: Plot::PerRound(1.0),
                    series: &counters(&["--keep"]),
                    claims: &[
                        claim(
                            "Refcache, 80 cores of 1",
                            "5.5",
                            "scales perfectly: 80",
                            Ours::Speedup("Refcache", 80),
                        ),
                        claim(
                            "Refcache, lines transferred a round",
                            "5.5",
                            "none",
                            Ours::Transfers("Refcache"),
                        ),
                    ],
                },
            ],
        ),
    },
    Figure {
        id: "fig9",
        paper: "RadixVM, figure 9 (section 5.5)",
        title: "Throughput of local, pipeline, and global microbenchmarks using per-core page tables and shared page tables",
        note: "In global per-core tables fall behind, other than in the paper: they take a fault for each page and core. What the paper says outweighs that, contention for the shared table, is not found in the counts; page walks, which the meter does not see, would add a line for eight pages. Queues in front of a line are not in the model.",
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
                        Ours::Ratio("Shared", "Per-core", 80),
                    )],
                },
            ],
        ),
    },
];

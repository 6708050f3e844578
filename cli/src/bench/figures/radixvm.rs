//! Figures of *RadixVM: Scalable address spaces for multithreaded applications* (Clements, Kaashoek, Zeldovich, EuroSys 2013).

use super::claims::{Claim, Ours};
use super::{Across, Axes, BONSAI, Content, Figure, Machine, Panel, Plot, RADIX, SHARED, Series, Work, ours};

const CORES: Across = Across::Cores;
const PAGES: &str = "pages written/s";

/// The Metis job on a small text, with blocks of this size.
macro_rules! metis {
    ($block:literal) => {
        Work {
            program: "wordindex",
            arguments: &["--block", $block, "--repeat", "{size}", "{file}"],
            reads: Some("LICENSE-APACHE"),
        }
    };
}
pub(super) use metis;

const LOCAL: Work = Work::new("local", &[]);
const PIPELINE: Work = Work::new("pipeline", &[]);
const GLOBAL: Work = Work::new("global", &[]);

/// The three systems of figure 5, on one program.
const fn systems(work: Work) -> [Series; 3] {
    [
        Series { label: "RadixVM", on: RADIX, work },
        Series { label: "Bonsai", on: BONSAI, work },
        Series { label: "Linux", on: Machine::Linux, work },
    ]
}

/// The two kinds of tables of figure 9, on one program.
const fn tables(work: Work) -> [Series; 2] {
    [Series { label: "Per-core", on: RADIX, work }, Series { label: "Shared", on: SHARED, work }]
}

/// One of figures 6 and 7: look-ups in a structure beside so many writers.
macro_rules! lookups {
    ($structure:literal, $($label:literal $writers:literal),*) => {
        &[$(Series { label: $label, on: RADIX, work: Work::new("treelookup", &["--structure", $structure, "--writers", $writers]) }),*]
    };
}

const fn counted_by(label: &'static str, refs: &'static str) -> Series {
    Series { label, on: ours("radix", "percore", refs), work: Work::new("pageshare", &[]) }
}

const fn claim(what: &'static str, place: &'static str, paper: &'static str, ours: Ours) -> Claim {
    Claim { what, place, paper, ours }
}

/// The figures of section 5.
pub const FIGURES: [Figure; 8] = [
    Figure {
        id: "fig4",
        paper: "RadixVM, figure 4 (section 5.2)",
        title: "Metis scalability for different VM systems and allocation block sizes",
        note: "wordindex indexes a small text many times over; the paper's 4 GB do not fit into a metered guest. One job is one index.",
        content: Content::Curves(
            Axes { across: CORES, up: "jobs/hour" },
            &[Panel {
                title: "Metis",
                plot: Plot::Jobs,
                series: &[
                    Series { label: "RadixVM/8 MB", on: RADIX, work: metis!("8M") },
                    Series { label: "RadixVM/64 KB", on: RADIX, work: metis!("64K") },
                    Series { label: "Bonsai/8 MB", on: BONSAI, work: metis!("8M") },
                    Series { label: "Bonsai/64 KB", on: BONSAI, work: metis!("64K") },
                    Series { label: "Linux/8 MB", on: Machine::Linux, work: metis!("8M") },
                    Series { label: "Linux/64 KB", on: Machine::Linux, work: metis!("64K") },
                ],
                claims: &[
                    claim(
                        "RadixVM of Bonsai, 8 MB, at 80 cores",
                        "5.2",
                        "about 0.95 at all core counts",
                        Ours::Ratio("RadixVM/8 MB", "Bonsai/8 MB", 80),
                    ),
                    claim(
                        "RadixVM of Linux, 64 KB, at 80 cores",
                        "5.2",
                        "substantially more",
                        Ours::Ratio("RadixVM/64 KB", "Linux/64 KB", 80),
                    ),
                ],
            }],
        ),
    },
    Figure {
        id: "fig5",
        paper: "RadixVM, figure 5 (section 5.3)",
        title: "Throughput of local, pipeline, and global microbenchmarks as the total number of pages written per second",
        note: "Linux is 6.1, the paper's 3.5; Bonsai is the design in our kernel, the paper's a patched Linux 2.6.37. In global every thread writes to 16 pages of each thread's part, in the paper too (64 KB).",
        content: Content::Curves(
            Axes { across: CORES, up: PAGES },
            &[
                Panel {
                    title: "local",
                    plot: Plot::PerRound(1.0),
                    series: &systems(LOCAL),
                    claims: &[
                        claim("RadixVM, 80 cores of 1", "5.3", "linear: 80", Ours::Speedup("RadixVM", 80)),
                        claim(
                            "RadixVM of Linux at 1 core",
                            "5.3",
                            "within 8 %: 0.92",
                            Ours::Ratio("RadixVM", "Linux", 1),
                        ),
                        claim(
                            "Linux, 80 cores of 1",
                            "5.3",
                            "below 1: slows down",
                            Ours::Speedup("Linux", 80),
                        ),
                        claim("RadixVM, shootdown targets a round", "5.3", "none", Ours::Targets("RadixVM")),
                        claim(
                            "RadixVM, lines transferred a round",
                            "5.3",
                            "essentially zero",
                            Ours::Transfers("RadixVM"),
                        ),
                    ],
                },
                Panel {
                    title: "pipeline",
                    plot: Plot::PerRound(2.0),
                    series: &systems(PIPELINE),
                    claims: &[
                        claim(
                            "RadixVM, shootdown targets a round",
                            "5.3",
                            "exactly 1",
                            Ours::Targets("RadixVM"),
                        ),
                        claim(
                            "RadixVM of Linux at 1 core",
                            "5.3",
                            "within 8 %: 0.92",
                            Ours::Ratio("RadixVM", "Linux", 1),
                        ),
                        claim(
                            "RadixVM of Linux at 80 cores",
                            "5.3",
                            "significantly more",
                            Ours::Ratio("RadixVM", "Linux", 80),
                        ),
                    ],
                },
                Panel {
                    title: "global",
                    plot: Plot::PerRoundAndCore(16.0),
                    series: &systems(GLOBAL),
                    claims: &[claim(
                        "RadixVM, 80 cores of 1",
                        "5.3",
                        "scales well",
                        Ours::Speedup("RadixVM", 80),
                    )],
                },
            ],
        ),
    },
    Figure {
        id: "fig6",
        paper: "RadixVM, figure 6 (section 5.5)",
        title: "Total throughput of concurrent skip list lookups contending with inserts and deletes",
        note: "",
        content: Content::Curves(
            Axes { across: CORES, up: "lookups/s" },
            &[Panel {
                title: "skip list",
                plot: Plot::PerRound(1.0),
                series: lookups!("skiplist", "0 writers" "0", "1 writer" "1", "5 writers" "5"),
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
        note: "",
        content: Content::Curves(
            Axes { across: CORES, up: "lookups/s" },
            &[Panel {
                title: "radix tree",
                plot: Plot::PerRound(1.0),
                series: lookups!("radix", "0 writers" "0", "10 writers" "10", "40 writers" "40"),
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
        note: "",
        content: Content::Curves(
            Axes { across: CORES, up: "iterations/s" },
            &[Panel {
                title: "one shared page",
                plot: Plot::PerRound(1.0),
                series: &[
                    counted_by("Refcache", "refcache"),
                    counted_by("SNZI", "snzi"),
                    counted_by("Shared counter", "atomic"),
                ],
                claims: &[claim(
                    "Refcache, 80 cores of 1",
                    "5.5",
                    "scales perfectly: 80",
                    Ours::Speedup("Refcache", 80),
                )],
            }],
        ),
    },
    Figure {
        id: "fig9",
        paper: "RadixVM, figure 9 (section 5.5)",
        title: "Throughput of local, pipeline, and global microbenchmarks using per-core page tables and shared page tables",
        note: "The meter does not see the hardware's page walks, which make shared tables dearer than they look here.",
        content: Content::Curves(
            Axes { across: CORES, up: PAGES },
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
    Figure {
        id: "table2",
        paper: "RadixVM, table 2 (section 5.4)",
        title: "Memory usage for alternate VM representations",
        note: "Of the snapshots in docs/snapshots: other programs than the paper's. Its radix trees take about twice the memory of Linux's VMAs and page tables (section 5.6), and at most 3.7 % of the resident memory (section 5.4).",
        content: Content::Memory,
    },
    Figure {
        id: "tables",
        paper: "RadixVM, section 5.4",
        title: "Page tables of Metis, per core and shared",
        note: "A number in the paper's text, drawn here as a figure. The kernel's own count of the run, without the meter; tables of the program's start are not in it.",
        content: Content::Curves(
            Axes { across: CORES, up: "page-table pages" },
            &[Panel {
                title: "Metis, 64 KB",
                plot: Plot::TablePages,
                series: &tables(metis!("64K")),
                claims: &[claim(
                    "per-core of shared at the most CPUs",
                    "5.4",
                    "13 at 80 cores",
                    Ours::LastRatio("Per-core", "Shared"),
                )],
            }],
        ),
    },
];

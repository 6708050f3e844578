//! Figures of *RadixVM: Scalable address spaces for multithreaded applications* (Clements, Kaashoek,
//! Zeldovich, EuroSys 2013): applications, microbenchmarks and memory, sections 5.2 to 5.4.

use super::claims::{Ours, Says, claim};
use super::{
    ADAPTIVE, Across, Axes, BONSAI, Content, Figure, Machine, Panel, Plot, RADIX, SHARED, Series, Work,
};

/// The Metis job on a small text, with blocks of this size.
macro_rules! metis {
    ($block:literal) => {
        Work {
            program: "wordindex",
            arguments: &["--block", $block, "--repeat", "{size}", "{file}"],
            reads: Some("LICENSE-APACHE"),
            apart: 0,
        }
    };
}
pub(super) use metis;

/// The first program of section 5.1.
pub const LOCAL: Work = Work::new("local", &[]);
/// The second.
pub const PIPELINE: Work = Work::new("pipeline", &[]);
/// The third.
pub const GLOBAL: Work = Work::new("global", &[]);
/// The axes of their plots.
pub const PAGES: Axes = Axes { across: Across::Cores, up: "pages written/s" };

/// Returns the three systems of figure 5 and RadixVM as it comes, on one program.
const fn systems(work: Work) -> [Series; 4] {
    [
        Series { label: "RadixVM", on: RADIX, work },
        Series { label: "RadixVM, adaptive", on: ADAPTIVE, work },
        Series { label: "Bonsai", on: BONSAI, work },
        Series { label: "Linux", on: Machine::Linux, work },
    ]
}

/// Returns the paper's two kinds of page tables and RadixVM as it comes, on one program.
pub const fn tables(work: Work) -> [Series; 3] {
    [
        Series { label: "Per-core", on: RADIX, work },
        Series { label: "Shared", on: SHARED, work },
        Series { label: "Adaptive", on: ADAPTIVE, work },
    ]
}

/// The reason why RadixVM as in the paper falls behind in `global`.
pub const FILLS: &str = "our design follows the paper: with a table per core, each core faults on each page, and with a shared table only the \
first core does. The paper has the same faults, and says that contention for the shared table outweighs them. The counts \
do not show this contention, but the meter does not see page walks, and the model has no queue in front of a line. \
Adaptive tables, the default, share a table where many cores fill the same 2 MiB. They take a quarter of the \
instructions at 8 CPUs";
/// The reason why RadixVM as in the paper falls behind in Metis with small blocks.
const READ_BY_ALL: &str = "our design follows the paper: each reducer reads every mapper's tables. With a page table per core it faults on each of \
their pages, which makes four times as many faults a thread at 8 CPUs as with one table. Blocks of 64 KB are too small \
for huge pages. Adaptive tables are meant for this case";
/// The reason why the designs differ little in Metis and Dedup.
pub const FEW_MAPS: &str = "the job: Metis has 75 faults a thread, and Dedup two for each block. So the kernel executes only a twentieth of the \
instructions, and the designs differ only there. In the papers Metis faults on 12 to 38 GB and Dedup on 13 GB. `--size` \
makes the text larger";
/// The reason why jobs do not scale as in the papers.
pub const SERIAL: &str = "the size of the job: it takes 20 to 100 million instructions, and one thread executes the first and the last of them \
alone. The serial part below bounds the speed-up by itself. For Metis it falls with a larger `--size`";

/// The reason why RadixVM is ahead of Bonsai where the paper's is behind.
const HUGE_PAGES: &str = "huge pages: with blocks of 8 MB RadixVM takes 14 faults on one CPU, and the Bonsai design, which has no huge pages, 417. \
The paper's RadixVM has none either";

/// The reason why tables per core take more memory, beside a shared one, than in the paper.
const FEW_ENTRIES: &str = "the size of the job: the text has half a megabyte, so tables have few entries, and each core takes about as many of \
its own as the shared table has in all. In the paper gigabytes fill them";

/// The figures up to section 5.4.
pub const FIGURES: [Figure; 4] = [
    Figure {
        id: "fig4",
        paper: "RadixVM, figure 4 (section 5.2)",
        title: "Metis scalability for different VM systems and allocation block sizes",
        note: "wordindex indexes a small text many times over, because the paper's 4 GB do not fit into a metered guest. One job is one index.",
        content: Content::Curves(
            Axes { across: Across::Cores, up: "jobs/hour" },
            &[Panel {
                title: "Metis",
                plot: Plot::Jobs,
                series: &[
                    Series { label: "RadixVM/8 MB", on: RADIX, work: metis!("8M") },
                    Series { label: "RadixVM/64 KB", on: RADIX, work: metis!("64K") },
                    Series { label: "RadixVM, adaptive/8 MB", on: ADAPTIVE, work: metis!("8M") },
                    Series { label: "RadixVM, adaptive/64 KB", on: ADAPTIVE, work: metis!("64K") },
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
                        Says::About(0.95),
                        Ours::Ratio("RadixVM/8 MB", "Bonsai/8 MB", 80),
                    )
                    .because(HUGE_PAGES),
                    claim(
                        "RadixVM of Linux, 8 MB, at 80 cores",
                        "5.2",
                        "substantially more",
                        Says::More,
                        Ours::Ratio("RadixVM/8 MB", "Linux/8 MB", 80),
                    ),
                    claim(
                        "RadixVM of Linux, 64 KB, at 80 cores",
                        "5.2",
                        "substantially more",
                        Says::More,
                        Ours::Ratio("RadixVM/64 KB", "Linux/64 KB", 80),
                    ),
                    claim(
                        "RadixVM of Bonsai, 64 KB, at 80 cores",
                        "5.2",
                        "more",
                        Says::More,
                        Ours::Ratio("RadixVM/64 KB", "Bonsai/64 KB", 80),
                    )
                    .because(READ_BY_ALL),
                ],
            }],
        ),
    },
    Figure {
        id: "fig5",
        paper: "RadixVM, figure 5 (section 5.3)",
        title: "Throughput of local, pipeline, and global microbenchmarks as the total number of pages written per second",
        note: "Linux is 6.1, and the paper's is 3.5. Bonsai is the design in our kernel, and the paper's is a patched Linux 2.6.37. In global every thread writes to 16 pages of each thread's part, as in the paper (64 KB).",
        content: Content::Curves(
            PAGES,
            &[
                Panel {
                    title: "local",
                    plot: Plot::PerRound(1.0),
                    series: &systems(LOCAL),
                    claims: &[
                        claim(
                            "RadixVM, 80 cores of 1",
                            "5.3",
                            "linear: 80",
                            Says::AtLeast(80.0),
                            Ours::Speedup("RadixVM", 80),
                        ),
                        claim(
                            "RadixVM of Linux at 1 core",
                            "5.3",
                            "within 8 %: 0.92",
                            Says::AtLeast(0.92),
                            Ours::Ratio("RadixVM", "Linux", 1),
                        ),
                        claim(
                            "Linux, 80 cores of 1",
                            "5.3",
                            "slows down",
                            Says::Less,
                            Ours::Speedup("Linux", 80),
                        ),
                        claim(
                            "Bonsai, 80 cores of 1",
                            "5.3",
                            "slows down",
                            Says::Less,
                            Ours::Speedup("Bonsai", 80),
                        ),
                        claim(
                            "RadixVM, shootdown targets a round",
                            "5.3",
                            "none",
                            Says::Nothing,
                            Ours::Targets("RadixVM"),
                        ),
                        claim(
                            "RadixVM, lines transferred a round",
                            "5.3",
                            "essentially zero",
                            Says::Nothing,
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
                            Says::About(1.0),
                            Ours::Targets("RadixVM"),
                        ),
                        claim(
                            "RadixVM, 80 cores of 1",
                            "5.3",
                            "scales well, not linearly",
                            Says::More,
                            Ours::Speedup("RadixVM", 80),
                        ),
                        claim(
                            "RadixVM of Linux at 1 core",
                            "5.3",
                            "within 8 %: 0.92",
                            Says::AtLeast(0.92),
                            Ours::Ratio("RadixVM", "Linux", 1),
                        ),
                        claim(
                            "RadixVM of Linux at 80 cores",
                            "5.3",
                            "significantly more",
                            Says::More,
                            Ours::Ratio("RadixVM", "Linux", 80),
                        ),
                        claim(
                            "RadixVM of Bonsai at 80 cores",
                            "5.3",
                            "significantly more",
                            Says::More,
                            Ours::Ratio("RadixVM", "Bonsai", 80),
                        ),
                    ],
                },
                Panel {
                    title: "global",
                    plot: Plot::PerRoundAndCore(16.0),
                    series: &systems(GLOBAL),
                    claims: &[
                        claim(
                            "RadixVM, 80 cores of 1",
                            "5.3",
                            "scales well",
                            Says::More,
                            Ours::Speedup("RadixVM", 80),
                        ),
                        claim(
                            "RadixVM of Bonsai at 80 cores",
                            "5.3",
                            "ahead",
                            Says::More,
                            Ours::Ratio("RadixVM", "Bonsai", 80),
                        )
                        .because(FILLS),
                        claim(
                            "RadixVM of Linux at 80 cores",
                            "5.3",
                            "ahead",
                            Says::More,
                            Ours::Ratio("RadixVM", "Linux", 80),
                        ),
                    ],
                },
            ],
        ),
    },
    Figure {
        id: "table2",
        paper: "RadixVM, table 2 (section 5.4)",
        title: "Memory usage for alternate VM representations",
        note: "The programs are those of the snapshots in docs/snapshots, not the paper's. The paper's radix trees take about twice the memory of Linux's VMAs and page tables (section 5.6), and at most 3.7 % of the resident memory (section 5.4).",
        content: Content::Memory,
    },
    Figure {
        id: "tables",
        paper: "RadixVM, section 5.4",
        title: "Page tables of Metis, per core and shared",
        note: "The paper has one number of this in its text. The values are the kernel's own counts in runs without the meter. They do not contain the tables of the program's start.",
        content: Content::Curves(
            Axes { across: Across::Cores, up: "page-table pages" },
            &[Panel {
                title: "Metis, 64 KB",
                plot: Plot::TablePages,
                series: &tables(metis!("64K")),
                claims: &[claim(
                    "per-core of shared at the most CPUs",
                    "5.4",
                    "13 at 80 cores",
                    Says::AtMost(13.0),
                    Ours::LastRatio("Per-core", "Shared"),
                )
                .because(FEW_ENTRIES)],
            }],
        ),
    },
];

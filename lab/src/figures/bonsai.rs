//! Figures of *Scalable address spaces using RCU balanced trees* (Clements, Kaashoek, Zeldovich, ASPLOS
//! 2012).

use super::claims::{Claim, Ours, Says, claim};
use super::radixvm::{FEW_MAPS, SERIAL, metis};
use super::times::Split;
use super::{Across, Axes, BONSAI, Content, Figure, Panel, Plot, Series, Timed, Work, ours};

/// Returns the paper's four designs and three more, on one program.
const fn designs(work: Work) -> [Series; 7] {
    [
        Series { label: "Pure RCU", on: BONSAI, work },
        Series { label: "Hybrid locking/RCU", on: ours("hybrid", "shared", "refcache"), work },
        Series { label: "Fault locking", on: ours("faultlock", "shared", "refcache"), work },
        Series { label: "Read/write locking", on: ours("rwlock", "shared", "refcache"), work },
        Series { label: "Lock per VMA", on: ours("pervma", "shared", "refcache"), work },
        Series { label: "RadixVM", on: super::RADIX, work },
        Series { label: "RadixVM, adaptive", on: super::ADAPTIVE, work },
    ]
}

/// Returns the same with today's Linux in place of our design with its locks, one per VMA.
const fn designs_and_linux(work: Work) -> [Series; 7] {
    let [pure, hybrid, fault, stock, _, radix, adaptive] = designs(work);
    [pure, hybrid, fault, stock, Series { label: "Linux", on: super::Machine::Linux, work }, radix, adaptive]
}

const METIS: Work = metis!("8M");
const PSEARCHY: Work = Work {
    program: "textindex",
    arguments: &["--slots", "1024", "{file}"],
    reads: Some("crates/vm"),
    apart: 0,
};
const DEDUP: Work = Work {
    program: "dedup",
    arguments: &["--block", "16K", "--repeat", "{size}", "{file}"],
    reads: Some("Cargo.lock"),
    apart: 0,
};
/// Faults of threads that each have one region, too small for a huge page but large enough for all of their
/// rounds. The option says how many other threads map, or for how much of its time one does.
macro_rules! faults {
    ($option:literal, $value:literal) => {
        Work::new("faultstorm", &[$option, $value, "--pages", "511", "--iterations", "480", "--warmup", "24"])
    };
}

const FAULTS: Work = faults!("--mappers", "0");
const FAULTS_BESIDE_MAPS: Work = faults!("--mmap-fraction", "{x}");

const JOBS: Axes = Axes { across: Across::Cores, up: "throughput (jobs/hour)" };

const fn speedup(paper: &'static str, number: f64, of: &'static str) -> Claim {
    claim(of, "7.2: 80 cores of 1", paper, Says::AtLeast(number), Ours::Speedup(of, 80)).because(SERIAL)
}

const fn of_stock(paper: &'static str, says: Says, what: &'static str) -> Claim {
    let ours = Ours::Ratio(what, "Read/write locking", 80);
    claim(what, "7.2: of read/write locking, at 80 cores", paper, says, ours)
}

const LOCKS_AT_MOST_45: Claim = claim(
    "Read/write locking",
    "7.2: 80 cores of 1",
    "45 at best",
    Says::AtMost(45.0),
    Ours::Speedup("Read/write locking", 80),
)
.in_words();

/// The reason why the designs differ less in Psearchy than in the paper.
const FEW_CALLS: &str = "the model, and the size of the job: the model extrapolates the waits for the lock in a straight line from the last two \
numbers of CPUs, where the kernel executes a tenth of the instructions. The paper's locks collapse beyond 32 cores, \
which no such line shows";

/// Returns the claim about a design with a lock that its faults cost more beyond the ten cores of one socket.
const fn dearer(of: &'static str) -> Claim {
    claim(of, "7.3: 80 cores of 10", "more than 10", Says::AtLeast(10.0), Ours::Growth(of, 80, 10))
}

/// The reason why faults beside maps cost less than in the paper.
const WAITS: &str = "the counts, and the model: they have the instructions of the CPUs that wait for the lock, and the lines that it \
transfers, and no queue in front of a line. At 32 CPUs a fault beside maps takes three times the instructions of one \
alone, and 5 to 6 lines more. In the paper those that fault wait for each other. We predict nothing here, because \
the figure is drawn at the most CPUs counted";

/// The reason why faults beside maps cost more than faults alone in a design whose faults take no lock.
const TREE_LINES: &str = "the tree: a fault fetches the nodes that the CPU which maps has changed. At 32 CPUs it transfers 0.07 lines alone and 0.7 \
beside maps, and executes as many instructions";

/// Returns a job of table 1. The paper has times of the first four designs.
const fn timed(title: &'static str, series: &'static [Series], paper: &'static [Split]) -> Timed {
    Timed { panel: Panel { title, plot: Plot::Jobs, series, claims: &[] }, paper }
}

/// The paper's times on 80 cores.
const METIS_TIMES: &[Split] = &[
    Split::seconds(102.0, 11.0, 1.0),
    Split::seconds(107.0, 35.0, 4.0),
    Split::seconds(139.0, 155.0, 49.0),
    Split::seconds(150.0, 196.0, 45.0),
];
const PSEARCHY_TIMES: &[Split] = &[
    Split::seconds(107.0, 12.0, 201.0),
    Split::seconds(107.0, 47.0, 176.0),
    Split::seconds(107.0, 124.0, 220.0),
    Split::seconds(114.0, 177.0, 283.0),
];
const DEDUP_TIMES: &[Split] = &[
    Split::seconds(430.0, 17.0, 57.0),
    Split::seconds(426.0, 18.0, 93.0),
    Split::seconds(567.0, 35.0, 239.0),
    Split::seconds(465.0, 146.0, 248.0),
];

/// The figures of section 7.
pub const FIGURES: [Figure; 7] = [
    Figure {
        id: "fig13",
        paper: "Bonsai, figure 13 (section 7.2)",
        title: "Metis throughput for each page fault concurrency design",
        note: "wordindex runs with blocks of 8 MB, which are Streamflow's segments. The job is much smaller than the paper's.",
        content: Content::Curves(
            JOBS,
            &[Panel {
                title: "Metis",
                plot: Plot::Jobs,
                series: &designs_and_linux(METIS),
                claims: &[
                    speedup("75", 75.0, "Pure RCU"),
                    speedup("59", 59.0, "Hybrid locking/RCU"),
                    LOCKS_AT_MOST_45,
                    of_stock("3.4", Says::AtLeast(3.4), "Pure RCU").because(FEW_MAPS),
                    of_stock("2.7", Says::AtLeast(2.7), "Hybrid locking/RCU").because(FEW_MAPS),
                    of_stock("little more than 1", Says::About(1.0), "Fault locking").in_words(),
                ],
            }],
        ),
    },
    Figure {
        id: "fig14",
        paper: "Bonsai, figure 14 (section 7.2)",
        title: "Psearchy throughput for each page fault concurrency design",
        note: "textindex reads the files of one of this repository's crates. The paper's files are those of Linux.",
        content: Content::Curves(
            JOBS,
            &[Panel {
                title: "Psearchy",
                plot: Plot::Jobs,
                series: &designs_and_linux(PSEARCHY),
                claims: &[
                    speedup("25", 25.0, "Pure RCU"),
                    LOCKS_AT_MOST_45,
                    of_stock("1.27", Says::AtLeast(1.27), "Fault locking").because(FEW_CALLS),
                    of_stock("1.7 (best of each)", Says::AtLeast(1.7), "Hybrid locking/RCU")
                        .because(FEW_CALLS),
                    of_stock("1.8", Says::AtLeast(1.8), "Pure RCU").because(FEW_CALLS),
                    claim(
                        "Pure RCU",
                        "7.2: of hybrid locking/RCU, at 80 cores",
                        "3.1",
                        Says::AtLeast(3.1),
                        Ours::Ratio("Pure RCU", "Hybrid locking/RCU", 80),
                    )
                    .because(FEW_CALLS),
                ],
            }],
        ),
    },
    Figure {
        id: "fig15",
        paper: "Bonsai, figure 15 (section 7.2)",
        title: "Dedup throughput for each page fault concurrency design",
        note: "The input is a small file many times over, so most of it is found to be there already.",
        content: Content::Curves(
            JOBS,
            &[Panel {
                title: "Dedup",
                plot: Plot::Jobs,
                series: &designs_and_linux(DEDUP),
                claims: &[
                    speedup("near-perfect: 80", 80.0, "Pure RCU").in_words(),
                    LOCKS_AT_MOST_45,
                    of_stock("1.6", Says::AtLeast(1.6), "Hybrid locking/RCU").because(FEW_MAPS),
                    of_stock("1.7", Says::AtLeast(1.7), "Pure RCU").because(FEW_MAPS),
                ],
            }],
        ),
    },
    Figure {
        id: "table1",
        paper: "Bonsai, table 1 (section 7.2)",
        title: "Comparison of user, system, and idle time for a single job in each concurrency design",
        note: "The runs are those of figures 13 to 15 on the most CPUs of this run. The paper's are on 80 cores, so compare the parts. Threads that wait for each other spin, which is user time. A thread that waits for the lock of one of our address spaces spins in the kernel, which is system time.",
        content: Content::Times(&[
            timed("Metis", &designs_and_linux(METIS), METIS_TIMES),
            timed("Psearchy", &designs_and_linux(PSEARCHY), PSEARCHY_TIMES),
            timed("Dedup", &designs_and_linux(DEDUP), DEDUP_TIMES),
        ]),
    },
    Figure {
        id: "fig16",
        paper: "Bonsai, figure 16 (section 7.3)",
        title: "Microbenchmark throughput with no lock contention",
        note: "Every thread touches one fresh page a round, in one region of its own. A fault here is much shorter than on Linux 2.6.37.",
        content: Content::Curves(
            Axes { across: Across::Cores, up: "page faults/s" },
            &[Panel {
                title: "faults alone",
                plot: Plot::PerRound(1.0),
                series: &designs_and_linux(FAULTS),
                claims: &[
                    claim(
                        "Pure RCU, at 80 cores",
                        "7.3",
                        "20 million/s",
                        Says::AtLeast(20e6),
                        Ours::Value("Pure RCU", 80),
                    ),
                    claim(
                        "RadixVM, 80 cores of 1",
                        "not in this paper",
                        "",
                        Says::More,
                        Ours::Speedup("RadixVM", 80),
                    ),
                ],
            }],
        ),
    },
    Figure {
        id: "fig17",
        paper: "Bonsai, figure 17 (section 7.3)",
        title: "Microbenchmark page fault cost with no lock contention",
        note: "The same runs as figure 16.",
        content: Content::Curves(
            Axes { across: Across::Cores, up: "cycles/page fault" },
            &[Panel {
                title: "faults alone",
                plot: Plot::Cycles,
                series: &designs_and_linux(FAULTS),
                claims: &[
                    claim(
                        "Read/write locking, at 10 cores",
                        "7.3",
                        "about 7,400",
                        Says::AtMost(7400.0),
                        Ours::Value("Read/write locking", 10),
                    ),
                    claim(
                        "Pure RCU, at 10 cores",
                        "7.3",
                        "about 7,400",
                        Says::AtMost(7400.0),
                        Ours::Value("Pure RCU", 10),
                    ),
                    claim(
                        "Pure RCU, at 80 cores",
                        "7.3",
                        "8,869",
                        Says::AtMost(8869.0),
                        Ours::Value("Pure RCU", 80),
                    ),
                    dearer("Read/write locking"),
                    dearer("Fault locking"),
                    dearer("Hybrid locking/RCU"),
                ],
            }],
        ),
    },
    Figure {
        id: "fig18",
        paper: "Bonsai, figure 18 (section 7.3)",
        title: "Microbenchmark page fault cost with varying time spent in mmap and munmap, relative to the cost with no concurrent memory mapping operations",
        note: "The runs are on the most CPUs of this run, and one of these CPUs maps. The cost is that of a fault on the others, which includes the waits for locks while they spin.",
        content: Content::Curves(
            Axes {
                across: Across::Argument(
                    "% of time in mmap and munmap",
                    &["0", "10", "20", "40", "60", "80", "100"],
                ),
                up: "relative page fault cost",
            },
            &[Panel {
                title: "faults beside maps",
                plot: Plot::FaultRelative,
                series: &designs(FAULTS_BESIDE_MAPS),
                claims: &[
                    claim(
                        "Read/write locking, at 100 %",
                        "7.3",
                        "29",
                        Says::AtLeast(29.0),
                        Ours::Value("Read/write locking", 100),
                    )
                    .because(WAITS),
                    claim(
                        "Fault locking, at 100 %",
                        "7.3",
                        "21",
                        Says::AtLeast(21.0),
                        Ours::Value("Fault locking", 100),
                    )
                    .because(WAITS),
                    claim(
                        "Hybrid of fault locking, at 100 %",
                        "7.3",
                        "more modest",
                        Says::Less,
                        Ours::Ratio("Hybrid locking/RCU", "Fault locking", 100),
                    ),
                    claim(
                        "Pure RCU, at 100 %",
                        "7.3",
                        "near 1",
                        Says::About(1.0),
                        Ours::Value("Pure RCU", 100),
                    )
                    .because(TREE_LINES),
                ],
            }],
        ),
    },
];

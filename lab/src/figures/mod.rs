//! The figures of the papers, drawn anew: RadixVM (EuroSys 2013), Bonsai (ASPLOS 2012) and LODIC (ATC 2021).
//!
//! ```text
//!   radixvm, radixvm_5_5, bonsai, lodic: the figures as data
//!        │ plan: what this build has, which runs that takes
//!        ▼
//!   measure ──▶ store: a file per boot, found again after a stop
//!        │ boots: guests differ, so the mean over as many as it takes to know it
//!        │ value, curve: points where something was counted, the cost model between and beyond
//!        ▼
//!   results ──▶ figures.json ──▶ compare
//!        │ compact: one line for each series and number of CPUs
//!        ▼
//!   drawn again, with claims: the papers' numbers beside ours ──▶ pictures, page, docs/results/figures.md
//! ```
//!
//! All plots are drawn from the compact file, so that the one in the repository gives the pictures beside it.
//!
//! A program, a design or a scheme of counting is added to a figure by a line in its table. If this build
//! does not know it, the results list it as not in this build.

pub mod bonsai;
pub mod boots;
pub mod claims;
pub mod compact;
pub mod compare;
pub mod computed;
pub mod counts;
pub mod curve;
pub mod identity;
pub mod job;
pub mod lodic;
pub mod lodic_tables;
pub mod measure;
pub mod page;
pub mod plan;
pub mod publish;
pub mod radixvm;
pub mod radixvm_5_5;
pub mod results;
pub mod store;
pub mod tables;
pub mod times;
pub mod value;

use abi::config::{Choice, Design, ReadRefs, Refs, Tables};
use anyhow::Result;

use claims::Claim;
use computed::Table;
use launch::guest::system::System;
use launch::meter::report::palette;
use times::Split;

/// A figure or table of a paper.
pub struct Figure {
    /// As on the command line: fig5, table2.
    pub id: &'static str,
    /// The paper, and the place in it.
    pub paper: &'static str,
    /// Its caption there.
    pub title: &'static str,
    /// The differences here.
    pub note: &'static str,
    /// Its content.
    pub content: Content,
}

/// The content of a figure.
pub enum Content {
    /// Curves.
    Curves(Axes, &'static [Panel]),
    /// A table that follows from sizes, snapshots or a formula, and curves that are counted beside it.
    Computed(fn() -> Result<Table>, Axes, &'static [Panel]),
    /// Times of jobs, user, system and idle: the Bonsai paper's table 1.
    Times(&'static [Timed]),
    /// Bytes of address spaces of real programs: table 2.
    Memory,
}

/// Jobs whose time is split.
pub struct Timed {
    /// The programs and the machines.
    pub panel: Panel,
    /// The paper's numbers for the first series.
    pub paper: &'static [Split],
}

impl Content {
    /// Returns the variable, and the plots with the runs that they need.
    pub fn panels(&self) -> (Across, Vec<&'static Panel>) {
        match self {
            Content::Curves(axes, panels) | Content::Computed(_, axes, panels) => {
                (axes.across, panels.iter().collect())
            }
            Content::Times(jobs) => (Across::Cores, jobs.iter().map(|job| &job.panel).collect()),
            Content::Memory => (Across::Cores, Vec::new()),
        }
    }
}

/// The variable and the plotted quantity.
pub struct Axes {
    /// The variable on the horizontal axis.
    pub across: Across,
    /// The label of the vertical axis.
    pub up: &'static str,
}

/// The variable, from left to right.
#[derive(Clone, Copy, PartialEq)]
pub enum Across {
    /// The number of CPUs.
    Cores,
    /// The word `{x}` of the arguments: its label and its values. All runs have the largest number of CPUs.
    Argument(&'static str, &'static [&'static str]),
}

/// One plot of a figure.
pub struct Panel {
    /// The distinction from the other plots.
    pub title: &'static str,
    /// The plotted quantity.
    pub plot: Plot,
    /// The curves, as the paper names them.
    pub series: &'static [Series],
    /// The paper's claims about them.
    pub claims: &'static [Claim],
}

/// The plotted quantity, which is computed from counts or from a report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Plot {
    /// Rounds per second, multiplied by this.
    PerRound(f64),
    /// Rounds per second, multiplied by this and by the number of CPUs.
    PerRoundAndCore(f64),
    /// Jobs per hour. All rounds together are one job: the threads' shares, the files, or the blocks.
    Jobs,
    /// Cycles of a CPU per round.
    Cycles,
    /// Cycles per page fault of the threads that only fault, as a multiple of the first value.
    FaultRelative,
    /// Look-ups per second. Each reader does this number of them in a run.
    Lookups(f64),
    /// Instructions per round.
    Instructions,
    /// Instructions of this phase per round, divided by this number of pages.
    InPhase(u8, f64),
    /// Frames of page tables, as our kernel counts them.
    TablePages,
    /// A counter of our kernel over the run, perhaps divided by another. The program reports them (`--json`).
    Counter(&'static str, Option<&'static str>),
}

impl Plot {
    /// Returns whether it needs the meter's counts. Otherwise the program's own report is enough.
    pub fn is_metered(self) -> bool {
        self != Plot::TablePages
    }

    /// Returns whether the plotted value is itself a count, of a part of the round or of the kernel's.
    pub fn is_count(self) -> bool {
        matches!(self, Plot::Instructions | Plot::InPhase(..) | Plot::Counter(..))
    }
}

/// One curve.
pub struct Series {
    /// Its name in the paper.
    pub label: &'static str,
    /// The machine.
    pub on: Machine,
    /// The program and its work.
    pub work: Work,
}

/// A kernel, named by the words of options and command lines. This build may lack what they name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Machine {
    /// Ours.
    Ours {
        /// `vm=`
        design: &'static str,
        /// `tables=`
        tables: &'static str,
        /// The scheme that counts references to pages.
        refs: &'static str,
        /// The way in which a read keeps the page of a file.
        read_refs: &'static str,
    },
    /// The distribution's.
    Linux,
}

impl Series {
    /// Returns the number of its colour, which is that of its number of writers, of its way to keep pages, or
    /// of its system.
    pub fn color(&self) -> usize {
        let writers = WRITERS.iter().position(|writers| *writers == self.work.apart);
        let reads = READS.iter().position(|reads| self.on.reads() == Some(*reads));
        let system = self.on.system().map_or(palette::OTHERS, palette::of);
        writers.or(reads).map_or(system, |at| palette::OTHERS + at)
    }
}

/// Numbers of writers that have a colour.
const WRITERS: [u16; 5] = [1, 5, 10, 20, 40];
/// Ways to keep pages that have a colour. These are the writers' colours. Figure 15 has both, and marks its
/// writers in another way.
const READS: [&str; 5] = ["shared", "none", "refcache", "paygo", "lodic"];

/// RadixVM as it comes, with adaptive page tables, which the paper does not have.
pub const ADAPTIVE: Machine = ours("radix", "adaptive", "refcache");
/// The paper's RadixVM.
pub const RADIX: Machine = ours("radix", "percore", "refcache");
/// RadixVM with one page table.
pub const SHARED: Machine = ours("radix", "shared", "refcache");
/// Bonsai's pure RCU.
pub const BONSAI: Machine = ours("bonsai", "shared", "refcache");

/// The default way in which a read keeps the page of a file.
const PINNED: &str = "pinned";

/// Returns a machine that runs our kernel.
pub const fn ours(design: &'static str, tables: &'static str, refs: &'static str) -> Machine {
    Machine::Ours { design, tables, refs, read_refs: PINNED }
}

/// Returns RadixVM with one page table, whose reads of files keep pages in this way.
pub const fn reading(read_refs: &'static str) -> Machine {
    Machine::Ours { design: "radix", tables: "shared", refs: "refcache", read_refs }
}

impl Machine {
    /// Returns the system, or the name of the part of it that this build lacks.
    pub fn system(self) -> std::result::Result<System, String> {
        let Machine::Ours { design, tables, refs, read_refs } = self else { return Ok(System::Linux) };
        let known = Design::named(design).ok_or_else(|| format!("design {design}"))?;
        let tables = Tables::named(tables).ok_or_else(|| format!("tables {tables}"))?;
        let refs = Refs::named(refs).ok_or_else(|| format!("counters {refs}"))?;
        let reads = ReadRefs::named(read_refs).ok_or_else(|| format!("reads {read_refs}"))?;
        Ok(System::Radixvm(known, tables, refs, reads))
    }

    /// Returns the words that name it.
    pub fn words(self) -> Vec<&'static str> {
        match self {
            Machine::Ours { design, tables, refs, .. } => {
                [design, tables, refs].into_iter().chain(self.reads()).collect()
            }
            Machine::Linux => vec!["linux"],
        }
    }

    /// Returns the way in which its reads keep pages, if that is not the default.
    fn reads(self) -> Option<&'static str> {
        match self {
            Machine::Ours { read_refs, .. } => Some(read_refs).filter(|word| *word != PINNED),
            Machine::Linux => None,
        }
    }
}

/// A program of `user/` and what it works on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Its name.
    pub program: &'static str,
    /// Its arguments. `{file}` stands for the path below, `{size}` for the number of times that it repeats
    /// its work, and `{x}` for the value that is varied.
    pub arguments: &'static [&'static str],
    /// A file or folder of this repository.
    pub reads: Option<&'static str>,
    /// The number of threads whose work is not drawn.
    pub apart: u16,
}

impl Work {
    /// Returns work without files, which is the same for all threads.
    pub const fn new(program: &'static str, arguments: &'static [&'static str]) -> Self {
        Work { program, arguments, reads: None, apart: 0 }
    }
}

/// Returns all figures, paper by paper.
pub fn all() -> impl Iterator<Item = &'static Figure> {
    radixvm::FIGURES.iter().chain(&radixvm_5_5::FIGURES).chain(&bonsai::FIGURES).chain(&lodic::FIGURES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn figures_have_names_of_their_own_and_claims_name_series() {
        let ids: BTreeSet<_> = all().map(|figure| figure.id).collect();
        assert_eq!(ids.len(), all().count());
        for panel in all().flat_map(|figure| figure.content.panels().1) {
            let labels: BTreeSet<_> = panel.series.iter().map(|series| series.label).collect();
            assert_eq!(labels.len(), panel.series.len(), "{}", panel.title);
            let known = |claim: &Claim| claim.ours.labels().iter().all(|label| labels.contains(label));
            assert!(panel.claims.iter().all(known), "{}", panel.title);
        }
    }

    #[test]
    fn designs_missing_from_this_build_are_named() {
        assert_eq!(RADIX.system(), Ok(System::PERCORE));
        assert_eq!(Machine::Linux.system(), Ok(System::Linux));
        assert_eq!(ours("none", "percore", "refcache").system(), Err("design none".to_owned()));
        assert_eq!(ours("radix", "percore", "two").system(), Err("counters two".to_owned()));
        assert_eq!(reading("slow").system(), Err("reads slow".to_owned()));
    }

    #[test]
    fn machines_name_how_they_read_unless_as_usual() {
        assert_eq!(reading("lodic").words(), ["radix", "shared", "refcache", "lodic"]);
        assert_eq!((reading("pinned"), SHARED.words()), (SHARED, vec!["radix", "shared", "refcache"]));
    }
}

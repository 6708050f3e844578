//! The lines that CPUs fought over, with names.

use serde::Serialize;

use super::names::Names;
use super::output::{Line, Pair};
use super::owner::Namer;
use crate::guest::protocol::Owners;

/// Lines and pairs that are named: more is noise.
const LINES: usize = 40;
const PAIRS: usize = 8;

/// One contended line.
#[derive(Clone, Debug, Serialize)]
pub struct Blame {
    /// Guest-physical address.
    pub address: String,
    /// What it belongs to.
    pub owner: String,
    /// Per round: times that a CPU asked for it.
    pub transfers: f64,
    /// Per round: of these, times that it was there but shared.
    pub upgrades: f64,
    /// Per round: copies lost to writers.
    pub invalidations: f64,
    /// How many CPUs asked.
    pub cpus: usize,
    /// Whether they touched different bytes of it.
    pub false_sharing: bool,
    /// The code on both sides.
    pub pairs: Vec<Fight>,
}

/// Two places in code.
#[derive(Clone, Debug, Serialize)]
pub struct Fight {
    /// Who had the line.
    pub from: String,
    /// Who took it.
    pub to: String,
    /// How it was taken.
    pub kind: String,
    /// Per round.
    pub count: f64,
}

/// Names the hottest lines of a run with so many rounds.
pub fn name(lines: &[Line], rounds: usize, owners: Option<&Owners>, names: &Names<'_>) -> Vec<Blame> {
    let per_round = |count: u64| count as f64 / rounds.max(1) as f64;
    let namer = Namer::new(names, owners, lines);
    let named = |line: &Line| Blame {
        address: format!("{:#x}", line.address.0),
        owner: namer.name(line),
        transfers: per_round(line.transfers),
        upgrades: per_round(line.upgrades),
        invalidations: per_round(line.invalidations),
        cpus: line.cpus.len(),
        false_sharing: line.false_sharing,
        pairs: line.pairs.iter().take(PAIRS).map(|pair| fight(pair, per_round(pair.count), names)).collect(),
    };
    lines.iter().take(LINES).map(named).collect()
}

fn fight(pair: &Pair, count: f64, names: &Names<'_>) -> Fight {
    let (from, to) = (names.code(pair.from.0), names.code(pair.to.0));
    Fight { from, to, kind: pair.kind.replace("upgrades", "upgrade").replace('_', " "), count }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use super::*;
    use crate::meter::kallsyms::tests::kernel;
    use crate::meter::names::{Kernel, Loaded};
    use crate::meter::output::Output;
    use crate::meter::output::tests::FIXTURE;

    /// The fixture's lines with a made-up kernel's names.
    pub fn fixture() -> Vec<Blame> {
        let output = Output::parse(FIXTURE).unwrap();
        let stock = Kernel::Linux(kernel());
        let names = Names { kernel: &stock, program: Loaded::new(Path::new("/no/such/file"), &[], None) };
        name(&output.lines, output.ended(), None, &names)
    }

    #[test]
    fn counts_are_per_round_and_both_sides_are_named() {
        let blame = fixture();
        assert_eq!((blame[0].transfers, blame[0].upgrades, blame[0].cpus), (2.0, 1.0, 2));
        assert_eq!(blame[0].pairs[0].kind, "read modified");
        assert_eq!(blame[1].pairs[0].to, "program 0x555555555310");
        assert!(blame[1].false_sharing && !blame[0].false_sharing);
    }
}

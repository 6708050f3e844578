//! The contended lines, with the names of their owners and of the code.

use serde::Serialize;

use super::names::Names;
use super::output::{Line, Pair};
use super::owner::Namer;
use crate::guest::protocol::Owners;

/// The lines and pairs that are named. Further ones are noise.
const LINES: usize = 40;
const PAIRS: usize = 8;

/// One contended line.
#[derive(Clone, Debug, Serialize)]
pub struct Blame {
    /// Its guest-physical address.
    pub address: String,
    /// The object that contains it.
    pub owner: String,
    /// The times per round that a CPU asked for it.
    pub transfers: f64,
    /// The part of these in which the CPU had it, but shared.
    pub upgrades: f64,
    /// The copies per round that were lost to writers.
    pub invalidations: f64,
    /// The number of CPUs that asked.
    pub cpus: usize,
    /// Set if they touched different bytes of it.
    pub false_sharing: bool,
    /// The code on both sides.
    pub pairs: Vec<CodePair>,
}

/// Two places in code that contend for a line.
#[derive(Clone, Debug, Serialize)]
pub struct CodePair {
    /// The place whose CPU had the line.
    pub from: String,
    /// The place whose CPU took it.
    pub to: String,
    /// The kind of transfer.
    pub kind: String,
    /// The count per round.
    pub count: f64,
}

/// Names the hottest lines of a run of `rounds` rounds.
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
        pairs: line
            .pairs
            .iter()
            .take(PAIRS)
            .map(|pair| code_pair(pair, per_round(pair.count), names))
            .collect(),
    };
    lines.iter().take(LINES).map(named).collect()
}

fn code_pair(pair: &Pair, count: f64, names: &Names<'_>) -> CodePair {
    let (from, to) = (names.code(pair.from.0), names.code(pair.to.0));
    CodePair { from, to, kind: pair.kind.replace("upgrades", "upgrade").replace('_', " "), count }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use super::*;
    use crate::meter::kallsyms::tests::kernel;
    use crate::meter::names::{Kernel, Loaded};
    use crate::meter::output::Output;
    use crate::meter::output::tests::FIXTURE;

    /// Returns the fixture's lines with the names of a made-up kernel.
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

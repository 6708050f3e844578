//! The blame of all CPUs together: the lines that moved most.

use std::collections::HashMap;

use crate::blame::{Blame, Fight, Key};
use crate::counts::Kind;
use crate::cpu::{Cpu, Privilege};
use crate::directory::LINE_SHIFT;

/// Lines in the results.
const LINES: usize = 300;
/// Pairs of a line in the results.
const PAIRS: usize = 16;

/// A contended line.
#[derive(Debug, Default)]
pub struct Line {
    /// Guest-physical.
    pub address: u64,
    /// Guest-virtual, as it was last fought for.
    pub touched_at: u64,
    /// Transfers of all kinds.
    pub transfers: u64,
    /// Those that were upgrades.
    pub upgrades: u64,
    /// Copies removed.
    pub invalidations: u64,
    /// Transfers between CPUs that touched different bytes.
    pub disjoint: u64,
    /// Who fought over it, the worst first.
    pub pairs: Vec<Pair>,
    cpus: u128,
}

/// Two instructions.
#[derive(Debug)]
pub struct Pair {
    /// Who had it.
    pub from: u64,
    /// Who wanted it.
    pub to: u64,
    /// How.
    pub kind: Kind,
    /// Bytes that the one side touched.
    pub bytes_from: u64,
    /// Bytes that the other side touched.
    pub bytes_to: u64,
    /// Transfers in which they differed.
    pub disjoint: u64,
    /// Transfers.
    pub count: u64,
}

impl Pair {
    /// Whether the one who wanted it was a program.
    pub fn to_user(&self) -> bool {
        Privilege::of(self.to) == Privilege::User
    }
}

impl Line {
    /// Whether the address is a program's.
    pub fn is_user(&self) -> bool {
        Privilege::of(self.touched_at) == Privilege::User
    }

    /// Whether it moved mostly between CPUs that touched different bytes.
    pub fn is_false_sharing(&self) -> bool {
        self.disjoint * 2 > self.transfers
    }

    /// The CPUs that fought over it.
    pub fn cpus(&self) -> impl Iterator<Item = usize> {
        (0..128).filter(|cpu| self.cpus & 1 << cpu != 0)
    }

    fn add(&mut self, key: &Key, fight: &Fight) {
        self.address = key.line << LINE_SHIFT;
        // The page too: a line has the same place in it under every address.
        self.touched_at = fight.address & !((1 << LINE_SHIFT) - 1);
        self.transfers += fight.count;
        self.upgrades += if key.kind == Kind::Upgrades { fight.count } else { 0 };
        self.invalidations += fight.invalidations;
        self.disjoint += fight.disjoint;
        self.cpus |= fight.cpus;
        self.pairs.push(pair(key, fight));
    }

    fn sort(&mut self) {
        self.pairs.sort_by_key(|pair| (std::cmp::Reverse(pair.count), pair.from, pair.to));
        self.pairs.truncate(PAIRS);
    }
}

fn pair(key: &Key, fight: &Fight) -> Pair {
    Pair {
        from: key.from,
        to: key.to,
        kind: key.kind,
        bytes_from: fight.bytes_from,
        bytes_to: fight.bytes_to,
        disjoint: fight.disjoint,
        count: fight.count,
    }
}

/// The hottest lines of all CPUs.
pub fn hottest(cpus: &[Cpu]) -> Vec<Line> {
    let mut all = Blame::default();
    cpus.iter().for_each(|cpu| all.merge(&cpu.log().blame));
    let mut lines: HashMap<u64, Line> = HashMap::new();
    all.iter().for_each(|(key, fight)| lines.entry(key.line).or_default().add(key, fight));
    let mut lines: Vec<Line> = lines.into_values().collect();
    lines.sort_by_key(|line| (std::cmp::Reverse(line.transfers), line.address));
    lines.truncate(LINES);
    lines.iter_mut().for_each(Line::sort);
    lines
}

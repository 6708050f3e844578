//! Blame summed over all CPUs: the lines that moved most.

use std::collections::HashMap;

use crate::blame::{Blame, Fight, Key};
use crate::counts::Kind;
use crate::cpu::{Cpu, Privilege};
use crate::directory::LINE_SHIFT;

/// Number of lines in the results.
const LINES: usize = 300;
/// Number of pairs of a line in the results.
const PAIRS: usize = 16;

/// A contended line.
#[derive(Debug, Default)]
pub struct Line {
    /// Guest-physical address.
    pub address: u64,
    /// Guest-virtual address of the last conflict.
    pub touched_at: u64,
    /// Number of transfers of all kinds.
    pub transfers: u64,
    /// Number of transfers that were upgrades.
    pub upgrades: u64,
    /// Number of copies removed.
    pub invalidations: u64,
    /// Number of transfers between CPUs that touched different bytes.
    pub disjoint: u64,
    /// The instructions that conflicted over it, the worst pair first.
    pub pairs: Vec<Pair>,
    cpus: u128,
}

/// Two conflicting instructions.
#[derive(Debug)]
pub struct Pair {
    /// The instruction that had the line.
    pub from: u64,
    /// The instruction that needed it.
    pub to: u64,
    /// Kind of the transfers.
    pub kind: Kind,
    /// Bytes that the first instruction touched.
    pub bytes_from: u64,
    /// Bytes that the second instruction touched.
    pub bytes_to: u64,
    /// Number of transfers in which the bytes differed.
    pub disjoint: u64,
    /// Number of transfers.
    pub count: u64,
}

impl Pair {
    /// Returns whether a program needed the line.
    pub fn to_user(&self) -> bool {
        Privilege::of(self.to) == Privilege::User
    }
}

impl Line {
    /// Returns whether the address is a program's.
    pub fn is_user(&self) -> bool {
        Privilege::of(self.touched_at) == Privilege::User
    }

    /// Returns whether it moved mostly between CPUs that touched different bytes.
    pub fn is_false_sharing(&self) -> bool {
        self.disjoint * 2 > self.transfers
    }

    /// Returns the CPUs that conflicted over it.
    pub fn cpus(&self) -> impl Iterator<Item = usize> {
        (0..128).filter(|cpu| self.cpus & 1 << cpu != 0)
    }

    fn add(&mut self, key: &Key, fight: &Fight) {
        self.address = key.line << LINE_SHIFT;
        // This keeps the page too: a line has the same offset in its page under every address.
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

/// Returns the hottest lines of all CPUs.
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

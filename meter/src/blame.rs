//! Records which instructions conflicted over which lines.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::counts::Kind;
use crate::directory::Transfer;

/// A line and the two instructions between which it moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The line's number.
    pub line: u64,
    /// The instruction that had the line.
    pub from: u64,
    /// The instruction that needed it.
    pub to: u64,
    /// The kind of transfer.
    pub kind: Kind,
}

/// The number of transfers of a key, and the bytes they touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fight {
    /// Number of transfers.
    pub count: u64,
    /// Number of transfers in which the two sides had touched different bytes.
    pub disjoint: u64,
    /// Number of copies removed.
    pub invalidations: u64,
    /// Bytes that the first instruction touched.
    pub bytes_from: u64,
    /// Bytes that the second instruction touched.
    pub bytes_to: u64,
    /// The CPUs that took part.
    pub cpus: u128,
    /// An address under which the line was touched.
    pub address: u64,
}

impl Fight {
    /// Returns one transfer to `cpu`, of `bytes` at the virtual `address`.
    pub fn one(transfer: &Transfer, cpu: usize, bytes: u64, address: u64) -> Self {
        Self {
            count: 1,
            disjoint: u64::from(transfer.bytes_from & bytes == 0),
            invalidations: transfer.invalidations,
            bytes_from: transfer.bytes_from,
            bytes_to: bytes,
            cpus: 1 << cpu | 1 << transfer.from.cpu(),
            address,
        }
    }

    /// Adds the transfers of `other`.
    pub fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.disjoint += other.disjoint;
        self.invalidations += other.invalidations;
        self.bytes_from |= other.bytes_from;
        self.bytes_to |= other.bytes_to;
        self.cpus |= other.cpus;
        self.address = other.address;
    }
}

/// The conflicts that one CPU caused, or all CPUs.
#[derive(Debug, Default)]
pub struct Blame(HashMap<Key, Fight, BuildHasherDefault<Mixer>>);

impl Blame {
    /// Adds a conflict.
    pub fn add(&mut self, key: Key, fight: &Fight) {
        self.0.entry(key).or_default().add(fight);
    }

    /// Takes back one conflict. The bytes that it added stay.
    pub fn subtract(&mut self, key: &Key, fight: &Fight) {
        let Some(known) = self.0.get_mut(key) else { return };
        known.count -= 1;
        known.disjoint -= fight.disjoint;
        if known.count == 0 {
            self.0.remove(key);
        }
    }

    /// Adds all conflicts of `other`.
    pub fn merge(&mut self, other: &Self) {
        other.iter().for_each(|(key, fight)| self.add(*key, fight));
    }

    /// Forgets all conflicts.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns all conflicts, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Fight)> {
        self.0.iter()
    }
}

/// A hash of a few words. Unlike the standard one, it does not resist hostile keys.
#[derive(Debug, Default)]
pub struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }

    fn write_isize(&mut self, word: isize) {
        self.write_u64(word as u64);
    }

    fn finish(&self) -> u64 {
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::Origin;

    fn transfer(bytes_from: u64) -> Transfer {
        Transfer { kind: Kind::Upgrades, invalidations: 2, from: Origin::new(100, 0x10), bytes_from }
    }

    #[test]
    fn fights_add_up_and_can_be_taken_back() {
        let key = Key { line: 1, from: 2, to: 3, kind: Kind::Upgrades };
        let [apart, over] = [0x0f, 0xf0].map(|bytes| Fight::one(&transfer(bytes), 1, 0xf0, 0x99));
        let (mut mine, mut all) = (Blame::default(), Blame::default());
        mine.add(key, &apart);
        mine.add(key, &over);
        all.merge(&mine);
        let (_, fight) = all.iter().next().unwrap();
        assert_eq!((fight.count, fight.disjoint, fight.invalidations), (2, 1, 4));
        assert_eq!((fight.bytes_from, fight.bytes_to, fight.cpus), (0xff, 0xf0, 1 << 100 | 2));
        mine.subtract(&key, &apart);
        mine.subtract(&key, &over);
        assert_eq!(mine.iter().count(), 0);
        assert_eq!(all.iter().count(), 1);
    }
}

//! The names in a directory.
//!
//! Entries are sorted by a hash of their name, and the hash is also the position from which `getdents64` goes
//! on. So a position stays valid however many entries come and go, and a look-up is a binary search. Names
//! with equal hashes are neighbours. A listing that is interrupted between two such names skips the second,
//! but that takes 63 equal bits.
//!
//! The sorted sequence is split into chunks, so that inserting a name moves few others:
//!
//! ```text
//! chunks: [ [a d e] [g h k m] [p] ]      none empty, none longer than CHUNK; a full one is split in half
//! ```

use alloc::boxed::Box;
use alloc::vec::Vec;

use abi::Errno;

use super::node::Node;
use crate::mm::fallible;
use crate::mm::static_or_arc::StaticOrArc;

/// Positions below this belong to `.` and `..`.
const FIRST_KEY: u64 = 2;
const CHUNK: usize = 64;

/// One name.
pub struct Entry {
    /// The hash of its name, which is its position.
    pub key: u64,
    /// The name.
    pub name: Box<[u8]>,
    /// The node that has this name.
    pub node: StaticOrArc<Node>,
}

impl Entry {
    fn order(&self) -> (u64, &[u8]) {
        (self.key, &self.name)
    }
}

/// The names of one directory.
#[derive(Default)]
pub struct Entries(Vec<Vec<Entry>>);

/// Returns the FNV-1a hash, shortened by a bit so that the position is a valid `off_t`.
fn key_of(name: &[u8]) -> u64 {
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    (name.iter().fold(0xcbf2_9ce4_8422_2325, step) >> 1).max(FIRST_KEY)
}

impl Entries {
    /// Creates a directory without names.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Returns the chunk that has `name` or would get it, and the index there.
    fn find(&self, name: &[u8]) -> (usize, Result<usize, usize>) {
        let order = (key_of(name), name);
        let below = |chunk: &Vec<Entry>| chunk.last().is_some_and(|last| last.order() < order);
        let chunk = self.0.partition_point(below).min(self.0.len().saturating_sub(1));
        let entries = self.0.get(chunk).map(Vec::as_slice).unwrap_or_default();
        (chunk, entries.binary_search_by(|entry| entry.order().cmp(&order)))
    }

    /// Returns the node called `name`.
    pub fn get(&self, name: &[u8]) -> Option<&StaticOrArc<Node>> {
        let (chunk, place) = self.find(name);
        Some(&self.0.get(chunk)?.get(place.ok()?)?.node)
    }

    /// Adds a name.
    ///
    /// # Errors
    /// EEXIST if it is there already, ENOMEM.
    pub fn insert(&mut self, name: &[u8], node: StaticOrArc<Node>) -> Result<(), Errno> {
        let (chunk, Err(mut index)) = self.find(name) else { return Err(Errno::EEXIST) };
        let entry = Entry { key: key_of(name), name: fallible::copied(name)?.into_boxed_slice(), node };
        if self.0.is_empty() {
            // With room for the entry, so that the chunk does not stay empty.
            fallible::push(&mut self.0, fallible::empty(1)?)?;
        }
        let mut target = chunk;
        if self.0.get(chunk).is_some_and(|entries| entries.len() == CHUNK) {
            self.split(chunk)?;
            if index > CHUNK / 2 {
                (target, index) = (chunk + 1, index - CHUNK / 2);
            }
        }
        fallible::insert(self.0.get_mut(target).ok_or(Errno::EIO)?, index, entry)
    }

    /// Splits a full chunk in half.
    fn split(&mut self, chunk: usize) -> Result<(), Errno> {
        self.0.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        let mut upper = fallible::empty(CHUNK)?;
        upper.extend(self.0.get_mut(chunk).ok_or(Errno::EIO)?.drain(CHUNK / 2..));
        self.0.insert(chunk + 1, upper);
        Ok(())
    }

    /// Gives `name`, which must be there, to `node`, and returns the node that had it.
    pub fn replace(&mut self, name: &[u8], node: StaticOrArc<Node>) -> Option<StaticOrArc<Node>> {
        let (chunk, place) = self.find(name);
        let index = place.ok()?;
        let entry = self.0.get_mut(chunk)?.get_mut(index)?;
        Some(core::mem::replace(&mut entry.node, node))
    }

    /// Removes a name and returns its node.
    pub fn remove(&mut self, name: &[u8]) -> Option<StaticOrArc<Node>> {
        let (chunk, place) = self.find(name);
        let index = place.ok()?;
        let entries = self.0.get_mut(chunk)?;
        let removed = entries.remove(index);
        if entries.is_empty() {
            self.0.remove(chunk);
        }
        Some(removed.node)
    }

    /// Returns whether there is no name.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the entries after position `key`.
    pub fn after(&self, key: u64) -> impl Iterator<Item = &Entry> {
        let passed = self.0.partition_point(|chunk| chunk.last().is_some_and(|last| last.key <= key));
        self.0.iter().skip(passed).flatten().skip_while(move |entry| entry.key <= key)
    }

    /// Returns the name of `node`.
    pub fn name_of(&self, node: &StaticOrArc<Node>) -> Option<&[u8]> {
        self.0.iter().flatten().find(|entry| entry.node.is(node)).map(|entry| &*entry.name)
    }
}

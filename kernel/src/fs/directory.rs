//! Names in a directory.
//!
//! Entries are sorted by a hash of their name, and the hash is also the position that `getdents64` goes on from.
//! So a position stays true however many entries come and go, and a look-up is a binary search. Names with equal
//! hashes are neighbours; a listing that is interrupted between two such names skips the second, which takes
//! 63 equal bits.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use abi::Errno;

use super::fallible;
use super::node::Node;

/// Positions below this belong to `.` and `..`.
const FIRST_KEY: u64 = 2;

/// One name.
pub struct Entry {
    /// Where it stands.
    pub key: u64,
    /// The name.
    pub name: Box<[u8]>,
    /// What it names.
    pub node: Arc<Node>,
}

/// The names of one directory.
#[derive(Default)]
pub struct Entries(Vec<Entry>);

/// FNV-1a, a bit short so that the position is a valid `off_t`.
fn key_of(name: &[u8]) -> u64 {
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    (name.iter().fold(0xcbf2_9ce4_8422_2325, step) >> 1).max(FIRST_KEY)
}

impl Entries {
    /// No names.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    fn find(&self, name: &[u8]) -> Result<usize, usize> {
        let key = key_of(name);
        self.0.binary_search_by(|entry| (entry.key, &*entry.name).cmp(&(key, name)))
    }

    /// What `name` names.
    pub fn get(&self, name: &[u8]) -> Option<&Arc<Node>> {
        self.find(name).ok().map(|index| &self.0[index].node)
    }

    /// Adds a name that is not there yet (EEXIST).
    pub fn insert(&mut self, name: &[u8], node: Arc<Node>) -> Result<(), Errno> {
        let Err(index) = self.find(name) else { return Err(Errno::EEXIST) };
        let copy = fallible::copied(name)?.into_boxed_slice();
        self.0.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        self.0.insert(index, Entry { key: key_of(name), name: copy, node });
        Ok(())
    }

    /// Lets `name` name `node`; says what it named before. The name must be there.
    pub fn replace(&mut self, name: &[u8], node: Arc<Node>) -> Option<Arc<Node>> {
        let index = self.find(name).ok()?;
        Some(core::mem::replace(&mut self.0[index].node, node))
    }

    /// Takes a name away.
    pub fn remove(&mut self, name: &[u8]) -> Option<Arc<Node>> {
        self.find(name).ok().map(|index| self.0.remove(index).node)
    }

    /// Whether there is no name.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The entries after position `key`.
    pub fn after(&self, key: u64) -> &[Entry] {
        &self.0[self.0.partition_point(|entry| entry.key <= key)..]
    }

    /// The name of `node`.
    pub fn name_of(&self, node: &Arc<Node>) -> Option<&[u8]> {
        self.0.iter().find(|entry| Arc::ptr_eq(&entry.node, node)).map(|entry| &*entry.name)
    }
}

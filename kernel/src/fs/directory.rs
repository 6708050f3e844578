//! The names in a directory.
//!
//! They are in a trie by a hash of the name (`rcu::Trie`), which look-ups only read. A look-up of a name,
//! there or not, takes no lock and writes nothing. Changes and listings take the directory's lock, unless
//! boot made the directory.
//!
//! A name's key in the trie is also the position from which `getdents64` goes on. So a position stays valid
//! however many names come and go.

use alloc::boxed::Box;
use alloc::vec::Vec;

use abi::Errno;
use percore::Pinned;
use rcu::{Moving, NotInserted, Spare, Trie};

use super::node::Node;
use crate::mm::static_or_arc::StaticOrArc;
use crate::mm::{fallible, lending};

/// The lowest hash whose positions are above those of `.` and `..`.
const FIRST_HASH: u64 = 16;

/// One name.
pub struct Entry {
    /// The name.
    pub name: Box<[u8]>,
    /// The node that has this name.
    pub node: StaticOrArc<Node>,
}

/// Makes an entry that is in no directory yet.
///
/// # Errors
/// ENOMEM.
pub fn spare(name: &[u8], node: StaticOrArc<Node>) -> Result<Spare<Entry>, Errno> {
    let entry = Entry { name: fallible::copied(name)?.into_boxed_slice(), node };
    Spare::new(hash_of(name), entry).map_err(|_| Errno::ENOMEM)
}

/// The names of one directory.
#[derive(Default)]
pub struct Entries(Trie<Entry>);

/// Returns the FNV-1a hash, mixed because the trie begins with the highest of its 60 bits. It is not 0.
pub fn hash_of(name: &[u8]) -> u64 {
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let hash = name.iter().fold(0xcbf2_9ce4_8422_2325, step);
    let mixed = (hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 4).max(FIRST_HASH)
}

fn is(name: &[u8]) -> impl Fn(&Entry) -> bool {
    move |entry| *entry.name == *name
}

impl Entries {
    /// Creates a directory without names.
    pub const fn new() -> Self {
        Self(Trie::new())
    }

    /// Makes the names immutable: listings then take no lock either.
    pub fn freeze(&self) {
        self.0.freeze();
    }

    /// Returns the node called `name`. The caller uses it only until the core sleeps or is quiescent. If
    /// names move to another place meanwhile, it waits until they have moved.
    #[inline]
    pub fn peek<'a>(&'a self, pin: &'a Pinned, name: &[u8]) -> Option<&'a StaticOrArc<Node>> {
        lending::find(pin, &self.0, hash_of(name), is(name)).map(|entry| &entry.node)
    }

    /// Locks the names for a change.
    ///
    /// # Errors
    /// EROFS if they are immutable.
    pub fn change<'a>(&'a self, pin: &'a Pinned) -> Result<Change<'a>, Errno> {
        lending::change(pin, &self.0).map(Change).ok_or(Errno::EROFS)
    }

    /// Passes the names after position `key` and their positions to `show`, until that returns false. No name
    /// comes or goes meanwhile.
    pub fn after(&self, key: u64, show: &mut dyn FnMut(u64, &Entry) -> bool) {
        self.0.look().after(key, show);
    }

    /// Returns the name of `node`. It looks among the names with the hash that the node has noted, or among
    /// all if it has noted none.
    ///
    /// # Errors
    /// ENOENT if it has none here, ENOMEM.
    pub fn name_of(&self, node: &StaticOrArc<Node>) -> Result<Vec<u8>, Errno> {
        let hash = node.name_hash();
        if hash != 0 {
            let names = self.0.look();
            let entry = names.get(hash, |entry| entry.node.is(node)).ok_or(Errno::ENOENT)?;
            return fallible::copied(&entry.name);
        }
        let mut found = Err(Errno::ENOENT);
        self.after(0, &mut |_, entry| {
            let named = entry.node.is(node);
            if named {
                found = fallible::copied(&entry.name);
            }
            !named
        });
        found
    }
}

/// The names of a directory, locked for a change.
pub struct Change<'a>(rcu::Change<'a, Entry>);

impl<'a> Change<'a> {
    /// Returns the node called `name`.
    pub fn get(&self, name: &[u8]) -> Option<&StaticOrArc<Node>> {
        self.0.get(hash_of(name), is(name)).map(|entry| &entry.node)
    }

    /// Adds a name.
    ///
    /// # Errors
    /// EEXIST if it is there already, ENOMEM, and ENOSPC if too many names have its hash.
    pub fn insert(&mut self, name: &[u8], node: StaticOrArc<Node>) -> Result<(), Errno> {
        if self.get(name).is_some() {
            return Err(Errno::EEXIST);
        }
        self.0.insert(spare(name, node)?).map_err(|error| match error {
            NotInserted::NoMemory => Errno::ENOMEM,
            NotInserted::Full => Errno::ENOSPC,
        })
    }

    /// Replaces the entry with the name of `entry`, if there is one. Look-ups find one or the other.
    pub fn replace(&mut self, name: &[u8], entry: Spare<Entry>) {
        let _unused = self.0.replace(entry, is(name));
    }

    /// Removes a name. Its node loses this reference when no look-up can be using it any more.
    pub fn remove(&mut self, name: &[u8]) {
        self.0.remove(hash_of(name), is(name));
    }

    /// Returns whether there is no name.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Makes look-ups wait until the result is dropped, which the caller does before it drops this. It gives
    /// names their new places before it takes the old ones away.
    pub fn begin_move(&self) -> Moving<'a> {
        self.0.begin_move()
    }
}

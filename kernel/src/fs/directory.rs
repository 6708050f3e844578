//! The names in a directory.
//!
//! They are in a trie by a hash of the name (`rcu::Trie`), which look-ups only read. A look-up of a name,
//! there or not, takes no lock and writes nothing. A change takes the lock of names with similar hashes, one
//! of sixteen, and leaves its time beside that. A listing takes all locks, unless boot made the directory.
//!
//! A name's key in the trie is also the position from which `getdents64` goes on. So a position stays valid
//! however many names come and go.

use alloc::boxed::Box;
use alloc::vec::Vec;

use abi::Errno;
use percore::{Pinned, pin};
use rcu::{Moving, NotInserted, NotLocked, Spare, Trie};

use super::node::NodeRef;
use crate::arch;
use crate::mm::{fallible, lending};

/// The lowest hash whose positions are above those of `.` and `..`.
const FIRST_HASH: u64 = 16;

/// One name.
pub struct Entry {
    /// The name.
    pub name: Box<[u8]>,
    /// The node that has this name.
    pub node: NodeRef,
}

/// Makes an entry that is in no directory yet.
///
/// # Errors
/// ENOMEM.
pub fn spare(name: &[u8], node: NodeRef) -> Result<Spare<Entry>, Errno> {
    let entry = Entry { name: fallible::copied(name)?.into_boxed_slice(), node };
    Spare::new(hash_of(name), entry).map_err(|_| Errno::ENOMEM)
}

/// The names of one directory.
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
    /// Creates a directory without names, which was changed last at this time.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new(changed_ns: u64) -> Result<Self, Errno> {
        Trie::try_new(changed_ns).map(Self).map_err(|_| Errno::ENOMEM)
    }

    /// Makes the names immutable: listings then take no lock either.
    pub fn freeze(&self) {
        self.0.freeze();
    }

    /// Returns the node called `name`. The caller uses it only until the core sleeps or is quiescent. If the
    /// name moves meanwhile, or one with a similar hash, it waits until that has moved.
    #[inline]
    pub fn peek<'a>(&'a self, pin: &'a Pinned, name: &[u8]) -> Option<&'a NodeRef> {
        lending::find(pin, &self.0, hash_of(name), is(name)).map(|entry| &entry.node)
    }

    /// Locks the name for a change.
    ///
    /// # Errors
    /// EROFS if the names are immutable.
    pub fn change<'a>(&'a self, pin: &'a Pinned, name: &[u8]) -> Result<Change<'a>, Errno> {
        self.change_two(pin, [name, name])
    }

    /// Locks two names, which may be the same, for a change.
    ///
    /// # Errors
    /// As above.
    pub fn change_two<'a>(&'a self, pin: &'a Pinned, names: [&[u8]; 2]) -> Result<Change<'a>, Errno> {
        lending::change(pin, &self.0, names.map(hash_of)).map(Change).ok_or(Errno::EROFS)
    }

    /// Locks the name for a change, or returns `None` if that takes waiting.
    ///
    /// # Errors
    /// As above.
    pub fn try_change<'a>(&'a self, pin: &'a Pinned, name: &[u8]) -> Result<Option<Change<'a>>, Errno> {
        match lending::try_change(pin, &self.0, hash_of(name)) {
            Ok(change) => Ok(Some(Change(change))),
            Err(NotLocked::Busy) => Ok(None),
            Err(NotLocked::Immutable) => Err(Errno::EROFS),
        }
    }

    /// Calls `retire` with all names locked, if there is none.
    ///
    /// # Errors
    /// ENOTEMPTY, and those of `retire`.
    pub fn retire(&self, retire: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
        let names = self.0.look();
        if !names.is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        retire()
    }

    /// Returns the time of the directory's last change.
    pub fn changed_ns(&self) -> u64 {
        self.0.stamp()
    }

    /// Sets the time of the directory's last change.
    pub fn set_changed(&self, ns: u64) {
        self.0.set_stamp(ns);
    }

    /// Passes the names after position `key` and their positions to `show`, until that returns false. No name
    /// comes or goes meanwhile.
    pub fn after(&self, key: u64, show: &mut dyn FnMut(u64, &Entry) -> bool) {
        self.0.look().after(key, show);
    }

    /// Returns the name of `node`. It looks among the names with this hash, or among all if that is 0.
    ///
    /// # Errors
    /// ENOENT if it has none here, ENOMEM.
    pub fn name_of(&self, node: &NodeRef, hash: u64) -> Result<Vec<u8>, Errno> {
        if hash != 0 {
            let pin = pin();
            let entry = lending::find(&pin, &self.0, hash, |entry| entry.node.is(node));
            return fallible::copied(&entry.ok_or(Errno::ENOENT)?.name);
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

/// One or two names of a directory, locked for a change.
pub struct Change<'a>(rcu::Change<'a, Entry>);

impl<'a> Change<'a> {
    /// Returns the node called `name`.
    pub fn get(&self, name: &[u8]) -> Option<&NodeRef> {
        self.0.get(hash_of(name), is(name)).map(|entry| &entry.node)
    }

    /// Adds a name.
    ///
    /// # Errors
    /// EEXIST if it is there already, ENOMEM, and ENOSPC if too many names have its hash.
    pub fn insert(&mut self, name: &[u8], node: NodeRef) -> Result<(), Errno> {
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

    /// Sets the time of the directory's last change to now.
    pub fn touch(&self) {
        self.0.stamp(arch::wall_ns());
    }

    /// Makes look-ups of `name` wait until the result is dropped, which the caller does before it drops this.
    /// It gives a name its new place before it takes the old one away.
    pub fn begin_move(&self, name: &[u8]) -> Moving<'a> {
        self.0.begin_move(hash_of(name))
    }
}

//! The range protocol.
//!
//! | a slot's state word | state | the cores that may change it, and the change |
//! |---|---|---|
//! | `OWN` | empty | any core: CAS to `OWN`, `LOCK` |
//! | `OWN`, `LOCK` | empty, held | the holder: to a value, a child, or `OWN` |
//! | `0` | silent: the first slot of its section has its word (`section.rs`) | the holder of that slot: to the first slot's content |
//! | value | a value for every key below the slot | any core: CAS to value, `LOCK` |
//! | value, `LOCK` | the same, held | the holder: to another value, to nothing, to a child, or unlocked |
//! | child | its keys live in the child | Refcache: adds `DYING`. The holder of all slots of the child: CAS to value, `LOCK` |
//! | child, `DYING` | the child was found empty | a traversal, or Refcache if it is used again: clears `DYING`. Refcache: CAS to `OWN`, the child is gone. The holder of all slots of the child: as above |
//! | gone | the slot's node was folded | none |
//!
//! ```text
//!  lock 5..7 when slot S holds the folded value v (S covers 4..8):
//!
//!      S: v            S: v LOCK                 S: child                     S: child
//!                                                   │                            │
//!                                          4: v  5: v LOCK  6: v LOCK  7: v     4: v  5: v  6: v  7: v
//!      ── CAS ──▶      ── built in private, published by one store ──▶  ── unlock: one store each ──▶
//! ```
//!
//! 1. Every state has one author of its next change, or several that race by CAS. A child slot is never
//!    locked.
//! 2. The holder of a range holds every slot that the range touches and that has no child. No other core can
//!    lock or expand these slots. So the set changes only by the holder's own actions, and a walk over the
//!    range finds it again: an unlock reaches the slots at any level where they are by then.
//! 3. A locker waits only for a slot to the right of everything that it has locked. Slots are taken from left
//!    to right, and the slots that an expansion makes are locked already where they are wanted, and only
//!    there. Two lockers that wait for each other would each hold a slot to the right of the slots that they
//!    hold. So no core waits for ever, unless it holds a slot already when it begins to lock. Then it must
//!    keep an order itself (`docs/design/radix.md`).
//! 4. Two ranges that overlap compete for their leftmost common key. It is under one slot at any time, and
//!    the holder of that slot, or of one that it was expanded into, goes first.
//! 5. A waiter reads the word again at every turn and locks by CAS from exactly the word that it read. If the
//!    slot became a child meanwhile the waiter goes down. A lock bit is never set in a word that the waiter
//!    has not checked.
//! 6. A core that finds a slot gone holds nothing of its node, because a node is folded by the holder of all
//!    its slots. It goes by the parent's slot again (`fold.rs`).
//! 7. A core that uses a node has a loan of the Refcache domain ([`Here`]), and read the word that leads to
//!    the node without `DYING`, or cleared `DYING`. So the node stays until the loan ends, and no core counts
//!    the nodes on its path.
//!
//! Orderings. A lock's CAS is Acquire and an unlock's store is Release: each holder sees all writes of the
//! last one. Publishing a child is Release and reading a word on the way down is Acquire: a core that enters
//! a child sees its slots. Writes under a lock are Relaxed.

use core::ops::{ControlFlow, Range};

use percore::Pinned;
use refcache::{Loan, Refcache};

use crate::expand::Mode;
use crate::node::{NodeRef, Step};
use crate::overlap::{MapId, Record};
use crate::slot::Word;
use crate::subtree::{
    Acquired, Refusal, acquire, descend, lock_below, split_below, unlock_below, walk_above,
};
use crate::{BLOCK, OutOfMemory, Peek, fold};

/// The right to use nodes: a pinned core that has a loan of its Refcache domain.
#[derive(Debug)]
pub(crate) struct Here<'p> {
    pub refcache: &'p Refcache,
    pub pin: &'p Pinned,
    /// Computes the value of a key of a folded block. Only the map knows the values.
    pub part: PartOf,
    map: MapId,
    _loan: Loan<'p>,
}

/// A function that computes the main word of a key of a folded block. Its arguments are the block's main
/// word, the block's second word, and the key, counted from the block's first.
pub(crate) type PartOf = fn(u64, u64, u64) -> u64;

/// Returns whether all keys of a folded block that has these words have the same value.
pub(crate) fn are_alike(part: PartOf, main: u64, second: u64) -> bool {
    part(main, second, 1) == main
}

impl<'p> Here<'p> {
    #[inline(always)]
    pub fn new(refcache: &'p Refcache, pin: &'p Pinned, part: PartOf, map: MapId) -> Self {
        Self { refcache, pin, part, map, _loan: refcache.loan(pin) }
    }

    /// Waits one turn for the holder of the slot of `key` in `node`.
    ///
    /// # Panics
    /// Panics in debug builds, if the holder is this core.
    #[inline(always)]
    pub fn wait(&self, node: NodeRef<'_>, key: u64) {
        self.map.assert_not_held(self.pin, || node.span(key));
        percore::relax();
    }

    /// Records that this core holds `keys`.
    #[inline(always)]
    pub fn record(&self, keys: &Range<u64>) -> Record {
        Record::new(self.pin, self.map, keys)
    }
}

/// A locked range.
#[derive(Debug)]
pub(crate) struct Held<'p> {
    pub here: Here<'p>,
    /// The lowest node that covered the whole range when it was locked.
    node: NodeRef<'p>,
    keys: Range<u64>,
    record: Record,
}

impl<'p> Held<'p> {
    /// Locks `keys`, left to right.
    #[inline(always)]
    pub fn lock(
        here: Here<'p>,
        root: NodeRef<'p>,
        keys: Range<u64>,
        mode: Mode,
    ) -> Result<Self, OutOfMemory> {
        loop {
            let node = descend(&here, root, &keys);
            match lock_below(&here, node, keys.clone(), mode) {
                Ok(()) => return Ok(Self::new(here, node, keys)),
                Err(Refusal::NoMemory) => return Err(OutOfMemory),
                Err(Refusal::Gone) => {}
            }
        }
    }

    /// Locks `key` alone, if it has a value. Locks its whole block, if that is folded and `whole` returns
    /// true for its words.
    #[inline(always)]
    pub fn lock_key(
        here: Here<'p>,
        root: NodeRef<'p>,
        key: u64,
        whole: impl Fn(u64, u64) -> bool,
    ) -> Result<Option<Self>, OutOfMemory> {
        let mut node = root;
        loop {
            match acquire(&here, node, key, Word::is_used) {
                Acquired::Child(child) => node = child,
                Acquired::Unwanted => return Ok(None),
                Acquired::Gone => node = root,
                Acquired::Locked(_) if node.level() == 0 => {
                    return Ok(Some(Self::new(here, node, key..key + 1)));
                }
                Acquired::Locked(word) => {
                    let mut held = Self::new(here, node, node.span(key));
                    held.narrow(key, word, whole)?;
                    return Ok(Some(held));
                }
            }
        }
    }

    /// Makes a guard of `keys`, which the caller has locked below `node`.
    #[inline(always)]
    fn new(here: Here<'p>, node: NodeRef<'p>, keys: Range<u64>) -> Self {
        let record = here.record(&keys);
        Self { here, node, keys, record }
    }

    /// Narrows a guard that holds one folded slot, which had `word`, to `key` alone or its block.
    fn narrow(&mut self, key: u64, word: Word, whole: impl Fn(u64, u64) -> bool) -> Result<(), OutOfMemory> {
        let start = key & !(BLOCK - 1);
        let alone = self.node.part(key..key + 1);
        let part = match whole(word.main(), alone.second(word)) {
            true => self.node.part(start..start + BLOCK),
            false => alone,
        };
        if !part.whole {
            fold::expand(&self.here, &part, word)?;
        }
        self.keys = part.keys;
        self.record.change(&self.keys);
        Ok(())
    }

    #[inline(always)]
    pub fn keys(&self) -> Range<u64> {
        self.keys.clone()
    }

    /// Expands the held slots until no slot sticks out of `keys`, which are held. The guard holds the new
    /// slots that are in its range. On failure the slots that were expanded stay so.
    pub fn split(&self, keys: Range<u64>) -> Result<(), OutOfMemory> {
        split_below(&self.here, self.node, keys, &self.keys)
    }

    /// Returns the leaf of `key`, which is held, after expanding every slot above it.
    #[inline(always)]
    pub fn leaf_of(&self, key: u64) -> Result<NodeRef<'p>, OutOfMemory> {
        match self.node.level() {
            0 => Ok(self.node),
            _ => self.split_off(key),
        }
    }

    fn split_off(&self, key: u64) -> Result<NodeRef<'p>, OutOfMemory> {
        self.split(key..key + 1)?;
        Ok(descend(&self.here, self.node, &(key..key + 1)))
    }

    /// Gives the keys of `block`, which are held, one value as one slot, and removes the leaf.
    ///
    /// # Panics
    /// Panics if they are not those of a leaf.
    pub fn fold(&mut self, block: Range<u64>, main: u64, second: u64) -> Result<(), OutOfMemory> {
        assert!(block.start & (BLOCK - 1) == 0 && block.end - block.start == BLOCK, "not a block: {block:?}");
        let leaf = descend(&self.here, self.node, &block);
        assert!(leaf.level() == 0, "the block {block:?} has no leaf");
        let parent = leaf.parent().expect("a leaf has a parent");
        fold::fold(&self.here, leaf, &parent.part(block), main, second)?;
        if self.node.level() == 0 {
            self.node = parent;
        }
        Ok(())
    }

    /// Makes sure that second words can be stored for `keys`, which are held, as `make_sure` does for a node.
    pub fn widen(
        &self,
        keys: Range<u64>,
        make_sure: impl Fn(NodeRef<'p>) -> Result<(), OutOfMemory>,
    ) -> Result<(), OutOfMemory> {
        let widened = self.walk(keys, |node, _| match make_sure(node) {
            Ok(()) => ControlFlow::Continue(()),
            Err(out_of_memory) => ControlFlow::Break(out_of_memory),
        });
        widened.break_value().map_or(Ok(()), Err)
    }

    /// Returns the node below which everything is held.
    pub fn node(&self) -> NodeRef<'p> {
        self.node
    }

    /// Shows the slots of `keys`, which are held, to `visit` from left to right. Each call gets a node and a
    /// run of keys whose slots in that node are held.
    #[inline(always)]
    pub fn walk<B>(
        &self,
        keys: Range<u64>,
        mut visit: impl FnMut(NodeRef<'p>, Range<u64>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        match self.node.level() {
            0 => visit(self.node, keys),
            _ => walk_above(&self.here, self.node, keys, &mut visit),
        }
    }
}

impl Drop for Held<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        unlock_below(&self.here, self.node, self.keys());
    }
}

/// Returns the address of the frame of the leaf that covers `key`, and the slot's word in it, as a machine
/// would read it at this moment.
pub(crate) fn leaf_word<'p>(here: Here<'p>, root: NodeRef<'p>, key: u64) -> Option<(usize, u64)> {
    let mut node = root;
    while node.level() > 0 {
        match node.step(&here, node.slot(key)) {
            Step::Child(child) => node = child,
            Step::Slot(_) => return None,
        }
    }
    Some((node.address(), node.slot(key).walk()))
}

/// Returns the slot that covers `key`, as it is at this moment.
pub(crate) fn peek<'p>(here: Here<'p>, root: NodeRef<'p>, key: u64) -> Peek {
    let mut node = root;
    loop {
        match node.step(&here, node.slot(key)) {
            Step::Child(child) => node = child,
            Step::Slot(word) => {
                return Peek { span: node.span(key), used: word.is_used() };
            }
        }
    }
}

/// Returns the keys of the first slot with a value that `keys` touches, each slot as it is when the walk
/// comes by.
pub(crate) fn first_used<'p>(here: Here<'p>, root: NodeRef<'p>, keys: Range<u64>) -> Option<Range<u64>> {
    first_used_below(&here, descend(&here, root, &keys), keys)
}

#[inline]
fn first_used_below<'p>(here: &Here<'p>, node: NodeRef<'p>, keys: Range<u64>) -> Option<Range<u64>> {
    let mut left = keys;
    while let Some(part) = node.first_used_part(left.clone()) {
        left.start = part.keys.end;
        let used = match node.step(here, part.slot) {
            Step::Child(child) => first_used_below(here, child, part.keys),
            Step::Slot(word) => word.is_used().then(|| node.span(part.keys.start)),
        };
        if used.is_some() {
            return used;
        }
    }
    None
}

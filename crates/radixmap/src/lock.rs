//! The range protocol.
//!
//! (prose follows)

use core::ops::{ControlFlow, Range};

use percore::Pinned;
use refcache::{Loan, Refcache};

use crate::node::{NodeRef, Part, Step, slot_keys};
use crate::slot::{Slot, Word};
use crate::{Expand, KEY_END, OutOfMemory, Peek, fold};

/// Who acts, and by what right: a pinned core that has a loan of its Refcache domain. While it has, no node that it
/// entered goes away.
#[derive(Debug)]
pub(crate) struct Here<'p> {
    pub refcache: &'p Refcache,
    pub pin: &'p Pinned,
    _loan: Loan<'p>,
}

impl<'p> Here<'p> {
    #[inline(always)]
    pub fn new(refcache: &'p Refcache, pin: &'p Pinned) -> Self {
        Self { refcache, pin, _loan: refcache.loan(pin) }
    }
}

/// What `acquire` found.
enum Acquired<'p> {
    Child(NodeRef<'p>),
    /// The slot is ours; it said this.
    Locked(Word),
}

/// Every slot that `keys` touches below `node`, locked by us.
#[derive(Debug)]
pub(crate) struct Held<'p> {
    pub here: Here<'p>,
    node: NodeRef<'p>,
    keys: Range<u64>,
}

impl<'p> Held<'p> {
    /// Locks `keys`, left to right.
    pub fn lock(
        here: Here<'p>,
        root: NodeRef<'p>,
        keys: Range<u64>,
        expand: Expand,
    ) -> Result<Self, OutOfMemory> {
        let node = descend(&here, root, &keys);
        let mut held = Self { here, node, keys: keys.start..keys.start };
        held.extend(node, keys, expand)?;
        Ok(held)
    }

    /// Locks the page `key` if it has a value.
    pub fn lock_key(here: Here<'p>, root: NodeRef<'p>, key: u64) -> Result<Option<Self>, OutOfMemory> {
        let mut node = root;
        loop {
            let slot = node.slot(key);
            match acquire_if(&here, node, slot, Word::is_used) {
                None => return Ok(None),
                Some(Acquired::Child(child)) => node = child,
                Some(Acquired::Locked(word)) => {
                    let keys = key..key + 1;
                    if node.level() > 0 {
                        fold::expand(&here, node, &Part { slot, keys: keys.clone(), whole: false }, word)?;
                    }
                    return Ok(Some(Self { here, node, keys }));
                }
            }
        }
    }

    /// Everything, for a caller who has the map exclusively and need not lock.
    pub fn all(here: Here<'p>, root: NodeRef<'p>) -> Self {
        Self { here, node: root, keys: 0..KEY_END }
    }

    pub fn keys(&self) -> Range<u64> {
        self.keys.clone()
    }

    /// Locks `keys`, which are below `node` and follow what is held already. On failure what was locked stays
    /// held, up to `self.keys.end`, and the drop unlocks it.
    fn extend(&mut self, node: NodeRef<'p>, keys: Range<u64>, expand: Expand) -> Result<(), OutOfMemory> {
        for part in node.parts(keys) {
            match acquire(&self.here, node, part.slot) {
                Acquired::Child(child) => self.extend(child, part.keys.clone(), expand)?,
                Acquired::Locked(word) if part.whole || expand.leaves(word) => {}
                Acquired::Locked(word) => fold::expand(&self.here, node, &part, word)?,
            }
            self.keys.end = part.keys.end;
        }
        Ok(())
    }

    /// Shows every held slot to `visit`, left to right, with its node.
    pub fn walk(&self, visit: &mut impl FnMut(NodeRef<'p>, Part<'p>) -> ControlFlow<()>) -> ControlFlow<()> {
        walk(&self.here, self.node, self.keys(), visit)
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        let _ = self.walk(&mut |_, part| {
            part.slot.unlock();
            ControlFlow::Continue(())
        });
    }
}

impl Expand {
    /// Whether a slot that sticks out of the range and said `word` may be held whole.
    fn leaves(self, word: Word) -> bool {
        matches!(self, Expand::IfPresent) && !word.is_used()
    }
}

/// The lowest node below `root` that covers all of `keys`.
#[inline]
fn descend<'p>(here: &Here<'p>, root: NodeRef<'p>, keys: &Range<u64>) -> NodeRef<'p> {
    let (first, last) = (keys.start, keys.end - 1);
    let mut node = root;
    while node.level() > 0 && core::ptr::eq(node.slot(first), node.slot(last)) {
        match node.step(here, node.slot(first)) {
            Step::Child(child) => node = child,
            Step::Slot(_) => break,
        }
    }
    node
}

fn walk<'p>(
    here: &Here<'p>,
    node: NodeRef<'p>,
    keys: Range<u64>,
    visit: &mut impl FnMut(NodeRef<'p>, Part<'p>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    for part in node.parts(keys) {
        match node.step(here, part.slot) {
            Step::Child(child) => walk(here, child, part.keys, visit)?,
            Step::Slot(_) => visit(node, part)?,
        }
    }
    ControlFlow::Continue(())
}

/// Locks `slot` of `node`, or enters its child.
#[inline(always)]
fn acquire<'p>(here: &Here<'p>, node: NodeRef<'p>, slot: &'p Slot) -> Acquired<'p> {
    loop {
        if let Some(acquired) = acquire_if(here, node, slot, |_| true) {
            return acquired;
        }
    }
}

/// The same, unless the slot is unlocked and not `wanted`: then none.
#[inline(always)]
fn acquire_if<'p>(
    here: &Here<'p>,
    node: NodeRef<'p>,
    slot: &'p Slot,
    wanted: impl Fn(Word) -> bool,
) -> Option<Acquired<'p>> {
    loop {
        match node.step(here, slot) {
            Step::Child(child) => return Some(Acquired::Child(child)),
            Step::Slot(word) if word.is_locked() => {}
            Step::Slot(word) if !wanted(word) => return None,
            Step::Slot(word) if slot.try_lock(word) => return Some(Acquired::Locked(word)),
            Step::Slot(_) => {}
        }
        percore::relax();
    }
}

/// The slot that covers `key`, as it is at this moment.
pub(crate) fn peek<'p>(here: Here<'p>, root: NodeRef<'p>, key: u64) -> Peek {
    let mut node = root;
    loop {
        match node.step(&here, node.slot(key)) {
            Step::Child(child) => node = child,
            Step::Slot(word) => {
                let keys = slot_keys(node.level());
                let start = key & !(keys - 1);
                return Peek { span: start..start + keys, used: word.is_used() };
            }
        }
    }
}

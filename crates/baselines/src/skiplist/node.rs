//! Nodes, their towers of links, and marks.

use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::{self, NonNull};

use rcu::Owned;
use sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Levels of a list: enough for 4^12 entries. A model has entries for two.
pub(crate) const LEVELS: usize = if cfg!(loom) { 2 } else { 12 };

/// The lowest bit of a pointer to a node.
const MARK: usize = 1;

/// The two parties of a node, its inserter and its remover: see the module, 4.
const PARTIES: usize = 2;

#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Node<T> {
    pub key: u64,
    value: T,
    parties: AtomicUsize,
    pub tower: Tower<T>,
}

/// A link for each level.
#[derive(Debug)]
pub(crate) struct Tower<T>([Link<T>; LEVELS]);

/// A pointer to the next node on a level, and a mark.
#[derive(Debug)]
pub(crate) struct Link<T>(AtomicPtr<Node<T>>);

/// A node that was found: it lives for `'g`, the rest of a read section.
pub(crate) struct Found<'g, T> {
    node: NonNull<Node<T>>,
    _section: PhantomData<&'g Node<T>>,
}

/// The next node on a level, or none at its end.
pub(crate) type Next<'g, T> = Option<Found<'g, T>>;

/// The content of a link.
pub(crate) struct Seen<'g, T> {
    pub next: Next<'g, T>,
    pub marked: bool,
}

/// Returns the number of levels of a key's node: a fourth of the keys is on the second, and so on. It depends
/// on the key only, so that no random number generator is shared.
pub(crate) fn height(key: u64) -> usize {
    // The finish of SplitMix64.
    let mut bits = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (1 + (bits ^ bits >> 31).trailing_zeros() as usize / 2).min(LEVELS)
}

impl<T> Node<T> {
    pub fn new(key: u64, value: T) -> Self {
        Self { key, value, parties: AtomicUsize::new(PARTIES), tower: Tower::empty() }
    }
}

impl<T> Tower<T> {
    pub fn empty() -> Self {
        Self(core::array::from_fn(|_| Link(AtomicPtr::new(ptr::null_mut()))))
    }

    #[inline(always)]
    pub fn link(&self, level: usize) -> &Link<T> {
        &self.0[level]
    }
}

impl<T> Link<T> {
    /// Reads the link.
    ///
    /// # Safety
    /// `'g` ends with a read section. The node that this link is in, if it is in one, was found in it on this
    /// level or the one above. See the module, 3.
    #[inline(always)]
    pub unsafe fn load<'g>(&self) -> Seen<'g, T> {
        // Acquire: partner of the Release in `swing` and `mark`.
        let word = self.0.load(Ordering::Acquire);
        let node = NonNull::new(word.map_addr(|address| address & !MARK));
        let next = node.map(|node| Found { node, _section: PhantomData });
        Seen { next, marked: word.addr() & MARK != 0 }
    }

    /// Points the link at `to`, if it points at `from` and is not marked. Returns whether it did.
    pub fn swing(&self, from: Next<'_, T>, to: Next<'_, T>) -> bool {
        let (from, to) = (to_pointer(from), to_pointer(to));
        // Release: partner of the Acquire in `load`.
        self.0.compare_exchange(from, to, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Marks the link. Returns whether it was this call that did.
    pub fn mark(&self) -> bool {
        // Relaxed: the exchange decides.
        let mut seen = self.0.load(Ordering::Relaxed);
        while seen.addr() & MARK == 0 {
            let marked = seen.map_addr(|address| address | MARK);
            // Release: partner of the Acquire in `load`. The levels above were marked before.
            match self.0.compare_exchange(seen, marked, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }
}

impl<T> Clone for Found<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Found<'_, T> {}

impl<T> PartialEq for Found<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        self.node == other.node
    }
}

impl<T> Deref for Found<'_, T> {
    type Target = Node<T>;
    #[inline(always)]
    fn deref(&self) -> &Node<T> {
        self.node()
    }
}

impl<'g, T> Found<'g, T> {
    /// Returns a node that was just made.
    pub fn made(node: Owned<Node<T>>) -> Self {
        Self { node: node.into_raw(), _section: PhantomData }
    }

    #[inline(always)]
    pub fn node(self) -> &'g Node<T> {
        // SAFETY: the node lives for `'g`, and is changed by atomic stores only.
        unsafe { self.node.as_ref() }
    }

    #[inline(always)]
    pub fn value(self) -> &'g T {
        &self.node().value
    }

    /// Reads the node's link on `level`.
    #[inline(always)]
    pub fn load(self, level: usize) -> Seen<'g, T> {
        // SAFETY: this node was found in the section.
        unsafe { self.tower.link(level).load() }
    }

    /// Records that a party is done with linking or unlinking. Returns whether it was the second.
    pub fn is_last_party(self) -> bool {
        // AcqRel: partner of itself by the other party, see the module.
        self.parties.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Takes the node back.
    ///
    /// # Safety
    /// No other caller takes it back. As long as other cores may have found it, the caller only retires the
    /// result, after the sweep.
    pub unsafe fn into_owned(self) -> Owned<Node<T>> {
        // SAFETY: made by `made`. The rest is the caller's promise.
        unsafe { Owned::from_raw(self.node) }
    }
}

fn to_pointer<T>(next: Next<'_, T>) -> *mut Node<T> {
    next.map_or(ptr::null_mut(), |found| found.node.as_ptr())
}

/// Frees all nodes of a list.
///
/// # Safety
/// The nodes are the caller's alone, and not used again.
pub(crate) unsafe fn free_all<T>(head: &Tower<T>) {
    // SAFETY: as the caller says, there is no other use.
    let mut next = unsafe { head.link(0).load() }.next;
    while let Some(node) = next {
        next = node.load(0).next;
        // SAFETY: no link to it is followed any more.
        drop(unsafe { node.into_owned() });
    }
}

//! The map: its root, and the operations that need it.

use alloc::sync::Arc;
use core::convert::Infallible;
use core::marker::PhantomData;
use core::ops::{ControlFlow, Range};

use percore::Pinned;
use refcache::{Domain, Refcache};

use crate::allocate::OutOfMemory;
use crate::entry::Tally;
use crate::expand::{Expand, Never};
use crate::fold::Root;
use crate::here::Here;
use crate::iter::{RangeGuard, visit_used};
use crate::leaf::{self, Leaf};
use crate::levels::KEY_END;
use crate::lock::Held;
use crate::look::{self, Peek, Stop};
use crate::node::NodeRef;
use crate::overlap::MapId;
use crate::parts::Part;
use crate::slot::Word;
use crate::stats::{NodeCounters, Stats};
use crate::value::{Value, part};

/// The cost of dismantling a node in addition to its used slots, in slots.
const GONE: u64 = 8;

/// The map: see the crate. Every core that calls a method must be online in the map's Refcache domain.
#[derive(Debug)]
pub struct RadixMap<V: Value, R: Domain> {
    refcache: R,
    root: Root,
    id: MapId,
    /// Whether the map was dismantled.
    is_empty: bool,
    _values: PhantomData<fn(V) -> V>,
}

impl<V: Value, R: Domain> RadixMap<V, R> {
    /// Makes an empty map in the domain `refcache`, with counters of its own.
    pub fn new(pin: &Pinned, refcache: R) -> Result<Self, OutOfMemory> {
        let counters = Arc::new(NodeCounters::new(refcache.cores()));
        Self::with_counters(pin, refcache, counters)
    }

    /// Makes an empty map that counts its nodes in `counters`, which may be shared with other maps and
    /// outlive this one.
    ///
    /// # Panics
    /// Panics if the counters are for fewer cores than the domain.
    pub fn with_counters(
        pin: &Pinned,
        refcache: R,
        counters: Arc<NodeCounters>,
    ) -> Result<Self, OutOfMemory> {
        assert!(counters.cores() >= refcache.cores(), "counters for too few cores");
        let root = Root::new(pin, counters)?;
        Ok(Self { refcache, root, id: MapId::new(), is_empty: false, _values: PhantomData })
    }

    /// Locks `keys`, left to right, and waits for the holders of some of them. If memory runs out, nothing is
    /// locked, and no value has changed.
    ///
    /// # Panics
    /// Panics if the range is empty or goes beyond [`KEY_END`]. In debug builds, panics if this core holds
    /// some of the keys already, because it would wait for ever.
    #[inline(always)]
    pub fn lock_range<'g, E: Expand>(
        &'g self,
        pin: &'g Pinned,
        keys: Range<u64>,
        _expand: E,
    ) -> Result<RangeGuard<'g, V, E>, OutOfMemory> {
        assert!(keys.start < keys.end && keys.end <= KEY_END, "not a range of keys");
        Held::lock(self.here(pin), self.root.node(), keys, E::MODE).map(RangeGuard::new)
    }

    /// Locks `keys` and all of each folded slot that sticks out of them, which needs no memory.
    ///
    /// # Panics
    /// Panics where [`lock_range`](Self::lock_range) does.
    #[inline(always)]
    pub fn lock_whole<'g>(&'g self, pin: &'g Pinned, keys: Range<u64>) -> RangeGuard<'g, V, Never> {
        match self.lock_range(pin, keys, Never) {
            Ok(guard) => guard,
            Err(OutOfMemory) => unreachable!("nothing is expanded"),
        }
    }

    /// Locks all keys. No slot sticks out of them, so it needs no memory.
    ///
    /// # Panics
    /// Panics where [`lock_range`](Self::lock_range) does.
    pub fn lock_all<'g>(&'g self, pin: &'g Pinned) -> RangeGuard<'g, V> {
        RangeGuard::new(self.lock_whole(pin, 0..KEY_END).into_held())
    }

    /// Locks `key` alone if it has a value, and nothing otherwise, as a page fault needs. It waits for a
    /// holder of the key, so a key that is cleared and set again under one lock is never seen without a
    /// value.
    ///
    /// # Panics
    /// Panics if the key is not below [`KEY_END`].
    #[inline(always)]
    pub fn lock_key<'g>(
        &'g self,
        pin: &'g Pinned,
        key: u64,
    ) -> Result<Option<RangeGuard<'g, V>>, OutOfMemory> {
        self.lock_key_or_block(pin, key, |_| false)
    }

    /// Locks `key` as [`lock_key`](Self::lock_key) does. But if all of the key's [`BLOCK`](crate::BLOCK) is folded, and
    /// `whole` returns true for its value, locks the block, as one slot.
    ///
    /// # Panics
    /// Panics if the key is not below [`KEY_END`].
    #[inline(always)]
    pub fn lock_key_or_block<'g>(
        &'g self,
        pin: &'g Pinned,
        key: u64,
        whole: impl Fn(V) -> bool,
    ) -> Result<Option<RangeGuard<'g, V>>, OutOfMemory> {
        assert!(key < KEY_END, "not a key");
        let whole = |main, second| whole(V::from_words(main, second));
        Ok(Held::lock_key(self.here(pin), self.root.node(), key, whole)?.map(RangeGuard::new))
    }

    /// Looks at `key` without a lock. The answer is a hint, which may be out of date when it arrives.
    ///
    /// # Panics
    /// Panics if the key is not below [`KEY_END`].
    pub fn peek(&self, pin: &Pinned, key: u64) -> Peek {
        assert!(key < KEY_END, "not a key");
        look::peek(self.here(pin), self.root.node(), key)
    }

    /// Returns the address of the frame of main words of the leaf that covers `key`, and the word that a
    /// machine reads there when it walks the frame as a page table. That is the main word with the map's
    /// tags. Returns `None` if no leaf covers the key.
    ///
    /// # Panics
    /// Panics if the key is not below [`KEY_END`].
    pub fn leaf_word(&self, pin: &Pinned, key: u64) -> Option<(usize, u64)> {
        assert!(key < KEY_END, "not a key");
        look::leaf_word(self.here(pin), self.root.node(), key)
    }

    /// Shows every leaf to `visit`, without a lock. A leaf that comes or goes meanwhile may be missed.
    pub fn each_leaf(&self, pin: &Pinned, mut visit: impl FnMut(Leaf<'_>)) {
        let here = self.here(pin);
        self.root().each_below(&here, &mut |node| leaf::show(&here, node, &mut visit));
    }

    /// Looks along `keys` without a lock for a value. Returns the keys of the first slot that has one, which
    /// may begin before the range. The answer is a hint, like that of [`RadixMap::peek`]. A range without
    /// nodes costs one step for each empty slot.
    ///
    /// # Panics
    /// Panics if the range is empty or goes beyond [`KEY_END`].
    pub fn first_used(&self, pin: &Pinned, keys: Range<u64>) -> Option<Range<u64>> {
        assert!(keys.start < keys.end && keys.end <= KEY_END, "not a range of keys");
        look::first_used(self.here(pin), self.root.node(), keys)
    }

    /// Shows the values of `keys` to `visit`, from the left, without a lock. It shows runs of keys whose
    /// values have the same second word, and the same bits of `mask` in their main words. A run is shown with
    /// the value of its first key. Each slot is read when the walk comes by. A range without nodes costs
    /// almost nothing. No holder waits for the walk, but the walk waits for the holder of a slot whose value
    /// has a second word. If such a value is replaced and comes back while it is read, it may be shown with
    /// the second word of the value in between.
    ///
    /// # Panics
    /// Panics if the range goes beyond [`KEY_END`].
    pub fn look<B>(
        &self,
        pin: &Pinned,
        keys: Range<u64>,
        mask: u64,
        mut visit: impl FnMut(Range<u64>, V) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        assert!(keys.end <= KEY_END, "not a range of keys");
        let show = &mut |keys: Range<u64>, main, second| visit(keys, V::from_words(main, second));
        match look::look(&self.here(pin), self.root.node(), keys, mask, show) {
            ControlFlow::Break(Stop::Broke(value)) => ControlFlow::Break(value),
            ControlFlow::Break(Stop::Gone(_)) => unreachable!("a root is not folded"),
            ControlFlow::Continue(()) => ControlFlow::Continue(()),
        }
    }

    /// Shows the address of each frame of the map's nodes to `visit`: one for each node, and one more where
    /// there are second words. It is an estimate while other cores work.
    pub fn each_frame(&self, pin: &Pinned, visit: &mut dyn FnMut(usize)) {
        let frames = &mut |node: NodeRef<'_>| node.frames().for_each(&mut *visit);
        self.root().each_below(&self.here(pin), frames);
    }

    /// Returns the domain that counts the nodes.
    pub fn domain(&self) -> &Refcache {
        &self.refcache
    }

    /// Returns the numbers of nodes created and collapsed so far, including the root.
    pub fn stats(&self) -> Stats {
        self.counters().total()
    }

    /// Returns these numbers for each core.
    pub fn counters(&self) -> &NodeCounters {
        self.root.node().counters()
    }

    /// Takes every value away and shows it to `f`, and shows every leaf to `leaf`, which releases its holds.
    /// It takes no lock, because the caller has the map exclusively. It runs on any core, online or not. The
    /// map is empty afterwards, and is meant to be dropped: nodes for values that are stored later are never
    /// freed.
    pub fn dismantle(&mut self, pin: &Pinned, f: impl FnMut(Range<u64>, V), leaf: impl FnMut(Leaf<'_>)) {
        let rest = self.dismantle_piece(pin, 0, u64::MAX, f, leaf);
        debug_assert!(rest.is_none(), "there are no more slots");
    }

    /// Dismantles as [`dismantle`](Self::dismantle) does from key `from` on, for about `slots` slots. Returns
    /// the start of the next piece, or `None` if the map is empty. A piece ends at a node, which counts as
    /// some slots more.
    pub fn dismantle_piece(
        &mut self,
        pin: &Pinned,
        from: u64,
        slots: u64,
        mut f: impl FnMut(Range<u64>, V),
        mut leaf: impl FnMut(Leaf<'_>),
    ) -> Option<u64> {
        let show = &mut |left: &mut u64, part: &Part<'_>| {
            *left = left.saturating_sub(1);
            let word = part.word();
            f(part.keys.clone(), V::from_words(word.main(), part.second(word)));
        };
        let enter = &mut |left: &mut u64, tally: &Tally<'_, '_>, keys: &Range<u64>| {
            // The path to the first key is no progress.
            if *left == 0 && keys.start > from {
                return ControlFlow::Break(keys.start);
            }
            *left = left.saturating_sub(GONE);
            leaf::show(tally.here, tally.node, &mut leaf);
            ControlFlow::Continue(())
        };
        match self.empty(pin, from, V::joins, &mut { slots }, show, enter) {
            ControlFlow::Break(next) => Some(next),
            ControlFlow::Continue(()) => None,
        }
    }

    /// Returns whether all of the map was dismantled.
    pub fn is_dismantled(&self) -> bool {
        self.is_empty
    }

    /// Takes away every value from `from` on, after showing it, unless `enter` breaks off. Both get `state`.
    fn empty<S, B>(
        &mut self,
        pin: &Pinned,
        from: u64,
        joins: impl Fn(u64) -> bool + Copy,
        state: &mut S,
        show: &mut impl FnMut(&mut S, &Part<'_>),
        enter: &mut impl FnMut(&mut S, &Tally<'_, '_>, &Range<u64>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let mut take = |state: &mut S, part: Part<'_>, _: &Here<'_>, used: &mut i64| {
            show(state, &part);
            *used -= part.len() as i64;
            part.set(Word::EMPTY, true);
            ControlFlow::Continue(())
        };
        let refcache: &Refcache = &self.refcache;
        let emptied = refcache.while_online(pin, || {
            let here = self.here(pin);
            visit_used(&mut Tally::new(&here, self.root()), from..KEY_END, joins, state, &mut take, enter)
        });
        self.is_empty |= emptied.is_continue();
        emptied
    }

    /// Takes every value away and gives the nodes to Refcache, which frees them in the next epochs. Dropping
    /// the map does the same.
    pub fn destroy(mut self, pin: &Pinned) {
        self.discard(pin);
    }

    /// Takes every value away without running code of the values.
    fn discard(&mut self, pin: &Pinned) {
        if !self.is_empty {
            let go_on = &mut |_: &mut (), _: &Tally<'_, '_>, _: &_| ControlFlow::<Infallible>::Continue(());
            let ControlFlow::Continue(()) = self.empty(pin, 0, |_| true, &mut (), &mut |_, _| {}, go_on);
        }
        let Self { refcache, root, id, .. } = self;
        refcache.while_online(pin, || root.discard(&Here::new(refcache, pin, part::<V>, *id)));
    }

    #[inline(always)]
    pub(crate) fn here<'g>(&'g self, pin: &'g Pinned) -> Here<'g> {
        Here::new(&self.refcache, pin, part::<V>, self.id)
    }

    pub(crate) fn root(&self) -> NodeRef<'_> {
        self.root.node()
    }
}

impl<V: Value, R: Domain> Drop for RadixMap<V, R> {
    /// Runs on any core, online or not. A thread that plays no core of the domain cannot give the nodes to
    /// Refcache, so they are leaked.
    fn drop(&mut self) {
        self.id.end();
        let here = percore::try_pin_below(self.refcache.cores());
        if let Some(pin) = here.filter(|_| !self.root.is_discarded()) {
            self.discard(&pin);
        }
    }
}

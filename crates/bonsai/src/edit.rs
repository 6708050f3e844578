//! New nodes for old, from the bottom of a path up.
//!
//! At each node one child has been replaced by a subtree that is one larger or smaller. The node changes too:
//!
//! | | the node | readers see |
//! |---|---|---|
//! | in balance, in place | gets the new child, if it is another one: one store | the new subtree, at once |
//! | in balance, copying | is replaced by a copy with the new child | nothing, until a node above is updated in place, or the root |
//! | out of balance | is replaced by a rotation of copies | the same |
//!
//! 1. A node that readers can reach is changed only where it stays. Its successor in a rotation is a new
//!    node.
//! 2. A replaced node is retired here, before the store above that unlinks it. RCU allows this because this
//!    core is not quiescent in between. Nothing here can fail.

use rcu::Owned;

use crate::balance::{is_single, is_too_heavy, weight};
use crate::node::{Found, Node, Side, Tree};
use crate::path::Path;
use crate::stats::Event;
use crate::{Key, Writer};

/// How a node that is in balance gets a new child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// By a store into it: the paper's section 3.3.
    InPlace,
    /// By making a copy of it, as in a functional tree.
    Copying,
}

impl Update {
    /// Returns the most nodes that climbing `path` may need, if the subtree at its end becomes `change`
    /// heavier.
    pub(crate) fn cost<K, T>(self, path: &Path<'_, K, T>, change: isize) -> usize {
        let at = |(node, side): (Found<'_, K, T>, Side)| {
            let (near, far) =
                (weight(node.child(side)).saturating_add_signed(change), weight(node.child(!side)));
            match self {
                _ if is_too_heavy(near, far) || is_too_heavy(far, near) => 3,
                Update::Copying => 1,
                Update::InPlace => 0,
            }
        };
        path.steps().map(at).sum()
    }
}

impl<'a, K: Key, T: Send + Sync + 'static> Writer<'a, K, T> {
    /// Returns the tree that `path` comes from, with `tree` at the end of it.
    pub(crate) fn climb(
        &mut self,
        path: &mut Path<'a, K, T>,
        mut tree: Tree<'a, K, T>,
        update: Update,
    ) -> Tree<'a, K, T> {
        let mut avoided = 0;
        while let Some((node, side)) = path.pop() {
            let built = self.rebuild(node, side, tree, update);
            avoided += u64::from(built.pointer() == node.pointer());
            tree = Some(built);
        }
        self.events.add(self.pin, Event::Avoided, avoided);
        tree
    }

    /// `node` with `near` on `side`.
    fn rebuild(
        &mut self,
        node: Found<'a, K, T>,
        side: Side,
        near: Tree<'a, K, T>,
        update: Update,
    ) -> Found<'a, K, T> {
        let far = node.child(!side);
        let (here, there) = (weight(near), weight(far));
        match (near, far) {
            (Some(heavy), _) if is_too_heavy(here, there) => self.rotate(node, side, heavy, far),
            (_, Some(heavy)) if is_too_heavy(there, here) => self.rotate(node, !side, heavy, near),
            _ if update == Update::InPlace => {
                node.set_child(side, near, here + there - 1);
                node
            }
            _ => {
                self.retire(node);
                self.copy(node, side.pair(near, far))
            }
        }
    }

    /// `node`, which is out of balance with `heavy` on `side` and `light` on the other.
    ///
    /// ```text
    ///   node              single:    heavy'               double:      inner'
    ///   /  \                         /    \                          /      \
    /// light heavy                 node'   outer                   node'     heavy'
    ///       /  \                  /  \                            /  \       /  \
    ///    inner outer           light inner                     light  A     B   outer       A, B: inner's children
    /// ```
    fn rotate(
        &mut self,
        node: Found<'a, K, T>,
        side: Side,
        heavy: Found<'a, K, T>,
        light: Tree<'a, K, T>,
    ) -> Found<'a, K, T> {
        let (inner, outer) = (heavy.child(!side), heavy.child(side));
        self.retire(node);
        self.retire(heavy);
        match inner {
            Some(inner) if !is_single(weight(Some(inner)), weight(outer)) => {
                self.retire(inner);
                let low = self.copy(node, side.pair(inner.child(!side), light));
                let high = self.copy(heavy, side.pair(outer, inner.child(side)));
                self.copy(inner, side.pair(Some(high), Some(low)))
            }
            _ => {
                let low = self.copy(node, side.pair(inner, light));
                self.copy(heavy, side.pair(outer, Some(low)))
            }
        }
    }

    /// A new node with the entry of `node`.
    pub(crate) fn copy(&mut self, node: Found<'a, K, T>, children: [Tree<'a, K, T>; 2]) -> Found<'a, K, T> {
        self.make(node.key, node.value_pointer(), children)
    }

    /// A new node.
    pub(crate) fn make(&mut self, key: K, value: *mut T, children: [Tree<'a, K, T>; 2]) -> Found<'a, K, T> {
        let mut node = self.spares.take();
        *node = Node::new(key, value, children);
        self.events.add(self.pin, Event::Made, 1);
        Found::made(node)
    }

    /// Retires the node, which leaves the tree. Its value stays.
    pub(crate) fn retire(&mut self, node: Found<'a, K, T>) {
        self.events.add(self.pin, Event::Retired, 1);
        // SAFETY: made by `make`. It is unlinked by a store that comes before the writer's end, hence before
        // this core is quiescent next.
        self.domain.retire(self.pin, unsafe { Owned::from_raw(node.pointer()) });
    }

    /// The node leaves the tree, with its value.
    pub(crate) fn retire_with_value(&mut self, node: Found<'a, K, T>) {
        let value = core::ptr::NonNull::new(node.value_pointer()).expect("a linked node has a value");
        // SAFETY: the value went with the only linked node that had it.
        self.domain.retire(self.pin, unsafe { Owned::from_raw(value) });
        self.retire(node);
    }
}

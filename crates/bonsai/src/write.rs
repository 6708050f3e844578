//! Insertion and removal.
//!
//! Both go down once, work out how many nodes they may need, reserve them, and only then change anything:
//! from the bottom up, one node of the path after the other. One store on the way changes the entries of the
//! map. All others change only its shape.
//!
//! An insertion's store links the new leaf. A removal's store takes the node out:
//!
//! ```text
//!   no child, or one:        the child takes its place
//!   two:           d                  s'           s, the key next to d on its heavier side, takes its place. The
//!                 / \                / \           way from d to s is copied, always. If s was unlinked in place
//!                L   b      -->     L   b'         before s' is there, lookups would miss it. If it was after that,
//!                   / \                / \         so would lookups that are on their way down from d.
//!                  s   Z              t   Z
//!                   \
//!                    t
//! ```

use core::cmp::Ordering;
use core::fmt;
use core::ops::Deref;

use percore::Pinned;
use rcu::{Domain, Handle, OutOfMemory, Owned};

use crate::edit::Update;
use crate::node::{Found, Link, Side, Tree, size};
use crate::one_writer::Writing;
use crate::path::Path;
use crate::spare::Spares;
use crate::stats::EventCounts;
use crate::{Bonsai, Key, Reader};

/// The only writer of the tree. It reads like a [`Reader`].
pub struct Writer<'a, K: Key, T: Send + Sync + 'static> {
    reader: Reader<'a, K, T>,
    pub(crate) spares: Spares<K, T>,
    root: &'a Link<K, T>,
    pub(crate) domain: &'a Domain,
    pub(crate) events: &'a EventCounts,
    pub(crate) pin: &'a Pinned,
    update: Update,
    _writing: Writing<'a>,
}

impl<'a, K: Key, T: Send + Sync + 'static> Writer<'a, K, T> {
    pub(crate) fn new<D: Handle>(tree: &'a Bonsai<K, T, D>, pin: &'a Pinned, writing: Writing<'a>) -> Self {
        Self {
            reader: tree.read(pin),
            spares: Spares::new(),
            root: &tree.root,
            domain: &tree.domain,
            events: &tree.events,
            pin,
            update: tree.update,
            _writing: writing,
        }
    }

    /// Returns how many entries there are.
    pub fn len(&self) -> usize {
        size(self.top())
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.top().is_none()
    }

    /// Gives `key` a value. An older one is dropped after a grace period. Returns whether there was one.
    ///
    /// # Errors
    /// [`OutOfMemory`]: nothing has changed, and `value` is dropped.
    pub fn insert(&mut self, key: K, value: T) -> Result<bool, OutOfMemory> {
        let value = Owned::try_new(value)?;
        let mut path = Path::new();
        let found = self.descend(key, &mut path);
        match found {
            Some(node) => self.replace_value(node, value),
            None => self.add(key, value, &mut path)?,
        }
        Ok(found.is_some())
    }

    /// Gives `key` a value, unless it has one. Returns whether it had.
    ///
    /// # Errors
    /// [`OutOfMemory`]: nothing has changed, and `value` is dropped.
    pub fn insert_new(&mut self, key: K, value: T) -> Result<bool, OutOfMemory> {
        let mut path = Path::new();
        let had = self.descend(key, &mut path).is_some();
        if !had {
            self.add(key, Owned::try_new(value)?, &mut path)?;
        }
        Ok(had)
    }

    fn replace_value(&mut self, node: Found<'a, K, T>, value: Owned<T>) {
        // SAFETY: a value that was published, and is unlinked now.
        let before = unsafe { Owned::from_raw(node.replace_value(value)) };
        self.domain.retire(self.pin, before);
    }

    fn add(&mut self, key: K, value: Owned<T>, path: &mut Path<'a, K, T>) -> Result<(), OutOfMemory> {
        let need = 1 + self.update.cost(path, 1);
        self.spares.reserve(need, key)?;
        let leaf = self.make(key, value.into_raw().as_ptr(), [None, None]);
        self.climb_to_root(path, Some(leaf));
        Ok(())
    }

    /// Removes `key` and drops its value after a grace period. Returns whether it was there.
    ///
    /// # Errors
    /// [`OutOfMemory`]: nothing has changed. A removal may need nodes, for rotations.
    pub fn remove(&mut self, key: K) -> Result<bool, OutOfMemory> {
        let mut path = Path::new();
        let Some(node) = self.descend(key, &mut path) else { return Ok(false) };
        let mut spine = Spine::below(node);
        let need = self.update.cost(&path, -1) + spine.as_ref().map_or(0, Spine::cost);
        self.spares.reserve(need, key)?;
        let rest = match &mut spine {
            Some(spine) => Some(self.merge(node, spine)),
            None => node.child(Side::Left).or(node.child(Side::Right)),
        };
        self.climb_to_root(&mut path, rest);
        self.retire_with_value(node);
        Ok(true)
    }

    /// Returns the children of `node` under the key next to it.
    fn merge(&mut self, node: Found<'a, K, T>, spine: &mut Spine<'a, K, T>) -> Found<'a, K, T> {
        let (side, next) = (spine.side, spine.next);
        let rest = self.climb(&mut spine.path, next.child(side), Update::Copying);
        // In balance without more ado: the heavier side has become lighter by one.
        let top = self.copy(next, side.pair(rest, node.child(!side)));
        self.retire(next);
        top
    }

    /// Steps down to where `key` is, or would be.
    fn descend(&self, key: K, path: &mut Path<'a, K, T>) -> Tree<'a, K, T> {
        let mut tree = self.top();
        while let Some(node) = tree {
            let side = match key.cmp(&node.key) {
                Ordering::Less => Side::Left,
                Ordering::Greater => Side::Right,
                Ordering::Equal => break,
            };
            path.push(node, side);
            tree = node.child(side);
        }
        tree
    }

    fn climb_to_root(&mut self, path: &mut Path<'a, K, T>, tree: Tree<'a, K, T>) {
        let top = self.climb(path, tree, self.update);
        self.root.set(top);
    }

    /// Returns the tree, for local variables of a writer's methods.
    pub(crate) fn top(&self) -> Tree<'a, K, T> {
        // SAFETY: the section lasts as long as the writer, and no caller keeps a node beyond a call of it.
        unsafe { self.root.get() }
    }
}

/// The way from a node with two children to the key next to it.
struct Spine<'g, K, T> {
    /// The node's heavier side.
    side: Side,
    /// From its child there down to the parent of `next`.
    path: Path<'g, K, T>,
    next: Found<'g, K, T>,
}

impl<'g, K, T> Spine<'g, K, T> {
    fn below(node: Found<'g, K, T>) -> Option<Self> {
        let (left, right) = (node.child(Side::Left)?, node.child(Side::Right)?);
        let side = if size(Some(left)) > size(Some(right)) { Side::Left } else { Side::Right };
        let (mut path, mut next) = (Path::new(), if side == Side::Left { left } else { right });
        while let Some(nearer) = next.child(!side) {
            path.push(next, !side);
            next = nearer;
        }
        Some(Self { side, path, next })
    }

    /// Nodes that copying may need.
    fn cost(&self) -> usize {
        1 + Update::Copying.cost(&self.path, -1)
    }
}

impl<'a, K: Key, T: Send + Sync + 'static> Deref for Writer<'a, K, T> {
    type Target = Reader<'a, K, T>;
    fn deref(&self) -> &Reader<'a, K, T> {
        &self.reader
    }
}

impl<K: Key, T: Send + Sync + 'static> fmt::Debug for Writer<'_, K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("len", &self.len()).finish_non_exhaustive()
    }
}

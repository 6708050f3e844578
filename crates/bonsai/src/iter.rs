//! Entries in order, and the check that a tree is what it should be.

use core::fmt;

use crate::balance::{is_too_heavy, weight};
use crate::node::{Side, Tree, size};
use crate::path::Path;
use crate::{Key, Writer};

/// Entries in the order of their keys. The writer that lends them keeps the tree as it is meanwhile.
pub struct Iter<'w, K, T> {
    /// Nodes that come after those that were given out, the next one last.
    path: Path<'w, K, T>,
}

/// The key of a node at which something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken<K>(pub K);

impl<K: Key, T: Send + Sync + 'static> Writer<'_, K, T> {
    /// All entries.
    pub fn iter(&self) -> Iter<'_, K, T> {
        let mut iter = Iter { path: Path::new() };
        iter.descend(self.root(), |_| Side::Left);
        iter
    }

    /// Entries from `key` on.
    pub fn iter_from(&self, key: K) -> Iter<'_, K, T> {
        let mut iter = Iter { path: Path::new() };
        iter.descend(self.root(), |here| if *here < key { Side::Right } else { Side::Left });
        iter
    }

    /// Whether every node is in balance, knows its size, and has its keys in order. For tests.
    ///
    /// # Errors
    /// A node that is not so.
    pub fn check(&self) -> Result<(), Broken<K>> {
        check_subtree(self.root())?;
        let keys = || self.iter().map(|(key, _)| key);
        keys().zip(keys().skip(1)).find(|(key, next)| key >= next).map_or(Ok(()), |(key, _)| Err(Broken(key)))
    }
}

fn check_subtree<K: Key, T>(tree: Tree<'_, K, T>) -> Result<(), Broken<K>> {
    let Some(node) = tree else { return Ok(()) };
    let (left, right) = (node.child(Side::Left), node.child(Side::Right));
    let in_balance = !is_too_heavy(weight(left), weight(right)) && !is_too_heavy(weight(right), weight(left));
    if !in_balance || size(tree) != 1 + size(left) + size(right) {
        return Err(Broken(node.key));
    }
    check_subtree(left)?;
    check_subtree(right)
}

impl<'w, K, T> Iter<'w, K, T> {
    /// Goes down as `turn` says, and remembers where it went left.
    fn descend(&mut self, mut tree: Tree<'w, K, T>, turn: impl Fn(&K) -> Side) {
        while let Some(node) = tree {
            let side = turn(&node.key);
            if side == Side::Left {
                self.path.push(node, side);
            }
            tree = node.child(side);
        }
    }
}

impl<'w, K: Key, T> Iterator for Iter<'w, K, T> {
    type Item = (K, &'w T);

    fn next(&mut self) -> Option<Self::Item> {
        let (node, _) = self.path.pop()?;
        self.descend(node.child(Side::Right), |_| Side::Left);
        Some((node.key, node.value()))
    }
}

impl<K, T> fmt::Debug for Iter<'_, K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(Iter)")
    }
}

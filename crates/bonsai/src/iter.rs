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

    /// Returns whether every node is in balance, knows its size, and has its keys in order. For tests.
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::node::Found;
    use crate::{Bonsai, Stats};
    use percore::{CoreId, Pinned};
    use rcu::{Config, Domain};

    type Subtree<'a> = Tree<'a, u64, ()>;

    /// Calls `with` with a perfect tree of the keys 1 to 7, and its root.
    fn perfect_tree(with: impl FnOnce(&Writer<'_, u64, ()>, Found<'_, u64, ()>)) -> Stats {
        let domain = Domain::new(Config { cores: 1, batch: 16, bound: 100 });
        // SAFETY: the domain is this thread's alone.
        let pin = unsafe { Pinned::assume(CoreId::new(0)) };
        domain.online(&pin);
        let tree = Bonsai::new(&domain);
        let mut writer = tree.write(&pin);
        for key in [4, 2, 6, 1, 3, 5, 7] {
            writer.insert(key, ()).unwrap();
        }
        assert_eq!(writer.check(), Ok(()));
        with(&writer, writer.top().unwrap());
        assert_eq!(writer.check(), Ok(()), "the test mends what it breaks");
        drop(writer);
        tree.stats()
    }

    /// Returns the error that `check` finds in the tree while `node` has these children and claims this
    /// number of entries.
    fn broken(
        writer: &Writer<'_, u64, ()>,
        node: Found<'_, u64, ()>,
        children: [Subtree<'_>; 2],
        entries: usize,
    ) -> Result<(), Broken<u64>> {
        let before = [node.child(Side::Left), node.child(Side::Right)];
        let set = |[left, right]: [Subtree<'_>; 2], entries| {
            node.set_child(Side::Left, left, entries);
            node.set_child(Side::Right, right, entries);
        };
        set(children, entries);
        let found = writer.check();
        set(before, 1 + size(before[0]) + size(before[1]));
        found
    }

    #[test]
    fn a_broken_tree_is_found_out() {
        perfect_tree(|writer, root| {
            let [left, right] = [root.child(Side::Left), root.child(Side::Right)];
            assert_eq!(broken(writer, root, [None, right], 4), Err(Broken(4)), "the right side is too heavy");
            assert_eq!(broken(writer, root, [left, None], 4), Err(Broken(4)), "the left side is too heavy");
            assert_eq!(broken(writer, root, [left, right], 8), Err(Broken(4)), "one entry is missing");
            assert_eq!(broken(writer, root, [left, right], 6), Err(Broken(4)), "there is one too many");
            assert_eq!(broken(writer, root, [right, left], 7), Err(Broken(7)), "keys are out of order");
            for (side, key) in [(Side::Left, 2), (Side::Right, 6)] {
                let low = root.child(side).unwrap();
                assert_eq!(
                    broken(writer, low, [None, None], 3),
                    Err(Broken(key)),
                    "two are missing below the root"
                );
            }
        });
    }

    #[test]
    fn nodes_that_are_not_copied_are_counted() {
        let stats = perfect_tree(|_, _| {});
        let above = 2 + 4 * 2;
        assert_eq!(stats, Stats { made: 7, retired: 0, avoided: above });
    }
}

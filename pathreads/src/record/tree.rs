//! The tree by which regions are found.
//!
//! It has a fixed height, and lies in one table: a node names others by their indices, so all members may
//! have it mapped at one address, and all zeroes are an empty tree. The entries of a node are in the order of
//! their addresses. Adding or removing one moves at most the entries of a node on each level, whatever the
//! tree has.
//!
//! 1. *An entry of an inner node says what lies below it*: where that begins and ends, and the longest hole
//!    in it. So the lowest hole of a length is found on one way up and one way down.
//! 2. *No node is empty but the root*, which is the first of the table.
//! 3. *Neighbours are joined when an entry of one goes and both are few enough*. So nodes are about half
//!    full.

use super::Full;

/// The most entries of a node.
const FANOUT: usize = 32;

/// The levels. The last one has the root alone.
const HEIGHT: usize = 4;

/// The most entries of a node that was joined from two. A few less than it can have, so that the next entry
/// does not divide it again.
const JOINED: usize = FANOUT * 7 / 8;

const ROOT: u32 = 0;

/// The longest hole of a place where more than one entry has changed.
const UNKNOWN: u64 = u64::MAX;

/// A range, or what lies below a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Entry {
    /// The first address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// The length of the longest hole in it.
    hole: u64,
    /// The node below, or the value on the lowest level.
    pub value: u32,
}

impl Entry {
    const NONE: Entry = Entry::new(0, 0, 0);

    /// Makes an entry of the lowest level.
    pub const fn new(start: u64, end: u64, value: u32) -> Self {
        Entry { start, end, hole: 0, value }
    }
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Node {
    count: u32,
    /// Of a node that is free: the next one.
    next: u32,
    entries: [Entry; FANOUT],
}

impl Node {
    const NONE: Node = Node { count: 0, next: 0, entries: [Entry::NONE; FANOUT] };

    fn entries(&self) -> &[Entry] {
        &self.entries[..self.count as usize]
    }

    fn is_full(&self) -> bool {
        self.count as usize == FANOUT
    }

    fn put(&mut self, index: u32, entry: Entry) {
        count_steps(self.count - index + 1);
        let (index, count) = (index as usize, self.count as usize);
        self.entries.copy_within(index..count, index + 1);
        self.entries[index] = entry;
        self.count += 1;
    }

    fn cut(&mut self, index: u32) {
        count_steps(self.count - index);
        let (index, count) = (index as usize, self.count as usize);
        self.entries.copy_within(index + 1..count, index);
        self.count -= 1;
    }

    /// Moves the entries from an index on to the end of another node.
    fn move_to(&mut self, index: u32, other: &mut Node) {
        count_steps(self.count - index);
        let moved = &self.entries[index as usize..self.count as usize];
        other.entries[other.count as usize..][..moved.len()].copy_from_slice(moved);
        other.count += moved.len() as u32;
        self.count = index;
    }
}

/// Counts steps: nodes that are visited, and entries that are moved or read one after the other.
#[cfg(test)]
fn count_steps(steps: u32) {
    tests::STEPS.with(|all| all.set(all.get() + u64::from(steps)));
}

#[cfg(not(test))]
const fn count_steps(_: u32) {}

/// A node, and the index of one of its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    node: u32,
    index: u32,
}

/// The place of an entry of the lowest level, which is the first step: those above lead to it. It is of no
/// use any more when an entry was added or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place([Step; HEIGHT]);

impl Place {
    /// Returns the place directly behind, for a new entry.
    pub const fn behind(mut self) -> Self {
        self.0[0].index += 1;
        self
    }
}

/// The tree.
#[repr(C)]
pub struct Tree<const NODES: usize> {
    /// The first free node of those that were used before, or 0.
    free: u32,
    /// The nodes that were used before, but the root.
    used: u32,
    /// How many of them are free.
    free_count: u32,
    nodes: [Node; NODES],
}

impl<const NODES: usize> Default for Tree<NODES> {
    fn default() -> Self {
        Tree { free: 0, used: 0, free_count: 0, nodes: [Node::NONE; NODES] }
    }
}

impl<const NODES: usize> Tree<NODES> {
    /// Returns where the part of the table ends that was used before.
    pub fn used_end(&self) -> u64 {
        self.nodes[..=self.used as usize].as_ptr_range().end as u64
    }

    fn node(&self, number: u32) -> &Node {
        &self.nodes[number as usize]
    }

    fn node_mut(&mut self, number: u32) -> &mut Node {
        &mut self.nodes[number as usize]
    }

    /// Returns the place of the first entry that ends after an address.
    pub fn find(&self, address: u64) -> Option<Place> {
        self.descend(ROOT, HEIGHT, |entries| entries.partition_point(|entry| entry.end <= address))
    }

    /// Returns the place of the last entry.
    pub fn last(&self) -> Option<Place> {
        self.descend(ROOT, HEIGHT, |entries| entries.len().wrapping_sub(1))
    }

    /// Descends from a node below a level. Returns `None` if `choose` finds no entry there.
    fn descend(&self, node: u32, level: usize, choose: impl Fn(&[Entry]) -> usize) -> Option<Place> {
        let mut path = [Step { node, index: 0 }; HEIGHT];
        let mut node = node;
        for level in (0..level).rev() {
            count_steps(1);
            let entries = self.node(node).entries();
            let index = choose(entries);
            path[level] = Step { node, index: index as u32 };
            node = entries.get(index)?.value;
        }
        Some(Place(path))
    }

    /// Returns the place of the next entry.
    pub fn next(&self, place: Place) -> Option<Place> {
        self.beside(place, |index| index + 1, |_| 0)
    }

    /// Returns the place of the entry before.
    pub fn previous(&self, place: Place) -> Option<Place> {
        self.beside(place, |index| index.wrapping_sub(1), |entries| entries.len() - 1)
    }

    fn beside(
        &self,
        mut place: Place,
        step: impl Fn(u32) -> u32,
        choose: impl Fn(&[Entry]) -> usize,
    ) -> Option<Place> {
        for level in 0..HEIGHT {
            let Step { node, index } = &mut place.0[level];
            *index = step(*index);
            count_steps(1);
            if let Some(entry) = self.node(*node).entries().get(*index as usize) {
                let below = self.descend(entry.value, level, choose)?;
                place.0[..level].copy_from_slice(&below.0[..level]);
                return Some(place);
            }
        }
        None
    }

    /// Returns the entry of a place.
    pub fn entry(&self, place: Place) -> &Entry {
        self.step_entry(place.0[0])
    }

    fn step_entry(&self, Step { node, index }: Step) -> &Entry {
        &self.node(node).entries()[index as usize]
    }

    /// Returns the lowest free range of a length within bounds.
    pub fn gap(&self, length: u64, from: u64, to: u64) -> Option<u64> {
        let at = match self.find(from) {
            Some(place) if self.entry(place).start.saturating_sub(from) < length => {
                self.hole_behind(place, length)
            }
            _ => from,
        };
        (at.checked_add(length)? <= to).then_some(at)
    }

    /// Returns where the first hole of a length begins that lies behind a place.
    fn hole_behind(&self, place: Place, length: u64) -> u64 {
        let may_have =
            |level: &usize| place.0.get(level + 1).is_none_or(|above| self.step_entry(*above).hole >= length);
        let mut found = (0..HEIGHT).filter(may_have).find_map(|level| {
            let Step { node, index } = place.0[level];
            self.hole_in(node, Some(index), length)
        });
        while let Some(Hole::Below(node)) = found {
            found = self.hole_in(node, None, length);
        }
        match found {
            Some(Hole::At(at)) => at,
            _ => self.node(ROOT).entries().last().map_or(0, |entry| entry.end),
        }
    }

    /// Returns the first hole of a length in a node that lies behind an entry.
    fn hole_in(&self, node: u32, behind: Option<u32>, length: u64) -> Option<Hole> {
        let entries = self.node(node).entries();
        let mut end = behind.map_or(u64::MAX, |index| entries[index as usize].end);
        let first = behind.map_or(0, |index| index as usize + 1);
        for entry in &entries[first..] {
            count_steps(1);
            if entry.start.saturating_sub(end) >= length {
                return Some(Hole::At(end));
            }
            if entry.hole >= length {
                return Some(Hole::Below(entry.value));
            }
            end = entry.end;
        }
        None
    }

    /// Returns whether an entry can be added at a place, or anywhere in an empty tree.
    pub fn has_room(&self, place: Option<Place>) -> Result<(), Full> {
        let needed = match place {
            Some(Place(path)) => path.iter().take_while(|step| self.node(step.node).is_full()).count(),
            None => HEIGHT - 1,
        };
        let free = NODES - 1 - (self.used - self.free_count) as usize;
        if needed < HEIGHT && needed <= free { Ok(()) } else { Err(Full) }
    }

    /// Adds an entry at a place, before the one that is there, or to an empty tree. There is room.
    pub fn put(&mut self, place: Option<Place>, entry: Entry) {
        let mut entry = entry;
        let Some(mut place) = place else {
            for _ in 0..HEIGHT - 1 {
                let node = self.take_node();
                self.node_mut(node).put(0, entry);
                entry = self.summary(node);
            }
            self.node_mut(ROOT).put(0, entry);
            return;
        };
        for level in 0..HEIGHT {
            let Step { node, index } = place.0[level];
            if !self.node(node).is_full() {
                let old = if level == 0 { self.hole_around(node, index, 0) } else { UNKNOWN };
                self.node_mut(node).put(index, entry);
                self.refresh(&place, level, old, self.hole_around(node, index, 1));
                return;
            }
            let right = self.divide(node, index, entry);
            let parent = place.0[level + 1];
            self.node_mut(parent.node).entries[parent.index as usize] = self.summary(node);
            entry = self.summary(right);
            place.0[level + 1].index += 1;
        }
    }

    /// Divides a node, adds an entry and returns the new node, which comes behind.
    fn divide(&mut self, node: u32, index: u32, entry: Entry) -> u32 {
        const HALF: u32 = FANOUT as u32 / 2;
        let right = self.take_node();
        let [left, new] = self.two(node, right);
        left.move_to(HALF, new);
        if index <= HALF {
            left.put(index, entry)
        } else {
            new.put(index - HALF, entry)
        }
        right
    }

    /// Returns two nodes, to change both.
    fn two(&mut self, one: u32, other: u32) -> [&mut Node; 2] {
        self.nodes.get_disjoint_mut([one as usize, other as usize]).expect("nodes are different")
    }

    /// Removes the entry of a place.
    pub fn cut(&mut self, mut place: Place) {
        for level in 0..HEIGHT {
            let Step { node, index } = place.0[level];
            let old = if level == 0 { self.hole_around(node, index, 1) } else { UNKNOWN };
            self.node_mut(node).cut(index);
            let Some(parent) = place.0.get(level + 1).copied() else { return };
            if self.node(node).count == 0 {
                self.give_node(node);
            } else if let Some(left) = self.to_join(parent) {
                let [node, right] = [left, left + 1].map(|index| self.below(parent.node, index));
                let [to, from] = self.two(node, right);
                from.move_to(0, to);
                self.give_node(right);
                self.node_mut(parent.node).entries[left as usize] = self.summary(node);
                place.0[level + 1].index = left + 1;
            } else {
                self.refresh(&place, level, old, self.hole_around(node, index, 0));
                return;
            }
        }
    }

    /// Returns the index of the first of two neighbours to join, of which one is the node below a step.
    fn to_join(&self, parent: Step) -> Option<u32> {
        let count = |index: u32| self.node(self.below(parent.node, index)).count as usize;
        let all = self.node(parent.node).count;
        let pairs = [parent.index.checked_sub(1), Some(parent.index).filter(|index| index + 1 < all)];
        pairs.into_iter().flatten().find(|left| count(*left) + count(left + 1) <= JOINED)
    }

    fn below(&self, node: u32, index: u32) -> u32 {
        self.node(node).entries()[index as usize].value
    }

    /// Sets where the entry of a place ends.
    pub fn set_end(&mut self, place: Place, end: u64) {
        let Step { node, index } = place.0[0];
        let old = self.hole_around(node, index, 1);
        self.node_mut(node).entries[index as usize].end = end;
        self.refresh(&place, 0, old, self.hole_around(node, index, 1));
    }

    /// Returns the longest hole in some entries of a node, and before and behind each of them.
    fn hole_around(&self, node: u32, index: u32, count: u32) -> u64 {
        let entries = self.node(node).entries();
        let (first, end) = (index as usize, (index + count) as usize);
        let within = &entries[first.saturating_sub(1)..entries.len().min(end + 1)];
        let holes = within.windows(2).map(|pair| pair[1].start.saturating_sub(pair[0].end));
        holes.chain(entries[first..end].iter().map(|entry| entry.hole)).fold(0, u64::max)
    }

    /// Corrects the entries above a level, of which a node has changed: `old` was the longest hole where it
    /// has changed, and `new` is it. Other entries are read only if the longest of all may have been there.
    fn refresh(&mut self, place: &Place, level: usize, mut old: u64, mut new: u64) {
        for pair in place.0[level..].windows(2) {
            let ([below, above], known) = ([pair[0], pair[1]], *self.step_entry(pair[1]));
            let hole = match known.hole {
                _ if old == UNKNOWN => self.longest_hole(below.node, UNKNOWN),
                hole if hole <= new => new,
                hole if old < hole => hole,
                hole => self.longest_hole(below.node, hole),
            };
            let entries = self.node(below.node).entries();
            let (start, end) = (entries[0].start, entries[entries.len() - 1].end);
            let summary = Entry { start, end, hole, value: below.node };
            if summary == known {
                return;
            }
            old = self.hole_around(above.node, above.index, 1);
            self.node_mut(above.node).entries[above.index as usize] = summary;
            new = self.hole_around(above.node, above.index, 1);
            count_steps(1);
        }
    }

    /// Returns the entry of a node in that above.
    fn summary(&self, node: u32) -> Entry {
        let entries = self.node(node).entries();
        let (start, end) = (entries[0].start, entries[entries.len() - 1].end);
        Entry { start, end, hole: self.longest_hole(node, UNKNOWN), value: node }
    }

    /// Returns the longest hole in a node. None is longer than `most`.
    fn longest_hole(&self, node: u32, most: u64) -> u64 {
        let entries = self.node(node).entries();
        let (mut end, mut hole) = (entries[0].start, 0_u64);
        for entry in entries {
            count_steps(1);
            hole = hole.max(entry.hole).max(entry.start.saturating_sub(end));
            if hole >= most {
                break;
            }
            end = entry.end;
        }
        hole
    }

    fn take_node(&mut self) -> u32 {
        let node = self.free;
        if node != 0 {
            self.free = self.node(node).next;
            self.free_count -= 1;
            return node;
        }
        self.used += 1;
        self.node_mut(self.used).count = 0;
        self.used
    }

    fn give_node(&mut self, node: u32) {
        self.node_mut(node).next = self.free;
        self.node_mut(node).count = 0;
        self.free = node;
        self.free_count += 1;
    }
}

/// A hole, or the node that has it below.
enum Hole {
    At(u64),
    Below(u32),
}

#[cfg(test)]
pub mod tests {
    extern crate std;

    use super::*;
    use core::cell::Cell;
    use std::boxed::Box;
    use std::vec::Vec;

    std::thread_local! {
        pub static STEPS: Cell<u64> = const { Cell::new(0) };
    }

    impl<const NODES: usize> Tree<NODES> {
        /// Checks what the head of this file promises, and returns all entries.
        pub fn checked(&self) -> Vec<Entry> {
            let (mut all, mut nodes) = (Vec::new(), 0);
            self.check(ROOT, HEIGHT - 1, &mut all, &mut nodes);
            assert_eq!(nodes, 1 + self.used - self.free_count);
            assert!(all.windows(2).all(|pair| pair[0].end <= pair[1].start));
            all
        }

        fn check(&self, node: u32, level: usize, all: &mut Vec<Entry>, nodes: &mut u32) {
            *nodes += 1;
            for entry in self.node(node).entries() {
                if level == 0 {
                    assert_eq!(entry.hole, 0);
                    all.push(*entry);
                    continue;
                }
                assert!(self.node(entry.value).count > 0);
                assert_eq!(self.summary(entry.value), *entry);
                self.check(entry.value, level - 1, all, nodes);
            }
        }
    }

    const NODES: usize = 600;

    fn tree() -> Box<Tree<NODES>> {
        Box::default()
    }

    fn put(tree: &mut Tree<NODES>, start: u64, length: u64) {
        let place = tree.find(start).or_else(|| tree.last().map(Place::behind));
        tree.has_room(place).unwrap();
        tree.put(place, Entry::new(start, start + length, start as u32));
    }

    fn cut(tree: &mut Tree<NODES>, start: u64) {
        let place = tree.find(start).unwrap();
        assert_eq!(tree.entry(place).start, start);
        tree.cut(place);
    }

    #[test]
    fn entries_are_in_order_both_ways() {
        let mut tree = tree();
        assert!(tree.find(0).is_none() && tree.last().is_none());
        for number in 0..5_000 {
            put(&mut tree, number * 7919 % 5_000 * 10, 10);
        }
        assert_eq!(tree.checked().len(), 5_000);
        let mut place = tree.find(0);
        for number in 0..5_000 {
            let here = place.unwrap();
            assert_eq!(tree.entry(here).start, number * 10);
            assert_eq!(tree.find(number * 10 + 9), Some(here));
            place = tree.next(here);
            let before = place.map_or_else(|| tree.last(), |next| tree.previous(next));
            assert_eq!(before, Some(here));
        }
        assert!(place.is_none() && tree.find(50_000).is_none());
        assert!(tree.previous(tree.find(0).unwrap()).is_none());
    }

    #[test]
    fn nodes_come_back_when_entries_go() {
        let mut tree = tree();
        for round in 0..3 {
            for number in 0..8_000 {
                put(&mut tree, number * 10, 5);
            }
            let used = tree.used;
            // From the middle outwards, so that there are neighbours on either side to join.
            for number in (0..8_000).map(|number| number * 3_001 % 8_000) {
                cut(&mut tree, number * 10);
                assert!(number % 500 != 0 || !tree.checked().is_empty() || tree.last().is_none());
            }
            assert_eq!((tree.last(), tree.free_count, tree.used), (None, used, used), "round {round}");
        }
    }

    #[test]
    fn entries_that_go_leave_nodes_half_full() {
        let mut tree = tree();
        for number in 0..8_000 {
            put(&mut tree, number * 10, 5);
        }
        for number in (0..8_000).filter(|number| number % 10 != 0) {
            cut(&mut tree, number * 10);
        }
        assert_eq!(tree.checked().len(), 800);
        assert!(tree.used - tree.free_count < 800 / 12);
    }

    #[test]
    fn a_hole_is_found_wherever_it_lies() {
        let mut tree = tree();
        for number in 0..3_000 {
            put(&mut tree, number * 10, 10);
        }
        for number in 0..2_999 {
            cut(&mut tree, number * 10);
            assert_eq!(tree.gap(10, 10, 30_010), Some(if number == 0 { 30_000 } else { number * 10 }));
            assert_eq!(tree.gap(11, 10, 30_011), Some(30_000));
            assert_eq!(tree.gap(11, 10, 30_010), None);
            put(&mut tree, number * 10, 10);
        }
    }

    #[test]
    fn a_tree_without_free_nodes_has_no_room() {
        let mut tree = Box::<Tree<6>>::default();
        let mut added = 0;
        loop {
            let place = tree.last().map(Place::behind);
            if tree.has_room(place).is_err() {
                break;
            }
            tree.put(place, Entry::new(added * 10, added * 10 + 10, 0));
            added += 1;
        }
        // Three leaves, of which two were divided.
        assert_eq!(added, 2 * 16 + 32);
        assert_eq!(tree.checked().len(), 64);
        tree.cut(tree.find(0).unwrap());
        assert!(tree.has_room(tree.find(0)).is_ok());
    }
}

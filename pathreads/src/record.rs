//! The record of a program's memory, for threads in address spaces of their own.
//!
//! It is a table of regions, which says for each what the program may do there and which members (threads
//! with an address space of their own) have it mapped. A tree finds them by their addresses, and finds
//! holes, with as much work for many regions as for few. It is a value without a lock: the runtime keeps it
//! in memory that all members share, and changes it under one lock.

mod tree;
mod users;

use tree::{Entry, Place, Tree};
use users::Users;

/// The most members at a time. Models have few.
pub const MOST_MEMBERS: usize = if cfg!(loom) { 4 } else { 128 };

/// The most regions. Linux has about as many mappings for a process by default.
pub const MOST_REGIONS: usize = 60_000;

/// The most nodes of the tree: some more than it has if all are half full.
pub const MOST_NODES: usize = 5_500;

/// The descriptor of a region that lies in the memory of the program.
pub const NO_FILE: u64 = u64::MAX;

const PROT_READ: u64 = 1;
const PROT_WRITE: u64 = 2;

/// The bytes of a layer of that memory. In each an address has a place of its own.
pub const LAYER: u64 = 1 << 47;

/// A set of members.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Members([u64; 2]);

impl Members {
    /// The empty set.
    pub const NONE: Members = Members([0; 2]);

    /// Returns the set of one member.
    pub const fn only(member: usize) -> Self {
        let mut words = [0; 2];
        words[member / 64] = 1 << (member % 64);
        Members(words)
    }

    /// Returns whether a member is in the set.
    pub const fn has(self, member: usize) -> bool {
        self.0[member / 64] >> (member % 64) & 1 != 0
    }

    /// Returns the set with one more member.
    pub const fn with(self, member: usize) -> Self {
        self.and_all(Self::only(member))
    }

    /// Returns the set without a member.
    pub const fn without(self, member: usize) -> Self {
        let other = Self::only(member);
        Members([self.0[0] & !other.0[0], self.0[1] & !other.0[1]])
    }

    /// Returns the members of either set.
    pub const fn and_all(self, other: Members) -> Self {
        Members([self.0[0] | other.0[0], self.0[1] | other.0[1]])
    }

    /// Returns whether no member is in the set.
    pub const fn is_empty(self) -> bool {
        self.0[0] | self.0[1] == 0
    }

    /// Returns the numbers of the members.
    pub fn iter(self) -> impl Iterator<Item = usize> + Clone {
        (0..MOST_MEMBERS).filter(move |member| self.has(*member))
    }
}

/// Memory of the program with the same rights everywhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Region {
    /// The first address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// The rights, as `mmap` takes them.
    pub rights: u64,
    /// The descriptor of a file that members map, or [`NO_FILE`].
    pub file: u64,
    /// The offset in this file. In the memory of the program it is that of the layer, to which the address is
    /// added.
    pub offset: u64,
    /// Whether the memory has a copy of a file, which is not zero again when the program drops it.
    pub is_copy: bool,
    /// Whether members map the file privately, without the right to write. A part becomes a copy in the
    /// memory of the program before it is written to.
    pub is_private: bool,
    /// Whether it is a private mapping of what was the program's own memory at a `fork`.
    pub is_snapshot: bool,
    /// Whether it was mapped as a stack.
    pub is_stack: bool,
    /// The members that may have it mapped.
    pub holders: Members,
    /// The members that have it mapped with these rights.
    pub current: Members,
}

impl Region {
    const NONE: Region = Region {
        start: 0,
        end: 0,
        rights: 0,
        file: NO_FILE,
        offset: 0,
        is_copy: false,
        is_private: false,
        is_snapshot: false,
        is_stack: false,
        holders: Members::NONE,
        current: Members::NONE,
    };

    /// Returns whether an address lies in the region.
    pub const fn has(&self, address: u64) -> bool {
        self.start <= address && address < self.end
    }

    /// Returns whether the program may write here, and a copy must be made before.
    pub const fn needs_copy(&self) -> bool {
        self.is_private && self.rights & PROT_WRITE != 0
    }

    /// Returns whether it is memory of the program that has no file behind it.
    pub const fn is_anonymous(&self) -> bool {
        self.file == NO_FILE || self.is_snapshot
    }

    /// Returns whether it is shared memory of the program, which members map where it lies.
    pub const fn is_plain(&self) -> bool {
        self.file == NO_FILE && !self.is_private
    }

    /// Returns whether it is memory of the program that is zero when the program has dropped it.
    pub const fn is_fresh(&self) -> bool {
        self.file == NO_FILE && !self.is_copy
    }

    /// Returns the offset in its file, or in the memory of the program.
    pub const fn offset_of(&self, address: u64) -> u64 {
        if self.file == NO_FILE { self.offset + address } else { self.offset + (address - self.start) }
    }

    /// Returns the rights with which members map it.
    pub const fn mapped_rights(&self) -> u64 {
        // The processor has no right to write without that to read.
        if self.needs_copy() { self.rights & !PROT_WRITE | PROT_READ } else { self.rights }
    }

    /// Returns whether the next region is the same memory, so that one entry is enough.
    fn continues_as(&self, next: &Region) -> bool {
        self.end == next.start
            && (self.rights, self.holders, self.current) == (next.rights, next.holders, next.current)
            && (self.is_copy, self.is_private) == (next.is_copy, next.is_private)
            && (self.is_snapshot, self.is_stack) == (next.is_snapshot, next.is_stack)
            && self.has_same_content(next)
    }

    /// Returns whether the content of the next region follows. Shared mappings stay as they were made.
    fn has_same_content(&self, next: &Region) -> bool {
        let is_next_part = self.file == next.file && self.offset_of(self.end) == next.offset_of(next.start);
        is_next_part && (self.file == NO_FILE || self.is_private)
    }
}

/// The table is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// The table of regions, and a tree by which they are found. All zeroes are an empty one.
#[repr(C)]
pub struct Record<const MOST: usize = MOST_REGIONS, const NODES: usize = MOST_NODES> {
    count: u32,
    /// The places in the table that were used before.
    used: u32,
    /// The number of the first of these that is free plus one, or 0. A free one has no end, and the next
    /// number as its offset.
    free: u32,
    /// The files that regions have.
    users: Users,
    regions: [Region; MOST],
    tree: Tree<NODES>,
}

impl<const MOST: usize, const NODES: usize> Default for Record<MOST, NODES> {
    fn default() -> Self {
        let (users, tree) = (Users::default(), Tree::default());
        Record { count: 0, used: 0, free: 0, users, regions: [Region::NONE; MOST], tree }
    }
}

impl<const MOST: usize, const NODES: usize> Record<MOST, NODES> {
    /// Returns how many regions there are.
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// Returns whether there is no region.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the bounds of the memory that a copy of the record needs.
    pub fn in_use(&self) -> [[u64; 2]; 2] {
        let start = &raw const *self as u64;
        let used = self.regions[..self.used as usize].as_ptr_range().end as u64;
        [[start, used], [&raw const self.tree as u64, self.tree.used_end()]]
    }

    /// Returns all regions, in no order.
    pub fn all(&self) -> impl Iterator<Item = &Region> + Clone {
        self.regions[..self.used as usize].iter().filter(|region| region.end != 0)
    }

    /// Returns all regions, in no order. Their bounds and their files must stay.
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Region> {
        self.regions[..self.used as usize].iter_mut().filter(|region| region.end != 0)
    }

    fn region(&self, place: Place) -> &Region {
        &self.regions[self.tree.entry(place).value as usize]
    }

    fn region_mut(&mut self, place: Place) -> &mut Region {
        &mut self.regions[self.tree.entry(place).value as usize]
    }

    /// Returns the region at an address.
    pub fn at(&self, address: u64) -> Option<&Region> {
        self.tree.find(address).map(|place| self.region(place)).filter(|region| region.has(address))
    }

    /// Returns the region at an address. Its bounds and its file must stay.
    pub fn at_mut(&mut self, address: u64) -> Option<&mut Region> {
        let place = self.tree.find(address)?;
        Some(self.region_mut(place)).filter(|region| region.has(address))
    }

    /// Returns the regions that a range touches, in their order.
    pub fn touched(&self, start: u64, end: u64) -> Touched<'_, MOST, NODES> {
        Touched { record: self, next: self.tree.find(start), end }
    }

    /// Runs `f` with the regions that a range touches, in their order. Their bounds must stay.
    pub fn change(&mut self, start: u64, end: u64, mut f: impl FnMut(&mut Region)) {
        let mut next = self.tree.find(start);
        while let Some(place) = next
            && self.region(place).start < end
        {
            let old = self.region(place).file;
            f(self.region_mut(place));
            let new = self.region(place).file;
            if new != old {
                self.count_user(new);
                self.discount_user(old);
            }
            next = self.tree.next(place);
        }
    }

    fn count_user(&mut self, file: u64) {
        if file != NO_FILE {
            self.users.add(file);
        }
    }

    fn discount_user(&mut self, file: u64) {
        if file != NO_FILE {
            self.users.remove(file);
        }
    }

    /// Returns whether any region has a file.
    pub fn has_file(&self, file: u64) -> bool {
        self.users.has(file).unwrap_or_else(|| self.all().any(|region| region.file == file))
    }

    /// Returns the regions that end within a range, from the highest on.
    pub fn below(&self, start: u64, end: u64) -> impl Iterator<Item = &Region> {
        let mut place = self.before(self.tree.find(end));
        let regions = core::iter::from_fn(move || {
            let region = self.region(place?);
            place = self.tree.previous(place?);
            Some(region)
        });
        regions.take_while(move |region| region.end > start)
    }

    /// Returns whether nothing of a range is recorded.
    pub fn is_free(&self, start: u64, end: u64) -> bool {
        self.touched(start, end).next().is_none()
    }

    /// Returns whether all of a range is recorded.
    pub fn covers(&self, start: u64, end: u64) -> bool {
        let mut reached = start;
        for region in self.touched(start, end) {
            if region.start > reached {
                return false;
            }
            reached = region.end;
        }
        reached >= end
    }

    /// Divides the regions at the ends of a range there.
    pub fn divide(&mut self, start: u64, end: u64) -> Result<(), Full> {
        self.divide_at(start)?;
        self.divide_at(end)
    }

    /// Divides the region that an address lies in.
    fn divide_at(&mut self, at: u64) -> Result<(), Full> {
        let Some(place) = self.tree.find(at) else { return Ok(()) };
        let region = *self.region(place);
        if region.start >= at {
            return Ok(());
        }
        let offset = if region.file == NO_FILE { region.offset } else { region.offset_of(at) };
        let new = self.reserve(Some(place.behind()))?;
        self.set_end(place, at);
        self.put(Some(place.behind()), new, Region { start: at, offset, ..region });
        Ok(())
    }

    /// Takes the place in the table of a region that is about to be added.
    fn reserve(&mut self, place: Option<Place>) -> Result<u32, Full> {
        if self.len() == MOST {
            return Err(Full);
        }
        self.tree.has_room(place)?;
        self.count += 1;
        let Some(number) = self.free.checked_sub(1) else {
            self.used += 1;
            return Ok(self.used - 1);
        };
        self.free = self.regions[number as usize].offset as u32;
        Ok(number)
    }

    fn put(&mut self, place: Option<Place>, number: u32, region: Region) {
        self.regions[number as usize] = region;
        self.count_user(region.file);
        self.tree.put(place, Entry::new(region.start, region.end, number));
    }

    fn cut(&mut self, place: Place) {
        let number = self.tree.entry(place).value;
        self.discount_user(self.regions[number as usize].file);
        self.regions[number as usize] = Region { offset: u64::from(self.free), ..Region::NONE };
        self.free = number + 1;
        self.count -= 1;
        self.tree.cut(place);
    }

    fn set_end(&mut self, place: Place, end: u64) {
        self.region_mut(place).end = end;
        self.tree.set_end(place, end);
    }

    /// Adds a region where nothing is recorded.
    pub fn add(&mut self, region: Region) -> Result<(), Full> {
        let next = self.tree.find(region.start);
        let before = self.before(next);
        if let Some(before) = before.filter(|before| self.region(*before).continues_as(&region)) {
            self.set_end(before, region.end);
        } else {
            let place = next.or(before.map(Place::behind));
            let number = self.reserve(place)?;
            self.put(place, number, region);
        }
        self.join(region.start, region.end);
        Ok(())
    }

    /// Returns the place before another, or the last one.
    fn before(&self, place: Option<Place>) -> Option<Place> {
        place.map_or_else(|| self.tree.last(), |place| self.tree.previous(place))
    }

    /// Removes all regions of a range that was divided at its ends.
    pub fn remove(&mut self, start: u64, end: u64) {
        while let Some(place) = self.tree.find(start)
            && self.region(place).start < end
        {
            self.cut(place);
        }
    }

    /// Joins regions that touch a range and continue each other.
    pub fn join(&mut self, start: u64, end: u64) {
        let first = self.tree.find(start);
        let mut here = self.before(first).or(first);
        while let Some(place) = here {
            let Region { start, end: own_end, .. } = *self.region(place);
            if start > end {
                return;
            }
            let Some(next) = self.tree.next(place) else { return };
            let next_region = self.region(next);
            if !self.region(place).continues_as(next_region) {
                here = Some(next);
                continue;
            }
            let joined_end = next_region.end;
            self.cut(next);
            here = self.tree.find(own_end - 1);
            here.into_iter().for_each(|place| self.set_end(place, joined_end));
        }
    }

    /// Returns the lowest free range of a length within bounds.
    pub fn gap(&self, length: u64, from: u64, to: u64) -> Option<u64> {
        self.tree.gap(length, from, to)
    }
}

/// The regions that a range touches.
#[derive(Clone)]
pub struct Touched<'a, const MOST: usize, const NODES: usize> {
    record: &'a Record<MOST, NODES>,
    next: Option<Place>,
    end: u64,
}

impl<'a, const MOST: usize, const NODES: usize> Iterator for Touched<'a, MOST, NODES> {
    type Item = &'a Region;

    fn next(&mut self) -> Option<&'a Region> {
        let place = self.next?;
        let region = self.record.region(place);
        self.next = if region.start < self.end { self.record.tree.next(place) } else { None };
        (region.start < self.end).then_some(region)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::PAGE;
    use core::cell::Cell;
    use std::boxed::Box;
    use std::vec::Vec;
    use tree::tests::STEPS;

    const FEW: usize = 9;

    fn record() -> Record<FEW, 4> {
        Record::default()
    }

    fn region(start: u64, end: u64, rights: u64) -> Region {
        let only = Members::only(0);
        Region { start, end, rights, holders: only, current: only, ..Region::NONE }
    }

    fn ordered<const MOST: usize, const NODES: usize>(record: &Record<MOST, NODES>) -> Vec<Region> {
        record.touched(0, u64::MAX).copied().collect()
    }

    fn bounds(record: &Record<FEW, 4>) -> Vec<(u64, u64, u64)> {
        record.touched(0, u64::MAX).map(|region| (region.start, region.end, region.rights)).collect()
    }

    #[test]
    fn equal_neighbours_are_one_region() {
        let mut record = record();
        record.add(region(10, 20, 3)).unwrap();
        record.add(region(30, 40, 3)).unwrap();
        record.add(region(20, 30, 3)).unwrap();
        assert_eq!(bounds(&record), [(10, 40, 3)]);
        record.add(region(40, 50, 1)).unwrap();
        assert_eq!(bounds(&record), [(10, 40, 3), (40, 50, 1)]);
    }

    #[test]
    fn neighbours_with_other_members_or_files_stay_apart() {
        let mut record = record();
        record.add(region(10, 20, 3)).unwrap();
        record.add(Region { holders: Members::only(1), ..region(20, 30, 3) }).unwrap();
        record.add(Region { file: 7, ..region(30, 40, 3) }).unwrap();
        record.add(Region { file: 7, offset: 10, ..region(40, 50, 3) }).unwrap();
        record.add(region(50, 60, 3)).unwrap();
        record.add(Region { is_copy: true, ..region(60, 70, 3) }).unwrap();
        assert_eq!(record.len(), 6);
        let private =
            |start, offset| Region { file: 9, offset, is_private: true, ..region(start, start + 10, 1) };
        record.add(private(70, 100)).unwrap();
        record.add(private(80, 110)).unwrap();
        assert_eq!(record.len(), 7);
        record.add(private(90, 130)).unwrap();
        assert_eq!(record.len(), 8);
    }

    #[test]
    fn a_private_mapping_is_mapped_without_the_right_to_write() {
        let plain = region(0, 10, PROT_READ | PROT_WRITE);
        let private = |rights| Region { file: 7, is_private: true, rights, ..plain };
        assert!(!plain.needs_copy() && !private(PROT_READ).needs_copy() && private(PROT_WRITE).needs_copy());
        assert_eq!(plain.mapped_rights(), PROT_READ | PROT_WRITE);
        let mapped = [0, 1, 2, 3, 4, 6, 7].map(|rights| private(rights).mapped_rights());
        assert_eq!(mapped, [0, 1, 1, 1, 4, 5, 5]);
    }

    #[test]
    fn memory_of_different_layers_stays_apart() {
        let mut record = record();
        record.add(region(10, 20, 3)).unwrap();
        record.add(Region { offset: LAYER, ..region(20, 30, 3) }).unwrap();
        record.add(Region { offset: LAYER, ..region(30, 40, 3) }).unwrap();
        assert_eq!(bounds(&record), [(10, 20, 3), (20, 40, 3)]);
        record.divide(25, 30).unwrap();
        assert!(ordered(&record)[1..].iter().all(|part| part.offset == LAYER));
        assert_eq!(record.at(27).unwrap().offset_of(27), LAYER + 27);
        let snapshot = |start| Region {
            file: 7,
            offset: LAYER + start,
            is_private: true,
            is_snapshot: true,
            ..region(start, start + 10, 3)
        };
        record.add(snapshot(50)).unwrap();
        record.add(snapshot(60)).unwrap();
        assert_eq!(record.len(), 5);
        assert_eq!(record.at(65).unwrap().offset_of(65), LAYER + 65);
    }

    #[test]
    fn a_removed_part_leaves_the_rest() {
        let mut record = record();
        record.add(Region { file: 5, offset: 100, ..region(10, 40, 3) }).unwrap();
        record.divide(20, 30).unwrap();
        assert_eq!(record.touched(20, 30).count(), 1);
        record.remove(20, 30);
        assert_eq!(bounds(&record), [(10, 20, 3), (30, 40, 3)]);
        assert_eq!(record.at(35).unwrap().offset, 120);
        assert!(record.at(20).is_none() && record.at(29).is_none());
        assert!(record.is_free(20, 30) && !record.is_free(19, 30) && !record.is_free(20, 31));
    }

    #[test]
    fn changed_rights_divide_and_join() {
        let mut record = record();
        record.add(region(10, 40, 3)).unwrap();
        record.divide(20, 30).unwrap();
        record.change(20, 30, |region| region.rights = 0);
        record.join(20, 30);
        assert_eq!(bounds(&record), [(10, 20, 3), (20, 30, 0), (30, 40, 3)]);
        record.divide(20, 30).unwrap();
        record.change(20, 30, |region| region.rights = 3);
        record.join(20, 30);
        assert_eq!(bounds(&record), [(10, 40, 3)]);
    }

    #[test]
    fn a_region_that_changes_its_file_is_counted_there() {
        let mut record = record();
        record.add(Region { file: 5, ..region(10, 40, 3) }).unwrap();
        record.divide(20, 30).unwrap();
        record.change(20, 40, |region| region.file = 6);
        assert!(record.has_file(5) && record.has_file(6) && !record.has_file(NO_FILE));
        record.change(10, 20, |region| region.file = NO_FILE);
        record.remove(20, 30);
        assert!(!record.has_file(5) && record.has_file(6));
        record.remove(30, 40);
        assert!(!record.has_file(6));
    }

    #[test]
    fn coverage_has_no_holes() {
        let mut record = record();
        record.add(region(10, 20, 3)).unwrap();
        record.add(region(20, 30, 1)).unwrap();
        record.add(region(35, 40, 1)).unwrap();
        assert!(record.covers(12, 30) && record.covers(10, 11));
        assert!(!record.covers(12, 31) && !record.covers(5, 12) && !record.covers(30, 40));
    }

    #[test]
    fn a_gap_is_the_lowest_that_is_long_enough() {
        let mut record = record();
        record.add(region(10, 20, 3)).unwrap();
        record.add(region(24, 30, 1)).unwrap();
        assert_eq!(record.gap(4, 10, 100), Some(20));
        assert_eq!(record.gap(5, 10, 100), Some(30));
        assert_eq!(record.gap(5, 0, 100), Some(0));
        assert_eq!(record.gap(71, 10, 100), None);
        assert_eq!(record.gap(70, 10, 100), Some(30));
    }

    #[test]
    fn a_set_of_members_has_those_that_were_put_in() {
        let set = Members::only(3).with(64).with(127).without(3);
        assert_eq!(set.iter().collect::<Vec<_>>(), [64, 127]);
        assert!(!set.is_empty() && set.without(64).without(127).is_empty());
    }

    #[test]
    fn a_full_record_stays_as_it_is() {
        let mut record = record();
        for index in 0..FEW as u64 {
            record.add(region(index * 20, index * 20 + 10, 3)).unwrap();
        }
        let before = bounds(&record);
        assert_eq!(record.add(region(500, 510, 3)), Err(Full));
        assert_eq!(record.divide(2, 4), Err(Full));
        assert_eq!(bounds(&record), before);
        record.remove(20, 30);
        assert_eq!(record.add(region(500, 510, 3)), Ok(()));
    }

    /// The same as a sorted table, which is copied for each change.
    #[derive(Default)]
    struct Model(Vec<Region>);

    impl Model {
        fn divide(&mut self, at: u64) {
            let Some(index) = self.0.iter().position(|region| region.start < at && at < region.end) else {
                return;
            };
            let old = self.0[index];
            let offset = if old.file == NO_FILE { old.offset } else { old.offset_of(at) };
            self.0[index].end = at;
            self.0.insert(index + 1, Region { start: at, offset, ..old });
        }

        fn add(&mut self, region: Region) {
            let index = self.0.partition_point(|other| other.start < region.start);
            self.0.insert(index, region);
            self.join(region.start, region.end);
        }

        fn join(&mut self, start: u64, end: u64) {
            let mut index = self.0.partition_point(|region| region.end <= start).saturating_sub(1);
            while index + 1 < self.0.len() && self.0[index].start <= end {
                if self.0[index].continues_as(&self.0[index + 1]) {
                    self.0[index].end = self.0.remove(index + 1).end;
                } else {
                    index += 1;
                }
            }
        }

        fn gap(&self, length: u64, from: u64, to: u64) -> Option<u64> {
            let mut at = from;
            for region in self.0.iter().filter(|region| region.end > from) {
                if region.start.saturating_sub(at) >= length {
                    break;
                }
                at = at.max(region.end);
            }
            (at + length <= to).then_some(at)
        }
    }

    /// Numbers that look random.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, most: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % most
        }
    }

    #[test]
    fn random_changes_are_those_of_a_sorted_table() {
        for seed in 0..20 {
            let mut numbers = Numbers(seed);
            let mut record = Box::<Record<3_000, 300>>::default();
            let mut model = Model::default();
            // Few addresses at first, so that nodes get full and empty again.
            for step in 0..1_500 {
                let most = if step % 500 < 300 { 40_000 } else { 2_000 };
                let start = 1 + numbers.below(most);
                let end = start + 1 + numbers.below(if step % 500 < 300 { 9 } else { 400 });
                let rights = numbers.below(3);
                match numbers.below(4) {
                    0 if step % 500 >= 300 => {
                        record.divide(start, end).unwrap();
                        record.remove(start, end);
                        [start, end].into_iter().for_each(|at| model.divide(at));
                        model.0.retain(|region| region.end <= start || end <= region.start);
                    }
                    1 => {
                        record.divide(start, end).unwrap();
                        record.change(start, end, |region| region.rights = rights);
                        record.join(start, end);
                        [start, end].into_iter().for_each(|at| model.divide(at));
                        let touched =
                            model.0.iter_mut().filter(|other| start < other.end && other.start < end);
                        touched.for_each(|region| region.rights = rights);
                        model.join(start, end);
                    }
                    _ if record.is_free(start, end) => {
                        let file = if numbers.below(4) == 0 { 7 + numbers.below(3) } else { NO_FILE };
                        let is_private = file != NO_FILE;
                        let offset = if is_private { start } else { 0 };
                        let new = Region { file, is_private, offset, ..region(start, end, rights) };
                        record.add(new).unwrap();
                        model.add(new);
                    }
                    _ => {}
                }
                assert_eq!(record.len(), model.0.len());
                let length = 1 + numbers.below(30);
                assert_eq!(record.gap(length, start, 50_000), model.gap(length, start, 50_000));
                let at = model.0.iter().find(|region| region.has(end));
                assert_eq!(record.at(end), at);
                let before = model.0.iter().rfind(|region| region.end <= start);
                let found = record.before(record.tree.find(start)).map(|place| record.region(place));
                assert_eq!(found, before);
                for file in 7..10 {
                    assert_eq!(record.has_file(file), model.0.iter().any(|region| region.file == file));
                }
                if step % 50 == 0 {
                    assert_eq!(ordered(&record), model.0);
                    let within = |region: &&Region| start < region.end && region.end <= end;
                    assert!(record.below(start, end).eq(model.0.iter().rev().filter(within)));
                }
            }
            assert_eq!(ordered(&record), model.0);
            assert_eq!(record.all().count(), model.0.len());
            record.tree.checked();
        }
    }

    /// Returns the steps of a round that finds a place, records it, divides it, and removes both parts, in a
    /// record of many regions: the mean of many rounds, and the most.
    fn steps_of_rounds(regions: u64) -> [f64; 2] {
        const ROUNDS: u64 = 1_000;
        let mut record = Box::<Record>::default();
        // Each second page is another region. Only beyond is room.
        for number in 0..regions {
            record.add(region(number * 2 * PAGE, (number * 2 + 1) * PAGE, number % 2)).unwrap();
        }
        let mut numbers = Numbers(1);
        let [mut all, mut most] = [0; 2];
        for round in 0..ROUNDS {
            // Long ones lie behind all others, as new memory does, and short ones in between.
            let pages = if round % 2 == 0 { 2 } else { 1 };
            let from = numbers.below(regions) * 2 * PAGE;
            STEPS.with(|steps| steps.set(0));
            let start = record.gap(pages * PAGE, from, u64::MAX).unwrap();
            let end = start + pages * PAGE;
            record.add(region(start, end, 7)).unwrap();
            let middle = start + PAGE / 2;
            record.divide(middle, end).unwrap();
            record.remove(start, middle);
            record.remove(middle, end);
            let steps = STEPS.with(Cell::get);
            all += steps;
            most = most.max(steps);
        }
        assert_eq!(record.len() as u64, regions);
        [all as f64 / ROUNDS as f64, most as f64]
    }

    #[test]
    fn a_change_takes_no_more_steps_among_many_regions() {
        // The record is made on the stack.
        let measure = || [100, 8_000, 30_000].map(steps_of_rounds);
        let large = std::thread::Builder::new().stack_size(64 << 20);
        let [few, many @ ..] = large.spawn(measure).unwrap().join().unwrap();
        for [mean, most] in many {
            assert!(mean <= few[0] * 1.3, "{mean} {few:?}");
            assert!(most <= few[1] * 1.3, "{most} {few:?}");
        }
    }
}

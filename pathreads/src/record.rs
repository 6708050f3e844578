//! The record of a program's memory, for threads in address spaces of their own.
//!
//! It is a sorted table of regions, which says for each what the program may do there and which members
//! (threads with an address space of their own) have it mapped. It is a value without a lock: the runtime
//! keeps it in memory that all members share, and changes it under one lock.

/// The most members at a time. Models have few.
pub const MOST_MEMBERS: usize = if cfg!(loom) { 4 } else { 128 };

/// The most regions. Linux has about as many mappings for a process by default.
pub const MOST_REGIONS: usize = 60_000;

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

/// The sorted table.
#[repr(C)]
pub struct Record<const MOST: usize = MOST_REGIONS> {
    count: usize,
    regions: [Region; MOST],
}

impl<const MOST: usize> Default for Record<MOST> {
    fn default() -> Self {
        Record { count: 0, regions: [Region::NONE; MOST] }
    }
}

impl<const MOST: usize> Record<MOST> {
    /// Returns all regions.
    pub fn all(&self) -> &[Region] {
        &self.regions[..self.count]
    }

    /// Returns all regions, whose bounds must stay.
    pub fn all_mut(&mut self) -> &mut [Region] {
        &mut self.regions[..self.count]
    }

    /// Returns the index of the first region that ends after an address.
    fn first(&self, address: u64) -> usize {
        self.all().partition_point(|region| region.end <= address)
    }

    /// Returns the region at an address.
    pub fn at(&mut self, address: u64) -> Option<&mut Region> {
        let index = self.first(address);
        self.all_mut().get_mut(index).filter(|region| region.has(address))
    }

    /// Returns the regions that a range touches.
    pub fn touched(&mut self, start: u64, end: u64) -> &mut [Region] {
        let first = self.first(start);
        let last = self.all().partition_point(|region| region.start < end);
        &mut self.all_mut()[first..last.max(first)]
    }

    /// Returns whether nothing of a range is recorded.
    pub fn is_free(&self, start: u64, end: u64) -> bool {
        self.all().get(self.first(start)).is_none_or(|region| end <= region.start)
    }

    /// Returns whether all of a range is recorded.
    pub fn covers(&mut self, start: u64, end: u64) -> bool {
        let mut reached = start;
        for region in self.touched(start, end) {
            if region.start > reached {
                return false;
            }
            reached = region.end;
        }
        reached >= end
    }

    /// Returns the regions of a range, with those at its ends divided there.
    pub fn divided(&mut self, start: u64, end: u64) -> Result<&mut [Region], Full> {
        self.divide(start)?;
        self.divide(end)?;
        Ok(self.touched(start, end))
    }

    /// Divides the region that an address lies in.
    fn divide(&mut self, at: u64) -> Result<(), Full> {
        let index = self.first(at);
        let Some(region) = self.all().get(index).copied().filter(|region| region.start < at) else {
            return Ok(());
        };
        let offset = if region.file == NO_FILE { region.offset } else { region.offset_of(at) };
        self.put(index + 1, Region { start: at, offset, ..region })?;
        self.regions[index].end = at;
        Ok(())
    }

    fn put(&mut self, index: usize, region: Region) -> Result<(), Full> {
        if self.count == MOST {
            return Err(Full);
        }
        self.regions.copy_within(index..self.count, index + 1);
        self.regions[index] = region;
        self.count += 1;
        Ok(())
    }

    /// Adds a region where nothing is recorded.
    pub fn add(&mut self, region: Region) -> Result<(), Full> {
        let index = self.first(region.start);
        if index > 0 && self.regions[index - 1].continues_as(&region) {
            self.regions[index - 1].end = region.end;
        } else {
            self.put(index, region)?;
        }
        self.join(region.start, region.end);
        Ok(())
    }

    /// Removes all regions of a range that was divided at its ends.
    pub fn remove(&mut self, start: u64, end: u64) {
        let first = self.first(start);
        let last = self.all().partition_point(|region| region.start < end).max(first);
        self.regions.copy_within(last..self.count, first);
        self.count -= last - first;
    }

    /// Joins regions that touch a range and continue each other.
    pub fn join(&mut self, start: u64, end: u64) {
        let mut last = self.first(start).saturating_sub(1);
        let mut next = last + 1;
        while next < self.count && self.regions[last].start <= end {
            if self.regions[last].continues_as(&self.regions[next]) {
                self.regions[last].end = self.regions[next].end;
            } else {
                last += 1;
                self.regions[last] = self.regions[next];
            }
            next += 1;
        }
        if last + 1 < next {
            self.regions.copy_within(next.min(self.count)..self.count, last + 1);
            self.count -= next - last - 1;
        }
    }

    /// Returns the lowest free range of a length within bounds.
    pub fn gap(&self, length: u64, from: u64, to: u64) -> Option<u64> {
        let mut at = from;
        for region in &self.all()[self.first(from)..] {
            if region.start.saturating_sub(at) >= length {
                break;
            }
            at = at.max(region.end);
        }
        (at.checked_add(length)? <= to).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::vec::Vec;

    const FEW: usize = 9;

    fn record() -> Record<FEW> {
        Record::default()
    }

    fn region(start: u64, end: u64, rights: u64) -> Region {
        let only = Members::only(0);
        Region { start, end, rights, holders: only, current: only, ..Region::NONE }
    }

    fn bounds(record: &Record<FEW>) -> Vec<(u64, u64, u64)> {
        record.all().iter().map(|region| (region.start, region.end, region.rights)).collect()
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
        assert_eq!(record.all().len(), 6);
        let private =
            |start, offset| Region { file: 9, offset, is_private: true, ..region(start, start + 10, 1) };
        record.add(private(70, 100)).unwrap();
        record.add(private(80, 110)).unwrap();
        assert_eq!(record.all().len(), 7);
        record.add(private(90, 130)).unwrap();
        assert_eq!(record.all().len(), 8);
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
        record.divided(25, 30).unwrap();
        assert!(record.all()[1..].iter().all(|part| part.offset == LAYER));
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
        assert_eq!(record.all().len(), 5);
        assert_eq!(record.at(65).unwrap().offset_of(65), LAYER + 65);
    }

    #[test]
    fn a_removed_part_leaves_the_rest() {
        let mut record = record();
        record.add(Region { file: 5, offset: 100, ..region(10, 40, 3) }).unwrap();
        assert_eq!(record.divided(20, 30).unwrap().len(), 1);
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
        record.divided(20, 30).unwrap().iter_mut().for_each(|region| region.rights = 0);
        record.join(20, 30);
        assert_eq!(bounds(&record), [(10, 20, 3), (20, 30, 0), (30, 40, 3)]);
        record.divided(20, 30).unwrap().iter_mut().for_each(|region| region.rights = 3);
        record.join(20, 30);
        assert_eq!(bounds(&record), [(10, 40, 3)]);
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
        assert_eq!(record.divided(2, 4), Err(Full));
        assert_eq!(bounds(&record), before);
        record.remove(20, 30);
        assert_eq!(record.add(region(500, 510, 3)), Ok(()));
    }
}

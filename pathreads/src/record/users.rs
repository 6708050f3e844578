//! How many regions have each file, so that the last one is known without a look at all.
//!
//! It is a table by the numbers of descriptors. One that finds no slot near its own is counted among the
//! others, with all such. A slot may come free later, so the regions of one file may be counted in both.

/// The slots, and those of them that a number may have.
const SLOTS: usize = 1024;
const NEAR: usize = 8;

#[derive(Clone, Copy)]
#[repr(C)]
struct Slot {
    file: u32,
    count: u32,
}

/// The counts. All zeroes are none.
#[repr(C)]
pub struct Users {
    slots: [Slot; SLOTS],
    others: u32,
}

impl Default for Users {
    fn default() -> Self {
        Users { slots: [Slot { file: 0, count: 0 }; SLOTS], others: 0 }
    }
}

impl Users {
    /// Returns the places that a file's slot may have.
    fn places(file: u64) -> impl Iterator<Item = usize> {
        (0..NEAR).map(move |step| (file as usize % SLOTS + step) % SLOTS)
    }

    /// Returns the place of a file's slot.
    fn find(&self, file: u64) -> Option<usize> {
        let is_its = |slot: &Slot| slot.count > 0 && u64::from(slot.file) == file;
        Self::places(file).find(|place| is_its(&self.slots[*place]))
    }

    /// Counts one more region of a file.
    pub fn add(&mut self, file: u64) {
        let found = self.find(file);
        let free = || Self::places(file).find(|place| self.slots[*place].count == 0);
        match (found.or_else(free), u32::try_from(file)) {
            (Some(place), Ok(file)) => {
                self.slots[place] = Slot { file, count: self.slots[place].count + 1 };
            }
            _ => self.others += 1,
        }
    }

    /// Counts one region of a file less.
    pub fn remove(&mut self, file: u64) {
        match self.find(file) {
            Some(place) => self.slots[place].count -= 1,
            None => self.others -= 1,
        }
    }

    /// Returns whether a region has a file, or `None` if that cannot be told.
    pub fn has(&self, file: u64) -> Option<bool> {
        let is_found = self.find(file).is_some();
        (is_found || self.others == 0).then_some(is_found)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::vec::Vec;

    #[test]
    fn a_file_is_used_as_long_as_a_region_has_it() {
        let mut users = Users::default();
        users.add(7);
        users.add(7 + SLOTS as u64);
        users.add(7);
        users.remove(7);
        assert_eq!(
            (users.has(7), users.has(8), users.has(7 + SLOTS as u64)),
            (Some(true), Some(false), Some(true))
        );
        users.remove(7);
        assert_eq!((users.has(7), users.has(7 + SLOTS as u64)), (Some(false), Some(true)));
    }

    #[test]
    fn files_without_a_slot_are_counted_together() {
        let mut users = Users::default();
        let files: Vec<u64> = (0..NEAR as u64 + 2).map(|number| 3 + number * SLOTS as u64).collect();
        files.iter().for_each(|file| users.add(*file));
        let last = *files.last().unwrap();
        assert_eq!(
            (users.has(files[0]), users.has(last), users.has(5 + SLOTS as u64)),
            (Some(true), None, None)
        );
        // The slot that comes free is its own from the next region on.
        users.remove(files[0]);
        users.add(last);
        assert_eq!(users.has(last), Some(true));
        users.remove(last);
        assert_eq!(users.has(last), None);
        users.remove(last);
        users.remove(files[NEAR]);
        assert_eq!((users.has(last), users.has(files[1])), (Some(false), Some(true)));
        files[1..NEAR].iter().for_each(|file| users.remove(*file));
        assert!(files.iter().all(|file| users.has(*file) == Some(false)));
        users.add(u64::from(u32::MAX) + 1);
        assert_eq!(users.has(u64::from(u32::MAX) + 1), None);
    }
}

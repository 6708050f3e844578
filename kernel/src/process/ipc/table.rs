//! The objects of one kind of SysV IPC, by identifiers and by keys.
//!
//! An identifier is an index and a sequence number, as in Linux: indices are given in turn, and the sequence
//! rises when they begin again. The slot of an index has cache lines of its own, and so has a bucket of keys.
//! Calls that use objects write those of their objects only. Calls that make and remove objects take
//! `places` too.
//!
//! Locks: a bucket of keys, then `places`, then a slot. Objects lock themselves after these.

use alloc::sync::Arc;
use alloc::vec::Vec;

use abi::Errno;
use abi::ipc::{IPC_CREAT, IPC_EXCL, IPC_PRIVATE};
use sync::{CachePadded, SetOnce, SpinLock};

use super::{Id, Wanted};
use crate::mm::fallible;

/// The bits of an identifier that are the index.
const INDEX_BITS: u32 = 15;
/// The sequence numbers, so that identifiers are not negative.
const SEQUENCES: u32 = 1 << (31 - INDEX_BITS);
/// The slots that are made together.
pub const BLOCK: usize = 64;
const BUCKETS: usize = 32;
/// The least number of indices that are given in turn.
const TURN: usize = 64;

/// An object in a table.
pub trait Object: Send + Sync + 'static {
    /// Returns its identifier.
    fn id(&self) -> &Id;

    /// Returns its part of [`Table::sum`].
    fn size(&self) -> u64 {
        0
    }
}

type Slot<T> = CachePadded<SpinLock<Option<Arc<T>>>>;
/// Keys with the identifiers of their objects, by rising keys.
type Bucket = SpinLock<Vec<(i32, u32)>>;

/// The objects of one kind: at most `BLOCKS` times [`BLOCK`].
pub struct Table<T, const BLOCKS: usize> {
    blocks: [SetOnce<Vec<Slot<T>>>; BLOCKS],
    places: SpinLock<Places>,
    keys: [CachePadded<Bucket>; BUCKETS],
}

struct Places {
    /// The number of objects.
    used: usize,
    /// The index to try next.
    next: usize,
    sequence: u32,
    /// The highest index of an object, or 0.
    highest: usize,
    /// The sum of the objects' sizes.
    sum: u64,
}

impl Places {
    const EMPTY: Self = Self { used: 0, next: 0, sequence: 0, highest: 0, sum: 0 };
}

/// Returns the sequence number of an identifier.
pub fn sequence(id: u32) -> u16 {
    (id >> INDEX_BITS) as u16
}

fn index(id: u32) -> usize {
    (id & ((1 << INDEX_BITS) - 1)) as usize
}

impl<T: Object, const BLOCKS: usize> Table<T, BLOCKS> {
    const MOST: usize = BLOCK * BLOCKS;

    /// Creates an empty table.
    pub const fn new() -> Self {
        Self {
            blocks: [const { SetOnce::new() }; BLOCKS],
            places: SpinLock::new(Places::EMPTY),
            keys: [const { CachePadded::new(SpinLock::new(Vec::new())) }; BUCKETS],
        }
    }

    fn slot(&self, index: usize) -> Option<&Slot<T>> {
        self.blocks.get(index / BLOCK)?.get()?.get(index % BLOCK)
    }

    #[expect(clippy::indexing_slicing, reason = "in range whatever the key")]
    fn bucket(&self, key: i32) -> &Bucket {
        &self.keys[key as u32 as usize % BUCKETS]
    }

    /// Returns the object at an index.
    pub fn at(&self, index: usize) -> Option<Arc<T>> {
        self.slot(index)?.lock().clone()
    }

    /// Returns the object at an index, or at that of an identifier, whose object may be another by now.
    ///
    /// # Errors
    /// EINVAL if there is none.
    pub fn at_index_of(&self, id: i32) -> Result<Arc<T>, Errno> {
        let id = u32::try_from(id).map_err(|_| Errno::EINVAL)?;
        self.at(index(id)).ok_or(Errno::EINVAL)
    }

    /// Returns the object with an identifier.
    ///
    /// # Errors
    /// EINVAL if there is none.
    pub fn get(&self, id: i32) -> Result<Arc<T>, Errno> {
        let id = u32::try_from(id).map_err(|_| Errno::EINVAL)?;
        self.at(index(id)).filter(|object| object.id().get() == id).ok_or(Errno::EINVAL)
    }

    /// Returns the identifier of the object with a key, if `fits` accepts it, or makes one.
    ///
    /// # Errors
    /// ENOENT, EEXIST, ENOSPC as `wanted` says, ENOMEM, those of `fits` and of `make`.
    pub fn get_or_make(
        &self,
        wanted: Wanted,
        fits: impl Fn(&T) -> Result<(), Errno>,
        make: impl Fn() -> Result<T, Errno>,
    ) -> Result<u32, Errno> {
        if wanted.key == IPC_PRIVATE {
            return self.insert(&fallible::arc(make()?)?);
        }
        loop {
            match self.with_key(wanted.key) {
                Some(_) if wanted.has(IPC_CREAT) && wanted.has(IPC_EXCL) => return Err(Errno::EEXIST),
                Some(object) => return fits(&object).map(|()| object.id().get()),
                None if !wanted.has(IPC_CREAT) => return Err(Errno::ENOENT),
                None => {}
            }
            let new = fallible::arc(make()?)?;
            let mut keys = self.bucket(wanted.key).lock();
            // Another task may have made one meanwhile.
            if let Err(at) = find(&keys, wanted.key) {
                keys.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
                let id = self.insert(&new)?;
                keys.insert(at, (wanted.key, id));
                return Ok(id);
            }
        }
    }

    fn with_key(&self, key: i32) -> Option<Arc<T>> {
        loop {
            let id = find(&self.bucket(key).lock(), key).ok()?.1;
            // A key is forgotten before its object is removed, so without an object there is no key by now.
            if let Ok(object) = self.get(id as i32) {
                return Some(object);
            }
        }
    }

    /// Gives a new object an identifier.
    fn insert(&self, object: &Arc<T>) -> Result<u32, Errno> {
        let mut places = self.places.lock();
        if places.used >= Self::MOST {
            return Err(Errno::ENOSPC);
        }
        let end = (places.used * 3 / 2).max(TURN).min(Self::MOST);
        let first = if places.next < end { places.next } else { 0 };
        let mut turn = (first..end).chain(0..first);
        let index = turn
            .find_map(|index| match self.is_free(index) {
                Ok(true) => Some(Ok(index)),
                Ok(false) => None,
                Err(error) => Some(Err(error)),
            })
            .ok_or(Errno::ENOSPC)??;
        if index < places.next {
            places.sequence = (places.sequence + 1) % SEQUENCES;
        }
        places.next = index + 1;
        places.used += 1;
        places.highest = places.highest.max(index);
        places.sum += object.size();
        let id = places.sequence << INDEX_BITS | index as u32;
        object.id().set(id);
        if let Some(slot) = self.slot(index) {
            *slot.lock() = Some(object.clone());
        }
        Ok(id)
    }

    /// Returns whether an index is free, and makes its slot if there is none. `places` is locked.
    fn is_free(&self, index: usize) -> Result<bool, Errno> {
        let block = self.blocks.get(index / BLOCK).ok_or(Errno::ENOSPC)?;
        if block.get().is_none() {
            let mut slots = fallible::empty(BLOCK)?;
            slots.resize_with(BLOCK, || CachePadded::new(SpinLock::new(None)));
            block.set(slots);
        }
        Ok(self.slot(index).is_some_and(|slot| slot.lock().is_none()))
    }

    /// Makes `key` lead to `object` no more.
    pub fn forget_key(&self, object: &T, key: i32) {
        if key != IPC_PRIVATE {
            let mut keys = self.bucket(key).lock();
            if let Ok((at, id)) = find(&keys, key)
                && id == object.id().get()
            {
                keys.remove(at);
            }
        }
    }

    /// Removes `object`, whose key is forgotten. The caller holds no lock, and removes it once.
    pub fn remove(&self, object: &T) {
        let index = index(object.id().get());
        let Some(slot) = self.slot(index) else { return };
        let gone = slot.lock().take();
        let mut places = self.places.lock();
        places.used -= 1;
        places.sum -= object.size();
        if places.highest == index {
            // Another object may have the index by now.
            let is_used = |&at: &usize| self.slot(at).is_some_and(|slot| slot.lock().is_some());
            places.highest = (0..=index).rev().find(is_used).unwrap_or(0);
        }
        drop(places);
        drop(gone);
    }

    /// Returns the number of objects.
    pub fn count(&self) -> usize {
        self.places.lock().used
    }

    /// Returns the sum of the objects' sizes.
    pub fn sum(&self) -> u64 {
        self.places.lock().sum
    }

    /// Calls `visit` with the objects by rising indices.
    pub fn for_each(&self, mut visit: impl FnMut(&Arc<T>)) {
        let blocks = self.blocks.iter().map_while(SetOnce::get);
        for slot in blocks.flatten() {
            let object = slot.lock().clone();
            object.iter().for_each(&mut visit);
        }
    }

    /// Returns the highest index of an object, or 0 if there is none.
    pub fn highest(&self) -> u64 {
        self.places.lock().highest as u64
    }
}

/// Returns the place of a key and its identifier, or the place where it belongs.
fn find(keys: &[(i32, u32)], key: i32) -> Result<(usize, u32), usize> {
    let at = keys.binary_search_by_key(&key, |entry| entry.0)?;
    keys.get(at).map(|entry| (at, entry.1)).ok_or(at)
}

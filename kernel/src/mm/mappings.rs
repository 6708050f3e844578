//! The reverse map from a file to its mappings, by which truncation and reclaim find every page that shows
//! the file.
//!
//! Each core has a list, made when the file is first mapped, so cores that map and unmap one file share no
//! cache line. The links of a list are in the records themselves.
//!
//! 1. A list's lock guards the links of the records in it. It is taken with slots locked (a fork, a move), so
//!    its holder waits for nothing.
//! 2. A walk holds a reference to one record at a time, and no lock. The record stays in its list meanwhile,
//!    so its next link stays valid.
//! 3. A record whose count has become zero may still be in its list. A walk revives it under the lock, or
//!    skips it. `release` waits for that lock before it frees the record.
//! 4. A walk that has not visited a record yet visits its copies too. During a walk, a copy is inserted
//!    directly behind the original. Otherwise it goes to the list of the core that makes it, so that forks on
//!    different cores share no line. The number of walks is read with that list locked: either the walk locks
//!    the list later and finds the copy, or it was counted before it locked the list, and the count is seen.
//! 5. A walk may pass a copy that shows no page yet, and that copy may later get pages which the walk then
//!    removes from its original. So a walk makes two rounds: in the second round no original has a page left
//!    to copy.

use core::cell::UnsafeCell;
use core::ptr::NonNull;

use abi::Errno;
use percore::{CoreId, PerCore, pin};
use sync::atomic::{AtomicUsize, Ordering};
use sync::{SetOnce, SpinLock};

use super::file_mapping::{FileMapping, Held};
use crate::arch;

type Pointer = Option<NonNull<FileMapping>>;
type Lists = PerCore<SpinLock<List>>;

/// The mappings of one file.
pub struct Mappings {
    lists: SetOnce<Lists>,
    /// Held while the file gets its lists, which happens once.
    opening: SpinLock<()>,
    /// Number of walks that are under way. Relaxed: the lists' locks order it, see 4.
    walks: AtomicUsize,
}

/// The index of the list that a record is in. Relaxed: it is set before the record is in a list, whose lock
/// publishes it.
pub(super) struct ListIndex(AtomicUsize);

impl ListIndex {
    /// Returns the index of this core's list.
    pub(super) fn here() -> Self {
        Self(AtomicUsize::new(pin().core().index()))
    }

    fn get(&self) -> CoreId {
        CoreId::new(self.0.load(Ordering::Relaxed))
    }
}

/// The neighbours of a record in its list.
pub(super) struct Links(UnsafeCell<(Pointer, Pointer)>);

// SAFETY: links are touched under their list's lock only.
unsafe impl Send for Links {}
// SAFETY: as for `Send`.
unsafe impl Sync for Links {}

impl Links {
    pub(super) const fn new() -> Self {
        Self(UnsafeCell::new((None, None)))
    }
}

struct List {
    first: Pointer,
}

// SAFETY: the records are shared by all cores, and their links belong to the list.
unsafe impl Send for List {}

impl Mappings {
    /// Returns the mappings of a file that is not mapped.
    pub const fn new() -> Self {
        Self { lists: SetOnce::new(), opening: SpinLock::new(()), walks: AtomicUsize::new(0) }
    }

    /// Creates the lists if there are none.
    ///
    /// # Errors
    /// No memory for them.
    pub(super) fn open(&self) -> Result<(), Errno> {
        if self.lists.get().is_none() {
            let _alone = self.opening.lock();
            if self.lists.get().is_none() {
                self.lists.set(new_lists()?);
            }
        }
        Ok(())
    }

    /// Inserts a record at the head of its list.
    pub(super) fn add(&self, record: NonNull<FileMapping>) {
        self.list(record).lock().insert(None, record);
    }

    /// Inserts a record that is a copy of `original`, which is in a list.
    pub(super) fn add_copy(&self, original: &FileMapping, record: NonNull<FileMapping>) {
        let mut list = self.list(record).lock();
        if self.walks.load(Ordering::Relaxed) == 0 {
            return list.insert(None, record);
        }
        drop(list);
        list_of(record).0.store(original.list.get().index(), Ordering::Relaxed);
        self.list(record).lock().insert(Some(original.into()), record);
    }

    /// Removes a record from its list.
    pub(super) fn remove(&self, record: NonNull<FileMapping>) {
        self.list(record).lock().remove(record);
    }

    /// Calls `visit` twice with every mapping that exists now, with no lock held. Mappings that are added
    /// meanwhile may be missed, unless they are copies.
    pub fn for_each(&self, mut visit: impl FnMut(&Held)) {
        self.walks.fetch_add(1, Ordering::Relaxed);
        (0..2).for_each(|_| self.go_round(&mut visit));
        self.walks.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns what `look` finds in the first mapping in which it finds something, with no lock held.
    /// Mappings that are added or copied meanwhile may be missed.
    pub fn find<T>(&self, mut look: impl FnMut(&Held) -> Option<T>) -> Option<T> {
        for list in self.lists.get().into_iter().flat_map(PerCore::iter) {
            let mut at = list.lock().held_behind(None);
            while let Some(held) = at {
                if let found @ Some(_) = look(&held) {
                    return found;
                }
                let next = list.lock().held_behind(Some(held.pointer()));
                at = next;
            }
        }
        None
    }

    fn go_round(&self, visit: &mut impl FnMut(&Held)) {
        self.find(|mapping| {
            visit(mapping);
            None::<()>
        });
    }

    fn list(&self, record: NonNull<FileMapping>) -> &SpinLock<List> {
        self.lists.get().expect("a file with records has lists").of(list_of(record).get())
    }
}

fn list_of<'r>(record: NonNull<FileMapping>) -> &'r ListIndex {
    // SAFETY: callers pass records that live.
    &unsafe { record.as_ref() }.list
}

fn new_lists() -> Result<Lists, Errno> {
    PerCore::try_new(arch::cores(), |_| SpinLock::new(List { first: None })).ok_or(Errno::ENOMEM)
}

impl List {
    fn insert(&mut self, before: Pointer, record: NonNull<FileMapping>) {
        let next = self.next(before).replace(record);
        *links(record) = (before, next);
        if let Some(next) = next {
            links(next).0 = Some(record);
        }
    }

    fn remove(&mut self, record: NonNull<FileMapping>) {
        let (before, next) = *links(record);
        *self.next(before) = next;
        if let Some(next) = next {
            links(next).0 = before;
        }
    }

    /// Returns the link to the record behind `record`, or to the first record.
    fn next(&mut self, record: Pointer) -> &mut Pointer {
        match record {
            None => &mut self.first,
            Some(record) => &mut links(record).1,
        }
    }

    /// Returns the next record that is not gone, with a reference to it.
    fn held_behind(&mut self, before: Pointer) -> Option<Held> {
        let mut at = *self.next(before);
        while let Some(record) = at {
            // SAFETY: a record in the list has not been released.
            if let Some(held) = unsafe { record.as_ref() }.hold(&pin()) {
                return Some(held);
            }
            at = *self.next(at);
        }
        None
    }
}

fn links<'l>(record: NonNull<FileMapping>) -> &'l mut (Pointer, Pointer) {
    // SAFETY: the record lives, and the caller holds its list's lock. Callers keep no two such references at
    // a time.
    unsafe { &mut *record.as_ref().links.0.get() }
}

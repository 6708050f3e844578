//! From a file to its mappings: the reverse map, by which truncation and reclaim find every page that shows
//! the file.
//!
//! A list for each core, made when the file is first mapped: cores that map and unmap one file share nothing. A list goes
//! through the records themselves.
//!
//! 1. A list's lock guards the links of the records in it. It is taken with slots locked (a fork, a move), so nothing is
//!    waited for while it is held.
//! 2. A walk holds one record at a time, by a reference, with no lock: it stays in its list meanwhile, so its next is the
//!    next.
//! 3. A record whose count has become zero may still be in its list. A walk revives it under the lock, or passes it by;
//!    `release` waits for that lock before it frees the record.
//! 4. A walk that has not been at a record yet comes to its copies too. While somebody walks, a copy goes right behind the
//!    original. Otherwise it goes to the list of the core that makes it, so that forks on different cores share nothing.
//!    Whether somebody walks is asked with that list locked: either the walk locks the list later and finds the copy, or it
//!    was counted before it locked the list, and that is seen.
//! 5. A copy that was there when the walk began may be passed before it has anything, and be given later what the walk then
//!    takes from its original. So a walk goes round twice: in the second round no original has anything left to give.

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
    /// Walks that are under way. Relaxed: the lists' locks order it, see 4.
    walks: AtomicUsize,
}

/// The index of the list that a record is in. Relaxed: it is set before the record is in a list, whose lock
/// publishes it.
pub(super) struct ListIndex(AtomicUsize);

impl ListIndex {
    /// Returns that of this core's list.
    pub(super) fn here() -> Self {
        Self(AtomicUsize::new(pin().core().index()))
    }

    fn get(&self) -> CoreId {
        CoreId::new(self.0.load(Ordering::Relaxed))
    }
}

/// Where in its list a record is.
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

// SAFETY: the records are shared by all cores; their links belong to the list.
unsafe impl Send for List {}

/// Held while a file gets its lists: that is once.
static OPENING: SpinLock<()> = SpinLock::new(());

impl Mappings {
    /// Those of a file that nobody maps.
    pub const fn new() -> Self {
        Self { lists: SetOnce::new(), walks: AtomicUsize::new(0) }
    }

    /// Makes sure that there are lists.
    ///
    /// # Errors
    /// No memory for them.
    pub(super) fn open(&self) -> Result<(), Errno> {
        if self.lists.get().is_none() {
            let _alone = OPENING.lock();
            if self.lists.get().is_none() {
                self.lists.set(new_lists()?);
            }
        }
        Ok(())
    }

    /// Adds a record to its list, in front.
    pub(super) fn add(&self, record: NonNull<FileMapping>) {
        self.list(record).lock().insert(None, record);
    }

    /// Adds a record that is a copy of `original`, which is in a list.
    pub(super) fn add_copy(&self, original: &FileMapping, record: NonNull<FileMapping>) {
        let mut list = self.list(record).lock();
        if self.walks.load(Ordering::Relaxed) == 0 {
            return list.insert(None, record);
        }
        drop(list);
        list_of(record).0.store(original.list.get().index(), Ordering::Relaxed);
        self.list(record).lock().insert(Some(original.into()), record);
    }

    /// Takes a record out.
    pub(super) fn remove(&self, record: NonNull<FileMapping>) {
        self.list(record).lock().remove(record);
    }

    /// Calls `visit` with every mapping that there is now, twice, with no lock held. Those that are added meanwhile may be
    /// missed, unless they are copies.
    pub fn for_each(&self, mut visit: impl FnMut(&Held)) {
        self.walks.fetch_add(1, Ordering::Relaxed);
        (0..2).for_each(|_| self.go_round(&mut visit));
        self.walks.fetch_sub(1, Ordering::Relaxed);
    }

    fn go_round(&self, visit: &mut impl FnMut(&Held)) {
        for list in self.lists.get().into_iter().flat_map(PerCore::iter) {
            let mut at = list.lock().held_behind(None);
            while let Some(held) = at {
                visit(&held);
                let next = list.lock().held_behind(Some(held.pointer()));
                at = next;
            }
        }
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

    /// What comes behind `record`, or first.
    fn next(&mut self, record: Pointer) -> &mut Pointer {
        match record {
            None => &mut self.first,
            Some(record) => &mut links(record).1,
        }
    }

    /// The next record that is still there, with a reference.
    fn held_behind(&mut self, before: Pointer) -> Option<Held> {
        let mut at = *self.next(before);
        while let Some(record) = at {
            // SAFETY: what is in the list has not been released.
            if let Some(held) = unsafe { record.as_ref() }.hold(&pin()) {
                return Some(held);
            }
            at = *self.next(at);
        }
        None
    }
}

fn links<'l>(record: NonNull<FileMapping>) -> &'l mut (Pointer, Pointer) {
    // SAFETY: the record lives, and the caller holds its list's lock; callers keep no two at a time.
    unsafe { &mut *record.as_ref().links.0.get() }
}

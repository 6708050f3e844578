//! A machine of two or three cores, each played by one loom thread, and one object whose payload detects late
//! accesses. Loom reports a release that is not ordered after every read, and a read after the release finds
//! the payload changed.

use std::ptr::NonNull;
use std::sync::Arc;

use loom::thread::{self, JoinHandle};
use percore::{CoreId, Pinned};
use refcache::{Config, DYING, Header, Refcache, WeakWord};
use sync::UnsafeCell;
use sync::atomic::{AtomicU64, Ordering};

#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    Plain,
    /// The object has a weak word.
    Named,
    /// The object can tell its sole holder.
    Watched,
}

/// The weak word's value when it names something else.
const ELSE: u64 = 8;

#[repr(C, align(64))]
pub struct Object {
    header: Header,
    word: WeakWord,
    releases: UnsafeCell<u32>,
}

struct Shared {
    refcache: Refcache,
    object: NonNull<Object>,
    cores: usize,
    /// Takes the object's place in a cache of one slot.
    bystander: NonNull<Object>,
}

// SAFETY: the objects live as long as this, and are made to be shared.
unsafe impl Send for Shared {}
// SAFETY: as for `Send`.
unsafe impl Sync for Shared {}

impl Drop for Shared {
    fn drop(&mut self) {
        for object in [self.object, self.bystander] {
            // SAFETY: made by `Box`, and not used after this.
            drop(unsafe { Box::from_raw(object.as_ptr()) });
        }
    }
}

fn new_object(count: i64, kind: Kind) -> NonNull<Object> {
    let place = NonNull::from(Box::leak(Box::<Object>::new_uninit())).cast::<Object>();
    // SAFETY: within the allocation.
    let word = unsafe { NonNull::new_unchecked(&raw mut (*place.as_ptr()).word) };
    let header = match kind {
        Kind::Watched => Header::with_sole(count, release),
        _ => Header::new(count, (kind == Kind::Named).then_some(word), release),
    };
    let object = Object {
        header,
        word: WeakWord(AtomicU64::new(place.addr().get() as u64)),
        releases: UnsafeCell::new(0),
    };
    // SAFETY: just allocated.
    unsafe { place.write(object) };
    place
}

unsafe fn release(_: &Refcache, _: &Pinned, header: NonNull<Header>) {
    // SAFETY: the objects here live as long as the machine, and loom checks that no other thread accesses the
    // payload.
    unsafe { header.cast::<Object>().as_ref().releases.with_mut(|releases| *releases += 1) }
}

/// The machine, as one core sees it.
pub struct Core {
    shared: Arc<Shared>,
    pub pin: Pinned,
}

/// Explores `model` on a machine of `cores` cores, all online and none flushed in the current epoch, with an
/// object of `count` references. `model` gets core 0. The other cores are for [`Core::spawn`].
pub fn explore(
    preemptions: usize,
    cores: usize,
    kind: Kind,
    count: i64,
    model: impl Fn(Core) + Send + Sync + 'static,
) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    // A drain of several epochs has more steps than loom's usual 1,000.
    builder.max_branches = 5_000;
    builder.check(move || {
        let config = Config { cores, cache_slots: 1, review_budget: 4 };
        let shared = Arc::new(Shared {
            refcache: Refcache::new(config),
            cores,
            object: new_object(count, kind),
            bystander: new_object(1, Kind::Plain),
        });
        let first = Core::new(&shared, 0);
        first.everywhere(|core| core.refcache().online(&core.pin));
        first.refcache().tick(&first.pin);
        model(first);
    });
}

impl Core {
    fn new(shared: &Arc<Shared>, core: usize) -> Self {
        // SAFETY: one thread plays a core: `spawn` starts one thread for each, and `everywhere` follows the
        // joins.
        Self { shared: Arc::clone(shared), pin: unsafe { Pinned::assume(CoreId::new(core)) } }
    }

    /// Starts another core's thread.
    pub fn spawn<R: 'static>(&self, core: usize, run: impl FnOnce(Core) -> R + 'static) -> JoinHandle<R> {
        let shared = Arc::clone(&self.shared);
        thread::spawn(move || run(Core::new(&shared, core)))
    }

    /// Plays core 1 before its thread starts.
    pub fn as_core_1(&self, act: impl Fn(&Core)) {
        self.as_core(1, act);
    }

    /// Plays a core before its thread starts.
    pub fn as_core(&self, core: usize, act: impl Fn(&Core)) {
        act(&Core::new(&self.shared, core));
    }

    /// Plays every core in turn. Called only while no other thread plays one.
    fn everywhere(&self, act: impl Fn(&Core)) {
        (0..self.shared.cores).for_each(|core| act(&Core::new(&self.shared, core)));
    }

    pub fn refcache(&self) -> &Refcache {
        &self.shared.refcache
    }

    fn object(&self) -> &Object {
        // SAFETY: the object lives as long as the machine.
        unsafe { self.shared.object.as_ref() }
    }

    pub fn add(&self, delta: i64) {
        // SAFETY: the models check that references are held as claimed, and the memory stays.
        unsafe { self.refcache().adjust(&self.pin, self.shared.object.cast(), delta) }
    }

    /// Drops a reference as a thread without a core does. Under loom no thread has a core by the host.
    pub fn drop_reference(&self) {
        // SAFETY: as in `add`.
        unsafe { self.refcache().drop_references(self.shared.object.cast(), 1) }
    }

    /// Makes a second reference, to hand on.
    pub fn share(&self) {
        // SAFETY: as in `add`.
        unsafe { self.refcache().add_references(&self.pin, self.shared.object.cast(), 1) }
    }

    pub fn is_sole(&self) -> bool {
        self.object().header.is_sole()
    }

    /// Writes the payload if the object is sole, as only a sole holder may: loom checks that no other thread
    /// accesses it. Returns whether it wrote.
    pub fn take_if_sole(&self) -> bool {
        let sole = self.is_sole();
        if sole {
            // SAFETY: as in `release`.
            self.object().releases.with_mut(|releases| unsafe { *releases += 1 });
        }
        sole
    }

    /// Evicts the object from this core's cache.
    pub fn conflict(&self) {
        // SAFETY: the bystander keeps its first reference for ever.
        unsafe { self.refcache().adjust(&self.pin, self.shared.bystander.cast(), 1) }
    }

    pub fn ticks(&self, times: usize) {
        for _ in 0..times {
            self.refcache().tick(&self.pin);
        }
    }

    /// Uses the object, which must be alive.
    pub fn read(&self) {
        assert_eq!(self.releases(), 0, "a released object was used");
    }

    /// Looks the object up by its weak word.
    pub fn find(&self) -> bool {
        self.object().word.revive(&self.pin) == self.shared.object.addr().get() as u64
    }

    /// Uses the weak word for something else, which Refcache must not change.
    pub fn rename(&self) {
        self.rename_to(ELSE);
    }

    /// Uses the weak word for something else that is marked, as if another object were found dead already.
    pub fn rename_and_mark(&self) {
        self.rename_to(ELSE | DYING);
    }

    fn rename_to(&self, word: u64) {
        self.object().header.unname();
        self.object().word.0.swap(word, Ordering::Release);
    }

    /// Returns whether the weak word has the value that `rename` gave it.
    pub fn is_renamed(&self) -> bool {
        self.object().word.0.load(Ordering::Relaxed) == ELSE
    }

    /// Returns whether the weak word has the value that `rename_and_mark` gave it.
    pub fn is_renamed_and_marked(&self) -> bool {
        self.object().word.0.load(Ordering::Relaxed) == ELSE | DYING
    }

    /// Returns whether the weak word names nothing any more.
    pub fn is_gone(&self) -> bool {
        self.object().word.0.load(Ordering::Acquire) == 0
    }

    fn releases(&self) -> u32 {
        // SAFETY: loom checks that no thread writes meanwhile.
        self.object().releases.with(|releases| unsafe { *releases })
    }

    /// Returns data that belongs to the weak word, and that readers of the object read.
    fn side(&self) -> &UnsafeCell<u32> {
        // SAFETY: the bystander lives as long as the machine, and is not released in the models that use
        // this.
        unsafe { &self.shared.bystander.as_ref().releases }
    }

    pub fn read_side(&self) {
        // SAFETY: loom checks that no thread writes meanwhile.
        self.side().with(|side| unsafe { assert_eq!(*side, 0) });
    }

    pub fn write_side(&self) {
        // SAFETY: loom checks that no other thread accesses it.
        self.side().with_mut(|side| unsafe { *side = 1 });
    }

    /// Checks, after all threads have been joined, that no reference is left, so that the object is released,
    /// once.
    pub fn expect_release(&self) {
        self.settle();
        assert_eq!(self.releases(), 1, "never released, or twice");
    }

    /// Checks, after all threads have been joined, that the object stays while references are left, and is
    /// released after `references` are dropped.
    pub fn expect_release_after(&self, references: i64) {
        self.settle();
        self.read();
        self.add(-references);
        self.expect_release();
    }

    /// Checks, after all threads have been joined, that there is one reference and that its holder is told
    /// so.
    pub fn expect_sole(&self) {
        self.settle();
        assert!(self.is_sole(), "the sole holder was not told");
    }

    /// Turns enough epochs for any review.
    fn settle(&self) {
        self.everywhere(|core| core.refcache().online(&core.pin));
        (0..7).for_each(|_| self.everywhere(|core| core.ticks(1)));
    }
}

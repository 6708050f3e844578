//! A small machine for tests. One thread plays all cores, one call at a time, so that every schedule can be
//! written down exactly. The objects remember whether they were released.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use percore::{CoreId, Pinned};
use refcache::{Config, Header, Refcache, Tick, WeakWord};

/// A counted object.
#[repr(C, align(64))]
pub struct Object {
    header: Header,
    pub word: WeakWord,
    released: Cell<u32>,
    /// Set if its release keeps it.
    is_kept: Cell<bool>,
    /// The steps that its release still has to take, each of which begins it anew.
    steps: Cell<u32>,
    /// An object that this one holds a reference to.
    next: Option<Name>,
}

impl Object {
    pub fn header(&self) -> &Header {
        &self.header
    }
}

/// The name by which tests refer to an object, valid until the world is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Name(NonNull<Object>);

impl Name {
    pub fn object(&self) -> &Object {
        // SAFETY: objects are freed with the world, and no `&mut` to one exists.
        unsafe { self.0.as_ref() }
    }

    /// Returns the answer that a holder gets.
    pub fn is_sole(self) -> bool {
        self.object().header.is_sole()
    }

    /// Makes its release keep it, or let it go.
    pub fn keep(self, keep: bool) {
        self.object().is_kept.set(keep);
    }

    /// Makes its release take this number of steps before the last one.
    pub fn take_steps(self, steps: u32) {
        self.object().steps.set(steps);
    }

    /// Returns whether it was released. Panics if it was released twice.
    pub fn is_released(self) -> bool {
        let times = self.object().released.get();
        assert!(times <= 1, "released {times} times");
        times == 1
    }
}

unsafe fn release(refcache: &Refcache, pin: &Pinned, header: NonNull<Header>) {
    let name = Name(header.cast());
    let Object { is_kept, steps, .. } = name.object();
    if is_kept.get() || steps.get() > 0 {
        // SAFETY: the domain has forgotten the object, which gets one reference that is dropped at once.
        unsafe {
            header.write(Header::new(1, None, release));
            refcache.adjust(pin, header, -1);
        }
        return if is_kept.get() { refcache.note_kept(pin) } else { steps.set(steps.get() - 1) };
    }
    name.object().released.set(name.object().released.get() + 1);
    if let Some(next) = name.object().next {
        // SAFETY: this object's reference is dropped with it.
        unsafe { refcache.adjust(pin, next.0.cast(), -1) }
    }
}

/// A domain, a token for each core, and the objects.
pub struct World {
    pub refcache: Refcache,
    pins: Vec<Pinned>,
    objects: Vec<Name>,
}

/// Returns whether `act` panics.
pub fn panics<R>(act: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(act)).is_err()
}

/// Returns a configuration with a roomy cache and no limit on reviews.
pub fn roomy(cores: usize) -> Config {
    Config { cores, cache_slots: 64, review_budget: usize::MAX }
}

impl World {
    /// Makes a world in which all cores are online, at the beginning of an epoch.
    pub fn new(config: Config) -> Self {
        // SAFETY: one thread plays all cores.
        let pins = (0..config.cores).map(|core| unsafe { Pinned::assume(CoreId::new(core)) }).collect();
        let world = Self { refcache: Refcache::new(config), pins, objects: Vec::new() };
        (0..config.cores).for_each(|core| world.refcache.online(world.pin(core)));
        world.turn();
        world
    }

    pub fn pin(&self, core: usize) -> &Pinned {
        &self.pins[core]
    }

    /// Makes an object with `count` references and no weak word.
    pub fn object(&mut self, count: i64) -> Name {
        self.make(|_| Header::new(count, None, release), None)
    }

    /// Makes an object with `count` references that its weak word names.
    pub fn weak_object(&mut self, count: i64) -> Name {
        self.make(|word| Header::new(count, Some(word), release), None)
    }

    /// Makes an object with `count` references that can tell its sole holder.
    pub fn watched_object(&mut self, count: i64) -> Name {
        self.make(|_| Header::with_sole(count, release), None)
    }

    /// Makes an object that holds a reference to `next`.
    pub fn object_holding(&mut self, count: i64, next: Name) -> Name {
        self.make(|_| Header::new(count, None, release), Some(next))
    }

    fn make(&mut self, header: impl FnOnce(NonNull<WeakWord>) -> Header, next: Option<Name>) -> Name {
        let place = NonNull::from(Box::leak(Box::<Object>::new_uninit())).cast::<Object>();
        // SAFETY: within the allocation.
        let word = unsafe { NonNull::new_unchecked(&raw mut (*place.as_ptr()).word) };
        let object = Object {
            header: header(word),
            word: WeakWord(AtomicU64::new(place.addr().get() as u64)),
            released: Cell::new(0),
            is_kept: Cell::new(false),
            steps: Cell::new(0),
            next,
        };
        // SAFETY: just allocated.
        unsafe { place.write(object) };
        self.objects.push(Name(place));
        Name(place)
    }

    pub fn adjust(&self, core: usize, name: Name, delta: i64) {
        assert!(!name.is_released(), "a test touched a released object");
        // SAFETY: the object lives, and the tests check that references are held as claimed.
        unsafe { self.refcache.adjust(self.pin(core), name.0.cast(), delta) }
    }

    /// Adds a reference to a watched object.
    pub fn share(&self, core: usize, name: Name) {
        assert!(!name.is_released(), "a test touched a released object");
        // SAFETY: as in `adjust`.
        unsafe { self.refcache.add_references(self.pin(core), name.0.cast(), 1) }
    }

    /// Makes an object's header anew, with one reference, as its sole holder may.
    pub fn renew(&self, name: Name) {
        assert!(name.is_sole());
        // SAFETY: the test holds a reference, there is no other, and the domain has forgotten the object.
        unsafe { (&raw mut (*name.0.as_ptr()).header).write(Header::with_sole(1, release)) }
    }

    /// Makes the releases to come let their objects go.
    pub fn keep_none(&self) {
        self.objects.iter().for_each(|name| name.keep(false));
    }

    pub fn tick(&self, core: usize) -> Tick {
        self.refcache.tick(self.pin(core))
    }

    /// Ticks the cores in turn until the epoch has turned.
    pub fn turn(&self) {
        let epoch = self.refcache.epoch();
        let mut cores = (0..self.pins.len()).cycle();
        while self.refcache.epoch() == epoch {
            self.tick(cores.next().unwrap());
        }
    }

    pub fn turns(&self, epochs: usize) {
        (0..epochs).for_each(|_| self.turn());
    }

    /// Returns whether a reader on `core` finds the object by its weak word.
    pub fn revive(&self, core: usize, name: Name) -> bool {
        name.object().word.revive(self.pin(core)) != 0
    }

    /// Returns whether the object's weak word is marked.
    pub fn is_dying(&self, name: Name) -> bool {
        name.object().word.0.load(Ordering::Relaxed) & refcache::DYING != 0
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for name in &self.objects {
            // SAFETY: made by `Box`, and the domain, which may still point to it, is not used again.
            drop(unsafe { Box::from_raw(name.0.as_ptr()) });
        }
    }
}

//! The maps, and the epochs by which they free removed objects.

use baselines::SkipList;
use bonsai::Bonsai;
use percore::{CoreId, Pinned, threads};
use radixmap::{Always, IfPresent, RadixMap, Value};
use refcache::Refcache;

/// Number of pages of a region. In the radix map they are a cache line of slots.
pub const PAGES: u64 = 8;

const NO_MEMORY: &str = "there is memory for a few regions";

/// A map from pages to regions.
pub trait Map: Sync {
    fn map(&self, pin: &Pinned, start: u64);
    fn unmap(&self, pin: &Pinned, start: u64);
    /// Returns whether the region of a page is found.
    fn finds(&self, pin: &Pinned, page: u64) -> bool;
}

/// The RCU domain and the Refcache of all cores.
pub struct Machine {
    pub rcu: rcu::Domain,
    pub refcache: Refcache,
}

impl Machine {
    pub fn new(cores: usize) -> Self {
        let config = refcache::Config { cores, cache_slots: 256, review_budget: 64 };
        let rcu = rcu::Domain::new(rcu::Config { cores, batch: 64, bound: 10_000 });
        Self { rcu, refcache: Refcache::new(config) }
    }

    /// Runs `act` with this thread as a core.
    pub fn as_core<R>(&self, core: usize, act: impl FnOnce(&Pinned) -> R) -> R {
        let _core = threads::enter(CoreId::new(core));
        let pin = percore::pin();
        self.rcu.online(&pin);
        self.refcache.online(&pin);
        let result = act(&pin);
        self.refcache.offline(&pin);
        self.rcu.offline(&pin);
        result
    }

    /// Does a core's regular work for the epochs. The core holds no reference meanwhile.
    pub fn rest(&self, pin: &Pinned) {
        self.rcu.quiesce(pin);
        self.refcache.tick(pin);
    }
}

/// The value of each page of a region in the radix map.
#[derive(Clone, Copy)]
pub struct Mapped;

const MAPPED: u64 = 1;

impl Value for Mapped {
    fn to_words(self) -> (u64, u64) {
        (MAPPED, 0)
    }
    fn from_words(_: u64, _: u64) -> Self {
        Self
    }
}

impl Map for RadixMap<Mapped, &Refcache> {
    fn map(&self, pin: &Pinned, start: u64) {
        self.lock_range(pin, start..start + PAGES, Always).expect(NO_MEMORY).fill(Mapped);
    }
    fn unmap(&self, pin: &Pinned, start: u64) {
        let range = self.lock_range(pin, start..start + PAGES, IfPresent);
        range.expect(NO_MEMORY).for_each(|entry| entry.clear());
    }
    fn finds(&self, pin: &Pinned, page: u64) -> bool {
        self.peek(pin, page).used
    }
}

impl Map for Bonsai<u64, u64, &rcu::Domain> {
    fn map(&self, pin: &Pinned, start: u64) {
        self.write(pin).insert(start, PAGES).expect(NO_MEMORY);
    }
    fn unmap(&self, pin: &Pinned, start: u64) {
        self.write(pin).remove(start).expect(NO_MEMORY);
    }
    fn finds(&self, pin: &Pinned, page: u64) -> bool {
        self.read(pin).floor(page).is_some_and(|(start, &pages)| page < start + pages)
    }
}

impl Map for SkipList<u64, &rcu::Domain> {
    fn map(&self, pin: &Pinned, start: u64) {
        self.insert(pin, start, PAGES).expect(NO_MEMORY);
    }
    fn unmap(&self, pin: &Pinned, start: u64) {
        self.remove(pin, start);
    }
    fn finds(&self, pin: &Pinned, page: u64) -> bool {
        self.read(pin).floor(page).is_some_and(|(start, &pages)| page < start + pages)
    }
}

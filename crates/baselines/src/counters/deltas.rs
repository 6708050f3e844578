//! Refcache behind the trait: per-core caches of deltas, and epochs.

use core::marker::PhantomData;
use core::mem::size_of;
use core::ptr::NonNull;

use percore::Pinned;
use refcache::{Config, Header, Refcache};
use sync::atomic::{AtomicBool, Ordering};

use crate::{OutOfMemory, Scheme, Zero};

/// Counts by [`refcache`].
#[derive(Debug)]
pub struct Deltas<'c> {
    domain: Refcache,
    cache_slots: usize,
    /// Neither longer nor shorter than the life of the counts.
    _counts: PhantomData<fn(&'c ()) -> &'c ()>,
}

/// Refcache's header, and the result of its review.
#[derive(Debug)]
#[repr(C)]
pub struct DeltaCount {
    header: Header,
    /// Set by the review, with Release, and taken by one call of `settle`, with Acquire.
    dead: AtomicBool,
}

impl Deltas<'_> {
    /// Returns a scheme with a domain of its own.
    pub fn new(config: Config) -> Self {
        let cache_slots = config.cache_slots;
        Self { domain: Refcache::new(config), cache_slots, _counts: PhantomData }
    }
}

impl<'c> Deltas<'c> {
    #[inline(always)]
    fn adjust(&self, pin: &Pinned, count: &'c DeltaCount, delta: i64) {
        // SAFETY: the count lives longer than the domain, for any delta, and its header is its first field.
        unsafe { self.domain.adjust(pin, NonNull::from(count).cast(), delta) }
    }
}

/// # Safety
/// The header of a `DeltaCount`.
unsafe fn release(_: &Refcache, _: &Pinned, header: NonNull<Header>) {
    // SAFETY: the caller's promise.
    unsafe { header.cast::<DeltaCount>().as_ref() }.dead.store(true, Ordering::Release);
}

impl<'c> Scheme<'c> for Deltas<'c> {
    type Count = DeltaCount;
    type Token = ();

    const NAME: &'static str = "refcache";
    const ZERO: Zero = Zero::ByEpoch;
    const FIRST: () = ();

    fn count(_cores: usize) -> Result<DeltaCount, OutOfMemory> {
        Ok(DeltaCount { header: Header::new(1, None, release), dead: AtomicBool::new(false) })
    }

    fn object_bytes(_cores: usize) -> usize {
        size_of::<DeltaCount>()
    }

    fn core_bytes(&self) -> usize {
        self.cache_slots * size_of::<Option<(NonNull<Header>, i64)>>()
    }

    #[inline(always)]
    fn inc(&self, pin: &Pinned, count: &'c DeltaCount) {
        self.adjust(pin, count, 1);
    }

    #[inline(always)]
    fn dec(&self, pin: &Pinned, count: &'c DeltaCount, (): ()) -> bool {
        self.adjust(pin, count, -1);
        false
    }

    fn settle(&self, _pin: &Pinned, count: &'c DeltaCount) -> bool {
        count.dead.swap(false, Ordering::Acquire)
    }

    fn online(&self, pin: &Pinned) {
        self.domain.online(pin);
    }

    fn offline(&self, pin: &Pinned) {
        self.domain.offline(pin);
    }

    fn tick(&self, pin: &Pinned) {
        self.domain.tick(pin);
    }
}

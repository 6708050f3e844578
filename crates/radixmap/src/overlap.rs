//! Debug builds remember which keys each core holds: a core that waits for itself waits for ever, and is told so.
//!
//! Each core has a few places, which it alone writes; a guard takes one while it lasts. Whoever waits for a slot looks whether
//! a guard of its own core touches that slot's keys: then that guard holds the slot. What finds no place is not remembered.
//! All is Relaxed: a core reads what it wrote itself.

pub(crate) use self::kept::{MapId, Record};

#[cfg(all(debug_assertions, not(loom)))]
mod kept {
    use core::ops::Range;

    use percore::{MAX_CORES, Pinned};
    use sync::atomic::{AtomicU64, Ordering};

    /// Guards of one core that are remembered at the same time.
    const PLACES: usize = 16;
    /// No map has this number.
    const FREE: u64 = 0;

    #[derive(Debug)]
    struct Place {
        map: AtomicU64,
        start: AtomicU64,
        end: AtomicU64,
    }

    static HELD: [[Place; PLACES]; MAX_CORES] = [const { [const { Place::new() }; PLACES] }; MAX_CORES];
    static MAPS: AtomicU64 = AtomicU64::new(FREE);

    impl Place {
        const fn new() -> Self {
            Self { map: AtomicU64::new(FREE), start: AtomicU64::new(0), end: AtomicU64::new(0) }
        }

        fn hold(&self, keys: &Range<u64>) {
            self.start.store(keys.start, Ordering::Relaxed);
            self.end.store(keys.end, Ordering::Relaxed);
        }

        fn touches(&self, keys: &Range<u64>) -> bool {
            self.start.load(Ordering::Relaxed) < keys.end && keys.start < self.end.load(Ordering::Relaxed)
        }

        fn is_of(&self, map: u64) -> bool {
            self.map.load(Ordering::Relaxed) == map
        }
    }

    /// The number of a map.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct MapId(u64);

    impl MapId {
        pub fn new() -> Self {
            Self(MAPS.fetch_add(1, Ordering::Relaxed) + 1)
        }

        /// The map goes: forgotten guards of it, of any core, hold nothing any more. Nobody else has guards of it.
        pub fn end(self) {
            let places = HELD.iter().flatten().filter(|place| place.is_of(self.0));
            places.for_each(|place| place.map.store(FREE, Ordering::Relaxed));
        }

        /// # Panics
        /// If this core holds one of the keys `span` itself.
        pub fn assert_not_held(self, pin: &Pinned, span: impl FnOnce() -> Range<u64>) {
            let (core, span) = (pin.core().index(), span());
            let held = HELD[core].iter().any(|place| place.is_of(self.0) && place.touches(&span));
            assert!(!held, "core {core} waits for keys {span:?}, which it holds itself");
        }
    }

    /// Keys of a map that this core holds, until it is dropped.
    #[derive(Debug)]
    pub(crate) struct Record(Option<&'static Place>);

    impl Record {
        pub fn new(pin: &Pinned, map: MapId, keys: &Range<u64>) -> Self {
            let place = HELD[pin.core().index()].iter().find(|place| place.is_of(FREE));
            if let Some(place) = place {
                place.hold(keys);
                place.map.store(map.0, Ordering::Relaxed);
            }
            Self(place)
        }

        /// From now on these keys.
        pub fn change(&self, keys: &Range<u64>) {
            self.0.into_iter().for_each(|place| place.hold(keys));
        }
    }

    impl Drop for Record {
        fn drop(&mut self) {
            self.0.into_iter().for_each(|place| place.map.store(FREE, Ordering::Relaxed));
        }
    }
}

#[cfg(not(all(debug_assertions, not(loom))))]
mod kept {
    use core::ops::Range;

    use percore::Pinned;

    #[derive(Clone, Copy, Debug)]
    pub(crate) struct MapId;

    impl MapId {
        pub fn new() -> Self {
            Self
        }

        pub fn end(self) {}

        #[inline(always)]
        pub fn assert_not_held(self, _: &Pinned, _: impl FnOnce() -> Range<u64>) {}
    }

    #[derive(Debug)]
    pub(crate) struct Record;

    impl Record {
        #[inline(always)]
        pub fn new(_: &Pinned, _: MapId, _: &Range<u64>) -> Self {
            Self
        }

        #[inline(always)]
        pub fn change(&self, _: &Range<u64>) {}
    }
}

//! Records of the keys that each core holds, in debug builds: a core that waits for itself panics instead of
//! waiting for ever.
//!
//! Each core has a few records, which it alone writes, and a guard occupies one while it lives. A core that
//! waits for a slot checks whether a guard of its own covers that slot's keys: then that guard holds the
//! slot. A guard that finds no free record is not recorded. All accesses are Relaxed: a core reads its own
//! writes.

pub(crate) use self::kept::{MapId, Record};

#[cfg(all(debug_assertions, not(loom)))]
mod kept {
    use core::ops::Range;

    use percore::{MAX_CORES, Pinned};
    use sync::atomic::{AtomicU64, Ordering};

    /// Number of guards of one core that can be recorded at the same time.
    const RECORDS: usize = 16;
    /// The number that no map has.
    const FREE: u64 = 0;

    #[derive(Debug)]
    struct HeldKeys {
        map: AtomicU64,
        start: AtomicU64,
        end: AtomicU64,
    }

    static HELD: [[HeldKeys; RECORDS]; MAX_CORES] =
        [const { [const { HeldKeys::new() }; RECORDS] }; MAX_CORES];
    static MAPS: AtomicU64 = AtomicU64::new(FREE);

    impl HeldKeys {
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

        /// Frees the records of leaked guards of this map, of any core, when the map is dropped. No other
        /// guards of it exist.
        pub fn end(self) {
            let records = HELD.iter().flatten().filter(|record| record.is_of(self.0));
            records.for_each(|record| record.map.store(FREE, Ordering::Relaxed));
        }

        /// Checks that this core does not hold one of the keys `span` itself.
        ///
        /// # Panics
        /// Panics if it does.
        pub fn assert_not_held(self, pin: &Pinned, span: impl FnOnce() -> Range<u64>) {
            let (core, span) = (pin.core().index(), span());
            let held = HELD[core].iter().any(|record| record.is_of(self.0) && record.touches(&span));
            assert!(!held, "core {core} waits for keys {span:?}, which it holds itself");
        }
    }

    /// The record of keys of a map that this core holds, until it is dropped.
    #[derive(Debug)]
    pub(crate) struct Record(Option<&'static HeldKeys>);

    impl Record {
        pub fn new(pin: &Pinned, map: MapId, keys: &Range<u64>) -> Self {
            let record = HELD[pin.core().index()].iter().find(|record| record.is_of(FREE));
            if let Some(record) = record {
                record.hold(keys);
                record.map.store(map.0, Ordering::Relaxed);
            }
            Self(record)
        }

        /// Replaces the recorded keys.
        pub fn change(&self, keys: &Range<u64>) {
            self.0.into_iter().for_each(|record| record.hold(keys));
        }
    }

    impl Drop for Record {
        fn drop(&mut self) {
            self.0.into_iter().for_each(|record| record.map.store(FREE, Ordering::Relaxed));
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

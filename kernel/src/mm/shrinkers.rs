//! Caches of the rooms above, which give memory back when it is short. They are registered once, at boot.

use percore::pin;
use sync::SetOnce;

use crate::counters::{self, Counter};

/// A cache whose contents can be made again.
pub trait Shrinker: Sync {
    /// Returns the number of frames that `shrink` would free in the end.
    fn count(&self) -> u64;
    /// Frees some of them, and returns how many. They become free some epochs later. The caller holds no
    /// lock.
    fn shrink(&self) -> u64;
}

static SHRINKERS: SetOnce<&[&dyn Shrinker]> = SetOnce::new();

/// Registers all caches. Called once, at boot.
pub fn register(shrinkers: &'static [&'static dyn Shrinker]) {
    SHRINKERS.set(shrinkers);
}

fn all() -> &'static [&'static dyn Shrinker] {
    SHRINKERS.get().copied().unwrap_or_default()
}

/// Returns the number of frames that [`shrink`] would free if it were called until nothing is left.
pub fn count() -> u64 {
    all().iter().map(|shrinker| shrinker.count()).sum()
}

/// Frees some frames of each cache that has any.
pub(super) fn shrink() {
    for shrinker in all().iter().filter(|shrinker| shrinker.count() > 0) {
        counters::add(&pin(), Counter::PagesReclaimed, shrinker.shrink() as i64);
    }
}

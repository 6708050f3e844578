//! The one Refcache domain and when its epochs move.

use percore::Pinned;

/// Runs epoch work if some is due. On the way to user mode and in the idle loop only: never where a
/// reference might be held.
pub fn tick_if_due(_pin: &Pinned) {}

/// This core goes to sleep: it leaves the epochs, and gives back what it keeps ready.
pub fn idle_enter() {}

/// This core is awake again.
pub fn idle_exit() {}

/// Memory is short: forces epochs and fetches back the frames that other cores keep. Returns whether anything
/// was found. The caller holds no lock and is not pinned.
pub fn reclaim() -> bool {
    false
}

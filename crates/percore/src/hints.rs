use sync::atomic::{AtomicU64, Ordering, fence};

use crate::{CoreId, CoreSet, MAX_CORES};

const WORDS: usize = MAX_CORES / 64;

/// The cores for which a condition may be true. A search reads this set instead of a word of every core.
///
/// The truth itself, such as "this core idles", is a word of the core's own. A core joins the set when its
/// truth becomes true, and stays there when it becomes false. Only a core that looks, and finds it false,
/// takes the other one out. So a core whose truth comes and goes writes nothing here, as long as no search is
/// misled.
///
/// | event | action |
/// |---|---|
/// | the truth of a core becomes true | writes the truth, then [`announce`](Self::announce)s the core |
/// | a core looks for others | reads the set, then the truth of each core in it, and [`withdraw`](Self::withdraw)s those where it is false |
///
/// 1. *A core whose truth is true, and that has returned from `announce`, is in the set, or another core is
///    inside `withdraw` for it, and finds the truth.* Both write one of the two words and read the other,
///    with a fence in between: `announce` follows the write of the truth and accesses the set, and `withdraw`
///    writes the set and then reads the truth.
/// 2. `announce` is a fence. If a look at the set does not find a core, then that core, if it reads other
///    data after its `announce`, sees everything that was written before the look. `withdraw` is such a fence
///    too.
#[derive(Debug)]
pub struct Hints([AtomicU64; WORDS]);

fn place(core: CoreId) -> (usize, u64) {
    (core.index() / 64, 1 << (core.index() % 64))
}

impl Default for Hints {
    fn default() -> Self {
        Self::new()
    }
}

impl Hints {
    sync::const_unless_loom! {
        /// Makes a set without cores.
        pub fn new() -> Self {
            Self([AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)])
        }
    }

    /// Adds `core`, whose truth the caller has just made true. Returns whether it was not in the set.
    pub fn announce(&self, core: CoreId) -> bool {
        fence(Ordering::SeqCst); // partner of that in `withdraw`
        let (word, bit) = place(core);
        // Relaxed, here and below: the fences order them.
        let is_new = self.0[word].load(Ordering::Relaxed) & bit == 0;
        if is_new {
            self.0[word].fetch_or(bit, Ordering::Relaxed);
            fence(Ordering::SeqCst); // promise 2
        }
        is_new
    }

    /// Takes out `core`, whose truth the caller has found false, unless `is_true` now returns true. Then it
    /// stays in the set, and `withdraw` returns true. Others may have missed it meanwhile, so the caller acts
    /// like a core that has just announced it.
    pub fn withdraw(&self, core: CoreId, is_true: impl FnOnce() -> bool) -> bool {
        let (word, bit) = place(core);
        self.0[word].fetch_and(!bit, Ordering::Relaxed);
        fence(Ordering::SeqCst); // partner of that in `announce`
        let stays = is_true();
        if stays {
            self.announce(core);
        }
        stays
    }

    /// Returns the cores to look at.
    pub fn cores(&self) -> CoreSet {
        CoreSet::from_words(core::array::from_fn(|word| self.0[word].load(Ordering::Relaxed)))
    }
}

const _: () = assert!(WORDS == 4, "`Hints::new` names each word");

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_core_stays_until_another_finds_it_false() {
        let (hints, core) = (Hints::new(), CoreId::new(70));
        assert!(hints.announce(core) && !hints.announce(core), "it is new once");
        assert!(hints.withdraw(core, || true), "it has become true again");
        assert!(hints.cores().iter().eq([core]));
        assert!(!hints.withdraw(core, || false));
        assert!(hints.cores().is_empty() && hints.announce(core));
    }
}

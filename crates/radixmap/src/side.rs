//! Second words: a node's side, a frame beside its slots.
//!
//! ```text
//!  node ──▶ slots:  [ main word, tags ]  [ main word, WIDE ]  [ main word ] ...    512 words, always
//!     └───▶ side:   [        -        ]  [   second word   ]  [     -     ] ...    512 words, once a slot needs one
//! ```
//! Most values have no second word, so most nodes have no side. A word of the side belongs to the slot of the
//! same index. The slot's holder reads and writes it, and it is valid only while the slot is WIDE. Most
//! leaves that have second words have one for all slots, which is kept in place of the side's address.
//!
//! | side | the cores that may change it, and the change |
//! |---|---|
//! | none | a holder of slots of the node that wants second words for them: CAS to one word, or to a frame |
//! | one word | a holder of slots that wants another word for them: CAS to a frame that has the one word everywhere |
//! | a frame | none: it stays until the node is freed |
//!
//! 1. A slot is WIDE only in a node with a side that can hold the slot's second word. The holder made sure of
//!    that (`fit`, `widen`), or found the slot WIDE and keeps its second word, or the node was made with
//!    both.
//! 2. Holders of different slots may change the side at the same time. One CAS wins. The others free their
//!    frames, which no other core has seen, and read the side again. The second word of a WIDE slot stays the
//!    same through each change.
//! 3. One word and an address are told apart by the lowest bit, which second words leave to the side.
//!
//! Orderings. The CAS is Release, and each read that may follow the frame's address is Acquire: a core that
//! finds the frame sees its words. The words themselves are Relaxed, because the slot's lock orders them.
//!
//! `read_each` and `set`, which access the words of a frame, are out of line. That keeps the other paths
//! short.

use core::ops::Range;
use core::ptr::{self, NonNull};

use sync::atomic::{AtomicU64, Ordering, fence};

use crate::allocate::{OutOfMemory, allocate_words, free};
use crate::levels::FANOUT;

/// One word for each slot.
#[repr(align(64))]
struct Words([AtomicU64; FANOUT]);

/// The content of a side.
enum Said<'a> {
    Nothing,
    One(u64),
    Each(&'a Words),
}

/// The mark of one word for all slots.
const ONE: u64 = 1;
const NONE: u64 = 0;

/// The address of the second words, or the one that all slots have. See the module.
#[derive(Debug)]
pub(crate) struct Side(AtomicU64);

impl Side {
    pub fn none() -> Self {
        Self(AtomicU64::new(NONE))
    }

    /// Returns whether every slot can have a second word of its own.
    #[inline(always)]
    pub fn is_frame(&self) -> bool {
        matches!(self.said(), Said::Each(_))
    }

    /// Makes sure that `second` can be stored, for any slots.
    #[inline(always)]
    pub fn fit(&self, second: u64) -> Result<(), OutOfMemory> {
        match self.said() {
            Said::One(one) if one == second => Ok(()),
            Said::Nothing if self.change(NONE, second | ONE) => Ok(()),
            _ => self.widen(second),
        }
    }

    /// Makes sure that any second words can be stored. If there was no side, all words are `second`.
    #[inline(always)]
    pub fn widen(&self, second: u64) -> Result<(), OutOfMemory> {
        if self.is_frame() { Ok(()) } else { self.make_frame(second) }
    }

    #[inline(never)]
    fn make_frame(&self, second: u64) -> Result<(), OutOfMemory> {
        loop {
            let (now, word) = match self.said() {
                Said::Nothing => (NONE, second),
                Said::One(one) => (one | ONE, one),
                Said::Each(_) => return Ok(()),
            };
            let words = allocate_words::<Words, _>(|_| AtomicU64::new(word))?;
            if !self.change(now, words.as_ptr().expose_provenance() as u64) {
                // SAFETY: from `allocate_words`, and no other core has seen it.
                unsafe { free(words) };
            }
        }
    }

    /// Changes the side, unless another core did. Returns whether it did. Release: pairs with the Acquire of
    /// each read. Relaxed: a core that loses reads again.
    fn change(&self, from: u64, to: u64) -> bool {
        self.0.compare_exchange(from, to, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Returns the second word of slot `index`, which the caller holds and which is WIDE.
    #[inline(always)]
    pub fn get(&self, index: usize) -> u64 {
        self.read(index).0
    }

    /// Returns the second word of slot `index`, and all second words if each slot has its own. Relaxed,
    /// because the slot's lock orders them.
    #[inline(always)]
    pub fn read(&self, index: usize) -> (u64, &[AtomicU64]) {
        match self.said() {
            Said::One(one) => (one, &[]),
            _ => self.read_each(index),
        }
    }

    /// Returns what [`read`](Self::read) returns if each slot has its own second word.
    #[inline(never)]
    fn read_each(&self, index: usize) -> (u64, &[AtomicU64]) {
        let words = self.each();
        assert!(!words.is_empty(), "a slot is WIDE without a side");
        (words[index].load(Ordering::Relaxed), words)
    }

    /// Returns whether all slots have the second word `one`. Relaxed: the caller follows no address.
    #[inline(always)]
    pub fn is_one(&self, one: u64) -> bool {
        self.0.load(Ordering::Relaxed) == one | ONE
    }

    /// Returns the second words if slots have their own. Relaxed as in `get`.
    pub fn each(&self) -> &[AtomicU64] {
        match self.said() {
            Said::Each(words) => &words.0,
            _ => &[],
        }
    }

    /// Stores the second word of slots, which the caller holds. The caller has made sure of the side.
    /// Relaxed: the unlock publishes.
    #[inline(never)]
    pub fn set(&self, slots: Range<usize>, second: u64) {
        // Release: pairs with the Acquire in `Slot::still_says`. A core that reads one of these words without
        // a lock sees its slot locked.
        fence(Ordering::Release);
        match self.said() {
            Said::One(one) if one == second => {}
            Said::Each(words) => words.0[slots].iter().for_each(|word| word.store(second, Ordering::Relaxed)),
            _ => panic!("a second word that its range was not made fit for"),
        }
    }

    /// Returns the address of the frame, if there is one.
    pub fn address(&self) -> Option<usize> {
        match self.said() {
            Said::Each(words) => Some(ptr::from_ref(words).addr()),
            _ => None,
        }
    }

    #[inline(always)]
    fn said(&self) -> Said<'_> {
        // Acquire: pairs with the Release in `change`.
        match self.0.load(Ordering::Acquire) {
            NONE => Said::Nothing,
            one if one & ONE != 0 => Said::One(one & !ONE),
            // SAFETY: published by `change`, and initialised. It stays as long as the node does.
            frame => Said::Each(unsafe { &*ptr::with_exposed_provenance(frame as usize) }),
        }
    }

    /// Frees the memory.
    ///
    /// # Safety
    /// No core uses the node any more.
    pub unsafe fn discard(&self) {
        if let Said::Each(words) = self.said() {
            // SAFETY: from `allocate_words`. The caller promises that it is unused.
            unsafe { free(NonNull::from(words)) }
        }
    }
}

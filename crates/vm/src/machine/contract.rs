//! Checks what a machine promises of its calls, where debug assertions are on.
//!
//! A space calls its machine ([`Mmu`], [`Frames`], [`Backings`]) and its callers' visitors with slots locked.
//! Each core notes the call that it is in, in one word of its own, and an operation that locks slots looks at
//! that word first.
//!
//! | promise | what breaking it does | the check |
//! |---|---|---|
//! | a call uses no space | the core waits for slots that it has locked itself, or locks them in the wrong order | an operation begins on a core that is in a call |
//! | a call does not sleep | the same, as soon as another task of the core uses a space | the same |
//! | a call ends on the core where it began | another core's table is filled in, and the tracker names this one | the pin is compared with the core, before the call and after |
//! | a call runs no epoch work | nodes go that the locked slots are in | Refcache looks for loans at each tick, RCU for readers |
//! | a call does not unpin | the same | `percore::threads`: a core that is pinned cannot be given up |
//! | what waits for another core serves shootdowns | two cores that shoot at each other wait for ever | the simulated machine looks at its inbox after each turn of a wait |
//!
//! The word is one for all spaces: a call of one space must not use another either.

use core::sync::atomic::{AtomicU8, Ordering};

use percore::{CoreId, CoreSet, MAX_CORES, Pinned};

use crate::{
    Access, BackingError, BackingNum, Backings, CompressedNum, FrameNum, Frames, Mmu, OutOfMemory, PageNum,
    PageRange, Prot, Shot, Tables,
};

/// The calls that a core makes with slots locked.
#[derive(Clone, Copy, Debug)]
pub enum Call {
    /// A call of an [`Mmu`].
    Mmu = 1,
    /// A call of [`Frames`].
    Frames,
    /// A call of [`Backings`].
    Backings,
    /// A call of a visitor that the caller of an operation passed to it.
    Visitor,
    /// A call of a [`ForkBacking`](crate::ForkBacking).
    ForkBacking,
    /// A call of a [`RemapBacking`](crate::RemapBacking).
    RemapBacking,
}

/// Calls by number.
const NAMES: [&str; 7] =
    ["none", "an Mmu", "Frames", "Backings", "a visitor", "a ForkBacking", "a RemapBacking"];

/// The call that each core is in, or 0. Relaxed: only the core itself reads it.
static CALLS: [AtomicU8; MAX_CORES] = [const { AtomicU8::new(0) }; MAX_CORES];

/// Checks that an operation of a space may lock slots on this core.
///
/// # Panics
/// If the core is in a call, or is not the one of `pin`, where debug assertions are on.
#[inline(always)]
pub fn lock_slots(pin: &Pinned) {
    if cfg!(debug_assertions) {
        pin.assert_here();
        let (core, call) = (pin.core().index(), call_of(pin.core()).load(Ordering::Relaxed));
        let name = NAMES[usize::from(call)];
        assert!(
            call == 0,
            "core {core} locks slots in a call of {name}, which must not sleep or use a space"
        );
    }
}

/// Does `call` for a space.
///
/// # Panics
/// If it begins or ends on another core than that of `pin`, where debug assertions are on.
#[inline(always)]
pub fn during<R>(pin: &Pinned, what: Call, call: impl FnOnce() -> R) -> R {
    if !cfg!(debug_assertions) {
        return call();
    }
    pin.assert_here();
    let inside = Inside::begin(pin.core(), what);
    let answer = call();
    drop(inside);
    pin.assert_here();
    answer
}

fn call_of(core: CoreId) -> &'static AtomicU8 {
    &CALLS[core.index()]
}

/// A core is in a call until the value is dropped, also by a panic.
struct Inside {
    core: CoreId,
    before: u8,
}

impl Inside {
    fn begin(core: CoreId, what: Call) -> Self {
        Self { core, before: call_of(core).swap(what as u8, Ordering::Relaxed) }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        call_of(self.core).store(self.before, Ordering::Relaxed);
    }
}

/// A machine's part whose calls are noted.
#[derive(Debug)]
pub struct Noted<T>(pub(crate) T);

impl<T: Mmu> Mmu for Noted<T> {
    #[inline(always)]
    fn tables(&self) -> Tables {
        self.0.tables()
    }
    #[inline(always)]
    fn fill(&self, pin: &Pinned, page: PageNum, frame: FrameNum, prot: Prot) -> Result<(), OutOfMemory> {
        during(pin, Call::Mmu, || self.0.fill(pin, page, frame, prot))
    }
    #[inline(always)]
    fn fill_huge(
        &self,
        pin: &Pinned,
        first: PageNum,
        frame: FrameNum,
        prot: Prot,
    ) -> Result<(), OutOfMemory> {
        during(pin, Call::Mmu, || self.0.fill_huge(pin, first, frame, prot))
    }
    #[inline(always)]
    fn clear(&self, pin: &Pinned, pages: PageRange) {
        during(pin, Call::Mmu, || self.0.clear(pin, pages))
    }
    #[inline(always)]
    fn clear_all(&self, pin: &Pinned, runs: &[PageRange]) {
        during(pin, Call::Mmu, || self.0.clear_all(pin, runs))
    }
    #[inline(always)]
    fn shootdown(&self, pin: &Pinned, targets: &CoreSet, pages: PageRange) -> Shot {
        during(pin, Call::Mmu, || self.0.shootdown(pin, targets, pages))
    }
    #[inline(always)]
    fn users(&self, pin: &Pinned) -> CoreSet {
        during(pin, Call::Mmu, || self.0.users(pin))
    }
    #[inline(always)]
    fn entry(&self, prot: Prot) -> u64 {
        self.0.entry(prot)
    }
    #[inline(always)]
    fn link(&self, pin: &Pinned, page: PageNum, leaf: usize) -> Result<bool, OutOfMemory> {
        during(pin, Call::Mmu, || self.0.link(pin, page, leaf))
    }
}

impl<T: Frames> Frames for Noted<T> {
    #[inline(always)]
    fn alloc_zeroed(&self, pin: &Pinned) -> Option<FrameNum> {
        during(pin, Call::Frames, || self.0.alloc_zeroed(pin))
    }
    #[inline(always)]
    fn alloc_huge(&self, pin: &Pinned, wanted: bool) -> Option<FrameNum> {
        during(pin, Call::Frames, || self.0.alloc_huge(pin, wanted))
    }
    #[inline(always)]
    fn allows_huge(&self, wanted: bool) -> bool {
        self.0.allows_huge(wanted)
    }
    #[inline(always)]
    fn alloc_huge_raw(&self, pin: &Pinned, wanted: bool) -> Option<FrameNum> {
        during(pin, Call::Frames, || self.0.alloc_huge_raw(pin, wanted))
    }
    #[inline(always)]
    fn fill_frame(&self, pin: &Pinned, frame: FrameNum, from: Option<FrameNum>) {
        during(pin, Call::Frames, || self.0.fill_frame(pin, frame, from))
    }
    #[inline(always)]
    fn alloc_copy(&self, pin: &Pinned, from: FrameNum) -> Option<FrameNum> {
        during(pin, Call::Frames, || self.0.alloc_copy(pin, from))
    }
    #[inline(always)]
    fn free(&self, pin: &Pinned, frame: FrameNum) {
        during(pin, Call::Frames, || self.0.free(pin, frame))
    }
    #[inline(always)]
    fn free_huge(&self, pin: &Pinned, first: FrameNum) {
        during(pin, Call::Frames, || self.0.free_huge(pin, first))
    }
    #[inline(always)]
    fn share(&self, pin: &Pinned, frame: FrameNum) {
        during(pin, Call::Frames, || self.0.share(pin, frame))
    }
    #[inline(always)]
    fn adjust(&self, pin: &Pinned, frame: FrameNum, by: i64) {
        during(pin, Call::Frames, || Frames::adjust(&self.0, pin, frame, by))
    }
    #[inline(always)]
    fn unshare(&self, pin: &Pinned, frame: FrameNum) -> bool {
        during(pin, Call::Frames, || self.0.unshare(pin, frame))
    }
    #[inline(always)]
    fn compress(&self, pin: &Pinned, frame: FrameNum) -> Option<CompressedNum> {
        during(pin, Call::Frames, || self.0.compress(pin, frame))
    }
    #[inline(always)]
    fn decompress(&self, pin: &Pinned, compressed: CompressedNum, frame: FrameNum) {
        during(pin, Call::Frames, || self.0.decompress(pin, compressed, frame))
    }
    #[inline(always)]
    fn adjust_compressed(&self, pin: &Pinned, compressed: CompressedNum, by: i64) {
        during(pin, Call::Frames, || self.0.adjust_compressed(pin, compressed, by))
    }
}

impl<T: Backings> Backings for Noted<T> {
    #[inline(always)]
    fn placed(&self, pin: &Pinned, backing: BackingNum, start: PageNum) {
        during(pin, Call::Backings, || self.0.placed(pin, backing, start))
    }
    #[inline(always)]
    fn grown(&self, pin: &Pinned, backing: BackingNum, end: PageNum) {
        during(pin, Call::Backings, || self.0.grown(pin, backing, end))
    }
    #[inline(always)]
    fn frame(
        &self,
        pin: &Pinned,
        backing: BackingNum,
        page: PageNum,
        access: Access,
    ) -> Result<FrameNum, BackingError> {
        during(pin, Call::Backings, || Backings::frame(&self.0, pin, backing, page, access))
    }
    #[inline(always)]
    fn adjust(&self, pin: &Pinned, backing: BackingNum, pages: i64) {
        during(pin, Call::Backings, || Backings::adjust(&self.0, pin, backing, pages))
    }
}

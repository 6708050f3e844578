//! Signals to the process for threads in address spaces of their own: the words by which members say which
//! signals they take, and by which the *courier* gives them. It is a thread that sleeps until there is a
//! signal for a member, or until it is called. The runtime says how it sleeps, and how a signal is taken from
//! the process and queued by a member.
//!
//! | state of the courier | it | becomes |
//! |---|---|---|
//! | [`AWAKE`] | looks at the sets, or gives signals | resting, by itself |
//! | [`RESTS`] | sleeps until a signal that is watched is pending in the process, or until it is called | awake, by itself or by a call; later, by the leader |
//! | [`LATER`] | is called, and looks after a delay | awake, by itself or by a call |
//!
//! | the set of a member | it | becomes |
//! |---|---|---|
//! | without [`CLAIMED`] | may change | claimed, by the courier, if it has the signal |
//! | with [`CLAIMED`] | is about to get a signal, and loses none but at the begin of a handler | not claimed, by the member when it has queued that or refuses it, or by the courier when there is none |
//!
//! 1. *No member waits unseen.* A member changes its set and then reads what is watched and the state. The
//!    courier writes those and then reads the sets. All that is done to a set is a read-modify-write, so one
//!    of two comes first: the courier sees the change, or the member reads what the courier has written.
//! 2. *A signal leaves the process only for a member that is claimed.*
//! 3. *A member that is claimed gets its signal before its set loses any* ([`publish_unclaimed`]), so none is
//!    lost with a wait that ends by its time. A handler cannot wait ([`publish`]): a member refuses what its
//!    set does not have any more ([`accepts`]), and the courier gives it to another one, or back.
//! 4. *A look has a number.* A member that has called waits until the number has changed.

use sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Says in a member's set that it is about to get a signal. SIGKILL is in no set.
pub const CLAIMED: u64 = 1 << 8;

/// The courier looks, or gives signals.
pub const AWAKE: u32 = 0;
/// It sleeps.
pub const RESTS: u32 = 1;
/// It looks after a delay.
pub const LATER: u32 = 2;
/// The bits of the state, and one look.
const STATE: u32 = 3;
const NEXT: u32 = 4;

/// The words of the courier.
#[derive(Clone, Copy)]
pub struct Courier<'a> {
    /// Its state, and above that the number of its looks. Members sleep here.
    pub rests: &'a AtomicU32,
    /// The signals for which it looks.
    pub watched: &'a AtomicU64,
}

// ---- A member.

/// Writes a member's set, which stays claimed if it is. Returns the set before.
pub fn publish(set: &AtomicU64, open: u64) -> u64 {
    let replace = |old: u64| Some(open | old & CLAIMED);
    // AcqRel pairs with the AcqRel in `seen`. The closure returns a value always.
    set.fetch_update(Ordering::AcqRel, Ordering::Relaxed, replace).unwrap_or(0)
}

/// Adds signals to a member's set.
pub fn add(set: &AtomicU64, more: u64) {
    // AcqRel pairs with the AcqRel in `seen`.
    set.fetch_or(more, Ordering::AcqRel);
}

/// Removes signals from a member's set. The member is not claimed.
pub fn remove(set: &AtomicU64, less: u64) {
    // AcqRel pairs as in `add`.
    set.fetch_and(!less, Ordering::AcqRel);
}

/// Writes a member's set when it has got the signal for which it is claimed. `stay` waits for a moment and
/// answers requests meanwhile. Returns the set before.
pub fn publish_unclaimed(set: &AtomicU64, open: u64, mut stay: impl FnMut()) -> u64 {
    let mut old = set.load(Ordering::Relaxed);
    loop {
        let is_free = old & CLAIMED == 0 || old & !CLAIMED & !open == 0;
        let new = open | old & CLAIMED;
        // AcqRel pairs with the AcqRel in `seen`, and with that of this member in `end_claim`.
        if is_free && set.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return old;
        }
        if !is_free {
            stay();
        }
        old = set.load(Ordering::Relaxed);
    }
}

/// Returns the state to which a member has to call the courier, when its set has changed. `leaders` is the
/// leader's set.
pub fn call_after(
    courier: Courier<'_>,
    leaders: &AtomicU64,
    is_leader: bool,
    old: u64,
    open: u64,
) -> Option<u32> {
    // The courier wrote it before it looked at the set, or it looks later.
    let unwatched = !courier.watched.load(Ordering::Relaxed);
    if is_leader {
        return (old & !CLAIMED & !open & unwatched != 0).then_some(LATER);
    }
    (open & unwatched & !leaders.load(Ordering::Relaxed) != 0).then_some(AWAKE)
}

/// Calls the courier. `rouse` ends its rest, and `wake` wakes those that sleep at its state. Returns the
/// number of the look that it takes then, unless it is awake.
pub fn call(rests: &AtomicU32, to: u32, rouse: impl FnOnce(), wake: impl FnOnce()) -> Option<u32> {
    let value = rests.load(Ordering::Relaxed);
    let (look, state) = (value & !STATE, value & STATE);
    if state == AWAKE || state == to {
        return None;
    }
    // Release pairs with the acquire in `rest`: the courier sees the set of the one that calls.
    rests.compare_exchange(value, look | to, Ordering::AcqRel, Ordering::Relaxed).ok()?;
    if state == RESTS {
        rouse()
    } else {
        wake()
    }
    Some(look)
}

/// Waits until the courier has looked: what is pending for this member has come then. `call` calls it awake,
/// and `stay` waits while its state has a value, and answers requests meanwhile.
pub fn look(rests: &AtomicU32, mut call: impl FnMut() -> Option<u32>, mut stay: impl FnMut(u32)) {
    let mut look = None;
    loop {
        look = look.or_else(&mut call);
        // Acquire pairs with the release in `end_look`.
        let value = rests.load(Ordering::Acquire);
        if look.is_some_and(|look| look != value & !STATE) {
            return;
        }
        if look.is_some() || value & STATE == AWAKE {
            stay(value);
        }
    }
}

/// Returns whether this member takes the signal for which it is claimed. It has lost that if it has begun a
/// handler meanwhile.
pub fn accepts(set: &AtomicU64, signal: u64) -> bool {
    set.load(Ordering::Relaxed) & signal != 0
}

/// Ends the claim of this member, which has queued the signal or refused it. If that ended its wait, `left`
/// is the set that it takes now.
pub fn end_claim(set: &AtomicU64, left: Option<u64>) {
    match left {
        Some(left) => _ = set.swap(left, Ordering::AcqRel),
        None => _ = set.fetch_and(!CLAIMED, Ordering::AcqRel),
    }
}

// ---- The courier.

/// Returns a member's set as it is now.
pub fn seen(set: &AtomicU64) -> u64 {
    // AcqRel pairs with that in `publish` and `publish_unclaimed`. A load could be of an older set, and the
    // member would not see what the courier wrote before.
    set.fetch_or(0, Ordering::AcqRel)
}

/// Rests, unless a set has changed. `wanted` returns the signals that members take, by [`seen`], `wake` wakes
/// those that sleep at the state, `sleep` sleeps until one of these signals is pending or the courier is
/// roused, and `delay` until it is called from a value of its state, or for a while.
pub fn rest(
    courier: Courier<'_>,
    look: u32,
    wanted: impl Fn() -> u64,
    wake: impl FnOnce(),
    sleep: impl FnOnce(u64),
    delay: impl FnOnce(u32),
) {
    let Courier { rests, watched } = courier;
    let signals = wanted();
    watched.store(signals, Ordering::Relaxed);
    // Release pairs with the acquire in `look`: nothing is given any more.
    rests.store(look | RESTS, Ordering::Release);
    // Those that have waited for the look, and those that found the courier awake and can call it now.
    wake();
    // A set that has changed before is seen here. Another one's member sees that the courier rests.
    if wanted() & !signals == 0 {
        sleep(signals);
    }
    let value = rests.load(Ordering::Relaxed);
    if value & STATE == LATER {
        delay(value);
    }
    // Acquire pairs with the release in `call`.
    rests.swap(look | AWAKE, Ordering::AcqRel);
}

/// Ends a look. The next rest wakes those that sleep at the state. Returns the number of the next look.
pub fn end_look(rests: &AtomicU32, look: u32) -> u32 {
    let next = look.wrapping_add(NEXT);
    // Release pairs with the acquire in `look`: what was given is seen.
    rests.store(next | AWAKE, Ordering::Release);
    next
}

/// Claims a member for a signal. Returns whether it takes that and is about to get no other.
pub fn claim(set: &AtomicU64, signal: u64) -> bool {
    let claimed = |set: u64| (set & signal != 0 && set & CLAIMED == 0).then_some(set | CLAIMED);
    set.fetch_update(Ordering::AcqRel, Ordering::Relaxed, claimed).is_ok()
}

//! The one Refcache domain and the one RCU domain, when their epochs move, and what to do when memory is short.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use percore::{AllCores, CoreId, MAX_CORES, Pinned, pin};
use refcache::{Config, Refcache};
use sync::{CachePadded, SetOnce};

use super::{frames, remains, space};
use crate::arch;
use crate::counters::{self, Counter};
use crate::fs::clean;
use crate::sched;

/// Entries of each core's delta cache: 32 KiB. Who forks touches each frame, node and mapping of two spaces in a round, and what
/// does not fit goes to headers that other cores write too.
const CACHE_SLOTS: usize = 2048;
/// Objects that one tick reviews at most.
const REVIEW_BUDGET: usize = 128;
/// Objects that may wait for review while all cores sleep: nodes that the next map will use, for a few
/// threads.
const MUCH_GARBAGE: usize = 256;
/// Objects that one core may keep of them, however many cores there are.
const KEPT_BY_ONE: usize = 8;
/// Frames that a fault may need: tables, a page, two nodes. Less than this is not worth another try.
pub const WORTH_A_RETRY: u64 = 16;
/// How long to wait for other cores' ticks, and for the frames that they give back: far longer than they need.
const WAIT_NS: u64 = 1_000_000_000;

/// What one tick frees at most that waited for readers: far more than a core can retire from one tick to the next.
const RCU_BATCH: usize = 1 << 16;
/// Who has more that waits than this asks the others to hurry.
const RCU_BOUND: usize = 1 << 14;

static DOMAIN: SetOnce<Refcache> = SetOnce::new();
static RCU: SetOnce<rcu::Domain> = SetOnce::new();
/// Pages of files that stay when memory is short.
const WORKING_SET: i64 = 256;
/// Cores that have no memory left: if there are some, every core gives back what it keeps ready, and idle ones their page
/// tables.
static SHORT: AtomicUsize = AtomicUsize::new(0);
/// Those of them to which that was not enough: every core gives its page tables.
static DESPERATE: AtomicUsize = AtomicUsize::new(0);
/// How often cores have been asked for the frames that they keep ready.
static CALLS: AtomicU64 = AtomicU64::new(0);
/// The last call that each core has heard: each core's own.
static HEARD: AllCores<AtomicU64> = AllCores::new([const { CachePadded::new(AtomicU64::new(0)) }; MAX_CORES]);
/// Cores whose caller holds a lock: see [`without_reclaim`]. Each core's own.
static LOCKED: AllCores<AtomicBool> =
    AllCores::new([const { CachePadded::new(AtomicBool::new(false)) }; MAX_CORES]);

/// Makes the domains, with every core offline. Once, at boot.
pub fn init(cores: usize) {
    DOMAIN.set(Refcache::new(Config { cores, cache_slots: CACHE_SLOTS, review_budget: REVIEW_BUDGET }));
    RCU.set(rcu::Domain::new(rcu::Config { cores, batch: RCU_BATCH, bound: RCU_BOUND }));
}

/// The domain.
///
/// # Panics
/// Before `init`.
pub fn domain() -> &'static Refcache {
    DOMAIN.get().expect("the domain is made at boot")
}

/// Where the nodes of regions' trees wait for their readers. Nobody reads on the way to user mode, or idles and reads.
///
/// # Panics
/// Before `init`.
pub fn rcu() -> &'static rcu::Domain {
    RCU.get().expect("the domain is made at boot")
}

/// Runs epoch work if some is due. On the way to user mode and in the idle loop only: never where a
/// reference might be held.
pub fn tick_if_due(pin: &Pinned) {
    let short = is_short();
    if short {
        give_tables();
    }
    take_part(pin);
    // After the ticks, which free too.
    if short {
        give_frames(pin);
    }
}

/// Gives back the frames that this core keeps ready, and says so.
fn give_frames(pin: &Pinned) {
    // Acquire: what the caller's drain freed here is given back, too; pairs with the AcqRel in `gather`.
    let call = CALLS.load(Ordering::Acquire);
    frames::give_back(pin);
    // Release: the frames are in the pool; pairs with the Acquire in `has_heard`.
    HEARD.mine(pin).store(call, Ordering::Release);
}

/// Acquire: pairs with the Release in `give_frames`.
fn has_heard(core: CoreId, call: u64) -> bool {
    HEARD.of(core).load(Ordering::Acquire) >= call
}

/// What the two domains want of this core.
fn take_part(pin: &Pinned) {
    if domain().is_online(pin) && domain().wants_tick(pin) && domain().tick(pin).flushed {
        counters::add(pin, Counter::Epochs, 1);
    }
    if rcu().wants_quiesce(pin) {
        rcu().quiesce(pin);
    }
}

/// Gives this core's page tables for their memory: those of a program that runs only if somebody is desperate.
fn give_tables() {
    // Relaxed: see `is_short`.
    space::drop_my_tables(DESPERATE.load(Ordering::Relaxed) > 0);
}

/// Relaxed: a hint. Whoever is short of memory from now on interrupts this core.
fn is_short() -> bool {
    SHORT.load(Ordering::Relaxed) > 0
}

/// This core goes to sleep: it leaves the epochs, and gives back the frames that it keeps ready if memory is
/// short. Where little waits for review it only dozes, and looks at no other core. Otherwise it first frees what is dead, while
/// `go_on` says so.
pub fn idle_enter(go_on: impl Fn() -> bool) {
    let pin = pin();
    let dozes = domain().orphaned() <= MUCH_GARBAGE / 2 && domain().doze(&pin, most_kept());
    if !dozes {
        take_part(&pin);
        review_while(&pin, go_on);
        domain().offline(&pin);
    }
    rcu().offline(&pin);
    if is_short() { give_frames(&pin) } else { frames::rest(&pin) }
}

/// Objects that wait for this core's review while it dozes, at most: its share of half of what may wait while all cores sleep, but
/// enough for what the next round of a thread will use again.
fn most_kept() -> usize {
    (MUCH_GARBAGE / 2 / arch::cores()).max(KEPT_BY_ONE)
}

/// Frees what is dead, a tick's budget at a time, as long as that turns epochs, much is left, and `go_on`
/// says so. For a core that is about to sleep: if it is the last one awake, nobody else would. Where others
/// are awake an epoch waits for their ticks, and they review what this core leaves.
fn review_while(pin: &Pinned, go_on: impl Fn() -> bool) {
    while domain().is_online(pin) && is_much_dead() && go_on() {
        let tick = domain().tick(pin);
        if !tick.flushed && tick.freed == 0 {
            return;
        }
    }
}

/// This core is awake again.
pub fn idle_exit() {
    domain().online(&pin());
    rcu().online(&pin());
}

/// Forces epochs until what is dead is free or nothing more comes free, or for a second. The caller holds no lock.
pub fn drain() {
    rcu().drain_while(&pin(), hurrying(|| rcu().epoch()));
    domain().drain_while(&pin(), hurrying(|| domain().epoch()));
}

/// Does the same piece by piece, and lets others run in between, if much is dead: for a task that is about to tell how much
/// memory there is. The caller holds no lock.
pub fn settle() {
    let deadline = arch::now_ns() + WAIT_NS;
    while is_much_dead() && arch::now_ns() < deadline {
        rcu().drain_while(&pin(), in_piece(hurrying(|| rcu().epoch())));
        domain().drain_while(&pin(), in_piece(hurrying(|| domain().epoch())));
        // If nobody asked for this core what is left is in use.
        if !sched::is_asked() || !sched::pause() {
            return;
        }
    }
}

/// Whether many objects wait to be freed: memory is on its way.
pub fn is_much_dead() -> bool {
    domain().garbage() > MUCH_GARBAGE
}

fn in_piece(go_on: impl Fn() -> bool) -> impl Fn() -> bool {
    move || go_on() && !sched::is_asked()
}

/// Hurries the others once in each epoch, and does what the other domain wants: who waits for that may be waited for by this core.
/// False after a second.
fn hurrying(epoch: impl Fn() -> u64) -> impl Fn() -> bool {
    let (deadline, hurried) = (arch::now_ns() + WAIT_NS, Cell::new(None));
    move || {
        let epoch = Some(epoch());
        if hurried.replace(epoch) != epoch {
            hurry_others();
        }
        take_part(&pin());
        arch::now_ns() < deadline
    }
}

/// Makes every other core look for work now, and not at its next tick.
fn hurry_others() {
    others().for_each(arch::send_reschedule);
}

fn others() -> impl Iterator<Item = CoreId> {
    (0..arch::cores()).map(CoreId::new).filter(|&core| core != arch::core())
}

/// Calls `f`, which may hold spin locks while it reaches user memory: [`reclaim`] fails at once meanwhile. It would wait
/// for cores that wait for those locks. `f` does not park.
pub fn without_reclaim<R>(f: impl FnOnce() -> R) -> R {
    let locked = LOCKED.mine(&pin());
    // Relaxed: this core only.
    let before = locked.load(Ordering::Relaxed);
    locked.store(true, Ordering::Relaxed);
    let result = f();
    locked.store(before, Ordering::Relaxed);
    result
}

/// Whether the caller holds no lock, as far as [`without_reclaim`] knows.
pub fn may_reclaim() -> bool {
    // Relaxed: this core only.
    !LOCKED.mine(&pin()).load(Ordering::Relaxed)
}

/// Memory is short: frees tasks that have exited here and the spaces that this core let go, drops pages that can be made again,
/// forces epochs, unmaps kernel stacks without a task, fetches back the frames that other cores keep, and
/// page tables: those of programs that run only if it is `desperate`, for they are back at the next touches. Returns whether
/// that found enough to try again. The caller holds no lock, or has said so (`without_reclaim`).
pub fn reclaim(desperate: bool) -> bool {
    if !may_reclaim() {
        return false;
    }
    let before = frames::stats().pooled;
    sched::reap();
    while remains::free_piece() {}
    drop_clean();
    // Relaxed: the interrupts that `drain` sends make every core look; one that looks late gives back at its next tick.
    SHORT.fetch_add(1, Ordering::Relaxed);
    DESPERATE.fetch_add(desperate.into(), Ordering::Relaxed);
    give_tables();
    drain();
    arch::give_back_stacks();
    let wanted = (before + WORTH_A_RETRY).min(frames::SOME);
    let enough = || frames::stats().pooled >= wanted;
    gather(enough);
    DESPERATE.fetch_sub(desperate.into(), Ordering::Relaxed);
    SHORT.fetch_sub(1, Ordering::Relaxed);
    enough()
}

/// Waits until every core has given back its frames, unless that is `enough` before. Meanwhile this one does its ticks, and gives
/// back what comes free: somebody may wait for it in the same way.
fn gather(enough: impl Fn() -> bool) {
    // AcqRel: pairs with the Acquire in `give_frames`.
    let call = CALLS.fetch_add(1, Ordering::AcqRel) + 1;
    let deadline = arch::now_ns() + WAIT_NS;
    hurry_others();
    give_frames(&pin());
    while !enough() && !others().all(|core| has_heard(core, call)) && arch::now_ns() < deadline {
        tick_if_due(&pin());
        // Not too often: it takes the pool's lock, for which those may wait who are to answer.
        (0..64).for_each(|_| percore::relax());
    }
}

/// Frames of pages that [`reclaim`] would drop.
pub fn clean_frames() -> u64 {
    (counters::sum(Counter::CleanPages) - WORKING_SET).max(0) as u64
}

/// Drops pages that can be made again; not the last of them, which are those that programs run on: they would be back at
/// once, and go again, for ever.
fn drop_clean() {
    if clean_frames() > 0 {
        counters::add(&pin(), Counter::PagesReclaimed, clean::drop_some() as i64);
    }
}

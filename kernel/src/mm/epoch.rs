//! The Refcache domain and the RCU domain, when their epochs advance, and reclaim when memory is short.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use abi::reads;
use percore::{CoreId, Pinned, pin};
use refcache::{Config, Refcache};
use sync::SetOnce;

use super::statistics::sum;
use super::{Scheduler, frames, lending, read_counters, remains, shrinkers, slab, space};
use crate::above::Above;
use crate::arch;
use crate::arch::per_core::all_cores;
use crate::counters::{self, Counter};

/// Entries of each core's delta cache: 32 KiB. A fork adjusts each frame, node and mapping of two spaces in a
/// round, and a delta that does not fit goes to a header that other cores write too.
const CACHE_SLOTS: usize = reads::DELTA_ENTRIES;
/// Most objects that one tick reviews.
const REVIEW_BUDGET: usize = 128;
/// Objects that may wait for review while all cores sleep: nodes that the next map will use, for a few
/// threads.
const MUCH_GARBAGE: usize = 256;
/// How many of these objects one core may keep, however many cores there are.
const KEPT_BY_ONE: usize = 8;
/// Frames that a fault may need: tables, a page, two nodes. With fewer, another try is not worthwhile.
pub const WORTH_A_RETRY: u64 = 16;
/// How long to wait for other cores' ticks, and for the frames that they give back: far longer than they
/// need.
const WAIT_NS: u64 = 1_000_000_000;

/// The epochs until an object that `Weak`s may name is freed: its last delta is flushed, its value is
/// reviewed twice, and so is its memory.
const LIFE_AFTER_DEATH: u64 = 6;
/// Most objects that are freed after their grace period without a look at the clock. A file may have 512
/// pages, so they take 400,000 instructions at most.
const RCU_BATCH: usize = 4;
/// How long a piece of freeing such objects takes, or one batch if that takes longer.
const RCU_PIECE_NS: u64 = 200_000;
/// A core with more objects waiting than this asks for a grace period.
const RCU_BOUND: usize = 1 << 14;

static DOMAIN: SetOnce<Refcache> = SetOnce::new();
static RCU: SetOnce<rcu::Domain> = SetOnce::new();
/// Number of cores that have no memory left. If it is not 0, every core gives back its magazines, and idle
/// cores give back their page tables.
static SHORT: AtomicUsize = AtomicUsize::new(0);
/// Number of these cores for which that was not enough. If it is not 0, every core gives back its page
/// tables.
static DESPERATE: AtomicUsize = AtomicUsize::new(0);
/// The number of large files in memory without a name. A core that has nothing to do does not wait with their
/// reviews. Relaxed: a hint.
static LARGE_NAMELESS: AtomicUsize = AtomicUsize::new(0);
/// Set if the last [`drain`] ended because its time was over. Relaxed: a hint.
static UNFINISHED: AtomicBool = AtomicBool::new(false);
/// How often cores have been asked for the frames of their magazines.
static CALLS: AtomicU64 = AtomicU64::new(0);

all_cores! {
    /// The last call that each core has answered. Only the core itself writes its word.
    static HEARD: AtomicU64 = AtomicU64::new(0);
}

all_cores! {
    /// Cores whose caller holds a lock: see [`without_reclaim`]. Only the core itself accesses its word.
    static LOCKED: AtomicBool = AtomicBool::new(false);
}

/// Creates the domains, with every core offline. Called once, at boot.
pub fn init(cores: usize) {
    DOMAIN.set(Refcache::new(Config { cores, cache_slots: CACHE_SLOTS, review_budget: REVIEW_BUDGET }));
    RCU.set(rcu::Domain::new(rcu::Config { cores, batch: RCU_BATCH, bound: RCU_BOUND }));
}

/// Returns the Refcache domain.
///
/// # Panics
/// Before `init`.
pub fn domain() -> &'static Refcache {
    DOMAIN.get().expect("the domain is made at boot")
}

/// Returns the RCU domain, in which nodes of regions' trees wait for their readers. No core is a reader on
/// the way to user mode or while it idles.
///
/// # Panics
/// Before `init`.
pub fn rcu() -> &'static rcu::Domain {
    RCU.get().expect("the domain is made at boot")
}

/// Runs epoch work if some is due. Called on the way to user mode and in the idle loop only, where no
/// reference can be held.
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

/// Gives back the frames of this core's magazines and publishes that it did.
fn give_frames(pin: &Pinned) {
    // Acquire: the frames that the caller's drain freed here are given back too. Pairs with the AcqRel in
    // `gather`.
    let call = CALLS.load(Ordering::Acquire);
    frames::give_back(pin);
    // Release: the frames are in the pool. Pairs with the Acquire in `has_heard`.
    HEARD.mine(pin).store(call, Ordering::Release);
}

/// Returns whether `core` has answered `call`. Acquire: pairs with the Release in `give_frames`.
fn has_heard(core: CoreId, call: u64) -> bool {
    HEARD.of(core).load(Ordering::Acquire) >= call
}

/// Does the work that the two domains want of this core.
fn take_part(pin: &Pinned) {
    review(pin);
    if rcu().wants_quiesce(pin) {
        lending::keep(pin);
        if rcu().quiesce(pin) == RCU_BATCH {
            Above::ask_to_reap();
        }
    }
}

/// Does the work that Refcache wants of this core.
fn review(pin: &Pinned) {
    if domain().is_online(pin) && domain().wants_tick(pin) && domain().tick(pin).flushed {
        counters::add(pin, Counter::Epochs, 1);
        read_counters::sweep(pin);
    }
}

/// Frees a piece of the objects of this core whose grace period is over. Returns whether there may be more.
pub fn free_ripe() -> bool {
    let end = arch::now_ns() + RCU_PIECE_NS;
    while rcu().run_ripe(&pin()) == RCU_BATCH {
        if arch::now_ns() >= end {
            return true;
        }
    }
    false
}

/// Frees this core's page tables for their memory. Tables of a running program are freed only if a core is
/// desperate.
fn give_tables() {
    // Relaxed: see `is_short`.
    space::drop_my_tables(DESPERATE.load(Ordering::Relaxed) > 0);
}

/// Changes the number of large files in memory without a name.
pub fn count_large(change: isize) {
    LARGE_NAMELESS.fetch_add(change as usize, Ordering::Relaxed);
}

/// Returns whether memory is short. Relaxed: a hint. A core that becomes short of memory later interrupts
/// this core.
fn is_short() -> bool {
    SHORT.load(Ordering::Relaxed) > 0
}

/// Takes this core out of the epochs before it sleeps, and gives back the frames of its magazines if memory
/// is short. With little to review the core only dozes, and reads no other core's lines. Otherwise it first
/// frees dead objects while `go_on` returns true, if they are many or may be large files. Returns whether it
/// took the core out: it does not if removed files are left that only this core can free now.
pub fn idle_enter(go_on: impl Fn() -> bool) -> bool {
    let pin = pin();
    if free_unread(&pin, &go_on) {
        return false;
    }
    let awaited = LARGE_NAMELESS.load(Ordering::Relaxed) > 0;
    let dozes = !awaited && domain().orphaned() <= MUCH_GARBAGE / 2 && domain().doze(&pin, most_kept());
    if !dozes {
        review(&pin);
        // A file of which the last reference was just dropped is released by then.
        let end = domain().epoch() + if awaited { LIFE_AFTER_DEATH } else { 0 };
        review_while(&pin, || (is_much_dead() || domain().epoch() < end) && go_on());
        domain().offline(&pin);
    }
    rcu().offline(&pin);
    if is_short() {
        give_frames(&pin)
    } else {
        frames::rest(&pin)
    }
    true
}

/// Frees what waits for look-ups to end while `go_on` returns true, if this core is the last one awake.
/// Returns whether more can be freed. If the core is not the last one, the others take over what is left, and
/// free it at their ticks. The core is in both domains.
fn free_unread(pin: &Pinned, go_on: impl Fn() -> bool) -> bool {
    if !rcu().has_waiting(pin) {
        return false;
    }
    lending::keep(pin);
    let mut is_more = rcu().quiesce(pin) == RCU_BATCH;
    while is_more && go_on() {
        is_more = free_ripe();
    }
    is_more
}

/// Returns how many objects may wait for this core's review while it dozes: its share of half of
/// [`MUCH_GARBAGE`], but at least as many as the next round of a thread will use again.
fn most_kept() -> usize {
    (MUCH_GARBAGE / 2 / arch::cores()).max(KEPT_BY_ONE)
}

/// Frees dead objects, a tick's budget at a time, as long as that advances epochs and `go_on` returns true. A
/// core calls it before it sleeps: if it is the last one awake, no other core would free them. If others are
/// awake, an epoch waits for their ticks, and they review what this core leaves.
fn review_while(pin: &Pinned, go_on: impl Fn() -> bool) {
    while domain().is_online(pin) && go_on() {
        let tick = domain().tick(pin);
        if !tick.flushed && tick.reviewed == 0 {
            return;
        }
    }
}

/// Brings this core back into the epochs when it wakes.
pub fn idle_exit() {
    domain().online(&pin());
    rcu().online(&pin());
}

/// Forces epochs until all dead objects are free or no more come free, for at most a second in each of both
/// domains. The caller holds no lock.
pub fn drain() {
    let since = arch::now_ns();
    lending::keep(&pin());
    rcu().drain_while(&pin(), hurrying(|| rcu().epoch()));
    domain().drain_while(&pin(), hurrying(|| domain().epoch()));
    UNFINISHED.store(arch::now_ns() - since >= WAIT_NS, Ordering::Relaxed);
}

/// Frees removed files that wait only for look-ups to end, and what this core frees in pieces. Returns
/// whether there were any. It does not wait for files that are removed meanwhile. Other tasks run in between
/// if that is due. Fails at once inside [`without_reclaim`], otherwise the caller holds no lock.
pub fn free_removed() -> bool {
    if !may_reclaim() {
        return false;
    }
    let had_remains = free_remains();
    if rcu().backlog() == 0 {
        return had_remains;
    }
    // The first grace period ends the look-ups, and in the second every core frees the files that it removed.
    let end = rcu().grace_end() + rcu::GRACE;
    drain_in_pieces(
        || rcu().epoch(),
        || rcu().epoch() < end,
        |go_on| {
            rcu().drain_while(&pin(), go_on);
        },
    );
    free_remains();
    true
}

/// Frees removed files. If many other objects are dead, it does the same as [`drain`] in pieces, and lets
/// other tasks run in between. For a task that is about to report how much memory there is. The caller holds
/// no lock.
pub fn settle() {
    free_removed();
    free_nameless();
    lending::keep(&pin());
    let deadline = arch::now_ns() + WAIT_NS;
    while is_much_dead() && arch::now_ns() < deadline {
        rcu().drain_while(&pin(), in_piece(hurrying(|| rcu().epoch())));
        domain().drain_while(&pin(), in_piece(hurrying(|| domain().epoch())));
        // If no task asked for this core, the objects that are left are in use.
        if !Above::is_asked() || !Above::pause() {
            return;
        }
    }
}

/// Forces as many epochs as it takes to free `objects` that this core has released, in pieces between which
/// other tasks run. It does not wait for objects of others. The caller holds no lock.
pub fn free_own(objects: usize) {
    force(epochs_to_free(objects));
}

/// Returns the epochs in which one core frees `objects`. Each has two headers to review.
fn epochs_to_free(objects: usize) -> u64 {
    LIFE_AFTER_DEATH + (2 * objects).div_ceil(REVIEW_BUDGET) as u64
}

/// Frees files whose last user is gone, in the same way: perhaps a mapping, then what it has mapped, then the
/// open file, then the file. They are reviewed after what is dead already.
pub fn free_unused() {
    force(LIFE_AFTER_DEATH + epochs_to_free(domain().garbage()));
    free_removed();
}

/// Frees files in memory that have no name and no user, and returns whether there may have been any. The
/// caller holds no lock.
pub fn free_nameless() -> bool {
    let may_be = sum(Counter::NamelessFiles) > 0;
    if may_be {
        free_unused();
    }
    may_be
}

/// Frees removed files, and the objects that are dead, until few are left or no more come free, for at most a
/// second. It does not wait for objects that die meanwhile. Other tasks run in between if that is due. The
/// caller holds no lock.
pub fn free_dead() {
    free_removed();
    let (end, deadline) = (domain().epoch() + epochs_to_free(domain().garbage()), arch::now_ns() + WAIT_NS);
    drain_in_pieces(
        || domain().epoch(),
        || is_much_dead() && domain().epoch() < end && arch::now_ns() < deadline,
        |go_on| {
            domain().drain_while(&pin(), go_on);
        },
    );
}

fn force(epochs: u64) {
    free_removed();
    let end = domain().epoch() + epochs;
    drain_in_pieces(
        || domain().epoch(),
        || domain().epoch() < end,
        |go_on| {
            domain().drain_while(&pin(), go_on);
        },
    );
    free_remains();
}

/// Calls `drain` with a condition that holds while `wanted` does and no other task is due here, and again if
/// it was not `drain` itself or `wanted` that ended it. Other tasks run in between. A killed task stops.
fn drain_in_pieces(epoch: impl Fn() -> u64, wanted: impl Fn() -> bool, drain: impl Fn(&dyn Fn() -> bool)) {
    loop {
        lending::keep(&pin());
        let (hurrying, is_cut) = (hurrying(&epoch), Cell::new(false));
        drain(&|| {
            let is_wanted = wanted();
            is_cut.set(is_wanted && (!hurrying() || Above::is_asked()));
            is_wanted && !is_cut.get()
        });
        if !is_cut.get() || !Above::pause() {
            return;
        }
    }
}

/// Frees what this core frees in pieces, and returns whether there was any. Other tasks run in between if
/// that is due. The caller holds no lock.
pub fn free_remains() -> bool {
    let had_any = remains::has_any();
    while remains::free_piece() && Above::pause() {}
    had_any
}

/// Returns whether many objects wait to be freed, so that memory will come free soon.
pub fn is_much_dead() -> bool {
    domain().garbage() > MUCH_GARBAGE
}

/// Returns whether cores were too slow for the last [`drain`], or one frees an object in pieces: reclaim that
/// found nothing was too early.
pub fn is_memory_coming() -> bool {
    UNFINISHED.load(Ordering::Relaxed) || remains::any_core_has()
}

fn in_piece(go_on: impl Fn() -> bool) -> impl Fn() -> bool {
    move || go_on() && !Above::is_asked()
}

/// Hurries the other cores once in each epoch, and does this core's part for both domains, since a core that
/// drains the other domain may wait for it. Returns false after a second.
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

/// Interrupts every other core, so that it looks for work now and not at its next tick.
fn hurry_others() {
    others().for_each(arch::send_reschedule);
}

fn others() -> impl Iterator<Item = CoreId> {
    (0..arch::cores()).map(CoreId::new).filter(|&core| core != arch::core())
}

/// Runs `f`, which may hold spin locks while it accesses user memory. Meanwhile [`reclaim`] fails at once,
/// since it would wait for cores that wait for those locks. `f` does not park.
pub fn without_reclaim<R>(f: impl FnOnce() -> R) -> R {
    let locked = LOCKED.mine(&pin());
    // Relaxed: this core only.
    let before = locked.load(Ordering::Relaxed);
    locked.store(true, Ordering::Relaxed);
    let result = f();
    locked.store(before, Ordering::Relaxed);
    result
}

/// Returns whether the caller holds no lock, as far as [`without_reclaim`] knows.
pub fn may_reclaim() -> bool {
    // Relaxed: this core only.
    !LOCKED.mine(&pin()).load(Ordering::Relaxed)
}

/// Reclaims memory and returns whether it found enough to try again. It frees tasks that have exited here and
/// spaces that this core released, shrinks caches, forces epochs, unmaps kernel stacks without a task, and
/// collects the frames of other cores' magazines and the page tables of idle cores. If that is not enough, it
/// gives frames of the heap back. If `desperate`, it also frees the page tables of running programs, which
/// the next touches make again. Fails at once inside [`without_reclaim`], otherwise the caller holds no lock.
pub fn reclaim(desperate: bool) -> bool {
    if !may_reclaim() {
        return false;
    }
    let before = frames::stats().pooled;
    Above::reap();
    while remains::free_piece() {}
    shrinkers::shrink();
    // Relaxed: the interrupts that `drain` sends make every core look. A core that looks late gives back at
    // its next tick.
    SHORT.fetch_add(1, Ordering::Relaxed);
    DESPERATE.fetch_add(desperate.into(), Ordering::Relaxed);
    give_tables();
    drain();
    arch::give_back_stacks();
    let wanted = (before + WORTH_A_RETRY).min(frames::SOME);
    let enough = || frames::stats().pooled >= wanted;
    gather(enough);
    if !enough() {
        slab::give_back();
    }
    DESPERATE.fetch_sub(desperate.into(), Ordering::Relaxed);
    SHORT.fetch_sub(1, Ordering::Relaxed);
    enough()
}

/// Waits until every core has given back its frames, or until `enough` returns true. Meanwhile this core runs
/// its ticks and gives back what comes free, since another core may wait for it in the same way.
fn gather(enough: impl Fn() -> bool) {
    // AcqRel: pairs with the Acquire in `give_frames`.
    let call = CALLS.fetch_add(1, Ordering::AcqRel) + 1;
    let deadline = arch::now_ns() + WAIT_NS;
    hurry_others();
    give_frames(&pin());
    while !enough() && !others().all(|core| has_heard(core, call)) && arch::now_ns() < deadline {
        tick_if_due(&pin());
        // Not too often: `enough` takes the pool's lock, and the cores that are to answer may wait for it.
        (0..64).for_each(|_| percore::relax());
    }
}

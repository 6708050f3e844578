//! Memory that other members take away without asking: this member still has it mapped, and the kernel lets
//! it touch nothing there. The states and invariants are in `pathreads::stale`.
//!
//! The member that takes memory away registers it with the *userfaultfd* of each holder, and punches it out
//! of the file. Linux then unmaps the pages of all holders. A touch of a page that the holder has not is no
//! fault that Linux handles: if the page is missing in the file, or is there again for the next mapping, it
//! is a SIGBUS for the holder alone (UFFD_FEATURE_SIGBUS). Calls of the kernel fail with EFAULT. So no member
//! waits for a holder that does not run, and no call of it is interrupted.
//!
//! A member opens its userfaultfd when it is asked to unmap memory for the first time, so those that share
//! nothing have none. Members are asked where Linux forbids it, where there is a filter or a low limit of
//! descriptors, and for files, copies and snapshots.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use abi::Errno;
use pathreads::record::{Members, NO_FILE, Record, Region};
use pathreads::stale::{Named, Stale};
use pathreads::{PAGE, RUNTIME_BASE, RUNTIME_END, page_start};

use super::calls::LOWEST;
use super::lock::is_helper;
use super::{control, fork, keep_away, me, remembered, stats};
use crate::sys::{self, O_CLOEXEC, Result, harmless, nr};

/// The part of this that is a member's, in the control area.
pub struct State {
    /// The memory that its last call names. The member writes it, and others read it when they take memory
    /// away.
    named: Named,
    stale: Stale,
    /// Its userfaultfd plus one, 0 as long as it has opened none, or [`NO_FILE`] if it cannot. Written by
    /// the member as it serves a request, and under the lock.
    file: AtomicU64,
}

/// The kernel's `struct uffdio_api`: version, features, calls.
type Api = [u64; 3];
/// The kernel's `struct uffdio_register`: start, length, mode, calls.
type Register = [u64; 4];

/// The least limit of descriptors with which members open a userfaultfd.
const LEAST_FILES: u64 = 1024;
const PR_GET_SECCOMP: u64 = 21;
const UFFD_USER_MODE_ONLY: u64 = 1;
const UFFD_API: u64 = 0xaa;
const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
/// Faults at pages that are missing in shared memory, faults at pages that are there and not mapped here, and
/// SIGBUS instead of a message.
const FEATURES: u64 = 1 << 5 | 1 << 7 | 1 << 10;
const MISSING_AND_MINOR: u64 = 1 | 1 << 2;

fn state_of(member: usize) -> &'static State {
    &control().members[member].state
}

/// Whether this process has a state: not before there are other members, not in a child of `vfork`, which
/// acts in its maker's name, and not in one that has left, whose number may be another's.
static HAS_STATE: AtomicBool = AtomicBool::new(false);

/// Returns this member's state, if it has one.
#[inline(always)]
fn own() -> Option<&'static State> {
    HAS_STATE.load(Ordering::Relaxed).then(|| state_of(me()))
}

/// Opens this member's userfaultfd, if it has not tried before. It serves a request.
pub fn open() {
    let file = &state_of(me()).file;
    if file.load(Ordering::Relaxed) == 0 {
        file.store(open_file().map_or(NO_FILE, |number| number + 1), Ordering::Relaxed);
    }
}

fn open_file() -> Result {
    // A filter may end the program where it has no errors.
    if harmless!(nr::PRCTL, PR_GET_SECCOMP, 0, 0, 0, 0) != Ok(0) {
        return Err(Errno::ENOSYS);
    }
    // Each member has one of the program's descriptors.
    if sys::limit_of(sys::RLIMIT_NOFILE) < LEAST_FILES {
        return Err(Errno::EMFILE);
    }
    let file = harmless!(nr::USERFAULTFD, O_CLOEXEC | UFFD_USER_MODE_ONLY)?;
    let mut api: Api = [UFFD_API, FEATURES, 0];
    harmless!(nr::IOCTL, file, UFFDIO_API, api.as_mut_ptr() as u64).inspect_err(|_| sys::close(file))?;
    keep_away(file)
}

fn file_of(member: usize) -> Option<u64> {
    let word = state_of(member).file.load(Ordering::Relaxed);
    if word == NO_FILE { None } else { word.checked_sub(1) }
}

/// Returns the userfaultfds of all members.
pub fn files() -> impl Iterator<Item = u64> {
    let most = control().most.load(Ordering::Relaxed) as usize;
    (0..=most).filter_map(file_of)
}

/// Makes the memory of neighbours stale in as many of their holders as it can be. Returns those that have to
/// be asked. The lock is held, and the memory is punched before that is released.
pub fn make_stale(record: &Record, start: u64, end: u64, holders: Members) -> Members {
    // A thread that was moved to another futex sleeps at what its call does not name.
    let is_possible = !fork::is_sharing() && !has_requeued();
    if !is_possible || !record.touched(start, end).all(Region::is_plain) {
        return holders;
    }
    let others = holders.without(me());
    let asked = others.iter().filter(|member| !make_stale_in(*member, start, end));
    let asked = asked.fold(Members::NONE, |set, member| set.with(member));
    // It may have been moved meanwhile.
    if has_requeued() { holders } else { asked }
}

fn has_requeued() -> bool {
    control().has_requeued.load(Ordering::Relaxed)
}

/// Makes memory stale in a member. Returns whether it need not be asked.
fn make_stale_in(member: usize, start: u64, end: u64) -> bool {
    let State { named, stale, .. } = state_of(member);
    let Some(file) = file_of(member) else { return false };
    if named.touches(start, end) || !stale.has_room() {
        return false;
    }
    // Before the first fault at it.
    stale.note();
    let mut register: Register = [start, end - start, MISSING_AND_MINOR, 0];
    let is_registered = harmless!(nr::IOCTL, file, UFFDIO_REGISTER, register.as_mut_ptr() as u64).is_ok();
    // One that is asked unmaps all that is stale.
    let is_done = is_registered && stale.add(start, end) && !named.touches(start, end);
    if is_done {
        stats::note_stale();
    }
    is_done
}

/// Returns whether memory has ever become stale here, so that a SIGBUS may be about that.
pub fn is_possible() -> bool {
    !is_helper() && own().is_some_and(|own| own.stale.count() != 0)
}

/// Returns whether memory at an address was made stale here. The lock is held.
pub fn has(address: u64) -> bool {
    own().is_some_and(|own| own.stale.has(address))
}

/// Returns whether nothing is mapped here at an address.
pub fn is_unmapped(address: u64) -> bool {
    let mut is_in_memory = 0_u8;
    let answer = harmless!(nr::MINCORE, page_start(address), PAGE, &raw mut is_in_memory as u64);
    answer == Err(Errno::ENOMEM)
}

/// Unmaps what is stale here in a range, and beside it. Fails if Linux does not unmap it, which then stays
/// stale. The lock is held, or this member changes its own memory (`own`), or serves a request.
pub fn unmap(start: u64, end: u64) -> Result<()> {
    own().map_or(Ok(()), |State { stale, .. }| {
        stale.unmap(start, end, |from, to| {
            // SAFETY: the program does not have the memory any more, and this member has mapped nothing else
            // there.
            unsafe { sys::call(nr::MUNMAP, [from, to - from, 0]) }.map(|_| ())
        })
    })
}

/// Makes a call that maps or divides memory, where [`unmap`] may be called. If there is no room for it, it is
/// made again without what is stale here, which Linux counts for its limits.
pub fn with_room<R>(call: impl Fn() -> Result<R>) -> Result<R> {
    match call() {
        Err(Errno::ENOMEM) if is_possible() => unmap(0, u64::MAX).and_then(|()| call()),
        result => result,
    }
}

/// Notes that this member's call names memory, before it is looked at whether that is mapped here.
#[inline(always)]
pub fn name(start: u64, end: u64) {
    let is_programs = start < end && start >= LOWEST && !(RUNTIME_BASE..RUNTIME_END).contains(&start);
    if is_programs && let Some(State { named, .. }) = own() {
        named.add(start, end);
    }
}

/// Notes that it may name any.
#[inline(always)]
pub fn name_all() {
    if let Some(State { named, .. }) = own() {
        named.add(0, u64::MAX);
    }
}

/// Begins a call of this member, which names nothing yet.
#[inline(always)]
pub fn begin_call() {
    if let Some(State { named, .. }) = own() {
        named.begin();
    }
}

/// How often memory had become stale here when this member last looked at the record for a call.
static SEEN: AtomicU64 = AtomicU64::new(0);

/// Returns whether memory has become stale here, or was unmapped for a request, since this member has looked
/// at the record. Until it does that, under the lock, it knows of no memory that it has it.
#[inline(always)]
pub fn is_new() -> bool {
    own().is_some_and(|own| own.stale.count() != SEEN.load(Ordering::Relaxed))
}

/// Notes that this member looks at the record, and forgets what it had. The lock is held.
pub fn note_seen() {
    if is_new() {
        remembered::forget(0, u64::MAX);
        SEEN.store(state_of(me()).stale.count(), Ordering::Relaxed);
    }
}

/// Has this member look at the record before its next call, because it has less now. It serves a request.
pub fn note_here() {
    state_of(me()).stale.note();
}

/// Begins the leader's state, before there is another member.
pub fn begin_leader() {
    HAS_STATE.store(true, Ordering::Relaxed);
}

/// [`SEEN`] of the member that is being made. It finds it in its copy.
static SEEN_NEXT: AtomicU64 = AtomicU64::new(0);

/// Prepares the state of a member that is about to be made, with what its maker has mapped. The lock is held.
pub fn prepare(member: usize) {
    SEEN_NEXT.store(state_of(member).stale.count(), Ordering::Relaxed);
}

/// Begins a member, which has a copy of what its maker remembers. Its maker may have released the lock.
pub fn begin_member() {
    remembered::forget(0, u64::MAX);
    SEEN.store(SEEN_NEXT.load(Ordering::Relaxed), Ordering::Relaxed);
    HAS_STATE.store(true, Ordering::Relaxed);
}

/// Ends the state of a process that is a child of `vfork`.
pub fn begin_sharing() {
    HAS_STATE.store(false, Ordering::Relaxed);
}

/// The address and the count at which a SIGBUS had no cause.
static TRIED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Returns whether an access that got SIGBUS is to be tried again: it is not the one that was, unless memory
/// has become stale since. A second one is of a file that is too short, or of memory that there is not.
pub fn is_first_try(address: u64) -> bool {
    let now = [address, state_of(me()).stale.count()];
    let before = TRIED.each_ref().map(|word| word.load(Ordering::Relaxed));
    TRIED.iter().zip(now).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
    before != now
}

/// Forgets the state of a member that leaves. The lock is held.
pub fn leave() {
    forget(me());
    HAS_STATE.store(false, Ordering::Relaxed);
}

/// Forgets the states of all members, in a new process. The descriptors are copies.
pub fn begin_process() {
    (0..=control().most.load(Ordering::Relaxed) as usize).for_each(forget);
    HAS_STATE.store(false, Ordering::Relaxed);
}

fn forget(member: usize) {
    if let Some(file) = file_of(member) {
        sys::close(file);
    }
    let State { named, stale, file } = state_of(member);
    file.store(0, Ordering::Relaxed);
    stale.clear();
    named.begin();
}

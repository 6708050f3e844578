//! Threads in address spaces of their own (`--isolate`): what all members share, and their protocol.
//!
//! A *member* is a Linux process that is one thread of the program. The first is the *leader*. All private
//! memory of the program lies in one memfd, where the offset is the address. The record of it is in the
//! control area, which all members have mapped at the same address. All other data of the runtime is private
//! to each member, because `clone` copies it.
//!
//! | state of a page in a member | access | becomes |
//! |---|---|---|
//! | unknown: recorded, and not mapped here | SIGSEGV, and [`fault`] maps its whole region | current |
//! | current: mapped as recorded | as the program was promised | behind, gone |
//! | behind: mapped with fewer rights than recorded | SIGSEGV where a right is missing, and [`fault`] maps again | current |
//! | a file, or a snapshot: mapped without the right to write | at a write SIGSEGV, and [`fault`] copies a part | behind |
//! | gone: neither recorded nor mapped | SIGSEGV for the program | unknown |
//!
//! 1. *The record decides.* It is read and changed under [`lock`], but for memory that one member alone has
//!    (8). Nothing touches the program's memory under the lock, because that may fault, and a fault takes the
//!    lock.
//! 2. *A region names its members twice*: `holders` may have it mapped, and `current` have it as recorded. A
//!    new right clears `current` and disturbs no member. A lost right, or memory that goes, is a request to
//!    `holders`.
//!    A part that becomes a copy is a request to `holders`, too: no member writes to the copy before all
//!    have it.
//! 3. *A request is answered before the lock is released* (`pathreads::requests`). The requester writes it,
//!    sets `pending` of each member and sends SIGSTKFLT. The member does what is asked and clears `pending`.
//!    SIGSTKFLT is never blocked, so a member that waits for the lock answers too. A call that it interrupted
//!    is prepared and made again (`entry`), and so is one that it met between the two. A call that waits for
//!    memory which is not there is prepared once more when there is more ([`lacks`]).
//! 4. *Only the holder of the lock makes requests*, so there is one at a time, and the record does not change
//!    while members read it to serve.
//! 5. *A member that has the lock, or waits for it, runs no handler of the program*, which might ask for the
//!    lock again. SIGSEGV and SIGBUS are not blocked, so those that are sent are held back ([`faults`]).
//! 6. *No two members use one stack for signals* ([`with_own_stack`]), and none leaves it for another stack
//!    while it is in use (`crate::stack`): a request puts a frame on it at any time.
//! 7. *Memory that one member alone uses needs no lock* (`blocks`). Small plain mappings are blocks of the
//!    member that makes them. It maps and unmaps them again without the lock, while no other member has had
//!    them mapped. The same is true of mappings without rights of which it opens a part ([`reservations`]).
//! 8. *A member changes memory that it alone has, in its part of the arena, without the lock, while no other
//!    has that* ([`own`]). Those that have taken the lock wait for it.
//! 9. *The memory that a call names is mapped before the call* ([`sync`], [`touch`]): the kernel's accesses
//!    do not come to the handler of SIGSEGV.

pub mod blocks;
pub mod calls;
pub mod faults;
pub mod fork;
pub mod helpers;
mod lacks;
pub mod memory;
mod own;
mod remembered;
mod reservations;
mod signal_stack;
pub mod signals;
mod snapshots;
pub mod thread;
pub mod wait;
pub mod waiting;

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence};

use abi::Errno;
use pathreads::block::Blocks;
use pathreads::member_reservation::Reservations;
use pathreads::record::{Full, LAYER, MOST_MEMBERS, Members, NO_FILE, Record, Region};
use pathreads::requests::{self, Seat};
use pathreads::{RUNTIME_BASE, RUNTIME_END, page_end, parts};

use crate::sys::{
    self, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, MAP_SHARED, PROT_EXEC, PROT_READ, PROT_WRITE, Result,
    SIGSYS_BIT, harmless, nr,
};
use crate::{context, entry, sigaction, user};

use signal_stack::{HAS_STACK, note_stack, programs_stack, take_programs_stack, with_own_stack};
pub use signal_stack::{OF_SIGNALS, begin_stack, is_signal_stack};

/// The signal of requests.
pub const SIGSTKFLT: u64 = 16;

const SIGBUS: u64 = 7;
const SIGSEGV: u64 = 11;

/// The address of the control area.
const CONTROL: u64 = RUNTIME_BASE + (8 << 20);

/// A thread of the program.
struct Member {
    /// Its number in Linux, or 0 if there is no such member.
    thread: AtomicU32,
    /// Whether a request waits for it, or it serves (`pathreads::requests`).
    pending: AtomicU32,
    /// Whether it changes its own memory without the lock (`pathreads::parts`).
    inside: AtomicU32,
    /// Whether it is a thread, or waits to be one (`waiting`).
    stage: AtomicU32,
    /// The thread that it becomes.
    next: UnsafeCell<waiting::Next>,
    /// The signals to the process that it takes (`signals`).
    open: AtomicU64,
    /// The work that it asks the leader's process for.
    job: helpers::Job,
    /// The end of its child of `vfork`.
    ending: fork::Ending,
    /// 1 if its call lacks memory that it names.
    lacks: AtomicU32,
    /// Written by the member as it is stopped.
    stacks: snapshots::Stacks,
}

/// A thing that a member is asked to do.
#[derive(Clone, Copy)]
pub enum Request {
    /// Unmap memory that is not recorded any more.
    Unmap { start: u64, end: u64 },
    /// Give the memory of a range the rights that are recorded.
    Protect { start: u64, end: u64 },
    /// Map the memory of a range as it is recorded, but for the right to write.
    Replace { start: u64, end: u64 },
    /// Set the action of a signal.
    Act { signal: u64, action: [u64; 4] },
    /// Answer, and wait while `stops` has this value.
    Stop { value: u32 },
    /// Take part in the barriers of other processes.
    Register,
    /// Prepare the call again in which this member waits.
    Look,
    /// Give up the right to write to snapshots with this file.
    Freeze { file: u64 },
    /// Unmap what is not mapped as it is recorded.
    Forget,
    /// Queue the signal that is described in the control area.
    Queue { signal: u64 },
}

/// The control area, which all members share.
#[repr(C)]
struct Control {
    /// 0 if free, 1 if taken, 2 if a member may sleep.
    lock: AtomicU32,
    /// The number of the member that holds it plus one, [`OF_LEADER`], or 0, with [`WAITS`] at first.
    holder: AtomicU32,
    /// The lock of the record for members that change their own memory without the other lock.
    table: AtomicU32,
    /// Counts changes after which a member may have less than is recorded.
    version: AtomicU64,
    /// How the program ends: see `thread`.
    ending: AtomicU32,
    status: AtomicU64,
    /// The process that made the program, and the task in it that did: another, if that was a member.
    parent: AtomicU32,
    maker: AtomicU32,
    /// Odd while all members but one are stopped. They sleep here, and look for requests when it has changed.
    stops: AtomicU32,
    /// Counts members that were made. The watcher sleeps here.
    made: AtomicU32,
    /// The end of the heap.
    heap_end: AtomicU64,
    /// The most bytes of memory that can be written to.
    data_limit: AtomicU64,
    /// The most bytes of addresses.
    address_limit: AtomicU64,
    /// No descriptor of the runtime is lower.
    lowest_kept: AtomicU64,
    /// Faults that mapped a region, and requests that were sent.
    faults: AtomicU64,
    requests: AtomicU64,
    members: [Member; MOST_MEMBERS],
    /// No member had a higher number.
    most: AtomicU32,
    /// The bounds of memory that must be copied before the kernel writes to it. Written under the lock.
    copies: [AtomicU64; 2],
    /// The descriptors that are kept for private mappings of files.
    private_files: AtomicU64,
    /// The offset of the layer for copies and new memory: not 0 while there are snapshots. Written under the
    /// lock.
    layer: AtomicU64,
    /// The offset of the highest layer that has been in use since there are snapshots.
    highest_layer: AtomicU64,
    /// The bytes that `fork` has copied, and those that were copied before they were written to.
    copied: [AtomicU64; 2],
    /// Counts descriptors that were kept.
    kept: AtomicU64,
    /// Whether the kernel may read memory after a call: `blocks::note_call`.
    pages_are_held: AtomicBool,
    /// Whether a thread has changed what Linux keeps for another one: no member waits from then on.
    is_reuse_over: AtomicBool,
    /// Whether the program has moved sleepers from one futex to another: `calls::prepare_futex_again`.
    has_requeued: AtomicBool,
    /// Counts members that leave and still write to a word of the program.
    leaving: AtomicU32,
    /// Counts members whose calls lack memory.
    lacking: AtomicU32,
    /// Counts jobs that members ask for. Helpers sleep here.
    asked: AtomicU32,
    /// The thread that gives signals to the process to members.
    courier: signals::Courier,
    /// The child that is being made. Written under the lock.
    making: UnsafeCell<fork::Making>,
    /// The call of a member that executes a program.
    executed: UnsafeCell<entry::Frame>,
    /// Written under the lock, and read by members that are asked.
    request: UnsafeCell<Request>,
    blocks: Blocks,
    reservations: Reservations,
    /// Read and written under the lock, or by members that change their own memory. It is the last, because
    /// a child of `fork` needs what is in use of it.
    record: UnsafeCell<Record>,
}

// SAFETY: the cells are used as they say.
unsafe impl Sync for Control {}

const _: () = assert!(CONTROL + size_of::<Control>() as u64 <= RUNTIME_END);

/// Whether threads get address spaces of their own. The ways into the runtime read it.
pub static IS_ON: AtomicU8 = AtomicU8::new(0);

/// The number of this member.
static ME: AtomicUsize = AtomicUsize::new(0);

/// The descriptor of the program's memory.
static MEMORY: AtomicU64 = AtomicU64::new(0);

/// The version up to which this member has all that is recorded.
static SYNCED: AtomicU64 = AtomicU64::new(0);

/// No version.
const NEVER: u64 = u64::MAX;

/// Returns whether threads get address spaces of their own.
pub fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed) != 0
}

fn control() -> &'static Control {
    // SAFETY: the area is mapped from `begin` on, and zeroes are a valid value of each field but the request,
    // which is written before it is read.
    unsafe { &*(CONTROL as *const Control) }
}

fn me() -> usize {
    ME.load(Ordering::Relaxed)
}

fn memory_file() -> u64 {
    MEMORY.load(Ordering::Relaxed)
}

/// The signals that members work by.
pub const NEVER_BLOCKED: u64 = SIGSYS_BIT | 1 << (SIGBUS - 1) | 1 << (SIGSEGV - 1) | 1 << (SIGSTKFLT - 1);

/// Returns the signals that must never be blocked: those by which the runtime works.
pub fn never_blocked() -> u64 {
    if is_on() { NEVER_BLOCKED } else { SIGSYS_BIT }
}

/// Makes this process the leader of a program without memory.
pub fn begin() {
    if limit_of(RLIMIT_FSIZE) != u64::MAX {
        sys::fail(
            b"--isolate needs no limit of the size of files, because memory is a file (ulimit -f)",
            125,
        );
    }
    let memory =
        new_file(c"program", snapshots::MOST_LAYERS * LAYER).and_then(keep_away).unwrap_or_else(|_| fail());
    MEMORY.store(memory, Ordering::Relaxed);
    let area = new_file(c"control", size_of::<Control>() as u64).unwrap_or_else(|_| fail());
    map_control(area);
    control().lowest_kept.store(memory, Ordering::Relaxed);
    sys::close(area);
    control().members[0].thread.store(own_thread(), Ordering::Relaxed);
    control().heap_end.store(memory::HEAP, Ordering::Relaxed);
    let maker = harmless!(nr::GETPPID).unwrap_or(0) as u32;
    control().parent.store(maker, Ordering::Relaxed);
    control().maker.store(maker, Ordering::Relaxed);
    memory::note_limit();
    IS_ON.store(1, Ordering::Relaxed);
}

fn fail() -> ! {
    sys::fail(b"no memory for --isolate", 125)
}

/// Makes a file of memory.
fn new_file(name: &core::ffi::CStr, length: u64) -> Result {
    const MFD_CLOEXEC: u64 = 1;
    let file = harmless!(nr::MEMFD_CREATE, name.as_ptr() as u64, MFD_CLOEXEC)?;
    harmless!(nr::FTRUNCATE, file, length).inspect_err(|_| sys::close(file))?;
    Ok(file)
}

/// Maps the control area.
fn map_control(area: u64) {
    let length = page_end(size_of::<Control>() as u64);
    let flags = MAP_SHARED | MAP_FIXED;
    // SAFETY: these addresses are the runtime's, for this.
    if unsafe { sys::mmap(CONTROL, length, PROT_READ | PROT_WRITE, flags, area, 0) }.is_err() {
        fail();
    }
}

/// Gives a descriptor a number that programs do not meet.
fn keep_away(file: u64) -> Result {
    let kept = copy_away(file);
    sys::close(file);
    kept
}

/// Returns a copy of a descriptor with a number that programs do not meet.
fn copy_away(file: u64) -> Result {
    const F_DUPFD_CLOEXEC: u64 = 1030;
    let least = first_kept();
    // Numbers do not come again soon: a child of `vfork` has those of the record in a table of its own.
    let next = if is_on() { control().kept.fetch_add(1, Ordering::Relaxed) % least.max(2) / 2 } else { 0 };
    let kept = harmless!(nr::FCNTL, file, F_DUPFD_CLOEXEC, least + next)?;
    if is_on() {
        control().lowest_kept.fetch_min(kept, Ordering::Relaxed);
    }
    Ok(kept)
}

/// Returns the first of the runtime's descriptors in a range.
fn kept_in(first: u64, last: u64) -> Option<u64> {
    let range = first..=last;
    if last < control().lowest_kept.load(Ordering::Relaxed) {
        return None;
    }
    let own = [memory_file(), signals::file()].into_iter().filter(|file| range.contains(file));
    prepare_stack();
    let shared =
        locked(|record| record.all().map(|region| region.file).filter(|file| range.contains(file)).min());
    own.chain(shared).min()
}

/// Returns the first number of the runtime's own descriptors: those of the upper half are few programs'.
fn first_kept() -> u64 {
    const RLIMIT_NOFILE: u64 = 7;
    const MOST: u64 = 1 << 16;
    limit_of(RLIMIT_NOFILE).min(MOST) / 2
}

const RLIMIT_FSIZE: u64 = 1;

/// Returns a limit of this process.
fn limit_of(kind: u64) -> u64 {
    let mut limits = [u64::MAX; 2];
    let _ = harmless!(nr::PRLIMIT64, 0, kind, 0, limits.as_mut_ptr() as u64);
    limits[0]
}

/// Returns this thread's number in Linux.
fn own_thread() -> u32 {
    harmless!(nr::GETTID).unwrap_or(0) as u32
}

/// Returns whether this task is a member, and not a child of `vfork` that uses a member's memory.
fn is_member() -> bool {
    // In a namespace of its own a child may have the number of its maker.
    !fork::is_sharing() && control().members[me()].thread.load(Ordering::Relaxed) == own_thread()
}

/// Returns the leader's number in Linux, which is the program's.
fn leader() -> u32 {
    control().members[0].thread.load(Ordering::Relaxed)
}

/// Returns the member with a number in Linux.
fn member_of(thread: u64) -> Option<usize> {
    let is_it = |member: &Member| u64::from(member.thread.load(Ordering::Relaxed)) == thread;
    control().members.iter().position(is_it).filter(|_| thread != 0)
}

/// Returns whether a number in Linux is that of a thread of the program.
fn is_thread(thread: u64) -> bool {
    member_of(thread).is_some_and(|member| waiting::has_number(&control().members[member]))
}

/// Returns the number that the program knows the sender of a signal by.
pub fn sender(process: u32) -> u32 {
    if member_of(u64::from(process)).is_some() { leader() } else { process }
}

/// Returns whether a signal that this member gets is a copy of one that was sent to the process's group. The
/// leader gets it as well, or had it sent.
pub fn is_copy(information: &context::Information) -> bool {
    const SI_USER: i32 = 0;
    const SI_KERNEL: i32 = 0x80;
    const OF_TERMINAL: [i32; 8] = [1, 2, 3, 18, 20, 21, 22, 28];
    let context::Information { signal, code, sender, .. } = *information;
    // Without a sender it is one sent to the thread for which there was no room to say more.
    let is_sent = code == SI_USER && sender != 0 || code == SI_KERNEL && OF_TERMINAL.contains(&signal);
    is_on() && me() != 0 && is_sent && !information.is_given()
}

/// The holder of the lock that is a thread of the leader, and not the program's.
const OF_LEADER: u32 = MOST_MEMBERS as u32 + 1;

/// Set in the holder's number while it waits for members that change their own memory, and has changed
/// nothing itself.
const WAITS: u32 = 1 << 31;

/// Runs `f` with the record, under the lock, with signals blocked.
fn locked<R>(f: impl FnOnce(&mut Record) -> R) -> R {
    sys::with_signals_blocked(|| with_record(f))
}

/// Runs `f` with the record, under the lock. The caller has blocked signals: a handler of the program could
/// not take the lock. The two that cannot be blocked are held back ([`faults`]).
fn with_record<R>(f: impl FnOnce(&mut Record) -> R) -> R {
    let is_member = !is_helper();
    if is_member {
        IN_RECORD.store(true, Ordering::Relaxed);
    }
    // This member's own handlers see the mark before the lock is taken, and until it is released.
    compiler_fence(Ordering::SeqCst);
    lock();
    let number = if is_member { me() as u32 + 1 } else { OF_LEADER };
    // A child of `vfork` may be killed while it waits: its maker finds the lock taken then.
    control().holder.store(number | WAITS, Ordering::Relaxed);
    parts::await_others(insides(), u32::MAX, &Linux);
    control().holder.store(number, Ordering::Relaxed);
    // SAFETY: the lock is held.
    let result = f(unsafe { &mut *control().record.get() });
    release();
    compiler_fence(Ordering::SeqCst);
    if is_member {
        IN_RECORD.store(false, Ordering::Relaxed);
    }
    result
}

/// Returns the words by which members say that they change their own memory without the lock (`own`).
fn insides() -> impl Iterator<Item = &'static AtomicU32> {
    let most = control().most.load(Ordering::Relaxed) as usize;
    control().members[..=most].iter().map(|member| &member.inside)
}

/// Returns whether this is another thread of the leader than the program's.
fn is_helper() -> bool {
    thread::is_watcher() || helpers::is_helper() || signals::is_courier()
}

/// Whether this member has the lock, or waits for it. The watcher does not say so, because the leader's own
/// thread reads the same word.
static IN_RECORD: AtomicBool = AtomicBool::new(false);

/// Forgets what the maker of this member or process was about: it had the lock.
fn forget_maker() {
    IN_RECORD.store(false, Ordering::Relaxed);
    faults::forget_held();
}

/// Ends the program by a fault of the processor in a member that has the lock, or waits for it: handling
/// that would take the lock. Returns whether this is one.
pub fn fails(signal: i32, code: i32) -> bool {
    let fails = code > 0 && IN_RECORD.load(Ordering::Relaxed) && !is_helper();
    if fails {
        sigaction::die_of(signal as u64);
    }
    fails
}

/// Has the memory below this function's frame mapped, before the lock is taken: a stack may reach from one
/// region into another, and must not fault then.
fn prepare_stack() {
    let here = 0_u8;
    let below = (&raw const here as u64).wrapping_sub(pathreads::PAGE);
    // A wrong address is no harm. The copy ends there.
    user::read_some(below, &mut [0]);
    // So that it can be written to: it may be in a snapshot, or be mapped without that right.
    user::write_same(below);
}

/// Linux, as members wait for each other and interrupt each other.
struct Linux;

impl requests::Kernel for Linux {
    fn wait(&self, word: &AtomicU32, value: u32, milliseconds: u64) {
        wait(word, value, milliseconds * MILLISECOND);
    }

    fn wake(&self, word: &AtomicU32) {
        wake(word);
    }

    fn interrupt(&self, thread: u32) {
        let thread = u64::from(thread);
        let _ = harmless!(nr::TGKILL, thread, thread, SIGSTKFLT);
        control().requests.fetch_add(1, Ordering::Relaxed);
    }
}

/// Takes the lock. A signal of a request interrupts the sleep. Requests to the leader are its own thread's,
/// which must stop, or queue signals, itself.
fn lock() {
    requests::take_lock(&control().lock, &Linux, || {
        if !is_helper() {
            serve_here();
        }
    });
}

/// Takes the lock, if it is released within some milliseconds: its holder may have been killed. Returns
/// whether it is taken.
fn lock_within(milliseconds: u64) -> bool {
    requests::take_lock_within(&control().lock, milliseconds, &Linux)
}

/// Waits for members that change their own memory, for some time each: they may have been killed.
fn await_insides() {
    const TRIES: u32 = 20;
    parts::await_others(insides(), TRIES, &Linux);
}

/// Forgets the members that were killed before a program is executed: in the leader's watcher, which has the
/// lock. If it has not, one of them may have held it, or been asked by the leader's own thread, which only
/// waits from now on.
fn forget_members(is_locked: bool) {
    for member in &control().members[1..] {
        member.thread.store(0, Ordering::Relaxed);
        member.pending.store(0, Ordering::Release);
        wake(&member.pending);
    }
    parts::forget(control().members[1..].iter().map(|member| &member.inside), &control().table);
    if is_locked || !matches!(control().holder.load(Ordering::Relaxed) & !WAITS, 1 | OF_LEADER) {
        unlock();
    }
}

/// Forgets what members were about when a process was copied, which has one of its own: another may have been
/// stopped when it was about to see that the lock is taken.
fn forget_insides() {
    parts::forget(control().members.iter().map(|member| &member.inside), &control().table);
}

/// Releases the lock of the record.
fn release() {
    control().holder.store(0, Ordering::Relaxed);
    unlock();
}

/// Releases the lock.
fn unlock() {
    requests::release_lock(&control().lock, &Linux);
}

const MILLISECOND: u64 = 1_000_000;

/// Sleeps while a word has a value, for some nanoseconds at most, or until a signal.
fn wait(word: &AtomicU32, value: u32, nanoseconds: u64) {
    const WAIT: u64 = 0;
    const SECOND: u64 = 1000 * MILLISECOND;
    let time = [nanoseconds / SECOND, nanoseconds % SECOND];
    let _ = harmless!(nr::FUTEX, word.as_ptr() as u64, WAIT, u64::from(value), time.as_ptr() as u64);
}

/// Wakes all that sleep at a word.
fn wake(word: &AtomicU32) {
    const WAKE: u64 = 1;
    let _ = harmless!(nr::FUTEX, word.as_ptr() as u64, WAKE, i32::MAX as u64);
}

/// Asks members, and waits for their answers. This member is left out. The lock is held.
fn request(members: Members, what: Request) {
    // A child of `vfork` acts in its maker's name, and has not what that has mapped.
    let members = if fork::is_sharing() { members } else { members.without(me()) };
    if members.is_empty() {
        return;
    }
    // SAFETY: the lock is held, and no member is asked.
    unsafe { control().request.get().write(what) };
    let seat = |member: usize| {
        let Member { thread, pending, .. } = &control().members[member];
        Seat { thread, pending }
    };
    requests::ask(members.iter().map(seat), &control().stops, &Linux);
}

/// Returns all members but this one.
fn others() -> Members {
    (0..MOST_MEMBERS).fold(Members::NONE, |set, member| {
        let is_there = control().members[member].thread.load(Ordering::Relaxed) != 0;
        if is_there && member != me() { set.with(member) } else { set }
    })
}

/// Notes where the stacks are of this member, which stands on one.
fn note_stacks_here() {
    let here = 0_u8;
    snapshots::note_stacks(&raw const here as u64);
}

/// Does what this member is asked to do, if it is, on the stack on which it stands.
fn serve_here() {
    let here = 0_u8;
    serve(&raw const here as u64);
}

/// Does what this member is asked to do, if it is. `pointer` is that of the stack where it was interrupted.
fn serve(pointer: u64) {
    if fork::is_sharing() {
        return;
    }
    let mut stops = None;
    requests::serve(&control().members[me()].pending, &Linux, || stops = do_as_asked(pointer));
    if let Some(value) = stops {
        stay_stopped(value, pointer);
    }
}

/// Does what this member is asked to do. Returns the value of `stops` if it is to stop.
#[inline(always)]
fn do_as_asked(pointer: u64) -> Option<u32> {
    // SAFETY: the requester waits until `pending` is cleared.
    let what = unsafe { *control().request.get() };
    match what {
        Request::Unmap { start, end } => unmap_here(start, end),
        Request::Protect { start, end } => {
            // SAFETY: the requester holds the lock, and does not change the record until `pending` is
            // cleared.
            let record = unsafe { &*control().record.get() };
            record.touched(start, end).filter(|region| region.holders.has(me())).for_each(protect_here);
        }
        Request::Replace { start, end } => {
            // SAFETY: as above.
            let record = unsafe { &*control().record.get() };
            let regions = record.touched(start, end).filter(|region| region.holders.has(me()));
            regions.for_each(replace_here);
        }
        Request::Act { signal, action } => sigaction::set_here(signal, action),
        Request::Stop { .. } => snapshots::note_stacks(pointer),
        Request::Look => {}
        // SAFETY: as above.
        Request::Freeze { file } => snapshots::drop_rights_here(unsafe { &*control().record.get() }, file),
        // SAFETY: as above.
        Request::Forget => snapshots::forget_here(unsafe { &*control().record.get() }),
        Request::Register => {
            let _ = calls::register();
        }
        Request::Queue { signal } => signals::take_carried(signal),
    }
    if let Request::Stop { value } = what { Some(value) } else { None }
}

/// Waits until members go on, and does meanwhile what this one is asked to do.
fn stay_stopped(value: u32, pointer: u64) {
    requests::stay_stopped(&control().stops, value, &Linux, || serve(pointer));
}

/// Releases the lock if it was taken in this member's name, by a child that was killed. Returns whether that
/// had begun to change the record.
fn release_for_child() -> bool {
    let number = me() as u32 + 1;
    let holder = control().holder.load(Ordering::Relaxed);
    if holder == number | WAITS {
        release();
    }
    holder == number
}

/// Runs `f`, which copies the program's memory, while all other members are stopped. A copy that is made
/// while they write would have what one wrote last, and not what it wrote before. The lock is held.
fn with_others_stopped<R>(f: impl FnOnce() -> R) -> R {
    let stops = &control().stops;
    let value = requests::begin_stop(stops);
    request(others(), Request::Stop { value });
    let result = f();
    requests::end_stop(stops, &Linux);
    result
}

/// Handles SIGSTKFLT.
pub extern "C" fn on_request(_: u64, _: &context::Information, context: &mut context::Context) {
    let (mask, is_in_stub) = context.blocked();
    signals::serving(is_in_stub, mask, || serve(context.stack_pointer()));
    calls::IS_ASKED.store(1, Ordering::Relaxed);
    context::prepare_again(context);
}

/// Maps a region here as it is recorded.
fn map_here(region: &Region) -> Result {
    let Region { start, end, .. } = *region;
    let file = if region.file == NO_FILE { memory_file() } else { region.file };
    let offset = region.offset_of(start);
    // A snapshot of the program's own memory may become that again, as it is mapped.
    let is_private = region.is_private && !snapshots::is_own(region);
    let kind = if is_private { MAP_PRIVATE } else { MAP_SHARED };
    let (rights, flags) = (region.mapped_rights(), kind | MAP_FIXED | MAP_NORESERVE);
    // SAFETY: the memory is the program's.
    unsafe { sys::mmap(start, end - start, rights, flags, file, offset) }
}

/// Maps a region here, and notes that.
fn take(region: &mut Region) -> Result {
    // A block that was made ordinary for this member was counted as mapped here.
    let mapped = map_here(region).inspect_err(|_| SYNCED.store(NEVER, Ordering::Relaxed))?;
    region.holders = region.holders.with(me());
    if !fork::is_sharing() {
        region.current = region.current.with(me());
    }
    Ok(mapped)
}

/// Maps a region of which a copy was made. The right to write comes by a fault, when all have the copy.
fn replace_here(region: &Region) {
    let rights =
        if region.rights & PROT_WRITE == 0 { region.rights } else { region.rights & !PROT_WRITE | PROT_READ };
    if map_here(&Region { rights, ..*region }).is_err() {
        unmap_here(region.start, region.end);
    }
}

fn unmap_here(start: u64, end: u64) {
    // SAFETY: the memory was the program's, which has unmapped it.
    unsafe { sys::munmap(start, end - start) };
}

fn protect_here(region: &Region) {
    // SAFETY: the memory is the program's.
    let _ =
        unsafe { sys::call(nr::MPROTECT, [region.start, region.end - region.start, region.mapped_rights()]) };
}

/// Gives pages of the program's memory back, by their offsets. They are zero when they are used again.
fn punch(start: u64, end: u64) {
    const KEEP_SIZE_PUNCH_HOLE: u64 = 3;
    let _ = harmless!(nr::FALLOCATE, memory_file(), KEEP_SIZE_PUNCH_HOLE, start, end - start);
}

/// Handles an access to memory that this member does not have as recorded. Returns whether it has it now.
/// `cause` is the processor's error code.
pub fn fault(address: u64, cause: u64) -> bool {
    const WRITE: u64 = 1 << 1;
    const FETCH: u64 = 1 << 4;
    let needed = match cause {
        _ if cause & WRITE != 0 => PROT_WRITE,
        _ if cause & FETCH != 0 => PROT_EXEC,
        _ => PROT_READ | PROT_WRITE,
    };
    locked(|record| {
        let is_programs = |region: &&mut Region| region.rights & needed != 0 && blocks::is_open(region);
        let Some(region) = record.at_mut(address).filter(is_programs) else {
            return false;
        };
        control().faults.fetch_add(1, Ordering::Relaxed);
        if needed == PROT_WRITE && region.needs_copy() {
            return memory::copy_private(record, address, address + 1).is_ok();
        }
        take(region).is_ok()
    })
}

/// Maps all regions that this member does not have as recorded. Inlined, because Go makes calls with little
/// stack.
#[inline(always)]
pub fn sync() {
    if !is_synced() || blocks::are_new() {
        map_all();
    }
}

/// Does the same before a call of which the memory is not known. Memory that must be copied before it is
/// written to is copied where an argument points to.
pub fn sync_to_write(call: &[u64; 7]) {
    const LIKELY: u64 = 1 << 20;
    sync();
    let named = || call[1..].iter().filter(|at| needs_copy(**at, at.saturating_add(1)));
    if named().next().is_some() {
        prepare_stack();
        locked(|record| {
            for at in named() {
                // The kernel reports memory that cannot be had.
                let _ = memory::copy_private(record, *at, at.saturating_add(LIKELY));
            }
        });
    }
    // A copy may have been made meanwhile.
    sync();
}

/// Returns whether a range may have memory that must be copied before the kernel writes to it.
fn needs_copy(start: u64, end: u64) -> bool {
    // Acquire pairs with the release in `memory::note_copies`: the version that was announced before is seen.
    let [low, high] = control().copies.each_ref().map(|bound| bound.load(Ordering::Acquire));
    low < end && start < high
}

#[inline(never)]
fn map_all() {
    prepare_stack();
    locked(|record| {
        blocks::note_seen();
        let is_missing =
            |region: &&mut Region| region.rights != 0 && !region.current.has(me()) && blocks::is_open(region);
        for region in record.all_mut().filter(is_missing) {
            let _ = take(region);
        }
        note_synced();
    });
}

/// Notes that this task has all that is recorded.
fn note_synced() {
    requests::note_synced(&control().version, &SYNCED);
}

/// Returns whether this member has all that is recorded, but blocks of other members.
fn is_synced() -> bool {
    requests::is_synced(&control().version, &SYNCED)
}

/// Maps the regions of a range that this member does not have as recorded.
#[inline(always)]
pub fn touch(start: u64, length: u64) {
    // The version is read after the states of blocks: it is increased before one becomes ordinary.
    let has_it = if lacks::looks() {
        false
    } else if is_synced() && !needs_copy(start, start.saturating_add(length)) {
        !blocks::may_be_others(start, length) && is_synced()
    } else {
        remembered::has(start, length)
    };
    if !has_it {
        map_range(start, length);
    }
}

#[inline(never)]
fn map_range(start: u64, length: u64) {
    prepare_stack();
    locked(|record| {
        let end = start.saturating_add(length);
        bring(record, start, end);
        if lacks::looks() {
            lacks::note(record, start, end);
        }
        let is_ready = |region: &&Region| region.current.has(me()) && !region.needs_copy();
        if let Some(region) = record.at(start).filter(is_ready) {
            remembered::add(region);
        }
    });
}

/// Maps the regions of a range that this member does not have as recorded, so that the kernel may write
/// there. The lock is held.
fn bring(record: &mut Record, start: u64, end: u64) {
    // The kernel reports memory that cannot be had.
    let _ = memory::copy_private(record, start, end);
    touch_in(record, start, end);
}

fn touch_in(record: &mut Record, start: u64, end: u64) {
    record.change(start, end, |region| {
        if !region.current.has(me()) && blocks::is_open(region) {
            let _ = take(region);
        }
    });
}

/// Notes that members may have less than is recorded. The lock is held. This member has what changed, or
/// maps it before the lock is released.
fn announce() {
    requests::note_announced(&SYNCED, announce_to_all());
}

/// Notes that members may have less than is recorded, this one included. Returns the version before.
fn announce_to_all() -> u64 {
    let version = requests::announce(&control().version);
    lacks::tell();
    version
}

/// Sets the action of a signal here, by `exchange`, and in all other members. Both happen under the lock, so
/// that all members end with the same action when two set it at once.
pub fn act<R>(signal: u64, action: [u64; 4], exchange: impl FnOnce() -> Result<R>) -> Result<R> {
    if !is_member() {
        return exchange();
    }
    prepare_stack();
    locked(|_| {
        let old = exchange()?;
        request(others(), Request::Act { signal, action });
        Ok(old)
    })
}

/// Returns the error of a table that is full.
fn full(_: Full) -> Errno {
    Errno::ENOMEM
}

/// Prints the counters.
pub fn print_counters() {
    let (mut faults, mut requests, mut at_fork, mut later) = ([0; 20], [0; 20], [0; 20], [0; 20]);
    let [copied_at_fork, copied_later] =
        control().copied.each_ref().map(|bytes| bytes.load(Ordering::Relaxed));
    sys::say(&[
        b"pathreads: ",
        sys::decimal(control().faults.load(Ordering::Relaxed), &mut faults),
        b" faults that mapped memory of another thread, ",
        sys::decimal(control().requests.load(Ordering::Relaxed), &mut requests),
        b" requests to other threads, ",
        sys::decimal(copied_at_fork, &mut at_fork),
        b" bytes copied by fork, ",
        sys::decimal(copied_later, &mut later),
        b" before they were written to\n",
    ]);
}

/// Says what the mode cannot do, and returns the error for it.
fn refuse(what: &[u8]) -> Errno {
    sys::say(&[b"pathreads: --isolate cannot do this: ", what, b"\n"]);
    Errno::ENOSYS
}

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
//! | stale: taken away, and still mapped here | SIGBUS, and [`stale_fault`] unmaps it | gone, current |
//!
//! 1. *The record decides.* It is read and changed under [`lock`], but for memory that one member alone has
//!    (8). Nothing touches the program's memory under the lock, because that may fault, and a fault takes the
//!    lock.
//! 2. *A region names its members twice*: `holders` may have it mapped, and `current` have it as recorded. A
//!    new right clears `current` and disturbs no member. Plain memory that goes is made stale in `holders`
//!    ([`stale`]). A lost right, and memory that cannot be made stale, is a request to them.
//!    A part that becomes a copy is a request to `holders`, too: no member writes to the copy before all
//!    have it.
//! 3. *A request is answered before the lock is released* (`pathreads::requests`). The requester writes it,
//!    sets `pending` of each member and sends SIGSTKFLT. The member does what is asked and clears `pending`.
//!    SIGSTKFLT is never blocked, so a member that waits for the lock answers too. A call that it interrupted
//!    is prepared and made again (`entry`), and so is one that it met between the two. A call that waits for
//!    memory which is not there is prepared once more when there is more ([`lacks`]).
//!    A member that cannot give memory or a right up, because Linux allows no more mappings, says so. The
//!    record stays then, and the program's call fails ([`memory::remove`]).
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
//!    has that* ([`own`]). Those that have taken the lock wait for it. So do its handlers ([`postponed`]).
//! 9. *The memory that a call names is mapped before the call* ([`sync`], [`touch`]): the kernel's accesses
//!    do not come to the handler of SIGSEGV.

mod addresses;
mod asking;
mod barriers;
pub mod blocks;
pub mod calls;
mod copies;
mod cpu_clocks;
pub mod cpu_timers;
mod descriptors;
pub mod devices;
pub mod faults;
pub mod fork;
pub mod helpers;
mod lacks;
mod lock;
mod mapped;
pub mod memory;
mod own;
pub mod postponed;
mod remap;
mod remembered;
mod reservations;
mod siginfo;
mod signal_files;
mod signal_stack;
pub mod signals;
mod snapshots;
pub mod stale;
pub mod stats;
pub mod thread;
pub mod timers;
pub mod wait;
pub mod waiting;
mod whole;

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use abi::Errno;
use pathreads::block::Blocks;
use pathreads::member_reservation::Reservations;
use pathreads::record::{Full, LAYER, MOST_MEMBERS, Record};
use pathreads::{RUNTIME_BASE, RUNTIME_END, page_end};

use crate::sys::{self, MAP_FIXED, MAP_SHARED, PROT_READ, PROT_WRITE, Result, SIGSYS_BIT, harmless, nr};
use crate::{context, entry};

use asking::{Request, note_stacks_here, others, request, request_or_fail, serve_here, with_others_stopped};
pub use asking::{act, on_request};
use descriptors::{keep_away, kept_in};
pub use lock::fails;
use lock::{
    await_insides, forget_insides, forget_maker, forget_members, lock_within, locked, prepare_stack,
    release_for_child, unlock, with_record,
};
use mapped::{
    announce, announce_to_all, bring, first_run, map_here, note_synced, protect_here, punch, replace_here,
    sync_to_write, take, touch_in, try_unmap_here, unmap_here,
};
pub use mapped::{fault, stale_fault, sync, touch};
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
    /// The memory that its call names, and that others have made stale in it.
    state: stale::State,
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
    stats: [stats::Stats; MOST_MEMBERS],
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
    /// Whether a member that was asked has not done it, because Linux allows no more mappings.
    is_refused: AtomicBool,
    /// Whether a thread has changed what Linux keeps for another one: no member waits from then on.
    is_reuse_over: AtomicBool,
    /// The barriers that the program has registered for. Written under the lock.
    barriers: AtomicU32,
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
    signal_files: signal_files::SignalFiles,
    /// From here on a child of `fork` has a copy of some of it (`fork`).
    blocks: Blocks,
    reservations: Reservations,
    timers: timers::Timers,
    cpu_timers: cpu_timers::CpuTimers,
    /// Where threads sleep whose futex has gone.
    gone: calls::Gone,
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
    if sys::limit_of(RLIMIT_FSIZE) != u64::MAX {
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
    control().heap_end.store(addresses::HEAP, Ordering::Relaxed);
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

const RLIMIT_FSIZE: u64 = 1;

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

/// Returns the error of a table that is full.
fn full(_: Full) -> Errno {
    Errno::ENOMEM
}

/// Says what the mode cannot do, and returns the error for it.
fn refuse(what: &[u8]) -> Errno {
    sys::say(&[b"pathreads: --isolate cannot do this: ", what, b"\n"]);
    Errno::ENOSYS
}

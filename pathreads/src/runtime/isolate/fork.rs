//! Processes that the program makes. All are children of the leader, so that any thread may wait for them:
//! the leader makes its own, and a helper makes those of other members. A helper is a thread of the leader.
//!
//! | call | the child's memory | its maker |
//! |---|---|---|
//! | `fork`, `clone` without CLONE_VM | a copy, in files of its own, and snapshots | goes on at once |
//! | `vfork`, `clone` with CLONE_VM and CLONE_VFORK, beside other threads | the program's, mapped in a new address space | sleeps until the child has ended or executes, and answers requests |
//! | the same of the only thread | its maker's, as on Linux | sleeps in the kernel |
//!
//! `fork` copies small memory and the record while all other members are stopped, makes snapshots of large
//! memory (`snapshots`), and then makes the child. So the child waits for no other process. It is the leader
//! of a program without other members. It begins on a stack of the runtime. It inherits the leader's memory,
//! and unmaps that first.
//!
//! A child of `vfork` is no member. It has everything mapped that is recorded, and is not asked when memory
//! goes: its life is short, and its maker keeps the memory that it needs. It records its mappings in its
//! maker's name, and asks its maker, too, when it takes memory away. The kernel tells the maker of its end
//! through a robust list: the kernel marks the words of that when a process ends or executes a program.

use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::mem::{MaybeUninit, offset_of};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use abi::Errno;
use pathreads::record::{LAYER, MOST_MEMBERS, Members, NO_FILE, Record, Region};

use super::descriptors::copy_away;
use super::helpers::{self, What};
use super::waiting::Next;
use super::{
    CONTROL, Control, MILLISECOND, Member, blocks, calls, control, faults, lacks, map_control, me,
    memory_file, new_file, own_thread, refuse, snapshots, stale, sync, thread, wait, waiting,
};
use crate::clone::{
    ARGS, ARGS_FLAGS, ARGS_PIDFD, ARGS_SIGNAL, CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID, CLONE_FILES,
    CLONE_PARENT, CLONE_PARENT_SETTID, CLONE_PIDFD, CLONE_SETTLS, CLONE_SIGHAND, CLONE_THREAD, CLONE_VFORK,
    CLONE_VM, OF_CLONE,
};
use crate::entry::{self, Frame};
use crate::sys::{self, O_CLOEXEC, Result, harmless, nr};
use crate::{sigaction, stack, user};

/// The child that a program asks for.
pub struct Child {
    /// The flags, without the signal at the end.
    pub flags: u64,
    pub signal: u64,
    /// The end of its stack.
    pub stack: u64,
    pub parents_word: u64,
    pub childs_word: u64,
    pub descriptor_at: u64,
    /// The base of its thread-local memory, with CLONE_SETTLS.
    pub local: u64,
}

/// All that a helper needs to make a child, and the child to begin. It is in the control area.
pub struct Making {
    flags: u64,
    signal: u64,
    frame: Frame,
    /// The thread that it goes on as, which has the base of thread-local memory and the rounding modes.
    next: Next,
    /// The program's stack for signals, as `sigaltstack` takes it.
    signal_stack: Option<[u64; 3]>,
    /// The faults that wait for a handler.
    deferred: u32,
    /// The number of the member that makes a child of `vfork`.
    maker: usize,
    /// The files that a child of `fork` finds.
    memory: u64,
    area: u64,
    /// The descriptor of the child, if that was asked for.
    descriptor: AtomicU32,
}

/// The end of a member's child of `vfork`, in the control area.
pub struct Ending {
    /// The kernel's `struct robust_list`, which is the only one.
    next: AtomicU64,
    /// The child's number. The kernel sets [`OWNER_DIED`] when it ends or executes a program.
    word: AtomicU32,
    /// 1 when it has begun.
    has_begun: AtomicU32,
}

const OWNER_DIED: u32 = 0x4000_0000;
const WAITERS: u32 = 0x8000_0000;

/// Whether this process is a child of `vfork` beside other threads.
static IS_SHARING: AtomicBool = AtomicBool::new(false);

/// Returns whether this process is a child of `vfork` beside other threads. It is no member.
pub fn is_sharing() -> bool {
    IS_SHARING.load(Ordering::Relaxed)
}

const STACK: usize = 16 << 10;

#[repr(align(16))]
struct Stack(UnsafeCell<[u8; STACK]>);

// SAFETY: it is used by a child that has one thread, in its own copy of it.
unsafe impl Sync for Stack {}

static STACK_OF_CHILD: Stack = Stack(UnsafeCell::new([0; STACK]));

/// A child and its descriptor, if that was asked for.
struct Made {
    number: u64,
    descriptor: u32,
}

/// Makes a process with a copy of the program's memory. Returns the result of `clone`.
pub fn make(frame: &Frame, child: &Child) -> u64 {
    if child.flags & OF_OTHERS != 0 {
        return Errno::EINVAL.to_result();
    }
    if child.flags & (CLONE_VFORK | CLONE_FILES) != 0 {
        return refuse(b"a child that shares files or is waited for, and has a copy of the memory")
            .to_result();
    }
    let making = describe(frame, child);
    let made = super::locked(|record| {
        thread::await_leaving();
        // At one moment, because members use and unmap blocks without the lock. No other member can close the
        // files until the child has them.
        super::with_others_stopped(|| {
            super::note_stacks_here();
            let snapshots = snapshots::begin(record);
            let made = make_copied(record, making);
            if let Some(file) = snapshots {
                snapshots::go_on(record, file);
            }
            made
        })
    });
    result_of(child, made)
}

/// Makes a child with copies of what is in no snapshot.
fn make_copied(record: &Record, mut making: Making) -> Result<Made> {
    // Linux says that there is no memory, too.
    let [memory, area] = copy_all(record).map_err(|_| Errno::ENOMEM)?;
    [making.memory, making.area] = [memory, area];
    let made = ask_for(making);
    [memory, area].into_iter().for_each(sys::close);
    made
}

/// Returns whether a child of `vfork` lives that shares memory with other members.
pub fn has_sharing_children() -> bool {
    control().members.iter().any(|Member { ending, .. }| {
        ending.has_begun.load(Ordering::Relaxed) != 0 && ending.word.load(Ordering::Relaxed) & OWNER_DIED == 0
    })
}

/// The flags of children of another process, or of threads.
const OF_OTHERS: u64 = CLONE_PARENT | CLONE_THREAD;

/// Copies the program's memory and the control area. Returns the files.
fn copy_all(record: &Record) -> Result<[u64; 2]> {
    let length = snapshots::MOST_LAYERS * LAYER;
    let memory = with_file(c"program", length, |memory| copy_memory(record, memory))?;
    let area = with_file(c"control", size_of::<Control>() as u64, |area| copy_control(record, area));
    area.map(|area| [memory, area]).inspect_err(|_| sys::close(memory))
}

/// Makes a process with the memory of this one, and waits until it ends or executes a program. Returns the
/// result of `clone`.
pub fn share(frame: &mut Frame, child: &Child) -> u64 {
    if child.flags & OF_OTHERS != 0 {
        return Errno::EINVAL.to_result();
    }
    let Some(on_stack) = OnStack::of(frame) else { return Errno::EAGAIN.to_result() };
    let mut making = describe(frame, child);
    making.frame.scratch[5] = IS_SHARING_MARK;
    let Ending { word, has_begun, .. } = &control().members[me()].ending;
    let made = super::locked(|record| {
        // The child has no blocks, and may unmap what are its maker's.
        blocks::settle_own(record)?;
        word.store(0, Ordering::Relaxed);
        has_begun.store(0, Ordering::Relaxed);
        let made = ask_for(making)?;
        // Acquire pairs with the release in `begin_sharing`, which reads the record.
        while has_begun.load(Ordering::Acquire) == 0 && !super::wait::has_ended(made.number) {
            wait(has_begun, 0, 10 * MILLISECOND);
        }
        Ok(made)
    });
    if made.is_ok() {
        until_over();
    }
    on_stack.restore();
    result_of(child, made)
}

/// Waits until the child of this member has ended, or executes a program.
fn until_over() {
    let Ending { word, has_begun, .. } = &control().members[me()].ending;
    if has_begun.load(Ordering::Relaxed) == 0 {
        return;
    }
    loop {
        // Acquire: what the child wrote is seen by the program.
        let value = word.load(Ordering::Acquire);
        if value & OWNER_DIED != 0 {
            break;
        }
        wait(word, value, 1000 * MILLISECOND);
    }
    if super::release_for_child() {
        sys::fail(b"a child of vfork was killed while it changed the record of memory", 125);
    }
}

/// A copy of the part of the program's stack that this thread uses: the child of `vfork` goes on there, and
/// overwrites it. Behind it may be memory of others, since Go has stacks of 2 KiB.
struct OnStack {
    start: u64,
    length: usize,
    bytes: [u8; MOST_ON_STACK],
}

/// The most bytes that the runtime has there, before it goes on on a stack of its own.
const MOST_ON_STACK: usize = 2048;

impl OnStack {
    /// Copies it, from where the stack was left to the end of the frame. Returns `None` if this thread is
    /// still there.
    fn of(frame: &Frame) -> Option<Self> {
        let (start, end) = (stack::left_at()?, &raw const *frame as u64 + entry::FRAME);
        let length = end.checked_sub(start)? as usize;
        let mut bytes = [0; MOST_ON_STACK];
        user::read(start, bytes.get_mut(..length)?).ok()?;
        Some(OnStack { start, length, bytes })
    }

    fn restore(&self) {
        let _ = user::write(self.start, &self.bytes[..self.length]);
    }
}

/// Says in a frame that it is of a child that shares memory.
pub const IS_SHARING_MARK: u64 = 1;

/// Describes a child that goes on with this frame.
fn describe(frame: &Frame, child: &Child) -> Making {
    let word_if = |flag: u64| if child.flags & flag != 0 { child.childs_word } else { 0 };
    let mut frame = Frame { rsp: child.stack, ..frame.clone() };
    frame.scratch[3..5].copy_from_slice(&[CLONE_CHILD_SETTID, CLONE_CHILD_CLEARTID].map(word_if));
    let local = if child.flags & CLONE_SETTLS != 0 { child.local } else { own_local() };
    let own = CLONE_VM | CLONE_VFORK | CLONE_SIGHAND | CLONE_SETTLS | CLONE_PARENT_SETTID;
    Making {
        flags: child.flags & !(own | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID),
        signal: child.signal,
        frame,
        next: Next::new(core::ptr::null_mut(), local, 0, 0),
        signal_stack: super::programs_stack(),
        deferred: faults::DEFERRED.load(Ordering::Relaxed),
        maker: me(),
        memory: 0,
        area: 0,
        descriptor: AtomicU32::new(0),
    }
}

/// Has the leader's process make a child. The lock is held.
fn ask_for(making: Making) -> Result<Made> {
    // SAFETY: the lock is held, and no helper makes a child.
    unsafe { control().making.get().write(making) };
    let number = helpers::ask(What::Child)?;
    // SAFETY: as above.
    let descriptor = unsafe { &*control().making.get() }.descriptor.load(Ordering::Relaxed);
    Ok(Made { number, descriptor })
}

/// Writes what the maker of a child asked for, and returns the result of its call.
fn result_of(child: &Child, made: Result<Made>) -> u64 {
    let Made { number, descriptor } = match made {
        Ok(made) => made,
        Err(error) => return error.to_result(),
    };
    let words = [
        (CLONE_PARENT_SETTID, child.parents_word, number as u32),
        (CLONE_PIDFD, child.descriptor_at, descriptor),
    ];
    for (_, at, value) in words.into_iter().filter(|(flag, ..)| child.flags & flag != 0) {
        let _ = user::write(at, &value.to_le_bytes());
    }
    number
}

/// Returns the base of this thread's thread-local memory.
fn own_local() -> u64 {
    const ARCH_GET_FS: u64 = 0x1003;
    let mut local = 0_u64;
    let _ = harmless!(nr::ARCH_PRCTL, ARCH_GET_FS, &raw mut local as u64);
    local
}

/// The description of a child, in its own memory.
struct Found(UnsafeCell<MaybeUninit<Making>>);

// SAFETY: one child is made at a time, under the lock.
unsafe impl Sync for Found {}

static FOUND: Found = Found(UnsafeCell::new(MaybeUninit::uninit()));

/// Makes the child that the control area describes, in the leader's process, while a member has the lock.
pub fn make_here() -> Result {
    // The kernel does not guard what is stale in the child's copy of this address space.
    stale::unmap(0, u64::MAX)?;
    // SAFETY: the member that has the lock wrote it, and waits. The copy is for the child.
    let making = unsafe {
        (*FOUND.0.get()).write(control().making.get().read());
        &*control().making.get()
    };
    // SAFETY: one member has the lock, and makes one child at a time.
    let copy = unsafe { STACK_OF_CHILD.0.get().cast::<u8>().add(STACK).cast::<Frame>().sub(1) };
    // SAFETY: the frame fits, and its size keeps the stack aligned.
    unsafe { copy.write(making.frame.clone()) };
    let descriptor = making.descriptor.as_ptr() as u64;
    let mut args = [0_u64; ARGS];
    args[ARGS_FLAGS] = making.flags;
    args[ARGS_PIDFD] = descriptor;
    args[ARGS_SIGNAL] = making.signal;
    let call = if making.flags & !OF_CLONE == 0 {
        [nr::CLONE, making.flags | making.signal, 0, descriptor, 0, 0, 0]
    } else {
        [nr::CLONE3, args.as_ptr() as u64, size_of_val(&args) as u64, 0, 0, 0, 0]
    };
    // SAFETY: the frame is the child's. Signals are blocked.
    let result = unsafe { entry::spawn_child(copy, &raw const call) };
    Errno::from_result(result).map_or(Ok(result), Err)
}

/// Makes a file and fills it. If that fails, there is none.
fn with_file(name: &CStr, length: u64, fill: impl FnOnce(u64) -> Result<()>) -> Result {
    let file = new_file(name, length)?;
    fill(file).inspect_err(|_| sys::close(file))?;
    Ok(file)
}

/// Copies the program's memory that is in no snapshot of the child's, to the first layer of a file.
fn copy_memory(record: &Record, memory: u64) -> Result<()> {
    let is_copied =
        |region: &&Region| region.file == NO_FILE && !blocks::is_kept(region) || snapshots::is_own(region);
    for region in record.all().filter(is_copied) {
        let (from, length) = (region.offset_of(region.start), region.end - region.start);
        let copied = super::copies::copy_data(memory_file(), from, memory, region.start, length)?;
        control().copied[0].fetch_add(copied, Ordering::Relaxed);
    }
    Ok(())
}

/// Copies what is in use of the control area. Members that were never made have no blocks.
fn copy_control(record: &Record, area: u64) -> Result<()> {
    let members = control().most.load(Ordering::Relaxed) as usize + 1;
    let others_end = &raw const control().blocks as u64;
    copy_at(CONTROL, others_end, area)?;
    for tables in [control().blocks.of_first(members), control().reservations.of_first(members)] {
        copy_at(tables.start as u64, tables.end as u64, area)?;
    }
    record.in_use().into_iter().try_for_each(|[start, end]| copy_at(start, end, area))
}

/// Copies a part of the control area to the same place in a child's.
fn copy_at(start: u64, end: u64, area: u64) -> Result<()> {
    let mut at = start;
    while at < end {
        match harmless!(nr::PWRITE, area, at, end - at, at - CONTROL)? {
            0 => return Err(Errno::ENOMEM),
            written => at += written,
        }
    }
    Ok(())
}

/// Returns what this child was made for.
fn found() -> &'static Making {
    // SAFETY: it was written before this process was made, and does not change in it.
    unsafe { (*FOUND.0.get()).assume_init_ref() }
}

/// Begins a child with the state of the thread that it goes on as, which is not that of the process that it
/// is a copy of. It has the signals of the runtime then.
fn begin_as_maker(making: &Making) {
    super::forget_maker();
    super::remembered::forget(0, u64::MAX);
    calls::PREPARED.store(0, Ordering::Relaxed);
    super::signals::forget_wait();
    faults::DEFERRED.store(making.deferred, Ordering::Relaxed);
    super::begin_stack();
    sigaction::install();
    sys::set_mask(sys::ALL_BUT_FAULTS);
    making.next.set_state();
}

/// Makes a file the one of this process's memory, by the number of its maker's. A limit of descriptors may
/// have been set since that was made, and forbid its number.
fn take_memory_file(file: u64) {
    if harmless!(nr::DUP3, file, memory_file(), O_CLOEXEC).is_ok() {
        return sys::close(file);
    }
    sys::close(memory_file());
    let kept = copy_away(file).inspect(|_| sys::close(file)).unwrap_or(file);
    super::MEMORY.store(kept, Ordering::Relaxed);
}

/// Begins a child of `fork`.
pub fn begin(frame: &mut Frame) {
    let making = found();
    IS_SHARING.store(false, Ordering::Relaxed);
    let Making { memory, area, .. } = *making;
    map_control(area);
    take_memory_file(memory);
    sys::close(area);
    super::ME.store(0, Ordering::Relaxed);
    begin_as_maker(making);
    let control = control();
    let maker = harmless!(nr::GETPPID).unwrap_or(0) as u32;
    // The copied table has the members of the program that made this one.
    control.parent.store(super::sender(maker), Ordering::Relaxed);
    control.maker.store(maker, Ordering::Relaxed);
    for member in &control.members[..MOST_MEMBERS] {
        member.thread.store(0, Ordering::Relaxed);
        member.pending.store(0, Ordering::Relaxed);
        member.stage.store(waiting::THREAD, Ordering::Relaxed);
        member.job.forget();
        // Others' children of `vfork` are not this process's.
        member.ending.has_begun.store(0, Ordering::Relaxed);
    }
    control.members[0].thread.store(own_thread(), Ordering::Relaxed);
    control.ending.store(0, Ordering::Relaxed);
    control.lock.store(0, Ordering::Relaxed);
    super::forget_insides();
    control.stops.store(0, Ordering::Relaxed);
    lacks::begin_process();
    stale::begin_process();
    control.leaving.store(0, Ordering::Relaxed);
    blocks::begin();
    super::mapped::SYNCED.store(u64::MAX, Ordering::Relaxed);
    thread::begin_process(frame.scratch[4]);
    super::signals::begin_process();
    super::timers::begin_process();
    super::cpu_timers::begin_process();
    super::locked(|record| {
        // With neighbours at once: none of Linux's mappings is divided, of which there may be as many as it
        // allows.
        let mut at = 0;
        while let Some((start, end, _)) = super::first_run(record, at, u64::MAX) {
            super::unmap_here(start, end);
            at = end;
        }
        for region in record.all_mut() {
            (region.holders, region.current) = (Members::NONE, Members::NONE);
        }
        snapshots::begin_process(record);
        let _ = blocks::settle(record, 0, u64::MAX);
    });
    // The kernel may put a signal's frame on the program's stacks before the program touches them.
    sync();
    if let Some(stack) = making.signal_stack {
        super::take_programs_stack(stack);
    }
    if frame.scratch[3] != 0 {
        let _ = user::write(frame.scratch[3], &own_thread().to_le_bytes());
    }
}

/// The kernel's `struct robust_list_head` of a child that shares memory.
static ROBUST: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// Begins a child that shares memory. Its maker has the lock, and waits until it has begun.
pub fn begin_sharing() {
    let making = found();
    IS_SHARING.store(true, Ordering::Relaxed);
    super::ME.store(making.maker, Ordering::Relaxed);
    lacks::begin_member();
    stale::begin_sharing();
    begin_as_maker(making);
    blocks::begin();
    let Ending { next, word, has_begun } = &control().members[me()].ending;
    word.store(own_thread() | WAITERS, Ordering::Relaxed);
    let offset = offset_of!(Ending, word) as u64 - offset_of!(Ending, next) as u64;
    let head = ROBUST.as_ptr() as u64;
    for (place, value) in ROBUST.iter().zip([next.as_ptr() as u64, offset, 0]) {
        place.store(value, Ordering::Relaxed);
    }
    next.store(head, Ordering::Relaxed);
    let _ = harmless!(nr::SET_ROBUST_LIST, head, size_of_val(&ROBUST) as u64);
    // SAFETY: the maker has the lock.
    let record = unsafe { &*control().record.get() };
    let is_there = |region: &&Region| region.rights != 0 && !blocks::is_closed(region);
    for region in record.all().filter(is_there) {
        let _ = super::map_here(region);
    }
    super::note_synced();
    has_begun.store(1, Ordering::Release);
    super::wake(has_begun);
    let number_at = making.frame.scratch[3];
    if number_at != 0 {
        let _ = user::write(number_at, &own_thread().to_le_bytes());
    }
}

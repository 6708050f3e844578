//! Threads: how members are made, and how they and the program end.
//!
//! A member is made by `clone` without CLONE_VM. All are children of the leader, whose number the shell
//! knows. The *watcher* is a real thread of the leader in the runtime's code, with all signals blocked. It
//! waits for members with `__WCLONE`, so the program's own waiting does not see them.
//!
//! | how the program ends | `ending` | by |
//! |---|---|---|
//! | `exit_group` of the leader | [`EXITING`] | it kills the others and exits |
//! | `exit_group` of a member | [`EXITING`], with the status | it exits, and the watcher does the rest |
//! | the runtime fails in a member | 0 | the watcher kills the others, and exits with the status |
//! | a member dies of a signal | 0 | the watcher kills the others, and the leader by the same signal |
//! | the leader dies of a signal | 0 | PR_SET_PDEATHSIG |
//! | `execve` of the only member | 0 | the kernel ends the watcher |
//! | `execve` of one of several | [`EXECUTING`], with its frame | the watcher kills all, and executes: only a thread of the leader keeps the number |
//! | the last member exits, after the leader | 0 | the watcher exits with the leader's status |

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use abi::Errno;
use pathreads::record::{MOST_MEMBERS, Record};

use super::waiting::{self, Next};
use super::{
    MILLISECOND, blocks, control, faults, helpers, is_member, lacks, leader, locked, me, own_thread, refuse,
    stale, timers, touch, wait, wake,
};
use crate::clone::{
    CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID, CLONE_FILES, CLONE_FS, CLONE_PARENT, CLONE_PARENT_SETTID,
    CLONE_SETTLS, CLONE_SIGHAND, CLONE_SYSVSEM, CLONE_THREAD, CLONE_VM,
};
use crate::dispatch::Then;
use crate::entry::{self, Frame};
use crate::sys::{self, harmless, nr};
use crate::{boot, user};

const EXITING: u32 = 1;

/// Set with it by the thread that ends the members.
const FINISHING: u32 = 4;

/// Set in `ending` when the watcher is to execute a program.
const EXECUTING: u32 = 8;

/// Set in `ending` when the leader's own thread has ended before the others.
const LEADER_LEFT: u32 = 2;

const SIGKILL: u64 = 9;

/// The word to clear when this member ends, or 0.
static CLEARED: AtomicU64 = AtomicU64::new(0);

/// Whether there is a watcher.
static IS_WATCHED: AtomicBool = AtomicBool::new(false);

/// Returns the number of the program's process.
pub fn process() -> u64 {
    if is_member() { u64::from(leader()) } else { harmless!(nr::GETPID).unwrap_or(0) }
}

/// Returns the number of the process that made the program, or has the leader's process as its child when
/// that has ended.
pub fn parent() -> u64 {
    let parent = harmless!(nr::GETPPID).unwrap_or(0) as u32;
    match (is_member(), me()) {
        (false, _) => u64::from(super::sender(parent)),
        (true, 0) => shown_parent(parent),
        // A helper cannot be asked.
        (true, _) => u64::from(control().parent.load(Ordering::Relaxed)),
    }
}

/// Handles `getppid` of a member that is not the leader: its own parent is the leader.
pub extern "C" fn ask_for_parent(frame: &mut Frame) -> Then {
    let parent = helpers::ask(helpers::What::Call([nr::GETPPID, 0, 0, 0, 0, 0, 0]));
    frame.rax = parent.map_or_else(Errno::to_result, |parent| shown_parent(parent as u32));
    Then::Return
}

/// Returns the number that the program is shown of the parent of the leader's process.
fn shown_parent(parent: u32) -> u64 {
    let is_maker = parent == control().maker.load(Ordering::Relaxed);
    u64::from(if is_maker { control().parent.load(Ordering::Relaxed) } else { parent })
}

/// Notes which word to clear at the end, and returns the thread's number.
pub fn set_cleared(word: u64) -> u64 {
    if is_member() {
        CLEARED.store(word, Ordering::Relaxed);
    }
    u64::from(own_thread())
}

const PATH: usize = 64;

/// Memory for a path, of this member. It is longer than the one that it is made of.
struct Path(UnsafeCell<[u8; PATH + 16]>);

// SAFETY: one thread uses it, with signals blocked.
unsafe impl Sync for Path {}

static TASK_PATH: Path = Path(UnsafeCell::new([0; PATH + 16]));

/// Returns where Linux has what `/proc/self/task/N` is about, if `N` is another member.
pub fn task_path(path: u64) -> Option<u64> {
    let mut text = [0; PATH];
    let length = user::read_text(path, &mut text);
    let rest = text[..length].strip_prefix(b"/proc/self/task/")?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits > 7 {
        return None;
    }
    let thread = rest[..digits].iter().fold(0_u64, |value, byte| value * 10 + u64::from(byte - b'0'));
    super::is_thread(thread).then_some(())?;
    // SAFETY: this thread alone uses it, for one call.
    let place = unsafe { &mut *TASK_PATH.0.get() };
    place[..6].copy_from_slice(b"/proc/");
    place[6..6 + digits].copy_from_slice(&rest[..digits]);
    place[6 + digits..12 + digits].copy_from_slice(b"/task/");
    place[12 + digits..=12 + digits + end].copy_from_slice(rest.get(..=end)?);
    Some(place.as_ptr() as u64)
}

/// Returns whether there are other threads. If not, the members that wait for one leave.
pub fn has_others() -> bool {
    let has_others = super::others().iter().any(|member| waiting::is_thread(&control().members[member]));
    if !has_others {
        waiting::dismiss();
    }
    has_others
}

/// Returns whether the program is about to end, or to be executed anew.
pub fn is_ending() -> bool {
    control().ending.load(Ordering::Relaxed) & (EXITING | EXECUTING) != 0
}

/// Returns whether this task may execute a program: only the leader keeps the process's number.
pub fn may_execute() -> bool {
    !is_member() || !has_others()
}

/// The state that a new thread begins with.
pub struct Thread {
    pub flags: u64,
    /// The address of its frame, which is its stack.
    pub stack: u64,
    pub parents_word: u64,
    pub childs_word: u64,
    pub local: u64,
}

/// The bytes of a new thread's stack that are copied if they are in a snapshot, so that a signal's frame has
/// room there.
const STACK_ROOM: u64 = 64 << 10;

/// Makes a member. Returns the result of `clone`. Its frame is told its number.
pub fn make(thread: &Thread, frame: *mut Frame) -> u64 {
    if thread.flags & CLONE_THREAD == 0 {
        return refuse(b"clone of a process that shares memory").to_result();
    }
    begin_watcher();
    // SAFETY: the frame is the child's, and has the signals that its maker blocks.
    super::signals::note(unsafe { (*frame).mask });
    touch(thread.stack & !(pathreads::PAGE - 1), pathreads::PAGE);
    let room = thread.stack.saturating_sub(STACK_ROOM);
    if super::copies::needs_copy(room, thread.stack) {
        touch(room, STACK_ROOM);
    }
    touch(thread.local, 1);
    let kept = CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_SETTID;
    let parent = if me() == 0 { 0 } else { CLONE_PARENT };
    let flags = thread.flags & kept | CLONE_FS | CLONE_FILES | CLONE_SYSVSEM | parent;
    let cleared = if thread.flags & CLONE_CHILD_CLEARTID != 0 { thread.childs_word } else { 0 };
    let Thread { stack, parents_word, childs_word, local, .. } = *thread;
    let call = [nr::CLONE, flags, stack, parents_word, childs_word, local, 0];
    if thread.flags & CLONE_SETTLS != 0
        && let Some(member) = locked(|_| waiting::claim())
    {
        let word_if = |flag: u64, word: u64| if thread.flags & flag != 0 { word } else { 0 };
        let next = Next::new(frame, local, cleared, word_if(CLONE_CHILD_SETTID, childs_word));
        return waiting::hand_over(member, next, word_if(CLONE_PARENT_SETTID, parents_word));
    }
    let result = make_new(&call, cleared, frame);
    if Errno::from_result(result) == Some(Errno::EAGAIN) && waiting::dismiss() {
        // Those that waited have left their places.
        return make_new(&call, cleared, frame);
    }
    result
}

/// Makes a member by a call.
fn make_new(call: &[u64; 7], cleared: u64, frame: *mut Frame) -> u64 {
    locked(|record| {
        // The kernel does not guard what is stale in the copy of this member's address space.
        if blocks::settle_own(record).is_err() || stale::unmap(0, u64::MAX).is_err() {
            return Errno::EAGAIN.to_result();
        }
        // A snapshot may have been made since the call was prepared.
        for word in [call[3], call[4]].into_iter().filter(|word| *word != 0) {
            super::bring(record, word, word + 4);
        }
        let is_free = |member: &usize| control().members[*member].thread.load(Ordering::Relaxed) == 0;
        let Some(member) = (1..MOST_MEMBERS).find(is_free).filter(|_| !is_ending()) else {
            return Errno::EAGAIN.to_result();
        };
        CLEARED_NEXT.store(cleared, Ordering::Relaxed);
        control().members[member].pending.store(0, Ordering::Relaxed);
        control().members[member].stage.store(waiting::THREAD, Ordering::Relaxed);
        stale::prepare(member);
        // The child knows its number from its first instruction on, because a request may interrupt any. This
        // member gets none meanwhile, as it holds the lock.
        let own = super::ME.swap(member, Ordering::Relaxed);
        // SAFETY: the frame is the child's alone. All signals are blocked but those that the runtime works
        // by.
        let result = super::with_own_stack(|| unsafe { entry::spawn_child(frame, call) });
        super::ME.store(own, Ordering::Relaxed);
        let Ok(result) = result else {
            return refuse(b"a thread made by a handler on a stack of the program").to_result();
        };
        if Errno::from_result(result).is_none() {
            control().members[member].thread.store(result as u32, Ordering::Relaxed);
            for region in record.all_mut() {
                if region.holders.has(me()) {
                    region.holders = region.holders.with(member);
                }
                if region.current.has(me()) {
                    region.current = region.current.with(member);
                }
            }
            control().most.fetch_max(member as u32, Ordering::Relaxed);
            control().made.fetch_add(1, Ordering::Relaxed);
            wake(&control().made);
        }
        result
    })
}

/// The word to clear of the member that is being made. The child finds it in its copy.
static CLEARED_NEXT: AtomicU64 = AtomicU64::new(0);

/// Begins a member: in the child of [`make`]. The parent may still hold the lock.
pub fn begin() {
    const PR_SET_PDEATHSIG: u64 = 1;
    let _ = harmless!(nr::PRCTL, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    super::forget_maker();
    faults::forget();
    lacks::begin_member();
    stale::begin_member();
    blocks::begin();
    CLEARED.store(CLEARED_NEXT.load(Ordering::Relaxed), Ordering::Relaxed);
    crate::stack::give_back_all();
    super::begin_stack();
    waiting::begin_new();
    if harmless!(nr::GETPPID) != Ok(u64::from(leader())) {
        sys::exit(0);
    }
    // A request may come before the parent has written this.
    control().members[me()].thread.store(own_thread(), Ordering::Relaxed);
}

/// Begins the next thread of a member, with a word to clear at its end.
pub fn begin_again(cleared: u64) {
    super::cpu_timers::begin_thread();
    blocks::begin();
    CLEARED.store(cleared, Ordering::Relaxed);
    crate::stack::give_back_all();
    super::begin_stack();
}

/// Takes this member out of the record and the table of members. The lock is held.
pub fn leave(record: &mut Record) {
    for region in record.all_mut() {
        region.holders = region.holders.without(me());
        region.current = region.current.without(me());
    }
    stale::leave();
    timers::leave();
    super::cpu_timers::leave();
    control().members[me()].thread.store(0, Ordering::Relaxed);
}

/// Ends this member's thread, as `exit` does. The member exits, or waits for another thread.
pub extern "C" fn exit(frame: &mut Frame) -> Then {
    if !is_member() {
        sys::exit(frame.call[1]);
    }
    let word = CLEARED.swap(0, Ordering::Relaxed);
    super::signals::end_thread();
    end_robust_list();
    leave_signal_stack(frame);
    if me() == 0 {
        leave_leader(word, frame.call[1]);
    }
    let own = own_stack();
    let waits = locked(|record| {
        if let Some((start, end)) = own {
            let _ = super::memory::remove(record, start, end);
        }
        // If the record is full, its next thread has them as ordinary memory does.
        let _ = blocks::settle_own(record);
        // No snapshot is made until the word is cleared: this member does not stop for one any more.
        control().leaving.fetch_add(1, Ordering::Relaxed);
        if word != 0 {
            super::bring(record, word, word + 4);
        }
        let waits = waiting::begin();
        if !waits {
            leave(record);
        }
        waits
    });
    sys::set_mask(u64::MAX);
    clear(word);
    control().leaving.fetch_sub(1, Ordering::Relaxed);
    if waits {
        waiting::wait_for_next();
    }
    exit_thread(0)
}

/// Waits for a moment until no member is between leaving and clearing its last word. The lock is held, so no
/// other begins to leave.
pub fn await_leaving() {
    const LONGEST: u64 = 100;
    for _ in 0..LONGEST {
        match control().leaving.load(Ordering::Relaxed) {
            0 => break,
            leaving => wait(&control().leaving, leaving, MILLISECOND / 10),
        }
    }
}

/// Has requests answered on the runtime's stack. The program may free its own as soon as the thread has
/// ended.
fn leave_signal_stack(frame: &Frame) {
    let is_programs = super::HAS_STACK.load(Ordering::Relaxed) != 0;
    if is_programs && !super::is_signal_stack(frame.rsp) {
        super::begin_stack();
    }
}

/// The memory that this member has unmapped while it stood on it.
static OWN_STACK: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Notes that this member unmaps its own stack. All that it can do then is to exit, and the memory goes
/// there.
pub fn unmap_at_end(start: u64, length: u64) -> sys::Result {
    let end = super::addresses::range(start, length)?;
    OWN_STACK[0].store(start, Ordering::Relaxed);
    OWN_STACK[1].store(end, Ordering::Relaxed);
    Ok(0)
}

fn own_stack() -> Option<(u64, u64)> {
    let [start, end] = OWN_STACK.each_ref().map(|word| word.swap(0, Ordering::Relaxed));
    (start < end).then_some((start, end))
}

/// Clears the word that `pthread_join` waits for, and wakes it. The memory may go right after it is cleared.
fn clear(word: u64) {
    const WAKE: u64 = 1;
    if word != 0 && user::write(word, &[0; 4]).is_ok() {
        let _ = harmless!(nr::FUTEX, word, WAKE, i32::MAX as u64);
    }
}

fn exit_thread(status: u64) -> ! {
    loop {
        let _ = harmless!(nr::EXIT, status);
    }
}

/// Has the leader wait for the end of the others: its process is the program's.
fn leave_leader(word: u64, status: u64) -> ! {
    // Asked before another member can go on and leave the table.
    let is_last = !has_others();
    clear(word);
    if is_last {
        exit_program(status);
    }
    LEFT_STATUS.store(status, Ordering::Relaxed);
    // Release pairs with the acquire in `watch`.
    control().ending.fetch_or(LEADER_LEFT, Ordering::Release);
    waiting::dismiss();
    begin_watcher();
    control().made.fetch_add(1, Ordering::Relaxed);
    wake(&control().made);
    loop {
        wait(&PARKED, 0, 1000 * MILLISECOND);
    }
}

/// The status of the leader's own thread, which the watcher reads. Another thread may end the program by its
/// own at the same moment.
static LEFT_STATUS: AtomicU64 = AtomicU64::new(0);

static PARKED: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(0);

/// Ends the program, as `exit_group` does.
pub extern "C" fn exit_all(frame: &mut Frame) -> Then {
    let status = frame.call[1];
    if !is_member() {
        sys::exit(status);
    }
    if me() == 0 {
        exit_program(status);
    }
    control().status.store(status, Ordering::Relaxed);
    // Release pairs with the acquire in `watch`.
    control().ending.fetch_or(EXITING, Ordering::Release);
    exit_thread(0)
}

/// Ends all members: in the leader's process. Of its two threads the first that comes does it.
fn exit_program(status: u64) -> ! {
    if control().ending.fetch_or(EXITING | FINISHING, Ordering::Release) & FINISHING != 0 {
        loop {
            wait(&PARKED, 0, 1000 * MILLISECOND);
        }
    }
    kill_members();
    boot::at_exit();
    sys::exit(status)
}

fn kill_members() {
    for member in &control().members[1..] {
        let thread = u64::from(member.thread.load(Ordering::Relaxed));
        if thread != 0 {
            let _ = harmless!(nr::TGKILL, thread, thread, SIGKILL);
        }
    }
}

/// Marks the mutexes of this member as those of a thread that has ended, as the kernel does for threads.
fn end_robust_list() {
    let (mut head, mut length) = (0_u64, 0_u64);
    let (head_at, length_at) = (&raw mut head as u64, &raw mut length as u64);
    if harmless!(nr::GET_ROBUST_LIST, 0, head_at, length_at).is_err() || head == 0 {
        return;
    }
    if let Ok(words) = user::words(head) {
        end_mutexes(head, words);
    }
    let _ = harmless!(nr::SET_ROBUST_LIST, 0, 24);
}

/// Marks the mutexes of a list.
fn end_mutexes(head: u64, [mut entry, offset, pending]: [u64; 3]) {
    let mut most = 2048;
    while entry & !1 != head && most > 0 {
        let next = user::words::<1>(entry & !1);
        if entry != pending {
            end_mutex((entry & !1).wrapping_add(offset));
        }
        let Ok([next]) = next else { break };
        entry = next;
        most -= 1;
    }
    if pending != 0 {
        end_mutex((pending & !1).wrapping_add(offset));
    }
}

/// Marks a mutex if this member owns it, and wakes one that waits.
fn end_mutex(word: u64) {
    const OWNER: u32 = 0x3fff_ffff;
    const OWNER_DIED: u32 = 0x4000_0000;
    const WAITERS: u32 = 0x8000_0000;
    const WAKE: u64 = 1;
    let mut bytes = [0; 4];
    if user::read(word, &mut bytes).is_err() {
        return;
    }
    let value = u32::from_le_bytes(bytes);
    if value & OWNER != own_thread() {
        return;
    }
    // SAFETY: the word was read a moment ago, and is a futex that this thread owns.
    let futex = unsafe { &*(word as *const core::sync::atomic::AtomicU32) };
    // Release: what the thread did under the mutex is seen by who takes it.
    let old =
        futex.fetch_update(Ordering::Release, Ordering::Relaxed, |value| Some(value & WAITERS | OWNER_DIED));
    if old.is_ok_and(|old| old & WAITERS != 0) {
        let _ = harmless!(nr::FUTEX, word, WAKE, 1);
    }
}

/// The watcher's stack.
const STACK: usize = 64 << 10;

#[repr(align(16))]
struct Stack(UnsafeCell<[u8; STACK]>);

// SAFETY: only the watcher uses it.
unsafe impl Sync for Stack {}

static WATCHERS: Stack = Stack(UnsafeCell::new([0; STACK]));

/// Returns whether this thread is the watcher, by its stack.
pub fn is_watcher() -> bool {
    let here = 0_u8;
    let start = WATCHERS.0.get() as u64;
    (start..start + STACK as u64).contains(&(&raw const here as u64))
}

/// The flags for a real thread of the leader.
pub const HELPER_FLAGS: u64 =
    CLONE_VM | CLONE_SIGHAND | CLONE_THREAD | CLONE_FS | CLONE_FILES | CLONE_SYSVSEM;

/// Makes the watcher and the first helper, in the leader, before the first other member. Other members find
/// them.
fn begin_watcher() {
    if me() != 0 || IS_WATCHED.swap(true, Ordering::Relaxed) {
        return;
    }
    let mask = sys::set_mask(u64::MAX);
    stale::begin_leader();
    waiting::begin_helpers();
    let end = WATCHERS.0.get() as u64 + STACK as u64;
    // SAFETY: the stack is the watcher's, and it stays in the runtime.
    let is_watched = unsafe { entry::spawn_helper(HELPER_FLAGS, end, watch) } >> 63 == 0;
    if !is_watched || !helpers::begin() {
        sys::fail(b"no thread for --isolate", 125);
    }
    super::signals::begin();
    super::cpu_timers::take_over();
    sys::set_mask(mask);
}

/// Returns whether there is a watcher. The leader asks.
pub fn is_watched() -> bool {
    IS_WATCHED.load(Ordering::Relaxed)
}

/// Begins a process with one thread: a child of `fork`, with a word to clear at its end, or 0.
pub fn begin_process(cleared: u64) {
    IS_WATCHED.store(false, Ordering::Relaxed);
    helpers::forget();
    CLEARED.store(cleared, Ordering::Relaxed);
}

/// Waits for members, and ends the program when one of them does that.
pub extern "C" fn watch() -> ! {
    const ALL: u64 = u64::MAX;
    const WCLONE: u64 = 0x8000_0000;
    // The program's signals are for its own threads.
    sys::block_all();
    loop {
        let made = control().made.load(Ordering::Acquire);
        // Before the wait: a leader that has left makes no more members. So without a child, none is left.
        let has_left = control().ending.load(Ordering::Acquire) & LEADER_LEFT != 0;
        let mut status = 0_u32;
        let ended = harmless!(nr::WAIT4, ALL, &raw mut status as u64, WCLONE, 0);
        // Acquire pairs with the release of the member that ended.
        let ending = control().ending.load(Ordering::Acquire);
        if ending & EXECUTING != 0 {
            execute_for_member();
        }
        if ending & EXITING != 0 {
            exit_program(control().status.load(Ordering::Relaxed));
        }
        // A member exits with 0. Another status is that of the runtime's failure.
        let has_failed = |number: u64| status >> 8 != 0 && super::member_of(number).is_some();
        match ended {
            Ok(number) if status & 0x7f != 0 && was_member(number) => die(u64::from(status & 0x7f)),
            Ok(number) if has_failed(number) => exit_program(u64::from(status >> 8)),
            Ok(_) => {}
            Err(_) if has_left => exit_program(LEFT_STATUS.load(Ordering::Relaxed)),
            Err(_) => wait(&control().made, made, 1000 * MILLISECOND),
        }
    }
}

/// Returns whether a process that was killed was a member. Its maker writes its number under the lock, which
/// the killed one may have.
fn was_member(number: u64) -> bool {
    const MILLISECONDS: u64 = 200;
    let is_locked = super::lock_within(MILLISECONDS);
    let is_found = super::member_of(number).is_some();
    if is_locked {
        super::unlock();
    }
    is_found || !is_locked
}

/// Has the watcher execute a program. Errors that can be seen before are the kernel's.
pub extern "C" fn execute(frame: &mut Frame) -> Then {
    let path = frame.call[if frame.call[0] == nr::EXECVEAT { 2 } else { 1 }];
    if !crate::exec::is_by_path(frame) {
        // As on Linux before 3.19. Libraries then name the descriptor's file in /proc.
        frame.rax = Errno::ENOSYS.to_result();
        return Then::Return;
    }
    if !crate::exec::can_be_loaded(path, crate::exec::SCRIPTS) {
        if harmless!(nr::ACCESS, path, 1).is_ok() {
            frame.rax = refuse(b"execve by one of several threads of what Linux alone can load").to_result();
            return Then::Return;
        }
        return Then::Perform;
    }
    if waiting::makes_own_children() {
        frame.rax = refuse(b"execve by one of several threads that has changed its rights").to_result();
        return Then::Return;
    }
    begin_watcher();
    super::signals::end_thread();
    let is_first = locked(|_| {
        if me() != 0 {
            // It ends now, so no other member may wait for its answer.
            control().members[me()].thread.store(0, Ordering::Relaxed);
        }
        if is_ending() {
            return false;
        }
        // SAFETY: the lock is held, and the watcher reads the frame after the word that follows.
        unsafe { control().executed.get().write(frame.clone()) };
        // Release pairs with the acquire in `watch`.
        control().ending.fetch_or(EXECUTING, Ordering::Release);
        true
    });
    if is_first && me() == 0 {
        kill_members();
        loop {
            wait(&PARKED, 0, 1000 * MILLISECOND);
        }
    }
    exit_thread(0)
}

/// Executes a program for a member, when all others are gone.
fn execute_for_member() -> ! {
    const ALL: u64 = u64::MAX;
    const WCLONE_WNOHANG: u64 = 0x8000_0001;
    const MILLISECONDS: u64 = 200;
    // A member that is killed under the lock would leave it taken.
    let is_locked = super::lock_within(MILLISECONDS);
    // So does one that changes its own memory leave the record half changed.
    super::await_insides();
    kill_members();
    while let Ok(ended) = harmless!(nr::WAIT4, ALL, 0, WCLONE_WNOHANG, 0) {
        if ended == 0 {
            // A member may have been made by one that was killed before it could say so.
            kill_members();
            wait(&PARKED, 0, MILLISECOND);
        }
    }
    super::forget_members(is_locked);
    // SAFETY: the member that wrote it has ended.
    let mut frame = unsafe { (*control().executed.get()).clone() };
    super::sync();
    // Looking at the arguments may end with a fault.
    sys::set_mask(sys::ALL_BUT_FAULTS);
    crate::exec::prepare(&mut frame);
    sys::fail(b"a program could not be executed by one of several threads", 125)
}

/// Ends the program as a member ended.
fn die(signal: u64) -> ! {
    kill_members();
    crate::sigaction::die_of(signal);
    // A signal that the kernel still blocks, or an action that it refused.
    sys::exit(128 + signal)
}

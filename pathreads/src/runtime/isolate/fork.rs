//! `fork`: the parent copies the program's memory, while all other members are stopped, and the record before
//! it calls `clone`, so the child waits for no other process. The child has no other members. It begins with
//! nothing mapped, on a stack of the runtime, because the memory that it inherits is its parent's.
//!
//! A child of `vfork` uses the memory of the member that made it, and needs none of this.

use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::Errno;
use pathreads::record::{MOST_MEMBERS, Members, NO_FILE, Record, Region};

use super::{
    CONTROL, Control, blocks, control, map_control, memory_file, new_file, own_thread, refuse, sync, thread,
    waiting,
};
use crate::entry::{self, Frame};
use crate::sys::{self, Result, harmless, nr};
use crate::user;

const CLONE_FILES: u64 = 0x400;
const CLONE_VFORK: u64 = 0x4000;
const CLONE_CHILD_CLEARTID: u64 = 0x20_0000;
const CLONE_CHILD_SETTID: u64 = 0x100_0000;

/// The files that the child finds.
static NEW_MEMORY: AtomicU64 = AtomicU64::new(0);
static NEW_CONTROL: AtomicU64 = AtomicU64::new(0);

const STACK: usize = 16 << 10;

#[repr(align(16))]
struct Stack(UnsafeCell<[u8; STACK]>);

// SAFETY: it is used by a child that has one thread, in its own copy of it.
unsafe impl Sync for Stack {}

static STACK_OF_CHILD: Stack = Stack(UnsafeCell::new([0; STACK]));

/// Makes a process with a copy of the program's memory, which goes on with this stack. Returns the result of
/// `clone`.
pub fn make(frame: &mut Frame, flags: u64, stack: u64, words: [u64; 2]) -> u64 {
    if flags & (CLONE_VFORK | CLONE_FILES) != 0 {
        return refuse(b"a child that shares files or is waited for, and has a copy of the memory")
            .to_result();
    }
    let [parents_word, childs_word] = words;
    let word_if = |flag: u64| if flags & flag != 0 { childs_word } else { 0 };
    frame.scratch[3..5].copy_from_slice(&[CLONE_CHILD_SETTID, CLONE_CHILD_CLEARTID].map(word_if));
    let flags = flags & !(CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID);
    let call = [nr::CLONE, flags, 0, parents_word, 0, 0, 0];
    // SAFETY: one thread of this member makes one child at a time, with signals blocked.
    let copy = unsafe { STACK_OF_CHILD.0.get().cast::<u8>().add(STACK).cast::<Frame>().sub(1) };
    // SAFETY: the frame fits, and its size keeps the stack aligned.
    unsafe { copy.write(Frame { rsp: stack, ..frame.clone() }) };
    let made = super::locked(|record| {
        // At one moment, because members use and unmap blocks without the lock.
        let [memory, area] = super::with_others_stopped(|| {
            let memory = with_file(c"program", 1 << 47, |memory| copy_memory(record, memory))?;
            let area = with_file(c"control", size_of::<Control>() as u64, |area| copy_control(record, area));
            area.map(|area| [memory, area]).inspect_err(|_| sys::close(memory))
        })?;
        NEW_MEMORY.store(memory, Ordering::Relaxed);
        NEW_CONTROL.store(area, Ordering::Relaxed);
        // SAFETY: the frame is the child's. Signals are blocked.
        let result = unsafe { entry::spawn_child(copy, &raw const call) };
        sys::close(area);
        sys::close(memory);
        Ok::<u64, Errno>(result)
    });
    // Linux says that there is no memory, too.
    made.unwrap_or_else(|_| Errno::ENOMEM.to_result())
}

/// Makes a file and fills it. If that fails, there is none.
fn with_file(name: &CStr, length: u64, fill: impl FnOnce(u64) -> Result<()>) -> Result {
    let file = new_file(name, length)?;
    fill(file).inspect_err(|_| sys::close(file))?;
    Ok(file)
}

fn copy_memory(record: &Record, memory: u64) -> Result<()> {
    let is_copied = |region: &&Region| region.file == NO_FILE && !blocks::is_kept(region);
    for region in record.all().iter().filter(is_copied) {
        let length = region.end - region.start;
        super::memory::copy_data(memory_file(), region.start, memory, region.start, length)?;
    }
    Ok(())
}

/// Copies the control area, to the end of what the record uses.
fn copy_control(record: &Record, area: u64) -> Result<()> {
    let size = record.all().as_ptr_range().end as u64 - CONTROL;
    let mut done = 0;
    while done < size {
        match harmless!(nr::PWRITE, area, CONTROL + done, size - done, done)? {
            0 => return Err(Errno::ENOMEM),
            written => done += written,
        }
    }
    Ok(())
}

/// Begins the child.
pub fn begin(frame: &mut Frame) {
    const O_CLOEXEC: u64 = 0x8_0000;
    let (memory, area) = (NEW_MEMORY.load(Ordering::Relaxed), NEW_CONTROL.load(Ordering::Relaxed));
    map_control(area);
    let _ = harmless!(nr::DUP3, memory, memory_file(), O_CLOEXEC);
    sys::close(memory);
    sys::close(area);
    super::forget_maker();
    super::ME.store(0, Ordering::Relaxed);
    let control = control();
    let maker = harmless!(nr::GETPPID).unwrap_or(0) as u32;
    // The copied table has the members of the program that made this one.
    control.parent.store(super::sender(maker), Ordering::Relaxed);
    control.maker.store(maker, Ordering::Relaxed);
    for member in &control.members[..MOST_MEMBERS] {
        member.thread.store(0, Ordering::Relaxed);
        member.pending.store(0, Ordering::Relaxed);
        member.child.store(0, Ordering::Relaxed);
        member.stage.store(waiting::THREAD, Ordering::Relaxed);
    }
    control.members[0].thread.store(own_thread(), Ordering::Relaxed);
    control.ending.store(0, Ordering::Relaxed);
    control.lock.store(0, Ordering::Relaxed);
    control.stops.store(0, Ordering::Relaxed);
    blocks::begin();
    super::SYNCED.store(u64::MAX, Ordering::Relaxed);
    thread::begin_process(frame.scratch[4]);
    super::locked(|record| {
        for region in record.all_mut() {
            super::unmap_here(region.start, region.end);
            (region.holders, region.current) = (Members::NONE, Members::NONE);
        }
        let _ = blocks::settle(record, 0, u64::MAX);
    });
    // The kernel may put a signal's frame on the program's stacks before the program touches them.
    sync();
    if frame.scratch[3] != 0 {
        let _ = user::write(frame.scratch[3], &own_thread().to_le_bytes());
    }
}

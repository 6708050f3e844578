//! From a file in the boot image to a thread in a run queue.

use alloc::vec::Vec;
use core::fmt;

use abi::Errno;
use percore::CoreSet;
use sync::SpinLock;
use vm::{Mapping, PAGE_SIZE, PageNum, PageRange, Placement, Prot, Tables, VirtAddr, VmError};

use super::elf::{Elf, Flaw, OUTSIDE, Segment};
use super::heap::Heap;
use super::stack::{self, Strings};
use super::{NewThread, Process, STACK_BYTES, default_limits, image, next_tid};
use crate::arch::{self, FpuState, TrapFrame};
use crate::fs::{self, FdTable, fallible};
use crate::mm::space::{self, SpaceHandle};
use crate::mm::user::USER_END;
use crate::sched;

const STACK_BOTTOM: u64 = USER_END - STACK_BYTES;

/// Why the program cannot be run: an error, and what is wrong with the file if it is that.
#[derive(Debug)]
pub struct Refused(Errno, Option<Flaw>);

impl From<Errno> for Refused {
    fn from(error: Errno) -> Self {
        Self(error, None)
    }
}

impl From<Flaw> for Refused {
    fn from(flaw: Flaw) -> Self {
        Self(Errno::ENOEXEC, Some(flaw))
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self(error, None) => write!(to, "{error}"),
            Self(error, Some(Flaw(what))) => write!(to, "{error}, {what}"),
        }
    }
}

/// Starts the program that the boot image names. Needs: epochs with this core in them, files, address spaces.
///
/// # Errors
/// ENOEXEC, ENOENT, ENOMEM, E2BIG: nothing was started.
pub fn start_first(tables: Tables) -> Result<(), Refused> {
    let path = fs::boot_file(".radixvm/program")?;
    let path = path.strip_suffix(b"\0").unwrap_or(path);
    let strings =
        Strings { argv: fs::boot_file(".radixvm/argv")?, envp: fs::boot_file(".radixvm/envp")?, path };
    let file = fs::open_program(path)?;
    let elf = Elf::parse(file)?;
    let space = space::new(tables).ok_or(Errno::ENOMEM)?;
    let heap_start = load(&space, &elf)?;
    let sp = set_up_stack(&space, &strings, &elf)?;
    let process = fallible::arc(Process {
        pid: next_tid(),
        space,
        files: FdTable::new_stdio()?,
        signals: Default::default(),
        heap: Heap::new(heap_start),
        limits: SpinLock::new(default_limits()),
        threads: SpinLock::new(Vec::new()),
        ending: super::EndingCell::new(),
        main_status: Default::default(),
        load_bias: elf.bias,
        past_cpu_ns: Default::default(),
    })?;
    let main = NewThread {
        tid: process.pid,
        frame: TrapFrame::user(elf.entry, sp),
        fpu: fallible::boxed(FpuState::new())?,
        fs_base: 0,
        affinity: CoreSet::first(arch::cores()),
        signal_mask: 0,
        clear_tid: 0,
    };
    let main = main.make(&process)?;
    arch::marker::run();
    sched::enqueue(main);
    Ok(())
}

/// Loads the segments; returns where the heap starts: after the last.
fn load(space: &SpaceHandle, elf: &Elf<'_>) -> Result<u64, Refused> {
    elf.segments().try_fold(0, |heap, segment| load_segment(space, &segment?).map(|end| heap.max(end)))
}

/// Loads one; returns the page boundary after it.
fn load_segment(space: &SpaceHandle, segment: &Segment<'_>) -> Result<u64, Refused> {
    let end = segment.address.checked_add(segment.size).filter(|&end| end <= USER_END).ok_or(OUTSIDE)?;
    if end > STACK_BOTTOM {
        return Err(Flaw("a segment lies where the stack goes").into());
    }
    let pages =
        PageRange::between(VirtAddr::new(segment.address).page(), PageNum::new(end.div_ceil(PAGE_SIZE)));
    map(space, pages, segment.prot)?;
    image::write(&**space, segment.address, segment.bytes)?;
    Ok(end.next_multiple_of(PAGE_SIZE))
}

fn map(space: &SpaceHandle, pages: PageRange, prot: Prot) -> Result<(), Refused> {
    match space.map(&percore::pin(), Placement::Fixed(pages.start()), pages.pages(), Mapping::anonymous(prot))
    {
        Ok(_) => Ok(()),
        Err(VmError::OutOfRange) => Err(OUTSIDE.into()),
        Err(_) => Err(Errno::ENOMEM.into()),
    }
}

fn set_up_stack(space: &SpaceHandle, strings: &Strings<'_>, elf: &Elf<'_>) -> Result<u64, Refused> {
    let stack = PageRange::between(VirtAddr::new(STACK_BOTTOM).page(), VirtAddr::new(USER_END).page());
    map(space, stack, Prot::READ | Prot::WRITE)?;
    let (sp, bytes) = stack::build(USER_END, strings, elf)?;
    image::write(&**space, sp, &bytes)?;
    Ok(sp)
}

//! Loading a program: from its file to memory that can run it.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use abi::Errno;
use percore::pin;
use vm::{Mapping, PAGE_SIZE, PageNum, PageRange, Placement, Prot, VirtAddr, VmError};

use super::arguments::Strings;
use super::elf::{Elf, Flaw, INTERPRETER_BASE, OUTSIDE, PROGRAM_BASE, Segment};
use super::heap::Heap;
use super::stack::{self, AuxInfo};
use super::{Memory, Program, STACK, image, vdso};
use crate::fs::Source;
use crate::fs::{self, Executable, rights};
use crate::mm::fallible;
use crate::mm::file_mapping::Held;
use crate::mm::refcache_arc::RefcacheArc;
use crate::mm::space::{self, SpaceHandle};
use crate::mm::user::USER_END;
use crate::users::Credentials;

/// The reason why a program cannot be run: an error, and the flaw of the file if there is one.
#[derive(Debug)]
pub struct LoadError(pub Errno, Option<Flaw>);

impl From<Errno> for LoadError {
    fn from(error: Errno) -> Self {
        Self(error, None)
    }
}

impl From<Flaw> for LoadError {
    fn from(flaw: Flaw) -> Self {
        Self(Errno::ENOEXEC, Some(flaw))
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self(error, None) => write!(to, "{error}"),
            Self(error, Some(Flaw(what))) => write!(to, "{error}, {what}"),
        }
    }
}

/// A program in memory of its own.
pub struct Loaded {
    /// The memory.
    pub memory: Arc<Memory>,
    /// The address where it starts.
    pub entry: u64,
    /// Its stack pointer.
    pub sp: u64,
}

/// The manner in which a program is loaded.
#[derive(Clone, Copy)]
pub struct Manner {
    /// It has rights that its user has not.
    pub is_secure: bool,
    /// Its addresses are random.
    pub is_random: bool,
}

/// Loads the program in `file`, whose given path is `name`, into new memory, where it finds its
/// `credentials`. If it has an interpreter, that is loaded too and starts first. The memory is hidden from
/// processes of its user if the caller may not read one of the two.
///
/// # Errors
/// ENOEXEC, ENOMEM, E2BIG, and ENOENT for the interpreter.
pub fn load(
    file: &Executable,
    name: &[u8],
    strings: Strings,
    credentials: &Credentials,
    manner: Manner,
) -> Result<Loaded, LoadError> {
    let elf = Elf::parse(file.content()?, PROGRAM_BASE)?;
    let space = space::new(manner.is_random).ok_or(Errno::ENOMEM)?;
    let heap_start = load_segments(&space, &elf, file)?;
    let start = match elf.interpreter()? {
        Some(name) => load_interpreter(&space, &name)?,
        None => Start { entry: elf.entry, base: 0, is_readable: true },
    };
    let aux =
        AuxInfo { elf: &elf, interpreter_base: start.base, name, credentials, is_secure: manner.is_secure };
    let sp = set_up_stack(&space, &strings, &aux)?;
    let auxv = sp + stack::words_before_auxv(&strings) * 8;
    vdso::map(&space)?;
    let Strings { argv, envp, .. } = strings;
    let program = Program { file: file.file().clone(), argv, envp, auxv, load_bias: elf.bias };
    let memory = Memory::new(space, Heap::new(heap_start), RefcacheArc::new(program)?);
    // A program that may only be executed is not shown by its memory.
    memory.set_dumpable(start.is_readable && is_readable(file));
    Ok(Loaded { memory: fallible::arc(memory)?, entry: start.entry, sp })
}

struct Start {
    entry: u64,
    base: u64,
    is_readable: bool,
}

fn is_readable(file: &Executable) -> bool {
    rights::permit(file.file().node(), rights::READ).is_ok()
}

fn load_interpreter(space: &Arc<SpaceHandle>, name: &[u8]) -> Result<Start, LoadError> {
    let file = fs::program(name)?;
    let elf = Elf::parse(file.content()?, INTERPRETER_BASE)?;
    load_segments(space, &elf, &file)?;
    Ok(Start { entry: elf.entry, base: elf.bias, is_readable: is_readable(&file) })
}

/// Loads the segments and returns the page boundary after the last one, where the heap starts.
fn load_segments(space: &Arc<SpaceHandle>, elf: &Elf<'_>, file: &Executable) -> Result<u64, LoadError> {
    elf.segments().try_fold(0, |heap, segment| {
        let end = load_segment(space, file, &segment?)?;
        Ok(heap.max(end))
    })
}

/// Loads a segment and returns the page boundary after it.
fn load_segment(space: &Arc<SpaceHandle>, file: &Executable, segment: &Segment) -> Result<u64, LoadError> {
    let end = segment.address.checked_add(segment.size).filter(|&end| end <= USER_END).ok_or(OUTSIDE)?;
    if segment.address < vdso::END && STACK.start < end {
        return Err(Flaw("a segment overlaps the stack or the vDSO").into());
    }
    let pages =
        PageRange::between(VirtAddr::new(segment.address).page(), PageNum::new(end.div_ceil(PAGE_SIZE)));
    let shown = show_file(space, file, segment, pages.start())?;
    let rest = PageRange::between(PageNum::new(pages.start().get() + shown), pages.end());
    if !rest.is_empty() {
        map(space, rest, Mapping::anonymous(segment.prot))?;
    }
    let done = shown * PAGE_SIZE;
    let left = segment.file_size.saturating_sub(done);
    image::read_in(&***space, rest.start(), file.content()?, segment.offset + done, left)?;
    Ok(end.next_multiple_of(PAGE_SIZE))
}

/// Maps pages of the file for the segment's pages from `start` on, and returns how many. They are the pages
/// that the file covers as a whole, and the last one if the segment has no zeroes after the file's part.
fn show_file(
    space: &Arc<SpaceHandle>,
    file: &Executable,
    segment: &Segment,
    start: PageNum,
) -> Result<u64, LoadError> {
    let pages = match segment.size > segment.file_size {
        true => segment.file_size / PAGE_SIZE,
        false => segment.file_size.div_ceil(PAGE_SIZE),
    };
    let Some(source) = Source::of(file.file()).ok().filter(|_| pages > 0) else { return Ok(0) };
    let record = Held::new(source, space, segment.offset / PAGE_SIZE, pages)?;
    let shown = PageRange::new(start, pages).ok_or(OUTSIDE)?;
    map(space, shown, Mapping::private(segment.prot, record.number()))?;
    Ok(pages)
}

pub(super) fn map(space: &SpaceHandle, pages: PageRange, mapping: Mapping) -> Result<(), LoadError> {
    match space.map(&pin(), Placement::Fixed(pages.start()), pages.pages(), mapping) {
        Ok(_) => Ok(()),
        Err(VmError::OutOfRange) => Err(OUTSIDE.into()),
        Err(_) => Err(Errno::ENOMEM.into()),
    }
}

fn set_up_stack(space: &SpaceHandle, strings: &Strings, aux: &AuxInfo<'_>) -> Result<u64, LoadError> {
    let stack = PageRange::between(VirtAddr::new(STACK.start).page(), VirtAddr::new(STACK.end).page());
    map(space, stack, Mapping::anonymous(Prot::READ | Prot::WRITE))?;
    let (sp, bytes): (u64, Vec<u8>) = stack::build(STACK.end, strings, aux)?;
    image::write(&**space, sp, &bytes)?;
    Ok(sp)
}

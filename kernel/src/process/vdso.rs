//! The page of the [vDSO](crate::arch::vdso_page) in a program's memory.
//!
//! It is a private mapping of a file of the kernel without a name, whose one page is the kernel's frame. So a
//! program that makes it writable, and a debugger, write to a copy, and discarding it brings the frame back.
//! A fork, a move or an unmapping treats it like any mapping of a file.

use abi::Errno;
use percore::pin;
use sync::SetOnce;
use vm::{FrameNum, Mapping, PAGE_SIZE, PageNum, PageRange, Prot, VirtAddr};

use super::STACK;
use super::load::{self, LoadError};
use crate::arch;
use crate::fs::Source;
use crate::fs::page_cache::PageCache;
use crate::mm::fallible;
use crate::mm::file_mapping::Held;
use crate::mm::page_refs;
use crate::mm::space::SpaceHandle;

/// The address of the page, an ELF file. It lies in the block where the stack ends and the program begins, so
/// it needs no leaf and no page table of its own. A page that is not mapped follows the stack.
pub const START: u64 = STACK.end + PAGE_SIZE;
/// The end of the page.
pub const END: u64 = START + PAGE_SIZE;

const _: () = assert!(END < super::elf::PROGRAM_BASE);

/// The record by which all programs show the file, set at boot. So a fork copies none.
static RECORD: SetOnce<Held> = SetOnce::new();

/// Makes the file and its record. Called once, at boot.
///
/// # Errors
/// ENOMEM.
pub fn init() -> Result<(), Errno> {
    let frame = FrameNum::new(arch::vdso_page() / PAGE_SIZE);
    page_refs::share_for_ever(frame);
    let pages = fallible::arc(PageCache::of_frame(&pin(), frame)?)?;
    RECORD.set(Held::of_all(Source::Kernel(pages), page())?);
    Ok(())
}

fn page() -> PageNum {
    VirtAddr::new(START).page()
}

/// Maps the page into the memory of a new program.
pub fn map(space: &SpaceHandle) -> Result<(), LoadError> {
    let record = RECORD.get().ok_or(Errno::ENOMEM)?;
    let mapping = Mapping::private(Prot::READ | Prot::EXEC, record.number());
    load::map(space, PageRange::one(page()), mapping)
}

//! Loads an ELF file into this process, as the kernel's `execve` does.

use abi::Errno;
use pathreads::elf::{Headers, Segment};
use pathreads::{PAGE, page_end, page_start};

use crate::sys::{
    self, MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_NORESERVE, MAP_PRIVATE, NO_FILE, PROT_EXEC,
    PROT_WRITE, Result,
};
use crate::{isolate, patch};

/// Maps all segments of the file at a path, near `hint` unless they have fixed addresses. Returns what is
/// added to the file's addresses.
pub fn load(file: u64, headers: Headers<'_>, hint: u64, path: u64) -> Result {
    let (first, end) = headers.span().ok_or(Errno::ENOEXEC)?;
    let over_all = headers.first_over_all().filter(|_| !isolate::is_on());
    let base = reserve(headers, first, end - first, hint, over_all.map(|segment| (segment, file)))?;
    let bias = base.wrapping_sub(first);
    for segment in headers.loads().skip(usize::from(over_all.is_some())) {
        map(file, segment, bias, path)?;
    }
    Ok(bias)
}

/// Reserves the memory of all segments. If the first one is mapped over all of it, as the kernel does, its
/// own part is ready then.
fn reserve(
    headers: Headers<'_>,
    first: u64,
    length: u64,
    hint: u64,
    over_all: Option<(Segment, u64)>,
) -> Result {
    let (rights, flags, file, offset) = match over_all {
        Some((segment, file)) => (segment.protection(), MAP_PRIVATE, file, page_start(segment.offset)),
        None => (0, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, NO_FILE, 0),
    };
    if isolate::is_on() {
        return reserve_recorded(headers, first, length, hint);
    }
    if headers.is_fixed {
        // SAFETY: nothing is replaced. A kernel that does not know the flag may choose another address.
        let at = unsafe { sys::mmap(first, length, rights, flags | MAP_FIXED_NOREPLACE, file, offset)? };
        return if at == first { Ok(at) } else { Err(Errno::ENOMEM) };
    }
    let slack = headers.align() - PAGE;
    // SAFETY: the kernel chooses a free address.
    let at = unsafe { sys::mmap(hint, length + slack, rights, flags, file, offset)? };
    let base = (at + slack) & !slack;
    let trim = |from: u64, to: u64| {
        if from < to {
            // SAFETY: this part of the reservation was made a moment ago and is not used.
            unsafe { sys::munmap(from, to - from) };
        }
    };
    trim(at, base);
    trim(base + length, at + length + slack);
    Ok(base)
}

/// Reserves the memory of all segments in the record.
fn reserve_recorded(headers: Headers<'_>, first: u64, length: u64, hint: u64) -> Result {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS;
    if headers.is_fixed {
        return isolate::memory::map([first, length, 0, flags | MAP_FIXED_NOREPLACE, NO_FILE, 0]);
    }
    let slack = headers.align() - PAGE;
    let at = isolate::memory::map([hint, length + slack, 0, flags, NO_FILE, 0])?;
    let base = (at + slack) & !slack;
    for (from, to) in [(at, base), (base + length, at + length + slack)] {
        if from < to {
            isolate::memory::unmap(from, to - from)?;
        }
    }
    Ok(base)
}

/// Maps memory as the program would.
///
/// # Safety
/// A fixed address must not hold memory that Rust relies on.
unsafe fn place(at: u64, length: u64, protection: u64, flags: u64, file: u64, offset: u64) -> Result {
    if isolate::is_on() {
        return isolate::memory::map([at, length, protection, flags, file, offset]);
    }
    // SAFETY: the caller answers for the address.
    unsafe { sys::mmap(at, length, protection, flags, file, offset) }
}

/// Maps one segment over its part of the reservation.
fn map(file: u64, segment: Segment, bias: u64, path: u64) -> Result<()> {
    let (start, protection) = (bias.wrapping_add(segment.address), segment.protection());
    let in_file = start + segment.file_size;
    let (first, end) = (page_start(start), page_end(start + segment.memory_size));
    let file_end = if segment.file_size == 0 { first } else { page_end(in_file) };
    if segment.file_size > 0 {
        let (length, offset) = (file_end - first, page_start(segment.offset));
        // SAFETY: the reservation holds nothing.
        unsafe { place(first, length, protection, MAP_PRIVATE | MAP_FIXED, file, offset)? };
        if protection & PROT_WRITE != 0 && segment.memory_size > segment.file_size {
            // SAFETY: the rest of the segment's last page, which was just mapped to be written.
            unsafe { core::ptr::write_bytes(in_file as *mut u8, 0, (file_end - in_file) as usize) };
        }
        if protection & PROT_EXEC != 0 {
            patch::add_at(patch::Mapping { address: first, length, protection, file, offset }, Some(path));
        }
    }
    if file_end < end {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        // SAFETY: the reservation holds nothing.
        unsafe { place(file_end, end - file_end, protection, flags, NO_FILE, 0)? };
    }
    Ok(())
}

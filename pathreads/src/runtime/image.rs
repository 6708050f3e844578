//! Loads an ELF file into this process, as the kernel's `execve` does.

use abi::Errno;
use pathreads::elf::{Headers, Segment};
use pathreads::{PAGE, page_end, page_start};

use crate::patch;
use crate::sys::{
    self, MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_NORESERVE, MAP_PRIVATE, NO_FILE, PROT_EXEC,
    PROT_WRITE, Result,
};

/// Maps all segments, near `hint` unless they have fixed addresses. Returns what is added to the file's
/// addresses.
pub fn load(file: u64, headers: Headers<'_>, hint: u64) -> Result {
    let (first, end) = headers.span().ok_or(Errno::ENOEXEC)?;
    let base = reserve(headers, first, end - first, hint)?;
    let bias = base.wrapping_sub(first);
    for segment in headers.loads() {
        map(file, segment, bias)?;
    }
    Ok(bias)
}

/// Reserves the memory of all segments.
fn reserve(headers: Headers<'_>, first: u64, length: u64, hint: u64) -> Result {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if headers.is_fixed {
        // SAFETY: nothing is replaced. A kernel that does not know the flag may choose another address.
        let at = unsafe { sys::mmap(first, length, 0, flags | MAP_FIXED_NOREPLACE, NO_FILE, 0)? };
        return if at == first { Ok(at) } else { Err(Errno::ENOMEM) };
    }
    let slack = headers.align() - PAGE;
    // SAFETY: the kernel chooses a free address.
    let at = unsafe { sys::mmap(hint, length + slack, 0, flags, NO_FILE, 0)? };
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

/// Maps one segment over its part of the reservation.
fn map(file: u64, segment: Segment, bias: u64) -> Result<()> {
    let (start, protection) = (bias.wrapping_add(segment.address), segment.protection());
    let in_file = start + segment.file_size;
    let (first, end) = (page_start(start), page_end(start + segment.memory_size));
    let file_end = if segment.file_size == 0 { first } else { page_end(in_file) };
    if segment.file_size > 0 {
        let (length, offset) = (file_end - first, page_start(segment.offset));
        // SAFETY: the reservation holds nothing.
        unsafe { sys::mmap(first, length, protection, MAP_PRIVATE | MAP_FIXED, file, offset)? };
        if protection & PROT_WRITE != 0 && segment.memory_size > segment.file_size {
            // SAFETY: the rest of the segment's last page, which was just mapped to be written.
            unsafe { core::ptr::write_bytes(in_file as *mut u8, 0, (file_end - in_file) as usize) };
        }
        if protection & PROT_EXEC != 0 {
            patch::add(patch::Mapping { address: first, length, protection, file, offset });
        }
    }
    if file_end < end {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        // SAFETY: the reservation holds nothing.
        unsafe { sys::mmap(file_end, end - file_end, protection, flags, NO_FILE, 0)? };
    }
    Ok(())
}

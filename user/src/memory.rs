//! The memory calls, thinly wrapped: addresses are numbers, errors are `io::Error`.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Bytes per page.
pub const PAGE: usize = 4096;
/// Readable and writable.
pub const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
/// Fresh zeroed memory that is not shared.
pub const PRIVATE: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

/// Maps fresh memory at an address that the kernel chooses.
pub fn map(length: usize, protection: i32) -> io::Result<usize> {
    // SAFETY: without MAP_FIXED the call only adds memory without references.
    unsafe { map_at(0, length, protection, PRIVATE) }
}

/// Calls `mmap` for fresh memory.
///
/// # Safety
/// With MAP_FIXED the range loses its contents: no reference into it may live.
pub unsafe fn map_at(address: usize, length: usize, protection: i32, flags: i32) -> io::Result<usize> {
    // SAFETY: the caller answers for the range.
    let result = unsafe { libc::mmap(address as *mut _, length, protection, flags, -1, 0) };
    if result == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(result as usize) }
}

/// Creates a file of `length` zeroes in memory, without a name.
pub fn file(length: usize) -> io::Result<OwnedFd> {
    // SAFETY: the name is a string, and the descriptor is fresh and not owned elsewhere.
    let file = unsafe {
        let file = libc::memfd_create(c"memory".as_ptr(), libc::MFD_CLOEXEC);
        check(file.min(0))?;
        OwnedFd::from_raw_fd(file)
    };
    // SAFETY: no memory is touched.
    check(unsafe { libc::ftruncate(file.as_raw_fd(), length as libc::off_t) }).map(|()| file)
}

/// Maps a file from `offset` on, to an address with a length, by `mmap`.
///
/// # Safety
/// As for [`map_at`]. The file may change only as the caller expects.
pub unsafe fn map_file_at(
    (address, length): (usize, usize),
    protection: i32,
    flags: i32,
    file: &OwnedFd,
    offset: usize,
) -> io::Result<usize> {
    let (file, offset) = (file.as_raw_fd(), offset as libc::off_t);
    // SAFETY: the caller answers for the range.
    let result = unsafe { libc::mmap(address as *mut _, length, protection, flags, file, offset) };
    if result == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(result as usize) }
}

/// Calls `munmap`.
///
/// # Safety
/// No reference into the range may live.
pub unsafe fn unmap(address: usize, length: usize) -> io::Result<()> {
    // SAFETY: the caller answers for the range.
    check(unsafe { libc::munmap(address as *mut _, length) })
}

/// Calls `mprotect`.
///
/// # Safety
/// References into the range must agree with the new protection.
pub unsafe fn protect(address: usize, length: usize, protection: i32) -> io::Result<()> {
    // SAFETY: the caller answers for the range.
    check(unsafe { libc::mprotect(address as *mut _, length, protection) })
}

/// Calls `madvise(MADV_DONTNEED)`: the pages read as zeros from now on.
///
/// # Safety
/// No reference into the range may live.
pub unsafe fn discard(address: usize, length: usize) -> io::Result<()> {
    // SAFETY: the caller answers for the range.
    check(unsafe { libc::madvise(address as *mut _, length, libc::MADV_DONTNEED) })
}

/// Calls `mincore`: a byte for each page, whose lowest bit says whether the page is in memory.
pub fn resident(address: usize, length: usize, pages: &mut [u8]) -> io::Result<()> {
    assert!(pages.len() >= length.div_ceil(PAGE), "no room for the answer");
    // SAFETY: the answer has room, and the call changes nothing in the range.
    check(unsafe { libc::mincore(address as *mut _, length, pages.as_mut_ptr()) })
}

/// Calls `madvise(MADV_NOHUGEPAGE)`: every page gets a frame of its own. A kernel without huge pages needs no
/// advice.
pub fn small_pages(address: usize, length: usize) -> io::Result<()> {
    // SAFETY: the advice changes no contents.
    let result = check(unsafe { libc::madvise(address as *mut _, length, libc::MADV_NOHUGEPAGE) });
    result.or_else(|error| if error.raw_os_error() == Some(libc::EINVAL) { Ok(()) } else { Err(error) })
}

/// Maps shared memory a second time, anywhere, by `mremap` with an old size of 0.
///
/// # Safety
/// As for [`map_file_at`].
pub unsafe fn map_again(address: usize, length: usize) -> io::Result<usize> {
    // SAFETY: the old mapping stays, and the caller answers for what both show.
    let result = unsafe { libc::mremap(address as *mut _, 0, length, libc::MREMAP_MAYMOVE) };
    if result == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(result as usize) }
}

/// Moves a range to exactly `to`, by `mremap`.
///
/// # Safety
/// No reference into either range may live.
pub unsafe fn shift(address: usize, length: usize, to: usize) -> io::Result<()> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: the caller answers for the ranges.
    let moved = unsafe { libc::mremap(address as *mut _, length, length, flags, to) };
    if moved == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn check(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Pages of fresh, writable memory that one owner maps, writes and unmaps.
pub struct Region {
    address: usize,
    pages: usize,
}

impl Region {
    /// Maps the region.
    pub fn map(pages: usize) -> io::Result<Region> {
        Ok(Region { address: map(pages * PAGE, READ_WRITE)?, pages })
    }

    /// Writes a word into every page.
    pub fn write(&mut self, word: u64) {
        (0..self.pages).for_each(|page| self.write_page(page, word));
    }

    /// Writes a word into one page.
    ///
    /// # Panics
    /// If there is no such page.
    #[inline(always)]
    pub fn write_page(&mut self, page: usize, word: u64) {
        assert!(page < self.pages, "the region ends before page {page}");
        let place = (self.address + page * PAGE) as *mut u64;
        // SAFETY: the page belongs to this region, which is mapped writable while it lives.
        unsafe { place.write_volatile(word) };
    }

    /// Unmaps the region.
    pub fn unmap(self) -> io::Result<()> {
        // SAFETY: the region is the only way to its pages, and it ends here.
        unsafe { unmap(self.address, self.pages * PAGE) }
    }

    /// Gives up the region and returns its address, for [`Region::from_address`].
    pub fn into_address(self) -> usize {
        self.address
    }

    /// Restores the region that had been given up as `address`.
    ///
    /// # Safety
    /// `address` came from [`Region::into_address`] of a region of `pages`, and is used once.
    pub unsafe fn from_address(address: usize, pages: usize) -> Region {
        Region { address, pages }
    }
}

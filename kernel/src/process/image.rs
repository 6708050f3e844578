//! Writing into an address space that need not be the one this core runs.

use abi::Errno;
use percore::pin;
use vm::{AddressSpace, FrameNum, Installed, PAGE_SIZE, PageNum, VirtAddr};

use super::reclaim::retry;
use crate::bytes::{after, after_mut, copy_prefix, prefix_mut};
use crate::fs::content::Content;
use crate::mm::frames;

/// Fills the `pages` pages from `start` on, which are mapped and not touched yet. `read` gets the index of a
/// page and zeroes to fill.
///
/// # Errors
/// ENOMEM, and those of `read`. The pages before are filled then.
pub fn fill(
    space: &dyn AddressSpace,
    start: PageNum,
    pages: u64,
    mut read: impl FnMut(u64, &mut [u8; PAGE_SIZE as usize]) -> Result<(), Errno>,
) -> Result<(), Errno> {
    (0..pages).try_for_each(|index| {
        let frame = frame()?;
        let page = PageNum::new(start.get() + index);
        let filled =
            frames::with_bytes(frame, |bytes| read(index, bytes)).and_then(|()| install(space, page, frame));
        if filled.is_err() {
            frames::free(&pin(), frame);
        }
        filled
    })
}

fn frame() -> Result<FrameNum, Errno> {
    retry(|| frames::alloc_zeroed(&pin()).ok_or(Errno::ENOMEM))
}

fn install(space: &dyn AddressSpace, page: PageNum, frame: FrameNum) -> Result<(), Errno> {
    retry(|| space.install(&pin(), page, Installed::Frame(frame))).map_err(|_| Errno::ENOMEM)
}

/// Fills the pages from `start` on with the `bytes` bytes of `file` from `offset` on.
///
/// # Errors
/// ENOMEM, those of reading, EIO if the file is shorter by now.
pub fn read_in(
    space: &dyn AddressSpace,
    start: PageNum,
    file: &dyn Content,
    offset: u64,
    bytes: u64,
) -> Result<(), Errno> {
    fill(space, start, bytes.div_ceil(PAGE_SIZE), |index, page| {
        let done = index * PAGE_SIZE;
        read_exactly(file, offset + done, prefix_mut(page, bytes - done))
    })
}

/// Fills `into` with the bytes of `file` from `offset` on.
///
/// # Errors
/// EIO if the file ends before, and those of reading.
pub fn read_exactly(file: &dyn Content, offset: u64, into: &mut [u8]) -> Result<(), Errno> {
    let mut done = 0;
    while done < into.len() {
        match retry(|| file.read(offset + done as u64, after_mut(into, done), false))? {
            0 => return Err(Errno::EIO),
            read => done += read,
        }
    }
    Ok(())
}

/// Writes `bytes` at `address`, into pages that are mapped and not touched yet.
///
/// # Errors
/// ENOMEM.
pub fn write(space: &dyn AddressSpace, address: u64, bytes: &[u8]) -> Result<(), Errno> {
    let address = VirtAddr::new(address);
    let skip = address.offset() as usize;
    let pages = (skip + bytes.len()).div_ceil(PAGE_SIZE as usize) as u64;
    fill(space, address.page(), pages, |index, page| {
        // Page `index` begins `index` pages after an address that is `skip` bytes before the first byte.
        let from = (index as usize * page.len()).saturating_sub(skip);
        let at = if index == 0 { skip } else { 0 };
        copy_prefix(after_mut(page, at), after(bytes, from));
        Ok(())
    })
}

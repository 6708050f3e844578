//! mmap and brk: making memory.

use abi::Errno;
use abi::file::S_IFREG;
use abi::memory::*;
use percore::pin;
use vm::{Access, AddressSpace, Mapping, PAGE_SIZE, PageNum, PageRange, Placement, Prot, VmError};

use super::ranges::{pages_for, refusal};
use super::{Call, Outcome};
use crate::fs::OpenFile;
use crate::fs::content::Content;
use crate::mm::space::LOWEST;
use crate::mm::user::USER_END;
use crate::process::{Patience, fill};

/// Where MAP_32BIT mappings end.
const LOW_END: PageNum = PageNum::new((1 << 31) / PAGE_SIZE);
const PROT_KNOWN: u64 = PROT_READ | PROT_WRITE | PROT_EXEC;
/// /dev/zero, which is another way to ask for anonymous memory.
const ZERO_DEVICE: (u32, u32) = (1, 5);
const REFUSED: u64 = MAP_GROWSDOWN | MAP_HUGETLB;

/// What an mmap asks for, checked.
struct Request {
    place: Placement,
    pages: u64,
    prot: Prot,
    flags: u64,
}

/// Anonymous mappings, and private or read-only mappings of files, which are read in at once.
pub fn mmap(call: &mut Call<'_>) -> Outcome {
    if !call.arg(5).is_multiple_of(PAGE_SIZE) {
        return Err(Errno::EINVAL);
    }
    if call.arg(3) & MAP_ANONYMOUS == 0 {
        let file = call.file(4)?;
        return map_file(call, &file, &check(call)?);
    }
    let request = check(call)?;
    let space = &***call.task.process().space();
    let start = map(space, request.place, request.pages, request.prot)?;
    if request.flags & (MAP_POPULATE | MAP_LOCKED) != 0 {
        populate(space, start, &request);
    }
    Ok(start.get() * PAGE_SIZE)
}

#[inline]
fn check(call: &Call<'_>) -> Result<Request, Errno> {
    let [address, length, prot, flags] = [0, 1, 2, 3].map(|index| call.arg(index));
    let known_type = match flags & MAP_TYPE {
        MAP_PRIVATE | MAP_SHARED => true,
        kind => kind == MAP_SHARED_VALIDATE && flags & MAP_ANONYMOUS == 0,
    };
    if length == 0 || !known_type || flags & REFUSED != 0 {
        return Err(Errno::EINVAL);
    }
    let pages = pages_for(length).filter(|&pages| pages <= USER_END / PAGE_SIZE).ok_or(Errno::ENOMEM)?;
    Ok(Request { place: placement(address, flags)?, pages, prot: Prot::from_bits(prot & PROT_KNOWN), flags })
}

#[inline]
fn placement(address: u64, flags: u64) -> Result<Placement, Errno> {
    let page = PageNum::new(address / PAGE_SIZE);
    if flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0 {
        return match address {
            _ if !address.is_multiple_of(PAGE_SIZE) => Err(Errno::EINVAL),
            ..LOWEST => Err(Errno::EPERM),
            _ if flags & MAP_FIXED_NOREPLACE != 0 => Ok(Placement::FixedNoReplace(page)),
            _ => Ok(Placement::Fixed(page)),
        };
    }
    if flags & MAP_32BIT != 0 {
        return Ok(Placement::Below(LOW_END));
    }
    Ok(Placement::Anywhere { hint: (page.get() != 0).then_some(page) })
}

/// `AddressSpace::map`, with another try after memory was looked for.
fn map(space: &dyn AddressSpace, place: Placement, pages: u64, prot: Prot) -> Result<PageNum, Errno> {
    let mut patience = Patience::new();
    loop {
        let mapped = space.map(&pin(), place, pages, Mapping::anonymous(prot));
        match mapped {
            Ok(start) => return Ok(start),
            Err(VmError::OutOfMemory) if patience.found_memory() => {}
            Err(error) => return Err(refusal(error)),
        }
    }
}

/// Faults the pages in, as far as memory goes.
fn populate(space: &dyn AddressSpace, start: PageNum, request: &Request) {
    let access = if request.prot.allows(Access::Write) { Access::Write } else { Access::Read };
    let pages = PageRange::new(start, request.pages).into_iter().flat_map(PageRange::iter);
    let addresses = pages.filter_map(PageNum::address);
    let _enough = addresses.map(|at| space.fault(&pin(), at, access)).take_while(Result::is_ok).count();
}

/// The whole file part is read now: later changes of the file are not seen.
fn map_file(call: &Call<'_>, file: &OpenFile, request: &Request) -> Outcome {
    if file.is_place() {
        return Err(Errno::EBADF);
    }
    let end = call.arg(5).checked_add(request.pages * PAGE_SIZE);
    if file.node().kind() == S_IFREG && end.is_none_or(|end| end > i64::MAX as u64) {
        return Err(Errno::EOVERFLOW);
    }
    let written_back = request.flags & MAP_TYPE != MAP_PRIVATE && request.prot.allows(Access::Write);
    if !file.is_readable() || written_back && !file.is_writable() {
        return Err(Errno::EACCES);
    }
    let content = file.content().map_err(|_| Errno::ENODEV)?;
    let space = &***call.task.process().space();
    if content.device() == ZERO_DEVICE {
        return Ok(map(space, request.place, request.pages, request.prot)?.get() * PAGE_SIZE);
    }
    if content.kind() != S_IFREG || written_back {
        return Err(Errno::ENODEV);
    }
    // Without rights until it is filled, so that no thread sees half of it.
    let start = map(space, request.place, request.pages, Prot::NONE)?;
    let pages = PageRange::new(start, request.pages).ok_or(Errno::ENOMEM)?;
    let done = read_in(space, start, content, call.arg(5), request.pages)
        .and_then(|()| space.protect(&pin(), pages, request.prot).map_err(refusal));
    if done.is_err() {
        let _gone = space.unmap(&pin(), pages);
    }
    done.map(|()| start.get() * PAGE_SIZE)
}

/// Fills the pages from `start` on, `pages` at most, with the file from `offset` on.
fn read_in(
    space: &dyn AddressSpace,
    start: PageNum,
    content: &dyn Content,
    offset: u64,
    pages: u64,
) -> Result<(), Errno> {
    let in_file = content.len().saturating_sub(offset).div_ceil(PAGE_SIZE).min(pages);
    fill(space, start, in_file, |index, page| {
        let mut done = 0;
        while done < page.len() {
            match content.read(offset + index * PAGE_SIZE + done as u64, &mut page[done..], false)? {
                0 => break,
                read => done += read,
            }
        }
        Ok(())
    })
}

/// Moves the end of the data segment; says where it is, moved or not.
pub fn brk(call: &mut Call<'_>) -> Outcome {
    let process = call.task.process();
    Ok(process.heap.set_break(&***process.space(), call.arg(0)))
}

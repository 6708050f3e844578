//! mmap and brk: making memory.

use abi::Errno;
use abi::memory::*;
use percore::pin;
use vm::{Access, AddressSpace, Mapping, PAGE_SIZE, PageNum, PageRange, Placement, Prot, VmError};

use super::map_file::{map_file, map_shared_memory};
use super::ranges::{pages_for, refusal};
use super::{Call, Outcome};
use crate::mm::space::LOWEST;
use crate::mm::user::USER_END;
use crate::process::Patience;

/// Where MAP_32BIT mappings end.
const LOW_END: PageNum = PageNum::new((1 << 31) / PAGE_SIZE);
const PROT_KNOWN: u64 = PROT_READ | PROT_WRITE | PROT_EXEC;
const REFUSED: u64 = MAP_GROWSDOWN | MAP_HUGETLB;

/// What an mmap asks for, checked.
pub(super) struct Request {
    pub place: Placement,
    pub pages: u64,
    pub prot: Prot,
    pub flags: u64,
}

impl Request {
    /// Whether what is written is seen by others.
    pub fn is_shared(&self) -> bool {
        self.flags & MAP_TYPE != MAP_PRIVATE
    }
}

/// Anonymous memory of one's own; the rest is in `map_file`.
pub fn mmap(call: &mut Call<'_>) -> Outcome {
    if !call.arg(5).is_multiple_of(PAGE_SIZE) {
        return Err(Errno::EINVAL);
    }
    if call.arg(3) & MAP_ANONYMOUS == 0 {
        let file = call.file(4)?;
        return map_file(call, &file, &check(call)?);
    }
    let request = check(call)?;
    if request.is_shared() {
        return map_shared_memory(call, &request);
    }
    map(call, &request, Mapping::anonymous(request.prot))
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

/// `AddressSpace::map`, with another try after memory was looked for; and the pages are brought in if that is asked for.
#[inline]
pub(super) fn map(call: &Call<'_>, request: &Request, mapping: Mapping) -> Outcome {
    let space = &***call.task.space();
    let start = place(space, request, mapping)?;
    if request.flags & (MAP_POPULATE | MAP_LOCKED) != 0 {
        populate(space, start, request);
    }
    Ok(start.get() * PAGE_SIZE)
}

fn place(space: &dyn AddressSpace, request: &Request, mapping: Mapping) -> Result<PageNum, Errno> {
    let mut patience = Patience::new();
    loop {
        let mapped = space.map(&pin(), request.place, request.pages, mapping);
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

/// Moves the end of the data segment; says where it is, moved or not.
pub fn brk(call: &mut Call<'_>) -> Outcome {
    let memory = &call.task.shared().memory;
    Ok(memory.heap.set_break(&**memory.space, call.arg(0)))
}

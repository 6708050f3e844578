//! SysV shared memory.

use abi::Errno;
use abi::ipc::*;
use percore::pin;
use vm::{Mapping, PAGE_SIZE, PageNum, PageRange, Placement, Prot};

use super::mmap::{Request, map};
use super::ranges::{errno_of, shows_file};
use super::{Call, Outcome};
use crate::fs::Source;
use crate::mm::file_mapping::Held;
use crate::mm::space::LOWEST;
use crate::mm::user;
use crate::process::ipc::{Attached, EXECUTE, READ, WRITE, Wanted, segment};
use crate::process::pieces::in_pieces;
use crate::process::retry;
use crate::sched::Task;

/// Logarithms of the sizes of huge pages on Linux, where 0 is the default one.
const HUGE_SIZES: [u32; 3] = [0, 21, 30];

/// Returns the identifier of a segment, which is made if that is wanted.
pub fn shmget(call: &mut Call<'_>) -> Outcome {
    let (wanted, bytes) = (Wanted { key: call.int(0), flags: call.arg(2) as u32 }, call.arg(1));
    let made = retry(|| segment::get(wanted, bytes, || no_huge_pages(wanted.flags)));
    made.map(u64::from)
}

/// Refuses a new segment of huge pages, of which none are reserved.
fn no_huge_pages(flags: u32) -> Result<(), Errno> {
    match flags >> SHM_HUGE_SHIFT & SHM_HUGE_MASK {
        _ if flags & SHM_HUGETLB == 0 => Ok(()),
        size if HUGE_SIZES.contains(&size) => Err(Errno::ENOMEM),
        _ => Err(Errno::EINVAL),
    }
}

/// Maps a segment.
pub fn shmat(call: &mut Call<'_>) -> Outcome {
    let (id, flags) = (call.int(0), call.arg(2) as u32);
    if id < 0 {
        return Err(Errno::EINVAL);
    }
    let place = placement(call.arg(1), flags)?;
    let segment = segment::find(id)?;
    let optional = [(flags & SHM_RDONLY == 0, WRITE), (flags & SHM_EXEC != 0, EXECUTE)];
    segment.permit(optional.into_iter().filter(|(is, _)| *is).fold(READ, |all, (_, right)| all | right))?;
    let part = Attached::new(segment)?;
    check_place(place, part.segment().pages())?;
    let is_written = flags & SHM_RDONLY == 0;
    let rights = [(true, Prot::READ), (is_written, Prot::WRITE), (flags & SHM_EXEC != 0, Prot::EXEC)];
    let rights = rights.into_iter().filter(|(has, _)| *has).map(|(_, right)| right);
    let request = Request {
        place,
        pages: part.segment().pages(),
        prot: rights.fold(Prot::NONE, |all, right| all | right),
        flags: 0,
    };
    let record =
        retry(|| Held::new(Source::of(part.segment().file())?, call.task.space(), 0, request.pages))?;
    let shared = Mapping::shared(request.prot, record.number());
    let mapped = map(call, &request, if is_written { shared } else { shared.sealed() });
    let at = mapped.map_err(|error| if error == Errno::EEXIST { Errno::EINVAL } else { error })?;
    let pages = PageRange::new(PageNum::new(at / PAGE_SIZE), request.pages).unwrap_or(PageRange::EMPTY);
    let added = call.task.shared().memory.attachments.add(part, pages);
    added.inspect_err(|_| unmap(call.task, pages).unwrap_or_default()).map(|()| at)
}

/// Returns the place that a program means.
fn placement(address: u64, flags: u32) -> Result<Placement, Errno> {
    let (rounds, replaces) = (flags & SHM_RND != 0, flags & SHM_REMAP != 0);
    let start = address - address % PAGE_SIZE;
    let page = PageNum::new(start / PAGE_SIZE);
    if address == 0 {
        return if replaces { Err(Errno::EINVAL) } else { Ok(Placement::Anywhere { hint: None }) };
    }
    match () {
        () if start != address && !rounds || start == 0 && replaces => Err(Errno::EINVAL),
        () if replaces => Ok(Placement::Fixed(page)),
        () => Ok(Placement::FixedNoReplace(page)),
    }
}

/// Refuses places that are too low, and those where the addresses would begin again.
fn check_place(place: Placement, pages: u64) -> Result<(), Errno> {
    let low = |page: PageNum| page.get() < LOWEST / PAGE_SIZE;
    match place {
        Placement::FixedNoReplace(page) if page.get() + pages > u64::MAX / PAGE_SIZE => Err(Errno::EINVAL),
        Placement::Fixed(page) | Placement::FixedNoReplace(page) if low(page) => Err(Errno::EPERM),
        _ => Ok(()),
    }
}

/// Unmaps the segment that was attached at an address.
pub fn shmdt(call: &mut Call<'_>) -> Outcome {
    let (at, task) = (call.arg(0), call.task);
    if !at.is_multiple_of(PAGE_SIZE) {
        return Err(Errno::EINVAL);
    }
    let start = PageNum::new(at / PAGE_SIZE);
    let shows = |page| shows_file(task.space(), page);
    task.shared().memory.attachments.detach(start, |pages| unmap(task, pages), shows)?;
    Ok(0)
}

fn unmap(task: &Task, pages: PageRange) -> Result<(), Errno> {
    let space = task.space();
    in_pieces(space, pages, |piece| space.unmap(&pin(), piece)).map_err(errno_of)
}

/// Describes, changes and removes segments.
pub fn shmctl(call: &mut Call<'_>) -> Outcome {
    let (id, command, at) = (call.int(0), call.arg(1) as u32, call.arg(2));
    if id < 0 || call.int(1) < 0 {
        return Err(Errno::EINVAL);
    }
    match command {
        IPC_INFO => {
            user::write(at, &segment::limits())?;
            Ok(segment::highest())
        }
        SHM_INFO => {
            user::write(at, &segment::totals())?;
            Ok(segment::highest())
        }
        IPC_STAT => {
            user::write(at, &segment::find(id)?.describe(READ)?)?;
            Ok(0)
        }
        SHM_STAT | SHM_STAT_ANY => {
            let segment = segment::at(id)?;
            user::write(at, &segment.describe(if command == SHM_STAT { READ } else { 0 })?)?;
            Ok(segment.number().into())
        }
        IPC_SET => {
            let new: ShmidDs = user::read(at)?;
            segment::find(id)?.set(&new.perm).map(|()| 0)
        }
        IPC_RMID => segment::find(id)?.remove().map(|()| 0),
        SHM_LOCK | SHM_UNLOCK => segment::find(id)?.lock(command == SHM_LOCK).map(|()| 0),
        _ => Err(Errno::EINVAL),
    }
}

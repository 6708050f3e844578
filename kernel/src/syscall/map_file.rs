//! mmap of files, and of memory that is shared without a file. Pages are mapped when they are touched, and
//! are those of the file.

use alloc::sync::Arc;

use abi::Errno;
use abi::file::S_IFREG;
use abi::memory::*;
use vm::{Access, Mapping, PAGE_SIZE};

use super::mmap::{Request, map};
use super::{Call, Outcome};
use crate::fs::OpenFile;
use crate::fs::Source;
use crate::fs::content::Content;
use crate::fs::host::MountFile;
use crate::fs::page_cache::PageCache;
use crate::mm::fallible;
use crate::mm::file_mapping::Held;
use crate::mm::static_or_arc::StaticOrArc;

/// /dev/zero. Mapping it is another way to get anonymous memory.
const ZERO_DEVICE: (u32, u32) = (1, 5);
/// The flags that MAP_SHARED_VALIDATE accepts: those that are older than it.
const OLD_FLAGS: u64 = MAP_TYPE
    | MAP_FIXED
    | MAP_ANONYMOUS
    | MAP_32BIT
    | MAP_GROWSDOWN
    | MAP_DENYWRITE
    | MAP_EXECUTABLE
    | MAP_LOCKED
    | MAP_NORESERVE
    | MAP_POPULATE
    | MAP_NONBLOCK
    | MAP_STACK
    | MAP_HUGETLB
    | (21 | 30) << MAP_HUGE_SHIFT;

/// Maps shared memory without a file.
pub(super) fn map_shared_memory(call: &Call<'_>, request: &Request) -> Outcome {
    let pages = fallible::arc(PageCache::anonymous(request.pages * PAGE_SIZE, false))?;
    let record = Held::new(Source::Memory(pages), call.task.space(), 0, request.pages)?;
    map(call, request, Mapping::shared(request.prot, record.number()))
}

/// Maps the file's pages from the call's offset on.
pub(super) fn map_file(call: &Call<'_>, file: &StaticOrArc<OpenFile>, request: &Request) -> Outcome {
    check(call, file, request)?;
    let content = file.content().map_err(|_| Errno::ENODEV)?;
    match content.pages() {
        Some(pages) => map_pages(call, request, file, pages),
        None if content.device() != ZERO_DEVICE => Err(Errno::ENODEV),
        None if request.is_shared() => map_shared_memory(call, request),
        None => map(call, request, Mapping::anonymous(request.prot)),
    }
}

fn check(call: &Call<'_>, file: &OpenFile, request: &Request) -> Result<(), Errno> {
    if file.is_place() {
        return Err(Errno::EBADF);
    }
    let end = call.arg(5).checked_add(request.pages * PAGE_SIZE);
    if file.node().kind() == S_IFREG && end.is_none_or(|end| end > i64::MAX as u64) {
        return Err(Errno::EOVERFLOW);
    }
    let written = request.is_shared() && request.prot.allows(Access::Write);
    if !file.is_readable() || written && !file.is_writable() {
        return Err(Errno::EACCES);
    }
    match request.flags & MAP_TYPE {
        MAP_SHARED_VALIDATE if request.flags & !OLD_FLAGS != 0 => Err(Errno::EOPNOTSUPP),
        _ if request.flags & MAP_HUGETLB != 0 => Err(Errno::EINVAL),
        _ => Ok(()),
    }
}

/// Notes that a file is mapped, when it is dropped.
struct NoteMapped<'a>(&'a MountFile);

impl Drop for NoteMapped<'_> {
    fn drop(&mut self) {
        self.0.note_mapped();
    }
}

fn map_pages(
    call: &Call<'_>,
    request: &Request,
    file: &StaticOrArc<OpenFile>,
    pages: &Arc<PageCache>,
) -> Outcome {
    let first = call.arg(5) / PAGE_SIZE;
    file.note_mapped();
    let written_back = file
        .node()
        .content()
        .and_then(Content::mount_file)
        .filter(|_| request.is_shared() && file.is_writable());
    // A write-back before the mapping is there forgets it, so it is noted again.
    let _change = written_back.map(MountFile::begin_change);
    let _noted_again = written_back.map(NoteMapped);
    let record = Held::new(Source::of(file)?, call.task.space(), first, request.pages)?;
    if !request.is_shared() {
        return map(call, request, Mapping::private(request.prot, record.number()));
    }
    pages.map_shared(request.prot.allows(Access::Write), |is_sealed| {
        let shared = Mapping::shared(request.prot, record.number());
        map(call, request, if is_sealed || !file.is_writable() { shared.sealed() } else { shared })
    })
}

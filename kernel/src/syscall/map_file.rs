//! mmap of files, and of memory that is shared without one: pages come when they are touched, and are the file's own.

use alloc::sync::Arc;

use abi::Errno;
use abi::file::S_IFREG;
use abi::memory::*;
use vm::{Access, Mapping, PAGE_SIZE};

use super::mmap::{Request, map};
use super::{Call, Outcome};
use crate::fs::page_cache::PageCache;
use crate::fs::{OpenFile, fallible};
use crate::mm::file_mapping::Held;

/// /dev/zero, which is another way to ask for anonymous memory.
const ZERO_DEVICE: (u32, u32) = (1, 5);

/// Shared memory: a file's pages without a file.
pub(super) fn map_shared_memory(call: &Call<'_>, request: &Request) -> Outcome {
    let pages = fallible::arc(PageCache::anonymous(request.pages * PAGE_SIZE))?;
    let record = record(call, request, &pages, 0)?;
    map(call, request, Mapping::shared(request.prot, record.number()))
}

/// The file's pages from the call's offset on.
pub(super) fn map_file(call: &Call<'_>, file: &OpenFile, request: &Request) -> Outcome {
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
        MAP_SHARED_VALIDATE if request.flags & MAP_SYNC != 0 => Err(Errno::EOPNOTSUPP),
        _ => Ok(()),
    }
}

fn map_pages(call: &Call<'_>, request: &Request, file: &OpenFile, pages: &Arc<PageCache>) -> Outcome {
    let record = record(call, request, pages, call.arg(5) / PAGE_SIZE)?;
    let shared = Mapping::shared(request.prot, record.number());
    let mapping = match request.is_shared() {
        true if file.is_writable() => shared,
        true => shared.sealed(),
        false => Mapping::private(request.prot, record.number()),
    };
    map(call, request, mapping)
}

fn record(call: &Call<'_>, request: &Request, pages: &Arc<PageCache>, first: u64) -> Result<Held, Errno> {
    Held::new(pages, call.task.space(), first, request.pages)
}

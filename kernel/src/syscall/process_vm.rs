//! Calls on the memory of other processes: process_vm_readv, process_vm_writev, process_madvise.

use alloc::sync::Arc;
use alloc::vec::Vec;

use abi::Errno;
use abi::file::{IOV_MAX, IoVec};
use abi::memory::*;
use percore::pin;
use vm::{Access, FrameNum, PAGE_SIZE, VirtAddr};

use super::ranges::{is_mapped, range};
use super::{Call, Outcome};
use crate::bytes::{prefix, prefix_mut};
use crate::fs::buffers::Buffers;
use crate::mm::fallible;
use crate::mm::space::SpaceHandle;
use crate::mm::{frame_io, user};
use crate::process::remote::{self, offset};
use crate::process::{Memory, pid, pidfd, retry_on_enomem};
use crate::sched::pause;
use crate::users::Basis;

/// Reads the memory of another process into the caller's.
pub fn process_vm_readv(call: &mut Call<'_>) -> Outcome {
    transfer(call, |memory, at, page, ours| {
        with_frame(memory, at, Access::Read, &mut |frame| frame_io::read(frame, offset(at), page))?;
        ours.copy_out(page)
    })
}

/// Writes the caller's memory to that of another process.
pub fn process_vm_writev(call: &mut Call<'_>) -> Outcome {
    transfer(call, |memory, at, page, ours| {
        let len = ours.copy_in(page)?;
        with_frame(memory, at, Access::Write, &mut |frame| {
            frame_io::write(frame, offset(at), prefix(page, len as u64))
        })?;
        Ok(len)
    })
}

/// Moves at most as many bytes as the slice has, all in one page of the other memory, and returns how many.
/// The arguments are the other memory, the address there, a buffer, and the caller's buffers.
type Move = fn(&Memory, u64, &mut [u8], &mut Buffers) -> Result<usize, Errno>;

fn transfer(call: &Call<'_>, move_some: Move) -> Outcome {
    if call.arg(5) != 0 {
        return Err(Errno::EINVAL);
    }
    let at = call.arg(1);
    let mut ours = retry_on_enomem(at, || Buffers::many(at, call.arg(2)))?;
    if ours.left() == 0 {
        return Ok(0);
    }
    let theirs = retry_on_enomem(at, || list(call.arg(3), call.arg(4)))?;
    let memory = memory_of(call.arg(0) as u32)?;
    let mut page = retry_on_enomem(at, || fallible::zeroes(PAGE_SIZE as usize))?;
    let mut done = 0;
    for IoVec { base, len } in theirs.into_iter().flat_map(pieces) {
        let page = prefix_mut(&mut page, len.min(ours.left() as u64));
        match move_some(&memory, base, page, &mut ours) {
            Ok(moved) => done += moved as u64,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
        if ours.left() == 0 || !pause() {
            break;
        }
    }
    Ok(done)
}

fn memory_of(tid: u32) -> Result<Arc<Memory>, Errno> {
    let task = pid::thread(tid).ok_or(Errno::ESRCH)?;
    remote::memory_of(&task, Basis::Real)
}

/// Reads the ranges listed at `list`. They may not be mapped.
fn list(list: u64, count: u64) -> Result<Vec<IoVec>, Errno> {
    let count = usize::try_from(count).ok().filter(|&count| count <= IOV_MAX).ok_or(Errno::EINVAL)?;
    let mut ranges = fallible::empty(count)?;
    for index in 0..count {
        let range: IoVec = user::read(list.wrapping_add((index * size_of::<IoVec>()) as u64))?;
        if range.len > i64::MAX as u64 {
            return Err(Errno::EINVAL);
        }
        ranges.push(range);
    }
    Ok(ranges)
}

/// Splits a range at page ends.
fn pieces(range: IoVec) -> impl Iterator<Item = IoVec> {
    let mut done = 0;
    core::iter::from_fn(move || {
        let base = range.base.wrapping_add(done);
        let len = (PAGE_SIZE - base % PAGE_SIZE).min(range.len - done);
        done += len;
        (len > 0).then_some(IoVec { base, len })
    })
}

/// Calls `visit` with the frame that `access` to `at` reaches. If there is none, it is made or copied as by a
/// fault there.
fn with_frame(
    memory: &Memory,
    at: u64,
    access: Access,
    visit: &mut dyn FnMut(FrameNum),
) -> Result<(), Errno> {
    let at = VirtAddr::new(at);
    while !memory.space.frame(&pin(), at.page(), access, visit) {
        remote::resolve(at.get(), || memory.fault_from_outside(at, access).map(drop))?;
    }
    Ok(())
}

/// Checks the ranges of hints about another process's memory, which have no effect, and returns the number of
/// bytes.
pub fn process_madvise(call: &mut Call<'_>) -> Outcome {
    if call.arg(4) != 0 {
        return Err(Errno::EINVAL);
    }
    let ranges = list(call.arg(1), call.arg(2))?;
    let file = call.file(0)?;
    let thread = pidfd::process(&file)?.any_thread().ok_or(Errno::ESRCH)?;
    let memory = remote::memory_of(&thread, Basis::Files)?;
    if !matches!(call.arg(3), MADV_COLD | MADV_PAGEOUT | MADV_WILLNEED | MADV_COLLAPSE) {
        return Err(Errno::EINVAL);
    }
    let mut done = 0;
    for IoVec { base, len } in ranges {
        match hint(&memory.space, base, len) {
            Ok(()) => done += len,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}

fn hint(space: &SpaceHandle, base: u64, len: u64) -> Result<(), Errno> {
    let pages = range(base, len, Errno::EINVAL)?;
    if is_mapped(space, pages) { Ok(()) } else { Err(Errno::ENOMEM) }
}

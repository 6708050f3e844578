//! Reads and writes: copying between a file's contents and a program's buffers, a page at a time.

use alloc::vec::Vec;

use abi::Errno;
use abi::file::{IoVec, O_DSYNC, POLLERR, POLLIN, POLLOUT};
use vm::{Access, VirtAddr};

use super::messages;
use crate::bytes::{prefix, prefix_mut, tail};
use crate::fs::buffers::Buffers;
use crate::fs::content::{Content, WriteAt};
use crate::fs::host::MountFile;
use crate::fs::page_cache::{PAGE, PageCache};
use crate::fs::socket::Carried;
use crate::fs::{OpenFile, Room, rights};
use crate::mm::read_refs::{AsInPaper, ByCore, InOneWay};
use crate::mm::{epoch, fallible, user};
use crate::options::{self, ReadWay};
use crate::process::{fault, retry, retry_on_enomem, under_lock};
use crate::sched;

/// The bytes that are moved in one piece: less than 10^6 instructions even with a fault for each page.
const PIECE: usize = 64 * PAGE;

/// The position in a file of a read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offset {
    /// The current position, which the transfer moves.
    Current,
    /// This offset. The current position stays.
    At(u64),
}

/// Reads from `file` into the program's buffers.
pub fn read(file: &OpenFile, buffers: &mut Buffers, offset: Offset) -> Result<usize, Errno> {
    must_have_offsets(file, offset)?;
    let content = file.readable()?;
    match offset {
        Offset::At(at) => {
            let at = bounded(at, buffers)?;
            in_pieces(buffers, |buffers, done| fill(content, at + done as u64, buffers, true))
        }
        Offset::Current if content.is_stream() => receive(file, buffers, file.may_wait()),
        Offset::Current => {
            match at_position(file, buffers, Access::Write, |at, buffers| fill(content, at, buffers, true)) {
                Err(Errno::EDEADLK) => read_unlocked(file, content, buffers),
                done => done,
            }
        }
    }
}

/// Reads at the current position contents that take long to find and pause meanwhile, so the position is not
/// locked. It moves unless another task has moved it meanwhile.
#[cold]
fn read_unlocked(file: &OpenFile, content: &dyn Content, buffers: &mut Buffers) -> Result<usize, Errno> {
    let at = bounded(*file.position.lock(), buffers)?;
    let done = in_pieces(buffers, |buffers, done| fill(content, at + done as u64, buffers, true))?;
    let mut position = file.position.lock();
    if *position == at {
        *position += done as u64;
    }
    Ok(done)
}

/// Refuses an offset in a stream. As in Linux, this comes before the access mode: an end of a pipe that is
/// closed for the call gives ESPIPE.
///
/// # Errors
/// ESPIPE.
fn must_have_offsets(file: &OpenFile, offset: Offset) -> Result<(), Errno> {
    let is_stream = || file.node().content().is_some_and(Content::is_stream);
    if offset != Offset::Current && is_stream() { Err(Errno::ESPIPE) } else { Ok(()) }
}

/// Writes the program's buffers to `file`.
pub fn write(file: &OpenFile, buffers: &mut Buffers, offset: Offset) -> Result<usize, Errno> {
    must_have_offsets(file, offset)?;
    let content = file.writable()?;
    if content.is_stream() {
        return send(file, buffers, file.may_wait());
    }
    if buffers.left() > 0 {
        rights::drop_set_ids(file.node())?;
    }
    let done = match offset {
        _ if file.appends() => append(file, content, buffers, offset)?,
        Offset::At(at) => {
            let from = WriteAt::Offset(bounded(at, buffers)?);
            in_pieces(buffers, |buffers, done| drain(content, advanced(from, done), buffers, true))?
        }
        Offset::Current => at_position(file, buffers, Access::Read, |at, buffers| {
            drain(content, WriteAt::Offset(at), buffers, true)
        })?,
    };
    file.node().touch();
    if file.is_mounted() && file.flags() & O_DSYNC != 0 {
        file.node().content().and_then(Content::mount_file).map_or(Ok(()), MountFile::fsync)?;
    }
    Ok(done)
}

/// Reads from a stream, and waits for bytes if it may. From a socket for messages reads one.
pub fn receive(file: &OpenFile, buffers: &mut Buffers, wait: bool) -> Result<usize, Errno> {
    let content = file.readable()?;
    if let Some(socket) = file.messages() {
        return messages::read(socket, buffers, wait);
    }
    receive_from(content, buffers, wait)
}

/// Reads from a stream of bytes.
pub fn receive_from(content: &dyn Content, buffers: &mut Buffers, wait: bool) -> Result<usize, Errno> {
    in_pieces(buffers, |buffers, done| take(content, buffers, wait && done == 0))
}

/// Reads from a stream without taking the bytes, and waits for the first if it may.
pub fn peek(file: &OpenFile, buffers: &mut Buffers, wait: bool) -> Result<usize, Errno> {
    let content = file.readable()?;
    in_pieces(buffers, |buffers, before| {
        let mut bounce = bounce(buffers.start(), buffers.left())?;
        let mut seen = 0;
        loop {
            let (want, skipped) = (bounce.len().min(buffers.left()), before + seen);
            let got = content.peek(skipped, prefix_mut(&mut bounce, want as u64), wait && skipped == 0);
            match got.and_then(|got| buffers.copy_out(prefix(&bounce, got as u64))) {
                Ok(len) if len == want && buffers.left() > 0 => seen += len,
                Ok(len) => return Ok(seen + len),
                // There are no more than those before, or the program has no page for them.
                Err(_) if skipped > 0 => return Ok(seen),
                Err(error) => return Err(error),
            }
        }
    })
}

/// Writes to a stream, and waits for room if it may. To a socket for messages writes one.
pub fn send(file: &OpenFile, buffers: &mut Buffers, wait: bool) -> Result<usize, Errno> {
    let content = file.writable()?;
    if let Some(socket) = file.messages() {
        return messages::send(socket, buffers, Carried::default(), None, wait);
    }
    send_to(content, buffers, wait)
}

/// Writes to a stream of bytes.
pub fn send_to(content: &dyn Content, buffers: &mut Buffers, wait: bool) -> Result<usize, Errno> {
    in_pieces(buffers, |buffers, _| drain(content, WriteAt::End, buffers, wait))
}

/// Calls `transfer` with the file's position, and moves the position by the bytes transferred.
fn at_position(
    file: &OpenFile,
    buffers: &mut Buffers,
    access: Access,
    mut transfer: impl FnMut(u64, &mut Buffers) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    under_position(file, buffers, access, |position, buffers| {
        let done = transfer(bounded(*position, buffers)?, buffers)?;
        *position += done as u64;
        Ok(done)
    })
}

/// Writes at the end of the file, wherever that is by then.
fn append(
    file: &OpenFile,
    content: &dyn Content,
    buffers: &mut Buffers,
    offset: Offset,
) -> Result<usize, Errno> {
    under_position(file, buffers, Access::Read, |position, buffers| {
        let done = drain(content, WriteAt::End, buffers, true)?;
        if offset == Offset::Current {
            *position = content.len();
        }
        Ok(done)
    })
}

/// Calls `transfer` with the position locked, which it may change. It is called in pieces, and no more after
/// another task has moved the position between two of them.
fn under_position(
    file: &OpenFile,
    buffers: &mut Buffers,
    access: Access,
    mut transfer: impl FnMut(&mut u64, &mut Buffers) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    let mut expected = None;
    in_pieces(buffers, |buffers, _| {
        under_lock(buffers.start(), access, || {
            let mut position = file.position.lock();
            if expected.is_some_and(|expected| expected != *position) {
                return Ok(0);
            }
            let done = transfer(&mut position, buffers)?;
            expected = Some(*position);
            Ok(done)
        })
    })
}

/// Calls `transfer` with the number of bytes done, until all are done or no more can be. It pauses after each
/// piece so that other tasks run. A piece that holds a lock stops before a missing page. Memory is then
/// reclaimed without the lock, and the rest follows.
fn in_pieces(
    buffers: &mut Buffers,
    mut transfer: impl FnMut(&mut Buffers, usize) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    let (mut done, mut room) = (0, Room::default());
    loop {
        match retry(|| transfer(buffers, done)) {
            Ok(len) if len > 0 && buffers.take_stopped() => (done, room) = (done + len, Room::default()),
            Ok(len) => return Ok(done + len),
            // Another task changes the file's length, also in pieces.
            Err(Errno::EBUSY) => sched::give_way(),
            Err(Errno::ENOSPC) if room.make() => {}
            Err(error) => return partial(done, error),
        }
        if !sched::pause() {
            return partial(done, Errno::EINTR);
        }
    }
}

/// Returns `at` if the bytes from there on end at a valid offset.
///
/// # Errors
/// EINVAL otherwise.
fn bounded(at: u64, buffers: &Buffers) -> Result<u64, Errno> {
    let end = at.saturating_add(buffers.left() as u64);
    if end <= i64::MAX as u64 { Ok(at) } else { Err(Errno::EINVAL) }
}

/// Copies at most `len` bytes from `source`, which is no stream, to `sink`, and returns how many.
pub fn copy(
    (source, at): (&dyn Content, u64),
    (sink, to): (&dyn Content, WriteAt),
    len: usize,
    wait: bool,
) -> Result<usize, Errno> {
    let mut bounce = bounce(0, len)?;
    let (mut done, mut room) = (0, Room::default());
    while done < len {
        let want = bounce.len().min(len - done);
        let from = at.saturating_add(done as u64);
        let got = retry(|| source.read(from, prefix_mut(&mut bounce, want as u64), false));
        match got.and_then(|got| retry(|| sink.write(advanced(to, done), prefix(&bounce, got as u64), wait)))
        {
            Ok(put) if put == want => (done, room) = (done + put, Room::default()),
            Ok(put) => return Ok(done + put),
            Err(Errno::EBUSY) => sched::give_way(),
            Err(Errno::ENOSPC) if room.make() => {}
            Err(error) => return partial(done, error),
        }
        if !sched::pause() {
            return partial(done, Errno::EINTR);
        }
    }
    Ok(done)
}

/// Reads from a stream. Bytes that are taken from a stream cannot be put back, so the page that they go to is
/// faulted in first.
fn take(content: &dyn Content, buffers: &mut Buffers, wait: bool) -> Result<usize, Errno> {
    if buffers.left() > 0 && !fault::from_kernel(VirtAddr::new(buffers.start()), Access::Write) {
        let nothing = content.ready() & POLLIN == 0 && !wait;
        return Err(if nothing { Errno::EAGAIN } else { Errno::EFAULT });
    }
    fill(content, 0, buffers, wait)
}

/// Reads a piece from `content`. It waits at most once for a stream, and returns what comes first.
fn fill(content: &dyn Content, at: u64, buffers: &mut Buffers, wait: bool) -> Result<usize, Errno> {
    if let Some(bytes) = content.bytes() {
        return copy_some(tail(bytes, at), buffers);
    }
    if let Some(pages) = content.pages() {
        return copy_pages(pages, at, buffers);
    }
    if let Some(shown) = content.show(at, buffers.left(), &mut |bytes| buffers.copy_out(bytes)) {
        return shown_piece(shown, buffers);
    }
    let mut bounce = bounce(buffers.start(), buffers.left())?;
    let mut done = 0;
    loop {
        let want = bounce.len().min(buffers.left());
        let got = content.read(at + done as u64, prefix_mut(&mut bounce, want as u64), wait && done == 0);
        match got.and_then(|got| buffers.copy_out(prefix(&bounce, got as u64))) {
            Ok(len) if len == want && buffers.left() > 0 => done += len,
            Ok(len) => return Ok(done + len),
            Err(error) => return buffers.stopped(done, error),
        }
        if done >= PAGE {
            buffers.stop();
            return Ok(done);
        }
    }
}

/// Copies a piece of a file's pages from `at` on, up to the end of the file.
fn copy_pages(pages: &PageCache, at: u64, buffers: &mut Buffers) -> Result<usize, Errno> {
    let len = pages.len().saturating_sub(at).min(PIECE as u64) as usize;
    let done = buffers.copy(len, |to, done| copy_piece(pages, at + done as u64, to))?;
    if done == PIECE && buffers.left() > 0 {
        buffers.stop();
    }
    Ok(done)
}

/// Copies from `at` on to one page of the program, and returns the number of bytes. A read that stays pinned
/// cannot reclaim meanwhile. So if the page is missing and there is no frame for it, the bytes go through a
/// buffer of the kernel. A caller that holds a lock gets the error, and faults the page in without the lock.
fn copy_piece(pages: &PageCache, at: u64, to: IoVec) -> Result<usize, Errno> {
    let len = to.len as usize;
    match options::get().read_way {
        ReadWay::Pinned => match epoch::without_reclaim(|| pages.copy_out(at, to.base, len, &InOneWay)) {
            Err(Errno::EFAULT) if epoch::may_reclaim() => copy_by_buffer(pages, at, to),
            done => done,
        },
        ReadWay::Counted => pages.copy_out(at, to.base, len, &InOneWay),
        ReadWay::ByProcess => {
            sched::with_current(|task| pages.copy_out(at, to.base, len, &*task.shared().memory))
        }
        ReadWay::ByCore => {
            sched::with_current(|task| pages.copy_out(at, to.base, len, &ByCore(&*task.shared().memory)))
        }
        ReadWay::AsInPaper => {
            sched::with_current(|task| pages.copy_out(at, to.base, len, &AsInPaper(&*task.shared().memory)))
        }
    }
}

#[cold]
fn copy_by_buffer(pages: &PageCache, at: u64, to: IoVec) -> Result<usize, Errno> {
    let mut buffer = bounce(to.base, to.len as usize)?;
    let len = pages.read(at, &mut buffer)?;
    user::copy_out(to.base, prefix(&buffer, len as u64))?;
    Ok(len)
}

/// Returns the result of [`Content::show`]. If that was a page or more, there may be more, so the piece
/// counts as stopped.
fn shown_piece(shown: Result<usize, Errno>, buffers: &mut Buffers) -> Result<usize, Errno> {
    match shown {
        Ok(len) => {
            if len >= PAGE && buffers.left() > 0 {
                buffers.stop();
            }
            Ok(len)
        }
        Err(error) => buffers.stopped(0, error),
    }
}

/// Copies as much of `bytes` as one piece may have.
fn copy_some(bytes: &[u8], buffers: &mut Buffers) -> Result<usize, Errno> {
    let piece = prefix(bytes, PIECE as u64);
    let done = buffers.copy_out(piece)?;
    if done == PIECE && buffers.left() > 0 {
        buffers.stop();
    }
    Ok(done)
}

fn drain(content: &dyn Content, at: WriteAt, buffers: &mut Buffers, wait: bool) -> Result<usize, Errno> {
    if buffers.left() == 0 {
        return Ok(0);
    }
    let mut bounce = bounce(buffers.start(), buffers.left())?;
    let mut done = 0;
    loop {
        let before = buffers.position();
        let got = match buffers.copy_in(&mut bounce) {
            Ok(got) => got,
            Err(error) => return buffers.stopped(done, stream_error(content, wait).unwrap_or(error)),
        };
        let written = retry(|| content.write(advanced(at, done), prefix(&bounce, got as u64), wait));
        if written != Ok(got) {
            buffers.go_on_from(before, written.unwrap_or(0));
        }
        match written {
            Ok(len) if len == bounce.len() && buffers.left() > 0 => done += len,
            Ok(len) => return Ok(done + len),
            Err(error) => return buffers.stopped(done, error),
        }
        if done >= PIECE {
            buffers.stop();
            return Ok(done);
        }
    }
}

/// Returns the error of a stream that would not take bytes now. A writer gets it before EFAULT.
fn stream_error(content: &dyn Content, wait: bool) -> Option<Errno> {
    match content.ready() {
        ready if ready & POLLERR != 0 => Some(Errno::EPIPE),
        ready if ready & POLLOUT == 0 && !wait => Some(Errno::EAGAIN),
        _ => None,
    }
}

/// Allocates a buffer for at most `len` bytes, which the program has or wants at `at`.
fn bounce(at: u64, len: usize) -> Result<Vec<u8>, Errno> {
    retry_on_enomem(at, || fallible::zeroes(PAGE.min(len)))
}

fn advanced(at: WriteAt, by: usize) -> WriteAt {
    match at {
        WriteAt::Offset(at) => WriteAt::Offset(at.saturating_add(by as u64)),
        WriteAt::End => WriteAt::End,
    }
}

/// Returns the result of a call that did `done` bytes before an error.
fn partial(done: usize, error: Errno) -> Result<usize, Errno> {
    if done > 0 { Ok(done) } else { Err(error) }
}

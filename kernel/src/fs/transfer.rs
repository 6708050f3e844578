//! Reads and writes: between a file's contents and a program's buffers, a page at a time.

use alloc::vec::Vec;

use abi::Errno;
use abi::file::{POLLERR, POLLIN, POLLOUT};
use vm::{Access, VirtAddr};

use super::buffers::Buffers;
use super::bytes::{prefix, prefix_mut};
use super::content::{Content, WriteAt};
use super::fallible;
use super::image::tail;
use super::open_file::OpenFile;
use super::page_cache::PAGE;
use crate::process::{fault, retry, retry_on_enomem, under_lock};
use crate::sched;

/// Bytes that are moved at once: with a fault for each page of them, less than 10^6 instructions.
const PIECE: usize = 64 * PAGE;

/// Where in a file to read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offset {
    /// Where the last call ended.
    Current,
    /// Here, leaving the current position alone.
    At(u64),
}

/// Reads from `file` into the program's buffers.
pub fn read(file: &OpenFile, buffers: &mut Buffers, offset: Offset) -> Result<usize, Errno> {
    let content = file.readable()?;
    match offset {
        Offset::At(_) if content.is_stream() => Err(Errno::ESPIPE),
        Offset::At(at) => {
            let at = bounded(at, buffers)?;
            in_pieces(buffers, |buffers, done| fill(content, at + done as u64, buffers, true))
        }
        Offset::Current if content.is_stream() => {
            in_pieces(buffers, |buffers, done| take(content, buffers, file.may_wait() && done == 0))
        }
        Offset::Current => {
            at_position(file, buffers, Access::Write, |at, buffers| fill(content, at, buffers, true))
        }
    }
}

/// Writes the program's buffers to `file`.
pub fn write(file: &OpenFile, buffers: &mut Buffers, offset: Offset) -> Result<usize, Errno> {
    let content = file.writable()?;
    let done = match offset {
        Offset::At(_) if content.is_stream() => return Err(Errno::ESPIPE),
        _ if content.is_stream() => {
            return in_pieces(buffers, |buffers, _| drain(content, WriteAt::End, buffers, file.may_wait()));
        }
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
    Ok(done)
}

/// Does `transfer` at the file's position, which goes on by what is moved.
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

/// Writes at the end, wherever that is by then.
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

/// Does `transfer` with the position locked, which it may change: in pieces, but not after somebody has come between two of them.
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

/// Does `transfer`, which is told how much is done, until that is all or nothing more is moved. It stops after a piece, so that
/// others run. With a lock held it stops before a page that is not there: memory is looked for without the lock, and the
/// rest follows.
fn in_pieces(
    buffers: &mut Buffers,
    mut transfer: impl FnMut(&mut Buffers, usize) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    let mut done = 0;
    loop {
        match retry(|| transfer(buffers, done)) {
            Ok(len) if len > 0 && buffers.take_stopped() => done += len,
            Ok(len) => return Ok(done + len),
            // Somebody changes the file's length, in pieces too.
            Err(Errno::EBUSY) => sched::give_way(),
            Err(error) => return partial(done, error),
        }
        if !sched::pause() {
            return partial(done, Errno::EINTR);
        }
    }
}

/// `at`, unless what is to be moved from there on goes beyond the last offset: EINVAL.
fn bounded(at: u64, buffers: &Buffers) -> Result<u64, Errno> {
    let end = at.saturating_add(buffers.left() as u64);
    if end <= i64::MAX as u64 { Ok(at) } else { Err(Errno::EINVAL) }
}

/// Copies at most `len` bytes from `source`, which is no stream, to `sink`.
pub fn copy(
    (source, at): (&dyn Content, u64),
    (sink, to): (&dyn Content, WriteAt),
    len: usize,
    wait: bool,
) -> Result<usize, Errno> {
    let mut bounce = bounce(0, len)?;
    let mut done = 0;
    while done < len {
        let want = bounce.len().min(len - done);
        let got = source.read(at.saturating_add(done as u64), prefix_mut(&mut bounce, want as u64), false);
        match got.and_then(|got| retry(|| sink.write(advanced(to, done), prefix(&bounce, got as u64), wait)))
        {
            Ok(put) if put == want => done += put,
            Ok(put) => return Ok(done + put),
            Err(Errno::EBUSY) => sched::give_way(),
            Err(error) => return partial(done, error),
        }
        if !sched::pause() {
            return partial(done, Errno::EINTR);
        }
    }
    Ok(done)
}

/// What a stream has given is gone from it, so nothing is taken before the page that it goes to is there.
fn take(content: &dyn Content, buffers: &mut Buffers, wait: bool) -> Result<usize, Errno> {
    if buffers.left() > 0 && !fault::from_kernel(VirtAddr::new(buffers.start()), Access::Write) {
        let nothing = content.ready() & POLLIN == 0 && !wait;
        return Err(if nothing { Errno::EAGAIN } else { Errno::EFAULT });
    }
    fill(content, 0, buffers, wait)
}

/// A stream is waited for once: what comes first is returned, however little it is.
fn fill(content: &dyn Content, at: u64, buffers: &mut Buffers, wait: bool) -> Result<usize, Errno> {
    if let Some(bytes) = content.bytes() {
        return copy_some(tail(bytes, at), buffers);
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
        if done >= piece(content) {
            buffers.stop();
            return Ok(done);
        }
    }
}

/// What a piece was that was shown: if it was a page, there may be more.
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

/// How much of a file is read at once: what is made as it is read costs more.
fn piece(content: &dyn Content) -> usize {
    if content.pages().is_some() { PIECE } else { PAGE }
}

/// As much of `bytes` as a piece may have.
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
            Err(error) => return buffers.stopped(done, reluctance(content, wait).unwrap_or(error)),
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

/// Why a stream would not take any bytes now, which a writer hears of before they are looked at.
fn reluctance(content: &dyn Content, wait: bool) -> Option<Errno> {
    match content.ready() {
        ready if ready & POLLERR != 0 => Some(Errno::EPIPE),
        ready if ready & POLLOUT == 0 && !wait => Some(Errno::EAGAIN),
        _ => None,
    }
}

/// Room for the next of `len` bytes, which the program has or wants at `at`.
fn bounce(at: u64, len: usize) -> Result<Vec<u8>, Errno> {
    retry_on_enomem(at, || fallible::zeroes(PAGE.min(len)))
}

fn advanced(at: WriteAt, by: usize) -> WriteAt {
    match at {
        WriteAt::Offset(at) => WriteAt::Offset(at.saturating_add(by as u64)),
        WriteAt::End => WriteAt::End,
    }
}

/// What a call returns that did `done` bytes before an error.
fn partial(done: usize, error: Errno) -> Result<usize, Errno> {
    if done > 0 { Ok(done) } else { Err(error) }
}

//! The buffers of a program for one read or write: a single one, or the list of a `readv`.
//!
//! Bytes are copied page by page of the program's memory, so that a call stops exactly at the first page that
//! is missing, as on Linux. It then returns the bytes copied before. EFAULT is returned only if there are
//! none.

use alloc::vec::Vec;
use core::mem;

use abi::Errno;
use abi::file::{IOV_MAX, IoVec, MAX_RW_COUNT};

use super::page_cache::PAGE;
use crate::bytes::{after, after_mut, prefix, prefix_mut};
use crate::mm::fallible;
use crate::mm::user;

/// The buffers, and how far a call has come in them.
pub struct Buffers {
    list: Vec<IoVec>,
    at: BufferPosition,
    was_stopped: bool,
}

/// The position of a call in its buffers.
#[derive(Clone, Copy)]
pub struct BufferPosition {
    now: IoVec,
    /// The index in the list of the buffer after `now`.
    next: usize,
    left: usize,
}

impl Buffers {
    /// Returns a list of one buffer.
    ///
    /// # Errors
    /// EFAULT if the buffer lies outside of user space.
    pub fn one(base: u64, len: u64) -> Result<Self, Errno> {
        let now = checked(IoVec { base, len })?;
        Ok(Self {
            list: Vec::new(),
            at: BufferPosition { now, next: 0, left: clamped(len) },
            was_stopped: false,
        })
    }

    /// Reads the `count` buffers listed at `list`.
    ///
    /// # Errors
    /// EINVAL for more than `IOV_MAX`, or for a length that is negative or too large. EFAULT if the list or a
    /// buffer is not in user space. ENOMEM.
    pub fn many(list: u64, count: u64) -> Result<Self, Errno> {
        let count = usize::try_from(count).ok().filter(|&count| count <= IOV_MAX).ok_or(Errno::EINVAL)?;
        let mut buffers = fallible::empty(count)?;
        let mut total = 0_u64;
        for index in 0..count {
            let buffer: IoVec = user::read(list.wrapping_add((index * size_of::<IoVec>()) as u64))?;
            total =
                total.checked_add(buffer.len).filter(|&sum| sum <= i64::MAX as u64).ok_or(Errno::EINVAL)?;
            buffers.push(checked(buffer)?);
        }
        let at = BufferPosition { now: IoVec::default(), next: 0, left: clamped(total) };
        Ok(Self { list: buffers, at, was_stopped: false })
    }

    /// Returns the number of bytes not copied yet.
    pub fn left(&self) -> usize {
        self.at.left
    }

    /// Returns `done`, the bytes that a transfer has moved before `error` stopped it, or the error if there
    /// are none. In the first case the transfer counts as stopped half-way: its next piece meets the error
    /// again.
    pub fn stopped(&mut self, done: usize, error: Errno) -> Result<usize, Errno> {
        self.was_stopped = done > 0;
        if done > 0 { Ok(done) } else { Err(error) }
    }

    /// Notes that a transfer stops before its end, so that other tasks may run.
    pub fn stop(&mut self) {
        self.was_stopped = true;
    }

    /// Returns whether the last transfer has stopped half-way, and clears that.
    pub fn take_stopped(&mut self) -> bool {
        mem::take(&mut self.was_stopped)
    }

    /// Returns the position, for [`go_on_from`](Self::go_on_from).
    pub fn position(&self) -> BufferPosition {
        self.at
    }

    /// Goes back to `position`, and from there `len` bytes forward.
    pub fn go_on_from(&mut self, position: BufferPosition, mut len: usize) {
        self.at = position;
        while let Some(piece) = self.piece(len) {
            self.advance(piece.len);
            len -= piece.len as usize;
        }
    }

    /// Returns the address of the next byte, or 0 at the end.
    pub fn start(&mut self) -> u64 {
        self.piece(1).map_or(0, |piece| piece.base)
    }

    /// Returns the next piece of at most `most` bytes, all in one page.
    fn piece(&mut self, most: usize) -> Option<IoVec> {
        let BufferPosition { now, next, left } = &mut self.at;
        let most = most.min(*left) as u64;
        if most == 0 {
            return None;
        }
        while now.len == 0 {
            *now = *self.list.get(*next)?;
            *next += 1;
        }
        let in_page = PAGE as u64 - now.base % PAGE as u64;
        Some(IoVec { base: now.base, len: in_page.min(now.len).min(most) })
    }

    fn advance(&mut self, len: u64) {
        let BufferPosition { now, left, .. } = &mut self.at;
        *now = IoVec { base: now.base + len, len: now.len - len };
        *left -= len as usize;
    }

    /// Copies from the program until `into` is full, the buffers end, or a page is missing (EFAULT if it is
    /// the first).
    pub fn copy_in(&mut self, into: &mut [u8]) -> Result<usize, Errno> {
        self.copy(into.len(), |piece, done| {
            user::copy_in(prefix_mut(after_mut(into, done), piece.len), piece.base)?;
            Ok(piece.len as usize)
        })
    }

    /// Copies to the program until `from` or the buffers end, or a page is missing (EFAULT if it is the
    /// first).
    pub fn copy_out(&mut self, from: &[u8]) -> Result<usize, Errno> {
        self.copy(from.len(), |piece, done| {
            user::copy_out(piece.base, prefix(after(from, done), piece.len))?;
            Ok(piece.len as usize)
        })
    }

    /// Calls `copy` with one piece after the other and the number of bytes before it, until `len` bytes are
    /// done, the buffers end, or it has copied less than a piece. A piece lies in one page.
    ///
    /// # Errors
    /// The error of `copy` for the first piece. A later one ends the transfer.
    pub fn copy(
        &mut self,
        len: usize,
        mut copy: impl FnMut(IoVec, usize) -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        let mut done = 0;
        while let Some(piece) = self.piece(len - done) {
            let copied = match copy(piece, done) {
                Ok(copied) => copied,
                Err(error) => return self.stopped(done, error),
            };
            self.advance(copied as u64);
            done += copied;
            if copied < piece.len as usize {
                break;
            }
        }
        Ok(done)
    }
}

fn clamped(len: u64) -> usize {
    len.min(MAX_RW_COUNT as u64) as usize
}

fn checked(buffer: IoVec) -> Result<IoVec, Errno> {
    let end = buffer.base.checked_add(buffer.len).ok_or(Errno::EFAULT)?;
    if end > user::USER_END { Err(Errno::EFAULT) } else { Ok(buffer) }
}

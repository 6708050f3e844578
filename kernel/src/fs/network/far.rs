//! The part that a socket and its connection by the network share.
//!
//! ```text
//!   connecting ──▶ connected ──▶ (both pipes end)
//!        └───────▶ failed
//! ```

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use abi::Errno;

use crate::fs::pipe::Pipe;
use crate::fs::readiness;
use crate::fs::socket::Address;
use crate::mm::fallible;
use crate::sched::WaitQueue;

const CONNECTING: u8 = 0;
const CONNECTED: u8 = 1;
const FAILED: u8 = 2;

/// The part that a socket and its connection by the network share.
pub struct Far {
    /// The bytes from the network.
    pub(in crate::fs) incoming: Arc<Pipe>,
    /// The bytes to the network.
    pub(in crate::fs) outgoing: Arc<Pipe>,
    /// The guest's address.
    pub local: Address,
    /// The address of the other side.
    pub peer: Address,
    phase: AtomicU8,
    /// The error that the next call says, as its result, or 0.
    error: AtomicU64,
    /// Set once the socket is closed.
    is_closed: AtomicBool,
    /// Set if bytes from the network wait for room in the pipe.
    is_stalled: AtomicBool,
    settled: WaitQueue,
}

impl Far {
    /// Makes the pipes of a connection that is not made yet.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new(local: Address, peer: Address) -> Result<Arc<Self>, Errno> {
        fallible::arc(Self {
            incoming: Pipe::new()?,
            outgoing: Pipe::new()?,
            local,
            peer,
            phase: AtomicU8::new(CONNECTING),
            error: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            is_stalled: AtomicBool::new(false),
            settled: WaitQueue::new(),
        })
    }

    /// Returns whether the connection was made.
    pub fn is_connected(&self) -> bool {
        self.phase.load(Ordering::Acquire) == CONNECTED
    }

    /// Returns whether the connection could not be made.
    pub fn has_failed(&self) -> bool {
        self.phase.load(Ordering::Acquire) == FAILED
    }

    /// Waits until the connection is made or has failed.
    ///
    /// # Errors
    /// EINPROGRESS if that takes waiting and `wait` is not set, EINTR.
    pub fn settle(&self, wait: bool) -> Result<(), Errno> {
        let settled = || (self.is_connected() || self.has_failed()).then_some(());
        self.settled.attempt(wait, settled).map_err(|error| match error {
            Errno::EAGAIN => Errno::EINPROGRESS,
            error => error,
        })
    }

    /// Takes the error that is pending.
    ///
    /// # Errors
    /// That one.
    pub fn say_error(&self) -> Result<(), Errno> {
        if !self.has_error() {
            return Ok(());
        }
        Errno::from_result(self.error.swap(0, Ordering::Relaxed)).map_or(Ok(()), Err)
    }

    /// Returns whether an error is pending.
    pub fn has_error(&self) -> bool {
        self.error.load(Ordering::Relaxed) != 0
    }

    /// Reads, as [`Pipe::read`] does. An error comes after the bytes.
    pub fn read(&self, into: &mut [u8], wait: bool) -> Result<usize, Errno> {
        let len = self.incoming.read(into, wait)?;
        if len == 0 && !into.is_empty() {
            self.say_error()?;
        }
        // The lock of the pipe orders it: the connection sets it before it looks for room again.
        if self.is_stalled.load(Ordering::Relaxed) {
            super::serve();
        }
        Ok(len)
    }

    /// Writes, as [`Pipe::write`] does.
    pub fn write(&self, from: &[u8], wait: bool) -> Result<usize, Errno> {
        self.say_error()?;
        let written = self.outgoing.write(from, wait);
        if written == Err(Errno::EPIPE) {
            self.say_error()?;
        }
        super::serve();
        written
    }

    /// Closes the socket's ends of the pipes.
    pub fn close(&self) {
        // The lock of the pipes orders it.
        self.is_closed.store(true, Ordering::Relaxed);
        self.incoming.close_reader();
        self.outgoing.close_writer();
        super::serve();
    }

    /// Returns whether the socket is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Notes whether bytes wait for room in the pipe.
    pub(super) fn set_stalled(&self, is_stalled: bool) {
        self.is_stalled.store(is_stalled, Ordering::Relaxed);
    }

    /// Notes that the connection was made.
    pub(super) fn connected(&self) {
        self.turn(CONNECTED);
    }

    /// Notes that there will be no socket.
    pub(super) fn abandon(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Notes an error. The ends of the pipes are closed afterwards.
    pub(super) fn fail(&self, error: Errno) {
        self.error.store(error.to_result(), Ordering::Relaxed);
        if !self.is_connected() {
            self.turn(FAILED);
        }
    }

    fn turn(&self, phase: u8) {
        self.phase.store(phase, Ordering::Release);
        self.settled.wake_all();
        readiness::changed();
    }
}

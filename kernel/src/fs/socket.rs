//! Pairs of connected Unix sockets: two pipes, one in each direction.

use alloc::sync::Arc;
use core::any::Any;

use abi::Errno;
use abi::file::{O_RDWR, POLLHUP, POLLIN, POLLOUT, POLLRDHUP, POLLRDNORM, POLLWRNORM, S_IFSOCK};

use super::content::{Content, WriteAt};
use super::holders::Holders;
use super::node::{Node, Volume};
use super::open_file::OpenFile;
use super::pipe::{Pipe, if_set};
use crate::mm::static_or_arc::StaticOrArc;

/// A socket that is connected to another one, for bytes in order.
pub struct Socket {
    incoming: Arc<Pipe>,
    outgoing: Arc<Pipe>,
    holders: Holders,
}

/// Opens two sockets that are connected. `flags` are `O_*`.
///
/// # Errors
/// ENOMEM.
pub fn pair(flags: u32) -> Result<[StaticOrArc<OpenFile>; 2], Errno> {
    let pipes = [Pipe::new()?, Pipe::new()?];
    let open = |incoming: &Arc<Pipe>, outgoing: &Arc<Pipe>| {
        let (incoming, outgoing) = (incoming.clone(), outgoing.clone());
        let socket = Socket { incoming, outgoing, holders: Holders::new() };
        OpenFile::new(Node::file(Volume::System, 0o777, socket)?, O_RDWR | flags)
    };
    Ok([open(&pipes[0], &pipes[1])?, open(&pipes[1], &pipes[0])?])
}

/// Returns the socket that `file` is.
///
/// # Errors
/// ENOTSOCK if it is none.
pub fn of(file: &OpenFile) -> Result<&Socket, Errno> {
    let object = file.node().content().and_then(Content::stands_for);
    object.and_then(<dyn Any>::downcast_ref).ok_or(Errno::ENOTSOCK)
}

impl Socket {
    /// Ends what comes in.
    pub fn end_incoming(&self) {
        self.incoming.close_reader();
        self.incoming.close_writer();
    }

    /// Ends what goes out.
    pub fn end_outgoing(&self) {
        self.outgoing.close_writer();
    }
}

impl Content for Socket {
    fn kind(&self) -> u32 {
        S_IFSOCK
    }

    fn is_stream(&self) -> bool {
        true
    }

    fn read(&self, _at: u64, into: &mut [u8], wait: bool) -> Result<usize, Errno> {
        self.incoming.read(into, wait)
    }

    fn write(&self, _at: WriteAt, from: &[u8], wait: bool) -> Result<usize, Errno> {
        self.outgoing.write(from, wait)
    }

    /// As on Linux, the end of what comes in can be read.
    fn ready(&self) -> i16 {
        let ((bytes, ended), (room, left)) = (self.incoming.readable(), self.outgoing.writable());
        if_set(bytes || ended, POLLIN | POLLRDNORM)
            | if_set(ended, POLLRDHUP)
            | if_set(room || left, POLLOUT | POLLWRNORM)
            | if_set(ended && left, POLLHUP)
    }

    fn changes(&self) -> Option<u64> {
        Some(self.incoming.arrivals().wrapping_add(self.outgoing.departures()))
    }

    fn waiting(&self, _at: u64) -> u64 {
        self.incoming.waiting()
    }

    fn holders(&self) -> Option<&Holders> {
        Some(&self.holders)
    }

    fn closed(&self) {
        self.incoming.close_reader();
        self.outgoing.close_writer();
    }

    fn stands_for(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

//! One direction of a connection: bytes in order, or messages that keep their bounds.

use alloc::sync::Arc;

use abi::Errno;

use super::inbox::Inbox;
use super::{Domain, QueueId};
use crate::fs::pipe::Pipe;

/// One direction of a connection.
#[derive(Clone)]
pub enum Channel {
    /// Bytes in order.
    Bytes(Arc<Pipe>),
    /// Messages.
    Messages(Arc<Inbox>),
}

/// The side of a channel that wants to know who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that receives.
    Receiver,
    /// The one that sends.
    Sender,
}

impl Side {
    /// Returns its bit.
    pub fn bit(self) -> u8 {
        match self {
            Side::Receiver => 1,
            Side::Sender => 2,
        }
    }
}

impl Channel {
    /// Makes a channel for messages if it `keeps_bounds`, or else for bytes.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new(keeps_bounds: bool) -> Result<Self, Errno> {
        if keeps_bounds {
            return Inbox::new(Domain::Unix, true).map(Channel::Messages);
        }
        Pipe::new().map(Channel::Bytes)
    }

    /// Returns the bytes, if it is for bytes.
    pub fn bytes(&self) -> Option<&Arc<Pipe>> {
        match self {
            Channel::Bytes(pipe) => Some(pipe),
            Channel::Messages(_) => None,
        }
    }

    /// Returns the messages, if it is for messages.
    pub fn messages(&self) -> Option<&Arc<Inbox>> {
        match self {
            Channel::Bytes(_) => None,
            Channel::Messages(inbox) => Some(inbox),
        }
    }

    /// Returns what tells it from other queues of messages.
    pub fn id(&self) -> QueueId {
        match self {
            Channel::Bytes(pipe) => Pipe::id(pipe),
            Channel::Messages(inbox) => inbox.id(),
        }
    }

    /// Lets what is sent name its sender, as long as one side wants that.
    pub fn name_senders(&self, side: Side, wanted: bool) {
        let asked = match self {
            Channel::Bytes(pipe) => &pipe.names_senders,
            Channel::Messages(inbox) => &inbox.names_senders,
        };
        asked.set(side, wanted);
    }

    /// Closes the side that receives.
    pub fn close_reader(&self) {
        match self {
            Channel::Bytes(pipe) => pipe.close_reader(),
            Channel::Messages(inbox) => inbox.clear(|queue| queue.is_closed = true),
        }
    }

    /// Closes the side that sends: what was sent can be received.
    pub fn close_writer(&self) {
        match self {
            Channel::Bytes(pipe) => pipe.close_writer(),
            Channel::Messages(inbox) => inbox.end(),
        }
    }

    /// Ends the channel after what was sent.
    pub fn end(&self) {
        match self {
            Channel::Bytes(pipe) => pipe.end(),
            Channel::Messages(inbox) => inbox.end(),
        }
    }

    /// Drops descriptors that wait to be received, with the messages that they are in.
    pub fn drop_rights(&self) {
        match self {
            Channel::Bytes(pipe) => pipe.drop_rights(),
            Channel::Messages(inbox) => inbox.clear(|_| ()),
        }
    }

    /// Returns whether there is something to receive, and whether no more will come.
    pub fn readable(&self) -> (bool, bool) {
        match self {
            Channel::Bytes(pipe) => pipe.readable(),
            Channel::Messages(inbox) => {
                let queue = inbox.queue.lock();
                (!queue.messages.is_empty(), queue.has_ended)
            }
        }
    }

    /// Returns whether there is room, and whether the receiver takes no more.
    pub fn writable(&self) -> (bool, bool) {
        match self {
            Channel::Bytes(pipe) => pipe.writable(),
            Channel::Messages(inbox) => {
                let left = inbox.queue.lock().takes_no_more();
                (inbox.has_room(), left)
            }
        }
    }

    /// Returns a number that changes when something or the end arrives.
    pub fn arrivals(&self) -> u64 {
        match self {
            Channel::Bytes(pipe) => pipe.arrivals(),
            Channel::Messages(inbox) => inbox.queue.lock().arrivals,
        }
    }

    /// Returns a number that changes when room is made or the receiver leaves.
    pub fn departures(&self) -> u64 {
        match self {
            Channel::Bytes(pipe) => pipe.departures(),
            Channel::Messages(inbox) => inbox.queue.lock().departures,
        }
    }

    /// Returns the number of bytes that wait to be received.
    pub fn waiting(&self) -> u64 {
        match self {
            Channel::Bytes(pipe) => pipe.waiting(),
            // As on Linux, those of all messages.
            Channel::Messages(inbox) => {
                inbox.queue.lock().messages.iter().map(|message| message.len() as u64).sum()
            }
        }
    }
}

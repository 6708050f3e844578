//! Review queues: intrusive lists through the objects' headers.

use core::ptr::NonNull;

use crate::object::{Header, Link};

/// Objects whose count was zero, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    head: Option<NonNull<Header>>,
    tail: Option<NonNull<Header>>,
    len: usize,
}

// SAFETY: the queue owns the links of the objects on it, and the objects are `Send`.
unsafe impl Send for Queue {}

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Appends an object that the caller has claimed for this queue.
    pub(crate) fn push(&mut self, object: NonNull<Header>, epoch: u64) {
        set_link(object, Link { next: None, epoch });
        self.append(Queue { head: Some(object), tail: Some(object), len: 1 });
    }

    /// Appends another queue, which may be empty.
    pub(crate) fn append(&mut self, other: Queue) {
        match self.tail {
            None => self.head = other.head,
            Some(tail) => set_link(tail, Link { next: other.head, ..link(tail) }),
        }
        self.tail = other.tail.or(self.tail);
        self.len += other.len;
    }

    /// Whether the first object may be reviewed in `epoch`.
    pub(crate) fn is_ripe(&self, epoch: u64) -> bool {
        self.head.is_some_and(|head| epoch >= link(head).epoch + 2)
    }

    /// Takes the first object off, if it may be reviewed in `epoch`.
    pub(crate) fn pop_ripe(&mut self, epoch: u64) -> Option<NonNull<Header>> {
        if !self.is_ripe(epoch) {
            return None;
        }
        let head = self.head?;
        self.head = link(head).next;
        if self.head.is_none() {
            self.tail = None;
        }
        self.len -= 1;
        Some(head)
    }
}

fn link(object: NonNull<Header>) -> Link {
    // SAFETY: the object is on our queue: alive, and its link is ours.
    unsafe { object.as_ref() }.link.with(|link| unsafe { *link })
}

fn set_link(object: NonNull<Header>, new: Link) {
    // SAFETY: as in `link`.
    unsafe { object.as_ref() }.link.with_mut(|link| unsafe { *link = new })
}

//! `timerfd`: a timer that is a file. A read takes the number of times that it was due.

use alloc::sync::Arc;
use core::any::Any;

use abi::Errno;
use abi::file::{O_RDWR, POLLIN, POLLRDNORM};
use sync::SpinLock;

use super::content::{Content, WriteAt};
use super::holders::Holders;
use super::node::{Node, Volume};
use super::open_file::OpenFile;
use super::readiness;
use crate::mm::fallible;
use crate::mm::static_or_arc::StaticOrArc;
use crate::sched::{Alarm, Ring, Setting, WaitQueue};

const BYTES: usize = 8;

/// A timer that is a file.
pub struct TimerFd {
    alarm: Arc<Alarm<Count>>,
    /// Set if times of the wall clock are meant.
    pub is_wall: bool,
    holders: Holders,
}

/// The count of the times that it was due and that no read has taken.
pub struct Count {
    state: SpinLock<State>,
    readers: WaitQueue,
}

#[derive(Default)]
struct State {
    due: u64,
    changes: u64,
}

impl Ring for Count {
    fn ring(&self, count: u64) {
        {
            let mut state = self.state.lock();
            // As on Linux, it is one event until it is read.
            state.changes += u64::from(state.due == 0);
            state.due = state.due.saturating_add(count);
        }
        self.readers.wake_all();
        readiness::changed();
    }
}

/// Opens a timer. `flags` are `O_*`.
///
/// # Errors
/// ENOMEM.
pub fn open(is_wall: bool, flags: u32) -> Result<StaticOrArc<OpenFile>, Errno> {
    let count = Count { state: SpinLock::new(State::default()), readers: WaitQueue::new() };
    let content = TimerFd { alarm: fallible::arc(Alarm::new(count))?, is_wall, holders: Holders::new() };
    OpenFile::new(Node::file(Volume::System, 0o600, content)?, O_RDWR | flags)
}

/// Returns the timer that `file` is.
///
/// # Errors
/// EINVAL if it is none.
pub fn of(file: &OpenFile) -> Result<&TimerFd, Errno> {
    let object = file.node().content().and_then(Content::stands_for);
    object.and_then(<dyn Any>::downcast_ref).ok_or(Errno::EINVAL)
}

impl TimerFd {
    /// Sets it, and forgets the times that it was due. Returns the setting before.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn set(&self, new: Setting) -> Result<Setting, Errno> {
        let old = self.alarm.set(Setting::default())?;
        self.alarm.action.state.lock().due = 0;
        self.alarm.set(new)?;
        Ok(old)
    }

    /// Returns the setting.
    pub fn setting(&self) -> Setting {
        self.alarm.setting()
    }
}

impl Content for TimerFd {
    fn kind(&self) -> u32 {
        0
    }

    fn label(&self) -> Option<&'static str> {
        Some("[timerfd]")
    }

    fn is_stream(&self) -> bool {
        true
    }

    fn read(&self, _at: u64, into: &mut [u8], wait: bool) -> Result<usize, Errno> {
        let into = into.first_chunk_mut::<BYTES>().ok_or(Errno::EINVAL)?;
        let Count { state, readers } = &self.alarm.action;
        let due = readers.attempt(wait, || {
            let due = core::mem::take(&mut state.lock().due);
            Some(due).filter(|&due| due > 0)
        })?;
        *into = due.to_le_bytes();
        Ok(BYTES)
    }

    fn write(&self, _at: WriteAt, _from: &[u8], _wait: bool) -> Result<usize, Errno> {
        Err(Errno::EINVAL)
    }

    fn ready(&self) -> i16 {
        if self.alarm.action.state.lock().due > 0 { POLLIN | POLLRDNORM } else { 0 }
    }

    fn changes(&self) -> Option<u64> {
        Some(self.alarm.action.state.lock().changes)
    }

    fn holders(&self) -> Option<&Holders> {
        Some(&self.holders)
    }

    fn stands_for(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl Drop for TimerFd {
    fn drop(&mut self) {
        // Stopping takes no memory.
        let _stopped = self.alarm.set_while_it_rings(Setting::default());
    }
}

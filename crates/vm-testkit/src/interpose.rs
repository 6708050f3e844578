//! Acts of a test in the middle of a call: what other cores do there, or what the call must not do.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use percore::Pinned;

/// A call that a space makes of its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// [`vm::Mmu::fill`], before the translation is there.
    Fill,
    /// [`vm::Mmu::clear`], after the translations have gone.
    Clear,
    /// [`vm::Mmu::shootdown`], before any core is interrupted.
    Shootdown,
    /// [`vm::Mmu::users`], after the answer is known.
    Users,
    /// [`vm::Mmu::link`], before the core is linked.
    Link,
    /// [`vm::Frames::alloc_zeroed`], before there is a frame.
    Alloc,
    /// [`vm::Frames::free`], before the frame is free.
    Free,
    /// [`vm::Backings::frame`], before there is a frame.
    BackingFrame,
}

type Act = Box<dyn FnOnce(&Pinned) + Send>;

/// The act that waits for its call, if any. A call that no act waits for writes nothing, so it takes no line
/// from another core.
#[derive(Default)]
pub(crate) struct Interposed {
    waits: AtomicBool,
    act: Mutex<Option<(Call, Act)>>,
}

impl Interposed {
    /// The next such call does `act`.
    pub(crate) fn set(&self, call: Call, act: impl FnOnce(&Pinned) + Send + 'static) {
        let before = self.act.lock().unwrap().replace((call, Box::new(act)));
        assert!(before.is_none(), "another act waits for its call");
        self.waits.store(true, SeqCst);
    }

    /// Such a call is being made.
    pub(crate) fn meet(&self, call: Call, pin: &Pinned) {
        if let Some((_, act)) = self.take(call) {
            act(pin);
        }
    }

    fn take(&self, call: Call) -> Option<(Call, Act)> {
        if !self.waits.load(SeqCst) {
            return None;
        }
        let mut waiting = self.act.lock().unwrap();
        let taken = waiting.take_if(|(waits_for, _)| *waits_for == call);
        self.waits.store(waiting.is_some(), SeqCst);
        taken
    }
}

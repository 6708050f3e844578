//! A machine of two or three cores, each played by one loom thread, and an object that is linked until a core
//! unlinks it. Its payload detects late accesses. Loom reports a callback that is not ordered after every
//! read, and a read after the callback finds the payload changed.

use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::Arc;

use loom::thread::{self, JoinHandle};
use percore::{CoreId, Pinned};
use rcu::{Config, Domain, Head, Owned};
use sync::UnsafeCell;
use sync::atomic::{AtomicBool, Ordering};

struct Object {
    head: Head,
    freed: UnsafeCell<u32>,
}

struct Shared {
    /// The first field, so that callbacks that still wait are run while the object is there.
    domain: Domain,
    cores: usize,
    linked: AtomicBool,
    object: NonNull<Object>,
}

// SAFETY: the object lives as long as this, and is made to be shared.
unsafe impl Send for Shared {}
// SAFETY: as for `Send`.
unsafe impl Sync for Shared {}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: made by `Box`. The domain has run its callbacks, or the model has seen that there are none.
        drop(unsafe { Box::from_raw(self.object.as_ptr()) });
    }
}

unsafe fn free(head: NonNull<Head>) {
    // SAFETY: the head of an object, which lives as long as the machine. Loom checks that no thread reads it.
    unsafe {
        let object = head.byte_sub(offset_of!(Object, head)).cast::<Object>();
        object.as_ref().freed.with_mut(|freed| *freed += 1);
    }
}

/// The machine, as one core sees it.
pub struct Core {
    shared: Arc<Shared>,
    pub pin: Pinned,
}

/// Explores `model` on a machine of `cores` cores, all online. `model` gets core 0; the others are for
/// [`Core::spawn`].
pub fn explore(preemptions: usize, cores: usize, model: impl Fn(Core) + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        let object = Object { head: Head::new(free), freed: UnsafeCell::new(0) };
        let shared = Arc::new(Shared {
            domain: Domain::new(Config { cores, batch: 4, bound: 100 }),
            cores,
            linked: AtomicBool::new(true),
            object: NonNull::from(Box::leak(Box::new(object))),
        });
        let first = Core::new(&shared, 0);
        first.everywhere(|core| core.domain().online(&core.pin));
        model(first);
    });
}

impl Core {
    fn new(shared: &Arc<Shared>, core: usize) -> Self {
        // SAFETY: one thread plays a core: `spawn` starts one thread for each, and `everywhere` follows the
        // joins.
        Self { shared: Arc::clone(shared), pin: unsafe { Pinned::assume(CoreId::new(core)) } }
    }

    /// Starts another core's thread.
    pub fn spawn(&self, core: usize, run: impl FnOnce(Core) + 'static) -> JoinHandle<()> {
        let shared = Arc::clone(&self.shared);
        thread::spawn(move || run(Core::new(&shared, core)))
    }

    /// Plays core 1 before its thread starts.
    pub fn as_core_1(&self, act: impl Fn(&Core)) {
        act(&Core::new(&self.shared, 1));
    }

    /// Plays every core in turn. Called only while no other thread plays one.
    fn everywhere(&self, act: impl Fn(&Core)) {
        (0..self.shared.cores).for_each(|core| act(&Core::new(&self.shared, core)));
    }

    pub fn domain(&self) -> &Domain {
        &self.shared.domain
    }

    /// Looks for the object in a read section, and uses it if it is linked.
    pub fn read(&self) {
        let guard = self.domain().read(&self.pin);
        if self.shared.linked.load(Ordering::Acquire) {
            assert_eq!(self.frees(), 0, "a freed object was used");
        }
        drop(guard);
    }

    pub fn unlink(&self) {
        self.shared.linked.store(false, Ordering::Release);
    }

    pub fn defer(&self) {
        // SAFETY: the pointer stays within the object.
        let head = unsafe { NonNull::new_unchecked(&raw mut (*self.shared.object.as_ptr()).head) };
        // SAFETY: the models defer it once, and unlink it.
        unsafe { self.domain().defer(&self.pin, head) }
    }

    /// Defers another callback, so that epochs turn.
    pub fn bystander(&self) {
        self.domain().retire(&self.pin, Owned::try_new(()).unwrap());
    }

    /// Frees the object at once.
    pub fn free_now(&self) {
        // SAFETY: loom checks that no thread reads it.
        unsafe { self.shared.object.as_ref().freed.with_mut(|freed| *freed += 1) }
    }

    pub fn quiesces(&self, times: usize) {
        (0..times).for_each(|_| _ = self.domain().quiesce(&self.pin));
    }

    pub fn come_and_go(&self, act: impl Fn(&Core)) {
        self.domain().online(&self.pin);
        act(self);
        self.domain().offline(&self.pin);
    }

    /// Returns the number of times that the object was freed. Loom checks that no thread frees it meanwhile.
    pub fn frees(&self) -> u32 {
        // SAFETY: the object lives as long as the machine.
        unsafe { self.shared.object.as_ref().freed.with(|freed| *freed) }
    }

    /// Checks, after all threads have been joined, that the object is freed, once.
    pub fn expect_one_free(&self) {
        self.everywhere(|core| core.domain().online(&core.pin));
        (0..5).for_each(|_| self.everywhere(|core| core.quiesces(1)));
        assert_eq!((self.frees(), self.domain().backlog()), (1, 0), "never freed, or twice");
    }
}

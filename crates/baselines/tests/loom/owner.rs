//! The kernel's pages of read counters (`kernel/src/mm/read_counters.rs`): the sweep takes a page from its
//! owner while that ends.

use std::sync::Arc;

use loom::cell::Cell;
use loom::thread;
use sync::SpinLock;
use sync::atomic::{AtomicU64, Ordering};

/// A page in the list, and the process that owns it.
struct World {
    /// 1 while the page names its owner.
    list: SpinLock<u64>,
    /// 1 while the owner names its page.
    word: AtomicU64,
    /// Whether the owner's memory is free.
    is_free: Cell<bool>,
}

impl World {
    /// Does what `detach` does.
    fn detach(&self) {
        let mut owner = self.list.lock();
        if core::mem::take(&mut *owner) != 0 {
            assert!(!self.is_free.get(), "the sweep uses an owner that is not there any more");
            self.word.store(0, Ordering::Release);
        }
    }

    /// Ends the process.
    fn end(&self) {
        if self.word.load(Ordering::Acquire) != 0 {
            self.detach();
        }
        self.is_free.set(true);
    }
}

#[test]
fn an_owner_ends_while_the_sweep_takes_its_page() {
    loom::model(|| {
        let world =
            Arc::new(World { list: SpinLock::new(1), word: AtomicU64::new(1), is_free: Cell::new(false) });
        let other = Arc::clone(&world);
        let sweep = thread::spawn(move || other.detach());
        world.end();
        sweep.join().unwrap();
    });
}

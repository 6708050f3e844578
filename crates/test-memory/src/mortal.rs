use loom::cell::UnsafeCell;

/// The value of a key, until it is dropped: loom sees a use that is not ordered before that.
#[derive(Debug)]
pub struct Mortal {
    key: u64,
    ended: UnsafeCell<bool>,
}

// SAFETY: loom checks every access.
unsafe impl Sync for Mortal {}

impl Mortal {
    /// Returns the value of `key`.
    pub fn new(key: impl Into<u64>) -> Self {
        Self { key: key.into(), ended: UnsafeCell::new(false) }
    }

    /// Uses it.
    ///
    /// # Panics
    /// It has ended, or belongs to another key.
    pub fn check(&self, key: impl Into<u64>) {
        assert_eq!(self.key, key.into(), "the value of another key");
        // SAFETY: loom checks that no thread writes meanwhile.
        self.ended.with(|ended| unsafe { assert!(!*ended, "a value was used after its end") });
    }
}

impl Drop for Mortal {
    fn drop(&mut self) {
        // SAFETY: loom checks that no thread uses it.
        self.ended.with_mut(|ended| unsafe { *ended = true });
    }
}

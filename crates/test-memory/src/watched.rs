use loom::cell::UnsafeCell;

/// A value that threads are to keep each other from: loom reports two uses that are not ordered, if one of
/// them writes.
#[derive(Debug, Default)]
pub struct Watched<T>(UnsafeCell<T>);

// SAFETY: loom checks every access.
unsafe impl<T: Send> Sync for Watched<T> {}

impl<T: Copy> Watched<T> {
    /// Returns the value.
    pub fn get(&self) -> T {
        // SAFETY: loom checks that no thread writes meanwhile.
        self.0.with(|value| unsafe { *value })
    }

    /// Makes it another.
    pub fn set(&self, new: T) {
        // SAFETY: loom checks that no other thread uses it meanwhile.
        self.0.with_mut(|value| unsafe { *value = new });
    }
}

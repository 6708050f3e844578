use std::ptr;
use std::sync::atomic::AtomicPtr;
use std::sync::{Mutex, PoisonError};

/// The leaked objects. Miri reports memory that no static leads to as a leak.
static ALL: Mutex<Vec<AtomicPtr<()>>> = Mutex::new(Vec::new());

/// Keeps a value until the process ends.
pub fn forever<T: 'static>(value: T) -> &'static T {
    let value = Box::leak(Box::new(value));
    let pointer = AtomicPtr::new(ptr::from_mut(value).cast());
    ALL.lock().unwrap_or_else(PoisonError::into_inner).push(pointer);
    value
}

//! Allocations that a program can cause. They fail with ENOMEM instead of ending the kernel.

use alloc::alloc::alloc;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::alloc::Layout;
use core::fmt;
use core::mem::MaybeUninit;
use core::sync::atomic::AtomicUsize;

use abi::Errno;

use super::{fault_injection, slab};

/// A type with the layout of the block that `Arc::new` allocates.
#[repr(C)]
struct ArcBlock<T> {
    _counts: [AtomicUsize; 2],
    _value: MaybeUninit<T>,
}

/// Calls `Arc::new`, or returns ENOMEM.
///
/// Stable Rust has no such call. The heap [prepares](slab::prepare) a block of the same layout first, and
/// `Arc` takes it, because kernel code is neither preempted nor migrated and interrupt handlers do not
/// allocate. The value is then written to its place, which costs one copy of it.
pub fn arc<T>(value: T) -> Result<Arc<T>, Errno> {
    const { assert!(size_of::<ArcBlock<T>>() <= slab::PREPARED, "another core may take a larger block first") };
    if !slab::prepare(Layout::new::<ArcBlock<T>>()) {
        return Err(Errno::ENOMEM);
    }
    let mut made = fault_injection::without_faults(Arc::<T>::new_uninit);
    let place = Arc::get_mut(&mut made).ok_or(Errno::ENOMEM)?;
    place.write(value);
    // SAFETY: just written.
    Ok(unsafe { made.assume_init() })
}

/// Calls `Box::new`, or returns ENOMEM.
pub fn boxed<T>(value: T) -> Result<Box<T>, Errno> {
    let layout = Layout::new::<T>();
    if layout.size() == 0 {
        // It allocates nothing.
        return Ok(Box::new(value));
    }
    // SAFETY: the size is not 0.
    let place = unsafe { alloc(layout) }.cast::<T>();
    if place.is_null() {
        return Err(Errno::ENOMEM);
    }
    // SAFETY: the block is ours alone, and was allocated as a `Box<T>` allocates it.
    unsafe {
        place.write(value);
        Ok(Box::from_raw(place))
    }
}

/// Returns an empty vector with room for `capacity` values.
pub fn empty<T>(capacity: usize) -> Result<Vec<T>, Errno> {
    let mut vector = Vec::new();
    vector.try_reserve_exact(capacity).map_err(|_| Errno::ENOMEM)?;
    Ok(vector)
}

/// Returns `len` zero bytes.
pub fn zeroes(len: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = empty(len)?;
    bytes.resize(len, 0);
    Ok(bytes)
}

/// Returns a copy of `values`.
pub fn copied<T: Copy>(values: &[T]) -> Result<Vec<T>, Errno> {
    let mut copy = empty(values.len())?;
    copy.extend_from_slice(values);
    Ok(copy)
}

/// Appends `more` to `bytes`.
pub fn extended(mut bytes: Vec<u8>, more: &[u8]) -> Result<Vec<u8>, Errno> {
    bytes.try_reserve(more.len()).map_err(|_| Errno::ENOMEM)?;
    bytes.extend_from_slice(more);
    Ok(bytes)
}

/// Calls `vector.push(value)`, or returns ENOMEM.
pub fn push<T>(vector: &mut Vec<T>, value: T) -> Result<(), Errno> {
    vector.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
    vector.push(value);
    Ok(())
}

/// Calls `vector.insert(at, value)`, or returns ENOMEM.
pub fn insert<T>(vector: &mut Vec<T>, at: usize, value: T) -> Result<(), Errno> {
    vector.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
    vector.insert(at, value);
    Ok(())
}

/// Text that grows as it is written. A failed `write!` means ENOMEM.
#[derive(Debug, Default)]
pub struct Text(pub Vec<u8>);

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.try_reserve(text.len()).map_err(|_| fmt::Error)?;
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

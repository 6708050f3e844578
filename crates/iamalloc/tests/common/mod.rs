//! A source of memory that counts and fails on demand.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicIsize, AtomicPtr, AtomicUsize, Ordering};

use iamalloc::Source;

/// Memory of the standard library's allocator.
pub struct Counted {
    /// Bytes that are mapped.
    pub mapped: AtomicUsize,
    /// Mappings that have been made.
    pub maps: AtomicUsize,
    /// Bytes that have been given back in mappings that stay.
    pub discarded: AtomicUsize,
    /// Mappings that can still be made.
    pub room: AtomicIsize,
    /// The mappings that are there, by address, and their bytes.
    there: Mutex<HashMap<usize, (AtomicPtr<u8>, usize)>>,
}

impl Counted {
    pub fn new() -> Self {
        Counted {
            mapped: AtomicUsize::new(0),
            maps: AtomicUsize::new(0),
            discarded: AtomicUsize::new(0),
            room: AtomicIsize::new(isize::MAX),
            there: Mutex::default(),
        }
    }
}

/// Alignments are kept in mind by the segments, so a mapping has the largest one in its layout.
fn layout(bytes: usize) -> Layout {
    let align = if bytes <= 64 << 10 { 4096 } else { 4 << 20 };
    Layout::from_size_align(bytes, align).unwrap()
}

// SAFETY: the memory is zeroed, and the standard library's alone until it is unmapped.
unsafe impl Source for Counted {
    fn map(&self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        assert!(bytes.is_multiple_of(4096) && align <= layout(bytes).align(), "{bytes} at {align}");
        if self.room.fetch_sub(1, Ordering::Relaxed) <= 0 {
            return None;
        }
        self.mapped.fetch_add(bytes, Ordering::Relaxed);
        self.maps.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the layout has bytes.
        let start = unsafe { alloc_zeroed(layout(bytes)) };
        self.there.lock().unwrap().insert(start.addr(), (AtomicPtr::new(start), bytes));
        NonNull::new(start)
    }

    unsafe fn unmap(&self, start: NonNull<u8>, bytes: usize) {
        self.mapped.fetch_sub(bytes, Ordering::Relaxed);
        let (_, had) = self.there.lock().unwrap().remove(&start.addr().get()).expect("a whole mapping");
        assert_eq!(had, bytes, "not a whole mapping");
        // SAFETY: by this function's contract.
        unsafe { dealloc(start.as_ptr(), layout(bytes)) };
    }

    unsafe fn discard(&self, start: NonNull<u8>, bytes: usize) -> bool {
        self.discarded.fetch_add(bytes, Ordering::Relaxed);
        // SAFETY: by this function's contract.
        unsafe { start.as_ptr().write_bytes(0, bytes) };
        true
    }

    unsafe fn populate(&self, start: NonNull<u8>, bytes: usize) {
        assert!(start.addr().get().is_multiple_of(4096) && bytes > 0 && bytes.is_multiple_of(4096));
        // SAFETY: by this function's contract the pages are mapped. None of them has been used.
        assert!((0..bytes).step_by(4096).all(|at| unsafe { start.add(at).read() } == 0));
    }
}

impl Drop for Counted {
    /// Frees what an allocator never gives back: sub-heaps, and segments of idle ones.
    fn drop(&mut self) {
        for (start, bytes) in self.there.get_mut().unwrap().values_mut() {
            // SAFETY: the allocator is gone, and its blocks are used no more.
            unsafe { dealloc(*start.get_mut(), layout(*bytes)) };
        }
    }
}

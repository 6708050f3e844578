//! Threads with a stack of a chosen length, made by the C library.

use programs::memory::{self, PAGE};
use programs::require;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::{io, ptr};

/// Starts a thread with a stack of `length` bytes that the C library maps and unmaps, and waits for its end.
pub fn with_new_stack(length: usize) {
    join(
        &attributes(|attributes| {
            // SAFETY: the attributes are initialised.
            unsafe { libc::pthread_attr_setstacksize(attributes, length) }
        }),
        nothing,
        ptr::null_mut(),
    );
}

/// Starts a thread on this stack, which drops the stack's contents at its end, and waits for that end.
pub fn with_kept_stack(mut address: usize, length: usize) {
    join(
        &attributes(|attributes| {
            // SAFETY: the attributes are initialised, and nothing else uses the memory until the thread has
            // ended.
            unsafe { libc::pthread_attr_setstack(attributes, address as *mut c_void, length) }
        }),
        drop_stack,
        (&raw mut address).cast(),
    );
}

fn attributes(set: impl FnOnce(*mut libc::pthread_attr_t) -> i32) -> libc::pthread_attr_t {
    let mut attributes = MaybeUninit::uninit();
    // SAFETY: the call initialises them.
    check(unsafe { libc::pthread_attr_init(attributes.as_mut_ptr()) }, "pthread_attr_init");
    check(set(attributes.as_mut_ptr()), "the size of a thread's stack");
    // SAFETY: initialised above.
    unsafe { attributes.assume_init() }
}

fn join(
    attributes: &libc::pthread_attr_t,
    body: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) {
    let mut thread = MaybeUninit::uninit();
    // SAFETY: the argument lives until the thread has been joined, here.
    unsafe {
        check(libc::pthread_create(thread.as_mut_ptr(), attributes, body, argument), "pthread_create");
        check(libc::pthread_join(thread.assume_init(), ptr::null_mut()), "pthread_join");
    }
}

extern "C" fn nothing(_: *mut c_void) -> *mut c_void {
    ptr::null_mut()
}

/// Drops the contents of the stack that begins at `*address`, well below this call.
extern "C" fn drop_stack(address: *mut c_void) -> *mut c_void {
    // SAFETY: the caller's number, which is not written while this thread runs.
    let address = unsafe { *address.cast::<usize>() };
    let here = (&raw const address) as usize;
    let unused = (here - address) / PAGE * PAGE - 4 * PAGE;
    // SAFETY: nothing that is in use lies four pages below this call.
    require(unsafe { memory::discard(address, unused) }, "madvise");
    ptr::null_mut()
}

fn check(error: i32, what: &str) {
    let result = if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) };
    require(result, what);
}

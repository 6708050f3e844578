//! Functions of the host's C library and kernel that the meter needs.

use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Seconds and nanoseconds as the C library has them.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Timespec {
    /// Seconds.
    pub seconds: i64,
    /// Nanoseconds.
    pub nanoseconds: i64,
}

impl Timespec {
    /// Converts nanoseconds.
    pub fn from_nanoseconds(count: u64) -> Self {
        Self { seconds: (count / 1_000_000_000) as i64, nanoseconds: (count % 1_000_000_000) as i64 }
    }
}

/// The clock that virtual time replaces.
pub const MONOTONIC: c_int = 1;

const READ_WRITE: c_int = 3;
const PRIVATE_ANONYMOUS_NORESERVE: c_int = 0x2 | 0x20 | 0x4000;
const GETTID: c_long = 186;
const FUTEX: c_long = 202;
const WAIT_PRIVATE: c_int = 128;
const WAKE_PRIVATE: c_int = 129;
/// `RTLD_DEFAULT`: the program's symbols, and those of its libraries.
const ALL: *mut c_void = std::ptr::null_mut();
/// `RTLD_NEXT`: the symbol as the libraries after this one have it.
const NEXT: *mut c_void = usize::MAX as *mut c_void;

type ConditionWait = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
type ConditionBroadcast = unsafe extern "C" fn(*mut c_void) -> c_int;
type ClockGettime = unsafe extern "C" fn(c_int, *mut Timespec) -> c_int;

unsafe extern "C" {
    fn mmap(
        hint: *mut c_void,
        size: usize,
        protection: c_int,
        flags: c_int,
        file: c_int,
        at: i64,
    ) -> *mut c_void;
    fn munmap(start: *mut c_void, size: usize) -> c_int;
    fn syscall(number: c_long, ...) -> c_long;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// Zeroed values, taken from the host page by page as they are touched.
#[derive(Debug)]
pub struct Sparse<T> {
    start: *const T,
    length: usize,
}

// SAFETY: it is an array, and gives out shared references only.
unsafe impl<T: Sync> Sync for Sparse<T> {}
// SAFETY: it owns its memory, and no thread is special.
unsafe impl<T: Send> Send for Sparse<T> {}

/// Types whose zero bytes are a value.
///
/// # Safety
/// All bytes zero is a value of the type, and it needs no drop.
pub unsafe trait Zeroed {}

impl<T: Zeroed> Sparse<T> {
    /// Maps `length` values. Returns `None` if the host's address space has no room for them.
    pub fn new(length: usize) -> Option<Self> {
        let size = length.max(1).checked_mul(size_of::<T>())?;
        // SAFETY: fresh memory at an address that the kernel chooses. Pages are aligned enough for any `T`
        // here.
        let start =
            unsafe { mmap(std::ptr::null_mut(), size, READ_WRITE, PRIVATE_ANONYMOUS_NORESERVE, -1, 0) };
        (start as isize != -1).then_some(Self { start: start.cast(), length })
    }
}

impl<T> std::ops::Deref for Sparse<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: mapped until `drop`, zeroed, and zero is a value (`Zeroed`).
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}

impl<T> Drop for Sparse<T> {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` in this size, and all borrows have ended.
        unsafe { munmap(self.start as *mut c_void, self.length.max(1) * size_of::<T>()) };
    }
}

/// Returns the memory of a guest with `bytes` of it, in this process, if QEMU got it by
/// `memory-backend-memfd`.
pub fn guest_memory(bytes: u64) -> Option<&'static [AtomicU64]> {
    let (start, end) =
        named_mapping(&std::fs::read_to_string("/proc/self/maps").ok()?, "memory-backend-memfd")?;
    // SAFETY: QEMU keeps the guest's memory mapped while it runs, pages are aligned, and every access of this
    // process to these words is atomic.
    (end - start >= bytes)
        .then(|| unsafe { std::slice::from_raw_parts(start as *const AtomicU64, (bytes / 8) as usize) })
}

/// Returns the first and last address of the first mapping of this name, with those that follow on it.
fn named_mapping(maps: &str, name: &str) -> Option<(u64, u64)> {
    let ranges = maps.lines().filter(|line| line.contains(name)).filter_map(|line| {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
    });
    ranges.reduce(|whole, next| if whole.1 == next.0 { (whole.0, next.1) } else { whole })
}

/// Sleeps until another thread wakes the sleepers of `word`, or not much longer than `patience`. Returns at
/// once if `word` is not `seen`.
pub fn sleep(word: &AtomicU32, seen: u32, patience: Duration) {
    let patience = Timespec::from_nanoseconds(patience.as_nanos() as u64);
    // SAFETY: the word outlives the call, and the kernel only reads it.
    unsafe { syscall(FUTEX, word.as_ptr(), WAIT_PRIVATE, seen, &raw const patience) };
}

/// Wakes all sleepers of `word`.
pub fn wake(word: &AtomicU32) {
    // SAFETY: as in `sleep`, and waking has no other effect.
    unsafe { syscall(FUTEX, word.as_ptr(), WAKE_PRIVATE, c_int::MAX) };
}

/// Returns the number of this thread.
pub fn thread() -> u32 {
    // SAFETY: it takes nothing and changes nothing.
    unsafe { syscall(GETTID) as u32 }
}

/// Returns whether a thread of this process runs, or waits for nothing but a CPU to run on.
pub fn is_ready(thread: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
    // The name, in brackets, may contain anything. The state follows it.
    stat.is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('R')))
}

/// Calls the C library's own `clock_gettime`, even if another library has replaced it.
///
/// # Safety
/// `into` may be written.
pub unsafe fn real_clock(clock: c_int, into: *mut Timespec) -> c_int {
    static KNOWN: AtomicUsize = AtomicUsize::new(0);
    let address = real(&KNOWN, c"clock_gettime");
    // SAFETY: that is its signature, and the caller answers for `into`.
    unsafe { std::mem::transmute::<usize, ClockGettime>(address)(clock, into) }
}

/// Calls the C library's own `pthread_cond_wait`.
///
/// # Safety
/// As for that one.
pub unsafe fn real_condition_wait(condition: *mut c_void, mutex: *mut c_void) -> c_int {
    static KNOWN: AtomicUsize = AtomicUsize::new(0);
    let address = real(&KNOWN, c"pthread_cond_wait");
    // SAFETY: that is its signature, and the caller answers for both.
    unsafe { std::mem::transmute::<usize, ConditionWait>(address)(condition, mutex) }
}

/// Calls the C library's own `pthread_cond_broadcast`.
///
/// # Safety
/// As for that one.
pub unsafe fn real_condition_broadcast(condition: *mut c_void) -> c_int {
    static KNOWN: AtomicUsize = AtomicUsize::new(0);
    let address = real(&KNOWN, c"pthread_cond_broadcast");
    // SAFETY: that is its signature, and the caller answers for the condition.
    unsafe { std::mem::transmute::<usize, ConditionBroadcast>(address)(condition) }
}

/// Returns whether the program has a function of this name.
pub fn has_function(name: &CStr) -> bool {
    // SAFETY: a name that ends in zero.
    !unsafe { dlsym(ALL, name.as_ptr()) }.is_null()
}

/// Returns the address of the C library's `name`, which is looked up once.
fn real(known: &AtomicUsize, name: &CStr) -> usize {
    // Relaxed: every caller that looks it up finds the same address.
    match known.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: a name that ends in zero.
            let found = unsafe { dlsym(NEXT, name.as_ptr()) } as usize;
            assert_ne!(found, 0, "the C library has {name:?}");
            known.store(found, Ordering::Relaxed);
            found
        }
        known => known,
    }
}

/// Returns real time in nanoseconds since some moment.
pub fn now() -> u64 {
    let mut time = Timespec::default();
    // SAFETY: `time` is ours.
    unsafe { real_clock(MONOTONIC, &raw mut time) };
    time.seconds as u64 * 1_000_000_000 + time.nanoseconds as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    // SAFETY: zero is zero.
    unsafe impl Zeroed for AtomicU64 {}

    #[test]
    fn sparse_values_start_as_zero_and_stay_what_they_were_made() {
        let values: Sparse<AtomicU64> = Sparse::new(1 << 30).unwrap();
        values[(1 << 30) - 1].store(7, Ordering::Relaxed);
        assert_eq!(values[(1 << 30) - 1].load(Ordering::Relaxed), 7);
        assert_eq!(values[1 << 29].load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_thread_that_looks_is_ready_and_one_that_is_gone_is_not() {
        assert!(is_ready(thread()));
        let gone = std::thread::spawn(thread).join().unwrap();
        // A thread is joined a little before it has gone.
        while std::fs::exists(format!("/proc/self/task/{gone}")).unwrap() {
            std::thread::yield_now();
        }
        assert!(!is_ready(gone));
    }

    #[test]
    fn a_mapping_is_found_by_name_in_all_its_parts() {
        let maps = "1000-2000 r--p 0 0:0 7 /lib/x\n3000-4000 rw-s 0 0:1 8 /memfd:m (deleted)\n\
                    4000-6000 rw-s 1000 0:1 8 /memfd:m (deleted)\n9000-a000 rw-s 0 0:1 9 /memfd:m (deleted)\n";
        assert_eq!(named_mapping(maps, "memfd:m"), Some((0x3000, 0x6000)));
        assert_eq!(named_mapping(maps, "memfd:other"), None);
        assert!(guest_memory(4096).is_none(), "this process has no guest");
    }

    #[test]
    fn functions_of_the_program_are_found() {
        assert!(has_function(c"dlsym") && !has_function(c"qemu_plugin_no_such_function"));
    }

    #[test]
    fn a_sleeper_does_not_sleep_when_the_word_has_changed() {
        let word = AtomicU32::new(1);
        let before = now();
        sleep(&word, 0, Duration::from_secs(60));
        assert!(now() - before < 30_000_000_000);
    }
}

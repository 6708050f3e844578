//! Memory and descriptors for the cases to abuse.

use programs::memory::{self, PAGE, PRIVATE, READ_WRITE};
use programs::require;
use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::os::fd::IntoRawFd;

/// No descriptor.
pub const NOWHERE: usize = usize::MAX;
/// Read and write permission as an argument.
pub const RW: usize = READ_WRITE as usize;
/// Private anonymous memory as an argument.
pub const ANON: usize = PRIVATE as usize;

/// The memory and descriptors. All live as long as the program.
pub struct Fixture {
    /// A writable page, followed by an unmapped one.
    pub page: usize,
    /// The unmapped page after `page`.
    pub hole: usize,
    /// A page that may only be read.
    pub read_only: usize,
    /// A page that may not be touched.
    pub no_access: usize,
    /// Eight bytes before the end of `page`.
    pub edge: usize,
    /// The end of user space.
    pub top: usize,
    /// A file of ten bytes, open to be read and written.
    pub file: usize,
    /// The same file, open to be read.
    pub file_read: usize,
    /// The same file, open to be written.
    pub file_write: usize,
    /// An empty directory, open to be read.
    pub directory: usize,
    /// The file opened with O_PATH, neither to be read nor to be written.
    pub place: usize,
    /// /dev/zero.
    pub zero: usize,
    /// The two ends of an empty pipe that never blocks.
    pub pipe: [usize; 2],
    /// The path of the file.
    pub path: usize,
    /// The path of the directory.
    pub directory_path: usize,
}

impl Fixture {
    /// Creates all of it.
    pub fn new() -> Fixture {
        let path = format!("/tmp/radixvm-hostile-{}", std::process::id());
        let mut file = require(File::create(&path), &path);
        require(file.write_all(b"0123456789"), &path);
        let directory = format!("{path}.d");
        require(std::fs::create_dir(&directory), &directory);
        let open = |path: &str| require(File::open(path), path).into_raw_fd() as usize;
        let both = require(File::options().read(true).write(true).open(&path), &path);
        let pages = pages();
        Fixture {
            page: pages,
            hole: pages + PAGE,
            read_only: pages + 2 * PAGE,
            no_access: pages + 3 * PAGE,
            edge: pages + PAGE - 8,
            top: top(),
            file: both.into_raw_fd() as usize,
            file_read: open(&path),
            file_write: file.into_raw_fd() as usize,
            directory: open(&directory),
            place: place(&path),
            zero: open("/dev/zero"),
            pipe: pipe(),
            path: text(&path),
            directory_path: text(&directory),
        }
    }

    /// Returns the places that cannot be read.
    pub fn unreadable(&self) -> Vec<(&'static str, usize)> {
        vec![
            ("null", 0),
            ("unmapped", self.hole),
            ("PROT_NONE", self.no_access),
            ("kernel", 0xffff_8000_0000_0000),
            ("kernel image", 0xffff_ffff_8010_0000),
            ("last", usize::MAX - 15),
            ("non-canonical", 0x0100_0000_0000_0000),
            ("odd non-canonical", 0x7123_4567_89ab_cdef),
        ]
    }
}

/// Start of the pages: far from where kernels place mappings, so that none ever falls into the hole.
const PAGES: usize = 8 << 30;

/// Maps four pages: writable, hole, read-only, no access.
fn pages() -> usize {
    let flags = PRIVATE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: no mapping is replaced.
    let base = require(unsafe { memory::map_at(PAGES, 4 * PAGE, READ_WRITE, flags) }, "mmap at 8 GiB");
    // SAFETY: the pages are fresh, without references.
    unsafe {
        require(memory::unmap(base + PAGE, PAGE), "munmap");
        require(memory::protect(base + 2 * PAGE, PAGE, libc::PROT_READ), "mprotect");
        require(memory::protect(base + 3 * PAGE, PAGE, libc::PROT_NONE), "mprotect");
    }
    base
}

/// Returns the end of user space: 2^47, or 2^56 on Linux where the CPU has five-level page tables.
fn top() -> usize {
    let high = 1 << 50;
    // SAFETY: nothing is mapped that high, and the page is given back at once.
    let wide = unsafe { memory::map_at(high, PAGE, READ_WRITE, PRIVATE | libc::MAP_FIXED) };
    match wide {
        // SAFETY: the page was mapped one line above.
        Ok(page) => unsafe {
            require(memory::unmap(page, PAGE), "munmap");
            1 << 56
        },
        Err(_) => 1 << 47,
    }
}

/// Opens a path with O_PATH, by the call itself: where the C library is musl, the standard library takes
/// O_PATH for part of the access mode.
fn place(path: &str) -> usize {
    // SAFETY: the path is a string.
    let place = unsafe { libc::syscall(libc::SYS_open, text(path), libc::O_PATH) };
    usize::try_from(place).expect("open as a place")
}

fn pipe() -> [usize; 2] {
    let mut ends = [0; 2];
    // SAFETY: the call fills the array.
    let result = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK) };
    assert_eq!(result, 0, "pipe2");
    ends.map(|end| end as usize)
}

/// Returns the address of a NUL-terminated string, which lives for ever.
pub fn text(text: &str) -> usize {
    CString::new(text).expect("no NUL in it").into_raw() as usize
}

/// Returns the address of some words, which live for ever.
pub fn words(words: &[usize]) -> usize {
    Vec::leak(words.to_vec()).as_ptr() as usize
}

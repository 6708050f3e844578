//! Views of files. A small private mapping of a file over the open part of a reservation is a copy from a
//! view: WebAssembly runtimes map the initial data of a module so, for each instance of it.
//!
//! A view is a mapping of the file that stays, at addresses of the runtime. So the file's number is not used
//! again. There are only views of files without a name in memory (`memfd_create`), because a call that names
//! the same file and place must find the same bytes: with others, such as of overlayfs, it may not.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use pathreads::{PAGE, member_reservation, page_end};

use super::reservations::addresses_for_views;
use crate::isolate;
use crate::sys::{self, MAP_FIXED, MAP_PRIVATE, PROT_READ, harmless, nr};
use crate::user;

/// The most bytes of a view. Of a larger file the pages that are used are fewer than those that it has.
const MOST: u64 = 256 << 10;

/// The most bytes of a file that has a view.
const MOST_OF_FILE: u64 = 1 << 20;

/// The number of views.
const VIEWS: usize = 64;

const _: () = assert!(VIEWS as u64 * MOST <= member_reservation::VIEWS_END - member_reservation::VIEWS);

/// A view. The words do not change when its address is set.
struct View {
    /// 1 if a thread has taken it.
    is_taken: AtomicU32,
    /// The device, the number of the file there, and the place in the file.
    key: [AtomicU64; 3],
    length: AtomicU64,
    address: AtomicU64,
}

static VIEW: [View; VIEWS] = [const {
    View {
        is_taken: AtomicU32::new(0),
        key: [const { AtomicU64::new(0) }; 3],
        length: AtomicU64::new(0),
        address: AtomicU64::new(0),
    }
}; VIEWS];

/// Returns the view of a part of a file. If there is none, makes it. Returns `None` if the file cannot be
/// mapped so by the program.
pub fn of(file: u64, offset: u64, length: u64) -> Option<usize> {
    if !(1..=MOST).contains(&length) {
        return None;
    }
    let [device, number] = identify(file, offset.checked_add(length)?)?;
    let key = [device, number, offset];
    let first = (number ^ (offset / MOST)) as usize % VIEWS;
    let probed = || (0..VIEWS).map(|next| (first + next) % VIEWS);
    let known = probed().find(|view| is_of(&VIEW[*view], key, length));
    known.or_else(|| {
        let may_be = is_in_memory(file);
        probed().find(|view| may_be && make(*view, file, key, length))
    })
}

fn is_of(view: &View, key: [u64; 3], length: u64) -> bool {
    // Acquire pairs with the release in `make`: the key is known.
    view.address.load(Ordering::Acquire) != 0
        && view.key.each_ref().map(|word| word.load(Ordering::Relaxed)) == key
        && view.length.load(Ordering::Relaxed) == length
}

/// Returns the device of a file and its number there. It must have no name and pages of 4 KiB, be readable
/// for the program, and reach to `end`, or into the page before.
fn identify(file: u64, end: u64) -> Option<[u64; 2]> {
    const F_GETFL: u64 = 3;
    const O_WRONLY_OR_PATH: u64 = 0x20_0001;
    const FORMAT: u64 = 0o170_000;
    const REGULAR: u64 = 0o100_000;
    /// The words of the kernel's `struct stat`, and the places of the number of names and others.
    const STAT: usize = 18;
    const NAMES: usize = 2;
    const MODE: usize = 3;
    const LENGTH: usize = 6;
    const BLOCK: usize = 7;
    const SECTORS: usize = 8;
    const SECTOR: u64 = 512;
    let mut about = [0_u64; STAT];
    harmless!(nr::FSTAT, file, about.as_mut_ptr() as u64).ok()?;
    let is_meant = about[MODE] & FORMAT == REGULAR
        && about[NAMES] == 0
        && about[BLOCK] == PAGE
        // A view keeps all of the file.
        && about[SECTORS] * SECTOR <= MOST_OF_FILE
        && end <= page_end(about[LENGTH]);
    let is_readable =
        is_meant && harmless!(nr::FCNTL, file, F_GETFL).is_ok_and(|flags| flags & O_WRONLY_OR_PATH == 0);
    is_readable.then_some([about[0], about[1]])
}

/// Returns whether a file is of a file system in memory.
fn is_in_memory(file: u64) -> bool {
    const TMPFS: u64 = 0x0102_1994;
    /// The words of the kernel's `struct statfs`, which begins with the type.
    const STATFS: usize = 15;
    let mut system = [0_u64; STATFS];
    harmless!(nr::FSTATFS, file, system.as_mut_ptr() as u64).is_ok() && system[0] == TMPFS
}

/// Returns the addresses of views.
fn addresses() -> Option<u64> {
    if isolate::is_on() { Some(member_reservation::VIEWS) } else { addresses_for_views() }
}

/// Makes a view. Returns whether it is this thread's.
#[inline(never)]
fn make(index: usize, file: u64, key: [u64; 3], length: u64) -> bool {
    let view = &VIEW[index];
    let Some(base) = addresses() else { return false };
    if view.is_taken.swap(1, Ordering::Relaxed) != 0 {
        return false;
    }
    let (at, flags) = (base + index as u64 * MOST, MAP_PRIVATE | MAP_FIXED);
    // SAFETY: the addresses are the runtime's, for this view.
    let made = unsafe { sys::mmap(at, length, PROT_READ, flags, file, key[2]) };
    // The descriptor may have become another file's.
    let is_same = made.is_ok() && identify(file, key[2] + length) == Some([key[0], key[1]]);
    if !is_same {
        view.is_taken.store(0, Ordering::Relaxed);
        return false;
    }
    view.key.iter().zip(key).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
    view.length.store(length, Ordering::Relaxed);
    // Release pairs with the acquire in `is_of`.
    view.address.store(at, Ordering::Release);
    true
}

/// Copies a part of a view. Returns whether it could be read, which a file that was made shorter cannot.
pub fn copy(view: usize, from: u64, to: u64, length: u64) -> bool {
    let at = VIEW[view].address.load(Ordering::Acquire);
    // SAFETY: the memory is the program's, which has mapped the file there.
    unsafe { user::copy(at + from, to, length) }
}

//! Views of files. A small private mapping of a file over the open part of a reservation is a copy from a
//! view: WebAssembly runtimes map the initial data of a module so, for each instance of it.
//!
//! A view is a mapping of the file that stays. So the file's number is not used again, and a call that names
//! the same file and place has the same bytes as a mapping of it would have.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use pathreads::{PAGE, page_end};

use crate::sys::{self, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE, harmless, nr};
use crate::user;

/// The most bytes of a view. Of a larger file the pages that are used are fewer than those that it has.
const MOST: u64 = 256 << 10;

/// The number of views.
const VIEWS: usize = 64;

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
    let [device, number, _] = identify(file, offset.checked_add(length)?)?;
    let key = [device, number, offset];
    let first = (number ^ (offset / MOST)) as usize % VIEWS;
    for view in (0..VIEWS).map(|next| (first + next) % VIEWS) {
        // Acquire pairs with the release in `make`: the key is known.
        match VIEW[view].address.load(Ordering::Acquire) {
            0 => return make(view, file, key, length).then_some(view),
            _ if is_of(&VIEW[view], key, length) => return Some(view),
            _ => {}
        }
    }
    None
}

/// Makes a view, if there is none, of a file that has no name, and that the program maps privately over its
/// memory: it may drop what it writes there ([`drops`](super::drops)).
#[inline(never)]
pub fn note_mapping([_, length, protection, flags, file, offset]: [u64; 6]) {
    let is_meant = protection == PROT_READ | PROT_WRITE
        && flags & !MAP_NORESERVE == MAP_PRIVATE | MAP_FIXED
        && offset.is_multiple_of(PAGE);
    let length = page_end(length);
    if is_meant
        && (1..=MOST).contains(&length)
        && let Some([.., 0]) = identify(file, offset.saturating_add(length))
    {
        of(file, offset, length);
    }
}

/// Returns a view that has these bytes of a file, and their place in it.
pub fn with(device: u64, number: u64, offset: u64, length: u64) -> Option<(usize, u64)> {
    (0..VIEWS).find_map(|index| {
        let view = &VIEW[index];
        // Acquire pairs with the release in `make`: the key is known.
        let is_made = view.address.load(Ordering::Acquire) != 0;
        let [of_device, of_number, from] = view.key.each_ref().map(|word| word.load(Ordering::Relaxed));
        let place = offset.checked_sub(from)?;
        let has_it = place + length <= view.length.load(Ordering::Relaxed);
        (is_made && (of_device, of_number) == (device, number) && has_it).then_some((index, place))
    })
}

fn is_of(view: &View, key: [u64; 3], length: u64) -> bool {
    view.key.each_ref().map(|word| word.load(Ordering::Relaxed)) == key
        && view.length.load(Ordering::Relaxed) == length
}

/// Returns the device of a regular file, its number there, and its number of names. The program must be able
/// to read it, and it must reach to `end`, or into the page before.
fn identify(file: u64, end: u64) -> Option<[u64; 3]> {
    const F_GETFL: u64 = 3;
    const O_WRONLY_OR_PATH: u64 = 0x20_0001;
    const FORMAT: u64 = 0o170_000;
    const REGULAR: u64 = 0o100_000;
    /// The words of the kernel's `struct stat`, and the places of the number of names, the mode and the size.
    const STAT: usize = 18;
    const NAMES: usize = 2;
    const MODE: usize = 3;
    const LENGTH: usize = 6;
    let mut about = [0_u64; STAT];
    harmless!(nr::FSTAT, file, about.as_mut_ptr() as u64).ok()?;
    let is_meant = about[MODE] & FORMAT == REGULAR && end <= page_end(about[LENGTH]);
    let is_readable =
        is_meant && harmless!(nr::FCNTL, file, F_GETFL).is_ok_and(|flags| flags & O_WRONLY_OR_PATH == 0);
    is_readable.then_some([about[0], about[1], about[NAMES]])
}

/// Makes a view. Returns whether it is this thread's.
#[inline(never)]
fn make(view: usize, file: u64, key: [u64; 3], length: u64) -> bool {
    let view = &VIEW[view];
    if view.is_taken.swap(1, Ordering::Relaxed) != 0 {
        return false;
    }
    // SAFETY: the kernel chooses a free address.
    let Ok(at) = (unsafe { sys::mmap(0, length, PROT_READ, MAP_PRIVATE, file, key[2]) }) else {
        view.is_taken.store(0, Ordering::Relaxed);
        return false;
    };
    view.key.iter().zip(key).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
    view.length.store(length, Ordering::Relaxed);
    // Release pairs with the acquire in `of`.
    view.address.store(at, Ordering::Release);
    true
}

/// Copies a part of a view. Returns whether it could be read, which a file that was made shorter cannot.
pub fn copy(view: usize, from: u64, to: u64, length: u64) -> bool {
    let at = VIEW[view].address.load(Ordering::Acquire);
    // SAFETY: the memory is the program's, which has mapped the file there.
    unsafe { user::copy(at + from, to, length) }
}

//! The descriptors that the runtime keeps: of the program's memory, and of files that are mapped. They have
//! numbers that programs do not meet.

use core::sync::atomic::Ordering;

use pathreads::record::{Record, Region};

use super::copies::narrow_copies;
use super::{control, is_on, locked, memory_file, prepare_stack, signals, stale};
use crate::sys::{self, Result, harmless, nr};

/// The most descriptors that are kept for private mappings.
pub const MOST_PRIVATE: u64 = 128;

/// Closes the file of a region that has gone, if no other region has it.
pub fn close_unused(record: &Record, region: &Region) {
    let is_unused = !record.has_file(region.file);
    match region.is_private {
        true => {
            narrow_copies(record);
            if is_unused && region.is_snapshot {
                close_snapshot(region.file);
            } else if is_unused {
                close_private(region.file);
            }
        }
        false if is_unused => sys::close(region.file),
        false => {}
    }
}

/// Closes the descriptor of a snapshot, if that is of another process.
fn close_snapshot(file: u64) {
    if file != memory_file() {
        sys::close(file);
        // A child of `vfork` closes its own descriptor only.
        control().private_files.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Closes a descriptor that was kept for a private mapping. Linux would drop the program's own locks of the
/// file (`fcntl`), so a file with locks keeps its descriptor.
pub fn close_private(file: u64) {
    const F_OFD_GETLK: u64 = 36;
    const F_WRLCK: u64 = 1;
    const F_UNLCK: u64 = 2;
    /// The kernel's `struct flock` begins with the kind, in 16 bits.
    const FLOCK: usize = 4;
    let mut lock = [0_u64; FLOCK];
    lock[0] = F_WRLCK;
    let known = harmless!(nr::FCNTL, file, F_OFD_GETLK, lock.as_mut_ptr() as u64).is_ok();
    if !known || lock[0] & 0xffff == F_UNLCK {
        sys::close(file);
    }
    // A child of `vfork` closes its own descriptor only.
    control().private_files.fetch_sub(1, Ordering::Relaxed);
}

/// Gives a descriptor a number that programs do not meet.
pub fn keep_away(file: u64) -> Result {
    let kept = copy_away(file);
    sys::close(file);
    kept
}

/// Returns a copy of a descriptor with a number that programs do not meet.
pub fn copy_away(file: u64) -> Result {
    const F_DUPFD_CLOEXEC: u64 = 1030;
    let least = first_kept();
    // Numbers do not come again soon: a child of `vfork` has those of the record in a table of its own.
    let next = if is_on() { control().kept.fetch_add(1, Ordering::Relaxed) % least.max(2) / 2 } else { 0 };
    let kept = harmless!(nr::FCNTL, file, F_DUPFD_CLOEXEC, least + next)?;
    if is_on() {
        control().lowest_kept.fetch_min(kept, Ordering::Relaxed);
    }
    Ok(kept)
}

/// Returns the first of the runtime's descriptors in a range.
pub fn kept_in(first: u64, last: u64) -> Option<u64> {
    let range = first..=last;
    if last < control().lowest_kept.load(Ordering::Relaxed) {
        return None;
    }
    let own = [memory_file(), signals::file()].into_iter().chain(stale::files());
    let own = own.filter(|file| range.contains(file));
    prepare_stack();
    let shared =
        locked(|record| record.all().map(|region| region.file).filter(|file| range.contains(file)).min());
    own.chain(shared).min()
}

/// Returns the first number of the runtime's own descriptors: those of the upper half are few programs'.
fn first_kept() -> u64 {
    const MOST: u64 = 1 << 16;
    sys::limit_of(sys::RLIMIT_NOFILE).min(MOST) / 2
}

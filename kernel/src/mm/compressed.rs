//! Compressed memory (option `compress`): contents of pages that were not touched for long, in less than a
//! frame each.
//!
//! A page of zeroes needs no memory. A page that LZ4 does not halve stays as it is, since two of them do not
//! fit in a frame. The others become objects (`zpool.rs`). Each core compresses in a workspace of its own,
//! which is made at boot, so compression allocates nothing when memory is short.

use percore::{PerCore, Pinned};
use sync::{SetOnce, SpinLock};

use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};
use vm::{CompressedNum, FrameNum};

use super::FRAME;
use super::statistics::sum;
use super::{frames, zpool};
use crate::bytes::prefix;
use crate::counters::{self, Counter};

const PAGE: usize = FRAME as usize;
const OUTPUT: usize = get_maximum_output_size(PAGE);
/// Stands for zeroes: frame 0 has no objects.
const ZEROES: CompressedNum = CompressedNum::new(0);
/// Limit of compressed pages, in multiples of the number of frames: `/proc/meminfo` calls it swap.
const SHARE: u64 = 4;

struct Workspace {
    table: CompressTable,
    output: [u8; OUTPUT],
}

/// One workspace for each core, if pages are compressed at all. Only its own core locks it, so the lock is
/// never waited for.
static WORKSPACES: SetOnce<PerCore<SpinLock<Workspace>>> = SetOnce::new();

/// Enables compression of pages. Called once, at boot.
///
/// # Panics
/// Without memory for the workspaces.
pub fn init(cores: usize) {
    let workspace = || Workspace { table: CompressTable::small(), output: [0; OUTPUT] };
    let all = PerCore::try_new(cores, |_| SpinLock::new(workspace()));
    WORKSPACES.set(all.expect("memory for compressing"));
}

/// Returns whether pages may be compressed now.
pub fn has_room() -> bool {
    pages() < limit()
}

/// Returns the number of pages that may be compressed: 0 without the option.
pub fn limit() -> u64 {
    WORKSPACES.get().map_or(0, |_| SHARE * frames::total())
}

/// Returns the number of compressed pages. A page that several spaces hold counts once for each.
pub fn pages() -> u64 {
    sum(Counter::CompressedPages).unsigned_abs()
}

/// Returns the number of frames that compressed pages take.
pub fn frames_used() -> u64 {
    sum(Counter::CompressedFrames).unsigned_abs()
}

/// See [`vm::Frames::compress`].
pub fn compress(pin: &Pinned, frame: FrameNum) -> Option<CompressedNum> {
    let mut workspace = WORKSPACES.get()?.mine(pin).lock();
    let length = frames::with_bytes(frame, |page| workspace.squeeze(page))?;
    let number = match length {
        0 => {
            frames::free(pin, frame);
            ZEROES
        }
        _ => zpool::put(pin, prefix(&workspace.output, length as u64), frame)?,
    };
    counters::add(pin, Counter::CompressedPages, 1);
    Some(number)
}

impl Workspace {
    /// Compresses `page` into the output and returns the number of bytes, 0 for zeroes, or `None` if they are
    /// too many.
    fn squeeze(&mut self, page: &[u8; PAGE]) -> Option<usize> {
        if page.iter().all(|&byte| byte == 0) {
            return Some(0);
        }
        let length = compress_into_with_table(page, &mut self.output, &mut self.table).ok()?;
        (length <= zpool::MOST).then_some(length)
    }
}

/// See [`vm::Frames::decompress`].
///
/// # Panics
/// If the compressed bytes were overwritten.
pub fn decompress(_pin: &Pinned, number: CompressedNum, frame: FrameNum) {
    frames::with_bytes(frame, |page| match number {
        ZEROES => page.fill(0),
        _ => {
            // SAFETY: the caller holds it.
            let bytes = unsafe { zpool::bytes(number) };
            let length = decompress_into(bytes, page).unwrap_or(0);
            assert_eq!(length, PAGE, "compressed memory is damaged");
        }
    });
}

/// See [`vm::Frames::adjust_compressed`].
pub fn adjust(pin: &Pinned, number: CompressedNum, by: i64) {
    counters::add(pin, Counter::CompressedPages, by);
    if number != ZEROES {
        zpool::adjust(pin, number, by);
    }
}

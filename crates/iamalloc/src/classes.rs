//! Sizes of blocks, and the kind of memory that a request gets.

use crate::segment::{MAX_RUNS, RUN};

/// The number of sizes of small blocks.
pub const CLASSES: usize = 44;

/// The size of the largest small block, in bytes.
pub const MAX_SMALL: usize = 64 << 10;

/// The size of the largest block of which a single run has enough. Larger small blocks share a group of runs.
const MAX_OF_ONE_RUN: usize = 8 << 10;

/// The largest alignment, in bytes.
pub const MAX_ALIGN: usize = 2 << 20;

/// The alignment of each block, in bytes.
const GRAIN: usize = 16;

/// Sizes up to this one are multiples of [`GRAIN`]. Beyond it there are four in each doubling.
const FINE: usize = 128;

/// The memory that a request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A block of this class.
    Small(usize),
    /// As many runs.
    Runs(usize),
    /// A mapping of its own.
    Huge,
}

/// The largest size whose class is looked up, in bytes.
const MAX_QUICK: usize = 1 << 10;

/// The classes of sizes up to [`MAX_QUICK`], by grains.
static QUICK: [u8; MAX_QUICK / GRAIN + 1] = {
    let mut classes = [0; MAX_QUICK / GRAIN + 1];
    let mut grains = 0;
    while grains < classes.len() {
        classes[grains] = class(grains * GRAIN) as u8;
        grains += 1;
    }
    classes
};

/// Returns the class of a block, if that is looked up faster than by [`kind`].
#[inline(always)]
pub fn quick_class(size: usize, align: usize) -> Option<usize> {
    (size <= MAX_QUICK && align <= GRAIN).then(|| QUICK[size.div_ceil(GRAIN)].into())
}

/// Returns the number of runs that blocks of a class share.
#[inline]
pub const fn runs(class: usize) -> usize {
    if size(class) <= MAX_OF_ONE_RUN { 1 } else { 8 }
}

/// Returns the kind of memory for `size` bytes that are aligned to `align`, a power of two. Returns `None` if
/// there is none.
#[inline]
pub const fn kind(size: usize, align: usize) -> Option<Kind> {
    if align > MAX_ALIGN || size > isize::MAX as usize - 2 * MAX_ALIGN {
        return None;
    }
    Some(if max(size, align) <= MAX_SMALL {
        Kind::Small(aligned_class(size, align))
    } else if align <= RUN && size <= MAX_RUNS * RUN {
        Kind::Runs(size.div_ceil(RUN))
    } else {
        Kind::Huge
    })
}

/// Returns the class of the smallest blocks of `size` bytes that all lie at multiples of `align`, as runs do.
#[inline]
const fn aligned_class(bytes: usize, align: usize) -> usize {
    if align <= GRAIN {
        return class(bytes);
    }
    let mut class = class(max(bytes, align));
    // A power of two is one of the next few.
    while !size(class).is_multiple_of(align) {
        class += 1;
    }
    class
}

/// Returns the class of the smallest blocks of `size` bytes, which is at most [`MAX_SMALL`].
#[inline]
const fn class(size: usize) -> usize {
    if size <= FINE {
        return max(size, 1).div_ceil(GRAIN) - 1;
    }
    let doubling = (size - 1).ilog2();
    let step = (size - 1) >> (doubling - 2) & 3;
    FINE / GRAIN + (doubling - FINE.ilog2()) as usize * 4 + step
}

/// Returns the size of the blocks of a class, in bytes.
#[inline]
pub const fn size(class: usize) -> usize {
    if class < FINE / GRAIN {
        return (class + 1) * GRAIN;
    }
    let above = class - FINE / GRAIN;
    let whole = FINE << (above / 4);
    whole + whole / 4 * (above % 4 + 1)
}

#[inline]
const fn max(a: usize, b: usize) -> usize {
    if a > b { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_has_the_smallest_class_that_holds_it() {
        assert_eq!((class(0), class(1), class(16), class(17)), (0, 0, 0, 1));
        for bytes in 1..=MAX_SMALL {
            let class = class(bytes);
            assert!(class < CLASSES && size(class) >= bytes, "{bytes}");
            assert!(class == 0 || size(class - 1) < bytes, "{bytes}");
            assert!(size(class) - bytes <= bytes.max(64) / 4, "{bytes}: {}", size(class));
        }
        assert_eq!(size(CLASSES - 1), MAX_SMALL);
        assert!((0..=MAX_QUICK).all(|bytes| quick_class(bytes, GRAIN) == Some(class(bytes))));
        assert_eq!((quick_class(MAX_QUICK + 1, 1), quick_class(1, 2 * GRAIN)), (None, None));
        assert!((0..CLASSES).all(|class| runs(class) * RUN / size(class) >= 8));
    }

    #[test]
    fn blocks_are_aligned() {
        for align in (0..=21).map(|bits| 1 << bits) {
            for bytes in [0, 1, 40, 64, 100, 3000, 9000, MAX_SMALL, MAX_SMALL + 1, MAX_RUNS * RUN] {
                match kind(bytes, align).unwrap() {
                    Kind::Small(class) => assert!(size(class) >= bytes),
                    Kind::Runs(runs) => assert!(runs * RUN >= bytes && align <= RUN),
                    Kind::Huge => assert!(align > RUN),
                }
                if let Some(Kind::Small(class)) = kind(bytes, align) {
                    assert_eq!(size(class) % align, 0, "{bytes} at {align}");
                }
            }
        }
        assert_eq!(kind(1, 2 * MAX_ALIGN), None);
        assert_eq!(kind(usize::MAX, 1), None);
        assert_eq!(kind(MAX_RUNS * RUN + 1, 1), Some(Kind::Huge));
    }
}

//! Parts of slices, clipped to the slice, so that no length that a program chose can be out of range.

/// Returns the first `most` bytes, or all if there are fewer.
pub fn prefix(bytes: &[u8], most: u64) -> &[u8] {
    let len = usize::try_from(most).unwrap_or(usize::MAX).min(bytes.len());
    bytes.split_at(len).0
}

/// Returns the same part, mutable.
pub fn prefix_mut(bytes: &mut [u8], most: u64) -> &mut [u8] {
    let len = usize::try_from(most).unwrap_or(usize::MAX).min(bytes.len());
    bytes.split_at_mut(len).0
}

/// Returns the bytes after the first `count`, if any.
pub fn after(bytes: &[u8], count: usize) -> &[u8] {
    bytes.get(count..).unwrap_or_default()
}

/// Returns the same part, mutable.
pub fn after_mut(bytes: &mut [u8], count: usize) -> &mut [u8] {
    bytes.get_mut(count..).unwrap_or_default()
}

/// Returns the bytes from offset `at` on.
pub fn tail(bytes: &[u8], at: u64) -> &[u8] {
    usize::try_from(at).ok().and_then(|at| bytes.get(at..)).unwrap_or_default()
}

/// Copies as much of `from` as `into` has room for, and returns the number of bytes.
pub fn copy_prefix(into: &mut [u8], from: &[u8]) -> usize {
    let len = into.len().min(from.len());
    into.split_at_mut(len).0.copy_from_slice(from.split_at(len).0);
    len
}

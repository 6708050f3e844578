//! Parts of slices, clipped to what there is: no length that a program chose can be out of range.

/// The first `most` bytes, or all.
pub fn prefix(bytes: &[u8], most: u64) -> &[u8] {
    let len = usize::try_from(most).unwrap_or(usize::MAX).min(bytes.len());
    bytes.split_at(len).0
}

/// The same, to be written.
pub fn prefix_mut(bytes: &mut [u8], most: u64) -> &mut [u8] {
    let len = usize::try_from(most).unwrap_or(usize::MAX).min(bytes.len());
    bytes.split_at_mut(len).0
}

/// What is left without the first `count` bytes.
pub fn after(bytes: &[u8], count: usize) -> &[u8] {
    bytes.get(count..).unwrap_or_default()
}

/// The same, to be written.
pub fn after_mut(bytes: &mut [u8], count: usize) -> &mut [u8] {
    bytes.get_mut(count..).unwrap_or_default()
}

/// Copies as much of `from` as `into` has room for, and returns how much.
pub fn copy_prefix(into: &mut [u8], from: &[u8]) -> usize {
    let len = into.len().min(from.len());
    into.split_at_mut(len).0.copy_from_slice(from.split_at(len).0);
    len
}

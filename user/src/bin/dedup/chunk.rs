//! Content-defined chunking: the end of a chunk depends on the bytes before it, not on its start. So equal
//! stretches of data are divided at equal places, whatever precedes them.
//!
//! The hash is a gear hash. It advances by a shift and an addition, so that a byte has left it after 64 more.
//! A chunk ends where the hash's top bits are all zero.

use programs::random::mix;
use std::ops::Range;

/// Limits of the length of chunks, in bytes.
#[derive(Clone, Copy)]
pub struct Limits {
    /// Minimum length of all chunks but the last.
    pub least: usize,
    /// Mean number of bytes after `least` to the next end of a chunk, rounded down to a power of two.
    pub mean: usize,
    /// Maximum length of a chunk.
    pub most: usize,
}

/// A random number for each byte.
const GEARS: [u64; 256] = gears();

const fn gears() -> [u64; 256] {
    let mut gears = [0; 256];
    let mut byte = 0;
    while byte < gears.len() {
        gears[byte] = mix(byte as u64 + 1);
        byte += 1;
    }
    gears
}

/// Returns the length of the first chunk.
pub fn cut(bytes: &[u8], limits: Limits) -> usize {
    let most = bytes.len().min(limits.most);
    if most <= limits.least {
        return most;
    }
    let mask = !(u64::MAX >> limits.mean.ilog2());
    let mut hash = 0_u64;
    let ends = |byte: &u8| {
        hash = (hash << 1).wrapping_add(GEARS[usize::from(*byte)]);
        hash & mask == 0
    };
    let end = bytes[limits.least..most].iter().position(ends);
    end.map_or(most, |at| limits.least + at + 1)
}

/// Returns all chunks.
pub fn cuts(bytes: &[u8], limits: Limits) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let piece = start..start + cut(&bytes[start..], limits);
        start = piece.end;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use programs::random::Random;
    use std::collections::BTreeSet;

    const LIMITS: Limits = Limits { least: 64, mean: 256, most: 1024 };

    fn noise(seed: u64, length: usize) -> Vec<u8> {
        let mut random = Random::new(seed);
        (0..length).map(|_| random.bits() as u8).collect()
    }

    #[test]
    fn pieces_cover_everything_within_their_limits() {
        for bytes in [noise(1, 100_000), vec![0; 5000], vec![7; 64], Vec::new()] {
            let pieces: Vec<_> = cuts(&bytes, LIMITS).collect();
            let mut end = 0;
            for piece in &pieces {
                assert_eq!(piece.start, end);
                assert!(piece.len() <= 1024 && (piece.len() > 64 || piece.end == bytes.len()));
                end = piece.end;
            }
            assert_eq!(end, bytes.len());
        }
        let pieces = cuts(&noise(1, 100_000), LIMITS).count();
        assert!((200..500).contains(&pieces), "{pieces} pieces of about 320 bytes");
    }

    #[test]
    fn an_insertion_changes_few_pieces() {
        let pieces = |bytes: &[u8]| -> BTreeSet<Vec<u8>> {
            cuts(bytes, LIMITS).map(|piece| bytes[piece].to_vec()).collect()
        };
        let before = noise(2, 50_000);
        let mut after = before.clone();
        after.splice(20_000..20_000, *b"inserted");
        let (before, after) = (pieces(&before), pieces(&after));
        assert!(before.difference(&after).count() <= 20, "of {}", before.len());
    }
}

//! The input files of workloads. Their content depends on nothing but their length.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};

/// A generator of random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

/// The content of a file.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Content {
    /// Random bytes.
    Bytes,
    /// A word in each line.
    Words,
    /// Words, in parts of which half repeat an earlier one.
    Repeats,
}

const WORDS: [&str; 12] = [
    "address", "space", "thread", "fault", "page", "frame", "mapping", "table", "core", "lock", "range",
    "count",
];

/// Bytes of a part that may repeat.
const PART: usize = 64 << 10;

/// The most different parts of a file.
const MOST_PARTS: usize = 4096;

/// Writes a file of a length.
pub fn write(path: &Path, content: Content, length: u64) -> Result<()> {
    let file = File::create(path).with_context(|| path.display().to_string())?;
    let mut file = BufWriter::with_capacity(1 << 20, file);
    let (mut random, mut left, mut known) = (Random(1), length as usize, Vec::new());
    while left > 0 {
        let repeats = content == Content::Repeats && known.len() > 1 && random.next() & 1 == 0;
        let part = match repeats || known.len() == MOST_PARTS {
            true => known[random.next() as usize % known.len()],
            false => random.next(),
        };
        if known.len() < MOST_PARTS {
            known.push(part);
        }
        let bytes = bytes(content, part);
        let taken = bytes.len().min(left);
        file.write_all(&bytes[..taken]).with_context(|| path.display().to_string())?;
        left -= taken;
    }
    file.flush().with_context(|| path.display().to_string())
}

/// Returns the bytes of a part.
fn bytes(content: Content, part: u64) -> Vec<u8> {
    let mut random = Random(part);
    let mut bytes = Vec::with_capacity(PART + 8);
    while bytes.len() < PART {
        let number = random.next();
        match content {
            Content::Bytes => bytes.extend(number.to_le_bytes()),
            Content::Words | Content::Repeats => {
                bytes.extend(WORDS[number as usize % WORDS.len()].bytes());
                bytes.push(if number >> 62 == 0 { b's' } else { b'\n' });
            }
        }
    }
    bytes.truncate(PART);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_its_length_and_the_same_content_again() {
        let folder = tempfile::tempdir().unwrap();
        for content in [Content::Bytes, Content::Words, Content::Repeats] {
            let files = ["a", "b"].map(|name| folder.path().join(name));
            files.iter().for_each(|file| write(file, content, 300_001).unwrap());
            let [first, second] = files.map(|file| std::fs::read(file).unwrap());
            assert_eq!(first.len(), 300_001, "{content:?}");
            assert!(first == second, "{content:?}");
        }
    }

    #[test]
    fn about_half_of_the_parts_repeat() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("repeats");
        write(&file, Content::Repeats, 64 * PART as u64).unwrap();
        let bytes = std::fs::read(file).unwrap();
        let mut lines = bytes.windows(60).step_by(1024).collect::<Vec<_>>();
        let all = lines.len();
        lines.sort_unstable();
        lines.dedup();
        assert!((all / 4..all * 9 / 10).contains(&lines.len()), "{} of {all}", lines.len());
    }
}

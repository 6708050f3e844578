//! The archive: blocks of chunks. Each chunk is new or the same as an earlier one.
//!
//! ```text
//! archive  magic (8 bytes) | length of the input | blocks ...
//! block    chunks | bytes of the new ones | bytes as packed | a number for each chunk | the new ones, packed together
//! chunk    its length if it is new; NUMBER | which chunk it repeats, counting new ones from 0
//! ```
//! Numbers are 8 bytes, little endian. The new chunks of a block are one raw DEFLATE stream, or stored if
//! that would be no shorter.

use miniz_oxide::inflate::decompress_slice_iter_to_slice;
use std::ops::Range;

const MAGIC: &[u8; 8] = b"rvdedup1";
/// Marks the number of an earlier chunk.
const NUMBER: u64 = 1 << 63;
/// Maximum length of a block in bytes.
pub const LONGEST: usize = 64 << 20;

/// A chunk of the input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Chunk {
    /// A chunk of this length, seen for the first time.
    New(usize),
    /// The same as the new chunk with this number.
    Known(u64),
}

/// Starts the archive of an input of `input` bytes.
pub fn begin(archive: &mut Vec<u8>, input: usize) {
    archive.extend(MAGIC);
    number(archive, input as u64);
}

/// Adds a block: its chunks, and the new ones of them, which were `new` bytes long before they were packed.
pub fn add(archive: &mut Vec<u8>, chunks: impl ExactSizeIterator<Item = Chunk>, new: usize, packed: &[u8]) {
    [chunks.len(), new, packed.len()].into_iter().for_each(|count| number(archive, count as u64));
    chunks.for_each(|chunk| match chunk {
        Chunk::New(length) => number(archive, length as u64),
        Chunk::Known(earlier) => number(archive, NUMBER | earlier),
    });
    archive.extend(packed);
}

fn number(archive: &mut Vec<u8>, number: u64) {
    archive.extend(number.to_le_bytes());
}

/// Returns the input of an archive, or a description of the archive's damage.
pub fn restore(archive: &[u8]) -> Result<Vec<u8>, String> {
    let mut reader = Reader { rest: archive };
    if reader.bytes(MAGIC.len())? != MAGIC {
        return Err("not an archive of this program".to_string());
    }
    let mut output = Restored { length: reader.number()?, bytes: Vec::new(), known: Vec::new() };
    while !reader.rest.is_empty() {
        output.block(&mut reader)?;
    }
    if (output.bytes.len() as u64) < output.length {
        return Err("the archive is cut short".to_string());
    }
    Ok(output.bytes)
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], String> {
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or("the archive is cut short")?;
        self.rest = rest;
        Ok(bytes)
    }

    fn number(&mut self) -> Result<u64, String> {
        self.bytes(8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("8 bytes")))
    }

    fn chunk(&mut self) -> Result<Chunk, String> {
        let number = self.number()?;
        Ok(if number & NUMBER == 0 { Chunk::New(number as usize) } else { Chunk::Known(number & !NUMBER) })
    }
}

/// The input, as far as it is restored.
struct Restored {
    /// Length of the whole input.
    length: u64,
    bytes: Vec<u8>,
    /// Ranges of the new chunks.
    known: Vec<Range<usize>>,
}

impl Restored {
    fn block(&mut self, reader: &mut Reader) -> Result<(), String> {
        let [count, new, packed] = [reader.number()?, reader.number()?, reader.number()?];
        let chunks = (0..count).map(|_| reader.chunk()).collect::<Result<Vec<_>, _>>()?;
        let fresh = unpack(reader.bytes(packed as usize)?, new)?;
        let mut fresh = Reader { rest: &fresh };
        chunks.into_iter().try_for_each(|chunk| self.chunk(chunk, &mut fresh))
    }

    fn chunk(&mut self, chunk: Chunk, fresh: &mut Reader) -> Result<(), String> {
        let start = self.bytes.len();
        match chunk {
            Chunk::New(length) => {
                self.bytes.extend(fresh.bytes(length)?);
                self.known.push(start..start + length);
            }
            Chunk::Known(number) => {
                let earlier = self.known.get(number as usize).ok_or("a chunk that was never there")?;
                self.bytes.extend_from_within(earlier.clone());
            }
        }
        // Checked after each chunk: a small archive could otherwise fill the memory.
        if self.bytes.len() as u64 > self.length { Err("more than it says".to_string()) } else { Ok(()) }
    }
}

fn unpack(packed: &[u8], length: u64) -> Result<Vec<u8>, String> {
    if length > LONGEST as u64 {
        return Err(format!("a block of {length} bytes: none is that long"));
    }
    if length == packed.len() as u64 {
        return Ok(packed.to_vec());
    }
    let mut bytes = vec![0; length as usize];
    match decompress_slice_iter_to_slice(&mut bytes, [packed].into_iter(), false, true) {
        Ok(count) if count == bytes.len() => Ok(bytes),
        result => Err(format!("a block of {length} bytes cannot be unpacked: {result:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn archive() -> Vec<u8> {
        let mut archive = Vec::new();
        begin(&mut archive, 10);
        add(&mut archive, [Chunk::New(3), Chunk::New(2), Chunk::Known(0)].into_iter(), 5, b"abcde");
        add(&mut archive, [Chunk::Known(1)].into_iter(), 0, b"");
        archive
    }

    #[test]
    fn chunks_are_restored_in_their_order() {
        assert_eq!(restore(&archive()).unwrap(), b"abcdeabcde");
        let mut empty = Vec::new();
        begin(&mut empty, 0);
        assert_eq!(restore(&empty).unwrap(), b"");
    }

    #[test]
    fn damage_is_reported() {
        let error = |archive: &[u8]| restore(archive).unwrap_err();
        assert!(error(b"PK\x03\x04 something").contains("not an archive"));
        for length in 0..archive().len() {
            assert!(restore(&archive()[..length]).is_err(), "{length} bytes of it");
        }
        let mut unknown = archive();
        let end = unknown.len();
        unknown[end - 8] = 9;
        assert!(error(&unknown).contains("never there"));
        let mut long = archive();
        long[8 + 8 + 8..][..8].fill(0x7f);
        assert!(error(&long).contains("none is that long"));
    }

    proptest! {
        /// Damage ends in an error or in other bytes, never in anything worse.
        #[test]
        fn a_damaged_archive_does_no_harm(at in 0..archive().len(), byte: u8) {
            let mut damaged = archive();
            damaged[at] = byte;
            let _ = restore(&damaged);
        }
    }
}

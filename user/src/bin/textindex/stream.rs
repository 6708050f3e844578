//! A file that is read through a buffer of its own, as the C library's streams do it. The buffer is mapped
//! when the file is opened and unmapped when it is closed.

use programs::buffer::Buffer;
use programs::words::{in_word, words};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// An open file with its buffer.
pub struct Stream<R> {
    source: R,
    buffer: Buffer,
}

impl Stream<File> {
    /// Opens a file, with a buffer of `room` bytes.
    pub fn open(path: &Path, room: usize) -> io::Result<Stream<File>> {
        Ok(Stream { source: File::open(path)?, buffer: Buffer::new(room) })
    }
}

impl<R: Read> Stream<R> {
    /// Calls `found` with every word, in lower case, and its position. Returns the number of bytes. A word
    /// longer than the buffer counts as several words.
    pub fn for_each_word(mut self, mut found: impl FnMut(usize, &[u8])) -> io::Result<usize> {
        let (mut start, mut kept) = (0, 0);
        loop {
            let count = self.source.read(&mut self.buffer[kept..])?;
            self.buffer[kept..kept + count].make_ascii_lowercase();
            let length = kept + count;
            let whole = if count == 0 { length } else { self.whole(length) };
            words(&self.buffer, 0..whole).for_each(|(at, word)| found(start + at, word));
            if count == 0 {
                return Ok(start + length);
            }
            // The next piece begins with the word that this one breaks off.
            self.buffer.copy_within(whole..length, 0);
            (start, kept) = (start + whole, length - whole);
        }
    }

    /// Returns how many of the bytes read are words that have ended, or fill the buffer.
    fn whole(&self, length: usize) -> usize {
        let open = self.buffer[..length].iter().rev().take_while(|byte| in_word(**byte)).count();
        if open == self.buffer.len() { length } else { length - open }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a few bytes at a time.
    struct Trickle<'a>(&'a [u8], usize);

    impl Read for Trickle<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(buffer.len());
            self.0.read(&mut buffer[..count])
        }
    }

    fn found(text: &[u8], room: usize, piece: usize) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        let stream = Stream { source: Trickle(text, piece), buffer: Buffer::new(room) };
        let word = |word: &[u8]| String::from_utf8(word.to_vec()).unwrap();
        let bytes = stream.for_each_word(|at, bytes| found.push((at, word(bytes)))).unwrap();
        assert_eq!(bytes, text.len());
        found
    }

    #[test]
    fn words_are_whole_wherever_pieces_end() {
        let text = "Let naïve = words(1024)\n  .map(|word| Word)".as_bytes();
        let lower = text.to_ascii_lowercase();
        let expected: Vec<_> = words(&lower, 0..lower.len())
            .map(|(at, word)| (at, String::from_utf8(word.to_vec()).unwrap()))
            .collect();
        for (room, piece) in [(4096, 4096), (4096, 1), (7, 3), (6, 6), (8, 100)] {
            assert_eq!(found(text, room, piece), expected, "{piece} bytes at a time to {room}");
        }
    }

    #[test]
    fn a_long_word_ends_with_the_buffer() {
        let parts = [(0, "aaaa".to_string()), (4, "aaaa".to_string()), (8, "aa".to_string())];
        assert_eq!(found(b"aaaaaaaaaa", 4, 3), parts);
        assert!(found(b"", 4, 3).is_empty());
    }
}

//! Writes a file to standard output, so that a host can read a file of a guest's kernel, such as
//! `/proc/kallsyms`.

use programs::args::options;
use programs::require;
use std::fs::File;
use std::io::{self, Read, Write};

const USAGE: &str = "usage: show FILE\nWrites FILE to standard output.";

/// Bytes read at a time.
const CHUNK: usize = 64 << 10;

fn main() {
    let path = options(USAGE, |mut args| {
        let path = args.word().ok_or("no file: name one")?;
        args.end().map(|()| path)
    });
    let file = require(File::open(&path), &path);
    require(copy(file, io::stdout().lock()), &path);
}

/// Copies byte for byte, by read and write only: files that a kernel generates support no other calls.
fn copy(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    loop {
        match from.read(&mut buffer)? {
            0 => return to.flush(),
            count => to.write_all(&buffer[..count])?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_arrives() {
        let bytes: Vec<u8> = (0..3 * CHUNK + 7).map(|at| at as u8).collect();
        let mut copied = Vec::new();
        copy(&bytes[..], &mut copied).unwrap();
        assert_eq!(copied, bytes);
    }
}

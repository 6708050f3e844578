//! The program's stdin, as it comes from the host: frames of a little-endian 16-bit length and that many
//! bytes. Length 0 is the end of the file.

use std::io::{self, Read, Write};
use std::sync::mpsc;
use std::thread;

/// Moves bytes until the end of the file, which the program sees when `to` is dropped.
///
/// The serial line has no flow control: what nobody reads is lost. So frames are read as they come, whether
/// the program listens or not, and wait in a queue.
pub fn feed(mut from: impl Read, to: impl Write + Send) {
    let (queue, waiting) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || deliver(waiting, to));
        while let Ok(Some(bytes)) = frame(&mut from) {
            let _nobody_listens = queue.send(bytes);
        }
        drop(queue);
    });
}

fn deliver(waiting: mpsc::Receiver<Vec<u8>>, mut to: impl Write) {
    for bytes in waiting {
        if to.write_all(&bytes).is_err() {
            return;
        }
    }
}

/// The bytes of one frame; None at the end of the file.
fn frame(from: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 2];
    from.read_exact(&mut length)?;
    let mut bytes = vec![0; u16::from_le_bytes(length).into()];
    from.read_exact(&mut bytes)?;
    Ok(Some(bytes).filter(|bytes| !bytes.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_all_frames_arrive_up_to_the_empty_one() {
        let mut program = Vec::new();
        feed(&b"\x03\x00abc\x01\x00d\x00\x00\x01\x00x"[..], &mut program);
        assert_eq!(program, b"abcd");
    }

    #[test]
    fn frames_are_read_even_if_the_program_does_not_listen() {
        let mut line = &b"\x03\x00abc\x01\x00d\x00\x00"[..];
        feed(&mut line, &mut [0u8; 1][..]);
        assert!(line.is_empty());
    }
}

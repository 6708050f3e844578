//! The program's stdin, as it comes from the host: frames of a little-endian 16-bit length and that many
//! bytes. Length 0 is the end of the file. The host sends one frame each time it is asked, so that the serial
//! port, which has no way to say "wait", is never flooded.

use std::io::{self, Read, Write};

/// Moves bytes until the end of the file, which the program sees when `to` is dropped, or until the program
/// reads no more. `ask` asks the host for a frame.
pub fn feed(mut ask: impl FnMut(), mut from: impl Read, mut to: impl Write) {
    ask();
    while let Ok(Some(bytes)) = frame(&mut from) {
        if to.write_all(&bytes).is_err() {
            return;
        }
        ask();
    }
}

/// Returns the bytes of one frame, or `None` at the end of the file.
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
    fn bytes_of_all_frames_arrive_up_to_the_empty_one_and_each_is_asked_for() {
        let (mut asked, mut program) = (0, Vec::new());
        feed(|| asked += 1, &b"\x03\x00abc\x01\x00d\x00\x00\x01\x00x"[..], &mut program);
        assert_eq!((asked, program), (3, b"abcd".to_vec()));
    }

    #[test]
    fn nothing_is_asked_for_a_program_that_does_not_listen() {
        let mut asked = 0;
        feed(|| asked += 1, &b"\x03\x00abc\x01\x00d\x00\x00"[..], &mut [0u8; 1][..]);
        assert_eq!(asked, 1);
    }
}

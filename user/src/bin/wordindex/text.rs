//! The input: all files in one piece of memory, in lower case. The position of a word is its offset in the
//! whole input.

use programs::memory::{self, READ_WRITE};
use programs::require;
use programs::words::in_word;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;

/// Reads the files one after the other, repeats all of it `repeat` times, and adds a line end after each
/// file.
pub fn load(files: &[String], repeat: usize) -> io::Result<&'static [u8]> {
    let mut files = files.iter().map(|path| open(path)).collect::<io::Result<Vec<_>>>()?;
    let once: usize = files.iter().map(|(_, length)| length + 1).sum();
    let text = room(once * repeat);
    let mut place = 0;
    for (file, length) in &mut files {
        file.read_exact(&mut text[place..place + *length])?;
        text[place + *length] = b'\n';
        place += *length + 1;
    }
    text[..once].make_ascii_lowercase();
    (1..repeat).for_each(|copy| text.copy_within(..once, copy * once));
    Ok(text)
}

fn open(path: &str) -> io::Result<(File, usize)> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{path}: {error}"));
    let file = File::open(path).map_err(named)?;
    let length = file.metadata().map_err(named)?.len() as usize;
    Ok((file, length))
}

/// Maps fresh memory that is never unmapped.
fn room(length: usize) -> &'static mut [u8] {
    let address = require(memory::map(length, READ_WRITE), "mmap of the input");
    // SAFETY: the memory is fresh and zeroed, nothing else refers to it, and it stays mapped for ever.
    unsafe { std::slice::from_raw_parts_mut(address as *mut u8, length) }
}

/// Divides the text into `count` parts of about the same length, never within a word.
pub fn parts(text: &[u8], count: usize) -> Vec<Range<usize>> {
    let cut = |at: usize| at + text[at..].iter().take_while(|byte| in_word(**byte)).count();
    let cuts: Vec<usize> = (0..=count).map(|part| text.len() * part / count).collect();
    let cut = |at: usize| if at == 0 { 0 } else { cut(at) };
    cuts.windows(2).map(|pair| cut(pair[0])..cut(pair[1])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use programs::words::words;

    #[test]
    fn parts_cover_the_text_and_never_cut_a_word() {
        let text = b"the quick brown fox jumps over averyveryverylongword and the dog";
        let all: Vec<_> = words(text, 0..text.len()).collect();
        for count in 1..80 {
            let parts = parts(text, count);
            assert_eq!(parts.len(), count);
            let found: Vec<_> = parts.into_iter().flat_map(|part| words(text, part)).collect();
            assert_eq!(found, all, "{count} parts");
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        assert!(load(&["/no/such".to_string()], 1).unwrap_err().to_string().contains("/no/such"));
    }
}

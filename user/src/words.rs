//! Words of a text: runs of ASCII letters and digits and of bytes beyond ASCII.

use std::ops::Range;

/// Returns the words of a part of the text, with their positions in the text.
pub fn words(text: &[u8], part: Range<usize>) -> impl Iterator<Item = (usize, &[u8])> {
    let mut at = part.start;
    std::iter::from_fn(move || {
        at += text[at..part.end].iter().take_while(|byte| !in_word(**byte)).count();
        let length = text[at..part.end].iter().take_while(|byte| in_word(**byte)).count();
        let word = (at, &text[at..at + length]);
        at += length;
        (length > 0).then_some(word)
    })
}

/// Returns whether a byte is part of a word.
pub fn in_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || !byte.is_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_the_positions_of_the_whole_text() {
        let text = "on, naïve x2\n".as_bytes();
        let found: Vec<_> = words(text, 2..text.len()).collect();
        assert_eq!(found, [(4, "naïve".as_bytes()), (11, b"x2")]);
        assert_eq!(words(b" ,. ", 0..4).count(), 0);
    }
}

//! The contents of a page: zeros (version 0), or 512 words that each name their place and their version.
//!
//! The low half of a word depends on the page and on the place in it, so a misplaced word is noticed. The
//! high half is the version. A reader without the lock cannot know the version, and may see a word half
//! written, but every byte of the low half must be zero or the one that belongs there.

use programs::memory::PAGE;
use programs::random::mix;

/// Number of words per page.
pub const WORDS: usize = PAGE / 8;
/// The contents of a page.
pub type Words = [u64; WORDS];

/// Returns the word at `index` of a page.
pub fn word(page: usize, index: usize, version: u32) -> u64 {
    if version == 0 { 0 } else { u64::from(version) << 32 | tag(page, index) }
}

/// Returns the contents of a page of this version.
pub fn words(page: usize, version: u32) -> Words {
    std::array::from_fn(|index| word(page, index, version))
}

/// Returns whether the word is possible while another thread writes the page, or zeroes it.
pub fn plausible(page: usize, index: usize, found: u64) -> bool {
    let right = tag(page, index).to_le_bytes();
    found.to_le_bytes().iter().zip(right).take(4).all(|(found, right)| *found == 0 || *found == right)
}

fn tag(page: usize, index: usize) -> u64 {
    mix((page * WORDS + index) as u64) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_differ_by_page_place_and_version() {
        let all = [word(1, 2, 3), word(2, 2, 3), word(1, 3, 3), word(1, 2, 4), word(1, 2, 0)];
        assert!((0..5).all(|i| (0..i).all(|j| all[i] != all[j])));
    }

    #[test]
    fn half_written_words_are_plausible_and_strangers_are_not() {
        let (old, new) = (word(5, 7, 1).to_le_bytes(), word(5, 7, 0xabcd_ef01).to_le_bytes());
        for cut in 0..=8 {
            let torn = [&new[..cut], &old[cut..]].concat();
            assert!(plausible(5, 7, u64::from_le_bytes(torn.try_into().unwrap())));
            let torn = [&new[..cut], &[0; 8][cut..]].concat();
            assert!(plausible(5, 7, u64::from_le_bytes(torn.try_into().unwrap())));
        }
        let strangers = (0..WORDS).filter(|index| plausible(5, *index, word(6, *index, 1))).count();
        assert_eq!(strangers, 0);
    }
}

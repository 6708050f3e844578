//! The lines of `/proc/self/maps`, byte by byte.

/// A mapping as Linux lists it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Its first address.
    pub start: u64,
    /// The address behind its last.
    pub end: u64,
    /// Its rights and its kind, as in `rw-p`.
    pub rights: [u8; 4],
    /// Its place in the file.
    pub offset: u64,
    /// The device, as `stat` has it.
    pub device: u64,
    /// The number of the file there, or 0.
    pub number: u64,
    /// Whether it has a name that is not one that the program gave to memory.
    pub is_named: bool,
}

/// The name of anonymous memory to which the program gave one (PR_SET_VMA_ANON_NAME) begins so.
const OF_MEMORY: &[u8] = b"[anon:";

/// A reader of lines.
#[derive(Debug, Default)]
pub struct Reader {
    line: Line,
    /// The number of words before this byte, the bytes of this word, and the number that it is so far.
    word: usize,
    length: usize,
    value: u64,
    major: u64,
    is_of_memory: bool,
}

impl Reader {
    /// Takes a byte. Returns the line that it ends.
    pub fn take(&mut self, byte: u8) -> Option<Line> {
        const NAME: usize = 5;
        match (self.word, byte) {
            (_, b'\n') => {
                self.end_word();
                self.line.is_named = self.word > NAME && !self.is_of_memory;
                return Some(core::mem::take(self).line);
            }
            (NAME, b' ') if self.length == 0 => {}
            (NAME, _) => {
                let is_like = self.length == 0 || self.is_of_memory;
                self.is_of_memory = is_like && OF_MEMORY.get(self.length).is_none_or(|like| *like == byte);
                self.length += 1;
            }
            (_, b' ') => self.end_word(),
            (0, b'-') => self.line.start = core::mem::take(&mut self.value),
            (3, b':') => self.major = core::mem::take(&mut self.value),
            (1, _) => {
                if let Some(place) = self.line.rights.get_mut(self.length) {
                    *place = byte;
                }
                self.length += 1;
            }
            (4, _) => self.add_digit(byte, 10),
            _ => self.add_digit(byte, 16),
        }
        None
    }

    fn add_digit(&mut self, byte: u8, base: u32) {
        let digit = char::from(byte).to_digit(base).unwrap_or(0);
        self.value = self.value.wrapping_mul(base.into()).wrapping_add(digit.into());
        self.length += 1;
    }

    fn end_word(&mut self) {
        if self.length == 0 {
            return;
        }
        let value = core::mem::take(&mut self.value);
        match self.word {
            0 => self.line.end = value,
            2 => self.line.offset = value,
            3 => self.line.device = device(self.major, value),
            4 => self.line.number = value,
            _ => {}
        }
        self.word += 1;
        self.length = 0;
    }
}

/// Returns a device as `stat` has it.
fn device(major: u64, minor: u64) -> u64 {
    minor & 0xff | major << 8 | (minor & !0xff) << 12
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    fn read(text: &str) -> Vec<Line> {
        let mut reader = Reader::default();
        text.bytes().filter_map(|byte| reader.take(byte)).collect()
    }

    #[test]
    fn lines_are_read() {
        let lines = read(
            "7f1c2a000000-7f1c2a021000 rw-p 00000000 00:00 0 \n\
             7f1c2a021000-7f1c2e000000 ---p 00001000 fe:101 5242907                    /usr/lib/x (deleted)\n\
             7ffd1000-7ffd2000 rw-p 00000000 00:00 0                          [heap]\n\
             7ffd3000-7ffd4000 rw-s 00000000 00:00 0                          [anon:mine]\n",
        );
        let first =
            Line { start: 0x7f1c_2a00_0000, end: 0x7f1c_2a02_1000, rights: *b"rw-p", ..Line::default() };
        assert_eq!(lines[0], first);
        let Line { offset, device, number, is_named, rights, .. } = lines[1];
        assert_eq!((offset, number, is_named, &rights), (0x1000, 5_242_907, true, b"---p"));
        assert_eq!(device, 0x10_fe01);
        assert_eq!((lines[2].is_named, lines[3].is_named, lines.len()), (true, false, 4));
    }

    /// The list of this process has lines that follow each other, and the device and number of its program.
    #[test]
    fn the_list_of_this_process_is_read() {
        use std::os::unix::fs::MetadataExt;
        let lines = read(&std::fs::read_to_string("/proc/self/maps").unwrap());
        assert!(lines.windows(2).all(|pair| pair[0].start < pair[0].end && pair[0].end <= pair[1].start));
        let program = std::fs::metadata("/proc/self/exe").unwrap();
        assert!(lines.iter().any(|line| (line.device, line.number) == (program.dev(), program.ino())));
        let local = 0_u8;
        let at = &raw const local as u64;
        assert!(lines.iter().any(|line| line.start <= at && at < line.end && line.rights == *b"rw-p"));
    }
}

//! Lines of `/proc/self/maps`.

/// A mapping of code of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code<'a> {
    /// The first address.
    pub start: u64,
    /// The address after the last one.
    pub end: u64,
    /// The `PROT_` bits of `mmap`.
    pub protection: u64,
    /// Where it begins in the file.
    pub offset: u64,
    /// The file's path.
    pub path: &'a [u8],
}

/// Returns what a line says, without its end, if it is about code that was mapped privately from a file which
/// still has a path.
pub fn parse(line: &[u8]) -> Option<Code<'_>> {
    let mut words = line.splitn(6, |byte| *byte == b' ');
    let mut word = || words.next();
    let (range, rights, offset, _, _, rest) = (word()?, word()?, word()?, word()?, word()?, word()?);
    let dash = range.iter().position(|byte| *byte == b'-')?;
    let has = |index: usize, letter: u8| rights.get(index) == Some(&letter);
    let path = rest.trim_ascii_start();
    if !has(2, b'x') || !has(3, b'p') || !path.starts_with(b"/") || path.ends_with(b" (deleted)") {
        return None;
    }
    let protection = u64::from(has(0, b'r')) | u64::from(has(1, b'w')) << 1 | 4;
    let (start, end) = (hexadecimal(&range[..dash])?, hexadecimal(&range[dash + 1..])?);
    Some(Code { start, end, protection, offset: hexadecimal(offset)?, path })
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(core::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn this_test_has_code_of_a_file() {
        let maps = std::fs::read("/proc/self/maps").unwrap();
        let here = this_test_has_code_of_a_file as fn() as usize as u64;
        let mut codes = maps.split(|byte| *byte == b'\n').filter_map(parse);
        let own = codes.find(|code| (code.start..code.end).contains(&here)).unwrap();
        let path = std::fs::read_link("/proc/self/exe").unwrap();
        assert_eq!((own.path, own.protection), (path.to_str().unwrap().as_bytes(), 5));
        assert!(here - own.start + own.offset < std::fs::metadata(path).unwrap().len());
    }

    #[test]
    fn other_lines_are_not_code_of_a_file() {
        let code: &[u8] = b"7f01-7f02 r-xp 00026000 fd:00 131  /lib/a b.so";
        let seen = Code { start: 0x7f01, end: 0x7f02, protection: 5, offset: 0x26000, path: b"/lib/a b.so" };
        assert_eq!(parse(code), Some(seen));
        let others: [&[u8]; 7] = [
            b"7f01-7f02 r--p 00026000 fd:00 131  /lib/a.so",
            b"7f01-7f02 r-xs 00026000 fd:00 131  /lib/a.so",
            b"7f01-7f02 r-xp 00026000 fd:00 131  /lib/a.so (deleted)",
            b"7f01-7f02 r-xp 00000000 00:00 0  [vdso]",
            b"7f01-7f02 r-xp 00000000 00:00 0 ",
            b"7f01 r-xp 00026000 fd:00 131  /lib/a.so",
            b"",
        ];
        assert!(others.iter().all(|line| parse(line).is_none()));
    }
}

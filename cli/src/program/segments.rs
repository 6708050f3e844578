//! Whether the parts of a program to load fit its file and the address space, as the kernel will ask.

use object::Endianness;
use object::elf::{PT_LOAD, ProgramHeader64};
use object::read::elf::ProgramHeader;

const PAGE: u64 = 4096;
/// Where a program's addresses begin and end.
const USER: (u64, u64) = (64 << 10, 0x7fff_ffff_f000);
/// Where a position-independent program goes.
const PIE_BASE: u64 = 0x5555_5555_4000;

/// A part to load, and its place among the program headers.
struct Segment {
    number: usize,
    offset: u64,
    address: u64,
    file_size: u64,
    memory_size: u64,
}

/// Says which segment cannot be loaded from a file of `length` bytes, and why.
pub fn check(
    headers: &[ProgramHeader64<Endianness>],
    endian: Endianness,
    length: u64,
    position_independent: bool,
) -> Result<(), String> {
    let bias = if position_independent { PIE_BASE } else { 0 };
    let mut loads =
        headers.iter().enumerate().filter(|(_, header)| header.p_type(endian) == PT_LOAD).peekable();
    if loads.peek().is_none() {
        return Err("a damaged ELF file: it has no segment to load".to_owned());
    }
    loads.map(|(number, header)| Segment::new(number, header, endian)).try_for_each(|segment| {
        let named = |why: String| format!("a damaged ELF file: segment {} {why}", segment.number);
        segment.fits_file(length).and_then(|()| segment.fits_space(bias)).map_err(named)
    })
}

impl Segment {
    fn new(number: usize, header: &ProgramHeader64<Endianness>, endian: Endianness) -> Self {
        Segment {
            number,
            offset: header.p_offset(endian),
            address: header.p_vaddr(endian),
            file_size: header.p_filesz(endian),
            memory_size: header.p_memsz(endian),
        }
    }

    fn fits_file(&self, length: u64) -> Result<(), String> {
        match self.offset.checked_add(self.file_size) {
            Some(end) if end <= length => {}
            Some(end) => {
                return Err(format!("ends at byte {end} of the file, which has {length}: is it whole?"));
            }
            None => return Err("ends beyond every file".to_owned()),
        }
        match self.file_size <= self.memory_size {
            true => Ok(()),
            false => Err("has more bytes in the file than in memory".to_owned()),
        }
    }

    fn fits_space(&self, bias: u64) -> Result<(), String> {
        if self.offset % PAGE != self.address % PAGE {
            let (offset, address) = (self.offset, self.address);
            return Err(format!(
                "is at {address:#x} and at byte {offset:#x} of the file: no page boundary fits both"
            ));
        }
        let start = self.address.checked_add(bias);
        let range = start.and_then(|start| Some((start, start.checked_add(self.memory_size)?)));
        match range {
            Some((start, end)) if self.memory_size == 0 || start >= USER.0 && end <= USER.1 => Ok(()),
            _ => Err(format!("has the address {:#x}, outside of what a program may use", self.address)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A good one: two pages of a file of 0x3000 bytes, and a third page of zeroes.
    const GOOD: Segment =
        Segment { number: 3, offset: 0x1000, address: 0x40_1000, file_size: 0x2000, memory_size: 0x3000 };

    fn why(segment: &Segment, bias: u64) -> String {
        segment.fits_file(0x3000).and_then(|()| segment.fits_space(bias)).err().unwrap_or_default()
    }

    #[test]
    fn a_whole_file_passes_and_a_shorter_one_does_not() {
        assert_eq!(why(&GOOD, 0), "");
        assert!(GOOD.fits_file(0x2fff).unwrap_err().contains("byte 12288 of the file, which has 12287"));
        assert!(why(&Segment { file_size: u64::MAX, memory_size: u64::MAX, ..GOOD }, 0).contains("beyond"));
        assert!(why(&Segment { memory_size: 0x1fff, ..GOOD }, 0).contains("more bytes in the file"));
    }

    #[test]
    fn addresses_lie_in_user_space() {
        assert!(why(&Segment { address: 0x40_1001, ..GOOD }, 0).contains("page boundary"));
        for address in [0, 0xf000, 0x7fff_ffff_d000, 0xffff_8000_0000_0000, !0xfff] {
            let segment = Segment { address, ..GOOD };
            assert!(why(&segment, 0).contains(&format!("address {address:#x}, outside")), "{address:#x}");
        }
        assert_eq!(why(&Segment { address: 0x7fff_ffff_c000, ..GOOD }, 0), "");
        assert_eq!(why(&Segment { address: 0x1_0000, ..GOOD }, 0), "");
        assert_eq!(why(&Segment { address: 0, ..GOOD }, PIE_BASE), "");
        assert!(why(&Segment { address: 0x7fff_ffff_c000, ..GOOD }, PIE_BASE).contains("outside"));
    }
}

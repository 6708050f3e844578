//! Where functions begin and end, from the unwind information.
//!
//! Only from the start of an instruction can code be decoded, and a linear sweep of a whole library
//! loses its way in tables between functions. `.eh_frame_hdr` is a sorted table of all functions that
//! have unwind information, and the entry in `.eh_frame` has the length. Static programs have no such
//! table. There the section `.eh_frame` is searched. The encodings are those that GNU and LLVM linkers
//! write. Files with others have no known functions.

use crate::elf::{Headers, PT_GNU_EH_FRAME, Segment};
use crate::{i32_at, u16_at, u32_at, u64_at};

/// The functions of a file.
#[derive(Clone, Copy)]
pub struct Functions<'a> {
    file: &'a [u8],
    headers: Headers<'a>,
    index: Index,
}

/// How functions are found.
#[derive(Clone, Copy)]
enum Index {
    /// By `.eh_frame_hdr`, with this number of entries.
    Table(Segment, u64),
    /// By the section `.eh_frame`.
    Section(Section),
}

/// A section of the file.
#[derive(Clone, Copy, Debug)]
struct Section {
    address: u64,
    offset: u64,
    size: u64,
}

/// The surroundings of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a function.
    Function(Function),
    /// Between functions, after the end of this one. `None` if there is none before.
    After(Option<Function>),
}

/// A function as addresses before relocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// The first instruction.
    pub start: u64,
    /// The end of the last one.
    pub end: u64,
}

/// `.eh_frame_hdr`'s head: version 1, a pointer relative to itself, a count of 32 bits, a table of
/// 32-bit offsets from the head.
const KNOWN_HEAD: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
const HEAD: u64 = 12;
const ENTRY: u64 = 8;

impl<'a> Functions<'a> {
    /// Finds the unwind information of a file.
    pub fn of(file: &'a [u8], headers: Headers<'a>) -> Option<Self> {
        let index = table(file, headers).or_else(|| section(file).map(Index::Section))?;
        Some(Functions { file, headers, index })
    }

    /// Returns what an address lies in.
    pub fn place(&self, address: u64) -> Place {
        let before = match self.index {
            Index::Table(..) => {
                self.starts_up_to(address).checked_sub(1).and_then(|last| self.function(last))
            }
            Index::Section(section) => self.search(section, address),
        };
        match before {
            Some(function) if address < function.end => Place::Function(function),
            other => Place::After(other),
        }
    }

    /// Returns the function of a section that covers an address, or else the one that ends last before it.
    fn search(&self, section: Section, address: u64) -> Option<Function> {
        let mut best: Option<Function> = None;
        let mut at = 0;
        while let Some(length @ 4..0xffff_fff0) = u32_at(self.file, section.offset + at)
            && at < section.size
        {
            let is_function = u32_at(self.file, section.offset + at + 4)? != 0;
            if let Some(function) =
                is_function.then(|| self.described(section.address + at, section.offset + at)).flatten()
                && function.start <= address
                && best.is_none_or(|best| best.end < function.end)
            {
                best = Some(function);
                if address < function.end {
                    break;
                }
            }
            at += 4 + u64::from(length);
        }
        best
    }

    /// Returns the bytes between the function that ends last before `address`, or covers it, and the
    /// next one.
    pub fn gap_after(&self, address: u64) -> Option<(u64, u64)> {
        let Index::Table(..) = self.index else { return None };
        let next = self.starts_up_to(address);
        let end = self.function(next.checked_sub(1)?)?.end;
        Some((end, self.start(next)?)).filter(|(end, next)| end < next)
    }

    /// Returns the number of functions that start at or before an address.
    fn starts_up_to(&self, address: u64) -> u64 {
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.start(middle) {
                Some(start) if start <= address => low = middle + 1,
                _ => high = middle,
            }
        }
        low
    }

    fn count(&self) -> u64 {
        match self.index {
            Index::Table(_, count) => count,
            Index::Section(_) => 0,
        }
    }

    fn start(&self, index: u64) -> Option<u64> {
        self.entry(index, 0)
    }

    /// Returns one of the two addresses of an entry: the function's (0), or its unwind information's (4).
    fn entry(&self, index: u64, word: u64) -> Option<u64> {
        let Index::Table(table, count) = self.index else { return None };
        let offset = i32_at(self.file, table.offset + HEAD + index * ENTRY + word)?;
        (index < count).then(|| table.address.wrapping_add_signed(offset.into()))
    }

    fn function(&self, index: u64) -> Option<Function> {
        let (start, information) = (self.start(index)?, self.entry(index, 4)?);
        let function = self.described(information, self.offset_of(information)?)?;
        (function.start == start).then_some(function)
    }

    /// Reads the function that an entry of `.eh_frame` is about, if its common part says that it is
    /// encoded as distances of 32 bits.
    fn described(&self, information: u64, offset: u64) -> Option<Function> {
        let common = (offset + 4).checked_sub(u32_at(self.file, offset + 4)?.into())?;
        if !has_known_encoding(self.file, common)? {
            return None;
        }
        let start = information.wrapping_add(8).wrapping_add_signed(i32_at(self.file, offset + 8)?.into());
        let length = u64::from(u32_at(self.file, offset + 12)?);
        Some(Function { start, end: start.checked_add(length)? })
    }

    fn offset_of(&self, address: u64) -> Option<u64> {
        let holds = |load: &Segment| load.address <= address && address - load.address < load.file_size;
        let load = self.headers.loads().find(holds)?;
        Some(load.offset + (address - load.address))
    }
}

fn table(file: &[u8], headers: Headers<'_>) -> Option<Index> {
    let table = headers.find(PT_GNU_EH_FRAME)?;
    let at = usize::try_from(table.offset).ok()?;
    let is_known = file.get(at..)?.starts_with(&KNOWN_HEAD);
    let count = u64::from(u32_at(file, table.offset + 8)?);
    let fits = HEAD + count * ENTRY <= table.file_size;
    (is_known && fits).then_some(Index::Table(table, count))
}

/// Finds the section `.eh_frame`.
fn section(file: &[u8]) -> Option<Section> {
    const SIZE: u64 = 64;
    let (sections, count) = (u64_at(file, 40)?, u64::from(u16_at(file, 60)?));
    let names = u64_at(file, sections + u64::from(u16_at(file, 62)?) * SIZE + 24)?;
    (0..count).map(|index| sections + index * SIZE).find_map(|header| {
        let name = usize::try_from(names + u64::from(u32_at(file, header)?)).ok()?;
        let word = |offset| u64_at(file, header + offset);
        let section = Section { address: word(16)?, offset: word(24)?, size: word(32)? };
        file.get(name..)?.starts_with(b".eh_frame\0").then_some(section)
    })
}

/// Returns whether the common part of entries says that functions are distances of 32 bits: its
/// augmentation begins with a length (`z`), and `R` gives the encoding.
fn has_known_encoding(file: &[u8], common: u64) -> Option<bool> {
    const DISTANCE: u8 = 0x1b;
    const VERSION: u64 = 8;
    let at = usize::try_from(common + VERSION).ok()?;
    let text = file.get(at + 1..)?;
    let end = text.iter().take(8).position(|byte| *byte == 0)?;
    let (augmentation, rest) = (text[..end].strip_prefix(b"z")?, &text[end + 1..]);
    // Two factors and a register of a byte each, as on x86-64, and the length.
    let mut data = rest.get(4..)?;
    for letter in augmentation {
        match letter {
            b'R' => return Some(*data.first()? == DISTANCE),
            b'L' => data = data.get(1..)?,
            // The encoding and a pointer of 32 or 64 bits.
            b'P' => data = data.get(if data.first()? & 0x0f == 0x0b { 5 } else { 9 }..)?,
            b'S' => {}
            _ => return Some(false),
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn this_test_has_functions_in_order() {
        let file = std::fs::read("/proc/self/exe").unwrap();
        let headers = Headers::parse(&file[..crate::elf::HEAD]).unwrap();
        let functions = Functions::of(&file, headers).unwrap();
        assert!(functions.count() > 100);
        let by_section = Functions { index: Index::Section(section(&file).unwrap()), ..functions };
        let mut known = 0;
        for index in 0..functions.count() - 1 {
            let function = functions.function(index).unwrap();
            assert!(function.start <= function.end && function.start < functions.start(index + 1).unwrap());
            if function.start < function.end {
                assert_eq!(functions.place(function.start), Place::Function(function));
                assert_eq!(functions.place(function.end - 1), Place::Function(function));
                known += 1;
            }
            if index % 97 == 0 {
                assert_eq!(by_section.place(function.start), functions.place(function.start));
                assert_eq!(by_section.place(function.end), functions.place(function.end));
            }
        }
        assert!(known > 100);
        assert_eq!(functions.place(0), Place::After(None));
    }
}

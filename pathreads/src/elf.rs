//! Headers of ELF files, as far as loading a program needs them.

use crate::{RUNTIME_END, SLOTS_BASE, page_end, page_start, u16_at, u32_at, u64_at};

/// The size of a file's first part that [`Headers::parse`] needs: the header and the program headers.
pub const HEAD: usize = 4096;

/// A part of the file that is mapped.
pub const PT_LOAD: u32 = 1;
/// The path of the program's interpreter.
pub const PT_INTERP: u32 = 3;
/// A segment of notes.
pub const PT_NOTE: u32 = 4;
/// The program headers themselves.
pub const PT_PHDR: u32 = 6;
/// The index of the unwind information.
pub const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
/// The permissions of the stack.
pub const PT_GNU_STACK: u32 = 0x6474_e551;

/// The size of one program header.
pub const PHENT: u64 = 56;

/// The headers of a program or a library for x86-64.
#[derive(Clone, Copy)]
pub struct Headers<'a> {
    head: &'a [u8],
    /// Whether it is linked for fixed addresses.
    pub is_fixed: bool,
    /// The address of the first instruction, before relocation.
    pub entry: u64,
    phoff: u64,
    /// The number of program headers.
    pub count: u64,
}

/// A program header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// `PT_LOAD` and the like.
    pub kind: u32,
    /// 1 execute, 2 write, 4 read.
    pub flags: u32,
    /// The offset in the file.
    pub offset: u64,
    /// The address, before relocation.
    pub address: u64,
    /// The bytes in the file.
    pub file_size: u64,
    /// The bytes in memory. Those that the file does not have are zero.
    pub memory_size: u64,
    /// The alignment of the address.
    pub align: u64,
}

impl Segment {
    /// Returns the `PROT_` bits of `mmap`.
    pub const fn protection(&self) -> u64 {
        ((self.flags >> 2 & 1) | (self.flags & 2) | (self.flags & 1) << 2) as u64
    }
}

impl<'a> Headers<'a> {
    /// Reads the headers from the first bytes of a file. Returns `None` if it is not an ELF file for x86-64
    /// whose program headers lie in these bytes.
    pub fn parse(head: &'a [u8]) -> Option<Self> {
        let is_elf64 = head.starts_with(b"\x7fELF\x02\x01");
        let (kind, machine) = (u16_at(head, 16)?, u16_at(head, 18)?);
        if !is_elf64 || !matches!(kind, 2 | 3) || machine != 62 || u64::from(u16_at(head, 54)?) != PHENT {
            return None;
        }
        let (phoff, count) = (u64_at(head, 32)?, u64::from(u16_at(head, 56)?));
        let end = phoff.checked_add(count * PHENT)?;
        let headers = Headers { head, is_fixed: kind == 2, entry: u64_at(head, 24)?, phoff, count };
        (end <= head.len() as u64 && headers.span().is_some()).then_some(headers)
    }

    /// Returns the program headers.
    pub fn segments(self) -> impl Iterator<Item = Segment> + use<'a> {
        (0..self.count).filter_map(move |index| self.segment(index))
    }

    /// Returns the first program header of a kind.
    pub fn find(self, kind: u32) -> Option<Segment> {
        self.segments().find(|segment| segment.kind == kind)
    }

    /// Returns the parts to map, in the order of the file.
    pub fn loads(self) -> impl Iterator<Item = Segment> + use<'a> {
        self.segments().filter(|segment| segment.kind == PT_LOAD && segment.memory_size > 0)
    }

    /// Returns the first part to map if it can be mapped over all parts, before the others are mapped over
    /// it: it can be read only, all of it is in the file, and there is nothing between the parts.
    pub fn first_over_all(self) -> Option<Segment> {
        let first = self.loads().next()?;
        let is_plain = first.flags == 4 && first.file_size == first.memory_size && first.file_size > 0;
        let mut end = page_end(first.address + first.memory_size);
        let is_dense = self.loads().skip(1).all(|next| {
            let follows = page_start(next.address) == end;
            end = page_end(next.address + next.memory_size);
            follows
        });
        (is_plain && is_dense && self.align() == crate::PAGE).then_some(first)
    }

    fn segment(self, index: u64) -> Option<Segment> {
        let (at, head) = (self.phoff + index * PHENT, self.head);
        let word = |offset| u64_at(head, at + offset);
        Some(Segment {
            kind: u32_at(head, at)?,
            flags: u32_at(head, at + 4)?,
            offset: word(8)?,
            address: word(16)?,
            file_size: word(32)?,
            memory_size: word(40)?,
            align: word(48)?,
        })
    }

    /// Returns the first page and the end of the last one, before relocation, if there is anything to map and
    /// the sizes make sense.
    pub fn span(self) -> Option<(u64, u64)> {
        let limit = 1 << 47;
        let mut span: Option<(u64, u64)> = None;
        for load in self.loads() {
            let end = load.address.checked_add(load.memory_size).filter(|end| *end <= limit)?;
            load.offset.checked_add(load.file_size)?;
            if load.file_size > load.memory_size || (load.offset ^ load.address) % crate::PAGE != 0 {
                return None;
            }
            let (from, to) = (page_start(load.address), page_end(end));
            span = Some(span.map_or((from, to), |(first, last)| (first.min(from), last.max(to))));
        }
        span
    }

    /// Returns whether it is linked for addresses that the runtime has itself.
    pub fn takes_runtime_addresses(self) -> bool {
        self.is_fixed && self.span().is_some_and(|(first, end)| first < RUNTIME_END && SLOTS_BASE < end)
    }

    /// Returns the largest alignment of a segment, at least a page.
    pub fn align(self) -> u64 {
        let sane = |align: &u64| align.is_power_of_two() && *align <= 1 << 30;
        self.loads().map(|load| load.align).filter(sane).fold(crate::PAGE, u64::max)
    }

    /// Returns the address of the program headers in memory, before relocation.
    pub fn phdr(self) -> Option<u64> {
        if let Some(own) = self.find(PT_PHDR) {
            return Some(own.address);
        }
        let holds = |load: &Segment| load.offset <= self.phoff && self.phoff - load.offset < load.file_size;
        self.loads().find(holds).map(|load| load.address + (self.phoff - load.offset))
    }
}

/// The dynamic section.
pub const PT_DYNAMIC: u32 = 2;

/// The most bytes of a dynamic section that [`Dynamic`] is asked about.
pub const MOST_OF_DYNAMIC: usize = 1024;

/// A dynamic section, as far as it is about names. Numbers are offsets in the strings.
#[derive(Clone, Copy)]
pub struct Dynamic<'a>(pub &'a [u8]);

impl<'a> Dynamic<'a> {
    const NEEDED: u64 = 1;
    const STRINGS: u64 = 5;
    const NAME: u64 = 14;
    const RPATH: u64 = 15;
    const RUNPATH: u64 = 29;
    const DEPENDENCY_AUDIT: u64 = 0x6fff_fefb;
    const AUDIT: u64 = 0x6fff_fefc;
    const VERSIONS: u64 = 0x6fff_fffc;
    const AUXILIARY: u64 = 0x7fff_fffd;
    const FILTER: u64 = 0x7fff_ffff;

    fn entries(self) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        let entry = move |index: u64| Some((u64_at(self.0, index * 16)?, u64_at(self.0, index * 16 + 8)?));
        (0..).map_while(entry).take_while(|(tag, _)| *tag != 0)
    }

    fn value(self, wanted: u64) -> Option<u64> {
        self.entries().find(|(tag, _)| *tag == wanted).map(|(_, value)| value)
    }

    /// Returns the address of the strings, before relocation.
    pub fn strings(self) -> Option<u64> {
        self.value(Self::STRINGS)
    }

    /// Returns the library's own name.
    pub fn name(self) -> Option<u64> {
        self.value(Self::NAME)
    }

    /// Returns whether the library defines versions of its symbols.
    pub fn has_versions(self) -> bool {
        self.value(Self::VERSIONS).is_some()
    }

    /// Returns the names in which the dynamic linker replaces `$ORIGIN` and the like: of libraries, and of
    /// folders to look for them.
    pub fn expanded(self) -> impl Iterator<Item = u64> + use<'a> {
        let is_expanded = |tag: u64| {
            matches!(
                tag,
                Self::NEEDED
                    | Self::RPATH
                    | Self::RUNPATH
                    | Self::DEPENDENCY_AUDIT
                    | Self::AUDIT
                    | Self::AUXILIARY
                    | Self::FILTER
            )
        };
        self.entries().filter(move |(tag, _)| is_expanded(*tag)).map(|(_, value)| value)
    }
}

/// Returns whether notes have the one of Go's linker, which names its owner "Go" (`.note.go.buildid`).
pub fn has_go_note(notes: &[u8]) -> bool {
    const OWNER: [u8; 4] = *b"Go\0\0";
    const HEAD: u64 = 12;
    let mut at = 0;
    while let (Some(owner), Some(content), Some(kind)) =
        (u32_at(notes, at), u32_at(notes, at + 4), u32_at(notes, at + 8))
    {
        if (owner, kind) == (4, 4) && crate::bytes(notes, at + HEAD) == Some(OWNER) {
            return true;
        }
        let padded = |length: u32| u64::from(length).next_multiple_of(4);
        at += HEAD + padded(owner) + padded(content);
    }
    false
}

/// The first line of a script: the interpreter and its argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Script<'a> {
    /// The path of the interpreter.
    pub interpreter: &'a [u8],
    /// All that follows it, as one argument.
    pub argument: Option<&'a [u8]>,
}

/// The bytes of a script that Linux looks at.
pub const SCRIPT_HEAD: usize = 256;

impl<'a> Script<'a> {
    /// Parses the line as Linux does. Returns `None` if the file is no script, or a line that Linux refuses.
    pub fn parse(head: &'a [u8]) -> Option<Self> {
        let head = &head[..head.len().min(SCRIPT_HEAD)];
        let line = head.strip_prefix(b"#!")?;
        let end = line.iter().position(|byte| *byte == b'\n');
        let line = line[..end.unwrap_or(line.len())].trim_ascii();
        let cut = line.iter().position(|byte| matches!(byte, b' ' | b'\t'));
        let (interpreter, rest) = line.split_at(cut.unwrap_or(line.len()));
        // Without an end of the line the path may have been cut off.
        let is_whole = end.is_some() || cut.is_some() || head.len() < SCRIPT_HEAD;
        let argument = Some(rest.trim_ascii()).filter(|rest| !rest.is_empty());
        (is_whole && !interpreter.is_empty()).then_some(Script { interpreter, argument })
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn this_test_is_an_elf_file() {
        let file = std::fs::read("/proc/self/exe").unwrap();
        let headers = Headers::parse(&file[..HEAD]).unwrap();
        let (first, last) = headers.span().unwrap();
        assert!(first < headers.entry && headers.entry < last);
        assert!(headers.loads().any(|load| load.protection() == 5));
        assert!(headers.phdr().unwrap() >= first && headers.align() >= crate::PAGE);
        assert!(headers.find(PT_INTERP).is_some());
    }

    /// Makes headers with parts of these flags, addresses, lengths in the file and in memory, and alignments.
    fn with_parts(parts: &[[u64; 5]]) -> std::vec::Vec<u8> {
        let mut head = std::fs::read("/proc/self/exe").unwrap()[..64].to_vec();
        head[32..40].copy_from_slice(&64_u64.to_le_bytes());
        head[56..58].copy_from_slice(&(parts.len() as u16).to_le_bytes());
        for [flags, address, in_file, in_memory, align] in parts {
            head.extend((u64::from(PT_LOAD) | flags << 32).to_le_bytes());
            let words = [*address, *address, *address, *in_file, *in_memory, *align];
            head.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        }
        head
    }

    #[test]
    fn the_first_part_is_mapped_over_all_if_nothing_shows_it() {
        const PAGE: u64 = crate::PAGE;
        let first = [4, 0, 100, 100, PAGE];
        let code = [5, PAGE, 9000, 9000, PAGE];
        let data = [6, 4 * PAGE + 8, 10, 5000, PAGE];
        let is_over_all = |parts: &[[u64; 5]]| {
            let head = with_parts(parts);
            Headers::parse(&head).unwrap().first_over_all().map(|part| part.file_size) == Some(100)
        };
        assert!(is_over_all(&[first, code, data]) && is_over_all(&[first]));
        // It can be executed or written to, or has zeroes behind it.
        for [flags, in_memory] in [[5, 100], [6, 100], [4, 101]] {
            assert!(!is_over_all(&[[flags, 0, 100, in_memory, PAGE], code, data]), "{flags} {in_memory}");
        }
        // There are addresses between two parts, or a page that two have, or room for an alignment.
        assert!(!is_over_all(&[first, data]) && !is_over_all(&[first, code, code, data]));
        assert!(!is_over_all(&[first, [5, 8 * PAGE, 9000, 9000, 8 * PAGE]]));
        assert!(!is_over_all(&[[4, 0, 100, 100, 2 * PAGE], code, data]));
    }

    #[test]
    fn broken_headers_are_refused() {
        let file = std::fs::read("/proc/self/exe").unwrap();
        for (at, value) in [(0, 0), (4, 1), (16, 1), (18, 3), (54, 0), (56, 255), (32, 255)] {
            let mut head = file[..HEAD].to_vec();
            head[at] = value;
            assert!(Headers::parse(&head).is_none(), "byte {at}");
        }
        assert!(Headers::parse(&file[..63]).is_none());
    }

    #[test]
    fn notes_name_their_owner() {
        let note = |owner: &[u8; 4], content: &[u8]| {
            let mut bytes = std::vec::Vec::new();
            for word in [4, content.len() as u32, 4] {
                bytes.extend(word.to_le_bytes());
            }
            bytes.extend(owner);
            bytes.extend(content);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let (gnu, go) = (note(b"GNU\0", b"12345"), note(b"Go\0\0", b"identity"));
        let both = [&gnu[..], &go].concat();
        assert!(has_go_note(&go) && has_go_note(&both) && !has_go_note(&gnu) && !has_go_note(&[]));
        assert!(!has_go_note(&both[..gnu.len() + 15]) && !has_go_note(&[0xff; 64]));
    }

    #[test]
    fn dynamic_sections_name_libraries() {
        let entries = [(1, 7), (0x1d, 20), (5, 0x400), (14, 30), (0x6fff_fffc, 1), (3, 9), (0, 0), (1, 40)];
        let bytes: std::vec::Vec<u8> = entries
            .iter()
            .flat_map(|(tag, value): &(u64, u64)| [*tag, *value])
            .flat_map(u64::to_le_bytes)
            .collect();
        let dynamic = Dynamic(&bytes);
        assert_eq!(dynamic.expanded().collect::<std::vec::Vec<_>>(), [7, 20]);
        assert_eq!(
            (dynamic.strings(), dynamic.name(), dynamic.has_versions()),
            (Some(0x400), Some(30), true)
        );
        let cut = Dynamic(&bytes[..40]);
        assert_eq!((cut.strings(), cut.name(), cut.has_versions()), (None, None, false));
    }

    #[test]
    fn scripts_name_their_interpreter() {
        let parse = |text: &'static str| {
            Script::parse(text.as_bytes()).map(|script| {
                (std::str::from_utf8(script.interpreter).unwrap(), script.argument.map(<[u8]>::len))
            })
        };
        assert_eq!(parse("#!/bin/sh\necho"), Some(("/bin/sh", None)));
        assert_eq!(parse("#! /usr/bin/env  a b \n"), Some(("/usr/bin/env", Some(3))));
        assert_eq!(parse("#!/bin/sh"), Some(("/bin/sh", None)));
        assert_eq!((parse("#!\n"), parse("#!  "), parse("echo")), (None, None, None));
        let long = std::format!("#!/{}", "x".repeat(300));
        assert_eq!(Script::parse(long.as_bytes()), None);
    }
}

//! Reading an ELF file: the header and the program headers of an x86-64 program.

use alloc::vec::Vec;

use abi::Errno;
use abi::file::PATH_MAX;
use vm::{PAGE_SIZE, Prot};

use super::image::read_exactly;
use super::load::LoadError;
use crate::bytes::prefix_mut;
use crate::fs::content::Content;
use crate::mm::fallible;

const MAGIC: &[u8] = b"\x7fELF\x02\x01\x01"; // 64-bit, little-endian, version 1
const EXECUTABLE: u16 = 2;
const SHARED: u16 = 3;
const X86_64: u16 = 62;
const LOAD: u32 = 1;
const INTERPRETER: u32 = 3;
const FILE_HEADER_SIZE: usize = 64;
const HEADER_SIZE: usize = 56;

/// The base of a position-independent program, as on Linux without randomisation.
pub const PROGRAM_BASE: u64 = 0x5555_5555_4000;
/// The base of its interpreter, below the stack and away from the heap.
pub const INTERPRETER_BASE: u64 = 0x7fff_e000_0000;

/// The reason, in words, why a file is no program that can run here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flaw(pub &'static str);

const SHORT: Flaw = Flaw("the file is shorter than its headers say");
/// Used by the loader too.
pub const OUTSIDE: Flaw = Flaw("a segment lies outside of user space");

/// A program that can be loaded.
pub struct Elf<'a> {
    file: &'a dyn Content,
    /// The difference between addresses in memory and those in the file.
    pub bias: u64,
    /// The address where it starts.
    pub entry: u64,
    headers_at: u64,
    headers: Vec<u8>,
    /// The number of program headers.
    pub header_count: u16,
}

/// A part to load. It begins at a page boundary: as on Linux, the bytes of the file before the part on its
/// first page are loaded too.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// The address in memory, page-aligned.
    pub address: u64,
    /// The bytes in memory.
    pub size: u64,
    /// The offset of the bytes in the file.
    pub offset: u64,
    /// The bytes in the file. Zeroes follow them in memory.
    pub file_size: u64,
    /// The rights.
    pub prot: Prot,
}

struct Header {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    file_size: u64,
    memory_size: u64,
}

impl Header {
    fn read(bytes: &[u8]) -> Result<Self, Flaw> {
        let word = |offset| u64_at(bytes, offset);
        Ok(Self {
            kind: u32_at(bytes, 0)?,
            flags: u32_at(bytes, 4)?,
            offset: word(8)?,
            address: word(16)?,
            file_size: word(32)?,
            memory_size: word(40)?,
        })
    }

    /// Returns whether it describes a part to load. An empty segment may have any address.
    fn loads(&self) -> bool {
        self.kind == LOAD && (self.file_size, self.memory_size) != (0, 0)
    }
}

fn check_header(file: &[u8], kind: u16) -> Result<(), Flaw> {
    match () {
        () if !file.starts_with(MAGIC) => Err(Flaw("it is not a 64-bit ELF file")),
        () if u16_at(file, 18)? != X86_64 => Err(Flaw("it is for another machine")),
        () if !matches!(kind, EXECUTABLE | SHARED) => Err(Flaw("it is an ELF file, but not a program")),
        () if usize::from(u16_at(file, 54)?) != HEADER_SIZE => {
            Err(Flaw("its program headers have an unknown size"))
        }
        () => Ok(()),
    }
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Flaw> {
    let end = at.checked_add(N).ok_or(SHORT)?;
    let bytes = bytes.get(at..end).ok_or(SHORT)?;
    Ok(bytes.try_into().expect("N bytes"))
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, Flaw> {
    field(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, Flaw> {
    field(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64, Flaw> {
    field(bytes, at).map(u64::from_le_bytes)
}

/// Reads bytes that the file must have.
fn read(file: &dyn Content, offset: u64, into: &mut [u8]) -> Result<(), LoadError> {
    let end = offset.checked_add(into.len() as u64);
    if end.is_none_or(|end| end > file.len()) {
        return Err(SHORT.into());
    }
    Ok(read_exactly(file, offset, into)?)
}

impl<'a> Elf<'a> {
    /// Parses the program in `file`. It is loaded at `base` if it is position-independent.
    ///
    /// # Errors
    /// For a file that is not an x86-64 program with something to load.
    pub fn parse(file: &'a dyn Content, base: u64) -> Result<Self, LoadError> {
        let mut header = [0; FILE_HEADER_SIZE];
        let header = prefix_mut(&mut header, file.len());
        read(file, 0, header)?;
        let kind = u16_at(header, 16)?;
        check_header(header, kind)?;
        let (headers_at, header_count) = (u64_at(header, 32)?, u16_at(header, 56)?);
        let mut headers = fallible::zeroes(usize::from(header_count) * HEADER_SIZE)?;
        read(file, headers_at, &mut headers)?;
        let bias = if kind == SHARED { base } else { 0 };
        let entry = u64_at(header, 24)?.wrapping_add(bias);
        let elf = Self { file, bias, entry, headers_at, headers, header_count };
        if elf.segments().next().is_none() {
            return Err(Flaw("it has no segment to load").into());
        }
        Ok(elf)
    }

    /// Returns the path of the interpreter, if the program has one. It is started instead and runs the
    /// program.
    ///
    /// # Errors
    /// ENOEXEC, ENOMEM.
    pub fn interpreter(&self) -> Result<Option<Vec<u8>>, LoadError> {
        let headers = self.headers().filter_map(Result::ok);
        let Some(header) = headers.into_iter().find(|header| header.kind == INTERPRETER) else {
            return Ok(None);
        };
        if !(2..=PATH_MAX as u64).contains(&header.file_size) {
            return Err(Flaw("the path of its interpreter is empty or too long").into());
        }
        let mut name = fallible::zeroes(header.file_size as usize)?;
        read(self.file, header.offset, &mut name)?;
        match name.pop() {
            Some(0) => Ok(Some(name)),
            _ => Err(Errno::ENOEXEC.into()),
        }
    }

    /// Returns the bytes of one program header.
    pub fn header_size(&self) -> u64 {
        HEADER_SIZE as u64
    }

    fn headers(&self) -> impl Iterator<Item = Result<Header, Flaw>> {
        self.headers.chunks_exact(HEADER_SIZE).map(Header::read)
    }

    /// Returns the parts to load.
    pub fn segments(&self) -> impl Iterator<Item = Result<Segment, Flaw>> {
        let loads = |header: &Result<Header, Flaw>| header.as_ref().map_or(true, Header::loads);
        self.headers().filter(loads).map(|header| self.segment(&header?))
    }

    fn segment(&self, header: &Header) -> Result<Segment, Flaw> {
        let lead = header.offset % PAGE_SIZE;
        let end = header.offset.checked_add(header.file_size).ok_or(SHORT)?;
        let address = header.address.checked_add(self.bias).ok_or(OUTSIDE)?;
        let size = header.memory_size.checked_add(lead).ok_or(OUTSIDE)?;
        if end > self.file.len() {
            return Err(SHORT);
        }
        if header.memory_size < header.file_size {
            return Err(Flaw("a segment is longer in the file than in memory"));
        }
        if address % PAGE_SIZE != lead {
            return Err(Flaw("a segment has different offsets in its page in memory and in the file"));
        }
        let (offset, file_size) = (header.offset - lead, header.file_size + lead);
        Ok(Segment { address: address - lead, size, offset, file_size, prot: rights(header.flags) })
    }

    /// Returns the address of the program headers in memory, in the segment that contains their place in the
    /// file.
    pub fn headers_address(&self) -> u64 {
        let at = self.headers_at;
        let holds = |segment: &Segment| (segment.offset..segment.offset + segment.file_size).contains(&at);
        let segment = self.segments().filter_map(Result::ok).find(holds);
        segment.map_or(0, |segment| segment.address + (at - segment.offset))
    }
}

/// Returns the rights for the flags of a segment. ELF's execute, write, read are bits 0, 1, 2.
fn rights(flags: u32) -> Prot {
    let right = |bit: u32, prot| if flags & bit != 0 { prot } else { Prot::NONE };
    right(4, Prot::READ) | right(2, Prot::WRITE) | right(1, Prot::EXEC)
}

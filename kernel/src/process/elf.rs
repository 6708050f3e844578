//! Reading an ELF file: the header and the program headers of a static x86-64 program.

use vm::{PAGE_SIZE, Prot};

const MAGIC: &[u8] = b"\x7fELF\x02\x01\x01"; // 64-bit, little-endian, version 1
const EXECUTABLE: u16 = 2;
const SHARED: u16 = 3;
const X86_64: u16 = 62;
const LOAD: u32 = 1;
const INTERPRETER: u32 = 3;
const HEADER_SIZE: usize = 56;

/// Where a position-independent program goes, as on Linux without randomisation.
const PIE_BASE: u64 = 0x5555_5555_4000;

/// Why a file is no program that can run here, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flaw(pub &'static str);

const SHORT: Flaw = Flaw("the file ends before what its headers promise");
/// For the loader to say, too.
pub const OUTSIDE: Flaw = Flaw("a segment lies outside of user space");

/// A program that can be loaded.
pub struct Elf<'a> {
    file: &'a [u8],
    /// What is added to every address in the file.
    pub bias: u64,
    /// Where it starts.
    pub entry: u64,
    headers_at: usize,
    /// How many program headers there are.
    pub header_count: u16,
}

/// One part to load, in whole pages at its start: as on Linux, what the file has before the part on its
/// first page is loaded too.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// Where, in the address space. Page-aligned.
    pub address: u64,
    /// Bytes in memory.
    pub size: u64,
    /// What the file has for them; zeroes follow.
    pub bytes: &'a [u8],
    /// Rights.
    pub prot: Prot,
    /// Where the bytes are in the file.
    offset: u64,
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
    /// Whether there is something to load. An empty segment may have any address.
    fn loads(&self) -> bool {
        self.kind == LOAD && (self.file_size, self.memory_size) != (0, 0)
    }
}

fn check_header(file: &[u8], kind: u16) -> Result<(), Flaw> {
    match () {
        () if !file.starts_with(MAGIC) => Err(Flaw("it is no 64-bit ELF file")),
        () if u16_at(file, 18)? != X86_64 => Err(Flaw("it is made for another machine")),
        () if !matches!(kind, EXECUTABLE | SHARED) => Err(Flaw("it is an ELF file, but no program")),
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

impl<'a> Elf<'a> {
    /// # Errors
    /// For anything but a static x86-64 program with something to load.
    pub fn parse(file: &'a [u8]) -> Result<Self, Flaw> {
        let kind = u16_at(file, 16)?;
        check_header(file, kind)?;
        let bias = if kind == SHARED { PIE_BASE } else { 0 };
        let elf = Self {
            file,
            bias,
            entry: u64_at(file, 24)?.wrapping_add(bias),
            headers_at: u64_at(file, 32)? as usize,
            header_count: u16_at(file, 56)?,
        };
        if elf.headers().any(|header| header.is_ok_and(|header| header.kind == INTERPRETER)) {
            return Err(Flaw("it is dynamically linked"));
        }
        if elf.segments().next().is_none() {
            return Err(Flaw("it has nothing to load"));
        }
        Ok(elf)
    }

    /// Bytes of one program header.
    pub fn header_size(&self) -> u64 {
        HEADER_SIZE as u64
    }

    fn headers(&self) -> impl Iterator<Item = Result<Header, Flaw>> {
        (0..usize::from(self.header_count)).map(|index| self.header(index))
    }

    fn header(&self, index: usize) -> Result<Header, Flaw> {
        let at = self.headers_at.checked_add(index * HEADER_SIZE).ok_or(SHORT)?;
        let word = |offset: usize| u64_at(self.file, at.wrapping_add(offset));
        Ok(Header {
            kind: u32_at(self.file, at)?,
            flags: u32_at(self.file, at.wrapping_add(4))?,
            offset: word(8)?,
            address: word(16)?,
            file_size: word(32)?,
            memory_size: word(40)?,
        })
    }

    /// The parts to load.
    pub fn segments(&self) -> impl Iterator<Item = Result<Segment<'a>, Flaw>> {
        let loads = |header: &Result<Header, Flaw>| header.as_ref().map_or(true, Header::loads);
        self.headers().filter(loads).map(|header| self.segment(&header?))
    }

    fn segment(&self, header: &Header) -> Result<Segment<'a>, Flaw> {
        let lead = header.offset % PAGE_SIZE;
        let offset = header.offset - lead;
        let end = header.offset.checked_add(header.file_size).ok_or(SHORT)?;
        let bytes = self.file.get(offset as usize..end as usize).ok_or(SHORT)?;
        let address = header.address.checked_add(self.bias).ok_or(OUTSIDE)?;
        let size = header.memory_size.checked_add(lead).ok_or(OUTSIDE)?;
        if header.memory_size < header.file_size {
            return Err(Flaw("a segment is longer in the file than in memory"));
        }
        if address % PAGE_SIZE != lead {
            return Err(Flaw("a segment is not on a page in memory as it is in the file"));
        }
        Ok(Segment { address: address - lead, size, bytes, prot: rights(header.flags), offset })
    }

    /// Where the program headers are in memory: in the segment that has their place in the file.
    pub fn headers_address(&self) -> u64 {
        let at = self.headers_at as u64;
        let holds = |segment: &Segment<'_>| {
            (segment.offset..segment.offset + segment.bytes.len() as u64).contains(&at)
        };
        let segment = self.segments().filter_map(Result::ok).find(holds);
        segment.map_or(0, |segment| segment.address + (at - segment.offset))
    }
}

/// ELF's execute, write, read are bits 0, 1, 2.
fn rights(flags: u32) -> Prot {
    let right = |bit: u32, prot| if flags & bit != 0 { prot } else { Prot::NONE };
    right(4, Prot::READ) | right(2, Prot::WRITE) | right(1, Prot::EXEC)
}

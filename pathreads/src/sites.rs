//! Finds the system calls in a file's code, and decides how each is rewritten.
//!
//! A `syscall` instruction has two bytes and a jump to another part of memory five. Nothing may be
//! overwritten into the middle of which other code could jump. So there are two ways, and neither needs
//! to know who jumps where:
//!
//! 1. **An instruction before it.** One instruction of five bytes or more, on the straight way to the
//!    `syscall`, becomes the jump. It and all that follow it, up to the call, are copied to the slot.
//!    The originals after it stay: code that jumps between them arrives at the `syscall` as before, and
//!    the kernel dispatches the call.
//! 2. **A hole.** The `syscall` itself becomes a short jump to a hole of five bytes between two
//!    functions, and the hole becomes the jump.
//!
//! A call for which neither works stays as it is, as does `rt_sigreturn`: unwinders recognise a
//! signal's frame by the bytes of that code.

use yaxpeax_x86::long_mode::{InstDecoder, Instruction, Opcode, Operand, register_class};

use crate::elf::{Headers, Segment};
use crate::functions::{Functions, Place};

/// The length of a jump with a 32-bit distance.
pub const JUMP: u64 = 5;

/// The most bytes that are copied to a slot, without the call.
pub const MAX_COPIED: usize = 40;

/// The most instructions that are copied.
const MAX_INSTRUCTIONS: usize = 8;

const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// `mov $15, %rax`, and its 32-bit form.
const SIGRETURN: [&[u8]; 2] = [&[0x48, 0xc7, 0xc0, 15, 0, 0, 0], &[0xb8, 15, 0, 0, 0]];

/// `mov $60, %eax`.
const EXIT: [u8; 5] = [0xb8, 60, 0, 0, 0];

/// A system call, in offsets of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// The `syscall` instruction.
    pub call: u64,
    /// The first instruction that is copied, and where the jump to the slot goes unless there is a
    /// hole. Equal to `call` if there is one.
    pub start: u64,
    /// The hole for the jump, if `call` becomes a short jump to it.
    pub hole: Option<u64>,
    /// The bytes that the overwritten instruction has. Those that the jump leaves are filled.
    pub overwritten: u64,
    /// The instruction that computes an address relative to itself, if one is copied.
    pub relative: Option<Relative>,
}

/// A `lea` of seven bytes that names a place relative to itself. The slot has a `mov` in its place that loads
/// the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relative {
    /// Where it is.
    pub at: u64,
    /// The place that it names, as an offset of the file would continue.
    pub target: u64,
}

impl Relative {
    /// The bytes of the instruction. The last four are the distance from its end.
    pub const LENGTH: u64 = 7;

    /// Reads such an instruction: it sets a register of 64 bits.
    fn read(bytes: &[u8], at: u64) -> Option<Self> {
        let instruction: [u8; Self::LENGTH as usize] = bytes.get(..Self::LENGTH as usize)?.try_into().ok()?;
        let [prefix, 0x8d, operands, distance @ ..] = instruction else { return None };
        let is_relative = prefix & !0x04 == 0x48 && operands & 0xc7 == 0x05;
        let distance = i64::from(i32::from_le_bytes(distance));
        is_relative.then_some(Relative { at, target: (at + Self::LENGTH).wrapping_add_signed(distance) })
    }
}

/// The code of a file that is about to be executed.
#[derive(Clone, Copy)]
pub struct Code<'a> {
    file: &'a [u8],
    functions: Option<Functions<'a>>,
    segment: Segment,
    first: u64,
    end: u64,
}

impl<'a> Code<'a> {
    /// Returns the part of a file's code that is mapped from `offset` on, `length` bytes of it. Returns
    /// `None` if it is not part of an executable segment.
    pub fn new(file: &'a [u8], offset: u64, length: u64) -> Option<Self> {
        let headers = Headers::parse(&file[..file.len().min(crate::elf::HEAD)])?;
        let end = offset.checked_add(length)?.min(file.len() as u64);
        let holds = |load: &Segment| {
            load.flags & 1 != 0 && load.offset < end && offset < load.offset + load.file_size
        };
        let segment = headers.loads().find(holds)?;
        let end = end.min(segment.offset + segment.file_size);
        let first = offset.max(segment.offset);
        Some(Code { file, functions: Functions::of(file, headers), segment, first, end })
    }

    /// Returns the calls that can be rewritten, in order.
    pub fn sites(self) -> impl Iterator<Item = Site> + use<'a> {
        let mut sweep = Sweep::default();
        self.candidates().filter_map(move |call| self.site(call, &mut sweep))
    }

    /// Returns whether a call ends a thread: its number is set right before it.
    pub fn is_exit(self, site: &Site) -> bool {
        self.file[..site.call as usize].ends_with(&EXIT)
    }

    /// Returns the number of bytes.
    pub fn length(self) -> u64 {
        self.end - self.first
    }

    /// Returns the places with the bytes of a `syscall`, instructions or not.
    pub fn candidates(self) -> impl Iterator<Item = u64> + use<'a> {
        let bytes = &self.file[self.first as usize..self.end as usize];
        let mut at = 0;
        core::iter::from_fn(move || {
            let found = at + find(&bytes[at..])?;
            at = found + 2;
            Some(self.first + found as u64)
        })
    }

    /// Decides how a call is rewritten.
    fn site(self, call: u64, sweep: &mut Sweep) -> Option<Site> {
        let way = self.way_to(call, sweep)?;
        let free = core::mem::replace(&mut sweep.free, call + 2);
        if SIGRETURN.iter().any(|bytes| self.file[..call as usize].ends_with(bytes)) {
            return None;
        }
        let free = free.max(self.first);
        let before = way.iter().rev().find(|one| one.length >= JUMP && one.start >= free);
        if let Some(one) = before {
            let relative = way.relative.filter(|relative| relative.at >= one.start);
            return Some(Site { call, start: one.start, hole: None, overwritten: one.length, relative });
        }
        let (hole, overwritten) = (self.hole_near(call), SYSCALL.len() as u64);
        hole.map(|hole| Site { call, start: call, hole: Some(hole), overwritten, relative: None })
    }

    /// Returns the instructions before a call that can be copied, the last first in line. Returns
    /// `None` if no instruction starts at the call, as far as can be known.
    fn way_to(self, call: u64, sweep: &mut Sweep) -> Option<Way> {
        let start = self.decodable_from(call);
        if start != sweep.start {
            *sweep = Sweep { start, at: start, free: sweep.free };
        }
        if call.checked_sub(sweep.at).is_none_or(|distance| distance > LONGEST) {
            return None;
        }
        let decoder = InstDecoder::default();
        let mut way = Way::default();
        while sweep.at < call {
            let end = self.end.min(sweep.at + 16);
            let instruction = decoder.decode_slice(&self.file[sweep.at as usize..end as usize]).ok()?;
            let length = length(&instruction)?;
            let relative = Relative::read(&self.file[sweep.at as usize..end as usize], sweep.at);
            if relative.is_some() {
                way.begin_relative(relative);
            }
            way.push(Copied { start: sweep.at, length }, relative.is_some() || can_be_copied(&instruction));
            sweep.at += length;
        }
        (sweep.at == call).then_some(way)
    }

    /// Returns where to start decoding: at the function's start, or after the last one before. That may lie
    /// before the part that is mapped, which may begin in an instruction.
    fn decodable_from(self, call: u64) -> u64 {
        let address = self.segment.address + (call - self.segment.offset);
        let start = match self.functions.map(|functions| functions.place(address)) {
            Some(Place::Function(function)) => function.start,
            // The unwind information of `clone` ends before the call, because it is not the child's.
            Some(Place::After(Some(function))) if function.end == address => function.start,
            Some(Place::After(Some(function))) => function.end,
            Some(Place::After(None)) | None => self.segment.address,
        };
        let offset = self.segment.offset + start.saturating_sub(self.segment.address);
        offset.clamp(self.segment.offset, call)
    }

    /// Returns a hole of five bytes that a short jump at `call` reaches, between two functions.
    fn hole_near(self, call: u64) -> Option<u64> {
        let functions = self.functions?;
        let address = self.segment.address + (call - self.segment.offset);
        let Place::Function(own) = functions.place(address) else { return None };
        let before = own.start.checked_sub(1).and_then(|before| functions.gap_after(before));
        let gaps = [before, functions.gap_after(address)];
        gaps.into_iter().flatten().find_map(|(from, to)| {
            let hole = self.segment.offset + from.checked_sub(self.segment.address)?;
            let distance = hole as i64 - (call + 2) as i64;
            let fits = to - from >= JUMP && i8::try_from(distance).is_ok() && hole >= self.first;
            let end = hole + (to - from);
            (fits && end <= self.end && self.is_padding(hole, end) && self.is_never_reached(from))
                .then_some(hole)
        })
    }

    /// Returns whether no function runs on into the padding at `address`: the last instruction before it goes
    /// elsewhere. Hand-written code may end one unwind entry and run through padding into the next.
    fn is_never_reached(self, address: u64) -> bool {
        let before = self.functions.and_then(|functions| match functions.place(address.checked_sub(1)?) {
            Place::Function(function) => Some(function),
            Place::After(_) => None,
        });
        let Some(before) = before.filter(|before| before.start >= self.segment.address) else { return false };
        let offset = |address: u64| self.segment.offset + (address - self.segment.address);
        let (mut at, end) = (offset(before.start), offset(address));
        let (decoder, mut last) = (InstDecoder::default(), None);
        while at < end && end <= self.file.len() as u64 {
            let Ok(instruction) = decoder.decode_slice(&self.file[at as usize..end as usize]) else {
                return false;
            };
            let Some(length) = length(&instruction) else { return false };
            (at, last) = (at + length, Some(instruction.opcode()));
        }
        // A call may be one that never returns, and nothing tells.
        at == end
            && matches!(last, Some(Opcode::RETURN | Opcode::JMP | Opcode::UD2 | Opcode::HLT | Opcode::INT))
    }

    /// Returns whether there is nothing but instructions that do nothing.
    fn is_padding(self, mut at: u64, end: u64) -> bool {
        let decoder = InstDecoder::default();
        while at < end {
            let Ok(instruction) = decoder.decode_slice(&self.file[at as usize..end as usize]) else {
                return false;
            };
            let padding = matches!(instruction.opcode(), Opcode::NOP)
                || self.file[at as usize] == 0xcc
                || self.file[at as usize..].starts_with(&[0x66, 0x90]);
            match length(&instruction) {
                Some(length) if padding => at += length,
                _ => return false,
            }
        }
        true
    }
}

/// Finds the bytes of a `syscall`. Looks for the second one in eight bytes at a time: a library has a
/// million of them and a few calls.
fn find(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::MAX / 255;
    let is_call = |second: usize| second > 0 && bytes[second - 1..=second] == SYSCALL;
    let words = bytes.chunks_exact(8);
    let rest = bytes.len() - words.remainder().len();
    for (index, word) in words.enumerate() {
        let word = u64::from_le_bytes(word.try_into().expect("eight bytes")) ^ (ONES * u64::from(SYSCALL[1]));
        // A byte above one that is zero may be marked too, so a hit is looked at again.
        if word.wrapping_sub(ONES) & !word & (ONES << 7) != 0
            && let Some(second) = (index * 8..index * 8 + 8).find(|second| is_call(*second))
        {
            return Some(second - 1);
        }
    }
    (rest..bytes.len()).find(|second| is_call(*second)).map(|second| second - 1)
}

/// The most bytes that are decoded to reach a call. It matters for code without unwind information.
const LONGEST: u64 = 1 << 20;

/// How far a function, or the code between two, was decoded.
#[derive(Default)]
struct Sweep {
    start: u64,
    at: u64,
    /// The end of the last call. Code before it may have been overwritten.
    free: u64,
}

#[derive(Clone, Copy, Default)]
struct Copied {
    start: u64,
    length: u64,
}

/// The last instructions on the straight way to a call.
#[derive(Default)]
struct Way {
    last: [Copied; MAX_INSTRUCTIONS],
    count: usize,
    /// The last one that is relative to itself. There is room for one address.
    relative: Option<Relative>,
}

impl Way {
    /// Begins with an instruction that is relative to itself. A slot has no room for another one before.
    fn begin_relative(&mut self, relative: Option<Relative>) {
        if self.relative.is_some() {
            self.count = 0;
        }
        self.relative = relative;
    }

    /// Adds the next instruction. One that cannot be copied cuts off all before.
    fn push(&mut self, one: Copied, can_be_copied: bool) {
        if !can_be_copied {
            *self = Way::default();
            return;
        }
        if self.count == MAX_INSTRUCTIONS {
            self.last.copy_within(1.., 0);
            self.count -= 1;
        }
        self.last[self.count] = one;
        self.count += 1;
        while one.start + one.length - self.last[0].start > MAX_COPIED as u64 {
            self.last.copy_within(1.., 0);
            self.count -= 1;
        }
    }

    fn iter(&self) -> impl DoubleEndedIterator<Item = Copied> + '_ {
        self.last[..self.count].iter().copied()
    }
}

fn length(instruction: &Instruction) -> Option<u64> {
    use yaxpeax_arch::LengthedInstruction;
    Some(instruction.len().to_const()).filter(|length| *length > 0)
}

/// Returns whether an instruction does the same wherever it is: it neither jumps nor names a place
/// relative to itself. Only plain moves and arithmetic are copied.
fn can_be_copied(instruction: &Instruction) -> bool {
    let is_plain = matches!(
        instruction.opcode(),
        Opcode::MOV
            | Opcode::LEA
            | Opcode::XOR
            | Opcode::ADD
            | Opcode::SUB
            | Opcode::AND
            | Opcode::OR
            | Opcode::CMP
            | Opcode::TEST
            | Opcode::MOVZX
            | Opcode::MOVSX
            | Opcode::MOVSXD
            | Opcode::NOP
            | Opcode::PUSH
            | Opcode::POP
            | Opcode::SHL
            | Opcode::SHR
            | Opcode::NEG
            | Opcode::NOT
            | Opcode::CDQE
    );
    is_plain && !(0..instruction.operand_count()).any(|index| is_relative(instruction.operand(index)))
}

fn is_relative(operand: Operand) -> bool {
    match operand {
        Operand::MemDeref { base } | Operand::Disp { base, .. } => {
            matches!(base.class(), register_class::RIP | register_class::EIP)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    /// Returns the path of the C library in this process.
    fn libc() -> Option<std::string::String> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.contains("/libc.so") || line.contains("/libc-"))?;
        Some(line.split_whitespace().last()?.into())
    }

    #[test]
    fn every_pair_of_bytes_is_found() {
        for length in 0..40 {
            for at in 0..length {
                let mut bytes = std::vec![0x0f; length];
                bytes[at] = 5;
                assert_eq!(find(&bytes), at.checked_sub(1), "{at} of {length}");
            }
        }
    }

    #[test]
    fn addresses_relative_to_the_instruction_are_read() {
        // The first two are read. The others have another base, set 32 bits, or are cut off.
        let named = |bytes: &[u8]| Relative::read(bytes, 100).map(|relative| relative.target);
        assert_eq!(named(&[0x48, 0x8d, 0x35, 0xf8, 0xff, 0xff, 0xff]), Some(99));
        assert_eq!(named(&[0x4c, 0x8d, 0x05, 1, 0, 0, 0]), Some(108));
        assert_eq!(named(&[0x48, 0x8d, 0xb5, 1, 0, 0, 0]), None);
        assert_eq!(named(&[0x40, 0x8d, 0x35, 1, 0, 0, 0]), None);
        assert_eq!(named(&[0x48, 0x8d, 0x35, 1, 0, 0]), None);
    }

    #[test]
    fn most_calls_of_the_c_library_are_rewritten() {
        let Some(path) = libc() else { return };
        let file = std::fs::read(path).unwrap();
        let headers = Headers::parse(&file[..crate::elf::HEAD]).unwrap();
        let segment = headers.loads().find(|load| load.flags & 1 != 0).unwrap();
        let code = Code::new(&file, segment.offset, segment.file_size).unwrap();
        let (candidates, sites) = (code.candidates().count(), code.sites().collect::<Vec<_>>());
        assert!(sites.len() * 20 > candidates * 19, "{} of {candidates}", sites.len());
        for site in &sites {
            assert_eq!(&file[site.call as usize..site.call as usize + 2], SYSCALL);
            assert!(site.start <= site.call && site.call - site.start <= MAX_COPIED as u64);
        }
    }
}

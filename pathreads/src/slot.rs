//! The code of slots. Each rewritten call has one.
//!
//! ```text
//!   0   the copied instructions        the program's, up to the call
//!       is the call of interest?       rcx and the flags are free here: a system call changes them
//!       no:  syscall                   with all other registers, and the stack, as the program has them
//!            jump back
//!       yes: reserve RESERVED bytes of stack, push where to go back, name the syscall in rcx, jump to the runtime
//!  96   where to go back
//! 104   the address of the instruction that was copied first
//! 112   the number of copied bytes
//! 120   the address that a copied instruction computes
//! ```
//!
//! A copied `lea` that names a place relative to itself would name another one here. It becomes a `mov` of
//! the same length that loads the address.
//!
//! Until the runtime is entered, nothing of the program is changed. So a place in a slot stands for a
//! place in the program ([`stands_for`]), and a signal's handler is shown that one: unwinders and
//! cancellation work as without slots.

use crate::sites::{MAX_COPIED, Relative};

/// The bytes of a slot.
pub const SIZE: usize = 128;

/// The bytes of stack below the program's that a call takes before it enters the runtime: the red zone,
/// which the program may use, 56 bytes, and the address to go back to.
pub const RESERVED: u64 = 192;

/// The first number of a call that is never of interest, since Linux has none so high: the length of the
/// table.
pub const NUMBERS: u32 = 512;

const BACK: usize = 96;
const ORIGIN: usize = 104;
const COPIED: usize = 112;
const NAMED: usize = 120;

/// Where the `syscall` is, after the copied bytes.
const CALL: usize = 18;
const SLOW: usize = CALL + 8;
const CODE: usize = SLOW + 26;
const _: () = assert!(MAX_COPIED + CODE <= BACK);

/// The addresses in the runtime that slots name. They lie in the low 2 GiB.
#[derive(Clone, Copy, Debug)]
pub struct Runtime {
    /// The table with a byte for each call, not 0 if it is of interest.
    pub table: u32,
    /// The way into the runtime.
    pub entry: u32,
}

/// Returns the slot with an instruction of its copied ones made to load the address that it computed in the
/// program. `at` are the bytes before it.
pub fn with_named(mut slot: [u8; SIZE], at: usize, named: u64) -> [u8; SIZE] {
    const OPCODE: usize = 1;
    const LOAD: u8 = 0x8b;
    let end = at + Relative::LENGTH as usize;
    slot[NAMED..].copy_from_slice(&named.to_le_bytes());
    slot[at + OPCODE] = LOAD;
    slot[end - 4..end].copy_from_slice(&((NAMED - end) as u32).to_le_bytes());
    slot
}

/// Returns a slot at `address`. `copied` are the instructions that `origin` has, up to the call.
pub fn encode(address: u64, runtime: Runtime, copied: &[u8], origin: u64) -> [u8; SIZE] {
    let mut slot = [0xcc; SIZE];
    let call = origin + copied.len() as u64;
    slot[BACK..BACK + 8].copy_from_slice(&(call + 2).to_le_bytes());
    slot[ORIGIN..ORIGIN + 8].copy_from_slice(&origin.to_le_bytes());
    slot[COPIED..COPIED + 8].copy_from_slice(&(copied.len() as u64).to_le_bytes());
    let mut code = Assembler { slot: &mut slot, at: 0, address };
    code.bytes(copied);
    code.bytes(&[0x3d]).word(NUMBERS); // cmp $NUMBERS, %eax
    code.bytes(&[0x73, 11]); // jae pass
    code.bytes(&[0x89, 0xc1]); // mov %eax, %ecx
    code.bytes(&[0x80, 0xb9]).word(runtime.table).bytes(&[0]); // cmpb $0, table(%rcx)
    code.bytes(&[0x75, 8]); // jne slow
    code.bytes(&[0x0f, 0x05]); // pass: syscall
    code.bytes(&[0xff, 0x25]).distance_to(address + BACK as u64); // jmp *back(%rip)
    let reserve = (RESERVED - 8) as u32;
    code.bytes(&[0x48, 0x8d, 0xa4, 0x24]).word(reserve.wrapping_neg()); // slow: lea -184(%rsp), %rsp
    code.bytes(&[0xff, 0x35]).distance_to(address + BACK as u64); // push back(%rip)
    let pass = address + (copied.len() + CALL) as u64;
    code.bytes(&[0x48, 0x8d, 0x0d]).distance_to(pass); // lea pass(%rip), %rcx
    code.bytes(&[0xe9]).distance_to(runtime.entry.into()); // jmp entry
    slot
}

/// Returns the place in the program for a place `offset` bytes into a slot.
pub fn stands_for(slot: &[u8; SIZE], offset: usize) -> Option<u64> {
    let word = |at| crate::u64_at(slot, at as u64);
    let (origin, copied) = (word(ORIGIN)?, word(COPIED)?);
    let call = copied as usize + CALL;
    match offset {
        _ if offset < copied as usize => Some(origin + offset as u64),
        _ if offset <= call => Some(origin + copied),
        _ if offset == call + 2 => word(BACK),
        _ if offset == call + SLOW - CALL => Some(origin + copied),
        _ => None,
    }
}

/// Returns a jump over any distance.
pub fn far_jump(to: u64) -> [u8; 14] {
    let mut jump = [0xff, 0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    jump[6..].copy_from_slice(&to.to_le_bytes());
    jump
}

/// Returns a jump over less than 2 GiB.
pub fn near_jump(at: u64, to: u64) -> Option<[u8; 5]> {
    let distance = i32::try_from(to.wrapping_sub(at + 5).cast_signed()).ok()?.to_le_bytes();
    Some([0xe9, distance[0], distance[1], distance[2], distance[3]])
}

/// Returns a jump over at most 127 bytes.
pub fn short_jump(at: u64, to: u64) -> Option<[u8; 2]> {
    let distance = i8::try_from(to.wrapping_sub(at + 2).cast_signed()).ok()?;
    Some([0xeb, distance.cast_unsigned()])
}

struct Assembler<'a> {
    slot: &'a mut [u8; SIZE],
    at: usize,
    address: u64,
}

impl Assembler<'_> {
    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.slot[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
        self
    }

    fn word(&mut self, word: u32) -> &mut Self {
        self.bytes(&word.to_le_bytes())
    }

    /// Appends the distance from the end of these four bytes, which end the instruction.
    fn distance_to(&mut self, target: u64) {
        let distance = target.wrapping_sub(self.address + self.at as u64 + 4);
        self.word(distance as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use yaxpeax_arch::LengthedInstruction;
    use yaxpeax_x86::long_mode::{InstDecoder, Opcode};

    const ADDRESS: u64 = crate::SLOTS_BASE;
    const RUNTIME: Runtime = Runtime { table: 0x7000_1000, entry: 0x7000_2000 };
    /// lea 0x30(%rsp), %r10; mov $13, %eax
    const BEFORE: [u8; 10] = [0x4c, 0x8d, 0x54, 0x24, 0x30, 0xb8, 13, 0, 0, 0];

    #[test]
    fn a_slot_is_the_program_then_the_call_then_the_way_back() {
        let slot = encode(ADDRESS, RUNTIME, &BEFORE, 0x1000);
        assert!(slot.starts_with(&BEFORE));
        let mut at = 0;
        let mut opcodes = [Opcode::NOP; 13];
        for opcode in &mut opcodes {
            let instruction = InstDecoder::default().decode_slice(&slot[at..]).unwrap();
            *opcode = instruction.opcode();
            at += instruction.len().to_const() as usize;
        }
        use Opcode::*;
        assert_eq!(opcodes, [LEA, MOV, CMP, JNB, MOV, CMP, JNZ, SYSCALL, JMP, LEA, PUSH, LEA, JMP]);
        assert_eq!(at, BEFORE.len() + CODE);
    }

    #[test]
    fn branches_meet_the_call_and_the_slow_way() {
        let slot = encode(ADDRESS, RUNTIME, &[], 0x1000);
        let target = |at: usize| at + 2 + slot[at + 1] as usize;
        assert_eq!((target(5), target(16)), (CALL, SLOW));
        let distance = crate::i32_at(&slot, (CODE - 4) as u64).unwrap();
        let entry = (ADDRESS + CODE as u64).wrapping_add_signed(distance.into());
        assert_eq!(entry, u64::from(RUNTIME.entry));
    }

    #[test]
    fn places_in_a_slot_stand_for_the_programs() {
        let slot = encode(ADDRESS, RUNTIME, &BEFORE, 0x1000);
        for (offset, place) in
            [(0, 0x1000), (5, 0x1005), (10, 0x100a), (15, 0x100a), (28, 0x100a), (30, 0x100c)]
        {
            assert_eq!(stands_for(&slot, offset), Some(place), "{offset}");
        }
        assert_eq!(stands_for(&slot, 10 + SLOW), Some(0x100a));
        assert_eq!(stands_for(&slot, 10 + SLOW + 8), None);
    }

    /// The instruction is executed in another place, and names the program's.
    #[test]
    fn a_relative_address_is_the_programs() {
        // mov $14, %eax; lea 0x1178dd(%rip), %rsi
        let copied = [0xb8, 14, 0, 0, 0, 0x48, 0x8d, 0x35, 0xdd, 0x78, 0x11, 0];
        let slot = with_named(encode(ADDRESS, RUNTIME, &copied, 0x1000), 5, 0x7fff_1234_5678);
        let load = InstDecoder::default().decode_slice(&slot[5..]).unwrap();
        assert_eq!((load.opcode(), load.len().to_const()), (Opcode::MOV, 7));
        assert_eq!(slot[5 + 2], copied[5 + 2]);
        let at = 5 + 7 + crate::i32_at(&slot, 8).unwrap() as usize;
        assert_eq!(crate::u64_at(&slot, at as u64), Some(0x7fff_1234_5678));
        assert_eq!(stands_for(&slot, 12), Some(0x100c));
    }

    #[test]
    fn jumps_reach_only_so_far() {
        assert_eq!(near_jump(0x1000, 0x1005), Some([0xe9, 0, 0, 0, 0]));
        assert_eq!(near_jump(0x1005, 0x1000), Some([0xe9, 0xf6, 0xff, 0xff, 0xff]));
        assert_eq!(near_jump(0, 1 << 32), None);
        assert_eq!(short_jump(0x1000, 0x1081), Some([0xeb, 0x7f]));
        assert_eq!((short_jump(0x1000, 0x1082), short_jump(0x1080, 0x1002)), (None, Some([0xeb, 0x80])));
    }
}

//! The backtrace, unwound by `.eh_frame` over the piece of the stack that the kernel sent.

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, MayAllocateDuringUnwind, Module, Unwinder};
use object::{Object, ObjectSection, ObjectSegment};

use crate::guest::protocol::Crash;

/// The longest backtrace. A longer one is a runaway recursion, which shows in the first frames.
const MOST: usize = 64;

/// One call on the stack.
pub struct Frame {
    /// The address of the instruction, or the return address.
    pub address: u64,
    /// An address inside the call instruction, to look names up.
    pub lookup: u64,
}

/// Returns the frames from the crash outwards. There is at least the crash itself.
pub fn frames(elf: &[u8], crash: &Crash) -> Vec<Frame> {
    let register = |name: &str| crash.registers.get(name).copied().unwrap_or(0);
    let stack = Stack { base: crash.stack_base, bytes: unhex(&crash.stack) };
    let module = module(elf, crash.load_bias);
    let (rip, rsp) = (register("rip"), register("rsp"));
    let known = module.as_ref().is_some_and(|module| module.avma_range().contains(&rip));
    match stack.word(rsp) {
        // The program called an invalid address: the return address is still on top of the stack.
        Some(caller) if !known => {
            let registers = UnwindRegsX86_64::new(caller, rsp.wrapping_add(8), register("rbp"));
            [Frame { address: rip, lookup: rip }]
                .into_iter()
                .chain(walk(module, caller.wrapping_sub(1), registers, &stack))
                .collect()
        }
        _ => walk(module, rip, UnwindRegsX86_64::new(rip, rsp, register("rbp")), &stack),
    }
}

/// Returns the frames of code in several modules. `registers` are the instruction pointer, the stack pointer
/// and the frame pointer, and the stack's `bytes` begin at `base`.
pub fn through(
    modules: impl IntoIterator<Item = Module<Vec<u8>>>,
    [rip, rsp, rbp]: [u64; 3],
    base: u64,
    bytes: Vec<u8>,
) -> Vec<Frame> {
    walk(modules, rip, UnwindRegsX86_64::new(rip, rsp, rbp), &Stack { base, bytes })
}

fn walk(
    modules: impl IntoIterator<Item = Module<Vec<u8>>>,
    pc: u64,
    registers: UnwindRegsX86_64,
    stack: &Stack,
) -> Vec<Frame> {
    let mut unwinder = UnwinderX86_64::new();
    modules.into_iter().for_each(|module| unwinder.add_module(module));
    let mut cache = CacheX86_64::<MayAllocateDuringUnwind>::new();
    let mut read = |address| stack.word(address).ok_or(());
    let mut iterator = unwinder.iter_frames(pc, registers, &mut cache, &mut read);
    std::iter::from_fn(|| iterator.next().ok().flatten()).map(frame).take(MOST).collect()
}

fn frame(address: FrameAddress) -> Frame {
    Frame { address: address.address(), lookup: address.address_for_lookup() }
}

/// Describes the program for the unwinder: its code range and unwind sections.
pub fn module(elf: &[u8], bias: u64) -> Option<Module<Vec<u8>>> {
    let file = object::File::parse(elf).ok()?;
    // A segment or section that is not loaded may have any address.
    let loaded = || file.segments().filter(|segment| segment.size() > 0);
    let start = loaded().map(|segment| segment.address()).min()?;
    let end = loaded().map(|segment| segment.address() + segment.size()).max()?;
    let section = |name: &str| file.section_by_name(name);
    let range = |name: &str| {
        section(name).map(|section| section.address()..section.address().saturating_add(section.size()))
    };
    let data = |name: &str| section(name).and_then(|section| section.data().ok()).map(<[u8]>::to_vec);
    let sections = ExplicitModuleSectionInfo {
        base_svma: 0,
        text_svma: range(".text"),
        text: data(".text"),
        got_svma: range(".got"),
        eh_frame_svma: range(".eh_frame"),
        eh_frame: data(".eh_frame"),
        eh_frame_hdr_svma: range(".eh_frame_hdr"),
        eh_frame_hdr: data(".eh_frame_hdr"),
        ..Default::default()
    };
    Some(Module::new("program".to_owned(), bias + start..bias + end, bias, sections))
}

struct Stack {
    base: u64,
    bytes: Vec<u8>,
}

impl Stack {
    fn word(&self, address: u64) -> Option<u64> {
        let offset = usize::try_from(address.checked_sub(self.base)?).ok()?;
        Some(u64::from_le_bytes(self.bytes.get(offset..)?.first_chunk().copied()?))
    }
}

/// Decodes hexadecimal up to the first character that is none.
pub fn unhex(text: &str) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = text.as_bytes().chunks_exact(2);
    pairs.map_while(|pair| Some((digit(pair[0])? * 16 + digit(pair[1])?) as u8)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_reads_up_to_the_first_fault() {
        assert_eq!(unhex("00ff1zab"), [0, 255]);
        assert!(unhex("0").is_empty());
    }

    #[test]
    fn words_come_from_inside_the_piece_only() {
        let stack = Stack { base: 0x1000, bytes: (1..=16).collect() };
        assert_eq!(stack.word(0x1008), Some(0x100f_0e0d_0c0b_0a09));
        assert_eq!(stack.word(0xff8), None);
        assert_eq!(stack.word(0x1009), None);
    }
}

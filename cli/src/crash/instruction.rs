//! The instruction that crashed, as text.

use iced_x86::{Decoder, DecoderOptions, Formatter, Instruction, IntelFormatter};
use object::{Object, ObjectSegment};

/// The bytes of the longest x86 instruction.
const LONGEST: usize = 15;

/// Describes the instruction at `rip`, which is `address` in the file.
pub fn describe(elf: &[u8], rip: u64, address: u64) -> String {
    let code = bytes_at(elf, address).filter(|code| !code.is_empty());
    code.map_or_else(|| format!("{rip:#x} (outside the program)"), |code| decode(code, rip))
}

fn decode(code: &[u8], rip: u64) -> String {
    let mut instruction = Instruction::default();
    Decoder::with_ip(64, code, rip, DecoderOptions::NONE).decode_out(&mut instruction);
    let mut text = String::new();
    IntelFormatter::new().format(&instruction, &mut text);
    format!("{rip:#x} {text}")
}

/// Returns the bytes of at most one instruction at an address of the loaded program.
fn bytes_at(elf: &[u8], address: u64) -> Option<&[u8]> {
    let file = object::File::parse(elf).ok()?;
    file.segments().find_map(|segment| {
        let offset = usize::try_from(address.checked_sub(segment.address())?).ok()?;
        let bytes = segment.data().ok()?.get(offset..)?;
        Some(&bytes[..bytes.len().min(LONGEST)])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_reads_as_one() {
        assert_eq!(decode(&[0x48, 0x8b, 0x07], 0x401000), "0x401000 mov rax,[rdi]");
    }

    #[test]
    fn an_address_outside_is_said_to_be() {
        assert!(describe(b"", 0x10, 0x10).contains("outside"));
    }
}

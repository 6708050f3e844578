//! Decodes the few instructions that the meter must know: markers, and those that no memory callback reports.

/// An instruction that does more than its loads and stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// A message from the guest to the meter.
    Marker(Marker),
    /// A string instruction that repeats. Each iteration makes one or two accesses, as the number says.
    Repeat(u8),
    /// `in` or `out`.
    Port,
    /// Invalidates one translation, or those of an address space.
    Invlpg,
    /// A write to CR3.
    Cr3Load,
    /// A system call.
    Syscall,
    /// The end of an interrupt or a fault.
    InterruptReturn,
}

/// The message of a marker. On every machine it is `nopl disp32(%rax)`, seven bytes that do nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// The program is about to start.
    Run,
    /// This thread is warm. The operand is the number of threads that will be, or 0 for "do not wait for
    /// others".
    Begin(u8),
    /// A round has ended.
    Iter,
    /// This thread has finished its rounds.
    End,
    /// A phase starts.
    Phase(u8),
    /// The program is over.
    Stop,
    /// This CPU begins a call of a test.
    Call,
    /// This CPU has finished the call.
    Return,
    /// Both calls of a test have returned.
    Pair,
}

const MARKER: [u8; 3] = [0x0f, 0x1f, 0x80];
const MAGIC: u32 = 0x5256;

impl Marker {
    /// Decodes the displacement of the no-op.
    fn from_displacement(word: u32) -> Option<Self> {
        let (op, arg) = ((word >> 8) as u8, word as u8);
        if word >> 16 == MAGIC { Self::from_parts(op, arg) } else { None }
    }

    /// Decodes its two bytes.
    pub fn from_parts(op: u8, arg: u8) -> Option<Self> {
        match op {
            1 => Some(Self::Run),
            2 => Some(Self::Begin(arg)),
            3 => Some(Self::Iter),
            4 => Some(Self::End),
            5 => Some(Self::Phase(arg)),
            6 => Some(Self::Stop),
            7 => Some(Self::Call),
            8 => Some(Self::Return),
            9 => Some(Self::Pair),
            _ => None,
        }
    }

    /// Returns its two bytes.
    pub fn parts(self) -> (u8, u8) {
        match self {
            Self::Run => (1, 0),
            Self::Begin(threads) => (2, threads),
            Self::Iter => (3, 0),
            Self::End => (4, 0),
            Self::Phase(phase) => (5, phase),
            Self::Stop => (6, 0),
            Self::Call => (7, 0),
            Self::Return => (8, 0),
            Self::Pair => (9, 0),
        }
    }
}

/// Returns the kind of the instruction in `bytes`, if it is a special one.
pub fn special(bytes: &[u8]) -> Option<Special> {
    marker(bytes).map(Special::Marker).or_else(|| by_opcode(bytes))
}

/// Returns whether `bytes` are a call, after which the callee returns.
pub fn is_call(bytes: &[u8]) -> bool {
    let prefixes = bytes.iter().take_while(|byte| is_prefix(**byte)).count();
    match bytes[prefixes..] {
        [0xe8, ..] => true,
        [0xff, operand, ..] => operand >> 3 & 7 == 2,
        _ => false,
    }
}

/// Returns the marker in `bytes`, if it is one.
pub fn marker(bytes: &[u8]) -> Option<Marker> {
    let displacement = bytes.strip_prefix(&MARKER)?.try_into().ok()?;
    Marker::from_displacement(u32::from_le_bytes(displacement))
}

fn by_opcode(bytes: &[u8]) -> Option<Special> {
    let prefixes = bytes.iter().take_while(|byte| is_prefix(**byte)).count();
    let repeats = bytes[..prefixes].iter().any(|byte| matches!(byte, 0xf2 | 0xf3));
    let operand = |at: usize| bytes.get(prefixes + at).copied();
    let extension = |at| operand(at).map(|byte| byte >> 3 & 7);
    match (operand(0)?, operand(1)) {
        // movs and cmps
        (0xa4..=0xa7, _) if repeats => Some(Special::Repeat(2)),
        // stos, lods and scas
        (0xaa..=0xaf, _) if repeats => Some(Special::Repeat(1)),
        (0x6c..=0x6f | 0xe4..=0xe7 | 0xec..=0xef, _) => Some(Special::Port),
        (0x0f, Some(0x01)) if extension(2) == Some(7) && operand(2)? < 0xc0 => Some(Special::Invlpg),
        (0x0f, Some(0x05)) => Some(Special::Syscall),
        (0xcf, _) => Some(Special::InterruptReturn),
        (0x0f, Some(0x38)) if operand(2) == Some(0x82) => Some(Special::Invlpg),
        (0x0f, Some(0x22)) if extension(2) == Some(3) => Some(Special::Cr3Load),
        _ => None,
    }
}

fn is_prefix(byte: u8) -> bool {
    matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers() {
        let marker = |op, arg| special(&[0x0f, 0x1f, 0x80, arg, op, 0x56, 0x52]);
        assert_eq!(marker(2, 16), Some(Special::Marker(Marker::Begin(16))));
        assert_eq!(marker(10, 0), None);
        assert_eq!(special(&[0x0f, 0x1f, 0x80, 0, 0, 0, 0]), None, "an ordinary no-op");
        assert_eq!(special(&[0x0f, 0x1f, 0x80, 0, 1, 0x56]), None, "cut off");
        for op in 1..=9 {
            let marker = Marker::from_parts(op, 0).unwrap();
            assert_eq!(marker.parts(), (op, 0));
        }
    }

    #[test]
    fn calls() {
        assert!(is_call(&[0xe8, 1, 2, 3, 4]), "call rel32");
        assert!(
            is_call(&[0x41, 0xff, 0xd4]) && is_call(&[0xff, 0x15, 1, 2, 3, 4]),
            "call r12, call [rip + disp]"
        );
        assert!(!is_call(&[0xff, 0xe0]) && !is_call(&[0xe9, 1, 2, 3, 4]) && !is_call(&[]), "jumps");
    }

    #[test]
    fn instructions() {
        assert_eq!(special(&[0xf3, 0x48, 0xab]), Some(Special::Repeat(1)), "rep stosq");
        assert_eq!(special(&[0xf3, 0xa4]), Some(Special::Repeat(2)), "rep movsb");
        assert_eq!(special(&[0xf2, 0xae]), Some(Special::Repeat(1)), "repne scasb");
        assert_eq!(special(&[0x48, 0xab]), None, "stosq");
        assert_eq!(special(&[0xf3, 0x0f, 0x10, 0x00]), None, "movss");
        assert_eq!(special(&[0xee]), Some(Special::Port), "out dx, al");
        assert_eq!(special(&[0x0f, 0x01, 0x38]), Some(Special::Invlpg), "invlpg [rax]");
        assert_eq!(special(&[0x0f, 0x01, 0xf8]), None, "swapgs");
        assert_eq!(special(&[0x0f, 0x01, 0x10]), None, "lgdt");
        assert_eq!(special(&[0x66, 0x0f, 0x38, 0x82, 0x08]), Some(Special::Invlpg), "invpcid");
        assert_eq!(special(&[0x0f, 0x22, 0xd8]), Some(Special::Cr3Load), "mov cr3, rax");
        assert_eq!(special(&[0x0f, 0x22, 0xe0]), None, "mov cr4, rax");
        assert_eq!(special(&[0x0f, 0x05]), Some(Special::Syscall), "syscall");
        assert_eq!(special(&[0x48, 0xcf]), Some(Special::InterruptReturn), "iretq");
        assert_eq!(special(&[0x0f]), None);
        assert_eq!(special(&[]), None);
    }
}

//! Finds the system calls in the code of an ELF file: `syscall` instructions, and calls of the C library's
//! functions.
//!
//! The code is decoded from the start of each section to its end. A number is known if the register that
//! holds it was loaded with a constant on the straight way to the call.

use std::collections::{BTreeSet, HashMap, HashSet};

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionKind};

/// The system calls in one file.
#[derive(Debug, Default)]
pub struct Calls {
    /// Numbers of those that are known.
    pub numbers: BTreeSet<u64>,
    /// The number of `syscall` instructions whose number is not known.
    pub unknown: usize,
}

/// Functions of the C library whose names are not those of the calls that they make.
const WRAPPERS: [(&str, &str); 2] = [("seteuid", "setresuid"), ("setegid", "setresgid")];

/// Returns the calls in a file.
pub fn of(file: &object::File<'_>) -> Calls {
    let mut calls = Calls::default();
    calls.numbers.extend(imported(file));
    let stubs = Stubs::of(file);
    for section in file.sections().filter(|section| section.kind() == SectionKind::Text) {
        Search::new(&stubs, &mut calls).run(section.data().unwrap_or_default(), section.address());
    }
    calls
}

/// Returns the numbers of the calls whose functions the file imports.
fn imported(file: &object::File<'_>) -> impl Iterator<Item = u64> {
    let names = file.dynamic_symbols().filter(|symbol| symbol.is_undefined());
    names.filter_map(|symbol| symbol.name().ok().and_then(number)).collect::<Vec<_>>().into_iter()
}

/// Returns the number of the call that a function of the C library makes.
fn number(function: &str) -> Option<u64> {
    let plain = function.split('@').next().unwrap_or(function);
    let name = WRAPPERS.iter().find(|(wrapper, _)| *wrapper == plain).map_or(plain, |(_, call)| *call);
    abi::syscalls::TABLE.iter().find(|entry| entry.name == name).map(|entry| entry.number.into())
}

/// Where a file calls the C library's function `syscall`, whose first argument is the number.
struct Stubs {
    /// Words that hold the function's address.
    words: HashSet<u64>,
    /// The function itself, if the file has it, and code that jumps through such a word.
    jumps: HashSet<u64>,
}

impl Stubs {
    fn of(file: &object::File<'_>) -> Self {
        let is_it =
            |symbol: &object::Symbol<'_, '_>| symbol.is_definition() && symbol.name() == Ok("syscall");
        let own = file.symbols().filter(is_it).map(|symbol| symbol.address());
        let mut stubs = Stubs { words: words_of(file), jumps: own.collect() };
        if !stubs.words.is_empty() {
            let is_stub = |name: &str| name.starts_with(".plt");
            let sections = file.sections().filter(|section| section.name().is_ok_and(is_stub));
            sections.for_each(|section| stubs.add(section.data().unwrap_or_default(), section.address()));
        }
        stubs
    }

    /// Adds the jumps through the words. One may follow an instruction that marks it as the target of a jump.
    fn add(&mut self, code: &[u8], address: u64) {
        let mut mark = None;
        for instruction in decoder(code, address).iter() {
            let is_jump = instruction.mnemonic() == Mnemonic::Jmp;
            if is_jump && self.words.contains(&instruction.ip_rel_memory_address()) {
                self.jumps.extend([mark.unwrap_or(instruction.ip()), instruction.ip()]);
            }
            mark = (instruction.mnemonic() == Mnemonic::Endbr64).then(|| instruction.ip());
        }
    }

    /// Returns whether an instruction calls, or jumps to, the function.
    fn has_target(&self, instruction: &Instruction) -> bool {
        match instruction.op0_kind() {
            OpKind::NearBranch64 => self.jumps.contains(&instruction.near_branch_target()),
            OpKind::Memory => {
                instruction.is_ip_rel_memory_operand()
                    && self.words.contains(&instruction.ip_rel_memory_address())
            }
            _ => false,
        }
    }
}

/// Returns the addresses of the words that the dynamic linker fills with the address of `syscall`.
fn words_of(file: &object::File<'_>) -> HashSet<u64> {
    let symbols: HashMap<_, _> =
        file.dynamic_symbols().map(|symbol| (symbol.index(), symbol.name() == Ok("syscall"))).collect();
    let relocations = file.dynamic_relocations().into_iter().flatten();
    let is_it = |target| match target {
        RelocationTarget::Symbol(index) => symbols.get(&index) == Some(&true),
        _ => false,
    };
    relocations.filter(|(_, relocation)| is_it(relocation.target())).map(|(word, _)| word).collect()
}

fn decoder(code: &[u8], address: u64) -> Decoder<'_> {
    Decoder::with_ip(64, code, address, DecoderOptions::NONE)
}

/// A walk through code, with what is known of two registers.
struct Search<'a> {
    stubs: &'a Stubs,
    calls: &'a mut Calls,
    rax: Option<u64>,
    rdi: Option<u64>,
}

impl<'a> Search<'a> {
    fn new(stubs: &'a Stubs, calls: &'a mut Calls) -> Self {
        Search { stubs, calls, rax: None, rdi: None }
    }

    fn run(&mut self, code: &[u8], address: u64) {
        for instruction in decoder(code, address).iter() {
            self.step(&instruction);
        }
    }

    fn step(&mut self, instruction: &Instruction) {
        if instruction.mnemonic() == Mnemonic::Syscall {
            self.add(self.rax);
            self.rax = None;
            return;
        }
        let leaves = matches!(
            instruction.flow_control(),
            FlowControl::Call
                | FlowControl::IndirectCall
                | FlowControl::UnconditionalBranch
                | FlowControl::IndirectBranch
                | FlowControl::Return
        );
        if leaves {
            if self.stubs.has_target(instruction) {
                self.add(self.rdi);
            }
            (self.rax, self.rdi) = (None, None);
            return;
        }
        match changed(instruction) {
            Some(Register::RAX) => self.rax = constant(instruction),
            Some(Register::RDI) => self.rdi = constant(instruction),
            _ => {}
        }
    }

    fn add(&mut self, number: Option<u64>) {
        match number {
            Some(number) => drop(self.calls.numbers.insert(number)),
            None => self.calls.unknown += 1,
        }
    }
}

/// Returns the register that an instruction may change, as far as it is its first operand.
fn changed(instruction: &Instruction) -> Option<Register> {
    let only_reads =
        matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push | Mnemonic::Bt);
    let is_register = instruction.op_count() > 0 && instruction.op0_kind() == OpKind::Register;
    (is_register && !only_reads).then(|| instruction.op0_register().full_register())
}

/// Returns the number that an instruction loads.
fn constant(instruction: &Instruction) -> Option<u64> {
    let size = instruction.op0_register().size();
    let is_zeroed = matches!(instruction.mnemonic(), Mnemonic::Xor | Mnemonic::Sub)
        && instruction.op1_kind() == OpKind::Register
        && instruction.op0_register() == instruction.op1_register();
    match instruction.mnemonic() {
        _ if size < 4 => None,
        _ if is_zeroed => Some(0),
        Mnemonic::Mov => instruction.try_immediate(1).ok(),
        _ => None,
    }
}

//! Finds the system calls in the code of an ELF file: `syscall` instructions, and calls of the C library's
//! functions.
//!
//! The code is decoded from the start of each section to its end. A number is known if the register that
//! holds it was loaded with a constant on the straight way to the call.

use std::collections::{BTreeSet, HashMap};

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionKind};

/// The system calls in one file.
#[derive(Debug, Default)]
pub struct Calls {
    /// Numbers of those that are known.
    pub numbers: BTreeSet<u64>,
    /// Numbers and first arguments, of calls where both are known.
    pub arguments: BTreeSet<(u64, u64)>,
    /// Whether it imports the function `clone`.
    pub clones: bool,
    /// The number of calls whose number is not known.
    pub unknown: usize,
}

/// The functions of the C library that are followed to their calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    /// `syscall`, whose first argument is the number.
    Any,
    /// The function of this call.
    Of(u64),
}

/// Functions of the C library whose names are not those of the calls that they make.
const WRAPPERS: [(&str, &str); 3] =
    [("seteuid", "setresuid"), ("setegid", "setresgid"), ("setrlimit64", "setrlimit")];

/// Returns the calls in a file of `bytes`, or `None` if it has no sections, by which code is found.
pub fn of(file: &object::File<'_>, bytes: usize) -> Option<Calls> {
    let mut calls = Calls::default();
    let imported: Vec<&str> = imported(file).collect();
    calls.numbers.extend(imported.iter().filter_map(|name| number(name)));
    calls.clones = imported.contains(&"clone");
    let stubs = Stubs::of(file);
    let mut sections = file.sections().filter(|section| section.kind() == SectionKind::Text).peekable();
    sections.peek()?;
    // Sections may overlap in a file that was made to keep a reader busy.
    let mut left = bytes;
    for section in sections {
        let code = section.data().unwrap_or_default();
        left = left.checked_sub(code.len())?;
        Search::new(&stubs, &mut calls).run(code, section.address());
    }
    Some(calls)
}

/// Returns the functions that the file imports.
fn imported<'a>(file: &'a object::File<'_>) -> impl Iterator<Item = &'a str> {
    let symbols = file.dynamic_symbols().filter(|symbol| symbol.is_undefined());
    symbols.filter_map(|symbol| symbol.name().ok()?.split('@').next())
}

/// Returns the number of the call that a function of the C library makes.
fn number(function: &str) -> Option<u64> {
    let wrapped = WRAPPERS.iter().find(|(wrapper, _)| *wrapper == function);
    let name = wrapped.map_or(function, |(_, call)| *call);
    abi::syscalls::TABLE.iter().find(|entry| entry.name == name).map(|entry| entry.number.into())
}

fn followed(name: &str) -> Option<Function> {
    match name {
        "syscall" => Some(Function::Any),
        "prctl" | "setrlimit" | "setrlimit64" => number(name).map(Function::Of),
        _ => None,
    }
}

/// Where a file calls the functions of the C library that are followed.
struct Stubs {
    /// Words that hold a function's address.
    words: HashMap<u64, Function>,
    /// The functions themselves, if the file has them, and code that jumps through such a word.
    jumps: HashMap<u64, Function>,
}

impl Stubs {
    fn of(file: &object::File<'_>) -> Self {
        let own = file.symbols().filter(ObjectSymbol::is_definition);
        let own = own.filter_map(|symbol| Some((symbol.address(), followed(symbol.name().ok()?)?)));
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
            if is_jump && let Some(function) = self.words.get(&instruction.ip_rel_memory_address()) {
                self.jumps.insert(instruction.ip(), *function);
                mark.map(|mark| self.jumps.insert(mark, *function));
            }
            mark = (instruction.mnemonic() == Mnemonic::Endbr64).then(|| instruction.ip());
        }
    }

    /// Returns the function that an instruction calls or jumps to.
    fn target(&self, instruction: &Instruction) -> Option<Function> {
        match instruction.op0_kind() {
            OpKind::NearBranch64 => self.jumps.get(&instruction.near_branch_target()).copied(),
            OpKind::Memory if instruction.is_ip_rel_memory_operand() => {
                self.words.get(&instruction.ip_rel_memory_address()).copied()
            }
            _ => None,
        }
    }
}

/// Returns the words that the dynamic linker fills with addresses of functions that are followed.
fn words_of(file: &object::File<'_>) -> HashMap<u64, Function> {
    let symbols: HashMap<_, _> = file
        .dynamic_symbols()
        .filter_map(|symbol| Some((symbol.index(), followed(symbol.name().ok()?)?)))
        .collect();
    let relocations = file.dynamic_relocations().into_iter().flatten();
    relocations
        .filter_map(|(word, relocation)| match relocation.target() {
            RelocationTarget::Symbol(index) => Some((word, *symbols.get(&index)?)),
            _ => None,
        })
        .collect()
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
            self.add(self.rax, self.rdi);
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
            match self.stubs.target(instruction) {
                Some(Function::Any) => self.add(self.rdi, None),
                Some(Function::Of(number)) => self.add(Some(number), self.rdi),
                None => {}
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

    fn add(&mut self, number: Option<u64>, first: Option<u64>) {
        match number {
            Some(number) => {
                self.calls.numbers.insert(number);
                self.calls.arguments.extend(first.map(|first| (number, first)));
            }
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

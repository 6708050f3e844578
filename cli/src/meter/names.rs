//! Names of code: the function and line of an instruction of a kernel or of the program.

use std::path::Path;

use anyhow::{Context, Result};
use object::{Object, ObjectSymbol};

use super::kallsyms::Kallsyms;
use crate::place;
use crate::symbols::{Function, Symbols};

/// The lowest address of the kernel.
pub const KERNEL_HALF: u64 = 1 << 47;
/// The address where our kernel loads a position-independent program.
const PIE_BASE: u64 = 0x5555_5555_4000;
/// Source files of general functions, whose names do not tell the purpose of the code.
const PLUMBING: [&str; 4] = ["/rustc/", "/registry/src/", "library/core/", "crates/sync/"];

/// The symbols of a kernel.
pub enum Kernel {
    /// Our kernel.
    Ours {
        /// The symbols, for names.
        symbols: Box<Symbols>,
        /// The ELF file, for addresses.
        elf: Vec<u8>,
    },
    /// The stock kernel.
    Linux(Kallsyms),
}

impl Kernel {
    /// Reads our kernel's file.
    pub fn ours(path: &Path) -> Result<Self> {
        let elf = std::fs::read(path).with_context(|| path.display().to_string())?;
        Ok(Kernel::Ours { symbols: Box::new(Symbols::load(path)), elf })
    }

    /// Returns the address of a symbol.
    pub fn address(&self, name: &str) -> Option<u64> {
        match self {
            Kernel::Linux(symbols) => symbols.address(name),
            Kernel::Ours { elf, .. } => address_in(elf, name),
        }
    }

    /// Returns the name of the function at an address, without what the compiler added to it.
    pub fn function(&self, address: u64) -> Option<String> {
        let name = match self {
            Kernel::Linux(symbols) => symbols.describe(address)?,
            Kernel::Ours { symbols, .. } => match telling(&symbols.inlined(address)) {
                Some(function) => function.name.split('<').next().unwrap_or_default().to_owned(),
                None => symbols.code(address)?,
            },
        };
        let name = strip_hash(name.split("+0x").next().unwrap_or(&name));
        Some(name.split(".isra.").next().unwrap_or(&name).to_owned())
    }

    fn code(&self, address: u64) -> Option<String> {
        match self {
            Kernel::Linux(symbols) => symbols.describe(address),
            Kernel::Ours { symbols, .. } => describe(symbols, address),
        }
    }

    /// Returns the variable at an address of the kernel's image.
    pub fn data(&self, address: u64) -> Option<String> {
        match self {
            Kernel::Linux(symbols) => symbols.describe(address),
            Kernel::Ours { symbols, .. } => symbols.data(address).map(|name| strip_hash(&name)),
        }
    }
}

impl Kernel {
    /// Returns the stock kernel's variable at an offset of its per-CPU data.
    pub fn per_cpu(&self, offset: u64) -> Option<String> {
        match self {
            Kernel::Linux(symbols) => symbols.per_cpu(offset),
            Kernel::Ours { .. } => None,
        }
    }
}

fn address_in(elf: &[u8], name: &str) -> Option<u64> {
    let file = object::File::parse(elf).ok()?;
    let found = file.symbols().find(|symbol| symbol.name() == Ok(name));
    found.map(|symbol| symbol.address())
}

/// The symbols of the program, and its load address.
pub struct Loaded {
    symbols: Symbols,
    bias: u64,
}

impl Loaded {
    /// Reads a program that executed a marker at address `begin`. The place of the same bytes in the file
    /// gives its load address. Without a marker it is the address where our kernel loads such programs.
    pub fn new(path: &Path, elf: &[u8], begin: Option<u64>) -> Self {
        Loaded { symbols: Symbols::load(path), bias: bias(elf, begin) }
    }

    fn code(&self, address: u64) -> Option<String> {
        describe(&self.symbols, address.checked_sub(self.bias)?)
    }

    /// Returns the program's variable at an address.
    pub fn data(&self, address: u64) -> Option<String> {
        self.symbols.data(address.checked_sub(self.bias)?).map(|name| strip_hash(&name))
    }
}

fn bias(elf: &[u8], begin: Option<u64>) -> u64 {
    let Ok(file) = object::File::parse(elf) else { return 0 };
    if file.kind() != object::ObjectKind::Dynamic {
        return 0;
    }
    let marked = begin.and_then(|at| marker(&file, at).map(|there| at - there));
    marked.unwrap_or(PIE_BASE)
}

/// Returns the address in the file of the BEGIN marker that has the same place in its page.
fn marker(file: &object::File<'_>, at: u64) -> Option<u64> {
    use object::ObjectSection;
    let text = file.section_by_name(".text")?;
    let bytes = text.data().ok()?;
    let is_begin = |code: &[u8]| code[..3] == [0x0f, 0x1f, 0x80] && code[4..] == [2, 0x56, 0x52];
    let found = (0..bytes.len().saturating_sub(6)).filter(|start| is_begin(&bytes[*start..*start + 7]));
    let addresses = found.map(|start| text.address() + start as u64);
    addresses.filter(|address| *address <= at).find(|address| (at - address).is_multiple_of(4096))
}

/// The names for one run.
pub struct Names<'a> {
    /// The kernel's names.
    pub kernel: &'a Kernel,
    /// The program's names.
    pub program: Loaded,
}

impl Names<'_> {
    /// Returns the function, offset and line of an instruction.
    pub fn code(&self, address: u64) -> String {
        let (owner, name) = match address {
            KERNEL_HALF.. => ("kernel", self.kernel.code(address)),
            _ => ("program", self.program.code(address)),
        };
        name.unwrap_or_else(|| format!("{owner} {address:#x}"))
    }
}

/// Formats `function at file:line in symbol+offset`, with the innermost function that tells the purpose.
fn describe(symbols: &Symbols, address: u64) -> Option<String> {
    let symbol = symbols.code(address).map(|name| strip_hash(&name));
    let functions = symbols.inlined(address);
    let Some(function) = telling(&functions) else { return symbol };
    let name = strip_hash(&function.name);
    let place = function
        .place
        .as_ref()
        .map_or_else(String::new, |(file, line)| format!(" at {}:{line}", short(file)));
    Some(match symbol {
        Some(symbol) if symbol.starts_with(&name) => format!("{symbol}{place}"),
        Some(symbol) => format!("{name}{place} in {symbol}"),
        None => name + &place,
    })
}

/// Returns whether a source file has general functions only.
pub(super) fn is_plumbing(file: &str) -> bool {
    PLUMBING.iter().any(|part| file.contains(part))
}

fn telling(functions: &[Function]) -> Option<&Function> {
    let tells = |function: &&Function| {
        let (file, _) = function.place.as_ref().map_or(("", 0), |(file, line)| (file.as_str(), *line));
        !is_plumbing(file)
    };
    functions.iter().find(tells).or(functions.first())
}

/// Returns the path of a source file as it is in the repository.
fn short(file: &str) -> &str {
    let roots = [place::root(), place::built_at()];
    let rest = roots.iter().find_map(|root| file.strip_prefix(&*root.to_string_lossy()));
    rest.map_or(file, |rest| rest.trim_start_matches('/'))
}

/// Removes the compiler's `::h0123456789abcdef` from a name.
pub(super) fn strip_hash(name: &str) -> String {
    let Some(at) = name.find("::h") else { return name.to_owned() };
    let hash = &name[at + 3..];
    let digits = hash.bytes().take_while(u8::is_ascii_hexdigit).count();
    if digits == 16 { format!("{}{}", &name[..at], &hash[16..]) } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(name: &str, file: &str) -> Function {
        Function { name: name.to_owned(), place: Some((file.to_owned(), 7)) }
    }

    #[test]
    fn the_innermost_function_that_tells_something_is_named() {
        let frames = [
            function("fetch_add", "/rustc/abc/library/core/src/sync/atomic.rs"),
            function("add", "/x/crates/sync/src/lib.rs"),
            function("inc", "/x/crates/refcache/src/cache.rs"),
        ];
        assert_eq!(telling(&frames).unwrap().name, "inc");
        assert_eq!(telling(&frames[..2]).unwrap().name, "fetch_add");
        assert!(telling(&[]).is_none());
    }

    #[test]
    fn hashes_go() {
        assert_eq!(strip_hash("a::b::h0123456789abcdef+0x10"), "a::b+0x10");
        assert_eq!(strip_hash("a::hello"), "a::hello");
    }

    #[test]
    fn our_own_code_has_function_and_line() {
        let path = std::env::current_exe().unwrap();
        let symbols = Symbols::load(&path);
        let elf = std::fs::read(&path).unwrap();
        let file = object::File::parse(&*elf).unwrap();
        let this = file.symbols().find(|symbol| symbol.name().is_ok_and(|name| name.contains("strip_hash")));
        let text = describe(&symbols, this.unwrap().address()).unwrap();
        assert!(text.contains("strip_hash+0x0") && text.contains("cli/src/meter/names.rs:"), "{text}");
    }
}

//! Names and source lines for addresses of a program.

use std::path::Path;

use addr2line::{Loader, Location};

/// The symbols of one ELF file; empty if it has none.
pub struct Symbols(Option<Loader>);

impl Symbols {
    /// Reads symbol table and line tables.
    pub fn load(path: &Path) -> Self {
        Symbols(Loader::new(path).ok())
    }

    /// Function and line for an address in the file's own terms; inlined callees come first.
    pub fn describe(&self, address: u64) -> String {
        let Some(loader) = self.0.as_ref().filter(|loader| is_code(loader, address)) else {
            return "?".to_owned();
        };
        let inlined = inlined(loader, address);
        if inlined.is_empty() { symbol(loader, address) } else { inlined.join(" in ") }
    }
}

/// Whether an address lies in the program's code; the nearest symbol to any other means nothing. A program whose code
/// has no section has no symbols either.
fn is_code(loader: &Loader, address: u64) -> bool {
    let text = loader.get_section_range(b".text");
    text.is_some_and(|text| (text.begin..text.end).contains(&address))
}

/// The functions at an address from the innermost inlined one outwards, from debug information.
fn inlined(loader: &Loader, address: u64) -> Vec<String> {
    let mut functions = Vec::new();
    let Ok(mut frames) = loader.find_frames(address) else { return functions };
    while let Ok(Some(frame)) = frames.next() {
        let Some(function) = frame.function else { continue };
        let name = function.demangle().map_or_else(|_| "?".to_owned(), |name| name.into_owned());
        functions.push(name + &place(frame.location.as_ref()));
    }
    functions
}

/// The nearest symbol below an address, for programs without debug information.
fn symbol(loader: &Loader, address: u64) -> String {
    let Some(symbol) = loader.find_symbol_info(address) else { return "?".to_owned() };
    let name = addr2line::demangle_auto(symbol.name().into(), None);
    format!("{name}+{:#x}", address - symbol.address())
}

fn place(location: Option<&Location<'_>>) -> String {
    match location {
        Some(Location { file: Some(file), line: Some(line), .. }) => format!(" at {file}:{line}"),
        _ => String::new(),
    }
}

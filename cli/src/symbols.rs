//! Names and source lines for addresses of an ELF file.

use std::path::Path;

use addr2line::{Loader, Location};

use crate::terminal;

/// The symbols of one ELF file. It is empty if the file has none.
pub struct Symbols(Option<Loader>);

/// A function and its place in the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name, demangled and escaped for a terminal.
    pub name: String,
    /// The file and the line.
    pub place: Option<(String, u32)>,
}

impl Function {
    fn describe(&self) -> String {
        match &self.place {
            Some((file, line)) => format!("{} at {file}:{line}", self.name),
            None => self.name.clone(),
        }
    }
}

impl Symbols {
    /// Reads the symbol table and the line tables.
    pub fn load(path: &Path) -> Self {
        Symbols(Loader::new(path).ok())
    }

    /// Returns the function and line at an address of the file. Inlined callees come first.
    pub fn describe(&self, address: u64) -> String {
        let inlined: Vec<String> = self.inlined(address).iter().map(Function::describe).collect();
        match inlined.is_empty() {
            true => self.code(address).unwrap_or_else(|| "?".to_owned()),
            false => inlined.join(" in "),
        }
    }

    /// Returns the functions at an address, from the innermost inlined one outwards, by the debug
    /// information.
    pub fn inlined(&self, address: u64) -> Vec<Function> {
        let Some(loader) = self.at_code(address) else { return Vec::new() };
        let mut functions = Vec::new();
        let Ok(mut frames) = loader.find_frames(address) else { return functions };
        while let Ok(Some(frame)) = frames.next() {
            let Some(function) = frame.function else { continue };
            let name = function.demangle().map_or_else(|_| "?".to_owned(), |name| terminal::name(&name));
            functions.push(Function { name, place: place(frame.location.as_ref()) });
        }
        functions
    }

    /// Returns the nearest symbol below an address of code.
    pub fn code(&self, address: u64) -> Option<String> {
        symbol(self.at_code(address)?, address)
    }

    /// Returns the nearest symbol below any address.
    pub fn data(&self, address: u64) -> Option<String> {
        symbol(self.0.as_ref()?, address)
    }

    /// Returns the loader if the address is in the program's code. For other addresses the nearest symbol
    /// means nothing.
    fn at_code(&self, address: u64) -> Option<&Loader> {
        let loader = self.0.as_ref()?;
        let text = loader.get_section_range(b".text");
        text.is_some_and(|text| (text.begin..text.end).contains(&address)).then_some(loader)
    }
}

fn symbol(loader: &Loader, address: u64) -> Option<String> {
    let symbol = loader.find_symbol_info(address)?;
    let name = addr2line::demangle_auto(symbol.name().into(), None);
    Some(format!("{}+{:#x}", terminal::name(&name), address - symbol.address()))
}

fn place(location: Option<&Location<'_>>) -> Option<(String, u32)> {
    match location {
        Some(Location { file: Some(file), line: Some(line), .. }) => Some((terminal::name(file), *line)),
        _ => None,
    }
}

//! `radixvm syscalls`: prints the kernel's table of system calls.

use abi::syscalls::{Entry, Support, TABLE};
use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};

use launch::table::Table;
use launch::terminal;

/// Options of `radixvm syscalls`.
#[derive(Args)]
pub struct Arguments {
    /// One JSON array instead of a table
    #[arg(long)]
    json: bool,
}

/// Returns the name of a system call.
pub fn name(number: u64) -> Option<&'static str> {
    abi::syscalls::find(number).map(|entry| entry.name)
}

/// Prints the list.
pub fn run(arguments: &Arguments) -> Result<u8> {
    let text = if arguments.json { json_text()? } else { text() };
    terminal::print_plain(text)?;
    Ok(0)
}

fn json_text() -> Result<String> {
    let calls: Vec<Value> = TABLE.iter().map(object).collect();
    Ok(serde_json::to_string_pretty(&calls)? + "\n")
}

fn object(entry: &Entry) -> Value {
    let (support, missing) = words(entry.support);
    json!({"number": entry.number, "name": entry.name, "support": support, "missing": missing})
}

/// Formats the calls that work, and the number of those that do not.
fn text() -> String {
    let mut table = Table::new(["call", "number", "support", "missing"]).left(3);
    for entry in TABLE.iter().filter(|entry| entry.support != Support::None) {
        let (support, missing) = words(entry.support);
        table.row([entry.name, &entry.number.to_string(), support, missing.unwrap_or("")]);
    }
    format!("{table}\n{}\n", totals())
}

fn totals() -> String {
    let count = |wanted: &str| TABLE.iter().filter(|entry| words(entry.support).0 == wanted).count();
    let (full, partial, none) = (count("full"), count("partial"), count("none"));
    format!("{full} full, {partial} partial, {none} none (ENOSYS; --json lists them)")
}

fn words(support: Support) -> (&'static str, Option<&'static str>) {
    match support {
        Support::Full => ("full", None),
        Support::Partial(missing) => ("partial", Some(missing)),
        Support::None => ("none", None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_is_in_the_json_and_the_totals() {
        let calls: Vec<Value> = serde_json::from_str(&json_text().unwrap()).unwrap();
        assert_eq!(calls.len(), TABLE.len());
        let numbers: usize = totals().split_whitespace().filter_map(|word| word.parse::<usize>().ok()).sum();
        assert_eq!(numbers, TABLE.len());
    }
}

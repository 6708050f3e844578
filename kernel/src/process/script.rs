//! Scripts: a first line `#!INTERPRETER ARGUMENT`, as Linux reads it.

use abi::Errno;

use crate::bytes::prefix;

/// The bytes of a file that are looked at.
pub const HEAD: usize = 256;

/// The contents of the first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Script<'a> {
    /// The path of the program that runs it.
    pub interpreter: &'a [u8],
    /// The rest of the line, as one argument.
    pub argument: Option<&'a [u8]>,
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

fn trimmed(line: &[u8]) -> &[u8] {
    let end = line.iter().rposition(|&byte| !is_blank(byte)).map_or(0, |last| last + 1);
    let start = line.iter().position(|&byte| !is_blank(byte)).unwrap_or(end);
    line.get(start..end).unwrap_or_default()
}

impl<'a> Script<'a> {
    /// Parses a file that begins with `head`. Returns `None` if it is no script.
    ///
    /// # Errors
    /// ENOEXEC if the line names no interpreter, or its path is truncated.
    pub fn parse(head: &'a [u8]) -> Result<Option<Self>, Errno> {
        let Some(rest) = head.strip_prefix(b"#!") else { return Ok(None) };
        let end = rest.iter().position(|byte| matches!(byte, b'\n' | 0));
        let line = trimmed(prefix(rest, end.unwrap_or(rest.len()) as u64));
        let blank = line.iter().position(|&byte| is_blank(byte));
        let is_cut = end.is_none() && head.len() == HEAD && blank.is_none();
        if line.is_empty() || is_cut {
            return Err(Errno::ENOEXEC);
        }
        let (interpreter, argument) = line.split_at(blank.unwrap_or(line.len()));
        let argument = Some(trimmed(argument)).filter(|argument| !argument.is_empty());
        Ok(Some(Self { interpreter, argument }))
    }
}

//! Printing, with everything escaped that could control a terminal.
//!
//! Names of files, symbols of programs and messages of a guest may contain anything, escape sequences
//! included. All output on either stream goes through this file, except the program's own bytes.

use std::fmt::{Display, Write as _};
use std::io::{self, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use rustix::stdio::{stdin, stdout};
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};

/// Prints a line of this command's own on stderr.
pub fn message(text: impl Display) {
    eprint_plain(&format!("radixvm: {text}\n"));
}

/// Prints text on stderr, escaped. An error has no other place to be told.
pub fn eprint_plain(text: &str) {
    let text = plain(text);
    let is_raw = IS_RAW.load(Ordering::Relaxed);
    let text = if is_raw { text.replace('\n', "\r\n") } else { text };
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Whether the terminal passes a newline on as it is.
static IS_RAW: AtomicBool = AtomicBool::new(false);

/// The attributes of the terminal before it became raw, while it is.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// A raw terminal, as long as this value lives: the guest's kernel does what the host's does otherwise.
pub struct Raw(());

impl Raw {
    /// Makes the terminal raw.
    ///
    /// # Errors
    /// If standard input or output is no terminal.
    pub fn begin() -> Result<Self> {
        anyhow::ensure!(
            isatty(stdin()) && isatty(stdout()),
            "-t needs a terminal as standard input and output: leave it out"
        );
        let before = tcgetattr(stdin()).context("cannot read the terminal's attributes")?;
        let mut raw = before.clone();
        raw.make_raw();
        // A signal meanwhile finds the attributes to restore.
        *BEFORE.lock().expect("no holder panics") = Some(before);
        tcsetattr(stdin(), OptionalActions::Now, &raw).context("cannot set the terminal's attributes")?;
        IS_RAW.store(true, Ordering::Relaxed);
        Ok(Raw(()))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives a terminal that is raw its attributes back.
pub fn restore() {
    IS_RAW.store(false, Ordering::Relaxed);
    if let Some(before) = BEFORE.lock().expect("no holder panics").take() {
        // The terminal may be gone.
        let _ = tcsetattr(stdin(), OptionalActions::Drain, &before);
    }
}

/// Returns the rows and columns of the terminal.
pub fn size() -> Option<(u16, u16)> {
    tcgetwinsize(stdin()).ok().map(|size| (size.ws_row, size.ws_col))
}

/// Prints text on stdout as it is, but harmless.
pub fn print_plain(text: impl Display) -> io::Result<()> {
    io::stdout().write_all(plain(&text.to_string()).as_bytes()).map_err(named)
}

/// Names standard output in an error, such as that of a full disk. An error of a closed pipe stays as it is,
/// because no person is told of it.
fn named(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => error,
        kind => io::Error::new(kind, format!("standard output: {error}")),
    }
}

/// Escapes every character that controls a terminal or the direction of text. Line ends stay.
pub fn plain(text: &str) -> String {
    escaped(text, |character| character == '\n')
}

/// Escapes a name, which is one line.
pub fn name(text: &str) -> String {
    escaped(text, |_| false)
}

fn escaped(text: &str, spare: impl Fn(char) -> bool) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, character| {
        match character {
            '\0'..='\x7f' if character.is_control() && !spare(character) => {
                let _ = write!(out, "\\x{:02x}", u32::from(character));
            }
            character if acts(character) => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(character));
            }
            character => out.push(character),
        }
        out
    })
}

/// Returns whether a character is a control character beyond ASCII, a line separator, or a mark of text
/// direction.
fn acts(character: char) -> bool {
    matches!(character, '\u{80}'..='\u{9f}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(plain("a\x1b[31mb\r\x07\tc\x7f"), r"a\x1b[31mb\x0d\x07\x09c\x7f");
        assert_eq!(plain("\u{9b}2J\u{202e}x\u{2028}"), r"\u{9b}2J\u{202e}x\u{2028}");
    }

    #[test]
    fn text_stays_as_it_is() {
        let text = "one\n  two … größer 漢字\n";
        assert_eq!(plain(text), text);
    }

    #[test]
    fn an_output_that_cannot_be_written_is_named() {
        let full = named(io::Error::from_raw_os_error(28));
        assert_eq!(full.to_string(), "standard output: No space left on device (os error 28)");
        assert_eq!(named(io::ErrorKind::BrokenPipe.into()).kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_name_is_one_line() {
        assert_eq!(name("a\nradixvm: b"), r"a\x0aradixvm: b");
    }
}

//! The line discipline: what a terminal does with the bytes that arrive, and with those that go out.
//!
//! It is a value without a lock, after POSIX's chapter 11 and Linux's `n_tty`. It shows input by a function
//! of the caller.
//!
//! ```text
//!   read ........ line ........ end      a ring of bytes
//!        readable       edited           with ICANON; without, all is readable
//! ```

use alloc::vec::Vec;

use abi::Errno;
use abi::signal::{SIGINT, SIGQUIT, SIGTSTP};
use abi::terminal::cc::*;
use abi::terminal::*;

use crate::bytes::prefix;
use crate::mm::fallible;

/// The bytes of input that are kept.
const BYTES: usize = 4096;

/// The distance of tabs.
const TAB: usize = 8;

/// The place where input is shown.
pub type Show<'a> = &'a mut dyn FnMut(&[u8]);

/// The state of a terminal's input and output.
pub struct Discipline {
    termios: Termios,
    /// The ring of bytes, once it is [allocated](Self::allocate).
    bytes: Vec<u8>,
    /// The bytes that end a line, as a set. VEOF is a 0 there, which is not the program's.
    ends: [u64; BYTES / 64],
    /// Counts of bytes that were read, became readable, and arrived.
    read: usize,
    line: usize,
    end: usize,
    /// The column of the output, and that where the edited line begins.
    column: usize,
    first_column: usize,
    /// Set after VLNEXT.
    is_literal: bool,
    /// Whether VSTOP has stopped the output, and whether TCXONC has.
    is_stopped: bool,
    pub is_held: bool,
}

impl Discipline {
    /// Creates the state of a terminal that was just opened.
    pub const fn new() -> Self {
        Self {
            termios: Termios::DEFAULT,
            bytes: Vec::new(),
            ends: [0; BYTES / 64],
            read: 0,
            line: 0,
            end: 0,
            column: 0,
            first_column: 0,
            is_literal: false,
            is_stopped: false,
            is_held: false,
        }
    }

    /// Allocates room for input, without which all bytes are lost.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn allocate(&mut self) -> Result<(), Errno> {
        self.bytes = fallible::zeroes(BYTES)?;
        Ok(())
    }

    /// Returns the attributes.
    pub fn termios(&self) -> Termios {
        self.termios
    }

    /// Sets the attributes. Bytes that were typed and not read become readable, as one line, when ICANON
    /// changes.
    pub fn set_termios(&mut self, termios: Termios) {
        let changes = (self.termios.local ^ termios.local) & ICANON != 0;
        if changes && self.read < self.end {
            self.ends = [0; BYTES / 64];
            self.mark(self.end - 1);
            self.line = self.end;
        }
        if termios.input & IXON == 0 {
            self.is_stopped = false;
        }
        self.is_literal = false;
        self.termios = termios;
    }

    fn is_input(&self, flag: u32) -> bool {
        self.termios.input & flag != 0
    }

    fn is_local(&self, flag: u32) -> bool {
        self.termios.local & flag != 0
    }

    /// Returns whether a byte is a control character. A character that is 0 is switched off.
    fn is(&self, byte: u8, index: usize) -> bool {
        byte != 0 && self.character(index) == byte
    }

    /// Returns a control character, or a number of VMIN or VTIME.
    pub fn character(&self, index: usize) -> u8 {
        self.termios.characters.get(index).copied().unwrap_or(0)
    }

    /// Returns whether more input is to be taken. A full terminal waits for its readers, unless they wait for
    /// the end of the line.
    pub fn has_room(&self) -> bool {
        self.end - self.read < BYTES - 1 || self.is_local(ICANON) && self.line == self.read
    }

    /// Returns whether the output is stopped.
    pub fn stops(&self) -> bool {
        self.is_stopped || self.is_held
    }

    /// Takes a byte that arrived, and shows it if that is to be. Returns the signal that it sends.
    pub fn accept(&mut self, byte: u8, show: Show<'_>) -> Option<u32> {
        let mut byte = if self.is_input(ISTRIP) { byte & 0x7f } else { byte };
        if core::mem::take(&mut self.is_literal) {
            self.add(byte, show);
            return None;
        }
        if self.is_input(IXON) && self.accept_flow(byte) {
            return None;
        }
        if let Some(signal) = self.signal_of(byte) {
            if !self.is_local(NOFLSH) {
                self.flush();
            }
            if self.is_input(IXON) {
                self.is_stopped = false;
            }
            if self.is_local(ECHO) {
                self.show_byte(byte, show);
            }
            return Some(signal);
        }
        byte = match byte {
            b'\r' if self.is_input(IGNCR) => return None,
            b'\r' if self.is_input(ICRNL) => b'\n',
            b'\n' if self.is_input(INLCR) => b'\r',
            other => other,
        };
        if !(self.is_local(ICANON) && self.edit(byte, show)) {
            self.add(byte, show);
        }
        None
    }

    /// Stops or starts the output. Returns whether the byte did no more than that.
    fn accept_flow(&mut self, byte: u8) -> bool {
        let (is_stop, is_start) = (self.is(byte, VSTOP), self.is(byte, VSTART));
        if is_start || self.is_input(IXANY) && !is_stop {
            self.is_stopped = false;
        } else if is_stop {
            self.is_stopped = true;
        }
        is_stop || is_start
    }

    fn signal_of(&self, byte: u8) -> Option<u32> {
        let signals = [(VINTR, SIGINT), (VQUIT, SIGQUIT), (VSUSP, SIGTSTP)];
        let found = signals.into_iter().find(|(index, _)| self.is(byte, *index));
        found.filter(|_| self.is_local(ISIG)).map(|(_, signal)| signal)
    }

    /// Edits the line. Returns whether the byte was for that.
    fn edit(&mut self, byte: u8, show: Show<'_>) -> bool {
        let is_extended = self.is_local(IEXTEN);
        match byte {
            _ if self.is(byte, VERASE) => self.erase(show, 1),
            _ if self.is(byte, VWERASE) && is_extended => self.erase_word(show),
            _ if self.is(byte, VKILL) => self.kill(byte, show),
            _ if self.is(byte, VLNEXT) && is_extended => {
                self.is_literal = true;
                if self.is_local(ECHO) && self.is_local(ECHOCTL) {
                    self.put(b"^\x08", show);
                }
            }
            _ if self.is(byte, VREPRINT) && is_extended && self.is_local(ECHO) => self.reprint(byte, show),
            b'\n' => {
                if self.is_local(ECHO) || self.is_local(ECHONL) {
                    self.put(b"\n", show);
                }
                self.end_line(byte);
            }
            _ if self.is(byte, VEOF) => self.end_line(0),
            _ if self.is(byte, VEOL) || self.is(byte, VEOL2) && is_extended => {
                if self.is_local(ECHO) {
                    self.show_byte(byte, show);
                }
                self.end_line(byte);
            }
            _ => return false,
        }
        true
    }

    fn at(index: usize) -> (usize, u64) {
        (index % BYTES / 64, 1 << (index % 64))
    }

    fn mark(&mut self, index: usize) {
        let (word, bit) = Self::at(index);
        self.ends.get_mut(word).into_iter().for_each(|word| *word |= bit);
    }

    fn is_marked(&self, index: usize) -> bool {
        let (word, bit) = Self::at(index);
        self.ends.get(word).is_some_and(|word| word & bit != 0)
    }

    fn byte(&self, index: usize) -> u8 {
        self.bytes.get(index % BYTES).copied().unwrap_or(0)
    }

    /// Keeps a byte, if there is room. The last place is for the end of a line.
    fn push(&mut self, byte: u8, is_end: bool) -> bool {
        let most = if self.is_local(ICANON) && !is_end { BYTES - 1 } else { BYTES };
        let fits = self.end - self.read < most;
        if let Some(place) = self.bytes.get_mut(self.end % BYTES).filter(|_| fits) {
            *place = byte;
            let (word, bit) = Self::at(self.end);
            self.ends.get_mut(word).into_iter().for_each(|word| *word &= !bit);
            self.end += 1;
        }
        fits
    }

    fn end_line(&mut self, byte: u8) {
        if self.push(byte, true) {
            self.mark(self.end - 1);
            self.line = self.end;
        }
    }

    /// Adds a byte as it is.
    fn add(&mut self, byte: u8, show: Show<'_>) {
        if self.line == self.end {
            self.first_column = self.column;
        }
        if !self.push(byte, false) {
            if self.is_input(IMAXBEL) {
                show(b"\x07");
            }
            return;
        }
        if !self.is_local(ICANON) {
            self.line = self.end;
        }
        if self.is_local(ECHO) {
            self.show_byte(byte, show);
        }
    }

    /// Shows a byte of input.
    fn show_byte(&mut self, byte: u8, show: Show<'_>) {
        match byte {
            b'\n' => self.put(b"\n", show),
            _ if self.is_caret(byte) => self.put(&[b'^', byte ^ 0x40], show),
            _ => self.put(&[byte], show),
        }
    }

    fn is_caret(&self, byte: u8) -> bool {
        self.is_local(ECHOCTL) && byte.is_ascii_control() && byte != b'\t' && byte != b'\n'
    }

    /// Returns whether a byte is a further one of a character.
    fn is_further(&self, byte: u8) -> bool {
        self.is_input(IUTF8) && byte & 0xc0 == 0x80
    }

    /// Returns where the last character of the edited line begins.
    fn last_character(&self) -> usize {
        let mut start = self.end - 1;
        while start > self.line && self.is_further(self.byte(start)) {
            start -= 1;
        }
        start
    }

    /// Erases characters at the end of the line.
    fn erase(&mut self, show: Show<'_>, count: usize) {
        for _ in 0..count {
            if self.end == self.line {
                return;
            }
            let start = self.last_character();
            let byte = self.byte(start);
            self.end = start;
            if !self.is_local(ECHO) {
                continue;
            }
            if self.is_local(ECHOE) {
                self.wipe(byte, show);
            } else {
                let erase = self.character(VERASE);
                self.show_byte(erase, show);
            }
        }
    }

    /// Wipes the last character that is shown, which was `byte`.
    fn wipe(&mut self, byte: u8, show: Show<'_>) {
        let columns = match byte {
            b'\t' => TAB - self.column_in_tab() % TAB,
            _ => self.width(byte),
        };
        if byte == b'\t' {
            show(prefix(&[8; TAB], columns as u64));
        } else {
            (0..columns).for_each(|_| show(b"\x08 \x08"));
        }
        self.column = self.column.saturating_sub(columns);
    }

    /// Returns the column behind the edited line, less that of its last tab.
    fn column_in_tab(&self) -> usize {
        let mut columns = 0;
        for byte in (self.line..self.end).rev().map(|index| self.byte(index)) {
            if byte == b'\t' {
                return columns;
            }
            columns += self.width(byte);
        }
        columns + self.first_column
    }

    /// Returns the columns of a byte that is no tab.
    fn width(&self, byte: u8) -> usize {
        match byte {
            _ if self.is_caret(byte) => 2,
            _ if byte.is_ascii_control() || self.is_further(byte) => 0,
            _ => 1,
        }
    }

    fn erase_word(&mut self, show: Show<'_>) {
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
        let mut seen = false;
        while self.end > self.line {
            let byte = self.byte(self.last_character());
            if seen && !is_word(byte) {
                break;
            }
            seen |= is_word(byte);
            self.erase(show, 1);
        }
    }

    fn kill(&mut self, byte: u8, show: Show<'_>) {
        let wipes = self.is_local(ECHOK) && self.is_local(ECHOKE) && self.is_local(ECHOE);
        if self.is_local(ECHO) && wipes {
            self.erase(show, usize::MAX);
            return;
        }
        self.end = self.line;
        if self.is_local(ECHO) {
            self.show_byte(byte, show);
            if self.is_local(ECHOK) {
                self.put(b"\n", show);
            }
        }
    }

    fn reprint(&mut self, byte: u8, show: Show<'_>) {
        self.show_byte(byte, show);
        self.put(b"\n", show);
        (self.line..self.end).for_each(|index| self.show_byte(self.byte(index), show));
    }

    /// Passes output on as it is to appear.
    pub fn put(&mut self, bytes: &[u8], show: Show<'_>) {
        let flags = self.termios.output;
        if flags & OPOST == 0 {
            show(bytes);
            return;
        }
        let has = |flag: u32| flags & flag != 0;
        for &byte in bytes {
            match byte {
                b'\n' if has(ONLCR) => {
                    self.column = 0;
                    show(b"\r\n");
                    continue;
                }
                b'\n' if has(ONLRET) => self.column = 0,
                b'\r' if has(ONOCR) && self.column == 0 => continue,
                b'\r' if has(OCRNL) => {
                    if has(ONLRET) {
                        self.column = 0;
                    }
                    show(b"\n");
                    continue;
                }
                b'\r' => self.column = 0,
                b'\t' => {
                    let spaces = TAB - self.column % TAB;
                    self.column += spaces;
                    if flags & XTABS == XTABS {
                        (0..spaces).for_each(|_| show(b" "));
                        continue;
                    }
                }
                0x08 => self.column = self.column.saturating_sub(1),
                _ if byte.is_ascii_control() || self.is_further(byte) => {}
                _ => self.column += 1,
            }
            show(&[byte]);
        }
    }

    /// Drops the input.
    pub fn flush(&mut self) {
        (self.read, self.line) = (self.end, self.end);
    }

    /// Returns the number of bytes that can be read, with the ends of input among them.
    pub fn readable(&self) -> usize {
        self.line - self.read
    }

    /// Returns the number of bytes that can be read.
    pub fn waiting(&self) -> usize {
        (self.read..self.line).filter(|index| !self.is_end_of_input(*index)).count()
    }

    fn is_end_of_input(&self, index: usize) -> bool {
        self.is_local(ICANON) && self.is_marked(index) && self.byte(index) == 0
    }

    /// Reads bytes: with ICANON to the end of a line. Returns `None` if there are none.
    pub fn take(&mut self, into: &mut [u8]) -> Option<usize> {
        if self.readable() == 0 {
            return None;
        }
        let is_canonical = self.is_local(ICANON);
        let mut done = 0;
        while self.read < self.line {
            let (byte, is_end) = (self.byte(self.read), is_canonical && self.is_marked(self.read));
            if self.is_end_of_input(self.read) {
                self.read += 1;
                break;
            }
            let Some(place) = into.get_mut(done) else { break };
            *place = byte;
            (done, self.read) = (done + 1, self.read + 1);
            if is_end {
                break;
            }
        }
        Some(done)
    }
}

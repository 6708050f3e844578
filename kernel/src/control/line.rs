//! A line of the control port: an object that is written piece by piece.
//!
//! Lines of several cores do not mix, because a [`Line`] holds [`PORT`]. A panic waits for it only for a
//! bounded time, because the holder may be the code that panicked. It then begins a new line.

use core::fmt::{self, Display, Write};

use sync::{SpinGuard, SpinLock};

use crate::arch::uart::Port;

/// Held while a line is written.
static PORT: SpinLock<()> = SpinLock::new(());

/// The number of times that a panic tries to lock the port before it writes without the lock.
const PORT_TRIES: u32 = 1 << 22;

/// A line that is being written. It ends when this is dropped.
pub(super) struct Line {
    _port: Option<SpinGuard<'static, ()>>,
    /// Set if the next item follows another one.
    comma: bool,
}

impl Line {
    pub fn new(kind: &str) -> Self {
        let port = loop {
            match PORT.try_lock() {
                Some(port) => break port,
                None => percore::relax(),
            }
        };
        Self::start(Some(port), kind)
    }

    pub fn urgent(kind: &str) -> Self {
        let port = (0..PORT_TRIES).find_map(|_| {
            core::hint::spin_loop();
            PORT.try_lock()
        });
        if port.is_none() {
            put("\n");
        }
        Self::start(port, kind)
    }

    fn start(port: Option<SpinGuard<'static, ()>>, kind: &str) -> Self {
        put("{");
        let mut line = Self { _port: port, comma: false };
        line.text("type", kind);
        line
    }

    fn separate(&mut self) {
        if self.comma {
            put(",");
        }
        self.comma = true;
    }

    fn key(&mut self, key: &str) {
        self.separate();
        print(format_args!("\"{key}\":"));
    }

    pub fn text(&mut self, key: &str, text: impl Display) -> &mut Self {
        self.key(key);
        put("\"");
        // The writer never fails. A `Display` that fails leaves the string short.
        let _ = write!(Escaped, "{text}");
        put("\"");
        self
    }

    pub fn number(&mut self, key: &str, value: u64) -> &mut Self {
        self.key(key);
        print(format_args!("{value}"));
        self
    }

    pub fn address(&mut self, key: &str, value: u64) -> &mut Self {
        self.key(key);
        print(format_args!("\"{value:#x}\""));
        self
    }

    /// Prints a count that may be negative: a core may give back more than it took.
    pub fn signed_value(value: u64) {
        print(format_args!("{}", value as i64));
    }

    pub fn hex_value(value: u64) {
        print(format_args!("\"{value:#x}\""));
    }

    pub fn list(&mut self, key: &str, values: impl Iterator<Item = u64>, put_value: fn(u64)) {
        self.begin(key, '[');
        for value in values {
            self.separate();
            put_value(value);
        }
        self.end(']');
    }

    /// Adds a value to a list: a range of addresses and its kind.
    pub fn range(&mut self, (start, end): (u64, u64), kind: &dyn Display) {
        self.separate();
        print(format_args!("[\"{start:#x}\",\"{end:#x}\",\"{kind}\"]"));
    }

    pub fn begin(&mut self, key: &str, bracket: char) -> &mut Self {
        self.key(key);
        print(format_args!("{bracket}"));
        self.comma = false;
        self
    }

    pub fn end(&mut self, bracket: char) -> &mut Self {
        print(format_args!("{bracket}"));
        self.comma = true;
        self
    }

    /// Adds the program's memory from `at` on in hexadecimal, as far as `read` can read it.
    pub fn memory(&mut self, at: u64, most: u64, read: impl Fn(&mut [u8], u64) -> bool) -> &mut Self {
        const STEP: u64 = 16;
        for at in (at..at.saturating_add(most)).step_by(STEP as usize) {
            let mut bytes = [0; STEP as usize];
            if !read(&mut bytes, at) {
                break;
            }
            print(format_args!("{:032x}", u128::from_be_bytes(bytes)));
        }
        self
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        put("}\n");
    }
}

fn put(text: &str) {
    Port::Control.write(text.as_bytes());
}

fn print(text: fmt::Arguments<'_>) {
    // The writer never fails.
    let _ = Plain.write_fmt(text);
}

struct Plain;

impl Write for Plain {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        put(text);
        Ok(())
    }
}

/// Escapes text for the inside of a JSON string.
struct Escaped;

impl Write for Escaped {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.split_inclusive(|char: char| char < ' ' || char == '"' || char == '\\').for_each(escape_last);
        Ok(())
    }
}

/// Writes `text`, in which at most the last character needs an escape.
fn escape_last(text: &str) {
    match text.as_bytes().split_last() {
        Some((&last @ (b'"' | b'\\'), _)) => {
            print(format_args!("{}\\{}", &text[..text.len() - 1], last as char))
        }
        Some((&last @ 0..b' ', _)) => print(format_args!("{}\\u{last:04x}", &text[..text.len() - 1])),
        _ => put(text),
    }
}

//! Directories whose names are made when somebody looks.

use alloc::boxed::Box;
use core::fmt::{self, Write};

use abi::Errno;

use crate::fs::StaticOrArc;
use crate::fs::bytes::prefix;
use crate::fs::content::Content;
use crate::fs::fallible::{Text, boxed};
use crate::fs::node::{Body, Listed, Node, Volume};
use crate::fs::open_file::Snapshot;

/// Shows a name; false to stop.
pub type Show<'a> = dyn FnMut(Listed<'_>) -> bool + 'a;

/// What such a directory knows.
pub trait Folder: Send + Sync {
    /// What `name` names; ENOENT.
    fn lookup(&self, name: &[u8]) -> Result<StaticOrArc<Node>, Errno>;

    /// Shows the names after `position`, which is not below that of the two dots.
    fn list(&self, position: u64, show: &mut Show<'_>);

    /// The directory that it is in.
    fn parent(&self) -> Option<StaticOrArc<Node>>;
}

/// Positions up to this one are those of `.` and `..`.
pub const DOTS: u64 = 2;

/// A directory that looks like `folder`.
pub fn node(folder: impl Folder + 'static) -> Result<StaticOrArc<Node>, Errno> {
    let folder = boxed(folder)?;
    Node::new(Volume::System, 0o555, Body::Folder(folder))
}

/// A file whose text `write` makes when it is opened.
pub fn text(
    write: impl Fn(&mut Text) -> fmt::Result + Send + Sync + 'static,
) -> Result<StaticOrArc<Node>, Errno> {
    generated(move || {
        let mut text = Text::default();
        write(&mut text).map_err(|_| Errno::ENOMEM)?;
        Ok(boxed(Snapshot(text))?)
    })
}

/// A file whose contents `make` makes when it is opened.
pub fn generated(
    make: impl Fn() -> Result<Box<dyn Content>, Errno> + Send + Sync + 'static,
) -> Result<StaticOrArc<Node>, Errno> {
    Node::new(Volume::System, 0o444, Body::Generated(boxed(make)?))
}

/// Shows `names`, each with its `S_IF*`, which stand one after the other behind the two dots; false if it was to stop.
pub fn list_names(names: &[(&[u8], u32)], position: u64, show: &mut Show<'_>) -> bool {
    let from = position.saturating_sub(DOTS) as usize;
    names.iter().enumerate().skip(from).all(|(at, &(name, kind))| {
        show(Listed { name, ino: at as u64 + 1, kind, position: at as u64 + DOTS + 1 })
    })
}

/// Shows numbers, all of one `kind`, from the lowest on; `next` gives the first that is not below its argument. Number
/// `n` stands at `first + n`. False if it was to stop.
pub fn list_numbers(
    position: u64,
    (first, kind): (u64, u32),
    next: impl Fn(u64) -> Option<u64>,
    show: &mut Show<'_>,
) -> bool {
    let mut from = (position + 1).saturating_sub(first);
    while let Some(number) = next(from) {
        let mut name = Decimal::default();
        // A number has few digits.
        let _ = write!(name, "{number}");
        if !show(Listed { name: name.bytes(), ino: number + 1, kind, position: first + number }) {
            return false;
        }
        from = number + 1;
    }
    true
}

/// The number called `name`.
pub fn number<N: core::str::FromStr>(name: &[u8]) -> Option<N> {
    let is_plain = name.iter().all(u8::is_ascii_digit) && (name == b"0" || !name.starts_with(b"0"));
    core::str::from_utf8(name).ok().filter(|_| is_plain)?.parse().ok()
}

/// A small number's digits.
#[derive(Default)]
struct Decimal {
    digits: [u8; 20],
    len: usize,
}

impl Decimal {
    fn bytes(&self) -> &[u8] {
        prefix(&self.digits, self.len as u64)
    }
}

impl Write for Decimal {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        self.digits.get_mut(self.len..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

//! Directories whose names are generated when they are read.

use alloc::boxed::Box;
use core::fmt::{self, Write};

use abi::Errno;

use super::content::Content;
use super::node::{Body, Listed, Node, NodeRef, Volume};
use super::open_file::Snapshot;
use super::tree;
use crate::bytes::prefix;
use crate::mm::fallible::{Text, boxed};

/// Takes an entry, and returns false to stop the listing.
pub type Show<'a> = dyn FnMut(Listed<'_>) -> bool + 'a;

/// A directory whose names are generated.
pub trait Folder: Send + Sync {
    /// Returns the node called `name`.
    ///
    /// # Errors
    /// ENOENT if there is none.
    fn lookup(&self, name: &[u8]) -> Result<NodeRef, Errno>;

    /// Passes the names after `position` to `show`. The position is not below that of `..`.
    fn list(&self, position: u64, show: &mut Show<'_>);

    /// Returns the directory that contains it.
    fn parent(&self) -> Option<NodeRef>;
}

/// Generates the contents of a file when it is opened.
pub type Maker = dyn Fn() -> Result<Box<dyn Content>, Errno> + Send + Sync;

/// Positions up to this one belong to `.` and `..`.
pub const DOTS: u64 = 2;

/// Creates a directory with the names of `folder`.
pub fn node(folder: impl Folder + 'static) -> Result<NodeRef, Errno> {
    let folder = boxed(folder)?;
    Node::with_body(Volume::System, 0o555, Body::Folder(folder))
}

/// Creates the directory `name` in `parent`, which is never removed.
///
/// # Errors
/// ENOMEM.
pub fn directory(parent: &NodeRef, name: &[u8]) -> Result<NodeRef, Errno> {
    let made = Node::directory(Volume::System, 0o755)?.into_static()?;
    tree::attach(parent, name, &made)?;
    Ok(made)
}

/// Creates a file whose text `write` generates when it is opened.
pub fn text(write: impl Fn(&mut Text) -> fmt::Result + Send + Sync + 'static) -> Result<NodeRef, Errno> {
    text_for(move |text| write(text).map_err(|_| Errno::ENOMEM))
}

/// Creates the same, which only those open for whom `write` returns no error.
pub fn text_for(
    write: impl Fn(&mut Text) -> Result<(), Errno> + Send + Sync + 'static,
) -> Result<NodeRef, Errno> {
    generated(move || {
        let mut text = Text::default();
        write(&mut text)?;
        Ok(boxed(Snapshot(text))?)
    })
}

/// Creates a file whose contents `make` generates when it is opened.
pub fn generated(
    make: impl Fn() -> Result<Box<dyn Content>, Errno> + Send + Sync + 'static,
) -> Result<NodeRef, Errno> {
    Node::with_body(Volume::System, 0o444, Body::Generated(boxed(make)?))
}

/// Creates a device with these major and minor numbers, whose contents `make` chooses when it is opened.
pub fn device(
    numbers: (u32, u32),
    make: impl Fn() -> Result<Box<dyn Content>, Errno> + Send + Sync + 'static,
) -> Result<NodeRef, Errno> {
    Node::with_body(Volume::System, 0o666, Body::Device(boxed(make)?, numbers))
}

/// Opens `node`, whose contents `make` generates.
pub fn opened(node: &Node, make: &Maker) -> Result<NodeRef, Errno> {
    node.opened(make()?)
}

/// Shows `names`, each with its `S_IF*`, at the positions after `..`. Returns false if the listing is to
/// stop.
pub fn list_names(names: &[(&[u8], u32)], position: u64, show: &mut Show<'_>) -> bool {
    let from = position.saturating_sub(DOTS) as usize;
    names.iter().enumerate().skip(from).all(|(at, &(name, kind))| {
        show(Listed { name, ino: at as u64 + 1, kind, position: at as u64 + DOTS + 1 })
    })
}

/// Shows numbers of one `kind` from the lowest on. `next` returns the first that is not below its argument.
/// Number `n` has position `first + n`. Returns false if the listing is to stop.
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

/// Returns the number whose decimal form is `name`.
pub fn number<N: core::str::FromStr>(name: &[u8]) -> Option<N> {
    let is_plain = name.iter().all(u8::is_ascii_digit) && (name == b"0" || !name.starts_with(b"0"));
    core::str::from_utf8(name).ok().filter(|_| is_plain)?.parse().ok()
}

/// The decimal digits of a number.
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

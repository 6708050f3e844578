//! Path look-up.
//!
//! A walk counts no node that a directory of the tree has: it uses the nodes on its way, and the one that it
//! leads to, without writing to them ([`At`]). So the caller of [`find`] uses the result before it sleeps,
//! pauses or touches user memory, and takes counted references if it needs them longer. Nodes that nothing
//! else keeps, which directories such as those of `/proc` make, and parents, are counted.
//!
//! The walk keeps a directory and the rest of the path. A symbolic link puts its target in front of the rest,
//! so links cost no recursion. There may be 40 links, and each target is shorter than `PATH_MAX`, as the path
//! is.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use abi::Errno;
use abi::file::{NAME_MAX, PATH_MAX};
use percore::Pinned;

use super::node::{self, Body, NodeRef};
use super::rights;
use crate::bytes::after;
use crate::mm::fallible;

const MAX_LINKS: u32 = 40;
/// The bytes of a usual path.
const USUAL: usize = 64;

/// A node that a walk reached. A borrowed one is not counted: the caller uses it only until the core sleeps
/// or is quiescent.
pub type At<'a> = Cow<'a, NodeRef>;

/// The result of a look-up.
pub struct Found<'a> {
    /// The directory that the last name is in.
    pub parent: At<'a>,
    /// The last name, or `/` for the root.
    pub name: Vec<u8>,
    /// The node that has that name, if any.
    pub node: Option<At<'a>>,
    /// Set if the path ended with a slash.
    pub slash: bool,
}

impl Found<'_> {
    /// Returns the node.
    ///
    /// # Errors
    /// ENOENT if there is none.
    pub fn existing(&self) -> Result<&NodeRef, Errno> {
        self.node.as_deref().ok_or(Errno::ENOENT)
    }

    /// Returns the directory, counted, and the last name.
    pub fn into_place(self) -> (NodeRef, Vec<u8>) {
        (self.parent.into_owned(), self.name)
    }

    /// Returns whether the last name cannot be made or removed: `.`, `..` or the root.
    pub fn is_special(&self) -> bool {
        is_special(&self.name)
    }
}

fn is_special(name: &[u8]) -> bool {
    matches!(name, b"." | b".." | b"/")
}

/// A walk: the path, how many bytes of it were walked, and the directory where they led.
struct Walk<'a> {
    pin: &'a Pinned,
    root: &'a NodeRef,
    at: At<'a>,
    path: Vec<u8>,
    walked: usize,
    links: u32,
}

/// Looks `path` up, from the directory `from` on. Everything but the last name must exist. A symbolic link
/// there is followed if `follow` is true or a slash comes after it.
pub fn find<'a>(
    pin: &'a Pinned,
    root: &'a NodeRef,
    from: &'a NodeRef,
    path: &[u8],
    follow: bool,
) -> Result<Found<'a>, Errno> {
    if path.is_empty() {
        return Err(Errno::ENOENT);
    }
    let mut walk = Walk { pin, root, at: Cow::Borrowed(from), path: Vec::new(), walked: 0, links: 0 };
    walk.go_on_with(path, &[])?;
    loop {
        if let Some(found) = walk.step(follow)? {
            return Ok(found);
        }
    }
}

impl<'a> Walk<'a> {
    /// Sets the rest of the path to `path` and then `tail`.
    fn go_on_with(&mut self, path: &[u8], tail: &[u8]) -> Result<(), Errno> {
        if path.len() >= PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        if path.first() == Some(&b'/') {
            self.at = Cow::Borrowed(self.root);
        }
        let mut whole = fallible::empty(path.len() + tail.len())?;
        whole.extend_from_slice(path);
        whole.extend_from_slice(tail);
        (self.path, self.walked) = (whole, 0);
        Ok(())
    }

    fn step(&mut self, follow: bool) -> Result<Option<Found<'a>>, Errno> {
        let path = core::mem::take(&mut self.path);
        let start = after(&path, self.walked).iter().position(|&byte| byte != b'/');
        let start = start.map_or(path.len(), |skipped| self.walked + skipped);
        let name = after(&path, start).split(|&byte| byte == b'/').next().unwrap_or_default();
        self.walked = start + name.len();
        let tail = after(&path, self.walked);
        let last = tail.iter().all(|&byte| byte == b'/');
        let slash = last && !tail.is_empty();
        if name.is_empty() {
            return found(&self.at, b"/", Some(self.at.clone()), true);
        }
        let node = self.look_up(name, last)?;
        match node.as_deref().map(|node| node.body()) {
            Some(Body::Link(link)) if !last || slash || follow => self.follow(node::target(link), tail)?,
            Some(Body::Descriptor(open)) if last && (slash || follow) => {
                // Where the file was found, so that its path is known of what is opened by this.
                // Not if that is another file by now, which would be looked for again and again.
                let is_there = |directory: &NodeRef, name: &[u8]| {
                    follow && directory.lookup(name).is_ok_and(|now| now.is(open.node()))
                };
                let (parent, name) = match open.found_at() {
                    Some((directory, name)) if is_there(directory, name) => {
                        (Cow::Owned(directory.clone()), name)
                    }
                    _ => (self.at.clone(), name),
                };
                return found(&parent, name, Some(Cow::Owned(open.node().clone())), slash);
            }
            Some(Body::Descriptor(open)) if !last => {
                (self.at, self.path) = (Cow::Owned(open.node().clone()), path);
            }
            _ if last => return found(&self.at, name, node, slash),
            _ => (self.at, self.path) = (node.ok_or(Errno::ENOENT)?, path),
        }
        Ok(None)
    }

    /// Looks `name` up in the current directory. A missing last name is no error.
    fn look_up(&self, name: &[u8], last: bool) -> Result<Option<At<'a>>, Errno> {
        if !self.at.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        rights::permit(&self.at, rights::EXECUTE)?;
        if name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let found = match &self.at {
            Cow::Borrowed(directory) => directory.peek(self.pin, name),
            Cow::Owned(directory) => directory.lookup(name).map(Cow::Owned),
        };
        match found {
            Ok(node) => Ok(Some(node)),
            Err(Errno::ENOENT) if last && !is_special(name) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn follow(&mut self, target: &[u8], tail: &[u8]) -> Result<(), Errno> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(Errno::ELOOP);
        }
        self.go_on_with(target, tail)
    }
}

fn found<'a>(
    parent: &At<'a>,
    name: &[u8],
    node: Option<At<'a>>,
    slash: bool,
) -> Result<Option<Found<'a>>, Errno> {
    if slash && node.as_ref().is_some_and(|node| !node.is_directory()) {
        return Err(Errno::ENOTDIR);
    }
    Ok(Some(Found { parent: parent.clone(), name: fallible::copied(name)?, node, slash }))
}

/// Returns the absolute path of a directory.
///
/// # Errors
/// ENOENT if it was removed, ENAMETOOLONG if the path has `PATH_MAX` bytes or more, ENOMEM.
pub fn of(directory: &NodeRef) -> Result<Vec<u8>, Errno> {
    // Written backwards, because the walk goes upwards.
    let mut path = fallible::empty(USUAL)?;
    let mut at = directory.clone();
    loop {
        let (parent, hash, changes) = at.place().ok_or(Errno::ENOENT)?;
        if parent.is(&at) {
            break;
        }
        match parent.names()?.name_of(&at, hash) {
            // It was moved since. A name is at its new place before the place changes, and at the old one
            // until it has.
            Err(Errno::ENOENT) if at.place().is_some_and(|now| now.2 != changes) => continue,
            name => prepend(&mut path, &name?)?,
        }
        at = parent;
    }
    if path.is_empty() {
        prepend(&mut path, b"")?;
    }
    path.reverse();
    Ok(path)
}

/// Returns the absolute path of `name` in `directory`.
pub fn joined(directory: &NodeRef, name: &[u8]) -> Result<Vec<u8>, Errno> {
    let path = of(directory)?;
    let slash = if path == b"/" { &b""[..] } else { b"/" };
    fallible::extended(fallible::extended(path, slash)?, name)
}

/// Adds `/name` to a path that is written backwards.
fn prepend(path: &mut Vec<u8>, name: &[u8]) -> Result<(), Errno> {
    if path.len() + name.len() + 1 >= PATH_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    path.try_reserve(name.len() + 1).map_err(|_| Errno::ENOMEM)?;
    path.extend(name.iter().rev());
    path.push(b'/');
    Ok(())
}

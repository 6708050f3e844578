//! Changes to the tree of names: make, remove, rename.
//!
//! | lock | guards | held by |
//! |---|---|---|
//! | [`TREE`] | where directories are | whoever removes or moves a name that may be a directory |
//! | a directory's names | its entries, and whether it still takes any | everybody, for one look or change; nobody, once boot is done, for what it made outside `/tmp` |
//!
//! 1. Only a holder of `TREE` holds the names of several directories at once, so their order does not matter. They
//!    are different ones: what is replaced is not above what is moved.
//! 2. A directory that was removed has no links and is empty, both seen and set under its names: nothing is ever
//!    added to it again (ENOENT).
//! 3. Nodes are dropped after the locks: freeing a big file takes a while.

use alloc::vec::Vec;

use abi::Errno;
use abi::file::RENAME_NOREPLACE;
use sync::SpinLock;

use super::directory::Entries;
use super::fallible;
use super::memory_file::MemoryFile;
use super::node::{Node, Volume};
use super::path::Found;
use super::static_or_arc::StaticOrArc;

static TREE: SpinLock<()> = SpinLock::new(());

/// Gives `node` a name in `directory`. Checks nothing but that the name is free and the directory exists.
pub fn attach(directory: &StaticOrArc<Node>, name: &[u8], node: &StaticOrArc<Node>) -> Result<(), Errno> {
    let mut names = directory.names_to_change()?;
    if directory.links() == 0 {
        return Err(Errno::ENOENT);
    }
    names.insert(name, node.clone())?;
    // Still under the names: nobody finds a directory that does not know where it is.
    node.set_parent(directory.downgrade());
    directory.touch();
    Ok(())
}

/// Says of `directory`, and of all below that cannot be taken away, that it changes no more.
pub fn freeze(directory: &StaticOrArc<Node>) -> Result<(), Errno> {
    let mut left = Vec::new();
    fallible::push(&mut left, directory.clone())?;
    while let Some(at) = left.pop() {
        if at.volume() == Volume::Memory {
            continue;
        }
        at.freeze();
        for entry in at.names().iter().flat_map(|names| names.after(0)) {
            fallible::push(&mut left, entry.node.clone())?;
        }
    }
    Ok(())
}

fn create(at: &Found, node: Result<StaticOrArc<Node>, Errno>) -> Result<StaticOrArc<Node>, Errno> {
    let node = node?;
    attach(&at.parent, &at.name, &node)?;
    Ok(node)
}

fn vacant(at: &Found) -> Result<(), Errno> {
    match at.node {
        Some(_) => Err(Errno::EEXIST),
        None => at.parent.must_be_writable(),
    }
}

/// An empty file without a name, which lies in `directory`.
pub fn nameless_file(directory: &Node, permissions: u32) -> Result<StaticOrArc<Node>, Errno> {
    directory.must_be_writable()?;
    unnamed(MemoryFile::new()?, permissions)
}

/// A file that is in no directory.
pub fn unnamed(file: MemoryFile, permissions: u32) -> Result<StaticOrArc<Node>, Errno> {
    let file = Node::file(Volume::Memory, permissions, file)?;
    file.forget_links();
    Ok(file)
}

/// Makes an empty file.
pub fn make_file(at: &Found, permissions: u32) -> Result<StaticOrArc<Node>, Errno> {
    vacant(at)?;
    if at.slash {
        return Err(Errno::EISDIR);
    }
    create(at, Node::file(Volume::Memory, permissions, MemoryFile::new()?))
}

/// Makes an empty directory.
pub fn make_directory(at: &Found, permissions: u32) -> Result<(), Errno> {
    vacant(at)?;
    create(at, Node::directory(Volume::Memory, permissions)).map(drop)
}

/// Makes a symbolic link.
pub fn make_link(at: &Found, target: &[u8]) -> Result<(), Errno> {
    vacant(at)?;
    if at.slash {
        return Err(Errno::ENOENT);
    }
    create(at, Node::link(Volume::Memory, target)).map(drop)
}

/// Gives a file another name.
pub fn hard_link(node: &StaticOrArc<Node>, at: &Found) -> Result<(), Errno> {
    vacant(at)?;
    if node.is_directory() {
        return Err(Errno::EPERM);
    }
    if node.volume() != at.parent.volume() {
        return Err(Errno::EXDEV);
    }
    // First, so that a name that goes at the same time does not take the last link.
    node.add_link();
    attach(&at.parent, &at.name, node).inspect_err(|_| node.remove_link())
}

/// Takes away a name that is no directory's.
pub fn unlink(at: &Found) -> Result<(), Errno> {
    let node = at.existing()?;
    if node.is_directory() {
        return Err(Errno::EISDIR);
    }
    at.parent.must_be_writable()?;
    let mut names = at.parent.names_to_change()?;
    if !names.get(&at.name).is_some_and(|named| named.is(node)) {
        return Err(Errno::ENOENT);
    }
    let removed = names.remove(&at.name);
    node.remove_link();
    at.parent.touch();
    drop(names);
    drop(removed);
    Ok(())
}

/// Takes an empty directory away.
pub fn remove_directory(at: &Found) -> Result<(), Errno> {
    let node = at.existing()?;
    match &*at.name {
        b"." => return Err(Errno::EINVAL),
        b".." => return Err(Errno::ENOTEMPTY),
        b"/" => return Err(Errno::EBUSY),
        _ => at.parent.must_be_writable()?,
    }
    if !node.is_directory() {
        return Err(Errno::ENOTDIR);
    }
    let _tree = TREE.lock();
    let mut names = at.parent.names_to_change()?;
    if !names.get(&at.name).is_some_and(|named| named.is(node)) {
        return Err(Errno::ENOENT);
    }
    retire(node)?;
    names.remove(&at.name);
    at.parent.touch();
    Ok(())
}

/// Ends a directory, if it is empty. A mount point cannot go.
fn retire(directory: &StaticOrArc<Node>) -> Result<(), Errno> {
    let names = directory.names_to_change()?;
    if !names.is_empty() {
        return Err(Errno::ENOTEMPTY);
    }
    directory.forget_links();
    directory.keep_parent();
    Ok(())
}

/// Moves the name `from` to `to`, replacing what `to` names in the same instant.
pub fn rename(from: &Found, to: &Found, flags: u32) -> Result<(), Errno> {
    let node = from.existing()?;
    if from.is_special() || to.is_special() {
        return Err(Errno::EBUSY);
    }
    if from.parent.volume() != to.parent.volume() {
        return Err(Errno::EXDEV);
    }
    from.parent.must_be_writable()?;
    if (from.slash || to.slash) && !node.is_directory() {
        return Err(Errno::ENOTDIR);
    }
    let tree = TREE.lock();
    if node.is_directory() && is_inside(&to.parent, node) {
        return Err(Errno::EINVAL);
    }
    // Looked up again, because directories stand still only now.
    if to.parent.lookup(&to.name).is_ok_and(|above| is_inside(&from.parent, &above)) {
        return Err(Errno::ENOTEMPTY);
    }
    let replaced = exchange(from, to, node, flags)?;
    node.set_parent(to.parent.downgrade());
    from.parent.touch();
    to.parent.touch();
    drop(tree);
    drop(replaced);
    Ok(())
}

fn exchange(
    from: &Found,
    to: &Found,
    node: &StaticOrArc<Node>,
    flags: u32,
) -> Result<Option<StaticOrArc<Node>>, Errno> {
    let mut old = from.parent.names_to_change()?;
    if !old.get(&from.name).is_some_and(|named| named.is(node)) {
        return Err(Errno::ENOENT);
    }
    let mut elsewhere = match from.parent.is(&to.parent) {
        true => None,
        false => Some(to.parent.names_to_change()?),
    };
    let new = elsewhere.as_deref_mut().unwrap_or(&mut old);
    let is_same = new.get(&to.name).is_some_and(|named| named.is(node));
    if is_same && flags & RENAME_NOREPLACE == 0 {
        return Ok(None);
    }
    let replaced = place(new, to, node, flags)?;
    old.remove(&from.name);
    Ok(replaced)
}

fn place(
    names: &mut Entries,
    to: &Found,
    node: &StaticOrArc<Node>,
    flags: u32,
) -> Result<Option<StaticOrArc<Node>>, Errno> {
    if to.parent.links() == 0 {
        return Err(Errno::ENOENT);
    }
    let Some(victim) = names.get(&to.name) else {
        return names.insert(&to.name, node.clone()).map(|()| None);
    };
    match (node.is_directory(), victim.is_directory()) {
        _ if flags & RENAME_NOREPLACE != 0 => return Err(Errno::EEXIST),
        (true, false) => return Err(Errno::ENOTDIR),
        (false, true) => return Err(Errno::EISDIR),
        (true, true) => retire(victim)?,
        (false, false) => victim.remove_link(),
    }
    Ok(names.replace(&to.name, node.clone()))
}

/// Whether `directory` is `above` or somewhere below it. Holders of `TREE` only.
fn is_inside(directory: &StaticOrArc<Node>, above: &StaticOrArc<Node>) -> bool {
    let mut at = directory.clone();
    loop {
        if at.is(above) {
            return true;
        }
        match at.parent() {
            Some(parent) if !parent.is(&at) => at = parent,
            _ => return false,
        }
    }
}

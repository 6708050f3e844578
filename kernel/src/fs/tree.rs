//! Changes to the tree of names: creating, removing and renaming.
//!
//! | lock | guards | held by |
//! |---|---|---|
//! | [`TREE`] | the parent of each directory | removing or moving a name that may be a directory |
//! | a directory's names | its entries, and whether it takes new ones | one look or change |
//!
//! The files that boot makes outside `/tmp` are immutable afterwards, and looking them up takes no lock.
//!
//! 1. Only a holder of `TREE` locks the names of several directories at once, so their order does not
//!    matter. They are different directories: the replaced one is not above the moved one.
//! 2. A directory that was removed has no links and is empty. Both are checked and set under its names'
//!    lock, so nothing is ever added to it again (ENOENT).
//! 3. Nodes are dropped after the locks are released, because freeing a big file takes a while.

use alloc::vec::Vec;

use abi::Errno;
use abi::file::RENAME_NOREPLACE;
use sync::SpinLock;

use super::directory::Entries;
use super::memory_file::MemoryFile;
use super::node::{Node, Volume};
use super::path::Found;
use crate::mm::fallible;
use crate::mm::static_or_arc::StaticOrArc;

static TREE: SpinLock<()> = SpinLock::new(());

/// Gives `node` a name in `directory`.
///
/// # Errors
/// ENOENT if the directory was removed, EEXIST, EROFS, ENOMEM.
pub fn attach(directory: &StaticOrArc<Node>, name: &[u8], node: &StaticOrArc<Node>) -> Result<(), Errno> {
    let mut names = directory.names_to_change()?;
    if directory.links() == 0 {
        return Err(Errno::ENOENT);
    }
    names.insert(name, node.clone())?;
    // Still under the lock of the names: no task finds a directory without a parent.
    node.set_parent(directory.downgrade());
    directory.touch();
    Ok(())
}

/// Makes `directory` and everything below it immutable, except the volume in memory.
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

/// Creates an empty file without a name, on the volume of `directory`.
pub fn nameless_file(directory: &Node, permissions: u32) -> Result<StaticOrArc<Node>, Errno> {
    directory.must_be_writable()?;
    unnamed(MemoryFile::new()?, permissions)
}

/// Creates a file that is in no directory.
pub fn unnamed(file: MemoryFile, permissions: u32) -> Result<StaticOrArc<Node>, Errno> {
    let file = Node::file(Volume::Memory, permissions, file)?;
    file.forget_links();
    Ok(file)
}

/// Creates an empty file.
pub fn make_file(at: &Found, permissions: u32) -> Result<StaticOrArc<Node>, Errno> {
    vacant(at)?;
    if at.slash {
        return Err(Errno::EISDIR);
    }
    create(at, Node::file(Volume::Memory, permissions, MemoryFile::new()?))
}

/// Creates an empty directory.
pub fn make_directory(at: &Found, permissions: u32) -> Result<(), Errno> {
    vacant(at)?;
    create(at, Node::directory(Volume::Memory, permissions)).map(drop)
}

/// Creates a symbolic link.
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
    // Counted first, so that removing another name at the same time does not take the last link.
    node.add_link();
    attach(&at.parent, &at.name, node).inspect_err(|_| node.remove_link())
}

/// Removes the name of a file that is no directory.
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

/// Removes an empty directory.
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

/// Marks an empty directory as removed. One that boot made cannot be removed.
///
/// # Errors
/// ENOTEMPTY, EROFS.
fn retire(directory: &StaticOrArc<Node>) -> Result<(), Errno> {
    let names = directory.names_to_change()?;
    if !names.is_empty() {
        return Err(Errno::ENOTEMPTY);
    }
    directory.forget_links();
    directory.keep_parent();
    Ok(())
}

/// Moves the name `from` to `to`, and replaces the node called `to` in the same instant.
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
    // Looked up again, because only now no directory moves.
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

/// Returns whether `directory` is `above` or somewhere below it. The caller holds `TREE`.
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

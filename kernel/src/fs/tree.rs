//! Changes to the tree of names: creating, removing and renaming.
//!
//! | lock | guards | held by |
//! |---|---|---|
//! | [`TREE`] | the parent of each directory | removing or moving a directory |
//! | a sixteenth of a directory's names | its entries there | one change |
//! | all names of a directory | also whether it takes new ones | one removal or listing |
//!
//! Looking names up takes no lock. The files that boot makes outside `/tmp` are immutable afterwards.
//!
//! 1. Only a holder of `TREE` waits for names of one directory while it has locked names of another. So the
//!    order of the directories does not matter. They are different ones: the replaced one is not above the
//!    moved one. A task that moves a file releases the names of the first directory if those of the second
//!    are locked. Within a directory, `rcu::Trie` has an order.
//! 2. A directory that was removed has no links and is empty. Both are checked and set with all its names
//!    locked, so nothing is ever added to it again (ENOENT).
//! 3. A node loses the reference of its name after a grace period of RCU, because look-ups use it uncounted.
//! 4. A name that `rename` moves is found at one of its two places at each moment: look-ups of both names
//!    wait while it is at both. That takes two stores, the directory's new parent, and perhaps an allocation.
//!    All else that may fail or wait, such as the lock of a directory that is replaced, comes before. `..`
//!    leads to the new place when the wait is over. A look-up that began before may still be led to the old
//!    one.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use abi::Errno;
use abi::file::RENAME_NOREPLACE;
use percore::{AllCores, MAX_CORES, Pinned, pin};
use rcu::Spare;
use sync::{CachePadded, SpinGuard, SpinLock};

use super::content::Content;
use super::directory::{self, Change, Entry};
use super::memory_file::MemoryFile;
use super::node::{Node, NodeRef, Volume};
use super::path::Found;
use crate::arch;
use crate::mm::{epoch, fallible};

static TREE: SpinLock<()> = SpinLock::new(());

/// Gives `node` a name in `directory`.
///
/// # Errors
/// ENOENT if the directory was removed, EEXIST, EROFS, ENOMEM.
pub fn attach(directory: &NodeRef, name: &[u8], node: &NodeRef) -> Result<(), Errno> {
    let pin = pin();
    let mut names = directory.change(&pin, name)?;
    if directory.links() == 0 {
        return Err(Errno::ENOENT);
    }
    // First, because look-ups take no lock: no task finds a directory without a parent.
    node.set_parent(directory, name);
    names.insert(name, node.clone())?;
    names.touch();
    Ok(())
}

/// Gives `node`, which is no directory, a name in `directory`. A file of the host that has the name loses it.
///
/// # Errors
/// As above, EEXIST if anything else has the name.
pub fn put(directory: &NodeRef, name: &[u8], node: &NodeRef) -> Result<(), Errno> {
    let pin = pin();
    let mut names = directory.change(&pin, name)?;
    match names.get(name) {
        Some(old) if old.is_directory() || !old.is_of_host() => Err(Errno::EEXIST),
        Some(_) => {
            names.replace(name, directory::spare(name, node.clone())?);
            Ok(())
        }
        None => names.insert(name, node.clone()),
    }
}

/// Makes `directory` and everything below it immutable, except the volume in memory.
pub fn freeze(directory: &NodeRef) -> Result<(), Errno> {
    let mut left = Vec::new();
    fallible::push(&mut left, directory.clone())?;
    while let Some(at) = left.pop() {
        match at.volume() {
            // The root is in memory if it is the host's.
            Volume::Memory if !at.is(directory) => continue,
            Volume::Memory => {}
            _ => at.freeze(),
        }
        let mut pushed = Ok(());
        if let Ok(names) = at.names() {
            names.after(0, &mut |_, entry| {
                pushed = fallible::push(&mut left, entry.node.clone());
                pushed.is_ok()
            });
        }
        pushed?;
    }
    Ok(())
}

fn create(at: &Found<'_>, node: Result<NodeRef, Errno>) -> Result<NodeRef, Errno> {
    let node = node?;
    attach(&at.parent, &at.name, &node)?;
    Ok(node)
}

fn vacant(at: &Found<'_>) -> Result<(), Errno> {
    match at.node {
        Some(_) => Err(Errno::EEXIST),
        None => at.parent.must_be_writable(),
    }
}

/// Creates an empty file without a name, on the volume of `directory`.
pub fn nameless_file(directory: &Node, permissions: u32) -> Result<NodeRef, Errno> {
    directory.must_be_writable()?;
    unnamed(MemoryFile::new()?, permissions)
}

/// Creates a file that is in no directory.
pub fn unnamed(file: MemoryFile, permissions: u32) -> Result<NodeRef, Errno> {
    let file = Node::file(Volume::Memory, permissions, file)?;
    file.forget_links();
    Ok(file)
}

/// Creates an empty file.
pub fn make_file(at: &Found<'_>, permissions: u32) -> Result<NodeRef, Errno> {
    vacant(at)?;
    if at.slash {
        return Err(Errno::EISDIR);
    }
    create(at, Node::file(Volume::Memory, permissions, MemoryFile::new()?))
}

/// Creates a file that has no bytes of its own, such as the name of a socket.
pub fn make_special(
    at: &Found<'_>,
    permissions: u32,
    content: impl Content + 'static,
) -> Result<NodeRef, Errno> {
    vacant(at)?;
    if at.slash {
        return Err(Errno::ENOENT);
    }
    create(at, Node::file(Volume::Memory, permissions, content))
}

/// Creates an empty directory.
pub fn make_directory(at: &Found<'_>, permissions: u32) -> Result<(), Errno> {
    vacant(at)?;
    create(at, Node::directory(Volume::Memory, permissions)).map(drop)
}

/// Creates a symbolic link.
pub fn make_link(at: &Found<'_>, target: &[u8]) -> Result<(), Errno> {
    vacant(at)?;
    if at.slash {
        return Err(Errno::ENOENT);
    }
    create(at, Node::link(Volume::Memory, target)).map(drop)
}

/// Gives a file another name.
pub fn hard_link(node: &NodeRef, at: &Found<'_>) -> Result<(), Errno> {
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

/// Returns the node that was found, or one that is as it and can be changed, which then has the name.
///
/// # Errors
/// EROFS if it cannot be changed, ESTALE if the name leads elsewhere by now: the caller looks again. ENOMEM.
pub fn writable(at: &Found<'_>) -> Result<NodeRef, Errno> {
    let node = at.existing()?;
    node.must_be_writable()?;
    let Some(content) = node.content().and_then(Content::changeable) else { return Ok(node.clone()) };
    let (new, pin) = (node.with_contents(content?)?, pin());
    let mut names = at.parent.change(&pin, &at.name)?;
    if !names.get(&at.name).is_some_and(|named| named.is(node)) {
        return Err(Errno::ESTALE);
    }
    names.replace(&at.name, directory::spare(&at.name, new.clone())?);
    node.remove_link();
    Ok(new)
}

/// Removes the name of a file that is no directory.
pub fn unlink(at: &Found<'_>) -> Result<(), Errno> {
    let node = at.existing()?;
    if node.is_directory() {
        return Err(Errno::EISDIR);
    }
    at.parent.must_be_writable()?;
    let pin = pin();
    let mut names = at.parent.change(&pin, &at.name)?;
    if !names.get(&at.name).is_some_and(|named| named.is(node)) {
        return Err(Errno::ENOENT);
    }
    names.remove(&at.name);
    node.remove_link();
    names.touch();
    Ok(())
}

/// Removed directories that all cores together may leave to the ticks of Refcache. Each has some 1.5 KiB, and
/// a tick frees 128.
const MANY: usize = 4096;
/// The least part of them that one core has, so that the epochs that it forces are for many directories.
const MANY_OF_ONE: usize = 256;
/// Per core, the directories that it has removed since it freed them. Relaxed: a hint.
static REMOVED: AllCores<AtomicUsize> =
    AllCores::new([const { CachePadded::new(AtomicUsize::new(0)) }; MAX_CORES]);

/// Frees removed directories if this core has removed many. Called without a lock. The caller does not use
/// what it has looked up any more.
pub fn free_directories() {
    let removed = REMOVED.of(pin().core());
    let own = removed.load(Ordering::Relaxed);
    if own >= (MANY / arch::cores()).max(MANY_OF_ONE) {
        removed.store(0, Ordering::Relaxed);
        epoch::free_own(own);
    }
}

/// Removes an empty directory. The caller then calls [`free_directories`].
pub fn remove_directory(at: &Found<'_>) -> Result<(), Errno> {
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
    let pin = pin();
    let _tree = TREE.lock();
    let mut names = at.parent.change(&pin, &at.name)?;
    if !names.get(&at.name).is_some_and(|named| named.is(node)) {
        return Err(Errno::ENOENT);
    }
    retire(node)?;
    names.remove(&at.name);
    names.touch();
    Ok(())
}

/// Marks an empty directory as removed.
///
/// # Errors
/// ENOTEMPTY, EROFS if it is immutable.
fn retire(directory: &NodeRef) -> Result<(), Errno> {
    directory.must_be_writable()?;
    directory.names()?.retire(|| {
        directory.forget_links();
        directory.keep_parent();
    })?;
    REMOVED.of(pin().core()).fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Moves the name `from` to `to`, and replaces the node called `to` in the same instant.
pub fn rename(from: &Found<'_>, to: &Found<'_>, flags: u32) -> Result<(), Errno> {
    let node = from.existing()?;
    // `/dev` and the like are on volumes of their own.
    let is_mounted =
        |at: &Found<'_>| at.node.as_ref().is_some_and(|node| node.volume() != at.parent.volume());
    if from.is_special() || to.is_special() || is_mounted(from) || is_mounted(to) {
        return Err(Errno::EBUSY);
    }
    if from.parent.volume() != to.parent.volume() {
        return Err(Errno::EXDEV);
    }
    from.parent.must_be_writable()?;
    if flags & RENAME_NOREPLACE != 0 && to.node.is_some() {
        return Err(Errno::EEXIST);
    }
    if (from.slash || to.slash) && !node.is_directory() {
        return Err(Errno::ENOTDIR);
    }
    if node.is_directory() {
        return move_directory(from, to, node, flags);
    }
    exchange(from, to, node, flags).map_err(|error| match error {
        Errno::EISDIR if replaces_above(from, to, &TREE.lock()) => Errno::ENOTEMPTY,
        error => error,
    })
}

fn move_directory(from: &Found<'_>, to: &Found<'_>, node: &NodeRef, flags: u32) -> Result<(), Errno> {
    let tree = TREE.lock();
    if is_inside(&to.parent, node, &tree) {
        return Err(Errno::EINVAL);
    }
    if replaces_above(from, to, &tree) {
        return Err(Errno::ENOTEMPTY);
    }
    exchange(from, to, node, flags)
}

/// Locks the two names that a rename changes, the second one apart if it is in another directory. If `node`
/// is a directory, the caller holds `TREE`.
fn lock_names<'a>(
    pin: &'a Pinned,
    from: &'a Found<'_>,
    to: &'a Found<'_>,
    node: &NodeRef,
) -> Result<(Change<'a>, Option<Change<'a>>), Errno> {
    if from.parent.is(&to.parent) {
        return Ok((from.parent.names()?.change_two(pin, [&from.name, &to.name])?, None));
    }
    loop {
        let old = from.parent.change(pin, &from.name)?;
        let names = to.parent.names()?;
        let new = if node.is_directory() {
            Some(names.change(pin, &to.name)?)
        } else {
            names.try_change(pin, &to.name)?
        };
        if new.is_some() {
            return Ok((old, new));
        }
        drop(old);
        percore::relax();
    }
}

fn exchange(from: &Found<'_>, to: &Found<'_>, node: &NodeRef, flags: u32) -> Result<(), Errno> {
    let pin = pin();
    let (mut old, mut elsewhere) = lock_names(&pin, from, to, node)?;
    if !old.get(&from.name).is_some_and(|named| named.is(node)) {
        return Err(Errno::ENOENT);
    }
    let new = elsewhere.as_ref().unwrap_or(&old);
    let is_same = new.get(&to.name).is_some_and(|named| named.is(node));
    if is_same && flags & RENAME_NOREPLACE == 0 {
        return Ok(());
    }
    let entry = give_up_victim(new, to, node, flags)?;
    // Both, because of the parent below.
    let moving = [new.begin_move(&to.name), old.begin_move(&from.name)];
    let new = elsewhere.as_mut().unwrap_or(&mut old);
    match entry {
        Some(entry) => new.replace(&to.name, entry),
        None => new.insert(&to.name, node.clone())?,
    }
    // Between the two, as `path::of` needs it.
    node.set_parent(&to.parent, &to.name);
    new.touch();
    old.remove(&from.name);
    old.touch();
    drop(moving);
    Ok(())
}

/// Takes its link from the node called `to`, if there is one and `node` may replace it. Returns the entry to
/// replace it with: nothing can fail any more.
fn give_up_victim(
    names: &Change<'_>,
    to: &Found<'_>,
    node: &NodeRef,
    flags: u32,
) -> Result<Option<Spare<Entry>>, Errno> {
    if to.parent.links() == 0 {
        return Err(Errno::ENOENT);
    }
    let Some(victim) = names.get(&to.name) else { return Ok(None) };
    match (node.is_directory(), victim.is_directory()) {
        _ if flags & RENAME_NOREPLACE != 0 => return Err(Errno::EEXIST),
        (true, false) => return Err(Errno::ENOTDIR),
        (false, true) => return Err(Errno::EISDIR),
        _ => {}
    }
    let entry = directory::spare(&to.name, node.clone())?;
    if victim.is_directory() {
        retire(victim)?
    } else {
        victim.remove_link()
    }
    Ok(Some(entry))
}

/// Returns whether the node called `to` is the directory of `from` or one above it. It is looked up again,
/// because only now no directory moves.
fn replaces_above(from: &Found<'_>, to: &Found<'_>, tree: &SpinGuard<'_, ()>) -> bool {
    to.parent.lookup(&to.name).is_ok_and(|node| is_inside(&from.parent, &node, tree))
}

/// Returns whether `directory` is `above` or somewhere below it, while [`TREE`] is locked.
fn is_inside(directory: &NodeRef, above: &NodeRef, _tree: &SpinGuard<'_, ()>) -> bool {
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

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
//! 4. In a mounted directory the host makes each change first, with the name locked. If the guest's part
//!    fails then, for want of memory, the host's is undone as far as it can be.
//! 5. A name that `rename` moves is found at one of its two places at each moment: look-ups of both names
//!    wait while it is at both. That takes two stores, the directory's new parent, and perhaps an allocation.
//!    All else that may fail or wait, such as the lock of a directory that is replaced, comes before. `..`
//!    leads to the new place when the wait is over. A look-up that began before may still be led to the old
//!    one.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use abi::Errno;
use abi::file::RENAME_NOREPLACE;
use percore::{Pinned, pin};
use sync::{SpinGuard, SpinLock};

use super::content::Content;
use super::directory::{self, Change};
use super::host::{Place, overlay_out};
use super::memory_file::MemoryFile;
use super::node::{Node, NodeRef, Volume};
use super::path::Found;
use super::rights;
use super::watches;
use crate::arch;
use crate::arch::per_core::all_cores;
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
    watches::named(directory, node);
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
            volume if volume.is_writable() && !at.is(directory) => continue,
            volume if volume.is_writable() => {}
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

/// Puts `mounted`, the root of a mount, in the place of the name that was found, or adds the name.
///
/// # Errors
/// ENOTDIR if another file has the name, EROFS, ENOMEM.
pub fn mount(at: &Found<'_>, mounted: &NodeRef) -> Result<(), Errno> {
    if at.node.as_ref().is_some_and(|node| !node.is_directory()) || at.is_special() {
        return Err(Errno::ENOTDIR);
    }
    let pin = pin();
    let mut names = at.parent.change(&pin, &at.name)?;
    mounted.set_parent(&at.parent, &at.name);
    match at.node {
        Some(_) => names.replace(&at.name, directory::spare(&at.name, mounted.clone())?),
        None => names.insert(&at.name, mounted.clone())?,
    }
    Ok(())
}

/// Gives a node that `make` makes the name that was found vacant. In a mounted directory `make_there` makes
/// it, on the host too.
fn create(
    at: &Found<'_>,
    make: impl FnOnce() -> Result<NodeRef, Errno>,
    make_there: impl FnOnce(&Arc<Place>) -> Result<NodeRef, Errno>,
) -> Result<NodeRef, Errno> {
    let Some(place) = at.parent.mounted() else {
        let node = make()?;
        rights::inherit(&at.parent, &node);
        attach(&at.parent, &at.name, &node)?;
        watches::created(at, &node);
        return Ok(node);
    };
    let pin = pin();
    let mut names = at.parent.change(&pin, &at.name)?;
    if at.parent.links() == 0 {
        return Err(Errno::ENOENT);
    }
    if names.get(&at.name).is_some() {
        return Err(Errno::EEXIST);
    }
    let node = match make_there(place) {
        Err(Errno::EEXIST) => {
            // The host has had the name since the directory was listed.
            let node = place.adopt(&at.name)?;
            node.set_parent(&at.parent, &at.name);
            names.insert(&at.name, node)?;
            return Err(Errno::EEXIST);
        }
        made => made?,
    };
    rights::inherit(&at.parent, &node);
    node.set_parent(&at.parent, &at.name);
    names.insert(&at.name, node.clone()).inspect_err(|_| place.undo(&at.name, node.is_directory()))?;
    names.touch();
    watches::named(&at.parent, &node);
    drop(names);
    watches::created(at, &node);
    Ok(node)
}

/// Checks that the name is free, and that the running thread may make it.
fn vacant(at: &Found<'_>) -> Result<(), Errno> {
    match at.node {
        Some(_) => Err(Errno::EEXIST),
        None => at.parent.must_be_writable().and_then(|()| rights::permit_names(&at.parent)),
    }
}

/// Creates an empty file without a name, on the volume of `directory`.
///
/// # Errors
/// EROFS, ENOMEM, EOPNOTSUPP in a mounted directory.
pub fn nameless_file(directory: &Node, permissions: u32) -> Result<NodeRef, Errno> {
    directory.must_be_writable()?;
    rights::permit_names(directory)?;
    if directory.mounted().is_some() {
        return Err(Errno::EOPNOTSUPP);
    }
    Node::nameless(permissions, MemoryFile::new()?).inspect(|node| rights::inherit(directory, node))
}

/// Creates an empty file.
pub fn make_file(at: &Found<'_>, permissions: u32) -> Result<NodeRef, Errno> {
    vacant(at)?;
    if at.slash {
        return Err(Errno::EISDIR);
    }
    let here = || Node::file(Volume::Memory, permissions, MemoryFile::new()?);
    create(at, here, |place| place.make_file(&at.name, permissions))
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
    // The host does not see it.
    let node = Node::file(at.parent.volume(), permissions, content)?;
    rights::inherit(&at.parent, &node);
    attach(&at.parent, &at.name, &node)?;
    watches::created(at, &node);
    Ok(node)
}

/// Creates an empty directory.
pub fn make_directory(at: &Found<'_>, permissions: u32) -> Result<(), Errno> {
    vacant(at)?;
    let here = || Node::directory(Volume::Memory, permissions);
    create(at, here, |place| place.make_directory(&at.name, permissions)).map(drop)
}

/// Creates a symbolic link.
pub fn make_link(at: &Found<'_>, target: &[u8]) -> Result<(), Errno> {
    vacant(at)?;
    if at.slash {
        return Err(Errno::ENOENT);
    }
    create(at, || Node::link(Volume::Memory, target), |place| place.make_link(&at.name, target)).map(drop)
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
    let here = || Ok(node.clone());
    let there = |place: &Arc<Place>| {
        // A name that the host does not see has no other there.
        let own = node.mounted().ok_or(Errno::EXDEV)?;
        place.hard_link(own, &at.name).map(|()| node.clone())
    };
    create(at, here, there).inspect_err(|_| node.remove_link()).map(drop)
}

/// Returns the node that was found, or one that is as it and can be changed, which then has the name.
///
/// # Errors
/// EROFS if it cannot be changed, ESTALE if the name leads elsewhere by now: the caller looks again. ENOMEM.
pub fn writable(at: &Found<'_>) -> Result<NodeRef, Errno> {
    let node = at.existing()?;
    node.must_be_writable()?;
    if let (Some(place), Some(file)) = (node.mounted(), node.content().and_then(Content::mount_file)) {
        if !file.is_changeable() {
            // Without a name it is not written back.
            if node.links() > 0 {
                place.mount().forget(place.open_to_write()?);
            }
            file.make_changeable()?;
        }
        return Ok(node.clone());
    }
    let Some(content) = node.content().and_then(Content::changeable) else { return Ok(node.clone()) };
    let (new, pin) = (node.with_contents(content?)?, pin());
    let mut names = at.parent.change(&pin, &at.name)?;
    if !names.get(&at.name).is_some_and(|named| named.is(node)) {
        return Err(Errno::ESTALE);
    }
    names.replace(&at.name, directory::spare(&at.name, new.clone())?);
    node.remove_link();
    drop(names);
    watches::hand_over(node, &new);
    Ok(new)
}

/// Removes the name of a file in a mounted directory that the host has removed.
pub fn forget_gone(at: &Found<'_>) -> Result<(), Errno> {
    let (node, pin) = (at.existing()?, pin());
    let mut names = at.parent.change(&pin, &at.name)?;
    if names.get(&at.name).is_some_and(|named| named.is(node)) {
        names.remove(&at.name);
        node.remove_link();
        if let (Some(directory), Some(place)) = (at.parent.mounted(), node.mounted()) {
            place.forget_name(directory, &at.name);
        }
    }
    Ok(())
}

/// Removes the name of a file that is no directory.
pub fn unlink(at: &Found<'_>) -> Result<(), Errno> {
    let node = at.existing()?;
    if node.is_directory() && at.parent.is_writable() {
        rights::permit_removal(&at.parent, node)?;
    }
    if node.is_directory() {
        return Err(Errno::EISDIR);
    }
    at.parent.must_be_writable()?;
    rights::permit_removal(&at.parent, node)?;
    let pin = pin();
    let mut names = at.parent.change(&pin, &at.name)?;
    if !names.get(&at.name).is_some_and(|named| named.is(node)) {
        return Err(Errno::ENOENT);
    }
    remove_there(at, node)?;
    names.remove(&at.name);
    overlay_out::note_removed(&at.parent, &at.name);
    node.remove_link();
    names.touch();
    drop(names);
    watches::removed(at, node);
    Ok(())
}

/// Removes the name of `node` on the host, if that sees it. The name is locked.
fn remove_there(at: &Found<'_>, node: &Node) -> Result<(), Errno> {
    match (at.parent.mounted(), node.mounted()) {
        (Some(directory), Some(place)) => directory.unlink(place, &at.name, node.is_directory()),
        _ => Ok(()),
    }
}

/// Removed directories that all cores together may leave to the ticks of Refcache. Each has some 1.5 KiB, and
/// a tick frees 128.
const MANY: usize = 4096;
/// The least part of them that one core has, so that the epochs that it forces are for many directories.
const MANY_OF_ONE: usize = 256;

all_cores! {
    /// Per core, the directories that it has removed since it freed them. Relaxed: a hint.
    static REMOVED: AtomicUsize = AtomicUsize::new(0);
}

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
    rights::permit_removal(&at.parent, node)?;
    if !node.is_directory() {
        return Err(Errno::ENOTDIR);
    }
    if node.volume() != at.parent.volume() {
        return Err(Errno::EBUSY);
    }
    let pin = pin();
    let tree = TREE.lock();
    let mut names = at.parent.change(&pin, &at.name)?;
    if !names.get(&at.name).is_some_and(|named| named.is(node)) {
        return Err(Errno::ENOENT);
    }
    retire(node, || remove_there(at, node))?;
    names.remove(&at.name);
    overlay_out::note_removed(&at.parent, &at.name);
    names.touch();
    drop((names, tree));
    watches::removed(at, node);
    Ok(())
}

/// Marks an empty directory as removed, if `remove` succeeds, which is called with all its names locked.
///
/// # Errors
/// ENOTEMPTY, EROFS if it is immutable.
fn retire(directory: &NodeRef, remove: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
    directory.must_be_writable()?;
    directory.names()?.retire(|| {
        remove()?;
        directory.forget_links();
        directory.keep_parent();
        Ok(())
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
    permit_rename(from, to, node)?;
    if node.is_directory() {
        return move_directory(from, to, node, flags);
    }
    exchange(from, to, node, flags).map_err(|error| match error {
        Errno::EISDIR if replaces_above(from, to, &TREE.lock()) => Errno::ENOTEMPTY,
        error => error,
    })
}

/// Checks that the running thread may move `node`.
fn permit_rename(from: &Found<'_>, to: &Found<'_>, node: &NodeRef) -> Result<(), Errno> {
    rights::permit_removal(&from.parent, node)?;
    match &to.node {
        Some(victim) => rights::permit_removal(&to.parent, victim)?,
        None => rights::permit_names(&to.parent)?,
    }
    // Its `..` changes.
    match node.is_directory() && !from.parent.is(&to.parent) {
        true => rights::permit(node, rights::WRITE),
        false => Ok(()),
    }
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
    let victim = may_replace(new, to, node, flags)?;
    if let (None, Some(place)) = (victim, to.parent.mounted())
        && flags & RENAME_NOREPLACE != 0
        && let Ok(known_there) = place.adopt(&to.name)
    {
        known_there.set_parent(&to.parent, &to.name);
        elsewhere.as_mut().unwrap_or(&mut old).insert(&to.name, known_there)?;
        return Err(Errno::EEXIST);
    }
    let entry = victim.map(|_| directory::spare(&to.name, node.clone())).transpose()?;
    let watched = victim.filter(|victim| victim.watched() != 0).cloned();
    let there = || rename_there(from, to, node, victim);
    match victim {
        Some(victim) if victim.is_directory() => {
            retire(victim, there)?;
            overlay_out::note_removed(&to.parent, &to.name);
        }
        Some(victim) => there().map(|()| victim.remove_link())?,
        None => there()?,
    }
    // Both, because of the parent below.
    let moving = [new.begin_move(&to.name), old.begin_move(&from.name)];
    let new = elsewhere.as_mut().unwrap_or(&mut old);
    match entry {
        Some(entry) => new.replace(&to.name, entry),
        // Nothing was replaced, so the host's part can be undone.
        None => new.insert(&to.name, node.clone()).inspect_err(|_| {
            let _stays = rename_there(to, from, node, None);
        })?,
    }
    // Between the two, as `path::of` needs it.
    node.set_parent(&to.parent, &to.name);
    new.touch();
    watches::named(&to.parent, node);
    old.remove(&from.name);
    overlay_out::note_removed(&from.parent, &from.name);
    old.touch();
    drop(moving);
    drop((old, elsewhere));
    watches::moved(from, to, node, watched.as_ref());
    Ok(())
}

/// Returns the node called `to`, if there is one, which `node` may replace.
fn may_replace<'n>(
    names: &'n Change<'_>,
    to: &Found<'_>,
    node: &NodeRef,
    flags: u32,
) -> Result<Option<&'n NodeRef>, Errno> {
    if to.parent.links() == 0 {
        return Err(Errno::ENOENT);
    }
    let Some(victim) = names.get(&to.name) else { return Ok(None) };
    if !to.node.as_ref().is_some_and(|checked| checked.is(victim)) {
        // It has come since the rights were checked.
        rights::permit_removal(&to.parent, victim)?;
    }
    match (node.is_directory(), victim.is_directory()) {
        _ if flags & RENAME_NOREPLACE != 0 => Err(Errno::EEXIST),
        (true, false) => Err(Errno::ENOTDIR),
        (false, true) => Err(Errno::EISDIR),
        _ => Ok(Some(victim)),
    }
}

/// Moves the name of `node` on the host, which may replace `victim`. A file that the host does not see leaves
/// no name there.
fn rename_there(
    from: &Found<'_>,
    to: &Found<'_>,
    node: &Node,
    victim: Option<&NodeRef>,
) -> Result<(), Errno> {
    match (from.parent.mounted(), to.parent.mounted(), node.mounted(), victim) {
        (Some(old), Some(new), Some(place), victim) => {
            let victim = victim.and_then(|victim| victim.mounted());
            old.rename((place, &from.name), (new, &to.name), victim.map(|place| &**place))
        }
        (Some(_), Some(_), None, Some(victim)) => remove_there(to, victim),
        _ => Ok(()),
    }
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

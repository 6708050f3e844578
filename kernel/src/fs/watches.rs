//! Watches of files: which files of events (`inotify.rs`) are told of an event.
//!
//! A node has two bits on the line that every call reads ([`OWN`], [`NAMED`]). A call that finds none of them
//! does nothing here. Watches are in one of 64 lists, by the address of their node, so only calls on watched
//! files meet in a lock.
//!
//! | event | told to watches of |
//! |---|---|
//! | read, written, opened, closed, attributes changed | the directory in which the file was found, by its name there, and the file |
//! | a name made, removed or moved | the directory |
//! | moved, all names and users gone | the file |
//!
//! 1. `OWN` is set and cleared with the list locked, `NAMED` is never cleared. A directory's `OWN` is set
//!    before its names are marked, and a change that adds a name looks at it with the name locked. So either
//!    the marking finds the name, or the change sees the bit.
//! 2. A watch keeps its node. It ends when the node has neither name nor user. Users are the open files that
//!    were opened while it was watched: one that was open before is not known here.
//! 3. No lock of the tree is taken with a list locked. Nodes are dropped without the lock of the list.
//! 4. Events are told by the call that causes them, before it returns. A file is closed when the last
//!    descriptor, mapping and call leave it.
//! 5. A watch is not told of a close that came before it. A file may be dropped some time after its last
//!    descriptor, so the closing of a descriptor notes whether there was a watch. Mapped files are told of
//!    when they are dropped.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use abi::Errno;
use abi::inotify::*;
use sync::SpinLock;

use super::inotify::Queue;
use super::node::{Node, NodeRef};
use super::open_file::OpenFile;
use super::path::Found;
use crate::mm::fallible;
use crate::sched;

/// The node has a watch.
pub const OWN: u8 = 1;
/// A directory that has, or had, a name of the node has a watch, or had one.
pub const NAMED: u8 = 2;

const LISTS: usize = 64;
/// The most watches of all files of events.
pub const MOST: usize = 8192;
/// The names that are marked between two pauses.
const PIECE: usize = 512;
/// The events that come with a name of the directory that is told.
const OF_FILE: u32 = IN_ACCESS | IN_MODIFY | IN_ATTRIB | IN_OPEN | IN_CLOSE_WRITE | IN_CLOSE_NOWRITE;

static ALL: [SpinLock<Vec<Watch>>; LISTS] = [const { SpinLock::new(Vec::new()) }; LISTS];
/// Their number. Relaxed: it guards nothing.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// The last number that two events of a move have in common. Relaxed: only uniqueness matters.
static COOKIE: AtomicU32 = AtomicU32::new(0);

struct Watch {
    node: NodeRef,
    queue: Arc<Queue>,
    number: i32,
    /// `IN_*`: the events, and how they are told.
    mask: u32,
    /// The open files of the node that it knows.
    users: usize,
    /// Set if it has told its only event.
    is_spent: bool,
}

/// An event to be told.
#[derive(Clone, Copy)]
struct Event<'a> {
    mask: u32,
    cookie: u32,
    /// The name in the directory that is told, or none if the file itself is.
    name: &'a [u8],
    /// Whether it is of a file that has no name any more.
    is_nameless: bool,
}

impl Watch {
    fn is(&self, node: &Node) -> bool {
        core::ptr::eq::<Node>(&*self.node, node)
    }

    fn is_of(&self, queue: &Arc<Queue>) -> bool {
        Arc::ptr_eq(&self.queue, queue)
    }

    fn tell(&mut self, event: &Event<'_>) {
        let kind = event.mask & IN_ALL_EVENTS;
        let is_left_out = event.is_nameless && !event.name.is_empty() && kind & OF_FILE != 0;
        if self.mask & kind == 0 || self.is_spent || is_left_out && self.mask & IN_EXCL_UNLINK != 0 {
            return;
        }
        self.queue.push(self.number, event.mask, event.cookie, event.name);
        self.is_spent = self.mask & IN_ONESHOT != 0;
    }
}

fn list(node: &Node) -> &'static SpinLock<Vec<Watch>> {
    // A node has three cache lines.
    let number = (core::ptr::from_ref(node).addr() / 64).wrapping_mul(0x9e37_79b9) >> 16;
    ALL.get(number % LISTS).unwrap_or(&ALL[0])
}

/// Takes a watch out of the list in which `node` is, clears the node's bit with the last one, and tells that
/// the watch has ended.
fn end_one(list: &SpinLock<Vec<Watch>>, mut is: impl FnMut(&Watch) -> bool, tells: bool) -> bool {
    let ended = {
        let mut watches = list.lock();
        let Some(at) = watches.iter().position(&mut is) else { return false };
        let ended = watches.swap_remove(at);
        if !watches.iter().any(|watch| watch.is(&ended.node)) {
            ended.node.clear_watched(OWN);
        }
        ended
    };
    COUNT.fetch_sub(1, Ordering::Relaxed);
    if tells {
        ended.queue.push(ended.number, IN_IGNORED, 0, b"");
    }
    true
}

/// Watches `node` for the events of `mask`, and returns the number of the watch. The caller keeps the file of
/// events open, and may pause.
///
/// # Errors
/// EEXIST with IN_MASK_CREATE if there is a watch, ENOSPC if there are too many, ENOMEM, and those of a
/// directory's names.
pub fn add(queue: &Arc<Queue>, node: &NodeRef, mask: u32) -> Result<i32, Errno> {
    if node.is_directory() {
        // Those of the host are listed first.
        node.names().map(drop).or_else(|error| if error == Errno::EROFS { Ok(()) } else { Err(error) })?;
    }
    let number = add_or_change(queue, node, mask)?;
    mark_names(node);
    Ok(number)
}

fn add_or_change(queue: &Arc<Queue>, node: &NodeRef, mask: u32) -> Result<i32, Errno> {
    let mut watches = list(node).lock();
    if let Some(old) = watches.iter_mut().find(|watch| watch.is(node) && watch.is_of(queue)) {
        if mask & IN_MASK_CREATE != 0 {
            return Err(Errno::EEXIST);
        }
        old.mask = if mask & IN_MASK_ADD != 0 { old.mask | mask } else { mask };
        return Ok(old.number);
    }
    if COUNT.load(Ordering::Relaxed) >= MOST {
        return Err(Errno::ENOSPC);
    }
    let users = watches.iter().find(|watch| watch.is(node)).map_or(0, |watch| watch.users);
    let number = queue.number()?;
    let watch = Watch { node: node.clone(), queue: queue.clone(), number, mask, users, is_spent: false };
    fallible::push(&mut watches, watch)?;
    COUNT.fetch_add(1, Ordering::Relaxed);
    node.note_watched(OWN);
    Ok(number)
}

/// Marks the nodes that have names in `directory`, in pieces.
fn mark_names(directory: &NodeRef) {
    let Ok(names) = directory.names() else { return };
    let (mut from, mut left) = (0, 0);
    while left == 0 {
        left = PIECE;
        names.after(from, &mut |position, entry| {
            entry.node.note_watched(NAMED);
            (from, left) = (position, left - 1);
            left > 0
        });
        sched::pause();
    }
}

/// Marks a node that gets a name in `directory`, if that is watched. The name is locked.
pub fn named(directory: &Node, node: &Node) {
    if directory.watched() & OWN != 0 {
        node.note_watched(NAMED);
    }
}

/// Ends watch `number`.
///
/// # Errors
/// EINVAL if there is none.
pub fn remove(queue: &Arc<Queue>, number: i32) -> Result<(), Errno> {
    let is = |watch: &Watch| watch.is_of(queue) && watch.number == number;
    if ALL.iter().any(|list| end_one(list, is, true)) { Ok(()) } else { Err(Errno::EINVAL) }
}

/// Ends all watches of a file of events, which is closed.
pub fn remove_all(queue: &Arc<Queue>) {
    for list in &ALL {
        while end_one(list, |watch| watch.is_of(queue), false) {}
    }
}

/// Moves the watches of `old` to `new`, which has taken its place in the tree.
pub fn hand_over(old: &NodeRef, new: &NodeRef) {
    if old.watched() & NAMED != 0 {
        new.note_watched(NAMED);
    }
    while old.watched() & OWN != 0 {
        let taken = {
            let mut watches = list(old).lock();
            let at = watches.iter().position(|watch| watch.is(old));
            old.clear_watched(if at.is_none() { OWN } else { 0 });
            at.map(|at| watches.swap_remove(at))
        };
        if let Some(watch) = taken {
            let moved = Watch { node: new.clone(), users: 0, ..watch };
            match fallible::push(&mut list(new).lock(), moved) {
                Ok(()) => new.note_watched(OWN),
                Err(_) => _ = COUNT.fetch_sub(1, Ordering::Relaxed),
            }
        }
    }
}

/// Tells the watches of `node`.
fn tell(node: &Node, event: &Event<'_>) {
    if node.watched() & OWN == 0 {
        return;
    }
    let list = list(node);
    let mut has_spent = false;
    for watch in list.lock().iter_mut().filter(|watch| watch.is(node)) {
        watch.tell(event);
        has_spent |= watch.is_spent;
    }
    while has_spent && end_one(list, |watch| watch.is_spent && watch.is(node), true) {}
}

fn directory_bit(node: &Node) -> u32 {
    if node.is_directory() { IN_ISDIR } else { 0 }
}

/// Tells the watches of `node`, and of the directory where it was found, of an event of `OF_FILE`.
#[cold]
fn tell_both(node: &NodeRef, place: Option<(&NodeRef, &[u8])>, kind: u32) {
    let is_nameless = node.links() == 0;
    let event = Event { mask: kind | directory_bit(node), cookie: 0, name: b"", is_nameless };
    if node.watched() & NAMED != 0 {
        // A directory is in one place, whatever led to it.
        match node.place().filter(|_| node.is_directory()) {
            Some((parent, hash, _)) => {
                let name = parent.names().and_then(|names| names.name_of(node, hash)).unwrap_or_default();
                if !name.is_empty() {
                    tell(&parent, &Event { name: &name, ..event });
                }
            }
            None => {
                if let Some((parent, name)) = place.filter(|_| !node.is_directory()) {
                    tell(parent, &Event { name, ..event });
                }
            }
        }
    }
    tell(node, &event);
}

/// Tells watches of an event of an open file, if there are any.
#[inline]
pub fn on_file(file: &OpenFile, kind: u32) {
    if file.node().watched() != 0 && !file.is_place() {
        tell_both(file.node(), file.found_at(), kind);
    }
}

/// Tells watches of an event of the file that a path has led to, if there are any.
#[inline]
pub fn on_found(found: &Found<'_>, kind: u32) {
    if let Some(node) = found.node.as_deref().filter(|node| node.watched() != 0) {
        tell_both(node, Some((&found.parent, &found.name)), kind);
    }
}

/// Counts a user of a watched node. Returns false if it is not watched.
#[inline]
pub fn join(node: &Node) -> bool {
    node.watched() & OWN != 0 && count_user(node, |users| users + 1)
}

#[cold]
fn count_user(node: &Node, count: impl Fn(usize) -> usize) -> bool {
    let mut is_watched = false;
    for watch in list(node).lock().iter_mut().filter(|watch| watch.is(node)) {
        (watch.users, is_watched) = (count(watch.users), true);
    }
    is_watched
}

/// Tells watches that the last user of an open file has left, which [`join`]ed if `has_joined`.
#[cold]
pub fn leave(file: &OpenFile, has_joined: bool) {
    if !file.is_closed_unwatched() {
        on_file(file, if file.is_writable() { IN_CLOSE_WRITE } else { IN_CLOSE_NOWRITE });
    }
    if has_joined {
        count_user(file.node(), |users| users.saturating_sub(1));
        end_if_unused(file.node());
    }
}

/// Ends the watches of a node that has neither name nor user.
fn end_if_unused(node: &Node) {
    if node.watched() & OWN == 0 || node.links() > 0 {
        return;
    }
    let list = list(node);
    let mask = IN_DELETE_SELF;
    let is_unused = |watch: &Watch| watch.is(node) && watch.users == 0;
    for watch in list.lock().iter_mut().filter(|watch| is_unused(watch)) {
        watch.tell(&Event { mask, cookie: 0, name: b"", is_nameless: true });
        watch.is_spent = true;
    }
    while end_one(list, |watch| is_unused(watch) && watch.is_spent, true) {}
}

fn tell_directory(directory: &Node, name: &[u8], mask: u32, cookie: u32) {
    tell(directory, &Event { mask, cookie, name, is_nameless: false });
}

/// Tells watches that `node` got the name that was found vacant.
#[inline]
pub fn created(at: &Found<'_>, node: &Node) {
    if at.parent.watched() | node.watched() != 0 {
        if !node.is_directory() && node.links() > 1 {
            links_changed(node);
        }
        tell_directory(&at.parent, &at.name, IN_CREATE | directory_bit(node), 0);
    }
}

/// Tells watches that the number of a node's names has changed.
fn links_changed(node: &Node) {
    if node.watched() & OWN != 0 {
        let mask = IN_ATTRIB | directory_bit(node);
        tell(node, &Event { mask, cookie: 0, name: b"", is_nameless: false });
    }
}

/// Tells watches that `node` has lost the name that was found.
#[inline]
pub fn removed(at: &Found<'_>, node: &Node) {
    if at.parent.watched() | node.watched() != 0 {
        if !node.is_directory() {
            links_changed(node);
        }
        end_if_unused(node);
        tell_directory(&at.parent, &at.name, IN_DELETE | directory_bit(node), 0);
    }
}

/// Tells watches that `node` was moved, and has replaced `victim`.
pub fn moved(from: &Found<'_>, to: &Found<'_>, node: &Node, victim: Option<&NodeRef>) {
    let watched = [&from.parent, &to.parent].map(|directory| directory.watched());
    if watched.iter().chain([&node.watched()]).all(|&bits| bits == 0) && victim.is_none() {
        return;
    }
    let cookie = COOKIE.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    tell_directory(&from.parent, &from.name, IN_MOVED_FROM | directory_bit(node), cookie);
    tell_directory(&to.parent, &to.name, IN_MOVED_TO | directory_bit(node), cookie);
    if let Some(victim) = victim {
        links_changed(victim);
    }
    tell(node, &Event { mask: IN_MOVE_SELF, cookie: 0, name: b"", is_nameless: false });
    if let Some(victim) = victim {
        end_if_unused(victim);
    }
}

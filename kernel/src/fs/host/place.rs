//! The place of a file on the host: its name below another place, and what is known of it.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use abi::Errno;
use abi::file::{NAME_MAX, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};
use abi::ninep::{Entry, Fields};
use percore::pin;
use sync::{SetOnce, SpinLock};

use super::attributes::{apply, owner, without_set_ids_of};
use super::client::{self, Change, Mount};
use super::{HostFile, HostSpecial, MountFile};
use crate::fs::clean;
use crate::fs::content::Content;
use crate::fs::directory::Entries;
use crate::fs::node::{Body, Node, NodeRef, NodeWeak, Owner, Volume};
use crate::fs::rights::{SET_GROUP, SET_USER};
use crate::mm::{fallible, frames};

/// The bytes of a page of a file.
const PAGE: u64 = 4096;

/// The memory that a place takes with its node, about.
const PLACE_BYTES: u64 = 1024;
/// The part of all memory that places may take, roughly: they are never freed while their names are there.
const SHARE: u64 = 4;
/// The number of places. Relaxed: the limit is a rough one.
static PLACES: AtomicU64 = AtomicU64::new(0);

/// A name of a file: the directory that it is in, and its name there.
type Name = (Arc<Place>, Box<[u8]>);

/// The place of a file on the host.
pub struct Place {
    mount: Mount,
    /// The name by which the file was found. The root of a mount has none.
    name: Option<Name>,
    state: SpinLock<State>,
    /// Set when the node was settled. Release after the node's parts are set, Acquire before they are used.
    is_settled: AtomicBool,
    /// Set when the guest has changed permissions or time of a file below the root. Relaxed: read when all
    /// programs have ended.
    has_changed_attributes: AtomicBool,
    /// Set when the names of a directory were listed. Release and Acquire for the names.
    is_listed: AtomicBool,
    /// The node of a directory. Names are listed when it is set.
    node: SetOnce<NodeWeak>,
}

/// The file's number at the host, which stands for a name of it there: before that is removed, it gets
/// another one.
#[derive(Default)]
struct State {
    fid: Option<u32>,
    is_open: bool,
    /// All names of a file in a mounted directory that the guest knows.
    names: Vec<Name>,
    /// Names of a directory below the root that the host has and the guest has removed, in order, if changes
    /// are wanted at the end. They may be there again.
    removed: Vec<Box<[u8]>>,
}

impl State {
    /// Removes a name and returns it, if it is there.
    fn take_name(&mut self, directory: &Arc<Place>, name: &[u8]) -> Option<Name> {
        let is_it = |known: &Name| Arc::ptr_eq(&known.0, directory) && *known.1 == *name;
        let at = self.names.iter().position(is_it)?;
        Some(self.names.swap_remove(at))
    }
}

impl Place {
    fn new(mount: Mount, name: Option<Name>) -> Result<Arc<Self>, Errno> {
        let mut state = State::default();
        if let Some((above, name)) = name.as_ref().filter(|_| mount != Mount::ROOT) {
            let name = (above.clone(), fallible::copied(name)?.into_boxed_slice());
            fallible::push(&mut state.names, name)?;
        }
        PLACES.fetch_add(1, Ordering::Relaxed);
        fallible::arc(Self {
            mount,
            name,
            state: SpinLock::new(state),
            is_settled: AtomicBool::new(false),
            has_changed_attributes: AtomicBool::new(false),
            is_listed: AtomicBool::new(false),
            node: SetOnce::new(),
        })
    }

    /// Returns the place of the root directory of a mount.
    pub fn root(mount: Mount) -> Result<Arc<Self>, Errno> {
        let root = Self::new(mount, None)?;
        root.state.lock().fid = Some(client::ROOT);
        Ok(root)
    }

    /// Returns the place of `name` in this directory.
    fn below(self: &Arc<Self>, name: &[u8]) -> Result<Arc<Self>, Errno> {
        Self::new(self.mount, Some((self.clone(), fallible::copied(name)?.into_boxed_slice())))
    }

    /// Returns the volume of its node: memory where changes stay in the guest.
    pub fn volume(&self) -> Volume {
        if self.is_mounted() { Volume::Mounted(self.mount.number()) } else { Volume::Memory }
    }

    /// Returns whether changes are the host's too.
    pub fn is_mounted(&self) -> bool {
        self.mount != Mount::ROOT
    }

    /// Sets the node of this directory. From now on its names are the host's too.
    pub fn set_node(&self, node: &NodeRef) {
        self.node.set(node.downgrade());
    }

    /// Returns the fid of the file.
    fn fid(&self) -> Result<u32, Errno> {
        let known = self.state.lock().fid;
        match (known, &self.name) {
            (Some(fid), _) => Ok(fid),
            (None, Some((above, name))) => {
                // Look-ups come from above, so the directory has a fid, and this goes up once.
                let above = above.fid()?;
                let mut state = self.state.lock();
                match state.fid {
                    Some(fid) => Ok(fid),
                    None => Ok(*state.fid.insert(self.mount.walk(above, Some(name))?)),
                }
            }
            (None, None) => Err(Errno::EIO),
        }
    }

    /// Sets what a look-up must know of `node`, the node of this file.
    ///
    /// # Errors
    /// ENOENT if the host has removed the file, EIO, ENOMEM, and the host's.
    #[inline]
    pub fn settle(&self, node: &Node) -> Result<(), Errno> {
        if self.is_settled.load(Ordering::Acquire) { Ok(()) } else { self.ask(node) }
    }

    #[cold]
    fn ask(&self, node: &Node) -> Result<(), Errno> {
        let is_link = matches!(node.body(), Body::Link(_));
        let (attributes, target) = self.with_fid(|fid| {
            let target = if is_link { Some(self.mount.link_target(fid)?) } else { None };
            Ok((self.mount.attributes(fid)?, target))
        })?;
        let _state = self.state.lock();
        if self.is_settled.load(Ordering::Acquire) {
            return Ok(());
        }
        if let Some(pages) = node.content().and_then(Content::pages) {
            clean::add(pages)?;
        }
        if let (Body::Link(link), Some(target)) = (node.body(), target) {
            link.set(target.into_boxed_slice());
        }
        apply(&attributes, node);
        self.is_settled.store(true, Ordering::Release);
        Ok(())
    }

    /// Adds the host's names to `names`, those of this directory. Names that are there already stay.
    ///
    /// # Errors
    /// EIO, ENOMEM, and the host's, such as EACCES.
    #[inline]
    pub fn list(self: &Arc<Self>, names: &Entries) -> Result<(), Errno> {
        if self.is_listed.load(Ordering::Acquire) { Ok(()) } else { self.list_once(names) }
    }

    #[cold]
    fn list_once(self: &Arc<Self>, names: &Entries) -> Result<(), Errno> {
        let Some(node) = self.node.get() else { return Ok(()) };
        if PLACES.load(Ordering::Relaxed) * PLACE_BYTES > frames::stats().total * PAGE / SHARE {
            return Err(Errno::ENOMEM);
        }
        let (node, fid) = (node.upgrade().ok_or(Errno::ENOENT)?, self.fid()?);
        let _state = self.state.lock();
        if self.is_listed.load(Ordering::Acquire) {
            return Ok(());
        }
        // A fid that is open cannot be walked from, so another one is opened.
        let opened = self.mount.walk(fid, None)?;
        let changed = names.changed_ns();
        let listed = self.mount.open(opened).and_then(|()| self.add_all(opened, &node, names));
        self.mount.forget(opened);
        listed?;
        names.set_changed(changed);
        self.is_listed.store(true, Ordering::Release);
        Ok(())
    }

    fn add_all(self: &Arc<Self>, opened: u32, node: &NodeRef, names: &Entries) -> Result<(), Errno> {
        let mut position = 0;
        loop {
            let before = position;
            let data = self.mount.entries(opened, position)?;
            let mut fields = Fields::from(&data[..]);
            if fields.is_empty() {
                return Ok(());
            }
            while !fields.is_empty() {
                let entry = Entry::take(&mut fields).map_err(|_| Errno::EIO)?;
                position = entry.position;
                self.add(&entry, node, names)?;
            }
            // The same names again would never end.
            if position == before {
                return Err(Errno::EIO);
            }
        }
    }

    fn add(self: &Arc<Self>, entry: &Entry<'_>, node: &NodeRef, names: &Entries) -> Result<(), Errno> {
        let is_name = (1..=NAME_MAX).contains(&entry.name.len()) && !entry.name.contains(&b'/');
        if matches!(entry.name, b"." | b"..") || !is_name {
            return Ok(());
        }
        let new = node_at(&self.below(entry.name)?, entry.kind, entry.ino)?;
        new.set_parent(node, entry.name);
        let pin = pin();
        match names.change(&pin, entry.name)?.insert(entry.name, new) {
            // Boot put something there.
            Err(Errno::EEXIST) => Ok(()),
            added => added,
        }
    }

    /// Opens the file for reading, and returns its fid.
    ///
    /// # Errors
    /// ESTALE if the file has no name any more, and the host's, such as EACCES.
    pub fn open(&self) -> Result<u32, Errno> {
        // It fails for a name that is gone by then, and may stand for another one of the file later.
        let walked = self.fid();
        let mut state = self.state.lock();
        if !state.is_open && self.has_lost_names(&state) {
            return Err(Errno::ESTALE);
        }
        let fid = state.fid.map_or(walked, Ok)?;
        if !state.is_open {
            self.mount.open(fid)?;
            state.is_open = true;
        }
        Ok(fid)
    }

    /// Passes the pages of the file from `page` on, at most `most` of them, to `take`: their numbers and
    /// bytes, of which the last page may have fewer. The channel to the host is locked meanwhile.
    ///
    /// # Errors
    /// EIO, the host's, and those of `take`.
    pub fn read_pages(
        &self,
        page: u64,
        most: u64,
        mut take: impl FnMut(u64, &[u8]) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        self.open()?;
        // Locked, so that the fid is not replaced meanwhile.
        let state = self.state.lock();
        let fid = state.fid.ok_or(Errno::EIO)?;
        let len = most.saturating_mul(PAGE).min(client::DATA_BYTES.into()) as u32;
        self.mount.read(fid, page * PAGE, len, |bytes| {
            (page..).zip(bytes.chunks(PAGE as usize)).try_for_each(|(page, bytes)| take(page, bytes))
        })
    }
}

/// Changes below the root, which the guest has made.
impl Place {
    /// Notes that the guest has changed its permissions or its time.
    pub fn note_changed_attributes(&self) {
        self.has_changed_attributes.store(true, Ordering::Relaxed);
    }

    /// Returns whether it has.
    pub fn has_changed_attributes(&self) -> bool {
        self.has_changed_attributes.load(Ordering::Relaxed)
    }

    /// Returns whether the host has the file under this name in `directory`.
    pub fn is_at(&self, directory: &Arc<Self>, name: &[u8]) -> bool {
        self.name.as_ref().is_some_and(|(above, own)| Arc::ptr_eq(above, directory) && **own == *name)
    }

    /// Notes that a name in this directory is removed, if the host has it.
    ///
    /// # Errors
    /// ENOMEM, and the host's.
    pub fn note_removed(&self, name: &[u8]) -> Result<(), Errno> {
        if self.has_removed(name) {
            return Ok(());
        }
        match self.fid().and_then(|fid| self.mount.walk(fid, Some(name))) {
            Ok(found) => self.mount.forget(found),
            Err(Errno::ENOENT) => return Ok(()),
            Err(error) => return Err(error),
        }
        let (name, mut state) = (fallible::copied(name)?.into_boxed_slice(), self.state.lock());
        match state.removed.binary_search(&name) {
            Ok(_) => Ok(()),
            Err(at) => fallible::insert(&mut state.removed, at, name),
        }
    }

    /// Returns whether a name in this directory that the host has was removed.
    pub fn has_removed(&self, name: &[u8]) -> bool {
        self.state.lock().removed.binary_search_by(|other| (**other).cmp(name)).is_ok()
    }

    /// Returns these names.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn removed(&self) -> Result<Vec<Box<[u8]>>, Errno> {
        let (mut all, state) = (Vec::new(), self.state.lock());
        for name in &state.removed {
            fallible::push(&mut all, fallible::copied(name)?.into_boxed_slice())?;
        }
        Ok(all)
    }
}

/// Changes of a mounted directory. The caller has locked the name.
impl Place {
    /// Creates a file and returns its node.
    ///
    /// # Errors
    /// EEXIST if the host has the name, which may be new there: then the caller [adopts](Self::adopt) it.
    /// ENOMEM, and the host's.
    pub fn make_file(self: &Arc<Self>, name: &[u8], mode: u32) -> Result<NodeRef, Errno> {
        let place = self.below(name)?;
        let file = MountFile::new(&place)?;
        file.make_changeable()?;
        file.note_unlisted();
        let node = place.known(mode, Body::File(content(file)?))?;
        // The host gives it to the user who runs the guest. Its group may be that of the directory, here and
        // there, which the node gets later.
        let mode_there = without_set_ids_of(mode, node.owner(), Owner::ROOT) & !SET_GROUP;
        self.mount.create(self.fid()?, name, mode_there)?;
        Ok(node)
    }

    /// Creates a directory and returns its node.
    ///
    /// # Errors
    /// As above.
    pub fn make_directory(self: &Arc<Self>, name: &[u8], mode: u32) -> Result<NodeRef, Errno> {
        let place = self.below(name)?;
        let node = Node::host_directory(0, &place)?;
        self.mount.make_directory(self.fid()?, name, mode)?;
        node.set_permissions(mode);
        place.is_settled.store(true, Ordering::Release);
        place.is_listed.store(true, Ordering::Release);
        place.set_node(&node);
        Ok(node)
    }

    /// Creates a symbolic link and returns its node.
    ///
    /// # Errors
    /// As above.
    pub fn make_link(self: &Arc<Self>, name: &[u8], target: &[u8]) -> Result<NodeRef, Errno> {
        let link = SetOnce::new();
        link.set(fallible::copied(target)?.into_boxed_slice());
        let node = self.below(name)?.known(0o777, Body::Link(link))?;
        self.mount.make_link(self.fid()?, name, target)?;
        Ok(node)
    }

    /// Creates the node of a file whose attributes are known.
    fn known(self: &Arc<Self>, mode: u32, body: Body) -> Result<NodeRef, Errno> {
        let node = Node::of_host(0, body, self)?;
        node.set_permissions(mode);
        self.is_settled.store(true, Ordering::Release);
        Ok(node)
    }

    /// Returns a node for a name that the host has and the guest does not know yet.
    ///
    /// # Errors
    /// ENOENT if it is gone again, and the host's.
    pub fn adopt(self: &Arc<Self>, name: &[u8]) -> Result<NodeRef, Errno> {
        let place = self.below(name)?;
        let attributes = self.mount.attributes(place.fid()?)?;
        node_at(&place, attributes.mode & S_IFMT, attributes.ino)
    }

    /// Gives the file at `place` another name here.
    ///
    /// # Errors
    /// The host's.
    pub fn hard_link(self: &Arc<Self>, place: &Self, name: &[u8]) -> Result<(), Errno> {
        let directory = self.fid()?;
        place.add_name(self, name)?;
        let linked = place.with_fid(|fid| self.mount.hard_link(fid, directory, name));
        linked.inspect_err(|_| place.forget_name(self, name))
    }

    /// Moves the file at `place` from its name here to one in a directory of the same mount, which the
    /// `victim` loses.
    ///
    /// # Errors
    /// The host's.
    pub fn rename(
        self: &Arc<Self>,
        (place, name): (&Self, &[u8]),
        (to, new): (&Arc<Self>, &[u8]),
        victim: Option<&Self>,
    ) -> Result<(), Errno> {
        // The host moves the name in all fids that stand for it.
        place.fid()?;
        let (from_fid, to_fid) = (self.fid()?, to.fid()?);
        place.add_name(to, new)?;
        let dropped = victim.map_or(Ok(()), |victim| victim.drop_name(to, new));
        dropped.inspect_err(|_| place.forget_name(to, new))?;
        let renamed = self.mount.rename((from_fid, name), (to_fid, new));
        match renamed {
            Ok(()) => place.forget_name(self, name),
            Err(_) => {
                place.forget_name(to, new);
                let _no_memory = victim.map(|victim| victim.add_name(to, new));
            }
        }
        renamed
    }

    /// Removes a name of the file at `place`. It is no error if the host has removed it before.
    ///
    /// # Errors
    /// The host's.
    pub fn unlink(self: &Arc<Self>, place: &Self, name: &[u8], is_directory: bool) -> Result<(), Errno> {
        let directory = self.fid()?;
        place.drop_name(self, name)?;
        match self.mount.unlink(directory, name, is_directory) {
            Err(Errno::ENOENT) => Ok(()),
            unlinked => unlinked.inspect_err(|_| _ = place.add_name(self, name)),
        }
    }

    /// Removes what was just made, because the guest cannot have it.
    pub fn undo(&self, name: &[u8], is_directory: bool) {
        let _stays = self.fid().and_then(|fid| self.mount.unlink(fid, name, is_directory));
    }

    fn add_name(&self, directory: &Arc<Self>, name: &[u8]) -> Result<(), Errno> {
        let name = (directory.clone(), fallible::copied(name)?.into_boxed_slice());
        fallible::push(&mut self.state.lock().names, name)
    }

    /// Forgets a name that is gone.
    pub fn forget_name(&self, directory: &Arc<Self>, name: &[u8]) {
        self.state.lock().take_name(directory, name);
    }

    /// Forgets a name that the host is about to remove. If there is another one, the fid stands for that from
    /// now on.
    ///
    /// # Errors
    /// The host's, and then the name is forgotten only if there is no memory.
    fn drop_name(&self, directory: &Arc<Self>, name: &[u8]) -> Result<(), Errno> {
        let mut state = self.state.lock();
        let dropped = state.take_name(directory, name);
        let (Some((above, other)), Some(old)) = (state.names.first(), state.fid) else { return Ok(()) };
        // A directory in which a name was added has a fid.
        let above = above.state.lock().fid.ok_or(Errno::EIO);
        let walked = above.and_then(|above| self.mount.walk(above, Some(other)));
        match walked {
            Ok(new) => {
                // Descriptors may read by it when all names are gone.
                state.is_open = state.is_open && self.mount.open(new).is_ok();
                state.fid = Some(new);
                self.mount.forget(old);
                Ok(())
            }
            Err(error) => {
                let _no_memory = dropped.map(|name| fallible::push(&mut state.names, name));
                Err(error)
            }
        }
    }

    /// Calls `f` with the fid of the file, which stands for a name that it has until the call returns.
    ///
    /// # Errors
    /// ESTALE if it has no name any more.
    fn with_fid<R>(&self, f: impl FnOnce(u32) -> Result<R, Errno>) -> Result<R, Errno> {
        // It fails for a name that is gone by then.
        let walked = self.fid();
        let state = self.state.lock();
        if self.has_lost_names(&state) {
            return Err(Errno::ESTALE);
        }
        f(state.fid.map_or(walked, Ok)?)
    }

    fn has_lost_names(&self, state: &State) -> bool {
        self.is_mounted() && self.name.is_some() && state.names.is_empty()
    }

    /// Returns a fid of the file that is open for writing. The caller forgets it.
    ///
    /// # Errors
    /// ESTALE if it has no name any more, and the host's.
    pub fn open_to_write(&self) -> Result<u32, Errno> {
        self.with_fid(|fid| self.mount.open_to_write(fid))
    }

    /// Changes an attribute of the file.
    ///
    /// # Errors
    /// ESTALE if it has no name any more, and the host's.
    pub fn set_if_named(&self, change: Change) -> Result<(), Errno> {
        self.with_fid(|fid| self.mount.set(fid, change))
    }

    /// Does the same. For a file without a name it does nothing: the host could not see it.
    ///
    /// # Errors
    /// The host's.
    pub fn set(&self, change: Change) -> Result<(), Errno> {
        unless_nameless(self.set_if_named(change))
    }

    /// Sets the permissions of a file that has the owner `of` in the guest. The host does not get set-id bits
    /// of another owner. For a file without a name it does nothing.
    ///
    /// # Errors
    /// The host's.
    pub fn set_permissions(&self, permissions: u32, of: Owner) -> Result<(), Errno> {
        unless_nameless(self.with_fid(|fid| {
            let there = match permissions & (SET_USER | SET_GROUP) {
                0 => permissions,
                _ => without_set_ids_of(permissions, of, owner(&self.mount.attributes(fid)?)),
            };
            self.mount.set(fid, Change::Mode(there))
        }))
    }

    /// Removes the set-id bits from the host's file that it may not have if `of` is its owner in the guest.
    /// For a file without a name, or without such bits, it does nothing.
    ///
    /// # Errors
    /// The host's.
    pub fn remove_set_ids_of(&self, of: Owner) -> Result<(), Errno> {
        unless_nameless(self.with_fid(|fid| {
            let attributes = self.mount.attributes(fid)?;
            let before = attributes.mode & 0o7777;
            match without_set_ids_of(before, of, owner(&attributes)) {
                there if there == before => Ok(()),
                there => self.mount.set(fid, Change::Mode(there)),
            }
        }))
    }

    /// Returns the length that the file has on the host.
    ///
    /// # Errors
    /// ESTALE if it has no name any more, and the host's.
    pub fn host_len(&self) -> Result<u64, Errno> {
        self.with_fid(|fid| self.mount.attributes(fid)).map(|attributes| attributes.size)
    }

    /// Asks the host again for the length and time of an unchanged file that is about to be opened.
    ///
    /// # Errors
    /// ENOENT if the host has removed it, ESTALE if it has no name any more, and the host's.
    pub fn refresh(&self, node: &Node, file: &MountFile) -> Result<(), Errno> {
        let attributes = self.with_fid(|fid| self.mount.attributes(fid))?;
        if (attributes.size, attributes.changed_ns) != (file.len(), node.changed_ns()) {
            file.set_host_len(attributes.size);
            node.set_changed(attributes.changed_ns);
        }
        Ok(())
    }

    /// Returns the mount that the file is in.
    pub fn mount(&self) -> Mount {
        self.mount
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        PLACES.fetch_sub(1, Ordering::Relaxed);
        if let Some(fid) = self.state.lock().fid.filter(|&fid| fid != client::ROOT) {
            self.mount.forget(fid);
        }
    }
}

/// Makes it no error that a file has no name.
fn unless_nameless(result: Result<(), Errno>) -> Result<(), Errno> {
    if result == Err(Errno::ESTALE) { Ok(()) } else { result }
}

/// Creates the node of a file of this kind, `S_IF*`, with this number on the host.
fn node_at(place: &Arc<Place>, kind: u32, ino: u64) -> Result<NodeRef, Errno> {
    let body = match kind {
        S_IFDIR => {
            let node = Node::host_directory(ino, place)?;
            place.set_node(&node);
            return Ok(node);
        }
        S_IFLNK => Body::Link(SetOnce::new()),
        S_IFREG if place.is_mounted() => Body::File(content(MountFile::new(place)?)?),
        S_IFREG => Body::File(content(HostFile::new(place)?)?),
        kind => Body::File(content(HostSpecial(kind))?),
    };
    Node::of_host(ino, body, place)
}

fn content(content: impl Content + 'static) -> Result<Box<dyn Content>, Errno> {
    let content: Box<dyn Content> = fallible::boxed(content)?;
    Ok(content)
}

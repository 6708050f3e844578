//! The place of a file on the host: its name below another place, and what is known of it.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use abi::Errno;
use abi::file::{NAME_MAX, S_IFDIR, S_IFLNK, S_IFREG};
use abi::ninep::{Attributes, Entry, Fields};
use percore::pin;
use sync::{SetOnce, SpinLock};

use super::{HostFile, HostSpecial, client};
use crate::fs::clean;
use crate::fs::content::Content;
use crate::fs::directory::Entries;
use crate::fs::node::{Body, Node, NodeRef, NodeWeak};
use crate::mm::{fallible, frames};

/// The bytes of a page of a file.
const PAGE: u64 = 4096;

/// The memory that a place takes with its node, about.
const PLACE_BYTES: u64 = 1024;
/// The part of all memory that places may take, roughly: they are never freed while their names are there.
const SHARE: u64 = 4;
/// The number of places. Relaxed: the limit is a rough one.
static PLACES: AtomicU64 = AtomicU64::new(0);

/// The place of a file on the host.
pub struct Place {
    /// The directory that the file is in, and its name there. The root has none.
    name: Option<(Arc<Place>, Box<[u8]>)>,
    state: SpinLock<State>,
    /// Set when the node was settled. Release after the node's parts are set, Acquire before they are used.
    is_settled: AtomicBool,
    /// Set when the names of a directory were listed. Release and Acquire for the names.
    is_listed: AtomicBool,
    /// The node of a directory. Names are listed when it is set.
    node: SetOnce<NodeWeak>,
}

/// The file's number at the host.
#[derive(Default)]
struct State {
    fid: Option<u32>,
    is_open: bool,
}

impl Place {
    fn new(name: Option<(Arc<Place>, Box<[u8]>)>) -> Result<Arc<Self>, Errno> {
        PLACES.fetch_add(1, Ordering::Relaxed);
        fallible::arc(Self {
            name,
            state: SpinLock::new(State::default()),
            is_settled: AtomicBool::new(false),
            is_listed: AtomicBool::new(false),
            node: SetOnce::new(),
        })
    }

    /// Returns the place of the root directory.
    pub fn root() -> Result<Arc<Self>, Errno> {
        let root = Self::new(None)?;
        root.state.lock().fid = Some(client::ROOT);
        Ok(root)
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
                    None => Ok(*state.fid.insert(client::walk(above, Some(name))?)),
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
        let fid = self.fid()?;
        let attributes = client::attributes(fid)?;
        let target = match node.body() {
            Body::Link(_) => Some(client::link_target(fid)?),
            _ => None,
        };
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
        let opened = client::walk(fid, None)?;
        let changed = names.changed_ns();
        let listed = client::open(opened).and_then(|()| self.add_all(opened, &node, names));
        client::forget(opened);
        listed?;
        names.set_changed(changed);
        self.is_listed.store(true, Ordering::Release);
        Ok(())
    }

    fn add_all(self: &Arc<Self>, opened: u32, node: &NodeRef, names: &Entries) -> Result<(), Errno> {
        let mut position = 0;
        loop {
            let before = position;
            let data = client::entries(opened, position)?;
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
        let name = fallible::copied(entry.name)?.into_boxed_slice();
        let place = Self::new(Some((self.clone(), name)))?;
        let new = node_at(&place, entry)?;
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
    /// The host's, such as EACCES.
    pub fn open(&self) -> Result<u32, Errno> {
        let fid = self.fid()?;
        let mut state = self.state.lock();
        if !state.is_open {
            client::open(fid)?;
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
        let fid = self.open()?;
        let len = most.saturating_mul(PAGE).min(client::DATA_BYTES.into()) as u32;
        client::read(fid, page * PAGE, len, |bytes| {
            (page..).zip(bytes.chunks(PAGE as usize)).try_for_each(|(page, bytes)| take(page, bytes))
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        PLACES.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Creates the node of an entry.
fn node_at(place: &Arc<Place>, entry: &Entry<'_>) -> Result<NodeRef, Errno> {
    let body = match entry.kind {
        S_IFDIR => {
            let node = Node::host_directory(entry.ino, place)?;
            place.set_node(&node);
            return Ok(node);
        }
        S_IFLNK => Body::Link(SetOnce::new()),
        S_IFREG => Body::File(content(HostFile::new(place)?)?),
        kind => Body::File(content(HostSpecial(kind))?),
    };
    Node::of_host(entry.ino, body, place)
}

fn content(content: impl Content + 'static) -> Result<Box<dyn Content>, Errno> {
    let content: Box<dyn Content> = fallible::boxed(content)?;
    Ok(content)
}

fn apply(attributes: &Attributes, node: &Node) {
    node.set_permissions(attributes.mode);
    node.set_changed(attributes.changed_ns);
    if !node.is_directory() {
        node.set_links(attributes.links);
    }
    if let Some(pages) = node.content().and_then(Content::pages) {
        pages.set_host_len(attributes.size);
    }
}

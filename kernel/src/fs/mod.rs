//! Files: one tree of names for everything that a program can open.
//!
//! ```text
//!   /            the boot image's files, read in place, read-only       image
//!                or the host's, with those in front, changed in memory, host
//!                except mounted directories, whose changes go back
//!   /tmp         files in memory                                        memory_file
//!   /dev         null zero full random urandom stdin stdout stderr fd,  dev, device
//!                and shm for files in memory
//!   /proc, /sys  texts made when they are opened                        procfs, a room above
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `node`, `content` | a file, directory or link, and the contents of a file |
//! | `mapped` | the source of a mapping |
//! | `page_cache`, `budget`, `clean` | the pages of a file, the limit of all, dropping those that can be made again |
//! | `directory`, `tree`, `path` | the names in a directory, changes to the tree, walking a path |
//! | `open_file`, `fd_table` | an open file, a process's descriptors |
//! | `fs_context` | the root, directory and umask of a process |
//! | `buffers` | the program's buffers |
//! | `host` | the host's files, read or mounted to be changed |
//! | `folder`, `dev` | directories whose names are generated, `/dev` |
//! | `pipe`, `socket`, `console` | pipes, sockets, the serial ports |
//! | `network` | connections and messages by a network card |
//! | `eventfd`, `timerfd` | counters and timers that are files |
//! | `readiness`, `epoll` | waits for several files |
//! | `inotify`, `watches` | files of events, and the files of which they are told |
//! | `locks` | locks of files |
//! | `rights` | owners of files and checks of permissions |
//! | `fail_alloc` | a device that makes allocations fail |
//!
//! Every allocation that a program can cause is bounded and can fail. No lock of this module is held while
//! its holder sleeps, and none is taken in an interrupt.
#![deny(unsafe_code, clippy::indexing_slicing, clippy::unwrap_used)]

mod budget;
pub mod buffers;
pub mod clean;
pub mod console;
pub mod content;
mod dev;
mod device;
mod directory;
pub mod epoll;
pub mod eventfd;
mod executable;
mod fail_alloc;
mod fd_table;
pub mod folder;
mod fs_context;
pub mod holders;
pub mod host;
mod image;
pub mod inotify;
pub mod locks;
mod mapped;
pub mod memory_file;
pub mod network;
pub mod node;
mod open_file;
pub mod page_cache;
pub mod path;
pub mod pipe;
pub mod readiness;
pub mod rights;
pub mod socket;
pub mod timerfd;
pub mod tree;
pub mod watches;

use abi::Errno;
use percore::pin;
use sync::SetOnce;

use crate::options;

pub use budget::{Room, numbers as budget, was_refused};
pub use console::{input_arrived, on_input};
pub use executable::Executable;
pub use fd_table::{FdTable, MAX_FILES, Reserved};
pub use fs_context::FsContext;
pub use image::BadImage;
pub use mapped::Source;
pub use open_file::{InUse, OpenFile, Opened, Transfer};

use node::{Node, NodeRef, Volume};

/// The tree and the archive, set at boot.
struct Files {
    root: NodeRef,
    archive: &'static [u8],
}

static FILES: SetOnce<Files> = SetOnce::new();

/// Builds the tree from the boot image. `populate` adds the directories of the rooms above to the root. The
/// heap and the clock must work.
pub fn init(
    archive: &'static [u8],
    populate: impl FnOnce(&NodeRef) -> Result<(), BadImage>,
) -> Result<(), BadImage> {
    budget::set_limit(crate::mm::frames::stats().total / 2);
    let place = if options::get().host_files { Some(host::connect()?) } else { None };
    let root = match &place {
        Some(place) => Node::host_root(place)?.into_static()?,
        None => Node::directory(Volume::Image, 0o755)?.into_static()?,
    };
    root.set_parent(&root, b"/");
    dev::populate(&root)?;
    populate(&root)?;
    match &place {
        Some(place) => place.set_node(&root),
        None => tree::attach(&root, b"tmp", &Node::directory(Volume::Memory, 0o1777)?.into_static()?)?,
    }
    image::unpack(archive, &root)?;
    if let Some(paths) = image::private(archive, b".radixvm/mounts") {
        host::mount_all(&root, paths)?;
    }
    if let Some(device) = options::get().overlay_out {
        host::overlay_out::connect(device.into())?;
    }
    tree::freeze(&root)?;
    node::end_boot();
    FILES.set(Files { root, archive });
    Ok(())
}

/// Returns the root directory.
///
/// # Panics
/// Before [`init`].
pub fn root() -> NodeRef {
    FILES.get().expect("fs::init was called").root.clone()
}

/// Returns a file of the boot image that is for the kernel, by its whole path `.radixvm/NAME`.
///
/// # Errors
/// ENOENT if there is none.
pub fn boot_file(path: &str) -> Result<&'static [u8], Errno> {
    let archive = FILES.get().map(|files| files.archive).unwrap_or_default();
    image::private(archive, path.as_bytes()).ok_or(Errno::ENOENT)
}

/// Returns the program at `path`.
///
/// # Errors
/// ENOENT if there is none, and those of [`Executable::open`].
pub fn program(path: &[u8]) -> Result<Executable, Errno> {
    let (pin, root) = (pin(), root());
    Executable::found(path::find(&pin, &root, &root, path, true)?)
}

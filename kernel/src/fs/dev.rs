//! The directory `/dev`.

use abi::Errno;

use super::device::Device;
use super::fail_alloc::FailAlloc;
use super::folder;
use super::node::{Node, NodeRef, Volume};
use super::tree;
use crate::options;

/// Adds the directory to `root`.
pub fn populate(root: &NodeRef) -> Result<(), Errno> {
    let dev = &folder::directory(root, b"dev")?;
    let files: [(&[u8], Device); 5] = [
        (b"null", Device::Null),
        (b"zero", Device::Zero),
        (b"full", Device::Full),
        (b"random", Device::Random),
        (b"urandom", Device::Random),
    ];
    for (name, device) in files {
        tree::attach(dev, name, &Node::file(Volume::System, 0o666, device)?.into_static()?)?;
    }
    if options::get().fail_alloc {
        tree::attach(dev, b"fail-alloc", &Node::file(Volume::System, 0o600, FailAlloc)?.into_static()?)?;
    }
    // For `shm_open` and `sem_open`.
    tree::attach(dev, b"shm", &Node::directory(Volume::Memory, 0o1777)?.into_static()?)?;
    let links: [(&[u8], &[u8]); 4] = [
        (b"fd", b"/proc/self/fd"),
        (b"stdin", b"/proc/self/fd/0"),
        (b"stdout", b"/proc/self/fd/1"),
        (b"stderr", b"/proc/self/fd/2"),
    ];
    links.into_iter().try_for_each(|(name, target)| {
        tree::attach(dev, name, &Node::link(Volume::System, target)?.into_static()?)
    })
}

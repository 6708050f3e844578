//! References to nodes.
//!
//! Nodes that boot makes are static, except those in memory: nothing is counted on the way to a program.
//! Directories, files and links in memory are counted by Refcache: each file that is made or opened refers
//! to its directory, and each open file to its node. Pipes, `/proc` and the host's files are counted by an
//! `Arc`, which frees them with the last reference.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ops::Deref;
use core::ptr;

use abi::Errno;

use super::Node;
use crate::mm::fallible;
use crate::mm::refcache_arc::{RefcacheArc, RefcacheWeak};

/// A reference to a node.
#[derive(Clone)]
pub enum NodeRef {
    /// The node lives for ever.
    Static(&'static Node),
    /// The node lives as long as it has a reference.
    Arc(Arc<Node>),
    /// The same, and for some epochs longer.
    Refcache(RefcacheArc<Node>),
}

/// A reference to a directory that does not keep it.
pub enum NodeWeak {
    /// There is no directory.
    None,
    /// The directory lives for ever.
    Static(&'static Node),
    /// The directory may be gone.
    Refcache(RefcacheWeak<Node>),
}

impl NodeRef {
    /// Makes the node live for ever.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn into_static(self) -> Result<Self, Errno> {
        Ok(match self {
            Self::Static(_) => self,
            Self::Arc(node) => Self::Static(Box::leak(fallible::boxed(node)?)),
            Self::Refcache(node) => Self::Static(Box::leak(fallible::boxed(node)?)),
        })
    }

    /// Returns whether both refer to the same node.
    pub fn is(&self, other: &Self) -> bool {
        ptr::eq::<Node>(&**self, &**other)
    }

    /// Returns a reference to this directory that does not keep it.
    pub fn downgrade(&self) -> NodeWeak {
        match self {
            Self::Static(node) => NodeWeak::Static(node),
            Self::Refcache(node) => NodeWeak::Refcache(node.downgrade()),
            // It is no directory with names.
            Self::Arc(_) => NodeWeak::None,
        }
    }
}

impl Deref for NodeRef {
    type Target = Node;
    #[inline(always)]
    fn deref(&self) -> &Node {
        match self {
            Self::Static(node) => node,
            Self::Arc(node) => node,
            Self::Refcache(node) => node,
        }
    }
}

impl NodeWeak {
    /// Returns a reference that keeps the node, if that is still there.
    pub fn upgrade(&self) -> Option<NodeRef> {
        match self {
            Self::None => None,
            Self::Static(node) => Some(NodeRef::Static(node)),
            Self::Refcache(node) => node.upgrade().map(NodeRef::Refcache),
        }
    }
}

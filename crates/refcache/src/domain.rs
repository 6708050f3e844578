//! Pointers to a domain.

use alloc::sync::Arc;
use core::ops::Deref;

use crate::Refcache;

/// A pointer to a [`Refcache`] that always leads to the same one. A structure that counts its objects with it
/// may rely on that.
pub trait Domain: Deref<Target = Refcache> + sealed::Sealed {}

impl Domain for &Refcache {}
impl Domain for Arc<Refcache> {}

mod sealed {
    use super::{Arc, Refcache};

    pub trait Sealed {}
    impl Sealed for &Refcache {}
    impl Sealed for Arc<Refcache> {}
}

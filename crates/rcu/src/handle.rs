//! Pointers to a domain.

use alloc::sync::Arc;
use core::ops::Deref;

use crate::Domain;

/// A pointer to a [`Domain`] that always leads to the same one. A structure that retires its objects in it
/// may rely on that.
pub trait Handle: Deref<Target = Domain> + sealed::Sealed {}

impl Handle for &Domain {}
impl Handle for Arc<Domain> {}

mod sealed {
    use super::{Arc, Domain};

    pub trait Sealed {}
    impl Sealed for &Domain {}
    impl Sealed for Arc<Domain> {}
}

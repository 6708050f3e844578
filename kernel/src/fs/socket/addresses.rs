//! The addresses in use by sockets of one kind, and what is reached at each.

use alloc::sync::Arc;
use alloc::vec::Vec;

use abi::Errno;
use sync::SpinLock;

use super::Address;
use crate::mm::fallible;

/// The most addresses in use: a search visits all of them.
const MOST_BOUND: usize = 4096;

/// A list of addresses, each with what is reached there.
pub struct Addresses<T>(SpinLock<Vec<Bound<T>>>);

struct Bound<T> {
    address: Address,
    /// Set if it is not reached by version 4.
    only_v6: bool,
    target: Option<Arc<T>>,
}

impl<T> Addresses<T> {
    /// Makes an empty list.
    pub const fn new() -> Self {
        Self(SpinLock::new(Vec::new()))
    }

    /// Notes that an address is in use, and returns it with a port if it had none.
    ///
    /// # Errors
    /// EADDRINUSE, ENOMEM.
    pub fn register(&self, address: Address, only_v6: bool) -> Result<Address, Errno> {
        let mut all = self.0.lock();
        if all.len() >= MOST_BOUND {
            return Err(Errno::EADDRINUSE);
        }
        let is_free = |wanted: &Address| {
            !all.iter().any(|bound| bound.address.excludes(bound.only_v6, wanted, only_v6))
        };
        let address = address.with_port(is_free).ok_or(Errno::EADDRINUSE)?;
        fallible::push(&mut all, Bound { address: address.clone(), only_v6, target: None })?;
        Ok(address)
    }

    /// Sets what is reached at an address in use.
    pub fn set_target(&self, address: &Address, target: &Arc<T>) {
        if let Some(bound) = self.0.lock().iter_mut().find(|bound| bound.address == *address) {
            bound.target = Some(target.clone());
        }
    }

    /// Returns what is reached at `address`.
    pub fn find(&self, address: &Address) -> Option<Arc<T>> {
        let all = self.0.lock();
        let reached = all
            .iter()
            .filter(|bound| bound.target.is_some() && bound.address.is_reached_by(address, bound.only_v6));
        // A socket at this very address comes before one at any.
        reached.max_by_key(|bound| bound.address == address.reached())?.target.clone()
    }

    /// Frees an address.
    pub fn forget(&self, address: &Address) {
        let freed = {
            let mut all = self.0.lock();
            all.iter().position(|bound| bound.address == *address).map(|at| all.swap_remove(at))
        };
        drop(freed);
    }
}

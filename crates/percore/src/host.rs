//! The interface to the machine: four functions that the final binary defines once.

use core::marker::PhantomData;

use crate::CoreId;

/// The functions by which a machine identifies and holds its cores. Register an implementation with
/// [`set_host!`](crate::set_host).
///
/// # Safety
/// Between `pin` and the matching `unpin` the caller must stay on the core that `pin` returned, and no other
/// pinned section may begin on that core, except nested inside this one by the same flow of control. Code
/// that depends on that may check it at any time: [`Pinned::assert_here`].
pub unsafe trait Host {
    /// Keeps the caller on its core (preemption off, interrupts as they are) and returns the core.
    fn pin() -> CoreId;
    /// Does the same for a caller that may run on no core at all, and returns `None` if it does not. Kernel
    /// code always runs on one.
    #[inline(always)]
    fn try_pin() -> Option<CoreId> {
        Some(Self::pin())
    }
    /// Undoes one `pin`, or one `try_pin` that named a core.
    fn unpin();
    /// Runs one turn of a wait for another core. It may let other tasks run. It must not unpin, and must
    /// serve requests that other cores send here meanwhile (shootdowns), or two cores that wait for each
    /// other wait for ever.
    fn relax();
}

unsafe extern "Rust" {
    fn _radixvm_percore_pin() -> usize;
    fn _radixvm_percore_try_pin() -> usize;
    fn _radixvm_percore_unpin();
    fn _radixvm_percore_relax();
}

/// The return value that stands for no core.
const NO_CORE: usize = usize::MAX;

/// Makes `$host` (a type that implements [`Host`]) the machine of this binary. Used once per binary.
#[macro_export]
macro_rules! set_host {
    ($host:ty) => {
        #[unsafe(no_mangle)]
        fn _radixvm_percore_pin() -> usize {
            <$host as $crate::Host>::pin().index()
        }
        #[unsafe(no_mangle)]
        fn _radixvm_percore_try_pin() -> usize {
            <$host as $crate::Host>::try_pin().map_or(usize::MAX, $crate::CoreId::index)
        }
        #[unsafe(no_mangle)]
        fn _radixvm_percore_unpin() {
            <$host as $crate::Host>::unpin()
        }
        #[unsafe(no_mangle)]
        fn _radixvm_percore_relax() {
            <$host as $crate::Host>::relax()
        }
    };
}

/// Proof that the holder stays on one core, and is alone there, until the token is dropped.
///
/// Functions that touch per-core data take `&Pinned`. The token is neither `Send` nor `Sync`.
#[derive(Debug)]
pub struct Pinned {
    core: CoreId,
    release: bool,
    _stays_here: PhantomData<*mut ()>,
}

impl Pinned {
    /// Returns the core we are pinned to.
    #[inline(always)]
    pub fn core(&self) -> CoreId {
        self.core
    }

    /// Checks that the caller is on the core where it is pinned, as a host promises. Meant for code that
    /// would do harm on another core.
    ///
    /// # Panics
    /// Panics if it runs on another core.
    #[track_caller]
    pub fn assert_here(&self) {
        let (here, there) = (pin().core().index(), self.core.index());
        assert!(here == there, "core {here} does what was begun by one pinned to core {there}");
    }

    /// Returns a token for a caller that is pinned by other means: a model checker's thread that plays
    /// `core`, or a kernel that runs with preemption off. Dropping it does not call the host.
    ///
    /// # Safety
    /// The requirements of [`Host`] must hold for the life of the token.
    #[inline(always)]
    pub unsafe fn assume(core: CoreId) -> Self {
        Self { core, release: false, _stays_here: PhantomData }
    }
}

/// Pins the caller to its core.
#[inline]
pub fn pin() -> Pinned {
    // SAFETY: the functions are defined by `set_host!`, with these signatures.
    let core = unsafe { _radixvm_percore_pin() };
    Pinned { core: CoreId::new(core), release: true, _stays_here: PhantomData }
}

/// Pins the caller to its core, if it has one. A destructor pins by this: it may run anywhere, and must not
/// panic.
#[inline]
pub fn try_pin() -> Option<Pinned> {
    // SAFETY: the functions are defined by `set_host!`, with these signatures.
    let core = unsafe { _radixvm_percore_try_pin() };
    (core != NO_CORE).then(|| Pinned { core: CoreId::new(core), release: true, _stays_here: PhantomData })
}

/// Pins the caller to its core, if that is one of the first `cores`. Meant for destructors of data that has a
/// part for each of them.
#[inline]
pub fn try_pin_below(cores: usize) -> Option<Pinned> {
    try_pin().filter(|pin| pin.core().index() < cores)
}

/// Runs one turn of a wait for another core.
#[inline]
pub fn relax() {
    #[cfg(loom)]
    sync::spin_loop();
    // SAFETY: the function is defined by `set_host!`, with this signature.
    #[cfg(not(loom))]
    unsafe {
        _radixvm_percore_relax()
    }
}

impl Drop for Pinned {
    #[inline]
    fn drop(&mut self) {
        if self.release {
            // SAFETY: the function is defined by `set_host!`, with this signature.
            unsafe { _radixvm_percore_unpin() }
        }
    }
}

//! The only crate that names `core::sync::atomic` and `UnsafeCell`. Under `--cfg loom` the same names are
//! loom's, so every protocol built on this crate can be model-checked unchanged. (The kernel names them too,
//! in its machine code, which no model runs. A protocol worth a model belongs in a crate.)
#![cfg_attr(not(loom), no_std)]
#![warn(missing_debug_implementations)]

mod bitlock;
mod freeze;
mod padded;
mod parking;
mod sequence;
mod set_once;
mod spin;

/// Defines functions that are `const`, except under loom, whose atomics cannot be made at compile time.
#[macro_export]
macro_rules! const_unless_loom {
    ($($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $kind:ty),* $(,)?) -> $result:ty $body:block)*) => {$(
        #[cfg(not(loom))]
        $(#[$meta])*
        $vis const fn $name($($arg: $kind),*) -> $result $body

        #[cfg(loom)]
        $(#[$meta])*
        $vis fn $name($($arg: $kind),*) -> $result $body
    )*};
}

pub use bitlock::{lock_bit, try_lock_bit, unlock_bit};
pub use freeze::{FreezeLock, Look};
pub use padded::CachePadded;
pub use parking::Parking;
pub use sequence::Sequence;
pub use set_once::SetOnce;
pub use spin::{SpinGuard, SpinLock};

#[cfg(not(loom))]
/// Atomic types and orderings (loom's under `--cfg loom`).
pub use core::sync::atomic;
#[cfg(loom)]
pub use loom;
#[cfg(loom)]
#[path = "loom_atomic.rs"]
pub mod atomic;

#[cfg(loom)]
pub use loom::cell::UnsafeCell;
#[cfg(not(loom))]
mod cell;
#[cfg(not(loom))]
pub use cell::UnsafeCell;

/// Runs one turn of a busy-wait loop. Under loom it yields, so that the model can run the thread that is
/// waited for.
#[inline(always)]
pub fn spin_loop() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    core::hint::spin_loop();
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

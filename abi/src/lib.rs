//! The Linux x86-64 numbers, structures and errnos that the kernel and the programs share, the boot image's
//! format, and the markers for the contention meter.
//!
//! Every structure is laid out as Linux has it, without hidden padding, so that it may be copied to and from
//! a program's memory as bytes ([`Pod`]). Constants keep their C names.
#![no_std]
#![forbid(unsafe_code)]

pub mod config;
pub mod cpio;
mod errno;
pub mod file;
pub mod inotify;
pub mod ipc;
pub mod marker;
pub mod memory;
pub mod ninep;
pub mod process;
pub mod ptrace;
pub mod reads;
pub mod signal;
pub mod signatures;
pub mod socket;
pub mod syscalls;
pub mod terminal;
pub mod time;
pub mod users;

pub use errno::Errno;
pub use zerocopy;

/// A value that is its bytes: any bytes make one, and it has no padding that could leak.
pub trait Pod: zerocopy::FromBytes + zerocopy::IntoBytes + zerocopy::Immutable + Copy {}

impl<T: zerocopy::FromBytes + zerocopy::IntoBytes + zerocopy::Immutable + Copy> Pod for T {}

/// `#[repr(C)]` structures of plain numbers.
macro_rules! plain {
    ($($(#[$meta:meta])* pub struct $name:ident { $($(#[$field_meta:meta])* pub $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$meta])*
            #[repr(C)]
            #[derive(
                Clone, Copy, Debug, PartialEq, Eq, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable,
                zerocopy::KnownLayout,
            )]
            pub struct $name { $($(#[$field_meta])* pub $field: $type,)* }
        )*
    };
}

/// Named numbers with a line of meaning each.
macro_rules! constants {
    ($type:ty: $($name:ident = $value:expr, $text:literal;)*) => {
        $(#[doc = $text] pub const $name: $type = $value;)*
    };
}

pub(crate) use {constants, plain};

//! The parts of the runtime for stock Linux that are the same everywhere: ELF headers, finding system
//! calls in code, the code of slots. They have no unsafe code and are tested on the host.
//!
//! [The design](../../docs/design/pathreads.md) explains the runtime, which is the binary of this crate.
#![no_std]
#![forbid(unsafe_code)]

/// Makes an array of equal atomics. Loom's cannot be made at compile time.
#[cfg(not(loom))]
macro_rules! atomics {
    ($value:expr; $count:expr) => {
        [const { $value }; $count]
    };
}

#[cfg(loom)]
macro_rules! atomics {
    ($value:expr; $count:expr) => {
        core::array::from_fn::<_, { $count }, _>(|_| $value)
    };
}

pub mod block;
pub mod chunk;
pub mod delivery;
pub mod elf;
pub mod functions;
pub mod kept;
pub mod maps;
pub mod member_reservation;
pub mod parts;
pub mod pointers;
pub mod record;
pub mod refused;
pub mod requests;
pub mod reservation;
pub mod sites;
pub mod slot;
pub mod stale;

/// The size of a page.
pub const PAGE: u64 = 4096;

/// The address of the runtime, as in `runtime.ld`.
pub const RUNTIME_BASE: u64 = 0x7000_0000;

/// The end of the addresses that the runtime takes for itself.
pub const RUNTIME_END: u64 = RUNTIME_BASE + (32 << 20);

/// The first address of the slots, which end where the runtime begins.
pub const SLOTS_BASE: u64 = RUNTIME_BASE - (16 << 20);

/// Returns the start of the page that `address` lies in.
pub const fn page_start(address: u64) -> u64 {
    address & !(PAGE - 1)
}

/// Returns the end of the last page that `[.., address)` touches.
pub const fn page_end(address: u64) -> u64 {
    page_start(address.wrapping_add(PAGE - 1))
}

/// Reads a little-endian number of `N` bytes at `at`.
fn bytes<const N: usize>(data: &[u8], at: u64) -> Option<[u8; N]> {
    let at = usize::try_from(at).ok()?;
    data.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u16_at(data: &[u8], at: u64) -> Option<u16> {
    bytes(data, at).map(u16::from_le_bytes)
}

fn u32_at(data: &[u8], at: u64) -> Option<u32> {
    bytes(data, at).map(u32::from_le_bytes)
}

fn i32_at(data: &[u8], at: u64) -> Option<i32> {
    bytes(data, at).map(i32::from_le_bytes)
}

fn u64_at(data: &[u8], at: u64) -> Option<u64> {
    bytes(data, at).map(u64::from_le_bytes)
}

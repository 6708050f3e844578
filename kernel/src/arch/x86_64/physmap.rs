//! The map of all physical memory at one constant distance.

/// The virtual address of physical address 0. The start of the kernel's half.
pub const PHYSMAP: u64 = 0xffff_8000_0000_0000;

/// Returns the address of physical address `phys` in the physmap.
#[inline(always)]
pub fn phys_to_virt<T>(phys: u64) -> *mut T {
    (PHYSMAP + phys) as *mut T
}

/// Returns the physical address of `at`, a pointer into the physmap.
#[inline(always)]
pub fn virt_to_phys<T>(at: *const T) -> u64 {
    at as u64 - PHYSMAP
}

/// Reads what firmware or boot loader left at a physical address, aligned or not.
pub fn read_phys<T: Copy>(phys: u64) -> T {
    // SAFETY: the physmap covers the first 4 GiB from the first Rust line on, and the callers' types are
    // plain numbers.
    unsafe { phys_to_virt::<T>(phys).read_unaligned() }
}

//! The end of the heap. The C library moves it too, so these calls cannot wait in a list: nothing here
//! allocates.

use libc::SYS_brk;
use programs::memory::PAGE;

/// Ends of the heap that no kernel grants.
const EXTREMES: [usize; 6] = [0, 1, 1 << 47, 1 << 60, 0xffff_8000_0000_0000, usize::MAX];

/// Number of checks that [`surprises`] makes.
pub const CHECKS: usize = EXTREMES.len() + 2;

/// Returns the names of the failed checks.
pub fn surprises() -> impl Iterator<Item = String> {
    let now = brk(0);
    let extremes = EXTREMES.map(|extreme| brk(extreme) == now);
    let grown = brk(now + PAGE + 1) == now + PAGE + 1 && still_zero(now + PAGE);
    let shrunk = brk(now) == now && brk(0) == now;
    let refused =
        |(extreme, good): (usize, bool)| (!good).then(|| format!("brk {extreme:#x} is not refused"));
    let extremes = EXTREMES.into_iter().zip(extremes).filter_map(refused);
    let grown = (!grown).then(|| "brk does not grow the heap".to_string());
    extremes.chain(grown).chain((!shrunk).then(|| "brk does not shrink the heap".to_string()))
}

fn brk(end: usize) -> usize {
    // SAFETY: no heap in use ends above the end that `surprises` found, and none ends below it afterwards.
    unsafe { libc::syscall(SYS_brk, end) as usize }
}

fn still_zero(address: usize) -> bool {
    // SAFETY: the heap has just been grown beyond the address.
    unsafe { (address as *const u8).read_volatile() == 0 }
}

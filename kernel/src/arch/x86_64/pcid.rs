//! Tables with a PCID, on CPUs that have them: the TLB keeps the translations of spaces that the core does
//! not run. `vm::Asids` assigns the numbers and decides when their translations are flushed after all.
//!
//! Number 0 is that of the kernel's map, which translates no user page, and whose own pages are global, so it
//! is loaded without a flush. A table that all cores share has number 0 too, and is flushed at each load, as
//! on a CPU without PCIDs: a shootdown asks which cores *run* the space.

use core::sync::atomic::{AtomicBool, Ordering};

use percore::Pinned;
use vm::{Asid, Asids};

use super::cpu::{self, cpuid_if_known};
use super::kernel_map::kernel_root;
use crate::arch::per_core::all_cores;
use crate::counters::{self, Counter};

/// CR4: CR3 has a PCID.
const ENABLE: u64 = 1 << 17;
/// CR3: the TLB keeps the translations of this PCID.
const KEEP: u64 = 1 << 63;
/// The PCIDs in use, of 4095 possible ones. When that many other spaces ran since, the TLB has no translation
/// left of a space anyway.
const NUMBERS: u64 = 64;

struct Core {
    on: AtomicBool,
    asids: Asids<NUMBERS>,
}

all_cores! {
    static CORES: Core = Core { on: AtomicBool::new(false), asids: Asids::new() };
}

fn mine(pin: &Pinned) -> &'static Core {
    CORES.mine(pin)
}

/// Returns whether the core uses PCIDs. Relaxed: only the core itself reads it.
fn is_on(core: &Core) -> bool {
    core.on.load(Ordering::Relaxed)
}

/// Enables PCIDs on this core, if the CPU has them. The core runs on the kernel's map.
pub fn init(pin: &Pinned) {
    if cpuid_if_known(1, 0).ecx & 1 << 17 != 0 {
        // SAFETY: the CPU has them, and the PCID in CR3 is 0.
        unsafe { cpu::set_cr4(cpu::cr4() | ENABLE) };
        mine(pin).on.store(true, Ordering::Relaxed);
    }
}

/// Loads the kernel's map on this core. The TLB keeps the translations of spaces, out of use.
pub fn load_kernel(pin: &Pinned) {
    let keep = if is_on(mine(pin)) { KEEP } else { 0 };
    // SAFETY: the map shows the running code, its stack and all data, as before.
    unsafe { cpu::set_cr3(kernel_root() | keep) };
}

/// Loads the table at `root` of the space that has `asid` here. With `flush`, the TLB keeps none of its
/// translations.
///
/// # Safety
/// `root` is a top table whose kernel half is the kernel's. The core may use the translations of the space in
/// the TLB, unless `flush`, or they were invalidated.
pub unsafe fn load(pin: &Pinned, root: u64, asid: &Asid, flush: bool) {
    let core = mine(pin);
    let mut value = root;
    if is_on(core) {
        let given = core.asids.give(asid);
        value |= given.number;
        if given.kept && !flush {
            counters::add(pin, Counter::KeptTlbs, 1);
            value |= KEEP;
        }
    }
    // SAFETY: the caller's promise, and numbers are below 4096.
    unsafe { cpu::set_cr3(value) };
}

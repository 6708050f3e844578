//! x86-64: boot, traps, APIC, paging and SMP. All assembly, MSRs and port I/O are here.

mod above;
mod acpi;
mod apic;
mod boot;
mod clocks;
mod context;
mod core_table;
mod cpu;
mod entry;
mod entry_count;
mod exit;
mod features;
mod flow;
mod fpu;
mod frame;
mod gdt;
mod host;
mod idt;
pub mod interrupts;
mod ipi;
mod kernel_map;
pub mod marker;
mod msix;
mod page_table;
mod pci;
mod pcid;
mod per_core_tables;
mod percpu;
mod physmap;
mod pvh;
mod random;
mod rtc;
mod shared_table;
mod shootdown;
mod smp;
mod space_tables;
mod stack;
mod table_walk;
mod time;
mod tlb;
mod traps;
pub mod uart;
mod user_access;
pub mod user_copy;
mod vdso;
mod virtio;
mod virtio_9p;
mod virtio_net;
mod wait;

pub use above::{Boot, Handlers, KernelFrames, Running};
pub use context::KernelStack;
pub use entry_count::{CountedEntry, KnownTables, OwnCount};
pub use entry_count::{count_own_read, find_and_count_own, uncount_own_read, uncount_read};
pub use exit::exit;
pub use features::{choose_syscall_entry, hwcap};
pub use flow::{Suspended, current, resume, take_left, with_current, with_task_or_none};
pub use fpu::{FpuState, complaint, vector_complaints, x87_complaints};
pub use frame::{TrapFrame, USER_END};
pub use ipi::{send_reschedule, stop_other_cores};
pub use kernel_map::{clear_bytes, copy_bytes, copy_frame, kernel_image, place_of, zero_frames};
pub use per_core_tables::{AdaptiveTables, PerCoreTables};
pub use percpu::{core, core_block, cores};
pub use physmap::{phys_to_virt, virt_to_phys};
pub use pvh::{BootInfo, image_bytes};
pub use random::{fill_random, init as init_random, random_u64};
pub use shared_table::SharedTable;
pub use smp::{idle_stack, release as release_cores};
pub use space_tables::SpaceTables;
pub use stack::give_back as give_back_stacks;
pub use time::{now_ns, set_timer, wall_ns};
pub use user_access::{fs_base, set_fs_base};
pub use vdso::vdso_page;
pub use virtio_9p::{ANSWER_BYTES, CHANNELS, Channel, REQUEST_BYTES};
pub use virtio_net::{Card, Incoming, Outgoing, PACKET_BYTES};

use core::fmt;

use firmware::MemoryMap;

/// Memory below this is shown by the boot map.
pub const BOOT_LIMIT: u64 = 4 << 30;

static BOOT_CORE: percpu::Cpu = percpu::Cpu::new(0);

/// Gives the boot core its number, so that per-core data works, and sets up the serial ports, so that a panic
/// can print.
pub fn init_first() {
    // SAFETY: the boot core's first act.
    unsafe { BOOT_CORE.install() };
    uart::init();
}

/// Maps all memory, and the kernel's image with the rights that each part needs. `new_frame` returns frames
/// that the boot map shows.
pub fn init_map(memory: &MemoryMap, new_frame: &mut dyn FnMut() -> u64) {
    features::enable_no_execute();
    kernel_map::init(memory, new_frame);
}

/// A function that tells the user something about the machine.
pub type Warn = fn(fmt::Arguments<'_>);

/// Initialises the boot core's traps and clocks. Starts the other cores, which wait for [`release_cores`].
pub fn init_boot_core(boot: &BootInfo, warn: Warn) {
    idt::init();
    apic::detect();
    // SAFETY: the boot core's own block.
    unsafe { init_core(&BOOT_CORE) };
    time::init();
    time::init_core();
    wait::init();
    let madt = acpi::read(boot.rsdp());
    if let Some(io_apic) = madt.io_apic {
        apic::route(io_apic, madt.line, idt::CONTROL_INPUT, BOOT_CORE.apic_id());
        uart::Port::Control.interrupt_on_receive();
    }
    if madt.cpus.left_out().any() {
        warn(format_args!("{}", madt.cpus.left_out()));
    }
    // Before the other cores run, whose TLBs could have these pages.
    kernel_map::free_beyond(madt.cpus.ids().len());
    percpu::set_cores(smp::start_others(madt.cpus.ids(), warn));
}

/// Initialises the running core.
///
/// # Safety
/// `block` is this core's.
unsafe fn init_core(block: &'static percpu::Cpu) {
    kernel_map::load();
    // SAFETY: this core's own block, and stacks that only it has. The heap needs the block. Loading segments
    // resets GS, so the block is installed again.
    unsafe {
        block.install();
        gdt::load(block, smp::interrupt_stacks());
        block.install();
    }
    idt::load();
    features::init();
    pcid::init(&percore::pin());
    apic::init();
    block.set_apic_id(apic::id());
    vdso::init_core(core());
    time::init_core();
}

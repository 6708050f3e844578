//! x86-64: boot, traps, APIC, paging, SMP; all assembly, MSRs and port I/O live here.

mod context;
mod cpu;
mod entry;
mod exit;
mod fpu;
mod frame;
mod gdt;
mod host;
pub mod interrupts;
mod ipi;
mod percpu;
mod random;
mod stack;
mod time;
mod traps;
pub mod uart;
mod user_access;
pub mod user_copy;

pub use context::{Context, KernelStack, new_user_thread, switch};
pub use exit::{exit, stop_other_cores};
pub use fpu::FpuState;
pub use frame::{SYSCALL, TrapFrame};
pub use interrupts::halt_until_interrupt;
pub use ipi::send_reschedule;
pub use percpu::{core, cores};
pub use random::random_u64;
pub use time::{now_ns, set_timer, wall_ns};
pub use user_access::{fs_base, set_fs_base};

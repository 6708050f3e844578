//! Segments and the task state segment, as far as long mode uses them.

use core::arch::asm;

use super::percpu::Cpu;

/// Kernel code selector.
pub const KERNEL_CS: u16 = 0x08;
const KERNEL_SS: u16 = 0x10;
/// `sysret` loads the selectors 8 (data) and 16 (code) beyond this.
pub const USER_BASE: u16 = 0x13;
const TSS_SELECTOR: u16 = 0x28;

/// Interrupt stack numbers (1-based, as the IDT has them) for faults that may hit with a bad stack.
pub const IST_DOUBLE_FAULT: u8 = 1;
/// The stack of non-maskable interrupts.
pub const IST_NMI: u8 = 2;
/// The stack of machine checks.
pub const IST_MACHINE_CHECK: u8 = 3;
/// Number of a core's interrupt stacks.
pub const IST_STACKS: usize = 3;
/// The size of each.
pub const IST_BYTES: usize = 8192;

/// The global descriptor table: null, kernel code and data, user data and code (in the order that `sysret`
/// needs), TSS.
#[repr(C, align(16))]
pub struct Gdt([u64; 7]);

impl Gdt {
    pub const fn new() -> Self {
        Self([
            0,
            0x00af_9b00_0000_ffff,
            0x00cf_9300_0000_ffff,
            0x00cf_f300_0000_ffff,
            0x00af_fb00_0000_ffff,
            0,
            0,
        ])
    }

    fn set_tss(&mut self, tss: *const Tss) {
        let (base, limit) = (tss as u64, size_of::<Tss>() as u64 - 1);
        let available_tss = 0x89 << 40;
        self.0[5] = available_tss | limit | (base & 0xff_ffff) << 16 | (base >> 24 & 0xff) << 56;
        self.0[6] = base >> 32;
    }
}

/// The 64-bit task state segment: the kernel stack for traps from user mode, and the interrupt stacks.
#[repr(C, packed(4))]
pub struct Tss {
    _reserved0: u32,
    rsp: [u64; 3],
    _reserved1: u64,
    ist: [u64; 7],
    _reserved2: [u32; 2],
    io_map: u32,
}

impl Tss {
    /// Offset of the stack pointer for traps from user mode.
    pub const RSP0: usize = core::mem::offset_of!(Tss, rsp);

    pub const fn new() -> Self {
        let io_map = (size_of::<Self>() as u32) << 16;
        Self { _reserved0: 0, rsp: [0; 3], _reserved1: 0, ist: [0; 7], _reserved2: [0; 2], io_map }
    }
}

#[repr(C)]
struct TablePointer {
    _padding: [u16; 3],
    limit: u16,
    base: u64,
}

/// Loads this core's segments. There are no local ones, whatever a boot loader left. `stacks` is the top of
/// [`IST_STACKS`] interrupt stacks, one after the other.
///
/// # Safety
/// `cpu` is the running core's block and lives for ever, as do the stacks.
pub unsafe fn load(cpu: &'static Cpu, stacks: u64) {
    // SAFETY: only the owner touches its GDT and TSS, and it does so here.
    let (gdt, tss) = unsafe { (&mut *cpu.gdt.get(), &mut *cpu.tss.get()) };
    for number in 0..IST_STACKS {
        tss.ist[number] = stacks - (number * IST_BYTES) as u64;
    }
    gdt.set_tss(tss);
    let pointer =
        TablePointer { _padding: [0; 3], limit: size_of::<Gdt>() as u16 - 1, base: gdt as *const Gdt as u64 };
    // SAFETY: the table has flat kernel segments, so code and stack go on as before. GS's base is set later.
    unsafe {
        asm!(
            "lgdt [{pointer}]",
            "mov ss, {data:e}",
            "mov ds, {zero:e}",
            "mov es, {zero:e}",
            "mov fs, {zero:e}",
            "mov gs, {zero:e}",
            "push {code}",
            "lea {scratch}, [rip + 2f]",
            "push {scratch}",
            "retfq",
            "2:",
            "ltr {tss:x}",
            "lldt {zero:x}",
            pointer = in(reg) &raw const pointer.limit,
            data = in(reg) u32::from(KERNEL_SS),
            zero = in(reg) 0u32,
            code = in(reg) u64::from(KERNEL_CS),
            tss = in(reg) u32::from(TSS_SELECTOR),
            scratch = out(reg) _,
        );
    }
}

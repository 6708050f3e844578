//! Starting the other cores: all at once. INIT, then STARTUP, to everybody; each core finds its own number by its
//! APIC's, and its stack by its number.

use core::arch::global_asm;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use alloc::boxed::Box;
use percore::{CoreId, MAX_CORES};
use sync::SetOnce;

use super::acpi::Madt;
use super::percpu::Cpu;
use super::physmap::{phys_to_virt, virt_to_phys};
use super::{apic, gdt, kernel_map, time};

/// Where starting cores begin: below 1 MiB, page-aligned, kept out of the allocator's hands.
const TRAMPOLINE: u64 = 0x8000;
const STACK_BYTES: usize = 32 * 1024;
/// How long a core may take from STARTUP to Rust before we ask again, and before we give up on it.
const RETRY_NS: u64 = 20_000_000;
const GIVE_UP_NS: u64 = 20_000_000_000;

global_asm!(
    r#"
    .section .rodata.trampoline, "a"
    .global trampoline_start, trampoline_root, trampoline_end
    .code16
    trampoline_start:
        cli
        cld
        xorw %ax, %ax
        movw %ax, %ds
        lgdtl trampoline_gdt_pointer - trampoline_start + {at}
        movl $0x20, %eax                // PAE
        movl %eax, %cr4
        movl trampoline_root - trampoline_start + {at}, %eax
        movl %eax, %cr3
        movl $0xc0000080, %ecx          // EFER: long mode, no-execute, syscall
        rdmsr
        orl $0x901, %eax
        wrmsr
        movl $0x80010011, %eax          // paging, write protection, protection
        movl %eax, %cr0
        ljmpl $8, $(trampoline_64 - trampoline_start + {at})
    .code64
    trampoline_64:
        movl $0x10, %eax
        movl %eax, %ss
        movq $start_core, %rax
        jmpq *%rax
    .align 8
    trampoline_gdt: .quad 0, 0x00af9b000000ffff, 0x00cf93000000ffff
    trampoline_gdt_pointer: .word 23
    .long trampoline_gdt - trampoline_start + {at}
    trampoline_root: .long 0
    trampoline_end:

    .section .text.boot, "ax"
    start_core:                         // still without a stack: which core is this?
        xorl %eax, %eax
        cpuid
        cmpl $0xb, %eax
        jb 1f
        movl $0xb, %eax
        xorl %ecx, %ecx
        cpuid
        testl %ebx, %ebx
        jnz 2f
    1:  movl $1, %eax
        cpuid
        shrl $24, %ebx
        movl %ebx, %edx
    2:  movzbl %dl, %edx
        movzbl {numbers}(%rdx), %edi
        movq {stacks}(, %rdi, 8), %rsp
        xorl %ebp, %ebp
        callq {main}
    3:  hlt
        jmp 3b
    "#,
    at = const TRAMPOLINE,
    numbers = sym NUMBERS,
    stacks = sym STACKS,
    main = sym core_main,
    options(att_syntax)
);

unsafe extern "C" {
    static trampoline_start: u8;
    static trampoline_root: u8;
    static trampoline_end: u8;
}

/// Core number by APIC number.
static NUMBERS: [AtomicU8; MAX_CORES] = [const { AtomicU8::new(0) }; MAX_CORES];
/// Top of each core's boot stack, which its idle task goes on to use.
static STACKS: [AtomicU64; MAX_CORES] = [const { AtomicU64::new(0) }; MAX_CORES];
static BLOCKS: [SetOnce<&'static Cpu>; MAX_CORES] = [const { SetOnce::new() }; MAX_CORES];
static STARTED: AtomicU64 = AtomicU64::new(1);

/// Starts every core that the MADT lists; returns how many run.
///
/// # Panics
/// If a core does not start.
pub fn start_others(madt: &Madt) -> usize {
    let ids = madt.cores();
    if ids.len() == 1 {
        return 1;
    }
    ids.iter().enumerate().skip(1).for_each(|(number, &apic_id)| prepare(number, apic_id));
    place_trampoline();
    apic::init_others();
    time::spin_ns(200_000);
    let (started, asked) = (|| STARTED.load(Ordering::Acquire) as usize, time::now_ns());
    while started() < ids.len() {
        apic::start_others(TRAMPOLINE);
        time::spin_until(time::now_ns() + RETRY_NS, || started() == ids.len());
        assert!(time::now_ns() - asked < GIVE_UP_NS, "{} of {} cores started", started(), ids.len());
    }
    ids.len()
}

/// Makes what core `number` needs before its first Rust line. Relaxed: the STARTUP interrupt orders it all.
fn prepare(number: usize, apic_id: u32) {
    let stack = Box::leak(vec_of_zeroes(STACK_BYTES)).as_ptr_range().end as u64;
    NUMBERS[apic_id as usize % MAX_CORES].store(number as u8, Ordering::Relaxed);
    STACKS[number].store(stack, Ordering::Relaxed);
    BLOCKS[number].set(Box::leak(Box::new(Cpu::new(number))));
}

fn vec_of_zeroes(bytes: usize) -> Box<[u8]> {
    alloc::vec![0; bytes].into_boxed_slice()
}

fn place_trampoline() {
    let (start, end) = (&raw const trampoline_start, &raw const trampoline_end);
    let root_at = (&raw const trampoline_root) as usize - start as usize;
    let place = phys_to_virt::<u8>(TRAMPOLINE);
    // SAFETY: low memory is nobody's, and the trampoline fits in its page.
    unsafe {
        place.copy_from_nonoverlapping(start, end as usize - start as usize);
        place.add(root_at).cast::<u32>().write_unaligned(kernel_map::boot_root() as u32);
    }
}

/// A started core's first Rust line.
extern "sysv64" fn core_main(number: usize) -> ! {
    let block = BLOCKS[number].get().expect("prepared");
    // SAFETY: `prepare` made the block for this core.
    unsafe { super::init_core(block) };
    // Release pairs with the Acquire in `start_others`.
    STARTED.fetch_add(1, Ordering::Release);
    crate::core_main()
}

/// Where the boot and idle stack of `core` lies in physical memory; the boot core's is a part of the image.
pub fn idle_stack(core: CoreId) -> Option<(u64, u64)> {
    // Relaxed: written before the core started.
    let end = STACKS[core.index()].load(Ordering::Relaxed);
    let end = (end != 0).then(|| virt_to_phys(end as *const u8))?;
    Some((end - STACK_BYTES as u64, end))
}

/// Room for a core's interrupt stacks; the address of its end.
pub fn interrupt_stacks() -> u64 {
    Box::leak(vec_of_zeroes(gdt::IST_STACKS * gdt::IST_BYTES)).as_ptr_range().end as u64
}

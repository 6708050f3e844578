//! Start of the other cores: INIT, then STARTUP, to each by its APIC's number, and to no other CPU.
//!
//! A core finds its number in the list of APIC numbers, and its stack by its number. CPUs that do not start
//! are removed from the list and the rest starts again, so that the numbers of cores have no gaps. A CPU that
//! starts too late halts. Cores that are ready sleep, and each in turn compares its clock with the boot
//! core's. Then they may run.

use core::arch::global_asm;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use alloc::boxed::Box;
use alloc::vec::Vec;
use percore::{CoreId, MAX_CORES};
use sync::SetOnce;

use super::above::Boot;
use super::percpu::{self, Cpu};
use super::physmap::{phys_to_virt, virt_to_phys};
use super::{Warn, apic, clocks, gdt, idt, interrupts, kernel_map, time};
use crate::above::Above;
use crate::options;

/// Where starting cores begin: below 1 MiB, page-aligned, kept out of the allocator's hands.
const TRAMPOLINE: u64 = 0x8000;
const STACK_BYTES: usize = 32 * 1024;
/// The time that a CPU takes to be reset.
const SETTLE_NS: u64 = 200_000;
/// The times from STARTUP to Rust after which the kernel asks again, and gives up on the CPU.
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
    2:  movl %edx, %eax                 // its place in the list is its number
        movq ${ids}, %rdi
        movl {count}, %ecx
        repne scasl
        jne 3f
        subq $({ids} + 4), %rdi
        shrq $2, %rdi
        movq {root}, %rax               // the boot map does not show all memory
        movq %rax, %cr3
        movq {stacks}(, %rdi, 8), %rsp
        xorl %ebp, %ebp
        callq {main}
    3:  hlt
        jmp 3b
    "#,
    at = const TRAMPOLINE,
    ids = sym IDS,
    count = sym COUNT,
    root = sym kernel_map::ROOT,
    stacks = sym STACKS,
    main = sym core_main,
    options(att_syntax)
);

unsafe extern "C" {
    static trampoline_start: u8;
    static trampoline_root: u8;
    static trampoline_end: u8;
}

/// APIC numbers of the cores. Relaxed, like the next two: the STARTUP interrupt orders them.
static IDS: [AtomicU32; MAX_CORES] = [const { AtomicU32::new(0) }; MAX_CORES];
static COUNT: AtomicU32 = AtomicU32::new(0);
/// Top of each core's boot stack, which its idle task goes on to use.
static STACKS: [AtomicU64; MAX_CORES] = [const { AtomicU64::new(0) }; MAX_CORES];
static BLOCKS: [SetOnce<&'static Cpu>; MAX_CORES] = [const { SetOnce::new() }; MAX_CORES];

/// The progress of each core.
static STATES: [AtomicU8; MAX_CORES] = [const { AtomicU8::new(AWAITED) }; MAX_CORES];
const AWAITED: u8 = 0;
const ARRIVED: u8 = 1;
const READY: u8 = 2;
/// It may run.
const RELEASED: u8 = 3;
/// It has not started in time, and does not take part any more.
const ABSENT: u8 = 4;

/// Starts the CPUs with these APIC numbers, except the first, which runs. They wait for [`release`]. Returns
/// the number of cores, without the CPUs that do not start. `warn` is told what is not as it should be.
///
/// # Panics
/// If a CPU begins and does not get ready.
pub fn start_others(apic_ids: &[u32], warn: Warn) -> usize {
    if apic_ids.len() == 1 {
        return 1;
    }
    place_trampoline();
    let mut ids = apic_ids.to_vec();
    while !start(&ids) {
        let state = |number: usize| STATES[number].swap(AWAITED, Ordering::Relaxed);
        let mut came = (0..ids.len()).map(|number| state(number) != ABSENT).collect::<Vec<_>>().into_iter();
        ids.retain(|id| {
            let came = came.next() == Some(true);
            if !came {
                warn(format_args!("the CPU with APIC ID {id} did not start and is not used"));
            }
            came
        });
    }
    (1..ids.len()).for_each(|number| check_clock(number, warn));
    ids.len()
}

/// Resets and starts the CPUs of this list as the cores 1, 2, ... Returns whether all have started.
fn start(ids: &[u32]) -> bool {
    ids.iter().enumerate().for_each(|(number, &id)| prepare(number, id));
    COUNT.store(ids.len() as u32, Ordering::Relaxed);
    ids[1..].iter().for_each(|&id| apic::init_core(id));
    time::spin_ns(SETTLE_NS);
    let asked = time::now_ns();
    let awaited = |number: &usize| state_of(*number) == AWAITED;
    while let Some(first) = (1..ids.len()).find(awaited)
        && time::now_ns() - asked < GIVE_UP_NS
    {
        (first..ids.len()).filter(awaited).for_each(|number| apic::start_core(ids[number], TRAMPOLINE));
        time::spin_until(time::now_ns() + RETRY_NS, || !(first..ids.len()).any(|number| awaited(&number)));
    }
    let absent = (1..ids.len()).filter(|&number| !has_come(number, ids[number])).count();
    absent == 0
}

/// Returns whether the core has started: if so, it is ready. If it starts later, it halts.
fn has_come(number: usize, id: u32) -> bool {
    // Acquire, as in `state_of`.
    let absent = STATES[number].compare_exchange(AWAITED, ABSENT, Ordering::Acquire, Ordering::Acquire);
    if absent.is_ok() {
        return false;
    }
    time::spin_until(time::now_ns() + GIVE_UP_NS, || state_of(number) == READY);
    assert!(state_of(number) == READY, "core {number} (APIC ID {id}) began to start and did not finish");
    true
}

/// Returns the progress of core `number`. Acquire pairs with the Release of each change.
fn state_of(number: usize) -> u8 {
    STATES[number].load(Ordering::Acquire)
}

/// Creates the data that core `number` needs before its first Rust code. The boot core has all of it.
fn prepare(number: usize, apic_id: u32) {
    IDS[number].store(apic_id, Ordering::Relaxed);
    if number == 0 {
        return;
    }
    if BLOCKS[number].get().is_none() {
        let stack = Box::leak(vec_of_zeroes(STACK_BYTES)).as_ptr_range().end as u64;
        STACKS[number].store(stack, Ordering::Relaxed);
        BLOCKS[number].set(Box::leak(Box::new(Cpu::new(number))));
    }
    BLOCKS[number].get().expect("just made").set_apic_id(apic_id);
}

/// Has a core that is ready compare its clock with this one's. The others sleep: two cores that spin need two
/// real CPUs.
fn check_clock(number: usize, warn: Warn) {
    clocks::begin(number);
    wake(number);
    clocks::answer(number);
    let off = clocks::off_ns(number);
    if off != 0 {
        warn(format_args!(
            "the clock of core {number} was {off} ns ahead of the first core's and is corrected"
        ));
    }
}

/// Lets the started cores run. Each calls `Boot::run_core`.
pub fn release() {
    (1..percpu::cores()).for_each(|number| {
        STATES[number].store(RELEASED, Ordering::Release);
        wake(number);
    });
}

/// Ends the sleep of a core that is ready.
fn wake(number: usize) {
    // Relaxed: this core wrote it.
    apic::send(IDS[number].load(Ordering::Relaxed), idt::RESCHEDULE);
}

fn vec_of_zeroes(bytes: usize) -> Box<[u8]> {
    alloc::vec![0; bytes].into_boxed_slice()
}

fn place_trampoline() {
    let (start, end) = (&raw const trampoline_start, &raw const trampoline_end);
    let root_at = (&raw const trampoline_root) as usize - start as usize;
    let place = phys_to_virt::<u8>(TRAMPOLINE);
    // SAFETY: low memory is not in use, and the trampoline fits in its page.
    unsafe {
        place.copy_from_nonoverlapping(start, end as usize - start as usize);
        place.add(root_at).cast::<u32>().write_unaligned(kernel_map::boot_root() as u32);
    }
}

/// Runs a started core's first Rust code.
extern "sysv64" fn core_main(number: usize) -> ! {
    // Release, as below. The boot core may have given up.
    let came = STATES[number].compare_exchange(AWAITED, ARRIVED, Ordering::Release, Ordering::Relaxed);
    while came.is_err() {
        interrupts::halt_for_ever();
    }
    let block = BLOCKS[number].get().expect("prepared");
    // SAFETY: `prepare` made the block for this core.
    unsafe { super::init_core(block) };
    if options::get().skew {
        clocks::skew(number);
    }
    // Release: a core that reads this sees all that this core has done.
    STATES[number].store(READY, Ordering::Release);
    while state_of(number) != RELEASED {
        interrupts::halt_until_interrupt();
        clocks::compare_if_asked(number);
    }
    Above::run_core()
}

/// Returns the physical addresses of the boot and idle stack of `core`. The boot core's is a part of the
/// image.
pub fn idle_stack(core: CoreId) -> Option<(u64, u64)> {
    // Relaxed: written before the core started.
    let end = STACKS[core.index()].load(Ordering::Relaxed);
    let end = (end != 0).then(|| virt_to_phys(end as *const u8))?;
    Some((end - STACK_BYTES as u64, end))
}

/// Allocates a core's interrupt stacks and returns the address of their end.
pub fn interrupt_stacks() -> u64 {
    Box::leak(vec_of_zeroes(gdt::IST_STACKS * gdt::IST_BYTES)).as_ptr_range().end as u64
}

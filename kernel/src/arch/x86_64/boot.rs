//! The first instructions: PVH entry (32 bits, no paging) to Rust (64 bits, at the kernel's own addresses).
//!
//! The boot tables map the first 4 GiB three times: at 0, at the physmap's base and (1 GiB) at KERNEL_BASE.
//! They serve until `kernel_map` has built the final ones. Starting cores pass through them once more.

use core::arch::global_asm;

use super::above::Boot;
use crate::above::Above;

/// Where the kernel's image is linked: KERNEL_BASE + its physical address.
pub const KERNEL_BASE: u64 = 0xffff_ffff_8000_0000;

const BOOT_STACK_BYTES: usize = 64 * 1024;

unsafe extern "C" {
    /// Page directories, pointer tables and the top table of the boot map.
    pub static boot_pml4: [u64; 512];
}

global_asm!(
    r#"
    .section .note.pvh, "a", @note
    .align 4
    .long 4, 8, 18                      // name size, value size, XEN_ELFNOTE_PHYS32_ENTRY
    .asciz "Xen"
    .quad pvh_start - {base}

    .section .bss.boot, "aw", @nobits
    .align 4096
    boot_pds: .skip 4 * 4096
    boot_pdpt: .skip 4096
    boot_pdpt_high: .skip 4096
    .global boot_pml4
    boot_pml4: .skip 4096
    boot_stack: .skip {stack_bytes}
    boot_stack_top:

    .section .rodata.boot, "a"
    .align 8
    boot_gdt: .quad 0, 0x00af9b000000ffff, 0x00cf93000000ffff
    boot_gdt_pointer: .word 23
    .long boot_gdt - {base}

    .section .text.boot, "ax"
    .code32
    .global pvh_start
    pvh_start:
        cli
        cld
        movl %ebx, %edi                 // the start info's address, for kernel_main
        xorl %ecx, %ecx
    1:  movl %ecx, %eax                 // 2048 pages of 2 MiB: present, writable, large
        shll $21, %eax
        orl $0x83, %eax
        movl %eax, boot_pds - {base}(, %ecx, 8)
        incl %ecx
        cmpl $2048, %ecx
        jne 1b
        movl $(boot_pds - {base} + 3), %eax
        movl %eax, boot_pdpt_high - {base} + 510 * 8
        xorl %ecx, %ecx
    2:  movl %eax, boot_pdpt - {base}(, %ecx, 8)
        addl $4096, %eax
        incl %ecx
        cmpl $4, %ecx
        jne 2b
        movl $(boot_pdpt - {base} + 3), %eax
        movl %eax, boot_pml4 - {base}
        movl %eax, boot_pml4 - {base} + 256 * 8
        movl $(boot_pdpt_high - {base} + 3), %eax
        movl %eax, boot_pml4 - {base} + 511 * 8

        movl $(boot_pml4 - {base}), %eax
        movl %eax, %cr3
        movl $0x20, %eax                // PAE
        movl %eax, %cr4
        movl $0xc0000080, %ecx          // EFER: long mode
        rdmsr
        orl $0x100, %eax
        wrmsr
        movl %cr0, %eax                 // paging, write protection
        orl $0x80010001, %eax
        movl %eax, %cr0
        lgdt boot_gdt_pointer - {base}
        ljmp $8, $(boot_64 - {base})

    .code64
    boot_64:
        movl $0x10, %eax
        movl %eax, %ss
        xorl %eax, %eax
        movl %eax, %ds
        movl %eax, %es
        movq $boot_stack_top, %rsp
        movl %edi, %edi
        xorl %ebp, %ebp
        movq ${main}, %rax
        callq *%rax
    3:  hlt
        jmp 3b
    "#,
    base = const KERNEL_BASE,
    stack_bytes = const BOOT_STACK_BYTES,
    main = sym <Above as Boot>::boot,
    options(att_syntax)
);

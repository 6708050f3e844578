//! The vDSO: code of the kernel that every program can call to read the clock without a system call.
//!
//! ```text
//!   code   an ELF shared object with the functions of Linux's
//!   data   the clock's rate, each core's offset
//! ```
//!
//! Both are in one page of the kernel's image, and programs map this very frame, to read and execute it.
//! Linux has a page of data before the code, but each page costs every fork. The data is complete before the
//! first program starts and does not change, so no function retries.
//!
//! The cores' counters differ, so a function must know which core's counter it has read. `rdtscp` tells
//! both at once. On a machine without it the functions make the system call.

use core::arch::global_asm;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::time::*;
use percore::{CoreId, MAX_CORES};

use super::cpu::{cpuid_if_known, msr, write_msr};
use super::kernel_map::place_of;

/// The end of the page. Relaxed: all of it is written before the first program starts.
#[repr(C)]
pub(super) struct Data {
    /// Nanoseconds in a tick of the counter, times 2^32. The first word, see the assembly.
    pub(super) ns_per_tick: AtomicU64,
    /// Nanoseconds from 1970 to the time when the clocks began.
    pub(super) wall_at_boot: AtomicU64,
    /// Cores that have no `rdtscp`.
    without_rdtscp: AtomicU64,
    /// Each core's counter when the clocks began.
    tsc_at_boot: [AtomicU64; MAX_CORES],
}

const PAGE: usize = 4096;
/// The offset of the data in the page.
const DATA: usize = PAGE - size_of::<Data>();

/// The page.
#[repr(C, align(4096))]
struct Image {
    _code: [u8; DATA],
    data: Data,
}
const _: () = assert!(size_of::<Image>() == PAGE);

unsafe extern "C" {
    static vdso_image: Image;
}

fn image() -> &'static Image {
    // SAFETY: the assembly below makes it. All that is ever written there are the data's atomic words.
    unsafe { &vdso_image }
}

/// Returns the data.
pub(super) fn data() -> &'static Data {
    &image().data
}

/// The physical address of the page.
pub fn vdso_page() -> u64 {
    place_of(image()).0
}

/// Lets programs learn from `rdtscp` that they run on this core.
pub(super) fn init_core(core: CoreId) {
    const HAS_RDTSCP: u32 = 1 << 27;
    if cpuid_if_known(0x8000_0001, 0).edx & HAS_RDTSCP == 0 {
        data().without_rdtscp.fetch_add(1, Ordering::Relaxed);
        return;
    }
    // SAFETY: the CPU has the register, and the kernel does not read it.
    unsafe { write_msr(msr::TSC_AUX, core.index() as u64) };
}

/// Notes a core's counter of the time when the clocks began.
pub(super) fn set_tsc_at_boot(core: CoreId, counter: u64) {
    data().tsc_at_boot[core.index()].store(counter, Ordering::Relaxed);
}

/// The clocks that the functions read, a bit for each number, and those of them that count from 1970.
const CLOCKS: u64 = WALL_CLOCKS
    | 1 << CLOCK_MONOTONIC
    | 1 << CLOCK_MONOTONIC_RAW
    | 1 << CLOCK_MONOTONIC_COARSE
    | 1 << CLOCK_BOOTTIME;
const WALL_CLOCKS: u64 = 1 << CLOCK_REALTIME | 1 << CLOCK_REALTIME_COARSE | 1 << CLOCK_TAI;
const _: () = assert!(CLOCKS < 1 << (LAST_CLOCK + 1));
const LAST_CLOCK: u64 = CLOCK_TAI;

// The ELF file is written out by hand, so that no linker is needed. Its functions use no stack.
global_asm!(
    r#"
    // Jumps to `otherwise` if a core has no `rdtscp`.
    .macro need_rdtscp otherwise
        cmp qword ptr [rip + .Lvdso + {data} + {without_rdtscp}], 0
        jne \otherwise
    .endm

    // Leaves the nanoseconds since boot in rax. Changes rcx and rdx.
    .macro read_clock otherwise
        need_rdtscp \otherwise
        rdtscp
        shl rdx, 32
        or rax, rdx
        lea rdx, [rip + .Lvdso + {data} + {tsc_at_boot}]
        sub rax, [rdx + 8 * rcx]
        mov ecx, 0
        cmovs rax, rcx
        mul qword ptr [rip + .Lvdso + {data} + {ns_per_tick}]
        shrd rax, rdx, 32
    .endm

    // Divides rax by `divisor`: quotient in rax, remainder in rdx. Changes rcx.
    .macro divide divisor
        xor edx, edx
        mov ecx, \divisor
        div rcx
    .endm

    .macro system_call number
        mov eax, \number
        syscall
        ret
    .endm

    .macro symbol name
        .long .Lname_\name - .Lstrings
        .byte 0x12, 0                   // a global function
        .short 1                        // in any section
        .quad \name - .Lvdso, .Lend_\name - \name
    .endm

    .section .data.vdso, "aw", @progbits
    .balign 4096
    .globl vdso_image
    vdso_image:
    .Lvdso:
    .byte 0x7f
    .ascii "ELF"
    .byte 2, 1, 1, 0                    // 64 bits, little-endian, version 1
    .quad 0
    .short 3, 62                        // a shared object for x86-64
    .long 1
    .quad 0, .Lheaders - .Lvdso, 0      // no entry, and no sections
    .long 0
    .short 64, 56, 3, 64, 0, 0

    .Lheaders:
    .long 1, 5                          // to be loaded, executable
    .quad 0, 0, 0, .Lvdso_end - .Lvdso, .Lvdso_end - .Lvdso, 4096
    .long 2, 4                          // the dynamic section
    .quad .Ldynamic - .Lvdso, .Ldynamic - .Lvdso, .Ldynamic - .Lvdso
    .quad .Ldynamic_end - .Ldynamic, .Ldynamic_end - .Ldynamic, 8
    .long 0x6474e550, 4                 // the table for unwinding
    .quad .Lframes - .Lvdso, .Lframes - .Lvdso, .Lframes - .Lvdso
    .quad .Lframes_end - .Lframes, .Lframes_end - .Lframes, 4

    .Ldynamic:
    .quad 14, .Lsoname - .Lstrings
    .quad 4, .Lhash - .Lvdso
    .quad 5, .Lstrings - .Lvdso
    .quad 6, .Lsymbols - .Lvdso
    .quad 10, .Lstrings_end - .Lstrings
    .quad 11, 24
    .quad 0x6ffffff0, .Lversions - .Lvdso
    .quad 0x6ffffffc, .Ldefinitions - .Lvdso
    .quad 0x6ffffffd, 2
    .quad 0, 0
    .Ldynamic_end:

    .Lsymbols:
    .quad 0, 0, 0
    symbol __vdso_clock_gettime
    symbol __vdso_gettimeofday
    symbol __vdso_time
    symbol __vdso_getcpu
    symbol __vdso_clock_getres

    .Lhash:                             // one bucket, in which each symbol leads to the next
    .long 1, 6, 1
    .long 0, 2, 3, 4, 5, 0

    .Lversions:
    .short 0, 2, 2, 2, 2, 2
    .balign 4

    .Ldefinitions:                      // the object's own name, and the version of all symbols
    .short 1, 1, 1, 1
    .long 0x0deebfa1, 20, 28
    .long .Lsoname - .Lstrings, 0
    .short 1, 0, 2, 1
    .long 0x03ae75f6, 20, 0
    .long .Lversion - .Lstrings, 0

    .Lstrings:
    .byte 0
    .Lsoname: .asciz "linux-vdso.so.1"
    .Lversion: .asciz "LINUX_2.6"
    .Lname___vdso_clock_gettime: .asciz "__vdso_clock_gettime"
    .Lname___vdso_gettimeofday: .asciz "__vdso_gettimeofday"
    .Lname___vdso_time: .asciz "__vdso_time"
    .Lname___vdso_getcpu: .asciz "__vdso_getcpu"
    .Lname___vdso_clock_getres: .asciz "__vdso_clock_getres"
    .Lstrings_end:

    .balign 8
    .Lframes:                           // where the table is, and its one entry
    .byte 1, 0x1b, 0x03, 0x3b
    .long .Lcie - ., 1
    .long .Lcode - .Lframes, .Lfde - .Lframes
    .Lcie:
    .long .Lcie_end - .Lcie - 4, 0
    .byte 1
    .asciz "zR"
    .byte 1, 0x78, 16, 1, 0x1b          // offsets in bytes and words, the return address, relative addresses
    .byte 0x0c, 7, 8, 0x90, 1           // the caller's stack begins 8 bytes up, behind the return address
    .balign 8, 0
    .Lcie_end:
    .Lfde:
    .long .Lfde_end - .Lfde - 4, . - .Lcie
    .long .Lcode - ., .Lcode_end - .Lcode
    .byte 0
    .balign 8, 0
    .Lfde_end:
    .long 0
    .Lframes_end:

    .balign 16
    .Lcode:
    __vdso_clock_gettime:
        cmp edi, {last_clock}
        ja 9f
        mov eax, {clocks}
        bt eax, edi
        jnc 9f
        read_clock 9f
        mov ecx, {wall_clocks}
        bt ecx, edi
        jnc 1f
        add rax, [rip + .Lvdso + {data} + {wall_at_boot}]
    1:  divide 1000000000
        mov [rsi], rax
        mov [rsi + 8], rdx
        xor eax, eax
        ret
    9:  system_call 228
    .Lend___vdso_clock_gettime:

    .balign 16
    __vdso_gettimeofday:
        test rdi, rdi
        jz 1f
        read_clock 9f
        add rax, [rip + .Lvdso + {data} + {wall_at_boot}]
        divide 1000000000
        mov [rdi], rax
        mov rax, rdx
        divide 1000
        mov [rdi + 8], rax
    1:  test rsi, rsi
        jz 2f
        mov qword ptr [rsi], 0
    2:  xor eax, eax
        ret
    9:  system_call 96
    .Lend___vdso_gettimeofday:

    .balign 16
    __vdso_time:
        read_clock 9f
        add rax, [rip + .Lvdso + {data} + {wall_at_boot}]
        divide 1000000000
        test rdi, rdi
        jz 1f
        mov [rdi], rax
    1:  ret
    9:  system_call 201
    .Lend___vdso_time:

    .balign 16
    __vdso_getcpu:
        need_rdtscp 9f
        rdtscp
        test rdi, rdi
        jz 1f
        mov [rdi], ecx
    1:  test rsi, rsi
        jz 2f
        mov dword ptr [rsi], 0
    2:  xor eax, eax
        ret
    9:  system_call 309
    .Lend___vdso_getcpu:

    .balign 16
    __vdso_clock_getres:
        cmp edi, {last_clock}
        ja 9f
        mov eax, {clocks}
        bt eax, edi
        jnc 9f
        test rsi, rsi
        jz 1f
        mov qword ptr [rsi], 0
        mov qword ptr [rsi + 8], 1
    1:  xor eax, eax
        ret
    9:  system_call 229
    .Lend___vdso_clock_getres:
    .Lcode_end:
    .Lvdso_end:
    .org .Lvdso + {data}, 0
    .quad 1 << 32                       // the rate: a nanosecond
    .balign 4096, 0
    .text
    "#,
    data = const DATA,
    without_rdtscp = const offset_of!(Data, without_rdtscp),
    tsc_at_boot = const offset_of!(Data, tsc_at_boot),
    ns_per_tick = const offset_of!(Data, ns_per_tick),
    wall_at_boot = const offset_of!(Data, wall_at_boot),
    last_clock = const LAST_CLOCK,
    clocks = const CLOCKS,
    wall_clocks = const WALL_CLOCKS,
);

//! Access to user memory: the only instructions of the kernel that may fault.
//!
//! All of them lie between two labels and keep nothing on the stack. A fault there that cannot be resolved
//! goes on at `user_failed`, which returns 1 to the caller. Where the CPU has SMAP, user memory is open only
//! between `stac` and `clac`, which are inside the labels too.

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicBool, Ordering};

use super::kernel_map::copy_by_words;

/// Set if the CPU has SMAP. Read by the assembly below.
static SMAP: AtomicBool = AtomicBool::new(false);

global_asm!(
    r#"
    .macro user_open
        cmp byte ptr [rip + {smap}], 0
        je 9f
        stac
    9:
    .endm
    .macro user_close
        cmp byte ptr [rip + {smap}], 0
        je 9f
        clac
    9:
    .endm

    .section .text
    .global user_code_start, user_code_end, user_failed
    .global user_copy, user_load_u32, user_exchange_u32
    user_code_start:
    user_copy:                          // rdi: to, rsi: from, rdx: bytes
        user_open
        mov rcx, rdx
        shr rcx, 3
    "#,
    copy_by_words!(),
    r#"
        jmp user_done
    user_load_u32:                      // rdi: from, rsi: result
        user_open
        mov eax, [rdi]
        mov [rsi], eax
        jmp user_done
    user_exchange_u32:                  // rdi: at, esi: old, edx: new, rcx: result
        user_open
        mov eax, esi
        lock cmpxchg [rdi], edx
        mov [rcx], eax
    user_done:
        user_close
        xor eax, eax
        ret
    user_failed:
        user_close
        mov eax, 1
        ret
    user_code_end:
    "#,
    smap = sym SMAP,
);

unsafe extern "sysv64" {
    safe static user_code_start: u8;
    safe static user_code_end: u8;
    safe static user_failed: u8;
    fn user_copy(to: *mut u8, from: *const u8, bytes: usize) -> u64;
    fn user_load_u32(from: *const u32, result: *mut u32) -> u64;
    fn user_exchange_u32(at: *mut u32, old: u32, new: u32, result: *mut u32) -> u64;
}

/// Returns whether the instruction at `ip` may fault.
pub(super) fn covers(ip: u64) -> bool {
    (&raw const user_code_start as u64..&raw const user_code_end as u64).contains(&ip)
}

/// Returns the address at which a copy that cannot be completed goes on.
pub(super) fn failed() -> u64 {
    &raw const user_failed as u64
}

pub(super) fn use_smap() {
    // Relaxed: set by the boot core before any program runs.
    SMAP.store(true, Ordering::Relaxed);
}

/// Clears the flag that lets the kernel access user memory: a trap starts with the flag of the code that it
/// hit, which may be a copy, or a program that has set the flag itself.
pub(super) fn forbid_user_access() {
    // SAFETY: clears AC (bit 18) through the stack and nothing else.
    unsafe { asm!("pushfq", "and dword ptr [rsp], 0xfffbffff", "popfq") };
}

/// Copies between kernel and user memory. Returns whether all user pages were accessible.
///
/// # Safety
/// The kernel's side of the copy is valid for it, and the other side lies in the user's half.
#[inline]
pub unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize) -> bool {
    // SAFETY: the caller's promise. Faults on the user's side are caught.
    unsafe { user_copy(to, from, bytes) == 0 }
}

/// Reads an aligned word of user memory.
///
/// # Safety
/// It lies in the user's half.
pub unsafe fn load_u32(from: *const u32) -> Option<u32> {
    let mut value = 0;
    // SAFETY: the caller's promise. The result is a local variable.
    unsafe { user_load_u32(from, &mut value) == 0 }.then_some(value)
}

/// Replaces an aligned word of user memory if it is `old`, and returns its former value.
///
/// # Safety
/// The word lies in the user's half.
pub unsafe fn compare_exchange_u32(at: *mut u32, old: u32, new: u32) -> Option<u32> {
    let mut value = 0;
    // SAFETY: the caller's promise. The result is a local variable.
    unsafe { user_exchange_u32(at, old, new, &mut value) == 0 }.then_some(value)
}

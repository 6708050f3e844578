//! The user's floating point and vector registers. The kernel itself uses none.

use core::arch::asm;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::cpu::{cpuid_if_known, cr0, cr4, set_cr0, set_cr4};

/// The states that the kernel saves: x87, SSE, AVX and the three AVX-512 parts. Their standard layout ends at
/// 2688.
const WANTED: u64 = 0xe7;
const BYTES: usize = 2688;
const CONTROL_WORD: u16 = 0x37f;
const MXCSR: u32 = 0x1f80;

/// The enabled XSAVE states, or 0 if the CPU only has FXSAVE.
static STATES: AtomicU64 = AtomicU64::new(0);
/// Bytes of the area that holds them in the standard layout, at most [`BYTES`]. Before that is known,
/// FXSAVE's.
static AREA: AtomicUsize = AtomicUsize::new(HEADER_AT);

/// One thread's saved registers.
#[repr(C, align(64))]
#[derive(Clone, Debug)]
pub struct FpuState([u8; BYTES]);

/// The initial state of a program.
static FRESH: FpuState = FpuState::new();

impl FpuState {
    /// Loads the initial state of a program into the registers.
    pub fn restore_fresh() {
        FRESH.restore();
    }

    /// Returns the initial state of a program.
    pub const fn new() -> Self {
        let mut bytes = [0; BYTES];
        [bytes[0], bytes[1]] = CONTROL_WORD.to_le_bytes();
        [bytes[24], bytes[25], bytes[26], bytes[27]] = MXCSR.to_le_bytes();
        Self(bytes)
    }

    /// Saves the registers.
    pub fn save(&mut self) {
        let (states, area) = (STATES.load(Ordering::Relaxed), self.0.as_mut_ptr());
        // SAFETY: the area is 64-byte aligned and holds every state that is on.
        unsafe {
            if states == 0 {
                asm!("fxsave64 [{}]", in(reg) area, options(nostack, preserves_flags));
            } else {
                asm!("xsave64 [{}]", in(reg) area, in("eax") states as u32, in("edx") 0, options(nostack, preserves_flags));
            }
        }
    }

    /// Restores the saved registers.
    pub fn restore(&self) {
        let (states, area) = (STATES.load(Ordering::Relaxed), self.0.as_ptr());
        // SAFETY: the area was filled by `save` or `new`, so its header is valid, and the kernel uses no such
        // register.
        unsafe {
            if states == 0 {
                asm!("fxrstor64 [{}]", in(reg) area, options(nostack, preserves_flags));
            } else {
                asm!("xrstor64 [{}]", in(reg) area, in("eax") states as u32, in("edx") 0, options(nostack, preserves_flags));
            }
        }
    }
}

/// The pending exceptions of the user's units: a set of [`complaint`]s that are not masked.
pub mod complaint {
    pub const INVALID: u16 = 1 << 0;
    pub const ZERO_DIVIDE: u16 = 1 << 2;
    pub const OVERFLOW: u16 = 1 << 3;
    /// Underflow, or a denormal operand.
    pub const UNDERFLOW: u16 = 1 << 4 | 1 << 1;
    pub const INEXACT: u16 = 1 << 5;
}

/// Returns the pending exceptions of the x87 unit.
pub fn x87_complaints() -> u16 {
    let status: u16;
    let mut control = 0u16;
    // SAFETY: both only store, whatever is pending.
    unsafe {
        asm!("fnstsw ax", out("ax") status, options(nomem, nostack, preserves_flags));
        asm!("fnstcw [{}]", in(reg) &raw mut control, options(nostack, preserves_flags));
    }
    status & !control
}

/// Returns the pending exceptions of the vector unit.
pub fn vector_complaints() -> u16 {
    let mut word = 0u32;
    // SAFETY: it only stores.
    unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut word, options(nostack, preserves_flags)) };
    word as u16 & !(word >> 7) as u16
}

/// Where the legacy area keeps MXCSR, the room for software's words, and the XSAVE header.
const MXCSR_AT: usize = 24;
const SOFTWARE_AT: usize = 464;
const HEADER_AT: usize = 512;
const HEADER_END: usize = 576;
/// MXCSR bits that every CPU has. Setting another one would fault.
const MXCSR_ALLOWED: u32 = 0xffff;
/// Linux's marks around an extended area in a signal frame.
const MAGIC_1: u32 = 0x4650_5853;
const MAGIC_2: [u8; 4] = 0x4650_5845u32.to_le_bytes();
const LEGACY_STATES: u64 = 3;

impl FpuState {
    /// Returns the bytes of the state in a signal frame, including Linux's marks. The state is as small as
    /// this CPU allows, since a program may have no more room.
    pub fn user_bytes() -> usize {
        let second_mark = if STATES.load(Ordering::Relaxed) == 0 { 0 } else { MAGIC_2.len() };
        AREA.load(Ordering::Relaxed) + second_mark
    }

    /// Returns the state as Linux lays it out in a signal frame: the state, marked, and the mark that follows
    /// it.
    pub fn for_user(&mut self) -> [&[u8]; 2] {
        let (states, area) = (STATES.load(Ordering::Relaxed), AREA.load(Ordering::Relaxed));
        if states == 0 {
            return [&self.0[..area], &[]];
        }
        let mut mark = |at: usize, value: &[u8]| self.0[at..at + value.len()].copy_from_slice(value);
        mark(SOFTWARE_AT, &MAGIC_1.to_le_bytes());
        mark(SOFTWARE_AT + 4, &(Self::user_bytes() as u32).to_le_bytes());
        mark(SOFTWARE_AT + 8, &states.to_le_bytes());
        mark(SOFTWARE_AT + 16, &(area as u32).to_le_bytes());
        [&self.0[..area], &MAGIC_2]
    }

    /// Loads the registers from a signal frame, as `read` copies it. The program may have changed it: values
    /// that the CPU would refuse are made harmless, while Linux sends SIGSEGV.
    #[inline(never)] // a large buffer for a short time
    pub fn restore_from_user<E>(read: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<(), E> {
        let mut state = Self::new();
        read(&mut state.0[..AREA.load(Ordering::Relaxed)])?;
        state.sanitize();
        state.restore();
        Ok(())
    }

    /// Returns the registers that FXSAVE saves.
    pub fn legacy(&self) -> &[u8] {
        &self.0[..HEADER_AT]
    }

    /// Returns the registers as XSAVE lays them out, with the enabled states where Linux has them, or `None`
    /// if this CPU has no XSAVE.
    pub fn extended(&mut self) -> Option<&[u8]> {
        let (states, area) = (STATES.load(Ordering::Relaxed), AREA.load(Ordering::Relaxed));
        if states == 0 {
            return None;
        }
        self.0[SOFTWARE_AT..SOFTWARE_AT + 8].copy_from_slice(&states.to_le_bytes());
        Some(&self.0[..area])
    }

    /// Sets the registers from a layout as `legacy` or `extended` returns it. Returns false, and changes
    /// nothing, if the CPU would refuse them.
    pub fn set(&mut self, bytes: &[u8]) -> bool {
        let (states, area) = (STATES.load(Ordering::Relaxed), AREA.load(Ordering::Relaxed));
        let is_extended = bytes.len() == area && states != 0;
        if bytes.len() != HEADER_AT && !is_extended {
            return false;
        }
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let header_is_good = || {
            let reserved = &bytes[HEADER_AT + 8..HEADER_END];
            word(HEADER_AT) & !states == 0 && reserved.iter().all(|&byte| byte == 0)
        };
        if word(MXCSR_AT) as u32 & !MXCSR_ALLOWED != 0 || is_extended && !header_is_good() {
            return false;
        }
        self.0[..bytes.len()].copy_from_slice(bytes);
        if !is_extended {
            let states = self.word(HEADER_AT) | LEGACY_STATES & states;
            self.0[HEADER_AT..HEADER_AT + 8].copy_from_slice(&states.to_le_bytes());
        }
        true
    }

    fn sanitize(&mut self) {
        let extended = self.word(SOFTWARE_AT) as u32 == MAGIC_1;
        let states = if extended { self.word(HEADER_AT) } else { LEGACY_STATES };
        let states = states & STATES.load(Ordering::Relaxed);
        let mxcsr = self.word(MXCSR_AT) as u32 & MXCSR_ALLOWED;
        self.0[MXCSR_AT..MXCSR_AT + 4].copy_from_slice(&mxcsr.to_le_bytes());
        self.0[HEADER_AT..HEADER_END].fill(0);
        self.0[HEADER_AT..HEADER_AT + 8].copy_from_slice(&states.to_le_bytes());
    }

    fn word(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.0[at..at + 8].try_into().expect("8 bytes"))
    }
}

/// Enables this core's units.
pub fn init() {
    let has_xsave = cpuid_if_known(1, 0).ecx & 1 << 26 != 0;
    // SAFETY: every 64-bit CPU has FXSAVE and SSE. Emulation is off, monitoring on, and x87 errors raise
    // exceptions.
    unsafe {
        set_cr0(cr0() & !(1 << 2 | 1 << 3) | 1 << 1 | 1 << 5);
        set_cr4(cr4() | 1 << 9 | 1 << 10 | u64::from(has_xsave) << 18);
    }
    if has_xsave {
        let states = u64::from(cpuid_if_known(0xd, 0).eax) & WANTED;
        // SAFETY: only states that the CPU lists, and x87 is always among them.
        unsafe { asm!("xsetbv", in("ecx") 0, in("eax") states as u32, in("edx") 0, options(nostack)) };
        // Relaxed: every core writes the same values before it runs a user.
        STATES.store(states, Ordering::Relaxed);
        AREA.store((cpuid_if_known(0xd, 0).ebx as usize).min(BYTES), Ordering::Relaxed);
    }
}

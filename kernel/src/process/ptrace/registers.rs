//! The registers of a stopped tracee, as its tracer sees and changes them.

use abi::Errno;
use abi::ptrace::UserRegisters;
use abi::zerocopy;

use crate::arch::{FpuState, TrapFrame, USER_END};

/// The selectors that programs see on Linux, by which debuggers know a 64-bit program.
const LINUX_CS: u64 = 0x33;
const LINUX_SS: u64 = 0x2b;
/// No system call.
const NO_CALL: u64 = u64::MAX;
/// The requested privilege level of a selector that a program may have.
const USER_LEVEL: u64 = 3;
/// The number of general registers.
pub const COUNT: usize = size_of::<UserRegisters>() / 8;

mod place {
    pub const ORIG_RAX: usize = 15;
    pub const CS: usize = 17;
    pub const SS: usize = 20;
    pub const FS_BASE: usize = 21;
    pub const GS_BASE: usize = 22;
    pub const DS: usize = 23;
}

/// The registers of a stopped tracee.
pub struct Saved {
    /// The general registers.
    pub frame: TrapFrame,
    /// Thread-local storage.
    pub fs_base: u64,
    /// Floating point and vector registers.
    pub fpu: FpuState,
    /// Set if the tracer has changed those.
    pub fpu_is_changed: bool,
}

impl Saved {
    /// Creates registers of no task.
    pub fn new() -> Self {
        Self { frame: TrapFrame::default(), fs_base: 0, fpu: FpuState::new(), fpu_is_changed: false }
    }

    /// Returns the general registers.
    pub fn general(&self) -> UserRegisters {
        let f = &self.frame;
        UserRegisters {
            r15: f.r15,
            r14: f.r14,
            r13: f.r13,
            r12: f.r12,
            rbp: f.rbp,
            rbx: f.rbx,
            r11: f.r11,
            r10: f.r10,
            r9: f.r9,
            r8: f.r8,
            rax: f.rax,
            rcx: f.rcx,
            rdx: f.rdx,
            rsi: f.rsi,
            rdi: f.rdi,
            orig_rax: if f.is_syscall() { f.number() } else { NO_CALL },
            rip: f.rip,
            cs: LINUX_CS,
            rflags: f.rflags,
            rsp: f.rsp,
            ss: LINUX_SS,
            fs_base: self.fs_base,
            ..UserRegisters::default()
        }
    }

    /// Sets the general registers.
    fn set_general(&mut self, new: &UserRegisters) {
        let old = self.general();
        let f = &mut self.frame;
        (f.r15, f.r14, f.r13, f.r12, f.rbp, f.rbx) = (new.r15, new.r14, new.r13, new.r12, new.rbp, new.rbx);
        (f.r11, f.r10, f.r9, f.r8, f.rax, f.rcx) = (new.r11, new.r10, new.r9, new.r8, new.rax, new.rcx);
        (f.rdx, f.rsi, f.rdi, f.rip, f.rsp) = (new.rdx, new.rsi, new.rdi, new.rip, new.rsp);
        f.rflags = new.rflags;
        f.sanitize();
        if new.orig_rax != old.orig_rax {
            // As on Linux, an `int` tells whether there is a call.
            f.set_call((new.orig_rax as i32 >= 0).then_some(new.orig_rax));
        }
        self.fs_base = new.fs_base;
    }

    /// Sets the general registers from the one at index `first` on.
    ///
    /// # Errors
    /// EIO for a value that the register cannot have. Those before it are set.
    pub fn set(&mut self, first: usize, values: &[u64]) -> Result<(), Errno> {
        let mut words: [u64; COUNT] = zerocopy::transmute!(self.general());
        let mut outcome = Ok(());
        for (index, &value) in (first..).zip(values) {
            let Some(word) = words.get_mut(index) else { break };
            if !may_be(index, value) {
                outcome = Err(Errno::EIO);
                break;
            }
            *word = value;
        }
        self.set_general(&zerocopy::transmute!(words));
        outcome
    }

    /// Sets the floating point registers.
    ///
    /// # Errors
    /// EINVAL for a value that the CPU would refuse.
    pub fn set_fpu(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        if !self.fpu.set(bytes) {
            return Err(Errno::EINVAL);
        }
        self.fpu_is_changed = true;
        Ok(())
    }
}

/// Returns whether the register may be given a value. One that has no effect is accepted if a program on
/// Linux could have it.
fn may_be(index: usize, value: u64) -> bool {
    let is_selector = value & USER_LEVEL == USER_LEVEL && value <= u16::MAX.into();
    match index {
        place::ORIG_RAX => true,
        place::CS | place::SS => is_selector,
        place::DS.. => value == 0 || is_selector,
        place::FS_BASE => value < USER_END,
        // No program here has another one.
        place::GS_BASE => value == 0,
        _ => true,
    }
}

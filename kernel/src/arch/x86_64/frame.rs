//! The user's registers as the entry code pushes them.

/// One past the last address a program may use.
pub const USER_END: u64 = 0x7fff_ffff_f000;

/// A user thread's registers while it is in the kernel. The order is the one `entry` pushes in.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)] // register names
pub struct TrapFrame {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    /// The cause of the entry: an exception or interrupt vector, or [`SYSCALL`].
    pub vector: u64,
    /// The exception's error code, or the number of the syscall.
    pub error: u64,
    pub rip: u64,
    pub cs: u64,
    pub rflags: u64,
    pub rsp: u64,
    pub ss: u64,
}

/// `TrapFrame::vector` of a syscall.
pub const SYSCALL: u64 = 256;
/// `TrapFrame::vector` of a syscall that a tracer called off.
const NO_SYSCALL: u64 = 257;
const TRAP_FLAG: u64 = 1 << 8;
/// Length of the `syscall` instruction.
const SYSCALL_BYTES: u64 = 2;
/// The user code selector in the GDT.
pub const USER_CS: u64 = 0x23;
/// The user data selector in the GDT.
pub const USER_SS: u64 = 0x1b;
/// Flags that a user may choose: everything but IOPL, NT, VM, VIF, VIP, with IF and bit 1 forced.
const USER_FLAGS: u64 = 0x24_0dd5;
const FORCED_FLAGS: u64 = 0x202;

impl TrapFrame {
    /// Returns the registers of a new program: all zero except for its start address and its stack.
    pub fn user(ip: u64, sp: u64) -> Self {
        Self { rip: ip, rsp: sp, cs: USER_CS, ss: USER_SS, rflags: FORCED_FLAGS, ..Self::default() }
    }

    /// Returns the syscall's number.
    #[inline(always)]
    pub fn number(&self) -> u64 {
        self.error
    }

    /// Returns the syscall's arguments.
    #[inline(always)]
    pub fn args(&self) -> [u64; 6] {
        [self.rdi, self.rsi, self.rdx, self.r10, self.r8, self.r9]
    }

    /// Sets the return value of the syscall.
    #[inline(always)]
    pub fn set_result(&mut self, result: u64) {
        self.rax = result;
    }

    /// Returns whether the entry is a syscall.
    pub fn is_syscall(&self) -> bool {
        self.vector == SYSCALL
    }

    /// Makes it an entry by the syscall `number`, or by none.
    pub fn set_call(&mut self, number: Option<u64>) {
        (self.vector, self.error) = number.map_or((NO_SYSCALL, 0), |number| (SYSCALL, number));
    }

    /// Returns whether the entry is an exception, and has its number and error code.
    pub fn is_exception(&self) -> bool {
        self.vector < SYSCALL
    }

    /// Returns whether the CPU traps after the next instruction.
    pub fn is_stepping(&self) -> bool {
        self.rflags & TRAP_FLAG != 0
    }

    /// Makes the CPU trap after the next instruction, or not.
    pub fn set_stepping(&mut self, on: bool) {
        self.rflags = self.rflags & !TRAP_FLAG | if on { TRAP_FLAG } else { 0 };
    }

    /// Returns the return value of the syscall.
    pub fn result(&self) -> u64 {
        self.rax
    }

    /// Makes the user execute its `syscall` instruction again, for call `number`.
    pub fn make_call(&mut self, number: u64) {
        self.rax = number;
        self.rip -= SYSCALL_BYTES;
    }

    /// Returns the user's stack pointer.
    pub fn sp(&self) -> u64 {
        self.rsp
    }

    /// Keeps the return to user mode from faulting in the kernel: the CPU refuses a non-canonical address.
    /// The user faults instead, at the first address that is not its own.
    #[inline(always)]
    pub(super) fn bound_ip(&mut self) {
        self.rip = self.rip.min(USER_END);
    }

    /// Makes registers that a user chose safe to return to: user segments, allowed flags, interrupts on.
    pub fn sanitize(&mut self) {
        (self.cs, self.ss) = (USER_CS, USER_SS);
        self.rflags = self.rflags & USER_FLAGS | FORCED_FLAGS;
    }
}

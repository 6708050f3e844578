//! A handler of a signal sees the program, never the runtime.
//!
//! A signal may arrive while the program is in a slot, or waits in a call that the runtime performs.
//! Before the handler runs, the saved registers are made those that the program would have without the
//! runtime. So unwinders find the program's functions (thread cancellation unwinds from a handler), and
//! libraries that compare the address with the bounds of their calls are right. When the handler
//! returns, the program goes on there: if the call was not made yet, it is made from the program's own
//! `syscall` instruction.

use pathreads::slot::{self, RESERVED};
use pathreads::{RUNTIME_BASE, RUNTIME_END, SLOTS_BASE};

use crate::entry::{
    Frame, RESTARTED, address, before_perform, deliver_taken, finish, last_jump, peek_first, peek_second,
    peeked, perform_call, perform_checked, perform_prepared_again, perform_restarted, performed,
    sent_at_finish, signal_stubs, stored, trap_call, trap_called, user_cleared, user_clearing, user_copied,
    user_copying, user_touched, user_touching, ways_end,
};
use crate::isolate::{self, faults};
use crate::sigaction;
use crate::sys::nr;

/// The registers in a `ucontext`, in the kernel's order.
#[repr(C)]
pub struct Context {
    head: [u64; 5],
    r8: u64,
    r9: u64,
    r10: u64,
    r11: u64,
    r12: u64,
    r13: u64,
    r14: u64,
    r15: u64,
    rdi: u64,
    rsi: u64,
    rbp: u64,
    rbx: u64,
    rdx: u64,
    rax: u64,
    rcx: u64,
    rsp: u64,
    rip: u64,
    flags_and_segments: [u64; 2],
    /// The processor's error code of a fault, its trap, a word that is not read again, and the address of the
    /// fault.
    cause: u64,
    trap: u64,
    old_mask: u64,
    address: u64,
    /// The place of the vector registers, and room.
    vectors: [u64; 9],
    /// The signals that are blocked when the handler returns.
    mask: u64,
}

impl Context {
    /// Returns the signals that were blocked where a request came, and whether that was in a stub: those are
    /// the handler's.
    pub fn blocked(&self) -> (u64, bool) {
        (self.mask, (address(&signal_stubs)..address(&ways_end)).contains(&self.rip))
    }

    /// Blocks more signals when the handler returns. Returns those that were.
    pub fn block(&mut self, signals: u64) -> u64 {
        let before = self.mask;
        self.mask |= signals;
        before
    }

    /// Returns whether the program was interrupted, and not the runtime.
    pub fn is_in_program(&self) -> bool {
        !(SLOTS_BASE..RUNTIME_END).contains(&self.rip)
    }

    /// Returns the pointer of the stack that was interrupted.
    pub fn stack_pointer(&self) -> u64 {
        self.rsp
    }
}

/// A `siginfo`, as far as the kernel keeps it.
#[repr(C)]
pub struct Information {
    pub signal: i32,
    pub error: i32,
    /// Above 0 if the kernel sends it on its own account.
    pub code: i32,
    pub pad: i32,
    /// The sender and its user, if a process sent it.
    pub sender: u32,
    pub user: u32,
    pub rest: [u64; 2],
    /// Whether the courier gave it (`isolate::signals`), unless this is a time.
    pub mark: u64,
}

const SIGBUS: i32 = 7;
const SIGSEGV: i32 = 11;

const EINTR: u64 = -4_i64 as u64;

/// The length of a `syscall` instruction.
const CALL: u64 = 2;

/// Ends a copy of the runtime that met memory of the program that is not accessible. Returns whether
/// that was the cause of the signal.
pub fn end_copy(context: &mut Context, information: &Information) -> bool {
    let rip = context.rip;
    let end = match () {
        () if rip == address(&peek_first) || rip == address(&peek_second) => address(&peeked),
        () if rip == address(&user_copying) => address(&user_copied),
        () if rip == address(&user_touching) => address(&user_touched),
        () => return false,
    };
    if information.code <= 0 {
        return false;
    }
    context.rip = end;
    true
}

/// Answers a fault that is not the program's, or not yet. Returns whether it was one.
pub fn is_answered(context: &mut Context, information: &Information) -> bool {
    matches!(information.signal, SIGSEGV | SIGBUS)
        && (faults::holds_back(information, context.rip)
            || isolate::fails(information.signal, information.code)
            || end_clearing(context, information)
            || maps(context, information)
            || end_copy(context, information))
}

/// Ends the clearing of a block that is not this member's any more. Memory that is mapped there now is not
/// mapped for it. Returns whether that was the cause of the signal.
fn end_clearing(context: &mut Context, information: &Information) -> bool {
    let is_it = information.code > 0 && context.rip == address(&user_clearing);
    if is_it {
        context.rip = address(&user_cleared);
    }
    is_it
}

/// Maps the memory that this member did not have. Returns whether that was the cause of the signal.
fn maps(context: &Context, information: &Information) -> bool {
    const PAGE_FAULT: u64 = 14;
    const BUS_ADRERR: i32 = 2;
    let Information { signal, code, .. } = *information;
    let (address, cause) = (context.address, context.cause);
    isolate::is_on()
        && context.trap == PAGE_FAULT
        && match signal {
            SIGSEGV => code > 0 && isolate::fault(address, cause),
            _ => code == BUS_ADRERR && isolate::stale::is_possible() && isolate::stale_fault(address, cause),
        }
}

impl Information {
    /// Returns whether the signal is a fault of the processor. One that is sent is none.
    pub fn is_fault(&self) -> bool {
        const SIGILL: i32 = 4;
        const SIGTRAP: i32 = 5;
        const SIGFPE: i32 = 8;
        // The kernel's counters of events send it at any place.
        const TRAP_PERF: i32 = 6;
        match self.signal {
            // Some faults of these have no other code than this.
            SIGSEGV | SIGBUS => self.code > 0,
            SIGILL | SIGFPE => self.code > 0 && self.code != SI_KERNEL,
            SIGTRAP => self.code > 0 && !matches!(self.code, SI_KERNEL | TRAP_PERF),
            _ => false,
        }
    }

    /// Names the program's process as the sender of a signal that one of its members sent.
    pub fn name_sender(&mut self) {
        if isolate::is_on() && self.code <= 0 && !matches!(self.code, SI_TIMER | SI_SIGIO) {
            self.sender = isolate::sender(self.sender);
        }
    }
}

/// The code of some signals that the kernel sends and that are no faults.
const SI_KERNEL: i32 = 0x80;

/// Signals with these codes have no sender.
const SI_TIMER: i32 = -2;
const SI_SIGIO: i32 = -5;

/// Says that a signal is for the program.
pub const IS_PROGRAMS: u32 = 1;

/// Says that faults are blocked in the stub of this signal: it is one, or has come in the stub of one.
pub const IS_FAULT: u32 = 2;

/// Makes a signal's context the program's, if the signal is for the program. Returns what the signal is, by
/// the two above. `prepared` is the frame of a call that was being prepared, or 0.
pub extern "C" fn show_program(context: &mut Context, information: &mut Information, prepared: u64) -> u32 {
    let signal = information.signal;
    let kind = if faults::are_blocked_in_stub(signal, context.mask) { IS_FAULT } else { 0 };
    isolate::signals::begin_stub();
    if is_answered(context, information)
        || isolate::is_copy(information)
        || isolate::postponed::keeps(information)
    {
        isolate::postponed::block_in(context);
        isolate::calls::go_on_preparing(prepared);
        isolate::signals::end_stub();
        return kind;
    }
    show(context, information, prepared);
    if isolate::is_on() {
        context.mask |= faults::begin_handler(signal);
    }
    kind | IS_PROGRAMS
}

/// Makes the context of a signal for the program the program's.
pub fn show(context: &mut Context, information: &mut Information, prepared: u64) {
    let signal = information.signal;
    information.show();
    if context.rip == address(&last_jump) {
        context.rip = context.rcx;
    }
    let rip = context.rip;
    if (SLOTS_BASE..RUNTIME_BASE).contains(&rip) {
        in_slot(context);
    } else if rip == address(&trap_call) || rip == address(&trap_called) {
        // SAFETY: here rsp is RESERVED below the program's, with the place to go back to on top.
        let back = unsafe { *(context.rsp as *const u64) };
        let is_made = rip == address(&trap_called);
        context.rip = if is_made { back } else { back - CALL };
        context.rsp += RESERVED;
    } else if rip == address(&sent_at_finish) {
        // SAFETY: here rsp points to the frame.
        let frame = unsafe { &*(context.rsp as *const Frame) };
        restore(context, frame, Some(frame.rax));
    } else if (address(&before_perform)..address(&finish)).contains(&rip) {
        // SAFETY: here rsp points to the frame, which stays until the call has returned.
        let frame = unsafe { &*(context.rsp as *const Frame) };
        let result = result_of(context, frame, signal as u64);
        restore(context, frame, result.map(|result| isolate::signals::shown_result(frame, result)));
    } else if prepared != 0 {
        end_preparation(context, prepared, signal as u64);
    }
    isolate::signals::begin_handler();
}

/// Has a call prepared again that a request interrupts after it was prepared: what it names may have been
/// taken away, or be mapped elsewhere. [`result_of`] knows the places.
pub fn prepare_again(context: &mut Context) {
    if was_made(context) {
        context.rip = address(&perform_restarted);
    } else if (address(&perform_checked)..=address(&perform_call)).contains(&context.rip) {
        context.rip = address(&perform_prepared_again);
    }
}

/// Returns whether the kernel was to make a call of the runtime again. It leaves the place after it in rcx.
fn was_made(context: &Context) -> bool {
    context.rip == address(&perform_call) && context.rcx == address(&performed)
}

/// Has the program make a call again that was being prepared. If a request had interrupted it before, this
/// signal may end it. Two signals may come at once: then the kernel has put this one's frame where the
/// other's handler begins, and the preparation is what the other one has interrupted. If that one is the
/// fault of a copy, its stub ends the copy at this place, and the preparation goes on.
fn end_preparation(context: &mut Context, prepared: u64, signal: u64) {
    let (mut context, mut is_other) = (context, false);
    while (address(&signal_stubs)..address(&deliver_taken)).contains(&context.rip) {
        // SAFETY: there a handler has got its third argument and not changed it, which is its context.
        context = unsafe { &mut *(context.rdx as *mut Context) };
        is_other = true;
    }
    let is_copy = is_other && [&user_copying, &user_touching].map(address).contains(&context.rip);
    if !is_copy && isolate::calls::is_preparing(context.rip) {
        // SAFETY: the frame lies on the stack of the call, above all that the handlers use.
        let frame = unsafe { &*(prepared as *const Frame) };
        restore(context, frame, is_interrupted(frame, signal).then_some(EINTR));
    }
}

/// Returns the result of a frame's call, which a handler interrupts, or `None` if it is still to be made.
/// Under `--isolate` a request may have interrupted the call first, so that it was to be made again. Then
/// the handler's signal interrupts it, as it would without the request.
fn result_of(context: &Context, frame: &Frame, signal: u64) -> Option<u64> {
    if context.rip >= address(&performed) {
        let is_stored = context.rip >= address(&stored);
        let result = if is_stored { frame.rax } else { context.rax };
        return match frame.again {
            0 => isolate::calls::result_for_handler(frame, result),
            _ => (context.rax == EINTR && !sigaction::restarts(signal)).then_some(EINTR),
        };
    }
    let was_made = was_made(context) || context.rip == address(&perform_restarted);
    let is_interrupted = was_made && is_ended(frame, signal) || is_interrupted(frame, signal);
    (isolate::is_on() && is_interrupted).then_some(EINTR)
}

/// Returns whether a signal interrupts a call that a request has interrupted before, and that is to be made
/// again.
fn is_interrupted(frame: &Frame, signal: u64) -> bool {
    match frame.rax {
        EINTR => frame.again == 0 || !sigaction::restarts(signal),
        RESTARTED => is_ended(frame, signal),
        _ => false,
    }
}

/// Returns whether a signal ends a call that the kernel makes again after others. It makes futex calls of
/// some kinds again in any case.
fn is_ended(frame: &Frame, signal: u64) -> bool {
    (frame.again != 0 || frame.call[0] != nr::FUTEX) && !sigaction::restarts(signal)
}

fn in_slot(context: &mut Context) {
    let within = (context.rip - SLOTS_BASE) as usize;
    let start = context.rip - (within % slot::SIZE) as u64;
    // SAFETY: the program executes this slot, so it is mapped, and slots are never changed.
    let slot = unsafe { &*(start as *const [u8; slot::SIZE]) };
    if let Some(place) = slot::stands_for(slot, within % slot::SIZE) {
        context.rip = place;
    }
}

/// Restores the registers from a frame, as they are before the call, or after it with its result.
fn restore(context: &mut Context, frame: &Frame, result: Option<u64>) {
    let Frame { rbx, rbp, r12, r13, r14, r15, rdi, rsi, rdx, r10, r8, r9, rip, rsp, again, .. } = *frame;
    // Its result may be that of another call, which was performed before it is handled again.
    let rax = match (again, frame.rax) {
        (0, RESTARTED) => frame.call[0],
        (0, rax) => rax,
        (again, _) => again,
    };
    *context = Context {
        head: context.head,
        flags_and_segments: context.flags_and_segments,
        cause: context.cause,
        trap: context.trap,
        old_mask: context.old_mask,
        address: context.address,
        vectors: context.vectors,
        mask: context.mask,
        r11: context.r11,
        rcx: context.rcx,
        rax: result.unwrap_or(rax),
        rip: if result.is_some() { rip } else { rip - CALL },
        rbx,
        rbp,
        r12,
        r13,
        r14,
        r15,
        rdi,
        rsi,
        rdx,
        r10,
        r8,
        r9,
        rsp,
    };
}

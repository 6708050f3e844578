//! The actions of signals.
//!
//! The kernel knows a stub instead of each of the program's handlers. A stub belongs to one handler for
//! ever, so there is no moment at which the kernel's action and a table of ours disagree, and a child
//! that shares memory but not actions changes nothing for its parent.
//!
//! Where the program has the default action for SIGSEGV or SIGBUS, the kernel knows [`fault`]. It ends
//! the runtime's own copies from wrong addresses (`user`), and otherwise does what the default action
//! does.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::context::{self, Context, Information};
use crate::dispatch::Then;
use crate::entry::{Frame, STUB, STUBS, address, restorer, signal_stubs, sigsys_handler};
use crate::isolate::faults::FAULTS;
use crate::sys::{self, SIGSYS, SIGSYS_BIT, harmless, nr};
use crate::{isolate, user};

/// The program's handlers, by stub. 0 is free.
pub static HANDLERS: [AtomicU64; STUBS] = [const { AtomicU64::new(0) }; STUBS];

/// The program's own action for SIGSYS, which the kernel does not know.
static OF_SIGSYS: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

/// Flags of actions for SIGSEGV and SIGBUS that the runtime chooses under `--isolate`. It needs a stack for
/// their handlers, which must not be for once: a fault may be about memory of another member. Stubs begin
/// with the two blocked, and unblock them where the program's handler begins (`isolate::faults`).
const FORCED: u64 = SA_ONSTACK | SA_NODEFER | SA_RESETHAND;

/// The program's own flags for the two, or [`IGNORED`].
static OF_FAULTS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Says that the program ignores the signal.
const IGNORED: u64 = 1 << 63;

/// The kernel's `struct sigaction` as words: handler, flags, restorer, mask.
type Action = [u64; 4];

const SIG_DFL: u64 = 0;
const SIG_IGN: u64 = 1;
const SA_SIGINFO: u64 = 4;
const SA_RESTORER: u64 = 0x0400_0000;
const SA_ONSTACK: u64 = 0x0800_0000;
const SA_RESTART: u64 = 0x1000_0000;
const SA_NODEFER: u64 = 0x4000_0000;
const SA_RESETHAND: u64 = 0x8000_0000;

const SIGBUS: u64 = 7;
const SIGSEGV: u64 = 11;

/// Makes SIGSYS the runtime's, and the default actions of SIGSEGV and SIGBUS.
pub fn install() {
    for signal in [SIGSEGV, SIGBUS] {
        // One that the program ignores, or that was installed before, is put back.
        let mut old: Action = [0; 4];
        let new = of_fault();
        let set = harmless!(nr::SIGACTION, signal, new.as_ptr() as u64, old.as_mut_ptr() as u64, 8);
        if set.is_ok() && old[0] != SIG_DFL {
            set_kernels(signal, &old);
        }
    }
    let flags = SA_SIGINFO | SA_RESTORER | SA_ONSTACK | SA_NODEFER;
    let action: Action = [address(&sigsys_handler), flags, address(&restorer), 0];
    set_kernels(SIGSYS, &action);
    if isolate::is_on() {
        install_requests();
    }
}

/// Makes SIGSTKFLT the runtime's.
fn install_requests() {
    let handler: extern "C" fn(u64, &Information, &mut Context) = isolate::on_request;
    let flags = SA_SIGINFO | SA_RESTORER | SA_ONSTACK | SA_RESTART;
    let handler = handler as usize as u64;
    set_kernels(isolate::SIGSTKFLT, &[handler, flags, address(&restorer), !SIGSYS_BIT]);
}

fn set_kernels(signal: u64, action: &Action) {
    let _ = harmless!(nr::SIGACTION, signal, action.as_ptr() as u64, 0, 8);
}

/// Returns whether a signal has its default action.
pub fn is_default(signal: u64) -> bool {
    kernels(signal).is_ok_and(|action| action[0] == SIG_DFL)
}

fn kernels(signal: u64) -> sys::Result<Action> {
    let mut action: Action = [0; 4];
    harmless!(nr::SIGACTION, signal, 0, action.as_mut_ptr() as u64, 8)?;
    Ok(action)
}

/// Returns the kernel's action for a default one of SIGSEGV or SIGBUS. It blocks all signals: a handler of
/// the program would run with faults blocked.
fn of_fault() -> Action {
    let handler: extern "C" fn(u64, &Information, &mut Context) = fault;
    let blocked = FAULTS | !isolate::never_blocked();
    [handler as usize as u64, SA_SIGINFO | SA_RESTORER | SA_ONSTACK, address(&restorer), blocked]
}

/// Handles a fault for which the program has the default action.
extern "C" fn fault(signal: u64, information: &Information, context: &mut Context) {
    let is_ignored = || OF_FAULTS[usize::from(signal == SIGBUS)].load(Ordering::Relaxed) & IGNORED != 0;
    if context::is_answered(context, information) || information.code <= 0 && is_ignored() {
        return isolate::postponed::block_in(context);
    }
    // A fault happens again when this returns. A signal that was sent is sent again.
    set_kernels(signal, &[SIG_DFL, SA_RESTORER, address(&restorer), 0]);
    if information.code <= 0 {
        send_to_self(signal);
    }
}

/// Returns whether the program's handler of SIGSEGV or SIGBUS may be entered again while it runs.
pub fn nests(signal: u64) -> bool {
    OF_FAULTS[usize::from(signal == SIGBUS)].load(Ordering::Relaxed) & SA_NODEFER != 0
}

/// Returns whether a call that a signal interrupts is made again after the handler.
pub fn restarts(signal: u64) -> bool {
    kernels(signal).is_ok_and(|action| action[1] & SA_RESTART != 0)
}

/// Handles `rt_sigaction`.
pub extern "C" fn set(frame: &mut Frame) -> Then {
    let [signal, new_at, old_at, size, ..] = frame.arguments();
    if size != 8 {
        return Then::Perform;
    }
    frame.rax = match exchange(signal, new_at, old_at) {
        Ok(()) => 0,
        Err(error) => error.to_result(),
    };
    Then::Return
}

fn exchange(signal: u64, new_at: u64, old_at: u64) -> sys::Result<()> {
    let new = if new_at == 0 { None } else { Some(user::words(new_at)?) };
    let old = match new {
        // The program's action for the signal of requests is forgotten: the runtime's stays.
        _ if isolate::is_on() && signal == isolate::SIGSTKFLT => [0; 4],
        Some(action) if isolate::is_on() => isolate::act(signal, action, || exchange_here(signal, new))?,
        _ => exchange_here(signal, new)?,
    };
    if old_at == 0 { Ok(()) } else { user::write_words(old_at, &old) }
}

/// Sets an action that another member was told to set.
pub fn set_here(signal: u64, action: Action) {
    let _ = exchange_here(signal, Some(action));
}

/// Exchanges an action in this process.
fn exchange_here(signal: u64, new: Option<Action>) -> sys::Result<Action> {
    if signal == SIGSYS { Ok(exchange_own(new)) } else { exchange_kernels(signal, new) }
}

/// Exchanges the program's action for SIGSYS.
fn exchange_own(new: Option<Action>) -> Action {
    let mut old = [0; 4];
    for (index, word) in OF_SIGSYS.iter().enumerate() {
        old[index] = match new {
            Some(new) => word.swap(new[index], Ordering::Relaxed),
            None => word.load(Ordering::Relaxed),
        };
    }
    old
}

/// Exchanges an action in the kernel.
fn exchange_kernels(signal: u64, new: Option<Action>) -> sys::Result<Action> {
    let of_faults = match signal {
        SIGSEGV | SIGBUS if isolate::is_on() => Some(&OF_FAULTS[usize::from(signal == SIGBUS)]),
        _ => None,
    };
    let new_flags = new.map(|[handler, flags, ..]| if handler == SIG_IGN { IGNORED } else { flags });
    let new = new.map(|[handler, flags, back, mask]| {
        let is_plain = handler == SIG_DFL || handler == SIG_IGN && of_faults.is_some();
        if matches!(signal, SIGSEGV | SIGBUS) && is_plain {
            return of_fault();
        }
        let mask = mask & !isolate::never_blocked();
        let (flags, mask) = match of_faults {
            Some(_) => (flags & !FORCED | SA_ONSTACK, mask | FAULTS),
            None => (flags, mask),
        };
        let stub = stub_for(handler, flags & SA_SIGINFO != 0);
        if of_faults.is_none() && !matches!(handler, SIG_DFL | SIG_IGN) {
            isolate::postponed::note_handler(signal, flags & SA_RESETHAND != 0, stub.is_some());
        }
        match stub {
            Some(stub) => [stub, flags | SA_SIGINFO, back, mask],
            None => [handler, flags, back, mask],
        }
    });
    let mut old: Action = [0; 4];
    let new_at = new.as_ref().map_or(0, |action| action.as_ptr() as u64);
    harmless!(nr::SIGACTION, signal, new_at, old.as_mut_ptr() as u64, 8)?;
    let before = of_faults.map(|flags| match new_flags {
        Some(new) => flags.swap(new, Ordering::Relaxed),
        None => flags.load(Ordering::Relaxed),
    });
    if old[0] == of_fault()[0] {
        let is_ignored = before.is_some_and(|flags| flags & IGNORED != 0);
        return Ok([if is_ignored { SIG_IGN } else { SIG_DFL }, 0, 0, 0]);
    }
    if let Some(before) = before {
        old[1] = old[1] & !FORCED | before & FORCED;
        old[3] &= !FAULTS;
    }
    if let Some((handler, has_information)) = handler_of(old[0]) {
        old[0] = handler;
        old[1] = if has_information { old[1] } else { old[1] & !SA_SIGINFO };
    }
    Ok(old)
}

/// Returns whether the program may have handlers. Those that ask for information have stubs with odd numbers.
pub fn has_handlers() -> bool {
    HANDLERS[..2].iter().any(|handler| handler.load(Ordering::Relaxed) != 0)
        || OF_SIGSYS[0].load(Ordering::Relaxed) > SIG_IGN
}

/// Returns the stub of a handler. When there is no free one, the handler has none: it works, but may
/// see the runtime's registers. The kernel always gives a stub the signal's information. Stubs with odd
/// numbers are for handlers that ask for it.
fn stub_for(handler: u64, has_information: bool) -> Option<u64> {
    if matches!(handler, SIG_DFL | SIG_IGN) {
        return None;
    }
    let takes = |index: &usize| {
        // Relaxed: a stub is reached only by an action that is set after this, by a system call.
        let taken = HANDLERS[*index].compare_exchange(0, handler, Ordering::Relaxed, Ordering::Relaxed);
        taken.is_ok() || taken == Err(handler)
    };
    let index = (usize::from(has_information)..STUBS).step_by(2).find(takes)?;
    Some(address(&signal_stubs) + index as u64 * STUB)
}

/// Returns the handler of a stub, and whether it asked for information.
fn handler_of(stub: u64) -> Option<(u64, bool)> {
    let offset = stub.checked_sub(address(&signal_stubs))?;
    let index = (offset / STUB) as usize;
    let handler = HANDLERS.get(index)?.load(Ordering::Relaxed);
    Some((handler, index % 2 == 1))
}

/// Delivers a SIGSYS that is not about a dispatched call, such as that of a filter of the program.
pub extern "C" fn foreign_sigsys(signal: u64, information: &mut Information, context: &mut Context) {
    match OF_SIGSYS[0].load(Ordering::Relaxed) {
        SIG_DFL => die(),
        SIG_IGN => {}
        handler => {
            context::show(context, information, 0);
            // SAFETY: the program installed this as its handler, which takes these three.
            let handler: extern "C" fn(u64, &mut Information, &mut Context) =
                unsafe { core::mem::transmute(handler) };
            handler(signal, information, context);
        }
    }
    isolate::postponed::block_in(context);
}

/// Ends the process by a signal.
pub fn die_of(signal: u64) {
    set_kernels(signal, &[SIG_DFL, SA_RESTORER, address(&restorer), 0]);
    sys::unblock(1 << (signal - 1));
    send_to_self(signal);
}

/// Ends the process as SIGSYS does by default.
fn die() {
    set_kernels(SIGSYS, &[SIG_DFL, SA_RESTORER, address(&restorer), 0]);
    send_to_self(SIGSYS);
}

/// Sends a signal to this thread.
pub fn send_to_self(signal: u64) {
    if let (Ok(process), Ok(thread)) = (harmless!(nr::GETPID), harmless!(nr::GETTID)) {
        let _ = harmless!(nr::TGKILL, process, thread, signal);
    }
}

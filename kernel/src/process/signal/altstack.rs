//! The alternate signal stack of a thread: when it is in use, and how it changes.
//!
//! A stack that disarms itself (SS_AUTODISARM) is none from the begin of a handler until that returns. The
//! handler may switch from it to another flow of control, which may take signals and set another stack.

use abi::Errno;
use abi::signal::*;

/// No alternate stack.
pub const NONE: SignalStack = SignalStack { base: 0, flags: SS_DISABLE, padding: 0, size: 0 };

/// Returns whether a stack pointer `sp` is on `stack`. It grows down, so its end is on it and its lowest
/// address is not.
pub fn covers(stack: &SignalStack, sp: u64) -> bool {
    sp > stack.base && sp - stack.base <= stack.size
}

/// Returns whether a thread with the stack pointer `sp` uses `stack`. Then a handler's frame goes below `sp`,
/// and the stack must not change.
pub fn in_use(stack: &SignalStack, sp: u64) -> bool {
    stack.flags & SS_AUTODISARM == 0 && covers(stack, sp)
}

/// Returns the alternate stack as `sigaltstack` reports it.
pub fn reported(stack: &SignalStack, sp: u64) -> SignalStack {
    let state = match stack.size {
        0 => SS_DISABLE,
        _ if in_use(stack, sp) => SS_ONSTACK,
        _ => 0,
    };
    SignalStack { flags: state | stack.flags & SS_AUTODISARM, ..*stack }
}

/// Returns the new alternate stack when a thread with the stack pointer `sp` and the stack `old` sets `new`.
///
/// # Errors
/// EPERM while it is in use, EINVAL (flags), ENOMEM (too small).
pub fn replace(old: &SignalStack, new: &SignalStack, sp: u64) -> Result<SignalStack, Errno> {
    if in_use(old, sp) {
        return Err(Errno::EPERM);
    }
    match new.flags & !SS_AUTODISARM {
        SS_DISABLE => Ok(SignalStack { flags: new.flags, ..NONE }),
        0 | SS_ONSTACK if new.size < MINSIGSTKSZ => Err(Errno::ENOMEM),
        0 | SS_ONSTACK => Ok(SignalStack { padding: 0, ..*new }),
        _ => Err(Errno::EINVAL),
    }
}

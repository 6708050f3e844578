//! The alternate stack of a thread: who is on it, and who may change it.
//!
//! One that disarms itself (SS_AUTODISARM) is none once a handler has begun, until that returns: the handler may
//! leave it for another flow of control, which may take signals, and set another one.

use abi::Errno;
use abi::signal::*;

/// There is none.
pub const NONE: SignalStack = SignalStack { base: 0, flags: SS_DISABLE, padding: 0, size: 0 };

/// Whether a stack pointer `sp` is on `stack`. It grows down: its end is on it, its lowest address is not.
pub fn covers(stack: &SignalStack, sp: u64) -> bool {
    sp > stack.base && sp - stack.base <= stack.size
}

/// Whether a thread with the stack pointer `sp` uses `stack`, so that a handler goes below `sp`, and the stack
/// must stay what it is.
pub fn in_use(stack: &SignalStack, sp: u64) -> bool {
    stack.flags & SS_AUTODISARM == 0 && covers(stack, sp)
}

/// The alternate stack as a program is told of it.
pub fn told(stack: &SignalStack, sp: u64) -> SignalStack {
    let state = match stack.size {
        0 => SS_DISABLE,
        _ if in_use(stack, sp) => SS_ONSTACK,
        _ => 0,
    };
    SignalStack { flags: state | stack.flags & SS_AUTODISARM, ..*stack }
}

/// What becomes of `old` when a thread with the stack pointer `sp` asks for `new`.
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

//! ptrace: the requests of a tracer. `process::ptrace` has the protocol.

use alloc::sync::Arc;
use alloc::vec::Vec;

use abi::file::IoVec;
use abi::ptrace::*;
use abi::signal::{NSIG, SIGKILL, Siginfo};
use abi::{Errno, zerocopy};

use super::{Call, Outcome};
use crate::bytes::{prefix, prefix_mut};
use crate::mm::fallible;
use crate::mm::user;
use crate::process::ptrace::{self, Mode, Saved, State, Tracee};
use crate::process::signal::{self, Origin, UNSTOPPABLE};
use crate::process::{Ending, Memory, pid, remote};
use crate::sched::Task;

/// The options that a tracer may set.
const OPTIONS: u32 = 0xff | PTRACE_O_EXITKILL;
/// The bytes of a word.
const WORD: u64 = 8;
/// The bytes of `struct user`, which PTRACE_PEEKUSER and PTRACE_POKEUSER know.
const USER_BYTES: u64 = 928;
/// The debug registers there.
const DEBUG_REGISTERS: u64 = 848;
/// The one that says why there was a debug exception.
const DEBUG_STATUS: u64 = DEBUG_REGISTERS + 6 * WORD;
const NO_DEBUG_STATUS: u64 = 0xffff_0ff0;
const REGISTER_BYTES: u64 = size_of::<UserRegisters>() as u64;
const MASK_BYTES: u64 = 8;

/// Carries out a request.
pub fn ptrace(call: &mut Call<'_>) -> Outcome {
    let (request, tid) = (call.arg(0), call.arg(1) as u32);
    match request {
        PTRACE_TRACEME => return ptrace::trace_me(call.task).map(|()| 0),
        PTRACE_ATTACH => return ptrace::attach(call.task, tid).map(|()| 0),
        PTRACE_SEIZE => return seize(call, tid),
        _ => {}
    }
    let task = pid::thread(tid).ok_or(Errno::ESRCH)?;
    let tracee = ptrace::of(&task).filter(|tracee| tracee.is_traced_by(call.task)).ok_or(Errno::ESRCH)?;
    match request {
        PTRACE_KILL => {
            task.process().end(Ending::Signal(SIGKILL));
            Ok(0)
        }
        PTRACE_INTERRUPT => tracee.interrupt(&task).map(|()| 0),
        _ => {
            // Each request for a tracee that is not stopped fails so.
            tracee.while_stopped(|_| Ok(()))?;
            of_stopped(call, request, &task, &tracee)
        }
    }
}

fn seize(call: &Call<'_>, tid: u32) -> Outcome {
    let options = u32::try_from(call.arg(3)).map_err(|_| Errno::EIO)?;
    if call.arg(2) != 0 || options & !OPTIONS != 0 {
        return Err(Errno::EIO);
    }
    ptrace::seize(call.task, tid, options).map(|()| 0)
}

/// Carries out a request for a tracee that is stopped.
fn of_stopped(call: &Call<'_>, request: u64, task: &Task, tracee: &Arc<Tracee>) -> Outcome {
    let (at, data) = (call.arg(2), call.arg(3));
    match request {
        PTRACE_CONT => go_on(tracee, Mode::Freely, data),
        PTRACE_SYSCALL => go_on(tracee, Mode::ToCall, data),
        PTRACE_SINGLESTEP => go_on(tracee, Mode::OneStep, data),
        PTRACE_DETACH => detach(call.task, tracee, data),
        PTRACE_LISTEN => tracee.listen(task).map(|()| 0),
        PTRACE_SETOPTIONS => {
            let options = u32::try_from(data).ok().filter(|options| options & !OPTIONS == 0);
            tracee.set_options(options.ok_or(Errno::EINVAL)?).map(|()| 0)
        }
        PTRACE_GETEVENTMSG => write(data, &tracee.while_stopped(|state| Ok(state.message()))?),
        PTRACE_GETSIGINFO => {
            let signal = tracee.while_stopped(|state| Ok(state.signal()))?;
            let (signal, origin) = signal.ok_or(Errno::EINVAL)?;
            write(data, &signal::info(signal, origin))
        }
        PTRACE_SETSIGINFO => set_signal_info(tracee, data),
        PTRACE_GETSIGMASK | PTRACE_SETSIGMASK if at != MASK_BYTES => Err(Errno::EINVAL),
        PTRACE_GETSIGMASK => {
            let own = task.thread.signals.lasting_mask();
            write(data, &tracee.while_stopped(|state| Ok(state.mask().unwrap_or(own)))?)
        }
        PTRACE_SETSIGMASK => {
            let mask = user::read::<u64>(data)? & !UNSTOPPABLE;
            change(tracee, |state| {
                state.set_mask(mask);
                Ok(())
            })
        }
        PTRACE_PEEKTEXT | PTRACE_PEEKDATA => peek(tracee.memory_of(task)?, at, data),
        PTRACE_POKETEXT | PTRACE_POKEDATA => poke(tracee.memory_of(task)?, at, data),
        _ => registers(call, request, tracee),
    }
}

fn registers(call: &Call<'_>, request: u64, tracee: &Tracee) -> Outcome {
    let (at, data) = (call.arg(2), call.arg(3));
    match request {
        PTRACE_PEEKUSER => peek_user(tracee, at, data),
        PTRACE_POKEUSER => poke_user(tracee, at, data),
        PTRACE_GETREGS => write(data, &tracee.while_stopped(|state| Ok(state.saved.general()))?),
        PTRACE_SETREGS => {
            let words: [u64; WORDS] = user::read(data)?;
            change(tracee, |state| state.saved.set(0, &words))
        }
        PTRACE_GETFPREGS => {
            let bytes = copy_of(tracee, NT_FPREGSET)?;
            user::copy_out(data, &bytes).map(|()| 0)
        }
        PTRACE_SETFPREGS => set_copy(tracee, NT_FPREGSET, data, FPU_BYTES),
        PTRACE_GETREGSET | PTRACE_SETREGSET => register_set(tracee, request, at, data),
        PTRACE_GET_SYSCALL_INFO => syscall_info(tracee, at, data),
        _ => Err(Errno::EIO),
    }
}

const WORDS: usize = (REGISTER_BYTES / WORD) as usize;
const FPU_BYTES: u64 = 512;

fn write<T: abi::Pod>(at: u64, value: &T) -> Outcome {
    user::write(at, value).map(|()| 0)
}

fn change(tracee: &Tracee, f: impl FnOnce(&mut State) -> Result<(), Errno>) -> Outcome {
    tracee.while_stopped(f).map(|()| 0)
}

/// Returns a signal that a tracee is to get, or 0.
///
/// # Errors
/// EIO if there is no such signal.
fn given(data: u64) -> Result<u32, Errno> {
    u32::try_from(data).ok().filter(|&signal| signal <= NSIG).ok_or(Errno::EIO)
}

fn go_on(tracee: &Tracee, mode: Mode, data: u64) -> Outcome {
    tracee.go_on(mode, given(data)?).map(|()| 0)
}

fn detach(task: &Task, tracee: &Tracee, data: u64) -> Outcome {
    let signal = given(data)?;
    // If it is not there any more, another thread has waited for its end.
    if task.process().remove_tracee(tracee) {
        tracee.release(signal);
    }
    Ok(0)
}

fn set_signal_info(tracee: &Tracee, at: u64) -> Outcome {
    let info: Siginfo = user::read(at)?;
    let [first, second, third, fourth, ..] = info.fields;
    let origin = Origin::given(info.code, info.errno, [first, second, third, fourth]);
    change(tracee, |state| {
        state.signal().ok_or(Errno::EINVAL)?;
        state.set_origin(origin);
        Ok(())
    })
}

/// Reads a word of memory, which may lie in two pages.
fn peek(memory: &Memory, at: u64, to: u64) -> Outcome {
    let (mut word, mut done) = ([0; WORD as usize], 0);
    while let Some(rest) = word.get_mut(done..).filter(|rest| !rest.is_empty()) {
        done += remote::read(memory, at.wrapping_add(done as u64), rest).map_err(|_| Errno::EIO)?;
    }
    user::copy_out(to, &word).map(|()| 0)
}

fn poke(memory: &Memory, at: u64, word: u64) -> Outcome {
    let (word, mut done) = (word.to_le_bytes(), 0);
    while let Some(rest) = word.get(done..).filter(|rest| !rest.is_empty()) {
        done += remote::write(memory, at.wrapping_add(done as u64), rest).map_err(|_| Errno::EIO)?;
    }
    Ok(0)
}

/// Checks an offset in `struct user`.
fn checked_offset(at: u64) -> Result<u64, Errno> {
    if at.is_multiple_of(WORD) && at < USER_BYTES { Ok(at) } else { Err(Errno::EIO) }
}

fn peek_user(tracee: &Tracee, at: u64, to: u64) -> Outcome {
    let index = (checked_offset(at)? / WORD) as usize;
    let words: [u64; WORDS] =
        tracee.while_stopped(|state| Ok(zerocopy::transmute!(state.saved.general())))?;
    // There are no hardware breakpoints, and nothing is known of the rest.
    let other = if at == DEBUG_STATUS { NO_DEBUG_STATUS } else { 0 };
    write(to, &words.get(index).copied().unwrap_or(other))
}

fn poke_user(tracee: &Tracee, at: u64, value: u64) -> Outcome {
    match checked_offset(at)? {
        at if at < REGISTER_BYTES => change(tracee, |state| state.saved.set((at / WORD) as usize, &[value])),
        DEBUG_REGISTERS.. if value == 0 || at == DEBUG_STATUS => Ok(0),
        _ => Err(Errno::EIO),
    }
}

/// Reads or writes the set of registers `kind`, in the buffer that `at` describes.
fn register_set(tracee: &Tracee, request: u64, kind: u64, at: u64) -> Outcome {
    let mut buffer: IoVec = user::read(at)?;
    if !buffer.len.is_multiple_of(WORD) {
        return Err(Errno::EINVAL);
    }
    let bytes = copy_of(tracee, kind)?;
    buffer.len = buffer.len.min(bytes.len() as u64);
    match request {
        PTRACE_GETREGSET => user::copy_out(buffer.base, prefix(&bytes, buffer.len))?,
        _ => _ = set_copy(tracee, kind, buffer.base, buffer.len)?,
    }
    user::write(at, &buffer)?;
    Ok(0)
}

/// Returns the set of registers `kind`.
///
/// # Errors
/// EINVAL if there is none such, ENODEV if this CPU has none such, ENOMEM.
fn copy_of(tracee: &Tracee, kind: u64) -> Result<Vec<u8>, Errno> {
    tracee.while_stopped(|state| {
        let Saved { fpu, .. } = &mut *state.saved;
        match kind {
            NT_PRSTATUS => {
                let bytes: [u8; REGISTER_BYTES as usize] = zerocopy::transmute!(state.saved.general());
                fallible::copied(&bytes)
            }
            NT_FPREGSET => fallible::copied(fpu.legacy()),
            NT_X86_XSTATE => fallible::copied(fpu.extended().ok_or(Errno::ENODEV)?),
            _ => Err(Errno::EINVAL),
        }
    })
}

/// Sets the set of registers `kind` from the `len` bytes at `at`.
///
/// # Errors
/// EINVAL, EIO for values that the registers cannot have. EFAULT, ENOMEM.
fn set_copy(tracee: &Tracee, kind: u64, at: u64, len: u64) -> Outcome {
    let mut bytes = fallible::zeroes(len as usize)?;
    user::copy_in(prefix_mut(&mut bytes, len), at)?;
    if kind != NT_PRSTATUS {
        let whole = copy_of(tracee, kind)?.len();
        return change(tracee, |state| match bytes.len() == whole {
            true => state.saved.set_fpu(&bytes),
            false => Err(Errno::EINVAL),
        });
    }
    let mut words = fallible::empty(bytes.len() / WORD as usize)?;
    words.extend(
        bytes
            .chunks_exact(WORD as usize)
            .map(|word| word.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte))),
    );
    change(tracee, |state| state.saved.set(0, &words))
}

/// Writes at most `size` bytes about the call at which the tracee has stopped, and returns how many there
/// are.
fn syscall_info(tracee: &Tracee, size: u64, at: u64) -> Outcome {
    const HEAD: u64 = 24;
    let info = tracee.while_stopped(|state| {
        let frame = &state.saved.frame;
        let op = state.call_end();
        let mut info = SyscallInfo {
            op,
            arch: AUDIT_ARCH_X86_64,
            ip: frame.rip,
            sp: frame.rsp,
            ..SyscallInfo::default()
        };
        let result = frame.result();
        let is_error = Errno::from_result(result).is_some();
        info.words = match op {
            PTRACE_SYSCALL_INFO_ENTRY => {
                let [a, b, c, d, e, f] = frame.args();
                [state.saved.general().orig_rax, a, b, c, d, e, f]
            }
            PTRACE_SYSCALL_INFO_EXIT => [result, is_error.into(), 0, 0, 0, 0, 0],
            _ => [0; 7],
        };
        Ok(info)
    })?;
    let len = match info.op {
        PTRACE_SYSCALL_INFO_ENTRY => size_of::<SyscallInfo>() as u64,
        PTRACE_SYSCALL_INFO_EXIT => HEAD + WORD + 1,
        _ => HEAD,
    };
    let bytes: [u8; size_of::<SyscallInfo>()] = zerocopy::transmute!(info);
    user::copy_out(at, prefix(&bytes, size.min(len)))?;
    Ok(len)
}

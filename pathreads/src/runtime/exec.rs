//! `execve`: the new program runs under the runtime, too.
//!
//! The kernel is asked to execute the runtime (`/proc/self/exe`), with the program's path and arguments
//! as its own. The kernel executes all that the runtime could not load as it would: programs with
//! rights of their own (set-user-ID, capabilities), files that cannot be read, other machines, and all
//! that is not executable, so that the error is the kernel's. So is a call that names the program by a
//! descriptor, and all programs while a limit leaves no room for the runtime.
//!
//! Nothing here writes to memory other than the stack: a child of `vfork` shares all of it.

use pathreads::elf::{Headers, PT_INTERP, SCRIPT_HEAD, Script, Segment};

use crate::boot;
use crate::dispatch::Then;
use crate::entry::Frame;
use crate::sys::{self, harmless, nr};
use crate::{isolate, user};

/// The words before the program's arguments.
const PREFIX: usize = 3;

/// The most arguments that are put on the stack. For more, memory is mapped.
const FEW: usize = 256;

/// The most scripts in a row, as in Linux.
pub const SCRIPTS: usize = 5;

/// The runtime, also if its file has gone.
const RUNTIME: &[u8] = b"/proc/self/exe\0";

/// The options by which the runtime is told that it was called from here: with the lazy pool, with the strict
/// one, and with threads in address spaces of their own.
pub const OPTIONS: [&[u8]; 3] = [b"--exec\0", b"--exec-strict\0", b"--exec-isolate\0"];

pub const X_OK: u64 = 1;

/// The first bytes of a file, with its headers. Also the most of an interpreter's path.
pub const HEAD: usize = 1024;

/// Executes the program under the runtime. Returns if it is left to the kernel, with the call in the frame.
pub extern "C" fn prepare(frame: &mut Frame) -> Then {
    let first = if frame.call[0] == nr::EXECVEAT { 1 } else { 0 };
    if boot::is_exe_link(frame.call[first + 1]) {
        frame.call[first + 1] = boot::exe_path();
    }
    let [path, arguments, environment] = [0, 1, 2].map(|index| frame.call[first + index + 1]);
    let is_loadable = arguments != 0 && is_by_path(frame) && can_be_loaded(path, SCRIPTS);
    if is_loadable && has_room(isolate::is_on()) {
        under_runtime(path, arguments, environment, frame.mask);
    }
    Then::Perform
}

/// Returns whether the limits of this process let the runtime load a program. One of data ends the runtime
/// before its first instruction.
pub fn has_room(isolates: bool) -> bool {
    let needed = match isolates {
        false => [(sys::RLIMIT_DATA, 8 << 20), (sys::RLIMIT_NOFILE, 5)],
        true => [(sys::RLIMIT_DATA, 32 << 20), (sys::RLIMIT_NOFILE, 16)],
    };
    needed.into_iter().all(|(kind, least)| sys::limit_of(kind) >= least)
        && (!isolates || sys::limit_of(sys::RLIMIT_AS) >= 128 << 20)
}

/// Returns whether a call names the program by its path alone.
pub fn is_by_path(frame: &Frame) -> bool {
    frame.call[0] != nr::EXECVEAT || (frame.call[1] == sys::AT_FDCWD && frame.call[5] == 0)
}

/// Executes the runtime. Returns if that fails.
fn under_runtime(path: u64, arguments: u64, environment: u64, mask: u64) {
    let mut few = [0; PREFIX + FEW + 1];
    let Some(count) = count(arguments).filter(|count| *count > 0) else { return };
    let length = PREFIX + count + 1;
    if count <= FEW {
        let words = &mut few[..length];
        if fill(words, path, arguments).is_ok() {
            let _ = execute(words, environment, mask);
        }
        return;
    }
    let bytes = length as u64 * 8;
    let Ok(memory) = sys::map_zeroes(bytes) else { return };
    // SAFETY: the memory is new.
    let words = unsafe { core::slice::from_raw_parts_mut(memory as *mut u64, length) };
    if fill(words, path, arguments).is_ok() {
        let _ = execute(words, environment, mask);
    }
    // SAFETY: `words` is not used any more.
    unsafe { sys::munmap(memory, bytes) };
}

/// Returns the number of the program's arguments.
fn count(arguments: u64) -> Option<usize> {
    let mut words = [0_u64; 32];
    let mut count = 0;
    loop {
        // SAFETY: the bytes of these words, and any bytes make words.
        let bytes =
            unsafe { core::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), size_of_val(&words)) };
        let read = user::read_some(arguments + count as u64 * 8, bytes) / 8;
        match words[..read].iter().position(|word| *word == 0) {
            Some(end) => return Some(count + end),
            None if read == 0 => return None,
            None => count += read,
        }
    }
}

/// Makes the runtime's arguments of the program's.
fn fill(words: &mut [u64], path: u64, arguments: u64) -> sys::Result<()> {
    let end = words.len() - 1;
    words[0] = RUNTIME.as_ptr() as u64;
    words[1] = OPTIONS[boot::mode()].as_ptr() as u64;
    words[2] = path;
    user::words_into(arguments, &mut words[PREFIX..end])?;
    words[end] = 0;
    Ok(())
}

/// Executes the runtime with the signals blocked that the program has blocked. The new program inherits them.
fn execute(words: &[u64], environment: u64, mask: u64) -> sys::Result {
    let blocked = sys::set_mask(mask);
    let result = harmless!(nr::EXECVE, RUNTIME.as_ptr() as u64, words.as_ptr() as u64, environment);
    sys::set_mask(blocked);
    result
}

/// Returns whether the runtime can load a program as the kernel would.
pub fn can_be_loaded(path: u64, scripts: usize) -> bool {
    let mut head = [0; HEAD];
    let Ok(file) = harmless!(nr::ACCESS, path, X_OK).and_then(|_| sys::open_to_look(path)) else {
        return false;
    };
    let length = if has_rights(file) { 0 } else { sys::read_at(file, &mut head, 0).unwrap_or(0) };
    let head = &head[..length];
    let can_be = is_known(head, scripts) && has_loadable_interpreter(file, head);
    sys::close(file);
    can_be
}

/// Returns whether a file, by its first bytes, is of a kind that the runtime can load. The interpreter of a
/// script is looked at, and that of a program is not.
pub fn is_known(head: &[u8], scripts: usize) -> bool {
    if let Some(script) = Script::parse(&head[..head.len().min(SCRIPT_HEAD)]) {
        let mut path = [0; SCRIPT_HEAD + 1];
        path[..script.interpreter.len()].copy_from_slice(script.interpreter);
        return scripts > 0 && can_be_loaded(path.as_ptr() as u64, scripts - 1);
    }
    Headers::parse(head).is_some_and(|headers| !headers.takes_runtime_addresses())
}

/// Returns whether a program has no interpreter, or one that the runtime can load as well.
fn has_loadable_interpreter(file: u64, head: &[u8]) -> bool {
    let Some(interpreter) = Headers::parse(head).and_then(|headers| headers.find(PT_INTERP)) else {
        return true;
    };
    with_interpreter(file, head, interpreter, is_loadable_interpreter) == Some(true)
}

#[inline(never)]
fn is_loadable_interpreter(path: u64) -> bool {
    let mut head = [0; HEAD];
    let Ok(file) = harmless!(nr::ACCESS, path, X_OK).and_then(|_| sys::open_to_look(path)) else {
        return false;
    };
    let length = sys::read_at(file, &mut head, 0).unwrap_or(0);
    sys::close(file);
    Headers::parse(&head[..length]).is_some()
}

/// Calls `f` with the path of a program's interpreter, if a zero ends it. It lies in the first bytes of most
/// files.
pub fn with_interpreter<R>(
    file: u64,
    head: &[u8],
    Segment { offset, file_size, .. }: Segment,
    f: impl FnOnce(u64) -> R,
) -> Option<R> {
    let end = offset.checked_add(file_size)?;
    match head.get(offset as usize..end as usize) {
        Some(path) => (path.last() == Some(&0)).then(|| f(path.as_ptr() as u64)),
        None => read_interpreter(file, offset, file_size).map(|path| f(path.as_ptr() as u64)),
    }
}

#[inline(never)]
fn read_interpreter(file: u64, offset: u64, length: u64) -> Option<[u8; HEAD]> {
    let mut path = [0; HEAD];
    let length = usize::try_from(length).ok().filter(|length| *length < HEAD)?;
    let is_read = sys::read_at(file, &mut path[..length], offset) == Ok(length);
    (is_read && path[..length].last() == Some(&0)).then_some(path)
}

/// Returns whether a file is something else than a plain one without rights of its own.
pub fn has_rights(file: u64) -> bool {
    const AT_EMPTY_PATH: u64 = 0x1000;
    const STATX_TYPE_AND_MODE: u64 = 3;
    const PLAIN: u16 = 0o10_0000;
    const KIND: u16 = 0o17_0000;
    const SETUID_SETGID: u16 = 0o6000;
    let mut status = [0_u16; 128];
    let (empty, at) = (c"".as_ptr() as u64, status.as_mut_ptr() as u64);
    if harmless!(nr::STATX, file, empty, AT_EMPTY_PATH, STATX_TYPE_AND_MODE, at).is_err() {
        return true;
    }
    let mode = status[14];
    let name = c"security.capability".as_ptr() as u64;
    mode & KIND != PLAIN || mode & SETUID_SETGID != 0 || harmless!(nr::FGETXATTR, file, name, 0, 0).is_ok()
}

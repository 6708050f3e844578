//! Descriptors: duplicates, flags, pipes, ioctl.

use alloc::sync::Arc;

use abi::Errno;
use abi::file::*;
use abi::terminal::TIOCGPTPEER;

use super::{Call, Outcome, locks};
use crate::fs::content::Content;
use crate::fs::page_cache::{PAGE, PageCache};
use crate::fs::{OpenFile, Opened, pipe as pipes};
use crate::mm::user;
use crate::process::terminal;

pub fn dup(call: &mut Call<'_>) -> Outcome {
    Ok(call.files().add_opened(call.files().opened(call.int(0))?, 0, false)? as u64)
}

pub fn dup2(call: &mut Call<'_>) -> Outcome {
    if call.int(0) == call.int(1) {
        return call.file(0).map(|_| u64::from(call.arg(0) as u32));
    }
    dup_to(call, false)
}

pub fn dup3(call: &mut Call<'_>) -> Outcome {
    let flags = call.arg(2) as u32;
    if call.int(0) == call.int(1) || flags & !O_CLOEXEC != 0 {
        return Err(Errno::EINVAL);
    }
    dup_to(call, flags & O_CLOEXEC != 0)
}

fn dup_to(call: &Call<'_>, close_on_exec: bool) -> Outcome {
    Ok(call.files().put(call.files().opened(call.int(0))?, call.arg(1) as u32 as usize, close_on_exec)?
        as u64)
}

pub fn pipe(call: &mut Call<'_>) -> Outcome {
    make_pipe(call, 0)
}

pub fn pipe2(call: &mut Call<'_>) -> Outcome {
    let flags = call.arg(1) as u32;
    if flags & !(O_CLOEXEC | O_NONBLOCK | O_DIRECT) != 0 {
        return Err(Errno::EINVAL);
    }
    make_pipe(call, flags)
}

fn make_pipe(call: &Call<'_>, flags: u32) -> Outcome {
    let close_on_exec = flags & O_CLOEXEC != 0;
    let [reader, writer] = pipes::new()?;
    let open = |node, flags| Opened::new(OpenFile::new(node, flags)?).ok_or(Errno::EBADF);
    let (reader, writer) = (open(reader, flags | O_RDONLY)?, open(writer, flags | O_WRONLY)?);
    let files = call.files();
    let (from, to) = (files.reserve(0)?, files.reserve(0)?);
    user::write(call.arg(0), &[from.number(), to.number()])?;
    from.fill(reader, close_on_exec);
    to.fill(writer, close_on_exec);
    Ok(0)
}

pub fn fcntl(call: &mut Call<'_>) -> Outcome {
    let (file, argument) = (call.file(0)?, call.arg(2));
    match u64::from(call.arg(1) as u32) {
        F_DUPFD => dup_from(call, false),
        F_DUPFD_CLOEXEC => dup_from(call, true),
        F_GETFD => Ok(u64::from(call.files().close_on_exec(call.int(0))?)),
        F_SETFD => {
            call.files().set_close_on_exec(call.int(0), argument as u32 & FD_CLOEXEC != 0)?;
            Ok(0)
        }
        F_GETFL => Ok(file.flags().into()),
        F_SETFL => {
            file.set_flags(argument as u32);
            Ok(0)
        }
        F_GETLK | F_SETLK | F_SETLKW | F_OFD_GETLK | F_OFD_SETLK | F_OFD_SETLKW => locks::fcntl(call, &file),
        F_SETOWN | F_GETOWN => Ok(0),
        F_GETPIPE_SZ if file.node().kind() == S_IFIFO => Ok(pipes::CAPACITY as u64),
        F_SETPIPE_SZ if file.node().kind() == S_IFIFO => pipe_size(&file, argument),
        F_GETPIPE_SZ | F_SETPIPE_SZ => Err(Errno::EBADF),
        F_GET_SEALS => Ok(pages(&file)?.seals()?.into()),
        F_ADD_SEALS if !file.is_writable() => Err(Errno::EPERM),
        F_ADD_SEALS => {
            pages(&file)?.seal(argument as u32)?;
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}

fn dup_from(call: &Call<'_>, close_on_exec: bool) -> Outcome {
    let lowest = usize::try_from(call.int(2)).map_err(|_| Errno::EINVAL)?;
    if lowest >= call.files().limit() {
        return Err(Errno::EINVAL);
    }
    Ok(call.files().add_opened(call.files().opened(call.int(0))?, lowest, close_on_exec)? as u64)
}

/// Returns the pages of a file that may have seals.
fn pages(file: &OpenFile) -> Result<&Arc<PageCache>, Errno> {
    file.node().content().and_then(Content::pages).ok_or(Errno::EINVAL)
}

/// Handles F_SETPIPE_SZ. The size does not change. A pipe that holds more bytes than the wanted size returns
/// EBUSY.
fn pipe_size(file: &OpenFile, wanted: u64) -> Outcome {
    let wanted = u64::from(wanted as u32).next_multiple_of(PAGE as u64).max(PAGE as u64);
    match file.node().content().map_or(0, |content| content.waiting(0)) {
        _ if wanted > pipes::CAPACITY as u64 => Err(Errno::EPERM),
        waiting if waiting > wanted => Err(Errno::EBUSY),
        _ => Ok(pipes::CAPACITY as u64),
    }
}

/// Sets or clears a flag of an open file, as the number at `at` says.
fn set_flag(file: &OpenFile, flag: u32, at: u64) -> Result<(), Errno> {
    let on: i32 = user::read(at)?;
    file.set_flags(if on != 0 { file.flags() | flag } else { file.flags() & !flag });
    Ok(())
}

pub fn ioctl(call: &mut Call<'_>) -> Outcome {
    let (file, argument) = (call.file(0)?, call.arg(2));
    match u64::from(call.arg(1) as u32) {
        FIONREAD => {
            let content = file.node().content().ok_or(Errno::ENOTTY)?;
            let waiting = content.waiting(*file.position.lock());
            user::write(argument, &(waiting.min(i32::MAX as u64) as i32))?;
        }
        FIONBIO => set_flag(&file, O_NONBLOCK, argument)?,
        // SIGIO is never sent.
        FIOASYNC => set_flag(&file, O_ASYNC, argument)?,
        FIOCLEX => call.files().set_close_on_exec(call.int(0), true)?,
        TIOCGPTPEER => {
            let (opened, flags) = (terminal::open_peer(&file, argument as u32)?, argument as u32);
            terminal::opened(call.task, &opened, flags);
            return Ok(call.files().add(opened, 0, flags & O_CLOEXEC != 0)? as u64);
        }
        FIONCLEX => call.files().set_close_on_exec(call.int(0), false)?,
        request => terminal::control(call.task, &file, request, argument)?,
    }
    Ok(0)
}

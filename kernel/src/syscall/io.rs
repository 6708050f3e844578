//! Reading and writing.

use abi::Errno;
use abi::inotify::{IN_ACCESS, IN_MODIFY};
use abi::signal::SIGPIPE;

use super::transfer::{self, Offset};
use super::{Call, Outcome};
use crate::fs::buffers::Buffers;
use crate::fs::{OpenFile, Transfer, watches};
use crate::process::signal::{self, Origin};
use crate::sched;

pub fn read(call: &mut Call<'_>) -> Outcome {
    let file = call.file_in_use_for(0, Transfer::Read)?;
    input(Buffers::one(call.arg(1), call.arg(2))?, Offset::Current, &file)
}

pub fn write(call: &mut Call<'_>) -> Outcome {
    let file = call.file_in_use_for(0, Transfer::Write)?;
    output(Buffers::one(call.arg(1), call.arg(2))?, Offset::Current, &file)
}

pub fn readv(call: &mut Call<'_>) -> Outcome {
    let file = call.file_in_use_for(0, Transfer::Read)?;
    input(Buffers::many(call.arg(1), call.arg(2))?, Offset::Current, &file)
}

pub fn writev(call: &mut Call<'_>) -> Outcome {
    let file = call.file_in_use_for(0, Transfer::Write)?;
    output(Buffers::many(call.arg(1), call.arg(2))?, Offset::Current, &file)
}

pub fn pread64(call: &mut Call<'_>) -> Outcome {
    let (offset, file) = (offset(call)?, call.file_in_use(0)?);
    input(Buffers::one(call.arg(1), call.arg(2))?, offset, &file)
}

pub fn pwrite64(call: &mut Call<'_>) -> Outcome {
    let (offset, file) = (offset(call)?, call.file_in_use(0)?);
    output(Buffers::one(call.arg(1), call.arg(2))?, offset, &file)
}

pub fn preadv(call: &mut Call<'_>) -> Outcome {
    let (offset, file) = (offset(call)?, call.file_in_use(0)?);
    input(Buffers::many(call.arg(1), call.arg(2))?, offset, &file)
}

pub fn pwritev(call: &mut Call<'_>) -> Outcome {
    let (offset, file) = (offset(call)?, call.file_in_use(0)?);
    output(Buffers::many(call.arg(1), call.arg(2))?, offset, &file)
}

/// Returns the offset in argument 3.
///
/// # Errors
/// EINVAL if it is negative.
fn offset(call: &Call<'_>) -> Result<Offset, Errno> {
    match call.arg(3) {
        at if at > i64::MAX as u64 => Err(Errno::EINVAL),
        at => Ok(Offset::At(at)),
    }
}

fn input(mut buffers: Buffers, offset: Offset, file: &OpenFile) -> Outcome {
    let read = transfer::read(file, &mut buffers, offset)?;
    if read > 0 {
        watches::on_file(file, IN_ACCESS);
    }
    Ok(read as u64)
}

fn output(mut buffers: Buffers, offset: Offset, file: &OpenFile) -> Outcome {
    let written = transfer::write(file, &mut buffers, offset);
    // As on Linux, the end of a socket for messages raises no signal.
    if written == Err(Errno::EPIPE) && file.messages().is_some() {
        return Err(Errno::EPIPE);
    }
    if written.is_ok_and(|written| written > 0) {
        watches::on_file(file, IN_MODIFY);
    }
    raise_sigpipe(written)
}

/// Returns the result of a write, and raises SIGPIPE if that is EPIPE.
pub(super) fn raise_sigpipe(outcome: Result<usize, Errno>) -> Outcome {
    if outcome == Err(Errno::EPIPE) {
        let task = sched::current();
        signal::send_to_thread(task.process(), task.tid(), SIGPIPE, Origin::default())?;
    }
    Ok(outcome? as u64)
}

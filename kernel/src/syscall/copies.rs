//! Copying from file to file inside the kernel: sendfile, copy_file_range.

use abi::Errno;
use abi::file::S_IFREG;
use abi::inotify::{IN_ACCESS, IN_MODIFY};

use super::io::raise_sigpipe;
use super::transfer;
use super::{Call, Outcome};
use crate::fs::content::WriteAt;
use crate::fs::{InUse, rights, watches};
use crate::mm::user;

/// The bytes that one call copies at most. Programs continue after a short copy.
const MOST: u64 = 1 << 20;

/// One end of a copy: a file, and the address where the program keeps the offset, or 0 for the file's own
/// position.
struct End {
    file: InUse,
    offset_at: u64,
}

impl End {
    fn start(&self) -> Result<u64, Errno> {
        match self.offset_at {
            0 => Ok(*self.file.position.lock()),
            at => user::read::<i64>(at)?.try_into().map_err(|_| Errno::EINVAL),
        }
    }

    /// Stores the offset. The position of the file itself is not locked during the copy, which may wait.
    fn finish(&self, start: u64, done: usize) -> Result<(), Errno> {
        let end = start + done as u64;
        match self.offset_at {
            0 => *self.file.position.lock() = end,
            at => user::write(at, &end)?,
        }
        Ok(())
    }

    fn is_stream(&self) -> bool {
        self.file.node().content().is_some_and(|content| content.is_stream())
    }
}

pub fn sendfile(call: &mut Call<'_>) -> Outcome {
    let to = End { file: call.file_in_use(0)?, offset_at: 0 };
    let from = End { file: call.file_in_use(1)?, offset_at: call.arg(2) };
    if from.is_stream() || to.file.appends() {
        return Err(Errno::EINVAL);
    }
    let (start, len) = (from.start()?, call.arg(3));
    if start.checked_add(len).is_none_or(|end| end > i64::MAX as u64) {
        return Err(Errno::EINVAL);
    }
    copy(&from, &to, len)
}

pub fn copy_file_range(call: &mut Call<'_>) -> Outcome {
    let from = End { file: call.file_in_use(0)?, offset_at: call.arg(1) };
    let to = End { file: call.file_in_use(2)?, offset_at: call.arg(3) };
    if to.file.appends() {
        return Err(Errno::EBADF);
    }
    if call.arg(5) != 0 || [&from, &to].iter().any(|end| end.file.node().kind() != S_IFREG) {
        return Err(Errno::EINVAL);
    }
    check_ranges(&from, &to, call.arg(4))?;
    copy(&from, &to, call.arg(4))
}

/// Checks the ranges, as far as the source goes.
///
/// # Errors
/// EOVERFLOW for a range that wraps, EINVAL for two ranges of one file that overlap.
fn check_ranges(from: &End, to: &End, len: u64) -> Result<(), Errno> {
    to.file.writable()?;
    let (source, sink) = (from.start()?, to.start()?);
    if source.max(sink).checked_add(len).is_none() {
        return Err(Errno::EOVERFLOW);
    }
    let len = len.min(from.file.readable()?.len().saturating_sub(source));
    let apart = sink + len <= source || source + len <= sink;
    if apart || !from.file.node().is(to.file.node()) { Ok(()) } else { Err(Errno::EINVAL) }
}

fn copy(from: &End, to: &End, len: u64) -> Outcome {
    let (source, sink) = (from.file.readable()?, to.file.writable()?);
    let len = len.min(MOST) as usize;
    if len > 0 {
        rights::drop_set_ids(to.file.node())?;
    }
    let start = from.start()?;
    let (place, to_start) = match to.is_stream() {
        true => (WriteAt::End, 0),
        false => to.start().map(|at| (WriteAt::Offset(at), at))?,
    };
    let outcome = transfer::copy((source, start), (sink, place), len, to.file.may_wait());
    let done = *outcome.as_ref().unwrap_or(&0);
    from.finish(start, done)?;
    to.finish(to_start, done)?;
    to.file.node().touch();
    if done > 0 {
        watches::on_file(&from.file, IN_ACCESS);
        watches::on_file(&to.file, IN_MODIFY);
    }
    raise_sigpipe(outcome)
}

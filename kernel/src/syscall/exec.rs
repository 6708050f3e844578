//! execve, execveat.

use alloc::vec::Vec;
use core::fmt::Write;

use abi::Errno;
use abi::file::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, S_IFLNK};
use percore::pin;

use super::{Call, Outcome};
use crate::fs::Executable;
use crate::mm::fallible::Text;
use crate::process::{self, Strings};
use crate::sched;

/// Runs another program.
pub fn execve(call: &mut Call<'_>) -> Outcome {
    execute(call, AT_FDCWD, 0, 0)
}

/// Runs another program, which is found from a directory or is an open file.
pub fn execveat(call: &mut Call<'_>) -> Outcome {
    let flags = call.arg(4) as u32;
    if flags & !(AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) != 0 {
        return Err(Errno::EINVAL);
    }
    execute(call, call.int(0), 1, flags)
}

/// Runs the program whose path is argument `path`. The arrays of arguments and environment follow it.
fn execute(call: &Call<'_>, directory: i32, path: usize, flags: u32) -> Outcome {
    run(call, directory, path, flags)?;
    // The task does not belong to a process any more.
    sched::exit()
}

fn run(call: &Call<'_>, directory: i32, path: usize, flags: u32) -> Result<(), Errno> {
    let name = call.path(path)?;
    let is_descriptor = name.is_empty() && flags & AT_EMPTY_PATH != 0;
    let given = given_name(directory, &name)?;
    let file = match is_descriptor {
        true => Executable::open(call.files().borrow(directory)?.counted())?,
        false => find(call, directory, &name, flags & AT_SYMLINK_NOFOLLOW == 0)?,
    };
    let strings = Strings::read(call.arg(path + 1), call.arg(path + 2))?;
    process::exec(call.task, file, &given, strings)
}

fn find(call: &Call<'_>, directory: i32, name: &[u8], follow: bool) -> Result<Executable, Errno> {
    let pin = pin();
    let found = call.find_from(directory, name, &pin, follow)?;
    let is_link = found.existing()?.kind() == S_IFLNK;
    if is_link { Err(Errno::ELOOP) } else { Executable::found(found) }
}

/// Returns the name under which the program is started.
fn given_name(directory: i32, name: &[u8]) -> Result<Vec<u8>, Errno> {
    let mut given = Text::default();
    if directory != AT_FDCWD && !name.starts_with(b"/") {
        let slash = if name.is_empty() { "" } else { "/" };
        write!(given, "/dev/fd/{directory}{slash}").map_err(|_| Errno::ENOMEM)?;
    }
    given.0.try_reserve(name.len()).map_err(|_| Errno::ENOMEM)?;
    given.0.extend_from_slice(name);
    Ok(given.0)
}

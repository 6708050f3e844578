//! execve, execveat.

use abi::Errno;
use abi::file::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, S_IFLNK};

use super::{Call, Outcome};
use crate::fs::fallible::Text;
use crate::process::{self, Strings};
use crate::sched;

/// Runs another program.
pub fn execve(call: &mut Call<'_>) -> Outcome {
    execute(call, AT_FDCWD, 0, 0)
}

/// The same, found from a directory or a descriptor.
pub fn execveat(call: &mut Call<'_>) -> Outcome {
    let flags = call.arg(4) as u32;
    if flags & !(AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) != 0 {
        return Err(Errno::EINVAL);
    }
    execute(call, call.int(0), 1, flags)
}

/// The path is argument `path`; the arrays follow it.
fn execute(call: &Call<'_>, directory: i32, path: usize, flags: u32) -> Outcome {
    run(call, directory, path, flags)?;
    // The task is nobody's any more.
    sched::exit()
}

fn run(call: &Call<'_>, directory: i32, path: usize, flags: u32) -> Result<(), Errno> {
    let name = call.path(path)?;
    let follow = flags & AT_SYMLINK_NOFOLLOW == 0;
    let file = match name.is_empty() && flags & AT_EMPTY_PATH != 0 {
        true => call.files().get(directory)?.node().clone(),
        false => call.find_from(directory, &name, follow)?.existing()?.clone(),
    };
    if file.kind() == S_IFLNK {
        return Err(Errno::ELOOP);
    }
    let strings = Strings::read(call.arg(path + 1), call.arg(path + 2))?;
    process::exec(call.task, file, &told_name(directory, name)?, strings)
}

/// The name under which a program is told that it was started.
fn told_name(directory: i32, name: alloc::vec::Vec<u8>) -> Result<alloc::vec::Vec<u8>, Errno> {
    if directory == AT_FDCWD || name.starts_with(b"/") {
        return Ok(name);
    }
    let mut text = Text::default();
    let slash = if name.is_empty() { "" } else { "/" };
    core::fmt::write(&mut text, format_args!("/dev/fd/{directory}{slash}")).map_err(|_| Errno::ENOMEM)?;
    text.0.try_reserve(name.len()).map_err(|_| Errno::ENOMEM)?;
    text.0.extend_from_slice(&name);
    Ok(text.0)
}

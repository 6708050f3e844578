//! The file of the program that is started, or of its interpreter, with its first bytes.

use abi::Errno;
use pathreads::elf::{Headers, PT_INTERP};

use crate::boot::{PATH, text};
use crate::exec;
use crate::sys::{self, Result, harmless, nr};

/// An open file with its first bytes.
pub struct File {
    /// Its descriptor, or [`sys::NO_FILE`].
    pub number: u64,
    head: [u8; exec::HEAD],
    length: usize,
    /// Whether `/proc` has no other path for it than the one by which it was opened.
    pub is_as_named: bool,
}

impl File {
    pub fn closed() -> Self {
        File { number: sys::NO_FILE, head: [0; exec::HEAD], length: 0, is_as_named: false }
    }

    pub fn head(&self) -> &[u8] {
        &self.head[..self.length]
    }

    /// Opens a file that may be executed.
    pub fn open(&mut self, path: u64) -> Result<()> {
        harmless!(nr::ACCESS, path, exec::X_OK)?;
        let as_named = open_as_named(path);
        self.is_as_named = as_named.is_some();
        self.number = as_named.map_or_else(|| sys::open_to_look(path), Ok)?;
        self.length = sys::read_at(self.number, &mut self.head, 0)?;
        Ok(())
    }

    /// Opens a program. Returns whether the runtime can load it as the kernel would, as far as it is known by
    /// now.
    pub fn open_loadable(&mut self, path: u64) -> bool {
        let is_loadable = self.open(path).is_ok()
            && !exec::has_rights(self.number)
            && exec::is_known(self.head(), exec::SCRIPTS);
        if !is_loadable {
            sys::close(self.number);
        }
        is_loadable
    }

    /// Calls `f` with the path of the program's interpreter, if it has one.
    pub fn with_interpreter<R>(&self, f: impl FnOnce(u64) -> Result<R>) -> Result<Option<R>> {
        let headers = Headers::parse(self.head()).ok_or(Errno::ENOEXEC)?;
        let Some(interpreter) = headers.find(PT_INTERP) else { return Ok(None) };
        let result = exec::with_interpreter(self.number, self.head(), interpreter, f);
        result.unwrap_or(Err(Errno::ENOEXEC)).map(Some)
    }

    pub fn open_interpreter(&self) -> Result<Option<u64>> {
        self.with_interpreter(sys::open_to_look)
    }
}

/// Opens a file if `/proc` has no other path for it: there are no links in it, and no parts to leave out. To
/// ask `/proc` itself takes ten times as long.
fn open_as_named(path: u64) -> Option<u64> {
    const RESOLVE_NO_SYMLINKS: u64 = 4;
    let name = text(path);
    let parts = || name.split(|byte| *byte == b'/');
    let is_plain = name.len() < PATH && name.first() == Some(&b'/');
    if !is_plain || parts().skip(1).any(|part| matches!(part, b"" | b"." | b"..")) {
        return None;
    }
    let how = [sys::O_CLOEXEC | sys::O_NONBLOCK, 0, RESOLVE_NO_SYMLINKS];
    harmless!(nr::OPENAT2, sys::AT_FDCWD, path, how.as_ptr() as u64, size_of_val(&how) as u64).ok()
}

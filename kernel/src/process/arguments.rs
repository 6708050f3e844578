//! Arguments and environment on their way from one program to the next.

use alloc::vec::Vec;

use abi::Errno;

use super::STACK_BYTES;
use crate::fs::bytes::after;
use crate::fs::fallible;
use crate::mm::user;

/// The longest string, its NUL included.
const LONGEST: usize = 128 << 10;
/// Bytes of all strings and the pointers to them.
const MOST: usize = STACK_BYTES as usize / 4;
/// Bytes that a pointer takes.
const POINTER: usize = size_of::<u64>();

/// Strings, each with a NUL, back to back.
#[derive(Debug, Default)]
pub struct Strings {
    /// Arguments.
    pub argv: Vec<u8>,
    /// Environment.
    pub envp: Vec<u8>,
    /// How many there are of both.
    count: usize,
}

impl Strings {
    /// These.
    pub fn new(argv: Vec<u8>, envp: Vec<u8>) -> Self {
        let count = argv.iter().chain(&envp).filter(|&&byte| byte == 0).count();
        Self { argv, envp, count }
    }

    /// Those that the arrays of pointers at `argv` and `envp` lead to; no array is an empty one.
    ///
    /// # Errors
    /// E2BIG, EFAULT, ENOMEM.
    pub fn read(argv: u64, envp: u64) -> Result<Self, Errno> {
        let mut strings = Self::default();
        strings.argv = strings.read_array(argv)?;
        if strings.argv.is_empty() {
            // Programs expect one.
            strings.argv = fallible::zeroes(1)?;
        }
        strings.envp = strings.read_array(envp)?;
        Ok(strings)
    }

    fn read_array(&mut self, at: u64) -> Result<Vec<u8>, Errno> {
        let mut all = Vec::new();
        if at == 0 {
            return Ok(all);
        }
        for index in 0.. {
            let string: u64 = user::read(at.wrapping_add(index * POINTER as u64))?;
            if string == 0 {
                break;
            }
            self.count += 1;
            let string = user::read_cstr(string, LONGEST).map_err(too_long)?;
            append(&mut all, &string)?;
            self.check(all.len())?;
        }
        Ok(all)
    }

    /// E2BIG if there is too much, `more` bytes not counted yet.
    fn check(&self, more: usize) -> Result<(), Errno> {
        let bytes = self.argv.len() + self.envp.len() + more + self.count * POINTER;
        if bytes > MOST { Err(Errno::E2BIG) } else { Ok(()) }
    }

    /// Puts `first` in the place of the first argument.
    ///
    /// # Errors
    /// E2BIG, ENOMEM.
    pub fn replace_first(&mut self, first: &[&[u8]]) -> Result<(), Errno> {
        let end = self.argv.iter().position(|&byte| byte == 0).map_or(0, |nul| nul + 1);
        let mut argv = Vec::new();
        first.iter().try_for_each(|string| append(&mut argv, string))?;
        argv.try_reserve(self.argv.len() - end).map_err(|_| Errno::ENOMEM)?;
        argv.extend_from_slice(after(&self.argv, end));
        self.argv = argv;
        self.count += first.len() - 1;
        self.check(0)
    }
}

fn too_long(error: Errno) -> Errno {
    if error == Errno::ENAMETOOLONG { Errno::E2BIG } else { error }
}

fn append(all: &mut Vec<u8>, string: &[u8]) -> Result<(), Errno> {
    all.try_reserve(string.len() + 1).map_err(|_| Errno::ENOMEM)?;
    all.extend_from_slice(string);
    all.push(0);
    Ok(())
}

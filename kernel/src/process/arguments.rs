//! The arguments and the environment of a program that is started.

use alloc::vec::Vec;

use abi::Errno;

use super::STACK_BYTES;
use crate::bytes::after;
use crate::mm::fallible;
use crate::mm::user;

/// The bytes of the longest string, with its NUL.
const LONGEST: usize = 128 << 10;
/// The bytes of all strings and the pointers to them.
const MOST: usize = STACK_BYTES as usize / 4;
/// The bytes of a pointer.
const POINTER: usize = size_of::<u64>();

/// Strings, each with a NUL, back to back.
#[derive(Debug, Default)]
pub struct Strings {
    /// The arguments.
    pub argv: Vec<u8>,
    /// The environment.
    pub envp: Vec<u8>,
    /// The number of strings in both.
    count: usize,
}

impl Strings {
    /// Creates them from their bytes.
    pub fn new(argv: Vec<u8>, envp: Vec<u8>) -> Self {
        let count = argv.iter().chain(&envp).filter(|&&byte| byte == 0).count();
        Self { argv, envp, count }
    }

    /// Reads the strings that the arrays of pointers at `argv` and `envp` lead to. An address of 0 is an
    /// empty array.
    ///
    /// # Errors
    /// E2BIG, EFAULT, ENOMEM.
    pub fn read(argv: u64, envp: u64) -> Result<Self, Errno> {
        let mut strings = Self::default();
        strings.argv = strings.read_array(argv)?;
        if strings.argv.is_empty() {
            // Programs expect at least one argument.
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

    /// Checks the size of all strings, with `more` bytes that are not counted yet.
    ///
    /// # Errors
    /// E2BIG if it is too large.
    fn check(&self, more: usize) -> Result<(), Errno> {
        let bytes = self.argv.len() + self.envp.len() + more + self.count * POINTER;
        if bytes > MOST { Err(Errno::E2BIG) } else { Ok(()) }
    }

    /// Replaces the first argument by `first`.
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

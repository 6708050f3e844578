//! The devices that every program expects.

use abi::Errno;
use abi::file::S_IFCHR;

use super::content::{Content, WriteAt};
use crate::arch;

/// A character device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// Reads nothing and takes every write.
    Null,
    /// Reads zeroes and takes every write.
    Zero,
    /// Reads zeroes and refuses every write (ENOSPC).
    Full,
    /// Reads random bytes and takes every write.
    Random,
}

impl Content for Device {
    fn kind(&self) -> u32 {
        S_IFCHR
    }

    fn device(&self) -> (u32, u32) {
        match self {
            Self::Null => (1, 3),
            Self::Zero => (1, 5),
            Self::Full => (1, 7),
            Self::Random => (1, 9),
        }
    }

    fn read(&self, _at: u64, into: &mut [u8], _wait: bool) -> Result<usize, Errno> {
        match self {
            Self::Null => return Ok(0),
            Self::Zero | Self::Full => into.fill(0),
            Self::Random => arch::fill_random(into),
        }
        Ok(into.len())
    }

    fn write(&self, _at: WriteAt, from: &[u8], _wait: bool) -> Result<usize, Errno> {
        if *self == Self::Full { Err(Errno::ENOSPC) } else { Ok(from.len()) }
    }
}

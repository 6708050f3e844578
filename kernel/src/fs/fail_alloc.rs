//! `/dev/fail-alloc`, present with the option of that name. Writing `FIRST FAILURES` to it makes the FIRST
//! allocation of the kernel from then on fail, and FAILURES in all (see `mm::fault_injection`). Reading it
//! returns the number of allocations that have failed.

use core::fmt::Write;

use abi::Errno;
use abi::file::S_IFCHR;

use super::content::{Content, WriteAt};
use crate::bytes::{copy_prefix, tail};
use crate::mm::fallible::Text;
use crate::mm::fault_injection;

/// The device.
pub struct FailAlloc;

impl Content for FailAlloc {
    fn kind(&self) -> u32 {
        S_IFCHR
    }

    fn read(&self, at: u64, into: &mut [u8], _wait: bool) -> Result<usize, Errno> {
        let mut text = Text::default();
        writeln!(text, "{}", fault_injection::failed()).map_err(|_| Errno::ENOMEM)?;
        Ok(copy_prefix(into, tail(&text.0, at)))
    }

    fn write(&self, _at: WriteAt, from: &[u8], _wait: bool) -> Result<usize, Errno> {
        let text = core::str::from_utf8(from).map_err(|_| Errno::EINVAL)?;
        let mut numbers = text.split_ascii_whitespace().map(|word| word.parse().map_err(|_| Errno::EINVAL));
        let mut number = || numbers.next().ok_or(Errno::EINVAL)?;
        fault_injection::plan(number()?, number()?);
        Ok(from.len())
    }
}

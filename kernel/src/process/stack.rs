//! The main thread's stack at the start of a program: argc, argv, envp, the auxiliary vector, and the strings
//! that they point to.

use alloc::vec::Vec;

use abi::Errno;
use abi::process::*;
use vm::PAGE_SIZE;

use super::arguments::Strings;
use super::elf::Elf;
use crate::arch;
use crate::mm::fallible;
use crate::users::Credentials;

/// The properties of a program that its auxiliary vector reports.
pub struct AuxInfo<'a> {
    pub elf: &'a Elf<'a>,
    /// The address of its interpreter, or 0.
    pub interpreter_base: u64,
    /// The path by which it was started.
    pub name: &'a [u8],
    /// Its credentials.
    pub credentials: &'a Credentials,
    /// Whether it must be careful with what its caller chose.
    pub is_secure: bool,
}

/// CLOCKS_PER_SEC of `times`.
pub const TICKS_PER_SECOND: u64 = 100;
const PLATFORM: &[u8] = b"x86_64\0";

/// Builds the stack up to `top`. Returns the stack pointer and the bytes from there on.
///
/// ```text
///   sp -> argc | argv.. 0 | envp.. 0 | auxv.. 0 0 | (pad) | random | platform | path | envp | argv <- top
/// ```
///
/// # Errors
/// E2BIG if it fills more than a quarter of the stack, ENOMEM.
pub fn build(top: u64, strings: &Strings, aux: &AuxInfo<'_>) -> Result<(u64, Vec<u8>), Errno> {
    let mut random = [0; 16];
    arch::fill_random(&mut random);
    let parts: [&[u8]; 6] = [&random, PLATFORM, aux.name, b"\0", &strings.envp, &strings.argv];
    let size: usize = parts.iter().map(|part| part.len()).sum();
    let base = top.checked_sub(size as u64).ok_or(Errno::E2BIG)? & !15;
    let [random_at, platform_at, path_at, _, envp_at, argv_at] = addresses(base, &parts);

    let mut words = Words::default();
    words.push(count(&strings.argv))?;
    words.pointers(argv_at, &strings.argv)?;
    words.pointers(envp_at, &strings.envp)?;
    auxv(aux, random_at, platform_at, path_at).into_iter().try_for_each(|word| words.push(word))?;

    let sp = base.saturating_sub(words.0.len() as u64 * 8) & !15;
    if top - sp > super::STACK_BYTES / 4 {
        return Err(Errno::E2BIG);
    }
    let mut bytes = fallible::empty((top - sp) as usize)?;
    words.0.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
    bytes.resize((base - sp) as usize, 0);
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    Ok((sp, bytes))
}

/// Returns the address of each part, the first of which is at `base`.
fn addresses<const N: usize>(base: u64, parts: &[&[u8]; N]) -> [u64; N] {
    let mut next = base;
    parts.map(|part| {
        next += part.len() as u64;
        next - part.len() as u64
    })
}

fn count(strings: &[u8]) -> u64 {
    strings.iter().filter(|&&byte| byte == 0).count() as u64
}

/// Returns the number of words between the stack pointer of a new program and its auxiliary vector.
pub fn words_before_auxv(strings: &Strings) -> u64 {
    // The number of arguments, and the zeroes after both lists.
    3 + count(&strings.argv) + count(&strings.envp)
}

const AUXV_WORDS: usize = 42;
/// The length of the auxiliary vector.
pub const AUXV_BYTES: usize = AUXV_WORDS * 8;

fn auxv(aux: &AuxInfo<'_>, random: u64, platform: u64, path: u64) -> [u64; AUXV_WORDS] {
    let elf = aux.elf;
    let (users, groups) = (aux.credentials.users, aux.credentials.groups);
    let pairs = [
        (AT_PHDR, elf.headers_address()),
        (AT_PHENT, elf.header_size()),
        (AT_PHNUM, elf.header_count.into()),
        (AT_PAGESZ, PAGE_SIZE),
        (AT_BASE, aux.interpreter_base),
        (AT_FLAGS, 0),
        (AT_ENTRY, elf.entry),
        (AT_UID, users.real.into()),
        (AT_EUID, users.effective.into()),
        (AT_GID, groups.real.into()),
        (AT_EGID, groups.effective.into()),
        (AT_SECURE, aux.is_secure.into()),
        (AT_CLKTCK, TICKS_PER_SECOND),
        (AT_HWCAP, arch::hwcap()),
        (AT_HWCAP2, 0),
        (AT_MINSIGSTKSZ, super::signal::min_stack()),
        (AT_RANDOM, random),
        (AT_PLATFORM, platform),
        (AT_EXECFN, path),
        (AT_SYSINFO_EHDR, super::vdso::START),
        (AT_NULL, 0),
    ];
    let mut words = pairs.into_iter().flat_map(|(kind, value)| [kind, value]);
    core::array::from_fn(|_| words.next().unwrap_or_default())
}

/// Words to be written.
#[derive(Default)]
struct Words(Vec<u64>);

impl Words {
    fn push(&mut self, word: u64) -> Result<(), Errno> {
        fallible::push(&mut self.0, word)
    }

    /// Adds the address of each of `strings`, which start at `at`, and a zero.
    fn pointers(&mut self, at: u64, strings: &[u8]) -> Result<(), Errno> {
        let mut start = at;
        for (index, _) in strings.iter().enumerate().filter(|(_, byte)| **byte == 0) {
            self.push(start)?;
            start = at + index as u64 + 1;
        }
        self.push(0)
    }
}

//! A kernel's file, which contains its version (Linux's Documentation/arch/x86/boot.rst, "kernel_version").

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result};

use super::Kernel;

/// The first bytes of a bzImage: the set-up code, with its header and the text of the version.
const SETUP: u64 = 64 << 10;
const MAGIC_AT: usize = 0x202;
const VERSION_AT: usize = 0x20e;

/// Reads a kernel's version from its file.
pub fn read(path: &Path) -> Result<Kernel> {
    let shown = || path.display().to_string();
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(SETUP).read_to_end(&mut bytes)).with_context(shown)?;
    let version = version(&bytes).with_context(|| format!("{}: not a Linux kernel (a bzImage)", shown()))?;
    Ok(Kernel { path: path.to_owned(), version })
}

/// Returns the first word of a text like `6.1.0-44-cloud-amd64 (debian-kernel@lists.debian.org) #1 SMP`.
fn version(bytes: &[u8]) -> Option<String> {
    if bytes.get(MAGIC_AT..MAGIC_AT + 4)? != b"HdrS" {
        return None;
    }
    let pointer = u16::from_le_bytes(bytes.get(VERSION_AT..VERSION_AT + 2)?.try_into().ok()?);
    let text = bytes.get(usize::from(pointer) + 0x200..)?;
    let end = text.iter().position(|byte| *byte <= b' ')?;
    let word = std::str::from_utf8(&text[..end]).ok()?;
    // The version becomes part of file names.
    let good = |c: char| c.is_ascii_alphanumeric() || "._+~-".contains(c);
    (word.starts_with(|c: char| c.is_ascii_digit()) && word.chars().all(good)).then(|| word.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(text: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 0x400];
        bytes[MAGIC_AT..MAGIC_AT + 4].copy_from_slice(b"HdrS");
        bytes[VERSION_AT..VERSION_AT + 2].copy_from_slice(&0x100_u16.to_le_bytes());
        bytes[0x300..0x300 + text.len()].copy_from_slice(text);
        bytes
    }

    #[test]
    fn a_kernel_says_its_version() {
        let bytes = image(b"6.12.9+deb13-amd64 (somebody) #1 SMP");
        assert_eq!(version(&bytes).as_deref(), Some("6.12.9+deb13-amd64"));
    }

    #[test]
    fn an_image_without_a_version_is_no_kernel() {
        assert_eq!(version(b"\x7fELF"), None);
        assert_eq!(version(&image(b"../x #1")), None);
        assert_eq!(version(&image(b"")), None);
        let mut unnamed = image(b"6.1 #1");
        unnamed[MAGIC_AT] = 0;
        assert_eq!(version(&unnamed), None);
        assert_eq!(version(&image(b"6.1 #1")[..0x300]), None);
    }
}

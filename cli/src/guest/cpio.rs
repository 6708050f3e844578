//! A writer of cpio archives in the "newc" format, which boot loaders and kernels understand.

use anyhow::{Context, Result, ensure};

const FILE: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;
const TRAILER: &str = "TRAILER!!!";

/// An archive that is being written.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    /// Adds a directory.
    pub fn directory(&mut self, name: &str) -> Result<()> {
        self.entry(name, DIRECTORY | 0o755, &[])
    }

    /// Adds a file with the given permission bits.
    pub fn file(&mut self, name: &str, permissions: u32, content: &[u8]) -> Result<()> {
        self.entry(name, FILE | (permissions & 0o777), content)
    }

    /// Returns the finished archive.
    pub fn finish(mut self) -> Result<Vec<u8>> {
        self.entry(TRAILER, 0, &[])?;
        Ok(self.bytes)
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) -> Result<()> {
        ensure!(!name.contains('\0'), "a file name holds a NUL byte: {name:?}");
        let size = u32::try_from(content.len()).with_context(|| format!("{name} is over 4 GiB"))?;
        self.entries += 1;
        self.header(&[self.entries, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name.len() as u32 + 1, 0]);
        self.bytes.extend(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
        Ok(())
    }

    /// Writes the magic and thirteen fields: inode, mode, uid, gid, links, mtime, size, four device numbers,
    /// the length of the name with its NUL, and the checksum, which is unused.
    fn header(&mut self, fields: &[u32; 13]) {
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08X}").bytes());
        }
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_is_the_documented_one() {
        let mut archive = Archive::default();
        archive.file("ab", 0o644, b"hello").unwrap();
        let bytes = archive.finish().unwrap();
        assert_eq!(&bytes[..14], b"07070100000001");
        assert_eq!(&bytes[14..22], b"000081A4", "mode");
        assert_eq!(&bytes[54..62], b"00000005", "size");
        assert_eq!(&bytes[94..102], b"00000003", "name with NUL");
        assert_eq!(&bytes[110..116], b"ab\0\0\0\0", "header + name padded to four");
        assert_eq!(&bytes[116..124], b"hello\0\0\0");
        assert!(bytes.len().is_multiple_of(4));
        assert!(bytes.windows(10).any(|w| w == TRAILER.as_bytes()));
    }

    #[test]
    fn names_with_nul_are_refused() {
        assert!(Archive::default().directory("a\0b").is_err());
    }
}

//! Files of a folder that cannot be copied into the guest, counted by kind.

use std::collections::BTreeMap;
use std::fs::FileType;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// The number of files of each kind, and the path of the first.
#[derive(Debug, Default)]
pub struct Skipped(BTreeMap<&'static str, (usize, PathBuf)>);

impl Skipped {
    /// Counts a file.
    pub fn note(&mut self, path: &Path, kind: FileType) {
        let (count, _) = self.0.entry(name(kind)).or_insert_with(|| (0, path.to_owned()));
        *count += 1;
    }

    /// Returns a sentence about them, if there are any.
    pub fn sentence(&self) -> Option<String> {
        let kinds = self.0.iter().map(|(kind, (count, first))| match count {
            1 => format!("1 {kind} ({})", first.display()),
            count => format!("{count} {kind}s (first {})", first.display()),
        });
        let kinds: Vec<String> = kinds.collect();
        (!kinds.is_empty()).then(|| format!("skipped {}", kinds.join(", ")))
    }
}

fn name(kind: FileType) -> &'static str {
    match kind {
        kind if kind.is_symlink() => "dangling link",
        kind if kind.is_fifo() => "named pipe",
        kind if kind.is_socket() => "socket",
        _ => "device",
    }
}

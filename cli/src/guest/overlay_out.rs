//! `--overlay-out FILE`: the changes that the program made to the host's files, which stayed in the guest, as
//! a tar archive. Removed names are marked as in the layers of container images.
//!
//! The guest writes an archive in cpio's format to a folder of its own when it ends, which becomes one of tar
//! here.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufWriter, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use abi::cpio::{self, Entry};
use anyhow::{Context, Result, bail};
use tar::{Builder, EntryType, Header};
use tempfile::TempDir;

/// The name of the guest's archive in its folder.
const CHANGES: &str = "changes";
/// The bits of a mode that are the type of a file.
const TYPE: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const LINK: u32 = 0o120_000;

/// An archive that is to be made. Its file is there, so that nothing else is made under that name, and is
/// removed if the archive is not finished.
pub struct OverlayOut {
    path: PathBuf,
    file: Option<fs::File>,
    folder: TempDir,
}

impl OverlayOut {
    /// Creates the file, and the folder for the guest.
    ///
    /// # Errors
    /// If the file is there or cannot be created.
    pub fn create(path: &Path) -> Result<Self> {
        let file = match fs::File::create_new(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                bail!("--overlay-out {}: there is a file of this name, which is not replaced", path.display())
            }
            Err(error) => return Err(error).with_context(|| format!("--overlay-out {}", path.display())),
        };
        let folder = tempfile::tempdir();
        let folder = folder.inspect_err(|_| _ = fs::remove_file(path)).context("a folder for the guest")?;
        Ok(Self { path: path.to_owned(), file: Some(file), folder })
    }

    /// Returns the folder that the guest writes to.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Makes the archive of what the guest has written.
    ///
    /// # Errors
    /// If the guest has not finished it, or the file cannot be written.
    pub fn finish(mut self) -> Result<()> {
        let told = || format!("--overlay-out {}", self.path.display());
        let changes = match fs::read(self.folder().join(CHANGES)) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                bail!("{}: the guest ended before it wrote its changes", told())
            }
            read => read.with_context(told)?,
        };
        let Some(file) = &self.file else { bail!("{}: it is finished", told()) };
        let mut out = BufWriter::new(file);
        convert(&changes, &mut out).and_then(|()| Ok(out.flush()?)).with_context(told)?;
        drop(out);
        self.file = None;
        Ok(())
    }
}

impl Drop for OverlayOut {
    fn drop(&mut self) {
        if self.file.is_some() {
            let _gone = fs::remove_file(&self.path);
        }
    }
}

/// Writes the entries of an archive of cpio to one of tar. All belong to the user of the command.
fn convert(changes: &[u8], out: &mut dyn Write) -> Result<()> {
    let (mut archive, mut linked) = (Builder::new(out), HashMap::<u32, PathBuf>::new());
    for entry in cpio::entries(changes) {
        let entry = entry.context("the guest's archive is damaged")?;
        let path = Path::new(OsStr::from_bytes(entry.name));
        match linked.get(&entry.ino).filter(|_| entry.links > 1) {
            Some(first) => archive.append_link(&mut header(&entry, EntryType::Link), path, first)?,
            None => add(&mut archive, &entry, path)?,
        }
        if entry.links > 1 {
            linked.entry(entry.ino).or_insert_with(|| path.to_owned());
        }
    }
    archive.finish()?;
    Ok(())
}

fn add(archive: &mut Builder<&mut dyn Write>, entry: &Entry<'_>, path: &Path) -> Result<()> {
    match entry.mode & TYPE {
        LINK => {
            let target = Path::new(OsStr::from_bytes(entry.data));
            archive.append_link(&mut header(entry, EntryType::Symlink), path, target)?;
        }
        DIRECTORY => archive.append_data(&mut header(entry, EntryType::Directory), path, &[][..])?,
        _ => {
            let mut header = header(entry, EntryType::Regular);
            header.set_size(entry.data.len() as u64);
            archive.append_data(&mut header, path, entry.data)?;
        }
    }
    Ok(())
}

fn header(entry: &Entry<'_>, kind: EntryType) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(entry.mode & 0o7777);
    header.set_mtime(entry.mtime.into());
    header.set_uid(rustix::process::getuid().as_raw().into());
    header.set_gid(rustix::process::getgid().as_raw().into());
    header.set_size(0);
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::cpio::Archive;

    /// Returns the path and type of each entry of a finished archive.
    fn entries(path: &Path) -> Vec<(String, EntryType)> {
        let mut archive = tar::Archive::new(fs::File::open(path).unwrap());
        let entries = archive.entries().unwrap().map(Result::unwrap);
        entries
            .map(|entry| (entry.path().unwrap().display().to_string(), entry.header().entry_type()))
            .collect()
    }

    #[test]
    fn entries_become_those_of_tar() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.tar");
        let long = "directory/".to_owned() + &"x".repeat(200);
        let mut changes = Archive::default();
        changes.directory("directory").unwrap();
        changes.file(&long, 0o640, b"text").unwrap();
        let out = OverlayOut::create(&path).unwrap();
        fs::write(out.folder().join(CHANGES), changes.finish().unwrap()).unwrap();
        out.finish().unwrap();
        let wanted = [("directory".to_owned(), EntryType::Directory), (long, EntryType::Regular)];
        assert_eq!(entries(&path), wanted);
    }

    #[test]
    fn an_archive_that_was_not_finished_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.tar");
        let error = OverlayOut::create(&path).unwrap().finish().unwrap_err().to_string();
        assert!(error.contains("before it wrote"), "{error}");
        let mut changes = Archive::default();
        changes.file("a", 0o640, b"text").unwrap();
        let out = OverlayOut::create(&path).unwrap();
        let whole = changes.finish().unwrap();
        fs::write(out.folder().join(CHANGES), &whole[..whole.len() - 20]).unwrap();
        let error = format!("{:#}", out.finish().unwrap_err());
        assert!(error.contains("damaged") && !path.exists(), "{error}");
    }

    #[test]
    fn no_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.tar");
        fs::write(&path, "mine").unwrap();
        let error = OverlayOut::create(&path).err().unwrap().to_string();
        assert!(error.contains("is not replaced"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        let error = format!("{:#}", OverlayOut::create(&folder.path().join("no/out.tar")).err().unwrap());
        assert!(error.contains("No such file"), "{error}");
    }
}

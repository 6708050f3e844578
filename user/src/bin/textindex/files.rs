//! The files to index: those named, and all below the folders named.

use std::fs::{DirEntry, metadata, read_dir};
use std::io;
use std::path::{Path, PathBuf};

/// Returns the files in an order that depends on their names alone. Links within folders count if they lead
/// to files, since `--file` puts into the guest the file that a link leads to. Links to folders might lead
/// round in a circle.
pub fn list(paths: &[String]) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths.iter().map(Path::new) {
        let folder = metadata(path).map_err(|error| named(path, error))?.is_dir();
        if folder { walk(path, &mut files)? } else { files.push(path.to_owned()) }
    }
    Ok(files)
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut entries = entries(folder).map_err(|error| named(folder, error))?;
    entries.sort_by_key(DirEntry::file_name);
    for entry in entries {
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_dir() {
            walk(&path, files)?;
        } else if kind.is_file() || kind.is_symlink() && path.is_file() {
            files.push(path);
        }
    }
    Ok(())
}

fn entries(folder: &Path) -> io::Result<Vec<DirEntry>> {
    read_dir(folder)?.collect()
}

/// Returns the same error, with the path it is about.
pub fn named(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_walked_in_the_order_of_names() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/bin/textindex").to_string();
        let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml").to_string();
        let files = list(&[readme.clone(), folder.clone()]).unwrap();
        let names = ["files.rs", "index.rs", "main.rs", "stream.rs"].map(|name| format!("{folder}/{name}"));
        assert_eq!(files[0], Path::new(&readme));
        assert!(files[1..].iter().map(|file| file.to_str().unwrap()).eq(names));
    }

    #[test]
    fn links_to_files_count() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/refcache");
        let link = Path::new(folder).join("LICENSE-MIT");
        assert!(link.is_symlink());
        assert!(list(&[folder.to_string()]).unwrap().contains(&link));
    }

    #[test]
    fn missing_things_are_named() {
        assert!(list(&["/no/such".to_string()]).unwrap_err().to_string().contains("/no/such"));
    }
}

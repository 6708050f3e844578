//! The boot image: what the guest finds when it comes up.
//!
//! `.radixvm/argv` and `.radixvm/envp` hold NUL-terminated strings back to back, `.radixvm/program` the path of the
//! program; everything else is a file that the program sees under `/`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::cpio::Archive;

/// A file or folder handed over to the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handed {
    /// On this machine.
    pub host: PathBuf,
    /// In the guest, without the leading slash.
    pub guest: String,
}

impl Handed {
    /// Reads `HOST[:GUEST]`. Without GUEST the path stays the same; a relative one counts from `/`, the program's
    /// current directory.
    pub fn parse(text: &str) -> Result<Self> {
        let (host, guest) = match text.rsplit_once(':') {
            Some((host, guest)) if !Path::new(text).exists() => (host, guest),
            _ => (text, text),
        };
        ensure!(!host.is_empty() && !guest.is_empty(), "--file {text}: a path is empty");
        Ok(Handed { host: host.into(), guest: normal(guest)? })
    }
}

/// A guest path without `.`, doubled slashes and the leading slash.
fn normal(path: &str) -> Result<String> {
    let mut parts = Vec::new();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(part) => parts.push(part.to_str().context("a guest path is not UTF-8")?),
            Component::RootDir | Component::CurDir => {}
            _ => bail!("{path}: say where it goes in the guest, as in --file {path}:/data"),
        }
    }
    Ok(parts.join("/"))
}

enum Entry {
    Directory,
    File { permissions: u32, content: Vec<u8> },
}

/// The tree that becomes the image. Sorted by path, so that every folder comes before what is in it.
#[derive(Default)]
pub struct Tree(BTreeMap<String, Entry>);

impl Tree {
    /// Adds a file and the folders above it.
    pub fn file(&mut self, path: &str, permissions: u32, content: Vec<u8>) -> Result<()> {
        self.folders_above(path)?;
        let old = self.0.insert(path.to_owned(), Entry::File { permissions, content });
        ensure!(old.is_none(), "two files want to be /{path} in the guest");
        Ok(())
    }

    /// The three files that tell a guest what to run.
    pub fn command(&mut self, program: &str, argv: &[OsString], envp: &[OsString]) -> Result<()> {
        self.file(".radixvm/program", 0o444, program.as_bytes().to_vec())?;
        self.file(".radixvm/argv", 0o444, strings(argv))?;
        self.file(".radixvm/envp", 0o444, strings(envp))
    }

    /// Adds a file or, with everything below it, a folder of this machine.
    pub fn hand_over(&mut self, handed: &Handed) -> Result<()> {
        let named = || format!("--file {}", handed.host.display());
        let metadata = fs::metadata(&handed.host).with_context(named)?;
        if metadata.is_dir() {
            return self.folder(&handed.host, &handed.guest, 0).with_context(named);
        }
        ensure!(metadata.is_file(), "--file {}: neither a file nor a folder", handed.host.display());
        let content = fs::read(&handed.host).with_context(named)?;
        self.file(&handed.guest, metadata.permissions().mode(), content)
    }

    fn folder(&mut self, host: &Path, guest: &str, depth: usize) -> Result<()> {
        ensure!(depth < 64, "{} is nested too deeply: a link to itself?", host.display());
        if !guest.is_empty() {
            self.folders_above(&format!("{guest}/"))?;
        }
        for entry in fs::read_dir(host).with_context(|| host.display().to_string())? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            let name = name.with_context(|| format!("{}: the name is not UTF-8", path.display()))?;
            self.child(&path, &format!("{guest}/{name}"), depth)?;
        }
        Ok(())
    }

    /// Links are followed; sockets, devices and dangling links are left out.
    fn child(&mut self, host: &Path, guest: &str, depth: usize) -> Result<()> {
        let guest = guest.trim_start_matches('/');
        match fs::metadata(host) {
            Ok(metadata) if metadata.is_dir() => self.folder(host, guest, depth + 1),
            Ok(metadata) if metadata.is_file() => {
                let content = fs::read(host).with_context(|| host.display().to_string())?;
                self.file(guest, metadata.permissions().mode(), content)
            }
            _ => Ok(()),
        }
    }

    fn folders_above(&mut self, path: &str) -> Result<()> {
        for (at, _) in path.match_indices('/') {
            let entry = self.0.entry(path[..at].to_owned()).or_insert(Entry::Directory);
            ensure!(
                matches!(entry, Entry::Directory),
                "/{} is a file and a folder in the guest",
                &path[..at]
            );
        }
        Ok(())
    }

    /// The image's bytes.
    pub fn pack(&self) -> Result<Vec<u8>> {
        let mut archive = Archive::default();
        for (path, entry) in &self.0 {
            match entry {
                Entry::Directory => archive.directory(path)?,
                Entry::File { permissions, content } => archive.file(path, *permissions, content)?,
            }
        }
        archive.finish()
    }
}

fn strings(words: &[OsString]) -> Vec<u8> {
    words.iter().flat_map(|word| [word.as_bytes(), &[0]].concat()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (String, String) {
        let handed = Handed::parse(text).unwrap();
        (handed.host.display().to_string(), handed.guest)
    }

    #[test]
    fn guest_paths_follow_the_host_unless_told() {
        assert_eq!(parsed("/usr/x.txt"), ("/usr/x.txt".into(), "usr/x.txt".into()));
        assert_eq!(parsed("./data/x"), ("./data/x".into(), "data/x".into()));
        assert_eq!(parsed("../x:/in//y/"), ("../x".into(), "in/y".into()));
        assert!(Handed::parse("../x").is_err());
        assert!(Handed::parse("x:").is_err());
    }

    #[test]
    fn folders_come_before_their_files_and_clashes_are_named() {
        let mut tree = Tree::default();
        tree.file("a/b/c", 0o644, vec![]).unwrap();
        assert_eq!(tree.0.keys().collect::<Vec<_>>(), ["a", "a/b", "a/b/c"]);
        assert!(tree.file("a/b/c", 0o644, vec![]).unwrap_err().to_string().contains("/a/b/c"));
        assert!(tree.file("a/b/c/d", 0o644, vec![]).is_err());
    }

    #[test]
    fn a_missing_file_is_named() {
        let handed = Handed::parse("/no/such/file").unwrap();
        let error = Tree::default().hand_over(&handed).unwrap_err();
        assert!(format!("{error:#}").contains("/no/such/file"), "{error:#}");
    }

    #[test]
    fn folders_are_handed_over_whole() {
        let mut tree = Tree::default();
        let handed = Handed { host: concat!(env!("CARGO_MANIFEST_DIR"), "/src").into(), guest: "in".into() };
        tree.hand_over(&handed).unwrap();
        assert!(matches!(tree.0["in/guest/image.rs"], Entry::File { .. }));
        assert!(matches!(tree.0["in/guest"], Entry::Directory));
    }

    #[test]
    fn strings_end_with_nul() {
        assert_eq!(strings(&["a".into(), OsString::new(), "b".into()]), b"a\0\0b\0");
    }
}

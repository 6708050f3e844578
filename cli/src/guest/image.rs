//! The boot image: the files that the guest finds when it starts.
//!
//! `.radixvm/argv` and `.radixvm/envp` contain NUL-terminated strings back to back, and `.radixvm/program`
//! the path of the program. `.radixvm/directory` and `.radixvm/umask` are those that it starts with, if they
//! are there. Every other file is one that the program sees under `/`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::cpio::Archive;
use super::file_arg::FileArg;
use super::mount_arg::MountArg;
use super::skipped::Skipped;

/// Folders that a guest fills itself. On stock Linux they hide the image's files there.
const GUESTS_OWN: [&str; 4] = ["dev", "proc", "sys", ".radixvm"];
/// A folder that every guest has.
const TEMPORARY: &str = "tmp";

enum Entry {
    Directory,
    File { permissions: u32, content: Vec<u8> },
}

/// The tree that becomes the image, sorted by path so that every folder comes before its contents.
#[derive(Default)]
pub struct Tree(BTreeMap<String, Entry>);

impl Tree {
    /// Adds a file and the folders above it.
    pub fn file(&mut self, path: &str, permissions: u32, content: Vec<u8>) -> Result<()> {
        ensure!(path != TEMPORARY && !path.is_empty(), "{}", is_a_folder(path));
        self.folders_above(path)?;
        match self.0.get(path) {
            Some(Entry::Directory) => bail!("{}", is_a_folder(path)),
            Some(Entry::File { .. }) => bail!("two files for /{path} in the guest"),
            None => drop(self.0.insert(path.to_owned(), Entry::File { permissions, content })),
        }
        Ok(())
    }

    /// Returns whether there is a file or folder at `path`.
    pub fn has(&self, path: &str) -> bool {
        self.0.contains_key(path)
    }

    /// Adds a seed for the guest's random numbers, which may have no other source.
    pub fn seed(&mut self) -> Result<()> {
        let mut bytes = Vec::new();
        fs::File::open("/dev/urandom")?.take(64).read_to_end(&mut bytes)?;
        self.file(".radixvm/seed", 0o400, bytes)
    }

    /// Adds the three files that tell a guest which program to run.
    pub fn command(&mut self, program: &str, argv: &[OsString], envp: &[OsString]) -> Result<()> {
        self.file(".radixvm/program", 0o444, program.as_bytes().to_vec())?;
        self.file(".radixvm/argv", 0o444, strings(argv))?;
        self.file(".radixvm/envp", 0o444, strings(envp))
    }

    /// Adds the current directory and the umask of this process, which the program is to have too.
    pub fn like_here(&mut self) -> Result<()> {
        let directory = std::env::current_dir().context("the current directory")?;
        refuse_guests_own(&directory)?;
        self.file(".radixvm/directory", 0o444, directory.into_os_string().into_vec())?;
        let status = fs::read_to_string("/proc/self/status")?;
        let umask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
        self.file(".radixvm/umask", 0o444, umask.unwrap_or("022").trim().as_bytes().to_vec())
    }

    /// Adds the places of directories that the guest may change.
    pub fn mounts(&mut self, mounts: &[MountArg]) -> Result<()> {
        if mounts.is_empty() {
            return Ok(());
        }
        let paths: Vec<OsString> = mounts.iter().map(|mount| mount.guest.clone().into()).collect();
        self.file(".radixvm/mounts", 0o444, strings(&paths))
    }

    /// Adds a file of the host, or a folder with everything below it. Returns the files that were skipped.
    pub fn add_file_arg(&mut self, file_arg: &FileArg) -> Result<Skipped> {
        let mut skipped = Skipped::default();
        self.add_file_arg_to(file_arg, &mut skipped)
            .with_context(|| format!("--file {}", file_arg.host.display()))?;
        Ok(skipped)
    }

    fn add_file_arg_to(&mut self, file_arg: &FileArg, skipped: &mut Skipped) -> Result<()> {
        let metadata = fs::metadata(&file_arg.host)?;
        if metadata.is_dir() {
            return self.folder(&file_arg.host, &file_arg.guest, 0, skipped);
        }
        ensure!(metadata.is_file(), "neither a file nor a folder");
        self.copy(&file_arg.host, &file_arg.guest, metadata.permissions().mode())
    }

    /// Returns the bytes of all files.
    pub fn bytes(&self) -> u64 {
        let content =
            |entry: &Entry| if let Entry::File { content, .. } = entry { content.len() as u64 } else { 0 };
        self.0.values().map(content).sum()
    }

    /// Takes the contents of files that have at least `least` bytes: path, permissions, content. Empty files
    /// stay in the tree.
    pub fn take_large(&mut self, least: usize) -> Vec<(String, u32, Vec<u8>)> {
        let large = |(path, entry): (&String, &mut Entry)| match entry {
            Entry::File { permissions, content } if content.len() >= least => {
                Some((path.clone(), *permissions, std::mem::take(content)))
            }
            _ => None,
        };
        self.0.iter_mut().filter_map(large).collect()
    }

    fn copy(&mut self, host: &Path, guest: &str, permissions: u32) -> Result<()> {
        let first = guest.split('/').next().unwrap_or_default();
        ensure!(
            !GUESTS_OWN.contains(&first),
            "/{guest}: /{first} is the guest's own, and nothing can be copied there"
        );
        let content = fs::read(host).with_context(|| host.display().to_string())?;
        self.file(guest, permissions, content)
    }

    fn folder(&mut self, host: &Path, guest: &str, depth: usize, skipped: &mut Skipped) -> Result<()> {
        ensure!(depth < 64, "{} is nested too deeply: a link to itself?", host.display());
        if !guest.is_empty() {
            self.folders_above(&format!("{guest}/"))?;
        }
        for entry in fs::read_dir(host).with_context(|| host.display().to_string())? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            let name = name.with_context(|| format!("{}: the name is not UTF-8", path.display()))?;
            self.child(&path, format!("{guest}/{name}").trim_start_matches('/'), depth, skipped)?;
        }
        Ok(())
    }

    fn child(&mut self, host: &Path, guest: &str, depth: usize, skipped: &mut Skipped) -> Result<()> {
        let metadata = followed(host).with_context(|| host.display().to_string())?;
        if metadata.is_dir() {
            return self.folder(host, guest, depth + 1, skipped);
        }
        if metadata.is_file() {
            return self.copy(host, guest, metadata.permissions().mode());
        }
        skipped.note(host, metadata.file_type());
        Ok(())
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

    /// Returns the image's bytes.
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

/// Returns the metadata of a link's target, or of the link itself if it has no target.
fn followed(path: &Path) -> io::Result<Metadata> {
    fs::metadata(path)
        .or_else(|error| fs::symlink_metadata(path).ok().filter(Metadata::is_symlink).ok_or(error))
}

/// Refuses a path of this machine that the guest's own folders hide.
pub fn refuse_guests_own(path: &Path) -> Result<()> {
    let first = path.components().nth(1).map(|part| part.as_os_str().to_string_lossy().into_owned());
    let hidden = first.filter(|first| GUESTS_OWN.contains(&first.as_str()));
    match hidden {
        Some(first) => {
            bail!("{}: /{first} is the guest's own, and the program would not find it", path.display())
        }
        None => Ok(()),
    }
}

fn is_a_folder(path: &str) -> String {
    let slash = if path.is_empty() { "" } else { "/" };
    format!("/{path} is a folder in the guest: to copy something into it, give /{path}{slash}")
}

fn strings(words: &[OsString]) -> Vec<u8> {
    words.iter().flat_map(|word| [word.as_bytes(), &[0]].concat()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let file_arg = FileArg::parse("/no/such/file").unwrap();
        let error = Tree::default().add_file_arg(&file_arg).unwrap_err();
        assert!(format!("{error:#}").contains("/no/such/file"), "{error:#}");
    }

    #[test]
    fn folders_are_handed_over_whole() {
        let mut tree = Tree::default();
        let file_arg =
            FileArg { host: concat!(env!("CARGO_MANIFEST_DIR"), "/src").into(), guest: "in".into() };
        tree.add_file_arg(&file_arg).unwrap();
        assert!(matches!(tree.0["in/guest/image.rs"], Entry::File { .. }));
        assert!(matches!(tree.0["in/guest"], Entry::Directory));
    }

    #[test]
    fn taken_paths_are_refused() {
        let mut tree = Tree::default();
        tree.file("bin/program", 0o755, vec![]).unwrap();
        let mut refused = |guest: &str| {
            let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
            let error = tree.add_file_arg(&FileArg { host: file.into(), guest: guest.into() }).unwrap_err();
            format!("{error:#}")
        };
        for own in ["dev/null", "dev", "proc/self/maps", "sys/x", ".radixvm/argv"] {
            assert!(refused(own).contains("guest's own"), "{own}");
        }
        for folder in ["tmp", "bin"] {
            let why = refused(folder);
            assert!(
                why.ends_with(&format!(
                    "is a folder in the guest: to copy something into it, give /{folder}/"
                )),
                "{why}"
            );
        }
        assert!(refused("bin/program").contains("two files for /bin/program"));
        assert!(refused("bin/program/x").contains("is a file and a folder"));
        let whole = FileArg { host: concat!(env!("CARGO_MANIFEST_DIR"), "/src").into(), guest: "tmp".into() };
        assert!(tree.add_file_arg(&whole).unwrap().sentence().is_none());
    }

    #[test]
    fn skipped_files_are_reported() {
        let kept = tempfile::tempdir().unwrap();
        let folder = kept.path();
        fs::create_dir(folder.join("in")).unwrap();
        fs::write(folder.join("file"), "text").unwrap();
        let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, folder.join(name)).unwrap();
        link("file", "good");
        link("nowhere", "dangling");
        link("circle", "in/circle");
        let _socket = std::os::unix::net::UnixListener::bind(folder.join("socket")).unwrap();
        let mut tree = Tree::default();
        let skipped = tree.add_file_arg(&FileArg { host: folder.into(), guest: "in".into() }).unwrap();
        let told = skipped.sentence().unwrap();
        assert!(told.contains("2 dangling links (first ") && told.contains("1 socket ("), "{told}");
        assert!(matches!(tree.0["in/good"], Entry::File { .. }));
        assert_eq!(tree.0.len(), 4, "in, in/in and two files");
    }

    #[test]
    fn paths_that_the_guest_hides_are_refused() {
        for (path, is_hidden) in [
            ("/dev/shm/x", true),
            ("/proc", true),
            ("/sys/x", true),
            ("/devices/x", false),
            ("/home/dev", false),
            ("/", false),
        ] {
            assert_eq!(refuse_guests_own(Path::new(path)).is_err(), is_hidden, "{path}");
        }
    }

    #[test]
    fn a_program_starts_as_this_one() {
        let mut tree = Tree::default();
        tree.like_here().unwrap();
        let content = |path: &str| match &tree.0[path] {
            Entry::File { content, .. } => String::from_utf8(content.clone()).unwrap(),
            Entry::Directory => panic!("{path} is a folder"),
        };
        assert_eq!(Path::new(&content(".radixvm/directory")), std::env::current_dir().unwrap());
        assert!(u32::from_str_radix(&content(".radixvm/umask"), 8).unwrap() <= 0o777);
    }

    #[test]
    fn strings_end_with_nul() {
        assert_eq!(strings(&["a".into(), OsString::new(), "b".into()]), b"a\0\0b\0");
    }

    #[test]
    fn large_files_leave_their_names() {
        let mut tree = Tree::default();
        tree.file("a/small", 0o644, vec![1; 9]).unwrap();
        tree.file("a/large", 0o755, vec![2; 10]).unwrap();
        assert_eq!(tree.bytes(), 19);
        assert_eq!(tree.take_large(10), [("a/large".to_owned(), 0o755, vec![2; 10])]);
        assert_eq!(tree.bytes(), 9);
        assert!(tree.file("a/large", 0o644, vec![]).is_err());
        assert!(tree.take_large(10).is_empty());
    }
}

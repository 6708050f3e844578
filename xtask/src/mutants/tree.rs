//! A copy of the repository in which mutants are built, so that the working tree stays as it is.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::root;
use crate::shell::{cargo, target_dir};

/// The copy.
pub struct Tree(PathBuf);

impl Tree {
    /// Makes the copy, or makes it equal to the working tree again. Files that are equal already keep their
    /// times, so that their build outputs stay valid.
    pub fn update() -> Result<Self> {
        let tree = Tree(target_dir("mutants").join("tree"));
        let files = working_files()?;
        tree.remove_others(&tree.0, &files)?;
        for file in &files {
            tree.write(file, &fs::read(root().join(file))?)?;
        }
        Ok(tree)
    }

    /// Returns a command that runs cargo in the copy with these flags for rustc. Its build outputs are kept
    /// beside the copy, in a folder for these flags.
    pub fn cargo(&self, words: &str, flags: &str) -> Command {
        let mut command = cargo(words);
        let folder = format!("build-{}", flags.replace("--cfg ", "").replace(' ', "-"));
        command.current_dir(&self.0).arg("--target-dir").arg(target_dir("mutants").join(folder));
        command.env("RUSTFLAGS", flags);
        command
    }

    /// Puts `text` into a file until the guard is dropped.
    pub fn replace<'a>(&'a self, file: &'a Path, original: &'a str, text: &str) -> Result<Replaced<'a>> {
        self.write(file, text.as_bytes())?;
        Ok(Replaced { tree: self, file, original })
    }

    /// Writes a file, unless it has this content.
    pub fn write(&self, file: &Path, content: &[u8]) -> Result<()> {
        let path = self.0.join(file);
        if fs::read(&path).is_ok_and(|now| now == content) {
            return Ok(());
        }
        fs::create_dir_all(path.parent().context("a file lies in a folder")?)?;
        fs::write(&path, content).with_context(|| path.display().to_string())
    }

    fn remove_others(&self, folder: &Path, files: &BTreeSet<PathBuf>) -> Result<()> {
        let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                self.remove_others(&path, files)?;
            } else if !files.contains(path.strip_prefix(&self.0)?) {
                fs::remove_file(&path)?;
            }
        }
        Ok(())
    }
}

/// Keeps a file mutated until it is dropped.
pub struct Replaced<'a> {
    tree: &'a Tree,
    file: &'a Path,
    original: &'a str,
}

impl Drop for Replaced<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.tree.write(self.file, self.original.as_bytes()) {
            eprintln!("xtask: {} stays mutated in the copy: {error:#}", self.file.display());
        }
    }
}

/// Returns the files that git tracks, or would track, relative to the root.
fn working_files() -> Result<BTreeSet<PathBuf>> {
    let mut git = Command::new("git");
    git.current_dir(root()).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let output = git.output().context("cannot run git")?;
    ensure!(output.status.success(), "git ls-files failed");
    let names = String::from_utf8(output.stdout)?;
    let files = names.split_terminator('\0').map(PathBuf::from);
    Ok(files.filter(|file| root().join(file).is_file()).collect())
}

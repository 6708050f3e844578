//! A disk with the large files of a stock Linux guest. A boot image with them would not leave enough memory.
//!
//! The files are in an ext4 file system under numbers, which the distribution's own tool makes. The guest's
//! init shows each where the program expects it.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::image::Tree;
use crate::{leftovers, place};

const TOOL: &str = "mke2fs";
/// The prefix of the names of folders in which disks are made.
const PREFIX: &str = "disk-";
/// A file from this size on is large.
const LARGE: usize = 256 << 10;
/// The space for the file system itself: this, and a fraction of the files.
const SPARE: u64 = 16 << 20;

/// Takes the large files of `tree` and puts them on a disk. The tree keeps their names, and a list of them in
/// `.radixvm/disk` for the guest's init.
pub fn take(tree: &mut Tree) -> Result<File> {
    let cache = place::cache();
    // Removes the folders of commands that were killed.
    leftovers::prune(&cache, PREFIX, usize::MAX);
    let make = || tempfile::Builder::new().prefix(PREFIX).tempdir_in(&cache);
    let folder = fs::create_dir_all(&cache).and_then(|()| make());
    let folder = folder.context("no place for the disk")?;
    let mut names = Vec::new();
    let mut bytes = SPARE;
    for (number, (name, permissions, content)) in tree.take_large(LARGE).into_iter().enumerate() {
        let file = folder.path().join("files").join(number.to_string());
        fs::create_dir_all(file.parent().expect("it is in a folder"))?;
        fs::write(&file, &content).context("no place for the disk")?;
        fs::set_permissions(&file, Permissions::from_mode(permissions & 0o777))?;
        bytes += content.len() as u64 + (content.len() as u64 >> 6);
        names.extend([b"/", name.as_bytes(), b"\0"].concat());
    }
    tree.file(".radixvm/disk", 0o400, names)?;
    let image = folder.path().join("image");
    let files = folder.path().join("files");
    let mut command = Command::new(TOOL);
    command.args([
        "-q",
        "-t",
        "ext4",
        "-b",
        "4096",
        "-m",
        "0",
        "-O",
        "^has_journal",
        "-E",
        "root_owner=0:0",
        "-d",
    ]);
    command.arg(&files).arg(&image).arg(format!("{}k", bytes >> 10));
    // The tool is often not on the PATH.
    command.env("PATH", std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin");
    let output = command
        .output()
        .with_context(|| format!("{TOOL} (package e2fsprogs) makes disks for stock Linux"))?;
    ensure!(output.status.success(), "{TOOL} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    // The open file outlives its folder.
    File::open(image).context("the disk")
}

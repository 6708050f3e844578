//! `radixvm install`: makes a folder with everything that guests need, without the checkout and without Rust.
//!
//! ```text
//! PREFIX/bin/radixvm                      the command, linked statically
//! PREFIX/bin/pathreads                    the runtime behind `radixvm native`, for short
//! PREFIX/lib/radixvm/artifacts/kernel     the kernel
//!                              meter.so   the plugin, which speaks the interface of each QEMU
//!                              programs/  the programs for guests
//!                              workloads/  the pthread programs of `radixvm bench workloads`
//!                              pathreads  the runtime behind `radixvm native`
//!                              malloc.so  the allocator behind `radixvm native --malloc`
//!                              radixvm-lab  the command behind `radixvm bench`
//!                    docs/, README.md, …  as in the checkout
//! ```
//!
//! The folder may be moved, because the command finds the rest beside itself.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;

use launch::progress::Step;
use launch::{artifacts, place, terminal};

/// The documents of the repository for users.
const DOCUMENTS: [&str; 5] = ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT", "docs"];

/// Options of `radixvm install`.
#[derive(Args)]
pub struct Arguments {
    /// Folder for bin/ and lib/ [default: ~/.local]
    #[arg(long, value_name = "DIR")]
    prefix: Option<PathBuf>,
    /// Install this command as it is, for tests: building it anew takes minutes
    #[arg(long, hide = true)]
    as_is: bool,
}

/// Builds and copies everything.
pub fn run(arguments: &Arguments) -> Result<u8> {
    let root = place::checkout("radixvm install")?;
    let prefix = arguments.prefix.clone().map_or_else(usual_prefix, Ok)?;
    let (command, laboratory) = match arguments.as_is {
        true => (std::env::current_exe()?, artifacts::laboratory()?),
        false => artifacts::commands()?,
    };
    let (kernel, meter, programs) = (artifacts::kernel()?, artifacts::meter()?, artifacts::programs()?);
    let (runtime, malloc) = (artifacts::runtime()?, artifacts::malloc()?);
    let step = Step::new(&format!("installing into {}", prefix.display()));
    let library = prefix.join(place::LIBRARY);
    if library.exists() {
        fs::remove_dir_all(&library).with_context(|| format!("cannot replace {}", library.display()))?;
    }
    let folder = library.join(place::ARTIFACTS);
    copy(&meter, &folder.join("meter.so"))?;
    copy(&laboratory, &folder.join(artifacts::LABORATORY_NAME))?;
    copy(&runtime, &folder.join(artifacts::RUNTIME_NAME))?;
    copy(&malloc, &folder.join(artifacts::MALLOC_NAME))?;
    for (name, program) in programs {
        copy(program, &folder.join("programs").join(name))?;
    }
    for name in artifacts::WORKLOADS.into_iter().chain([artifacts::OF_THREADS]) {
        let program = artifacts::workload(name)?;
        copy(&program, &folder.join(artifacts::WORKLOADS_FOLDER).join(name))?;
    }
    for document in DOCUMENTS {
        copy(&root.join(document), &library.join(document))?;
    }
    // The kernel and the command are copied last, because a command that finds a kernel beside itself relies
    // on the rest.
    copy(&kernel, &folder.join("kernel"))?;
    let bin = prefix.join("bin");
    copy(&runtime, &bin.join(artifacts::RUNTIME_NAME))?;
    copy(&command, &bin.join("radixvm"))?;
    drop(step);
    terminal::message(remark(&bin, std::env::var_os("PATH").unwrap_or_default().as_os_str()));
    Ok(0)
}

fn usual_prefix() -> Result<PathBuf> {
    let home = std::env::var_os("HOME").context("HOME is not set: give --prefix DIR")?;
    Ok(Path::new(&home).join(".local"))
}

/// Returns advice on how to call the command.
fn remark(bin: &Path, path: &OsStr) -> String {
    let command = bin.join("radixvm");
    match std::env::split_paths(path).any(|folder| folder == bin) {
        true => format!("installed {}", command.display()),
        false => format!("installed {}; {} is not on the PATH", command.display(), bin.display()),
    }
}

/// Copies a file or a folder with everything in it, and makes the folders above. A running program is
/// replaced, not overwritten.
fn copy(from: &Path, to: &Path) -> Result<()> {
    copy_all(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))
}

fn copy_all(from: &Path, to: &Path) -> std::io::Result<()> {
    if from.is_dir() {
        let entries = fs::read_dir(from)?;
        return entries.map(|entry| entry.map(|entry| entry.file_name())).try_for_each(|name| {
            let name = name?;
            copy_all(&from.join(&name), &to.join(&name))
        });
    }
    to.parent().map_or(Ok(()), fs::create_dir_all)?;
    let half = to.with_extension("new");
    fs::copy(from, &half)?;
    fs::rename(half, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_copied_whole_and_over_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir_all(from.join("deep")).unwrap();
        fs::write(from.join("deep/file"), "new").unwrap();
        fs::create_dir_all(to.join("deep")).unwrap();
        fs::write(to.join("deep/file"), "old").unwrap();
        copy(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(to.join("deep/file")).unwrap(), "new");
        assert_eq!(fs::read_dir(to.join("deep")).unwrap().count(), 1);
        let error = copy(&from.join("none"), &to).unwrap_err();
        assert!(format!("{error:#}").contains("from/none"), "{error:#}");
    }

    #[test]
    fn a_folder_that_shells_do_not_search_is_told() {
        let bin = Path::new("/p/bin");
        assert_eq!(remark(bin, OsStr::new("/bin:/p/bin")), "installed /p/bin/radixvm");
        assert_eq!(remark(bin, OsStr::new("/bin")), "installed /p/bin/radixvm; /p/bin is not on the PATH");
    }
}

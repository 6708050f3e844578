//! The stock Linux kernel that runs the same programs. It is the distribution's own, unpacked into the cache
//! and booted with the image's programs and a small init. Nothing is installed on this machine.
//!
//! A command has one such kernel. `--linux` names it, by a file or a version. Otherwise it is the one that
//! the distribution recommends, in the state in which it was first fetched.

mod image;
mod packages;
mod version;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};

use crate::place;
pub use version::short;

/// The options of the guest's kernel. All of them are in Linux's favour or make runs repeatable: no
/// mitigations, no zeroing beyond the program's needs, no automatic page migration, and no check of the timer
/// at boot, which fails if this machine is busy.
pub const COMMAND_LINE: &str = "console=ttyS3 quiet panic=-1 nokaslr mitigations=off tsc=reliable init_on_alloc=0 \
                                numa_balancing=disable audit=0 no_timer_check";

/// The least memory in which it boots, in bytes.
pub const LEAST_MEMORY: u64 = 128 << 20;

/// A kernel that can be booted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// A bzImage.
    pub path: PathBuf,
    /// Its own version, such as `6.1.0-44-cloud-amd64`.
    pub version: String,
}

static ASKED: OnceLock<String> = OnceLock::new();
static CHOSEN: OnceLock<Kernel> = OnceLock::new();

/// Sets the kernel for `--linux`: a file or a version.
pub fn ask_for(word: &str) {
    // A process has one command line.
    let _ = ASKED.set(word.to_owned());
}

/// Returns the kernel, which is fetched if necessary.
pub fn kernel() -> Result<&'static Kernel> {
    if let Some(chosen) = CHOSEN.get() {
        return Ok(chosen);
    }
    let kernel = match ASKED.get() {
        Some(word) => asked(word).with_context(|| format!("--linux {word}"))?,
        None => usual()?,
    };
    Ok(CHOSEN.get_or_init(|| kernel))
}

/// Returns the name of the kernel in tables, with its version once that is known.
pub fn name() -> String {
    match CHOSEN.get() {
        Some(kernel) => format!("stock Linux {}", short(&kernel.version)),
        None => "stock Linux".to_owned(),
    }
}

/// Returns the kernel that the distribution recommends, if it was fetched.
pub fn fetched() -> Option<Kernel> {
    newest(place::caches().iter().flat_map(|cache| kernels_in(&cache.join(USUAL))))
}

/// The folders of the cache for the recommended kernels, and for those that the user asked for, which are not
/// taken for recommended ones.
const USUAL: &str = "linux";
const ASKED_FOR: &str = "linux/asked-for";

fn usual() -> Result<Kernel> {
    match fetched() {
        Some(kernel) => Ok(kernel),
        None => fetch(&packages::recommended()?, USUAL),
    }
}

fn asked(word: &str) -> Result<Kernel> {
    if word.contains('/') || Path::new(word).is_file() {
        return image::read(Path::new(word));
    }
    let folders = place::caches().into_iter().flat_map(|cache| [cache.join(USUAL), cache.join(ASKED_FOR)]);
    let here: Vec<Kernel> = folders.flat_map(|folder| kernels_in(&folder)).collect();
    let good = here.iter().filter(|kernel| version::matches(&kernel.version, word)).cloned();
    if let Some(kernel) = newest(good) {
        return Ok(kernel);
    }
    let offered = packages::offered();
    match packages::choose(&offered, word) {
        Some(package) => fetch(package, ASKED_FOR),
        None => bail!("{}", unknown(&here, &offered)),
    }
}

/// Explains which versions there are, and how to get others.
fn unknown(here: &[Kernel], offered: &[String]) -> String {
    let list = |mut versions: Vec<String>| {
        versions.sort_by(|a, b| version::compare(a, b));
        versions.dedup();
        if versions.is_empty() { "none".to_owned() } else { versions.join(", ") }
    };
    let here = list(here.iter().map(|kernel| short(&kernel.version).to_owned()).collect());
    let offered = list(offered.iter().filter_map(|package| version::series(package)).collect());
    format!(
        "no such stock kernel: fetched are {here}; the package lists offer {offered}. Add a package source that has it \
         (on Debian the suite of backports) and run apt-get update, or give a kernel's file, as in --linux /path/vmlinuz"
    )
}

fn kernels_in(folder: &Path) -> Vec<Kernel> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let kernel = |path: PathBuf| {
        let version = path.file_name()?.to_str()?.strip_prefix("vmlinuz-")?.to_owned();
        Some(Kernel { path, version })
    };
    paths.filter_map(kernel).collect()
}

fn newest(kernels: impl Iterator<Item = Kernel>) -> Option<Kernel> {
    kernels.max_by(|one, other| version::compare(&one.version, &other.version))
}

/// Downloads a package, and keeps its kernel in this folder of the cache.
fn fetch(package: &str, folder: &str) -> Result<Kernel> {
    let folder = place::cache().join(folder);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let work = tempfile::tempdir_in(&folder).with_context(|| format!("cannot write {}", folder.display()))?;
    let Kernel { path, version } = image::read(&packages::fetch(package, work.path())?)?;
    let kept = folder.join(format!("vmlinuz-{version}"));
    fs::rename(&path, &kept)?;
    Ok(Kernel { path: kept, version })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(version: &str) -> Kernel {
        Kernel { path: PathBuf::new(), version: version.to_owned() }
    }

    #[test]
    fn the_newest_is_so_by_number() {
        let kernels = ["6.9.1-amd64", "6.12.0-amd64", "6.1.0-44-cloud-amd64"].map(kernel);
        assert_eq!(newest(kernels.into_iter()), Some(kernel("6.12.0-amd64")));
    }

    #[test]
    fn kernels_are_found_by_their_names() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["vmlinuz-6.1.0-5", "kallsyms-6.1.0-5"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let found = kernels_in(folder.path());
        assert_eq!(found.iter().map(|kernel| &*kernel.version).collect::<Vec<_>>(), ["6.1.0-5"]);
        assert!(kernels_in(Path::new("/no/such/folder")).is_empty());
    }

    #[test]
    fn a_version_that_is_nowhere_is_answered_with_those_that_are() {
        let offered = ["linux-image-6.1.0-44-cloud-amd64", "linux-image-6.12.9-amd64"].map(str::to_owned);
        let text = unknown(&[kernel("6.1.0-44-cloud-amd64")], &offered);
        assert!(text.contains("fetched are 6.1.0-44; the package lists offer 6.1, 6.12. Add"), "{text}");
        assert!(text.ends_with("--linux /path/vmlinuz"), "{text}");
        assert!(unknown(&[], &[]).contains("fetched are none; the package lists offer none"));
    }

    #[test]
    fn a_file_that_is_no_kernel_is_named() {
        assert!(format!("{:#}", asked("/no/such/vmlinuz").unwrap_err()).contains("/no/such/vmlinuz"));
        assert!(format!("{:#}", asked("/bin/sh").unwrap_err()).contains("/bin/sh: not a Linux kernel"));
    }
}

//! Kernels of the distribution, from its packages: Debian's and Ubuntu's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::version::{self, FLAVOURS};
use crate::progress::Step;

/// The packages of the recommended kernel for virtual machines: Debian's, then Ubuntu's.
const RECOMMENDED: [&str; 2] = ["linux-image-cloud-amd64", "linux-image-virtual"];
/// The advice for machines without apt.
const OTHERWISE: &str =
    "give a kernel's file, as in --linux /boot/vmlinuz-6.1 (a bzImage with its serial driver built in)";

/// Returns the package of the recommended kernel.
pub fn recommended() -> Result<String> {
    if let Some(package) = depends() {
        return Ok(package);
    }
    let step = Step::new("updating the package lists, which name no kernel for virtual machines");
    update_lists().with_context(|| {
        format!("a stock Linux kernel comes from the distribution's packages; else {OTHERWISE}")
    })?;
    drop(step);
    depends().with_context(|| format!("the package lists offer no kernel for virtual machines: {OTHERWISE}"))
}

/// Returns the package on which the first known package of a kernel depends.
fn depends() -> Option<String> {
    RECOMMENDED.iter().find_map(|name| dependency(name, "linux-image-"))
}

/// Returns the first package with this prefix of those on which another depends.
fn dependency(package: &str, prefix: &str) -> Option<String> {
    let text = apt_cache(&["depends", package])?;
    let depends = text.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    depends.map(str::to_owned).find(|package| package.starts_with(prefix))
}

/// Returns the packages with kernels that the package lists know.
pub fn offered() -> Vec<String> {
    let text = apt_cache(&["search", "--names-only", "^linux-image-[0-9]"]).unwrap_or_default();
    text.lines().filter_map(|line| Some(line.split(" - ").next()?.trim().to_owned())).collect()
}

/// Returns the package for a version that the user asked for. It is the newest of the first flavour that has
/// it.
pub fn choose<'a>(offered: &'a [String], asked: &str) -> Option<&'a str> {
    let of = |flavour: &str| {
        let good = offered.iter().filter(|package| {
            let version = package.strip_prefix("linux-image-").unwrap_or_default();
            version.strip_suffix(flavour).is_some_and(version::is_plain) && version::matches(version, asked)
        });
        good.max_by(|one, other| version::compare(one, other))
    };
    FLAVOURS.iter().find_map(|flavour| of(flavour)).map(String::as_str)
}

fn apt_cache(words: &[&str]) -> Option<String> {
    let output = Command::new("apt-cache").args(words).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn update_lists() -> Result<()> {
    let root = rustix::process::geteuid().is_root();
    let mut command = Command::new(if root { "apt-get" } else { "sudo" });
    command.args(if root { &["update"][..] } else { &["apt-get", "update"] });
    quietly(&mut command)
}

/// Downloads a package into an empty folder and unpacks it there. Returns the kernel's file.
pub fn fetch(package: &str, work: &Path) -> Result<PathBuf> {
    let step = Step::new(&format!("fetching a stock Linux kernel ({package}, not installed)"));
    if let Some(kernel) = unpacked(package, work, &step)? {
        return Ok(kernel);
    }
    // Newer releases of Debian have the kernel's file in a package of its own.
    let binary = dependency(package, "linux-binary-");
    let kernel = binary.map(|binary| unpacked(&binary, work, &step)).transpose()?.flatten();
    kernel.with_context(|| format!("{package} holds no kernel"))
}

fn unpacked(package: &str, work: &Path, step: &Step) -> Result<Option<PathBuf>> {
    step.tell(&format!("downloading {package}"));
    let downloaded = quietly(Command::new("apt-get").args(["download", package]).current_dir(work));
    downloaded.with_context(|| format!("cannot download {package}: is there a network? Else {OTHERWISE}"))?;
    step.tell(&format!("unpacking {package}"));
    let files = work.join("files");
    for archive in entries(work)?.into_iter().filter(|path| path.extension().is_some_and(|end| end == "deb"))
    {
        quietly(Command::new("dpkg").arg("-x").arg(&archive).arg(&files))?;
        fs::remove_file(archive)?;
    }
    Ok(find(&files))
}

/// Returns the kernel's file of an unpacked package: in /boot by its version, or beside its modules.
fn find(files: &Path) -> Option<PathBuf> {
    let in_boot = entries(&files.join("boot")).unwrap_or_default().into_iter();
    let modules =
        ["usr/lib/modules", "lib/modules"].map(|folder| entries(&files.join(folder)).unwrap_or_default());
    let beside = modules.into_iter().flatten().map(|folder| folder.join("vmlinuz"));
    let is_kernel = |path: &PathBuf| {
        path.is_file() && path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz"))
    };
    in_boot.chain(beside).find(is_kernel)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect()
}

/// Runs a command. Its output is shown only if it fails.
fn quietly(command: &mut Command) -> Result<()> {
    let named = format!("{command:?}");
    let output = command.output().with_context(|| format!("cannot run {named}"))?;
    if !output.status.success() {
        bail!("{named} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_of_the_best_flavour_is_taken() {
        let offered = [
            "linux-image-6.1.0-9-cloud-amd64",
            "linux-image-6.1.0-44-cloud-amd64",
            "linux-image-6.1.0-44-cloud-amd64-unsigned",
            "linux-image-6.1.0-45-amd64",
            "linux-image-6.12.9+deb12-amd64",
            "linux-image-6.12.9+deb12-rt-amd64",
            "linux-image-6.12-amd64",
        ]
        .map(str::to_owned);
        assert_eq!(choose(&offered, "6.1"), Some("linux-image-6.1.0-44-cloud-amd64"));
        assert_eq!(choose(&offered, "6.1.0-45"), Some("linux-image-6.1.0-45-amd64"));
        assert_eq!(choose(&offered, "6.12"), Some("linux-image-6.12.9+deb12-amd64"));
        assert_eq!(choose(&offered, "6.9"), None);
    }

    #[test]
    fn a_kernel_is_found_in_both_places() {
        for place in
            ["boot/vmlinuz-6.1.0-44-amd64", "usr/lib/modules/7.2.0-amd64/vmlinuz", "lib/modules/7.2/vmlinuz"]
        {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join(place);
            assert_eq!(find(folder.path()), None);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, "").unwrap();
            assert_eq!(find(folder.path()), Some(file));
        }
    }
}

//! The stock Linux kernel that the same programs are run on: the distribution's own, unpacked beside the
//! repository and booted with the image's programs and a small init. Nothing is installed on this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::place;
use crate::progress::Step;

/// Packages that bring a kernel made for virtual machines: Debian's, then Ubuntu's.
const PACKAGES: [&str; 2] = ["linux-image-cloud-amd64", "linux-image-virtual"];

/// What the guest is told besides what it runs. Everything here is in Linux's favour or makes runs repeatable:
/// no mitigations, no zeroing beyond what the program needs, no automatic page migration; and no look at the boot whether the
/// timer ticks, which fails where this machine is busy.
pub const COMMAND_LINE: &str = "console=ttyS3 quiet panic=-1 nokaslr mitigations=off tsc=reliable init_on_alloc=0 \
                                numa_balancing=disable audit=0 no_timer_check";

/// Bytes of memory that it boots in.
pub const LEAST_MEMORY: u64 = 128 << 20;

/// The kernel file, fetched on the first call.
pub fn kernel() -> Result<PathBuf> {
    match fetched() {
        Some(kernel) => Ok(kernel),
        None => fetch(),
    }
}

/// The kernel file if it is there already.
pub fn fetched() -> Option<PathBuf> {
    newest(&folder())
}

fn folder() -> PathBuf {
    place::cache().join("linux")
}

fn newest(folder: &Path) -> Option<PathBuf> {
    let is_kernel =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz-"));
    fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path())).filter(is_kernel).max()
}

fn fetch() -> Result<PathBuf> {
    let step = Step::new("fetching a stock Linux kernel (one package, not installed)");
    let package = match package() {
        Some(package) => package,
        None => {
            step.tell("updating the package lists");
            update_lists()?;
            package().context("the package lists offer no kernel for virtual machines")?
        }
    };
    let work = folder().join("unpacked");
    fs::create_dir_all(&work).with_context(|| format!("cannot make {}", work.display()))?;
    step.tell(&format!("downloading {package}"));
    quietly(Command::new("apt-get").args(["download", &package]).current_dir(&work))?;
    step.tell(&format!("unpacking {package}"));
    let kernel = unpack(&work)?;
    fs::remove_dir_all(&work)?;
    Ok(kernel)
}

/// The package with the files: what the first known metapackage depends on.
fn package() -> Option<String> {
    PACKAGES.iter().find_map(|name| {
        let output = Command::new("apt-cache").args(["depends", name]).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let depends = text.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
        depends.map(str::to_owned).find(|package| package.starts_with("linux-image-"))
    })
}

fn update_lists() -> Result<()> {
    let root = rustix::process::geteuid().is_root();
    let mut command = Command::new(if root { "apt-get" } else { "sudo" });
    command.args(if root { &["update"][..] } else { &["apt-get", "update"] });
    quietly(&mut command)
}

/// Takes the kernel out of the one package in `work`.
fn unpack(work: &Path) -> Result<PathBuf> {
    let package = fs::read_dir(work)?.filter_map(|entry| Some(entry.ok()?.path()));
    let package = package.into_iter().find(|path| path.extension().is_some_and(|end| end == "deb"));
    let package = package.context("apt-get downloaded no package")?;
    quietly(Command::new("dpkg").arg("-x").arg(&package).arg(work.join("files")))?;
    let kernel = newest(&work.join("files/boot")).context("the package holds no kernel")?;
    let kept = folder().join(kernel.file_name().expect("found by its name"));
    fs::rename(&kernel, &kept)?;
    Ok(kept)
}

/// Runs a command; what it says is shown only if it fails.
fn quietly(command: &mut Command) -> Result<()> {
    let named = format!("{command:?}");
    let output = command.output().with_context(|| format!("cannot run {named}"))?;
    if !output.status.success() {
        bail!("{named} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

//! The command `cargo xtask fresh-machine RELEASE [--whole] [--ubuntu MIRROR]` makes a minimal Debian, or
//! Ubuntu, with git, curl and Rust, and runs the README's commands in it.
//!
//! The machine is a chroot that debootstrap makes from this machine's own package mirror, or from that of
//! Ubuntu, with this machine's Rust toolchain. Its network settings are this machine's, too. It gets the last
//! commit, not the working tree.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::root;
use crate::shell::{succeeds, target_dir};

/// The commands that a user types on a fresh machine, and the last of them where all tests are wanted.
const COMMANDS: [&str; 2] = ["./radixvm demo", "./radixvm test --quick"];
const WHOLE: [&str; 2] = ["./radixvm demo", "./radixvm test"];

/// The script by which debootstrap makes any newer Ubuntu.
const SCRIPT_OF_UBUNTU: &str = "/usr/share/debootstrap/scripts/gutsy";

/// Place of the repository and the toolchain in the chroot.
const CHECKOUT: &str = "root/radixvm";
const TOOLCHAIN: &str = "usr/local";

/// Runs in a mount namespace of its own, whose mounts end with it.
const ENTER: &str = r#"
set -e
mount -t proc proc "$0/proc"
mount --rbind /dev "$0/dev"
exec chroot "$0" /usr/bin/env -i HOME=/root PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin LANG=C.UTF-8 \
    bash -c "cd /root/radixvm && $1"
"#;

/// Makes the machine anew and tries the commands in it, with a few of the tests or all. Returns whether all
/// succeeded.
pub fn run(words: &[&str]) -> Result<bool> {
    let (release, commands, ubuntu) = match words {
        [release] => (release, COMMANDS, None),
        [release, "--whole"] => (release, WHOLE, None),
        [release, "--ubuntu", mirror] => (release, COMMANDS, Some(*mirror)),
        [release, "--whole", "--ubuntu", mirror] => (release, WHOLE, Some(*mirror)),
        _ => bail!("fresh-machine RELEASE [--whole] [--ubuntu MIRROR]"),
    };
    let folder = target_dir("fresh-machine").join(release);
    make(release, &folder, ubuntu).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut good = true;
    for command in commands {
        println!("\n== {release}: {command}");
        let mut enter = Command::new("unshare");
        enter.args(["--mount", "--propagation", "private", "sh", "-c", ENTER]).arg(&folder).arg(command);
        let succeeded = succeeds(&mut enter)?;
        println!("{release}: {command} ... {}", if succeeded { "ok" } else { "FAILED" });
        good &= succeeded;
    }
    Ok(good)
}

fn make(release: &str, folder: &Path, ubuntu: Option<&str>) -> Result<()> {
    ensure!(release.chars().all(|c| c.is_ascii_alphanumeric()), "{release}: not the name of a release");
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.args(["--variant=minbase", "--include=git,curl,ca-certificates"]);
    match ubuntu {
        // Debian's debootstrap may be older than the release: all use one script. It checks signatures if
        // Ubuntu's keys are installed.
        Some(mirror) => {
            debootstrap.args(["--components=main,universe", release]);
            debootstrap.arg(folder).args([mirror, SCRIPT_OF_UBUNTU])
        }
        None => debootstrap.arg(release).arg(folder).arg(mirror()?),
    };
    let made = succeeds(&mut debootstrap);
    ensure!(made.context("apt-get install debootstrap")?, "debootstrap failed; it needs root");
    copy(&sysroot()?, &folder.join(TOOLCHAIN))?;
    clone(&folder.join(CHECKOUT))?;
    connect(folder)
}

/// Returns the Debian mirror that this machine's apt uses.
fn mirror() -> Result<String> {
    let mut command = Command::new("apt-get");
    command.args(["indextargets", "--format", "$(LABEL) $(REPO_URI)", "Created-By: Packages"]);
    let output = command.output().context("apt-get is missing")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut mirrors = text.lines().filter_map(|line| line.strip_prefix("Debian "));
    mirrors.next().map(str::to_owned).context("apt's sources name no Debian mirror")
}

fn sysroot() -> Result<PathBuf> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output().context("rustc is missing")?;
    Ok(String::from_utf8(output.stdout)?.trim().into())
}

/// Copies the contents of a folder.
fn copy(from: &Path, to: &Path) -> Result<()> {
    run_or_fail(Command::new("cp").args(["-a", "--no-preserve=ownership"]).arg(from.join(".")).arg(to))
}

fn clone(to: &Path) -> Result<()> {
    run_or_fail(Command::new("git").args(["clone", "--quiet", "--no-hardlinks"]).arg(root()).arg(to))
}

/// Gives the chroot the names and the certificates by which this machine reaches others.
fn connect(folder: &Path) -> Result<()> {
    let bundle = "/etc/ssl/certs/ca-certificates.crt";
    let certificates = std::env::var("SSL_CERT_FILE").unwrap_or_else(|_| bundle.to_owned());
    for (from, to) in
        [("/etc/hosts", "/etc/hosts"), ("/etc/resolv.conf", "/etc/resolv.conf"), (&certificates, bundle)]
    {
        if Path::new(from).exists() {
            fs::copy(from, folder.join(&to[1..])).with_context(|| from.to_owned())?;
        }
    }
    Ok(())
}

fn run_or_fail(command: &mut Command) -> Result<()> {
    if succeeds(command)? { Ok(()) } else { bail!("{command:?} failed") }
}

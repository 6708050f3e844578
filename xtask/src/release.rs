//! `cargo xtask release`: an archive of what `radixvm install` installs.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::root;
use crate::shell::{cargo, succeeds, target_dir};

/// Makes the archive and prints its path. Returns whether that succeeded.
pub fn make() -> Result<bool> {
    let name = format!("radixvm-{}-x86_64-linux", env!("CARGO_PKG_VERSION"));
    let folder = target_dir("release-archive");
    let prefix = folder.join(&name);
    if prefix.exists() {
        std::fs::remove_dir_all(&prefix)?;
    }
    let mut install = cargo("run --quiet --locked --package radixvm -- install --prefix");
    ensure!(succeeds(install.arg(&prefix))?, "radixvm install failed");
    let archive = folder.join(format!("{name}.tar.gz"));
    ensure!(succeeds(&mut tar(&folder, &name, &archive, &commit_time()?))?, "tar failed");
    println!("{}", archive.display());
    Ok(true)
}

/// Nothing in it tells when and by whom it was made.
fn tar(folder: &Path, name: &str, archive: &Path, time: &str) -> Command {
    let mut tar = Command::new("tar");
    tar.args(["--create", "--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=go-w,a+rX"]);
    tar.arg(format!("--mtime=@{time}")).arg("--use-compress-program=gzip -n -9");
    tar.arg("--file").arg(archive).arg("--directory").arg(folder).arg(name);
    tar
}

/// Returns the time of the last commit, in seconds since 1970.
fn commit_time() -> Result<String> {
    let mut git = Command::new("git");
    let output =
        git.args(["log", "-1", "--format=%ct"]).current_dir(root()).output().context("git is missing")?;
    ensure!(output.status.success(), "git log failed");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_same_files_make_the_same_archive() {
        let folder = std::env::temp_dir().join(format!("radixvm-release-test-{}", std::process::id()));
        let archive = |name: &str, order: [&str; 2]| {
            let prefix = folder.join("it");
            fs::create_dir_all(&prefix).unwrap();
            order.iter().for_each(|file| fs::write(prefix.join(file), "text").unwrap());
            let archive = folder.join(name);
            assert!(succeeds(&mut tar(&folder, "it", &archive, "1700000000")).unwrap());
            fs::remove_dir_all(prefix).unwrap();
            fs::read(archive).unwrap()
        };
        assert_eq!(archive("one.tar.gz", ["a", "b"]), archive("other.tar.gz", ["b", "a"]));
        fs::remove_dir_all(folder).unwrap();
    }
}

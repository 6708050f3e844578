//! An installed command runs without the checkout and without Rust, wherever its folder is moved.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::harness::{radixvm_within, scratch};

/// Makes an installation and moves it away from where it was made.
fn moved(name: &str) -> PathBuf {
    let folder = scratch("installed").join(name);
    fs::remove_dir_all(&folder).or_else(|_| fs::create_dir_all(&folder)).unwrap();
    let (first, second) = (folder.join("first"), folder.join("second"));
    let mut command = radixvm_within("900");
    let output = command.args(["install", "--as-is", "--prefix"]).arg(&first).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    fs::rename(first, &second).unwrap();
    second
}

fn on_the_path(name: &str) -> PathBuf {
    let output = Command::new("sh").args(["-c", &format!("command -v {name}")]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().into()
}

/// Runs the installed command. Only QEMU is on its PATH, and its cache is its own.
fn installed(prefix: &Path, words: &[&str]) -> Output {
    let tools = prefix.join("tools");
    if !tools.exists() {
        fs::create_dir(&tools).unwrap();
        let qemu = "qemu-system-x86_64";
        std::os::unix::fs::symlink(on_the_path(qemu), tools.join(qemu)).unwrap();
    }
    let mut command = Command::new(on_the_path("timeout"));
    command.args(["--kill-after=10", "1800"]).arg(prefix.join("bin/radixvm")).args(words).current_dir("/");
    command.env_remove("RADIXVM_HOME").env("PATH", tools).env("XDG_CACHE_HOME", prefix.join("cache"));
    command.output().unwrap()
}

#[test]
fn an_installed_command_needs_neither_checkout_nor_cargo() {
    let prefix = moved("moved");
    let words = ["run", "-c", "2", "--", "local", "--threads", "2", "--iterations", "20"];
    let output = installed(&prefix, &words);
    assert!(output.status.success() && output.stdout.starts_with(b"local: 2 threads"), "{output:?}");

    let output = installed(&prefix, &["run", "--dry-run", "--", "show", "/proc/meminfo"]);
    let line = String::from_utf8(output.stdout).unwrap();
    let inside =
        |word: &str| line.split(word).nth(1).is_some_and(|rest| Path::new(rest.trim()).starts_with(&prefix));
    assert!(inside("-kernel ") && inside("-initrd "), "{line}");
    assert!(prefix.join("cache/radixvm").is_dir());

    let words = ["contend", "--systems", "adaptive", "--cpus", "1", "--", "local"];
    let output = installed(&prefix, &words);
    assert!(output.status.success(), "{output:?}");

    let output = installed(&prefix, &["doctor"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && !text.contains("Rust") && text.contains("RadixVM kernel"), "{text}");

    for verb in [&["test"][..], &["install"], &["bench", "figures"]] {
        let output = installed(&prefix, verb);
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(125) && text.contains("needs the sources"), "{verb:?}: {text}");
    }
}

//! The stock kernel that a person chooses, and limits of its boot.

use std::fs;
use std::path::PathBuf;

use crate::harness::{Compiler, compiled, radixvm, root, scratch};
use crate::meter::contend;

/// The kernel that was fetched, and its version.
fn fetched() -> (PathBuf, String) {
    drop(radixvm());
    let files = fs::read_dir(root().join(".radixvm/linux")).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    let kernel = files.filter(|path| name(path).starts_with("vmlinuz-")).max().unwrap();
    let version = name(&kernel)["vmlinuz-".len()..].to_owned();
    (kernel, version)
}

#[test]
fn a_kernels_file_is_booted_and_its_own_version_named() {
    let (kernel, version) = fetched();
    let file = scratch("stock").join("mine");
    fs::copy(kernel, &file).unwrap();
    let file = file.to_str().unwrap();
    let mut command = radixvm();
    command.args(["run", "--linux", file, "--", &compiled("hello", Compiler::Static), "3"]);
    assert_eq!(command.output().unwrap().status.code(), Some(3));
    let rows = contend("chosen", &["--linux", file, "--systems", "linux", "--cpus", "1"], &["local"]);
    assert_eq!(rows[0]["kernel"], *version, "{rows:?}");
}

#[test]
fn a_series_means_a_kernel_that_is_here() {
    let (kernel, version) = fetched();
    let series: Vec<&str> = version.splitn(3, '.').take(2).collect();
    let hello = compiled("hello", Compiler::Static);
    let output = radixvm().args(["run", "--dry-run", "--linux", &series.join("."), &hello]).output().unwrap();
    let line = String::from_utf8(output.stdout).unwrap();
    assert!(line.contains(&format!("-kernel {} ", kernel.display())), "{line}");
}

#[test]
fn a_kernel_that_cannot_be_had_is_named_with_what_can() {
    let hello = compiled("hello", Compiler::Static);
    let (_, version) = fetched();
    let short = version.split("-cloud").next().unwrap();
    for (word, said) in [
        ("0.99", &*format!("--linux 0.99: no such stock kernel: fetched are {short}")),
        ("/no/such/vmlinuz", "--linux /no/such/vmlinuz: /no/such/vmlinuz: No such file"),
        (&hello, "not a Linux kernel"),
    ] {
        let output = radixvm().args(["run", "--linux", word, &hello]).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(125) && text.contains(said), "{word}: {text}");
    }
}

#[test]
fn a_boot_that_takes_longer_than_its_limit_is_ended() {
    let hello = compiled("hello", Compiler::Static);
    let mut command = radixvm();
    command.args(["run", "--system", "linux", "--accel", "tcg", "-c", "4", "--boot-limit", "1", &hello]);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(125), "{text}");
    assert!(text.contains("the guest did not boot within") && text.contains("--boot-limit"), "{text}");
}

//! The stock kernel that a person chooses, and limits of its boot.

use std::fs;
use std::path::PathBuf;

use crate::harness::{Compiler, compiled, radixvm, scratch};
use crate::meter::contend;

/// Returns the kernel that a run boots, and its version. The cache of the checkout or the user's has it.
fn fetched() -> (PathBuf, String) {
    let kernel = kernel_of(&["--system", "linux"]);
    let version = kernel.file_name().unwrap().to_str().unwrap().strip_prefix("vmlinuz-").unwrap().to_owned();
    (kernel, version)
}

/// Returns the kernel that a run with these options boots.
fn kernel_of(options: &[&str]) -> PathBuf {
    let hello = compiled("hello", Compiler::Static);
    let output = radixvm().args(["run", "--dry-run"]).args(options).arg(&hello).output().unwrap();
    let line = String::from_utf8(output.stdout).unwrap();
    let mut words = line.split_whitespace().skip_while(|word| *word != "-kernel");
    PathBuf::from(words.nth(1).unwrap_or_else(|| panic!("no kernel in {line}")))
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
    let (_, version) = fetched();
    let series: Vec<&str> = version.splitn(3, '.').take(2).collect();
    let kernel = kernel_of(&["--linux", &series.join(".")]);
    let name = kernel.file_name().unwrap().to_str().unwrap();
    assert!(
        kernel.is_file() && name.starts_with(&format!("vmlinuz-{}.", series.join("."))),
        "{}",
        kernel.display()
    );
}

#[test]
fn a_kernel_that_cannot_be_had_is_named_with_what_can() {
    let hello = compiled("hello", Compiler::Static);
    let (_, version) = fetched();
    let short = version.split("-cloud").next().unwrap();
    for (word, said) in [
        ("0.99", "--linux 0.99: no such stock kernel: fetched are "),
        ("0.99", short),
        ("/no/such/vmlinuz", "--linux /no/such/vmlinuz: /no/such/vmlinuz: No such file"),
        (&hello, "not a Linux kernel"),
    ] {
        let output = radixvm().args(["run", "--linux", word, &hello]).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(125) && text.contains(said), "{word}: {text}");
    }
}

/// With 32 CPUs it takes many times the limit, on any machine.
#[test]
fn a_boot_that_takes_longer_than_its_limit_is_ended() {
    let hello = compiled("hello", Compiler::Static);
    let mut command = radixvm();
    command.args(["run", "--system", "linux", "--accel", "tcg", "-c", "32", "--boot-limit", "1", &hello]);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(125), "{text}");
    assert!(text.contains("the guest did not boot within") && text.contains("--boot-limit"), "{text}");
}

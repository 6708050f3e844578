//! The launcher, the dry run, and the verbs that boot nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::{Compiler, compiled, dry_run_turn, radixvm, root, scratch};

/// Stores the program of a boot image in a file that runs here.
pub fn program_in(image: &[u8]) -> PathBuf {
    let start = image.windows(4).position(|bytes| bytes == b"\x7fELF").expect("a program is in the image");
    let header = image[..start].windows(6).rposition(|bytes| bytes == b"070701").expect("it has a header");
    let digits = std::str::from_utf8(&image[header + 54..header + 62]).unwrap();
    let size = usize::from_str_radix(digits, 16).unwrap();
    let file = scratch("image").join("program");
    fs::write(&file, &image[start..start + size]).unwrap();
    fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    file
}

#[test]
fn a_dry_run_prints_a_command_that_works() {
    let _turn = dry_run_turn();
    let hello = compiled("hello", Compiler::Static);
    let output = radixvm().args(["run", "--dry-run", "-c", "2", "-m", "200M", &hello, "5"]).output().unwrap();
    let line = String::from_utf8(output.stdout).unwrap();
    assert!(line.starts_with("qemu-system-x86_64 ") && line.contains("-smp 2 -m 200M"), "{line}");
    let (log, before) = (scratch("dry-run").join("log"), "what the file held\n");
    fs::write(&log, before).unwrap();
    let stderr = fs::OpenOptions::new().append(true).open(&log).unwrap();
    let mut command = Command::new("timeout");
    command.args(["600", "sh", "-c", &line]).stdin(Stdio::null()).stderr(stderr);
    let output = command.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(stdout.contains("argument 1: 5\n") && stdout.contains("hello: done\n"), "{output:?}");
    assert_eq!(fs::read_to_string(log).unwrap(), format!("{before}hello on stderr\n"));
}

/// The launcher is called from another folder, by its path, when everything is built. Only the program prints
/// something.
#[test]
fn the_launcher_is_silent_when_nothing_is_to_be_done() {
    let launch = || {
        let mut command = Command::new("timeout");
        command.arg("1800").arg(root().join("radixvm")).args([
            "run",
            &compiled("hello", Compiler::Musl),
            "3",
        ]);
        command.current_dir("/").stdin(Stdio::null()).output().unwrap()
    };
    launch();
    let output = launch();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "hello on stderr\n");
}

/// Calls the launcher on a machine where nothing is built yet, with only these commands. Each is a link to
/// the real one or a script.
fn launch_poorly(verb: &str, scripts: &[(&str, &str)]) -> (Option<i32>, String) {
    let name = "poor";
    let folder = scratch(name);
    fs::remove_dir_all(&folder).and_then(|()| fs::create_dir(&folder)).unwrap();
    for word in ["bash", "env", "dirname", "basename", "readlink"] {
        let found = Command::new("sh").args(["-c", &format!("command -v {word}")]).output().unwrap().stdout;
        let found = String::from_utf8(found).unwrap();
        std::os::unix::fs::symlink(found.trim(), folder.join(word)).unwrap();
    }
    for (word, script) in scripts {
        fs::write(folder.join(word), format!("#!{}/bash\n{script}\n", folder.display())).unwrap();
        fs::set_permissions(folder.join(word), PermissionsExt::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new(root().join("radixvm"));
    command.arg(verb).env_clear().env("PATH", &folder).env("CARGO_TARGET_DIR", folder.join("target"));
    let output = command.stdin(Stdio::null()).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn the_launcher_says_what_it_cannot_install() {
    let user = ("id", "echo 1000");
    let apt = ("apt-get", "exit 100");
    let (sudo, refusing) = (("sudo", "\"$@\""), ("sudo", "exit 1"));
    let (qemu, gcc) = (("qemu-system-x86_64", ""), ("gcc", ""));
    for (scripts, said) in [
        (&[user][..], "please install what brings qemu-system-x86_64"),
        (&[user, qemu], "please install what brings gcc"),
        (&[user, apt], "missing here: qemu-system-x86; have root run: apt-get install qemu-system-x86"),
        (&[user, apt, sudo], "could not update the package lists"),
        (&[user, apt, refusing], "could not update the package lists"),
        (&[user, apt, qemu, gcc], "get it from https://rustup.rs"),
        (&[user, apt, sudo, qemu, gcc], "get it from https://rustup.rs"),
        (&[user, qemu, gcc, ("cargo", ""), ("rustc", "exit 1")], "rustc does not work"),
        (&[user, qemu, gcc, ("cargo", "exit 1")], "get it from https://rustup.rs"),
        (
            &[user, qemu, gcc, ("cargo", ""), ("rustc", "echo /none")],
            "no target x86_64-unknown-none, and no rustup",
        ),
        (
            &[user, qemu, gcc, ("cargo", ""), ("rustc", "echo /none"), ("rustup", "exit 1")],
            "is there a network? Else run there: rustup target add x86_64-unknown-none",
        ),
    ] {
        let (status, text) = launch_poorly("doctor", scripts);
        assert_eq!(status, Some(125), "{text}");
        let last = text.lines().last().unwrap();
        assert!(last.starts_with("radixvm: ") && last.contains(said), "{scripts:?}: {text}");
    }
}

/// On another kind of distribution the launcher lists what is missing, and goes on with what is there.
#[test]
fn without_apt_the_launcher_names_what_is_missing_and_goes_on() {
    let (status, text) =
        launch_poorly("test", &[("id", "echo 1000"), ("qemu-system-x86_64", ""), ("gcc", "")]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "radixvm: not found here, by the names of Debian's packages: musl-tools", "{text}");
    assert!(lines[1].contains("Rust is missing"), "{text}");
    assert_eq!((status, lines.len()), (Some(125), 2), "{text}");
}

#[test]
fn a_built_kernel_runs_without_cargo() {
    let mut command = radixvm();
    command.env("CARGO", "/no/such/cargo").args(["run", "show", "/proc/meminfo"]);
    let output = command.output().unwrap();
    assert!(output.status.success() && output.stdout.starts_with(b"MemTotal:"), "{output:?}");
}

#[test]
fn a_build_without_tools_names_what_is_missing() {
    let output = radixvm().env("CARGO_TARGET_DIR", "/etc/passwd/x").args(["run", "local"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    let said = "the programs must be built (not built here yet), and /etc/passwd cannot be written";
    assert!(output.status.code() == Some(125) && text.contains(said), "{text}");
    let mut launcher = Command::new(root().join("radixvm"));
    let output = launcher.arg("doctor").env("CARGO_TARGET_DIR", "/etc/passwd/x").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{text}");
    assert!(
        text.contains("the command must be built (") && text.contains("/etc/passwd cannot be written"),
        "{text}"
    );
}

#[test]
fn syscalls_are_listed_and_the_json_is_complete() {
    let output = radixvm().args(["syscalls", "--json"]).output().unwrap();
    let calls: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let mmap = calls.iter().find(|call| call["name"] == "mmap").unwrap();
    assert_eq!(mmap["number"], 9);
    assert_ne!(mmap["support"], "none");
    let text = String::from_utf8(radixvm().arg("syscalls").output().unwrap().stdout).unwrap();
    assert!(text.lines().any(|line| line.starts_with("munmap ")), "{text}");
}

#[test]
fn doctor_finds_what_these_tests_need() {
    let output = radixvm().arg("doctor").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for name in ["QEMU", "RadixVM kernel", "x86_64-unknown-linux-musl"] {
        let line =
            text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name}: {text}"));
        assert!(line.contains(" ok "), "{line}");
    }
    assert_eq!(output.status.code(), Some(0), "{text}");
}

#[test]
fn lists_may_be_cut_short() {
    let script = format!("{} syscalls --json | head -1", env!("CARGO_BIN_EXE_radixvm"));
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!((&output.stdout[..], output.stderr.len()), (&b"[\n"[..], 0), "{output:?}");
}

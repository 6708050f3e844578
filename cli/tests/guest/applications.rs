//! The applications give the same result at every size, with every kind of tables, and on this machine's own
//! kernel.

use std::path::PathBuf;

use serde_json::Value;

use crate::harness::{here, radixvm, root, run, scratch};

/// An application and its input, which has the same path in the guest.
struct Application {
    name: &'static str,
    options: &'static [&'static str],
    input: String,
}

impl Application {
    fn new(name: &'static str, options: &'static [&'static str], input: &str) -> Self {
        Application { name, options, input: root().join(input).display().to_string() }
    }

    fn words<'a>(&'a self, program: &'a str, threads: &'a str) -> Vec<&'a str> {
        [&[program, "--threads", threads, "--json"], self.options, &[&self.input]].concat()
    }

    fn in_guest(&self, cpus: &str, tables: &str) -> Value {
        run(&["-c", cpus, "--tables", tables, "--file", &self.input], &self.words(self.name, cpus)).report()
    }

    fn here(&self) -> Value {
        let program = program(self.name).display().to_string();
        let (stdout, status) = here(&self.words(&program, "2"), b"");
        assert_eq!(status, Some(0));
        serde_json::from_slice(&stdout).unwrap()
    }

    /// Runs it everywhere and returns its report on this machine.
    fn is_the_same_everywhere(&self) -> Value {
        let expected = self.here();
        let machines = [
            ("1", "percore"),
            ("2", "percore"),
            ("4", "percore"),
            ("8", "percore"),
            ("4", "shared"),
            ("4", "adaptive"),
        ];
        for (cpus, tables) in machines {
            let report = self.in_guest(cpus, tables);
            assert_eq!(report["digest"], expected["digest"], "{cpus} CPUs, {tables}: {report}");
        }
        expected
    }
}

/// Returns a program's file, which is found in a dry run.
fn program(name: &str) -> PathBuf {
    let output = radixvm().args(["run", "--dry-run", name]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let line = String::from_utf8(output.stdout).unwrap();
    let image = line.split(' ').skip_while(|word| *word != "-initrd").nth(1).expect("it names the image");
    crate::launching::program_in(&std::fs::read(image).unwrap())
}

#[test]
fn wordindex() {
    Application::new("wordindex", &["--repeat", "4"], "LICENSE-APACHE").is_the_same_everywhere();
}

#[test]
fn wordindex_makes_few_mmaps_of_large_blocks() {
    let index = |options| Application::new("wordindex", options, "LICENSE-APACHE").in_guest("4", "percore");
    let (small, large) =
        (index(&["--repeat", "4", "--block", "64K"]), index(&["--repeat", "4", "--block", "8M"]));
    assert_eq!(small["digest"], large["digest"]);
    assert!(small["mmaps"].as_u64().unwrap() > 2 * large["mmaps"].as_u64().unwrap(), "{small} {large}");
}

#[test]
fn textindex() {
    let report = Application::new("textindex", &["--slots", "1024"], "crates").is_the_same_everywhere();
    assert!(report["files"].as_u64().unwrap() > 50, "{report}");
}

#[test]
fn dedup() {
    let lock = Application::new("dedup", &["--block", "16K", "--repeat", "4"], "Cargo.lock");
    let report = lock.is_the_same_everywhere();
    assert!(report["new"].as_u64().unwrap() < report["chunks"].as_u64().unwrap(), "{report}");
}

/// The guest unpacks an archive that was packed on this machine's kernel.
#[test]
fn dedup_restores_an_archive_from_elsewhere() {
    let (file, archive) = (root().join("Cargo.lock"), scratch("dedup").join("archive").display().to_string());
    let program = program("dedup").display().to_string();
    let (_, status) = here(&[&program, file.to_str().unwrap(), "--output", &archive], b"");
    assert_eq!(status, Some(0));
    let restored = run(&["--file", &format!("{archive}:/archive")], &["dedup", "--restore", "/archive"]);
    assert!(restored.stdout == std::fs::read(file).unwrap(), "{} bytes", restored.stdout.len());
}

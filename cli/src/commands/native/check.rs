//! `radixvm native --check`: says before a program runs what of it cannot work.
//!
//! It reads the files of the program and executes nothing of them. It finds calls that the program contains,
//! which it need not make.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::Result;
use object::{Object, ObjectSymbol};

use launch::exit_status::{NOT_RUNNABLE, StatusError};
use launch::table::Table;
use launch::terminal;
use pathreads::elf::Headers;
use pathreads::refused::{self, Refusal};
use pathreads::sites::Code;

use super::calls::{self, Calls};
use super::files::{self, Libraries, MOST_BYTES, Program, shown};

/// How the program is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// With the pool.
    Pool,
    /// With the pool and `--strict`.
    Strict,
    /// With `--isolate`.
    Isolate,
}

/// The status if something was found.
const FOUND: u8 = 1;

/// The weight of a finding, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Weight {
    /// The program works, but may gain little.
    Remark,
    /// A part of the program fails, if the program comes to it.
    Fails,
    /// The runtime does not run it.
    Plain,
}

/// A reason why the program, or a part of it, does not work.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    weight: Weight,
    what: String,
    why: &'static str,
    /// The file that it was found in.
    file: PathBuf,
}

/// Everything that was found.
struct Report {
    mode: Mode,
    findings: Vec<Finding>,
    /// The `syscall` instructions, and those of them that are rewritten.
    places: (usize, usize),
    /// The calls whose number is not known.
    unknown: usize,
}

/// Checks a program and prints what was found. Returns the exit status: 1 if something may fail, else 0.
///
/// # Errors
/// If there is no such program, or none that can run.
pub fn run(name: &OsStr, mode: Mode) -> Result<u8> {
    let program = files::program(name)?;
    if program.bytes.is_some() && !program.is_elf() {
        let text = format!("{}: neither a program for x86-64 nor a script", shown(&program.path));
        return Err(StatusError::error(NOT_RUNNABLE, text));
    }
    let report = Report::of(&program, mode);
    terminal::print_plain(report.text(&program))?;
    Ok(if report.worst().is_some_and(|weight| weight > Weight::Remark) { FOUND } else { 0 })
}

impl Report {
    fn of(program: &Program, mode: Mode) -> Self {
        let mut report = Report { mode, findings: Vec::new(), places: (0, 0), unknown: 0 };
        report.add_program(program);
        if report.worst() != Some(Weight::Plain) {
            report.add_file(&program.path, program.bytes.as_deref().unwrap_or_default());
            report.add_libraries(program.libraries());
        }
        report.add_system();
        report
    }

    fn worst(&self) -> Option<Weight> {
        self.findings.iter().map(|finding| finding.weight).max()
    }

    fn add(&mut self, weight: Weight, what: impl Into<String>, why: &'static str, file: &Path) {
        self.findings.push(Finding { weight, what: what.into(), why, file: file.into() });
    }

    /// Adds the reasons for which Linux executes the program without the runtime.
    fn add_program(&mut self, program: &Program) {
        let path = &program.path;
        match program.headers() {
            _ if program.bytes.is_none() => {
                self.add(Weight::Plain, "no permission to read it", "so it was not looked at", path);
            }
            None => self.add(Weight::Plain, "another format", "it is no program for x86-64", path),
            Some(headers) if headers.takes_runtime_addresses() => {
                self.add(Weight::Plain, "fixed addresses", "the runtime has them itself", path);
            }
            Some(_) => {}
        }
        if program.bytes.is_some() && has_rights(path) {
            self.add(Weight::Plain, "rights of its own", "set-user-ID, set-group-ID or capabilities", path);
        }
    }

    fn add_libraries(&mut self, libraries: Libraries) {
        match libraries {
            Libraries::Static => {}
            Libraries::Unknown(why) => {
                self.add(Weight::Fails, "its libraries", NOT_LOOKED_AT, Path::new(&why))
            }
            Libraries::Fails(why) => {
                self.add(
                    Weight::Fails,
                    "its libraries",
                    "the dynamic linker ends the program",
                    Path::new(&why),
                );
            }
            Libraries::Found(found) => {
                for library in found {
                    match files::read(&library) {
                        Ok(bytes) => self.add_file(&library, &bytes),
                        Err(_) => self.add(Weight::Fails, "a library", NOT_LOOKED_AT, &library),
                    }
                }
            }
        }
    }

    /// Adds what a file contains: the program or a library.
    fn add_file(&mut self, path: &Path, bytes: &[u8]) {
        let (all, rewritten) = places(bytes);
        self.places = (self.places.0 + all, self.places.1 + rewritten);
        if bytes.len() as u64 == MOST_BYTES {
            self.add(Weight::Remark, "a large file", "only its first 512 MiB were looked at", path);
        }
        let Ok(file) = object::File::parse(bytes) else {
            return self.add(Weight::Fails, "damaged headers", NOT_LOOKED_AT, path);
        };
        for (name, sanitizer) in SANITIZERS {
            if has_symbol(&file, name) {
                self.add(
                    Weight::Fails,
                    sanitizer,
                    "it relies on addresses of its own, and was not tried",
                    path,
                );
            }
        }
        if files::is_c_library(path) {
            return;
        }
        let Some(calls) = calls::of(&file, bytes.len()) else {
            return self.add(Weight::Fails, "no list of its sections", NOT_LOOKED_AT, path);
        };
        self.unknown += calls.unknown;
        match self.mode {
            Mode::Pool | Mode::Strict => self.add_calls_of_pool(&calls, path),
            Mode::Isolate => {
                self.add_calls_of_isolate(&calls, path);
                self.add_devices(bytes, path);
            }
        }
    }

    fn add_calls_of_pool(&mut self, calls: &Calls, path: &Path) {
        let ends = |number: &u64| refused::ends_pool(*number) || *number == SECCOMP;
        for number in calls.numbers.iter().filter(|number| ends(number)) {
            self.add(Weight::Remark, name(*number), "the pool is off from then on", path);
        }
        let with_argument = WITH_ARGUMENT.iter().filter(|call| calls.arguments.contains(&call.key));
        for call in with_argument.filter(|call| call.ends_pool) {
            self.add(Weight::Remark, call.text, "the pool is off from then on", path);
        }
    }

    fn add_calls_of_isolate(&mut self, calls: &Calls, path: &Path) {
        for &number in &calls.numbers {
            let (weight, why) = match refused::of(number) {
                None => continue,
                // Most programs call it, and few install a filter.
                Some(Refusal::Sometimes(_)) if number == PRCTL => continue,
                Some(Refusal::Sometimes(_)) => (Weight::Fails, "refused, except for PTRACE_TRACEME"),
                Some(Refusal::Named(_) | Refusal::Unknown) => (Weight::Fails, "refused: ENOSYS"),
                Some(Refusal::WithThreads(_)) => (Weight::Fails, "refused while there are several threads"),
                Some(Refusal::Absent) => (Weight::Remark, "ENOSYS, as on a Linux that does not have it"),
            };
            self.add(weight, name(number), why, path);
        }
        let with_argument = WITH_ARGUMENT.iter().filter(|call| calls.arguments.contains(&call.key));
        for call in with_argument.filter(|call| call.is_refused) {
            self.add(Weight::Fails, call.text, "refused: ENOSYS", path);
        }
        if calls.clones {
            self.add(Weight::Fails, "clone", "refused, if the child shares memory and is no thread", path);
        }
    }

    /// Adds devices that keep to the address space which opened them.
    fn add_devices(&mut self, bytes: &[u8], path: &Path) {
        for (device, what) in refused::DEVICES {
            if contains(bytes, device.as_bytes()) {
                self.add(Weight::Fails, what, "the device serves one address space only", path);
            }
        }
    }

    /// Adds what this machine, or its limits, do not allow.
    fn add_system(&mut self) {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        if is_older(&release, (5, 11)) {
            let why = "no syscall user dispatch before 5.11: the pool is off, and there is no --isolate";
            self.add(Weight::Remark, format!("Linux {release}"), why, Path::new("this machine"));
        }
        use rustix::process::{Resource, getrlimit};
        let is_limited = [Resource::As, Resource::Data].map(|kind| getrlimit(kind).current.is_some());
        if is_limited.contains(&true) {
            let why = "a limit of memory switches the pool off";
            self.add(Weight::Remark, "ulimit -v or -d", why, Path::new("this machine"));
        }
    }

    fn text(&self, program: &Program) -> String {
        let mut text = format!("{}: {}\n", shown(&program.path), self.verdict());
        if let Some(script) = &program.script {
            text += &format!("It executes the script {}.\n", shown(script));
        }
        if !self.findings.is_empty() {
            text += &format!("\n{}", self.table());
        }
        if self.worst() != Some(Weight::Plain) {
            text += &self.limits();
        }
        text
    }

    fn verdict(&self) -> String {
        let option = match self.mode {
            Mode::Pool => "--pool",
            Mode::Strict => "--strict",
            Mode::Isolate => "--isolate",
        };
        match self.worst() {
            Some(Weight::Plain) => "Linux executes it without the runtime".to_owned(),
            Some(Weight::Fails) => format!("parts of it may not work with {option}"),
            Some(Weight::Remark) => {
                format!("it works with {option}, as far as can be seen, and may gain little")
            }
            None => format!("nothing was found that does not work with {option}"),
        }
    }

    fn table(&self) -> Table {
        let mut table = Table::new(["found", "what becomes of it", "where"]).left(1).left(2);
        let mut findings: Vec<&Finding> = self.findings.iter().collect();
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.weight));
        for finding in findings {
            table.row([shown(&finding.what), finding.why.to_owned(), shown(&finding.file)]);
        }
        table
    }

    /// Says how much was looked at.
    fn limits(&self) -> String {
        let mut text = "\n".to_owned();
        let (all, rewritten) = self.places;
        if all > 0 {
            text += &format!(
                "{rewritten} of {all} places of system calls are rewritten. A call at another one takes some microseconds more.\n"
            );
        }
        if self.unknown > 0 {
            text += &format!("Calls whose numbers are not known: {}.\n", self.unknown);
        }
        text + "Libraries that it opens while it runs, code that it makes, and programs that it executes were not\n\
            looked at.\n"
    }
}

const NOT_LOOKED_AT: &str = "not looked at";

const SECCOMP: u64 = 317;
const PRCTL: u64 = 157;
const SETRLIMIT: u64 = 160;

/// A call that matters with one value of its first argument.
struct WithArgument {
    /// Its number, and the argument.
    key: (u64, u64),
    text: &'static str,
    ends_pool: bool,
    /// Whether `--isolate` refuses it.
    is_refused: bool,
}

const WITH_ARGUMENT: [WithArgument; 4] = [
    WithArgument { key: (PRCTL, 22), text: "prctl(PR_SET_SECCOMP)", ends_pool: true, is_refused: true },
    WithArgument { key: (SETRLIMIT, 1), text: "setrlimit(RLIMIT_FSIZE)", ends_pool: false, is_refused: true },
    WithArgument { key: (SETRLIMIT, 2), text: "setrlimit(RLIMIT_DATA)", ends_pool: true, is_refused: false },
    WithArgument { key: (SETRLIMIT, 9), text: "setrlimit(RLIMIT_AS)", ends_pool: true, is_refused: false },
];

/// Returns the name of a call.
fn name(number: u64) -> &'static str {
    abi::syscalls::find(number).map_or("?", |entry| entry.name)
}

/// A function of each sanitizer's library.
const SANITIZERS: [(&str, &str); 4] = [
    ("__asan_init", "AddressSanitizer"),
    ("__hwasan_init", "HWAddressSanitizer"),
    ("__msan_init", "MemorySanitizer"),
    ("__tsan_init", "ThreadSanitizer"),
];

/// Returns the number of places with the bytes of a `syscall`, and of those that can be rewritten.
fn places(bytes: &[u8]) -> (usize, usize) {
    let head = &bytes[..bytes.len().min(pathreads::elf::HEAD)];
    let Some(headers) = Headers::parse(head) else { return (0, 0) };
    let codes = headers.loads().filter_map(|load| Code::new(bytes, load.offset, load.file_size));
    codes.fold((0, 0), |(all, rewritten), code| {
        (all + code.candidates().count(), rewritten + code.sites().count())
    })
}

fn has_symbol(file: &object::File<'_>, name: &str) -> bool {
    file.symbols().chain(file.dynamic_symbols()).any(|symbol| symbol.name() == Ok(name))
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| *byte == part[0]) {
        if rest[at..].starts_with(part) {
            return true;
        }
        rest = &rest[at + 1..];
    }
    false
}

/// Returns whether a file has rights of its own.
fn has_rights(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    const SET_IDS: u32 = 0o6000;
    let Ok(file) = File::open(path) else { return true };
    let mode = file.metadata().map_or(SET_IDS, |metadata| metadata.permissions().mode());
    let capabilities = rustix::fs::fgetxattr(&file, "security.capability", &mut [0_u8; 0]);
    mode & SET_IDS != 0 || capabilities.is_ok()
}

/// Returns whether a release of Linux, such as `6.1.0-56-cloud-amd64`, is older than a version.
fn is_older(release: &str, (major, minor): (u32, u32)) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < (major, minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_their_numbers() {
        assert!(is_older("5.10.0-39-amd64", (5, 11)) && is_older("4.19.0", (5, 11)));
        assert!(!is_older("5.11.0", (5, 11)) && !is_older("6.1.0-56-cloud-amd64", (5, 11)));
    }

    #[test]
    fn this_test_has_nothing_that_does_not_work() {
        let path = std::env::current_exe().unwrap();
        let program = files::program(path.as_os_str()).unwrap();
        let report = Report::of(&program, Mode::Pool);
        assert_eq!(report.worst(), None, "{:?}", report.findings);
        let (all, rewritten) = report.places;
        assert!(all > 100 && rewritten * 10 > all * 9, "{rewritten} of {all}");
    }
}

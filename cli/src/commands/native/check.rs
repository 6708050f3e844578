//! `radixvm native --check`: says before a program runs what of it cannot work.
//!
//! It reads the files of the program and executes nothing of them. It finds calls that the program contains,
//! which it need not make.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::Result;
use object::{Object, ObjectSymbol};

use launch::exit_status::{NOT_FOUND, NOT_RUNNABLE, StatusError};
use launch::table::Table;
use launch::terminal;
use pathreads::elf::Headers;
use pathreads::refused::{self, Refusal};
use pathreads::sites::Code;

use super::calls::{self, Calls};
use super::files::{self, Libraries, Program};

/// How the program is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// With the pool, strict or not.
    Pool,
    /// With `--isolate`.
    Isolate,
}

/// The status if something was found.
const FOUND: u8 = 1;

/// The weight of a finding, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Weight {
    /// The program works, but may gain nothing.
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

/// Checks a program and prints what was found. Returns the exit status: 0 if nothing was.
pub fn run(name: &OsStr, mode: Mode) -> Result<u8> {
    let Some(program) = files::program(name)? else {
        return Err(StatusError::error(NOT_FOUND, format!("{}: no such program", name.display())));
    };
    if !files::is_executable(&program.path) {
        let text = format!("{}: no permission to execute it", program.path.display());
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
            report.add_file(&program.path, &program.bytes);
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
            None => self.add(Weight::Plain, "another format", "it is no program for x86-64", path),
            Some(headers) if headers.takes_runtime_addresses() => {
                self.add(Weight::Plain, "fixed addresses", "the runtime has them itself", path);
            }
            Some(_) => {}
        }
        if has_rights(path) {
            self.add(Weight::Plain, "rights of its own", "set-user-ID, set-group-ID or capabilities", path);
        }
    }

    fn add_libraries(&mut self, libraries: Libraries) {
        match libraries {
            Libraries::Static => {}
            Libraries::Unknown(why) => self.add(Weight::Remark, "libraries", "not known", Path::new(&why)),
            Libraries::Found(found, missing) => {
                for library in missing {
                    let why = "missing: the dynamic linker ends the program";
                    self.add(Weight::Fails, "a library", why, Path::new(&library));
                }
                for library in found {
                    match fs::read(&library) {
                        Ok(bytes) => self.add_file(&library, &bytes),
                        Err(_) => self.add(Weight::Remark, "a library", "cannot be read", &library),
                    }
                }
            }
        }
    }

    /// Adds what a file contains: the program or a library.
    fn add_file(&mut self, path: &Path, bytes: &[u8]) {
        let (all, rewritten) = places(bytes);
        self.places = (self.places.0 + all, self.places.1 + rewritten);
        let Ok(file) = object::File::parse(bytes) else { return };
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
        let calls = calls::of(&file);
        self.unknown += calls.unknown;
        match self.mode {
            Mode::Pool => self.add_calls_of_pool(&calls, path),
            Mode::Isolate => {
                self.add_calls_of_isolate(&calls, path);
                self.add_devices(bytes, path);
                if file.section_by_name(".go.buildinfo").is_some() {
                    self.add(Weight::Fails, "Go", "a thread cannot wait for the child of another one", path);
                }
            }
        }
    }

    fn add_calls_of_pool(&mut self, calls: &Calls, path: &Path) {
        const SECCOMP: u64 = 317;
        if calls.numbers.contains(&SECCOMP) {
            self.add(Weight::Remark, "seccomp", "a filter of system calls switches the pool off", path);
        }
    }

    fn add_calls_of_isolate(&mut self, calls: &Calls, path: &Path) {
        const PRCTL: u64 = 157;
        for &number in &calls.numbers {
            let (weight, why) = match refused::of(number) {
                None => continue,
                // Most programs call it, and few install a filter.
                Some(Refusal::Sometimes(_)) if number == PRCTL => continue,
                Some(Refusal::Sometimes(_)) => (Weight::Fails, "refused, except for PTRACE_TRACEME"),
                Some(Refusal::Named(_)) => (Weight::Fails, "refused: ENOSYS"),
                Some(Refusal::WithThreads(_)) => (Weight::Fails, "refused while there are several threads"),
                Some(Refusal::Absent) => (Weight::Remark, "ENOSYS, as on a Linux that does not have it"),
            };
            let name = abi::syscalls::find(number).map_or("?", |entry| entry.name);
            self.add(weight, name, why, path);
        }
    }

    /// Adds devices that keep to the address space which opened them.
    fn add_devices(&mut self, bytes: &[u8], path: &Path) {
        for (device, what) in DEVICES {
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
        let mut text = format!("{}: {}\n", program.path.display(), self.verdict());
        if let Some(script) = &program.script {
            text += &format!("It is the interpreter of the script {}.\n", script.display());
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
        let option = if self.mode == Mode::Pool { "--pool" } else { "--isolate" };
        match self.worst() {
            Some(Weight::Plain) => "Linux executes it without the runtime".to_owned(),
            Some(Weight::Fails) => format!("parts of it may not work with {option}"),
            _ => format!("nothing was found that does not work with {option}"),
        }
    }

    fn table(&self) -> Table {
        let mut table = Table::new(["found", "what becomes of it", "where"]).left(1).left(2);
        let mut findings: Vec<&Finding> = self.findings.iter().collect();
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.weight));
        for finding in findings {
            let file = terminal::name(&finding.file.to_string_lossy());
            table.row([terminal::name(&finding.what), finding.why.to_owned(), file]);
        }
        table
    }

    /// Says how much was looked at.
    fn limits(&self) -> String {
        let (all, rewritten) = self.places;
        let mut text = format!(
            "\n{rewritten} of {all} places of system calls are rewritten. A call at another one takes some microseconds more.\n"
        );
        if self.unknown > 0 {
            text += &format!("The numbers of {} calls are not known.\n", self.unknown);
        }
        text + "Libraries that it opens while it runs, code that it makes, and programs that it executes were not\n\
            looked at.\n"
    }
}

/// A function of each sanitizer's library.
const SANITIZERS: [(&str, &str); 4] = [
    ("__asan_init", "AddressSanitizer"),
    ("__hwasan_init", "HWAddressSanitizer"),
    ("__msan_init", "MemorySanitizer"),
    ("__tsan_init", "ThreadSanitizer"),
];

/// Paths of devices whose drivers remember the address space that opened them.
const DEVICES: [(&str, &str); 4] =
    [("/dev/kvm", "KVM"), ("/dev/nvidia", "GPU"), ("/dev/dri/", "GPU"), ("/dev/infiniband", "RDMA")];

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
    bytes.windows(part.len()).any(|window| window == part)
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
        let program = files::program(path.as_os_str()).unwrap().unwrap();
        let report = Report::of(&program, Mode::Pool);
        assert_eq!(report.worst(), None, "{:?}", report.findings);
        let (all, rewritten) = report.places;
        assert!(all > 100 && rewritten * 10 > all * 9, "{rewritten} of {all}");
    }
}

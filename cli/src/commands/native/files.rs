//! The files of a program: itself, and the libraries that the dynamic linker loads with it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use launch::exit_status::{NOT_FOUND, NOT_RUNNABLE, StatusError};
use launch::terminal;
use pathreads::elf::{HEAD, Headers, PT_INTERP, SCRIPT_HEAD, Script};

/// Scripts whose interpreters are scripts, as far as Linux follows them.
const MOST_SCRIPTS: usize = 5;

/// The most bytes of a file that are looked at.
pub const MOST_BYTES: u64 = 512 << 20;

/// The dynamic linkers that list the libraries of a program without executing it. A program may name any
/// other file.
const LINKERS: [&str; 2] = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1"];

/// Variables that have the dynamic linker execute other code, or print other text.
const VARIABLES: [&str; 5] = ["LD_AUDIT", "LD_BIND_NOW", "LD_DEBUG", "LD_VERBOSE", "LD_WARN"];

/// A program that is executed.
#[derive(Debug)]
pub struct Program {
    /// Its file.
    pub path: PathBuf,
    /// The script that names it in its first line, if it is the interpreter of one.
    pub script: Option<PathBuf>,
    /// Its contents, or `None` if it can be executed and not read.
    pub bytes: Option<Vec<u8>>,
}

/// The libraries of a program.
#[derive(Debug, PartialEq, Eq)]
pub enum Libraries {
    /// It has none.
    Static,
    /// The dynamic linker finds these.
    Found(Vec<PathBuf>),
    /// It ends the program, for this reason.
    Fails(String),
    /// They are not known, for this reason.
    Unknown(String),
}

/// Finds the program that is executed as `name`: a path, or a file in a folder of the PATH.
///
/// # Errors
/// Those of the shell and of the runtime, with their statuses: 127 if there is none, 126 if it cannot be
/// executed.
pub fn program(name: &OsStr) -> Result<Program> {
    let (mut path, mut script) = (find(name)?, None);
    for _ in 0..=MOST_SCRIPTS {
        let program = Program { bytes: contents(&path)?, path: path.clone(), script: script.clone() };
        let head = program.head(SCRIPT_HEAD);
        let Some(line) = Script::parse(head) else { return Ok(program) };
        let next = interpreter(&line).with_context(|| format!("{}: its first line", shown(&path)))?;
        script.get_or_insert(path);
        path = next;
    }
    Err(StatusError::error(NOT_RUNNABLE, format!("{}: scripts name scripts as interpreters", shown(name))))
}

/// Returns the program that executes a script. `env` executes the program that it is given.
fn interpreter(line: &Script<'_>) -> Result<PathBuf> {
    let until_zero =
        |text: &[u8]| OsString::from_vec(text.split(|byte| *byte == 0).next().unwrap_or(text).to_vec());
    let path = PathBuf::from(until_zero(line.interpreter));
    let argument = until_zero(line.argument.unwrap_or_default());
    let mut words =
        argument.as_bytes().split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
    let named = words.find(|word| *word != b"-S" && !word.contains(&b'='));
    match named.filter(|word| path.file_name() == Some("env".as_ref()) && !word.starts_with(b"-")) {
        Some(word) => find(OsStr::from_bytes(word)),
        None => find(path.as_os_str()),
    }
}

/// Returns a file or a path as it can be shown on a terminal.
pub fn shown(path: impl AsRef<OsStr>) -> String {
    terminal::name(&path.as_ref().to_string_lossy())
}

fn find(name: &OsStr) -> Result<PathBuf> {
    let missing = || StatusError::error(NOT_FOUND, format!("{}: no such program", shown(name)));
    if name.as_bytes().contains(&b'/') {
        return if Path::new(name).exists() { Ok(name.into()) } else { Err(missing()) };
    }
    let paths = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    std::env::split_paths(&paths)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file() && is_executable(path))
        .ok_or_else(missing)
}

fn is_executable(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Reads a program, as far as it is looked at.
fn contents(path: &Path) -> Result<Option<Vec<u8>>> {
    let refused = |why: &str| Err(StatusError::error(NOT_RUNNABLE, format!("{}: {why}", shown(path))));
    if !path.is_file() {
        return refused("not a file that can be executed");
    }
    if !is_executable(path) {
        return refused("no permission to execute it");
    }
    Ok(read(path).ok())
}

/// Reads the first [`MOST_BYTES`] of a file.
pub fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MOST_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl Program {
    fn head(&self, most: usize) -> &[u8] {
        let bytes = self.bytes.as_deref().unwrap_or_default();
        &bytes[..bytes.len().min(most)]
    }

    /// Returns its headers, if it is a program for x86-64.
    pub fn headers(&self) -> Option<Headers<'_>> {
        Headers::parse(self.head(HEAD))
    }

    /// Returns whether it is an ELF file for any machine.
    pub fn is_elf(&self) -> bool {
        self.head(4) == b"\x7fELF"
    }

    /// Asks the dynamic linker for the libraries. That executes nothing of the program.
    pub fn libraries(&self) -> Libraries {
        let Some(linker) = self.linker() else { return Libraries::Static };
        if !LINKERS.iter().any(|known| OsStr::new(known) == linker) {
            return Libraries::Unknown(format!("its dynamic linker is {}", shown(&linker)));
        }
        if self.names_auditors() {
            return Libraries::Unknown(
                "it names libraries that would be executed while these are listed".into(),
            );
        }
        listed(&linker, &self.path).unwrap_or_else(|error| Libraries::Unknown(format!("{error:#}")))
    }

    fn part(&self, kind: u32) -> Option<&[u8]> {
        let segment = self.headers()?.find(kind)?;
        let from = usize::try_from(segment.offset).ok()?;
        let end = from.checked_add(usize::try_from(segment.file_size).ok()?)?;
        self.bytes.as_deref()?.get(from..end)
    }

    /// Returns the path of the dynamic linker.
    fn linker(&self) -> Option<OsString> {
        let path = self.part(PT_INTERP)?.split(|byte| *byte == 0).next()?;
        Some(OsString::from_vec(path.to_vec()))
    }

    /// Returns whether the program names audit libraries, which the dynamic linker executes before it lists
    /// anything.
    fn names_auditors(&self) -> bool {
        const PT_DYNAMIC: u32 = 2;
        const DT_DEPAUDIT: u64 = 0x6fff_fefb;
        const DT_AUDIT: u64 = 0x6fff_fefc;
        let entries = self.part(PT_DYNAMIC).unwrap_or_default().chunks_exact(16);
        let tags = entries.map(|entry| u64::from_le_bytes(entry[..8].try_into().expect("eight bytes")));
        tags.into_iter().any(|tag| matches!(tag, DT_AUDIT | DT_DEPAUDIT))
    }
}

fn listed(linker: &OsStr, program: &Path) -> Result<Libraries> {
    let program = std::fs::canonicalize(program)?;
    let mut command = Command::new(linker);
    command.arg("--list").arg(program).stdin(Stdio::null());
    for name in VARIABLES {
        command.env_remove(name);
    }
    let output = command.output().with_context(|| format!("cannot execute {}", shown(linker)))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(match output.status.success() {
        true => parse(&text(&output.stdout)),
        false => Libraries::Fails(failure(&text(&output.stderr), &output.status.to_string())),
    })
}

/// Reads lines such as `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f…)`. The kernel's own library
/// has no file.
fn parse(text: &str) -> Libraries {
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        let target = line.split_once(" => ").map_or(line, |(_, target)| target);
        match target.rsplit_once(" (0x") {
            Some((path, _)) if path.starts_with('/') => found.push(path.into()),
            Some(("linux-vdso.so.1", _)) => {}
            _ if line == "statically linked" => {}
            _ => return Libraries::Unknown(format!("the dynamic linker says: {}", shown(line))),
        }
    }
    Libraries::Found(found)
}

/// Returns the reason of glibc's or musl's linker for ending the program, for instance the first library that
/// is missing.
fn failure(text: &str, status: &str) -> String {
    let Some(line) = text.lines().find(|line| !line.trim().is_empty()) else {
        return format!("the dynamic linker ended by {status}");
    };
    let messages = ["error while loading shared libraries: ", "Error loading shared library "];
    let rest = messages.iter().find_map(|message| Some(line.split_once(message)?.1));
    shown(rest.unwrap_or(line))
}

/// Returns whether a library belongs to the C library, whose functions make every call.
pub fn is_c_library(path: &Path) -> bool {
    const NAMES: [&str; 9] = [
        "libc",
        "ld-linux-x86-64",
        "ld-musl-x86_64",
        "libpthread",
        "librt",
        "libm",
        "libdl",
        "libresolv",
        "libanl",
    ];
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.split_once(".so").is_some_and(|(stem, _)| NAMES.contains(&stem) || stem.starts_with("libc.musl"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_linkers_list_is_read() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibz.so.1 => /lib/libz.so.1 (0x00007f)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let found = vec!["/lib/libz.so.1".into(), "/lib64/ld-linux-x86-64.so.2".into()];
        assert_eq!(parse(text), Libraries::Found(found));
        assert!(matches!(parse("\tlibx.so => /odd\nfolder/libx.so (0x0)"), Libraries::Unknown(_)));
        for message in [
            "/bin/x: error while loading shared libraries: libgone.so: cannot open shared object file: No such\n",
            "\nError loading shared library libgone.so: No such file or directory (needed by /bin/x)",
        ] {
            assert!(failure(message, "").starts_with("libgone.so: "), "{message}");
        }
        assert_eq!(failure("", "signal: 7"), "the dynamic linker ended by signal: 7");
    }

    #[test]
    fn the_c_library_is_known_by_its_names() {
        for name in ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2", "/a/libm.so.6"] {
            assert!(is_c_library(Path::new(name)), "{name}");
        }
        for name in ["/lib/libcap.so.2", "/lib/libmount.so.1", "/bin/libc"] {
            assert!(!is_c_library(Path::new(name)), "{name}");
        }
    }

    fn status_of(name: &OsStr) -> u8 {
        program(name).unwrap_err().downcast::<StatusError>().unwrap().status
    }

    #[test]
    fn a_script_leads_to_its_interpreter() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        let write = |line: &str| {
            std::fs::write(&script, line).unwrap();
            std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
        };
        for line in ["#!/bin/sh\n", "#!/bin/sh\0x\n", "#!/usr/bin/env -S A=1 sh -e\n", "#!/usr/bin/env sh\n"]
        {
            write(line);
            let found = program(script.as_os_str()).unwrap();
            assert_eq!(found.path.file_name(), Some("sh".as_ref()), "{line}");
            assert_eq!(found.script.as_ref(), Some(&script));
        }
        for (line, status) in [
            (format!("#!{}\n", script.display()), NOT_RUNNABLE),
            ("#!/no/such\n".to_owned(), NOT_FOUND),
            ("#!/dev/zero\n".to_owned(), NOT_RUNNABLE),
            (format!("#!{}\n", folder.path().display()), NOT_RUNNABLE),
        ] {
            write(&line);
            assert_eq!(status_of(script.as_os_str()), status, "{line}");
        }
        assert_eq!(status_of("no-such-program".as_ref()), NOT_FOUND);
        assert_eq!(status_of("/".as_ref()), NOT_RUNNABLE);
    }
}

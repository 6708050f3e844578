//! The files of a program: itself, and the libraries that the dynamic linker loads with it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use pathreads::elf::{HEAD, Headers, PT_INTERP, SCRIPT_HEAD, Script};

/// Scripts whose interpreters are scripts, as far as Linux follows them.
const MOST_SCRIPTS: usize = 5;

/// The dynamic linkers that list the libraries of a program without executing it. A program may name any
/// other file.
const LINKERS: [&str; 2] = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1"];

/// A program that is executed.
#[derive(Debug)]
pub struct Program {
    /// Its file.
    pub path: PathBuf,
    /// The script that names it in its first line, if it is the interpreter of one.
    pub script: Option<PathBuf>,
    /// Its contents.
    pub bytes: Vec<u8>,
}

/// The libraries of a program.
#[derive(Debug, PartialEq, Eq)]
pub enum Libraries {
    /// It has none.
    Static,
    /// The dynamic linker finds these, or none because those in the second list are missing.
    Found(Vec<PathBuf>, Vec<String>),
    /// They are not known, for this reason.
    Unknown(String),
}

/// Finds the program that is executed as `name`: a path, or a file in a folder of the PATH.
pub fn program(name: &OsStr) -> Result<Option<Program>> {
    let Some(mut path) = find(name) else { return Ok(None) };
    let mut script = None;
    for _ in 0..=MOST_SCRIPTS {
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let Some(line) = Script::parse(&bytes[..bytes.len().min(SCRIPT_HEAD)]) else {
            return Ok(Some(Program { path, script, bytes }));
        };
        let interpreter = PathBuf::from(OsString::from_vec(line.interpreter.to_vec()));
        script.get_or_insert(path);
        path = interpreter;
    }
    bail!("{}: scripts name scripts as their interpreters", name.display())
}

fn find(name: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Path::new(name).is_file().then(|| name.into());
    }
    let paths = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    std::env::split_paths(&paths).map(|folder| folder.join(name)).find(|path| is_executable(path))
}

/// Returns whether this user may execute a file.
pub fn is_executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

impl Program {
    /// Returns its headers, if it is a program for x86-64.
    pub fn headers(&self) -> Option<Headers<'_>> {
        Headers::parse(&self.bytes[..self.bytes.len().min(HEAD)])
    }

    /// Asks the dynamic linker for the libraries. That executes nothing of the program.
    pub fn libraries(&self) -> Libraries {
        let Some(linker) = self.linker() else { return Libraries::Static };
        if !LINKERS.iter().any(|known| OsStr::new(known) == linker) {
            return Libraries::Unknown(format!("its dynamic linker is {}", linker.display()));
        }
        match listed(&linker, &self.path) {
            Ok(text) => parse(&text),
            Err(error) => Libraries::Unknown(format!("{error:#}")),
        }
    }

    /// Returns the path of the dynamic linker.
    fn linker(&self) -> Option<OsString> {
        let segment = self.headers()?.find(PT_INTERP)?;
        let from = usize::try_from(segment.offset).ok()?;
        let end = from.checked_add(usize::try_from(segment.file_size).ok()?)?;
        let path = self.bytes.get(from..end)?.split(|byte| *byte == 0).next()?;
        Some(OsString::from_vec(path.to_vec()))
    }
}

/// Returns the dynamic linker's list, or its message if it does not find a library.
fn listed(linker: &OsStr, program: &Path) -> Result<String> {
    let program = fs::canonicalize(program)?;
    let mut command = Command::new(linker);
    command.arg("--list").arg(program).stdin(Stdio::null());
    let output = command.output().with_context(|| format!("cannot execute {}", linker.display()))?;
    let text = if output.status.success() { output.stdout } else { output.stderr };
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Reads lines such as `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f…)`, or the message of glibc's
/// or musl's linker about the first library that is missing.
fn parse(text: &str) -> Libraries {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for line in text.lines().map(str::trim) {
        let target = line.split_once(" => ").map_or(line, |(_, target)| target);
        match target.rsplit_once(" (0x") {
            Some((path, _)) if path.starts_with('/') => found.push(path.into()),
            Some(_) => {}
            None => missing.extend(named_missing(line)),
        }
    }
    Libraries::Found(found, missing)
}

fn named_missing(line: &str) -> Option<String> {
    let messages = ["error while loading shared libraries: ", "Error loading shared library "];
    let rest = messages.iter().find_map(|message| Some(line.split_once(message)?.1))?;
    Some(rest.split(": ").next().unwrap_or(rest).to_owned())
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
        assert_eq!(parse(text), Libraries::Found(found, Vec::new()));
        for message in [
            "/bin/x: error while loading shared libraries: libgone.so: cannot open shared object file: No such",
            "Error loading shared library libgone.so: No such file or directory (needed by /bin/x)",
        ] {
            assert_eq!(parse(message), Libraries::Found(Vec::new(), vec!["libgone.so".into()]));
        }
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

    #[test]
    fn a_script_leads_to_its_interpreter() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        fs::write(&script, "#!/bin/sh\n").unwrap();
        let found = program(script.as_os_str()).unwrap().unwrap();
        assert_eq!((found.path.to_str(), found.script), (Some("/bin/sh"), Some(script.clone())));
        fs::write(&script, format!("#!{}\n", script.display())).unwrap();
        assert!(program(script.as_os_str()).is_err());
        assert!(program("no-such-program".as_ref()).unwrap().is_none());
    }
}

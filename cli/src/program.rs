//! Finding the program that the user named, and checking early whether it can run.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use object::elf::{EM_X86_64, ET_DYN, ET_EXEC, FileHeader64, PT_INTERP, PT_LOAD, ProgramHeader64};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, elf};

use crate::exit_status::{NOT_FOUND, NOT_RUNNABLE, StatusError};

/// A program that can run, read into memory.
#[derive(Clone)]
pub struct Program {
    /// The path where it was found.
    pub path: PathBuf,
    /// Its content.
    pub bytes: Vec<u8>,
}

impl Program {
    /// Reads and checks a static program.
    pub fn load(path: &Path) -> Result<Self> {
        Self::load_if(path, |bytes| {
            check(bytes).and_then(|needs| needs.map_or(Ok(()), |needs| Err(needs.refusal())))
        })
    }

    /// Reads and checks a program that may need other files of the host. Returns what it needs.
    pub fn load_any(path: &Path) -> Result<(Self, Option<Needs>)> {
        let mut needs = None;
        let program = Self::load_if(path, |bytes| {
            needs = check(bytes)?;
            Ok(())
        })?;
        Ok((program, needs))
    }

    fn load_if(path: &Path, check: impl FnOnce(&[u8]) -> Result<(), String>) -> Result<Self> {
        let shown = path.display();
        let refused = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                StatusError::error(NOT_FOUND, format!("{shown}: no such program"))
            }
            _ => StatusError::error(NOT_RUNNABLE, format!("{shown}: {error}")),
        };
        let unfit = |why: String| StatusError::error(NOT_RUNNABLE, format!("{shown}: {why}"));
        let metadata = fs::metadata(path).map_err(refused)?;
        // Checked before it is read, because a named pipe would never end.
        if !metadata.is_file() {
            return Err(unfit("not a regular file".to_owned()));
        }
        let bytes = fs::read(path).map_err(refused)?;
        check(&bytes).and_then(|()| check_permission(&metadata)).map_err(unfit)?;
        Ok(Program { path: path.to_owned(), bytes })
    }

    /// Returns whether the kernel chooses its address.
    pub fn is_position_independent(&self) -> bool {
        self.bytes.get(16..18) == Some(&ET_DYN.0.to_le_bytes())
    }

    /// Returns its name in the guest.
    pub fn name(&self) -> String {
        self.path.file_name().map_or_else(|| "program".into(), |name| name.to_string_lossy().into_owned())
    }
}

/// Finds a program by its name. A name without a slash is a file in the current directory, or else one on the
/// PATH.
pub fn find(name: &str) -> Result<PathBuf> {
    let here = Path::new(name);
    if name.contains('/') || here.is_file() {
        return Ok(here.to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    found.ok_or_else(|| StatusError::error(NOT_FOUND, format!("{name}: no such program here or on the PATH")))
}

/// The file that a program needs besides its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Needs {
    /// This dynamic linker, and libraries.
    Linker(String),
    /// It is a script: this interpreter, with this argument.
    Interpreter(String, Option<String>),
}

impl Needs {
    /// Says why a guest without the host's files cannot run the program.
    fn refusal(&self) -> String {
        match self {
            Needs::Linker(linker) => dynamic(linker),
            Needs::Interpreter(..) => {
                "a script, not an ELF program; run its interpreter and hand the script over with --file"
                    .into()
            }
        }
    }
}

/// The deepest nesting of scripts whose interpreters are scripts, as on Linux.
const DEEPEST: usize = 5;

/// Replaces a script by its interpreter, which gets the script's path as an argument. Returns the arguments.
pub fn follow_scripts(
    program: &mut Program,
    mut needs: Option<Needs>,
    mut argv: Vec<OsString>,
) -> Result<Vec<OsString>> {
    let first = program.path.display().to_string();
    for _ in 0..DEEPEST {
        let Some(Needs::Interpreter(name, argument)) = needs else { return Ok(argv) };
        let script = std::mem::replace(&mut program.path, name.clone().into());
        let words = [Some(name.into()), argument.map(OsString::from), Some(script.into_os_string())];
        argv.splice(..1, words.into_iter().flatten());
        (*program, needs) = Program::load_any(&program.path)?;
    }
    Err(StatusError::error(
        NOT_RUNNABLE,
        format!("{first}: scripts whose interpreters are scripts, too many"),
    ))
}

/// Parses the first line of a script, as Linux does.
fn interpreter(bytes: &[u8]) -> Result<Option<Needs>, String> {
    let Some(line) = bytes.strip_prefix(b"#!") else { return Ok(None) };
    let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let line = line.trim_matches([' ', '\t']);
    let (name, argument) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    if name.is_empty() {
        return Err("a script that names no interpreter".into());
    }
    let argument =
        Some(argument.trim_matches([' ', '\t']).to_owned()).filter(|argument| !argument.is_empty());
    Ok(Some(Needs::Interpreter(name.to_owned(), argument)))
}

/// Checks that these bytes are a program for the guest, and says why not. Returns what it needs.
fn check(bytes: &[u8]) -> Result<Option<Needs>, String> {
    if let Some(script) = interpreter(bytes)? {
        return Ok(Some(script));
    }
    if !bytes.starts_with(&elf::ELFMAG) {
        return Err("not an ELF program".into());
    }
    let header =
        FileHeader64::<Endianness>::parse(bytes).map_err(|_| "not a 64-bit ELF program".to_owned())?;
    let endian = header.endian().map_err(|error| error.to_string())?;
    let kind = header.e_type(endian);
    check_kind(header.e_machine(endian), kind, header.e_entry(endian))?;
    let segments =
        header.program_headers(endian, bytes).map_err(|error| format!("a damaged ELF file: {error}"))?;
    match segments.iter().find(|segment| segment.p_type(endian) == PT_INTERP) {
        Some(segment) => {
            let linker = String::from_utf8_lossy(segment.data(endian, bytes).unwrap_or_default());
            Ok(Some(Needs::Linker(linker.trim_end_matches('\0').to_owned())))
        }
        None => segments
            .iter()
            .try_for_each(|segment| check_whole(segment, endian, bytes.len() as u64))
            .map(|()| None),
    }
}

/// Checks that the file holds a whole segment. A truncated file is the most common damage. The kernel finds
/// the rest.
fn check_whole(segment: &ProgramHeader64<Endianness>, endian: Endianness, length: u64) -> Result<(), String> {
    let end = segment.p_offset(endian).saturating_add(segment.p_filesz(endian));
    if segment.p_type(endian) != PT_LOAD || end <= length {
        return Ok(());
    }
    Err(format!(
        "a damaged ELF file: a segment ends at byte {end} of the file, which has {length}: is it whole?"
    ))
}

/// Checks the permission to execute as a shell does, even for root.
fn check_permission(metadata: &Metadata) -> Result<(), String> {
    match metadata.permissions().mode() & 0o111 {
        0 => Err("permission denied: it may not be executed (chmod +x)".to_owned()),
        _ => Ok(()),
    }
}

fn check_kind(machine: elf::Machine, kind: elf::FileType, entry: u64) -> Result<(), String> {
    if machine != EM_X86_64 {
        return Err(format!("made for another machine (ELF machine {}), not for x86-64", machine.0));
    }
    match kind {
        ET_EXEC => Ok(()),
        ET_DYN if entry != 0 => Ok(()),
        ET_DYN => Err("a shared library, not a program".into()),
        _ => Err("an ELF file, but not a program".into()),
    }
}

fn dynamic(linker: &str) -> String {
    format!(
        "a dynamically linked program (it wants {linker}), which needs this machine's files: `radixvm run` without \
         --host-files never runs it on RadixVM; link it with -static for other uses"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the smallest file that passes, with one program header of this type for all of it.
    fn image(machine: u16, kind: u16, segment: u32) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56];
        bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        bytes[16..18].copy_from_slice(&kind.to_le_bytes());
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[24] = 1; // entry
        bytes[32] = 64; // program headers
        bytes[52] = 64; // size of this header
        bytes[54] = 56; // size of a program header
        bytes[56] = 1; // how many
        bytes[64..68].copy_from_slice(&segment.to_le_bytes());
        bytes[64 + 18] = 0x40; // at 4 MiB
        bytes[64 + 32] = 120; // bytes in the file
        bytes[64 + 40] = 120; // bytes in memory
        bytes
    }

    #[test]
    fn static_programs_pass() {
        assert_eq!(check(&image(62, 2, 1)), Ok(None));
        assert_eq!(check(&image(62, 3, 1)), Ok(None));
    }

    #[test]
    fn everything_else_is_named() {
        let why = |bytes: &[u8]| check(bytes).unwrap_err();
        assert!(why(b"#! \n").contains("no interpreter"));
        assert!(why(b"text").contains("not an ELF"));
        assert!(why(b"\x7fELF").contains("64-bit"));
        assert!(why(&image(183, 2, 1)).contains("another machine"));
        assert!(why(&image(62, 1, 1)).contains("not a program"));
        let mut library = image(62, 3, 1);
        library[24] = 0;
        assert!(why(&library).contains("shared library"));
    }

    #[test]
    fn what_a_program_needs_is_found() {
        let needs = |bytes: &[u8]| check(bytes).unwrap().unwrap();
        assert!(needs(&image(62, 3, 3)).refusal().contains("dynamically linked"));
        let script = |line: &str| needs(line.as_bytes());
        let sh = |argument: Option<&str>| Needs::Interpreter("/bin/sh".into(), argument.map(str::to_owned));
        assert_eq!(script("#!/bin/sh\necho"), sh(None));
        assert_eq!(script("#! /bin/sh -e  -u \n"), sh(Some("-e  -u")));
        assert!(script("#!/bin/sh").refusal().contains("script"));
    }

    #[test]
    fn scripts_get_their_interpreters() {
        let folder = tempfile::tempdir().unwrap();
        let script = |name: &str, first: &str| {
            let path = folder.path().join(name);
            fs::write(&path, first).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let outer = script("outer", &format!("#!{} -x\n", script("inner", "#!/bin/sh\n").display()));
        let followed = |path: &Path| {
            let (mut program, needs) = Program::load_any(path).unwrap();
            let argv = follow_scripts(&mut program, needs, vec!["called".into(), "argument".into()]);
            argv.map(|argv| (program.path, argv.into_iter().map(PathBuf::from).collect::<Vec<_>>()))
        };
        let (program, argv) = followed(&outer).unwrap();
        assert_eq!(program, Path::new("/bin/sh"));
        let inner = folder.path().join("inner");
        assert_eq!(argv, [Path::new("/bin/sh"), &inner, Path::new("-x"), &outer, Path::new("argument")]);
        let circle = folder.path().join("circle");
        script("circle", &format!("#!{}\n", circle.display()));
        assert!(followed(&circle).unwrap_err().to_string().contains("too many"));
    }

    #[test]
    fn a_part_that_the_file_has_not_is_named() {
        let mut cut = image(62, 2, 1);
        cut[64 + 33] = 1;
        assert_eq!(
            check(&cut),
            Err("a damaged ELF file: a segment ends at byte 376 of the file, which has 120: is it whole?"
                .into())
        );
    }

    #[test]
    fn only_regular_files_are_read() {
        let error = |path: &str| Program::load(Path::new(path)).err().unwrap();
        for path in ["/dev/zero", "/"] {
            let error = error(path);
            assert_eq!(error.to_string(), format!("{path}: not a regular file"));
            assert_eq!(error.downcast::<StatusError>().unwrap().status, NOT_RUNNABLE);
        }
    }

    #[test]
    fn a_name_without_slash_is_searched() {
        assert!(find("sh").is_ok());
        assert!(
            find("no-such-program-anywhere").unwrap_err().to_string().contains("no-such-program-anywhere")
        );
        assert_eq!(find("./x").unwrap(), Path::new("./x"));
    }
}

//! The program to run, as the host left it in the image: `/.radixvm/{program,argv,envp}`.

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, ErrorKind::*};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// A failure to start the guest or the program.
pub struct Failure {
    /// Description of the failure.
    pub text: String,
    /// Exit status for the failure.
    pub status: i32,
}

impl Failure {
    /// Returns a failure of the guest, not of the program.
    pub fn guest(what: impl Display, error: io::Error) -> Failure {
        Failure { text: format!("{what}: {error}"), status: 125 }
    }

    fn start(path: &OsString, error: io::Error) -> Failure {
        let status = if error.kind() == NotFound { 127 } else { 126 };
        Failure { text: format!("cannot run {}: {error}", path.to_string_lossy()), status }
    }
}

/// Starts the program with pipes for stdin, stdout and stderr.
pub fn start() -> Result<Child, Failure> {
    let path = strings("/.radixvm/program")?.into_iter().next().unwrap_or_default();
    let mut argv = strings("/.radixvm/argv")?.into_iter();
    let envp = strings("/.radixvm/envp")?;
    let mut command = Command::new(&path);
    command.arg0(argv.next().unwrap_or_default()).args(argv);
    command.env_clear().envs(envp.iter().filter_map(variable));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().map_err(|error| Failure::start(&path, error))
}

/// Returns the strings of a file, each ended by a NUL (the last one perhaps not).
pub fn strings(path: &str) -> Result<Vec<OsString>, Failure> {
    let bytes = std::fs::read(path).map_err(|error| Failure::guest(path, error))?;
    Ok(split(&bytes))
}

fn split(bytes: &[u8]) -> Vec<OsString> {
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    let strings = bytes.split(|byte| *byte == 0);
    strings.map(|string| OsString::from_vec(string.to_vec())).collect()
}

fn variable(setting: &OsString) -> Option<(OsString, OsString)> {
    let bytes = setting.as_bytes();
    let equals = bytes.iter().position(|byte| *byte == b'=')?;
    let owned = |part: &[u8]| OsString::from_vec(part.to_vec());
    Some((owned(&bytes[..equals]), owned(&bytes[equals + 1..])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_may_be_empty_and_the_last_nul_may_be_missing() {
        assert_eq!(split(b"a\0\0b\0"), ["a", "", "b"]);
        assert_eq!(split(b"/bin/a"), ["/bin/a"]);
    }

    #[test]
    fn a_variable_ends_at_the_first_equals_sign() {
        assert_eq!(variable(&"A=b=c".into()), Some(("A".into(), "b=c".into())));
        assert_eq!(variable(&"A=".into()), Some(("A".into(), "".into())));
        assert_eq!(variable(&"nonsense".into()), None);
    }
}

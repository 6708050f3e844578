//! Errors that carry an exit status of their own, as documented for `radixvm run`.

use std::fmt;

/// radixvm or the guest failed.
pub const FAILED: u8 = 125;
/// The file exists but is not a program that can run.
pub const NOT_RUNNABLE: u8 = 126;
/// There is no such program.
pub const NOT_FOUND: u8 = 127;

/// A message with the status to exit with.
#[derive(Debug)]
pub struct StatusError {
    /// The exit status.
    pub status: u8,
    /// The message.
    pub text: String,
}

impl StatusError {
    /// A refusal as an error.
    pub fn error(status: u8, text: impl Into<String>) -> anyhow::Error {
        anyhow::Error::new(StatusError { status, text: text.into() })
    }
}

impl fmt::Display for StatusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for StatusError {}

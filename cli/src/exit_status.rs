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
    /// Creates an error with its exit status.
    pub fn error(status: u8, text: impl Into<String>) -> anyhow::Error {
        anyhow::Error::new(StatusError { status, text: text.into() })
    }

    /// Returns the error of work that a signal to this process ended.
    pub fn interrupted(signal: i32) -> anyhow::Error {
        let name = signal_hook::low_level::signal_name(signal).unwrap_or("a signal");
        Self::error(128 + signal as u8, format!("interrupted by {name}"))
    }
}

impl fmt::Display for StatusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for StatusError {}

/// Returns whether a signal ended the work. Then nothing else should be tried.
pub fn is_interrupt(error: &anyhow::Error) -> bool {
    error.downcast_ref::<StatusError>().is_some_and(|error| error.status > 128)
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn a_signal_is_seen_through_what_was_added() {
        let error = Err::<(), _>(StatusError::interrupted(2)).context("local on stock Linux").unwrap_err();
        assert_eq!(format!("{error:#}"), "local on stock Linux: interrupted by SIGINT");
        assert_eq!(error.downcast_ref::<StatusError>().map(|error| error.status), Some(130));
        assert!(is_interrupt(&error) && !is_interrupt(&StatusError::error(FAILED, "")));
    }
}

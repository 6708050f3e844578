//! `radixvm bench`: replaces this process by the laboratory, a command of its own that is built when it is
//! needed.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

use launch::artifacts;

/// Options of `radixvm bench`.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct Arguments {
    /// A measurement and its options (`radixvm bench --help` lists them)
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WHAT OPTIONS")]
    words: Vec<OsString>,
}

/// Starts the laboratory in place of this process.
pub fn run(arguments: &Arguments) -> Result<u8> {
    let laboratory = artifacts::laboratory()?;
    let error = Command::new(&laboratory).args(&arguments.words).exec();
    Err(error).with_context(|| laboratory.display().to_string())
}

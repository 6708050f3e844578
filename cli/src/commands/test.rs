//! `radixvm test`: everything that is tested, through the developers' door.

use std::ffi::OsString;
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

use crate::place;

/// Options of `radixvm test`.
#[derive(Args)]
pub struct Arguments {
    /// Passed on to `cargo xtask test`: names of suites (unit, loom, miri, guest); none means all
    #[arg(value_name = "SUITE")]
    suites: Vec<OsString>,
}

/// Runs the suites; their status.
pub fn run(arguments: &Arguments) -> Result<u8> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(place::root()).args(["xtask", "test"]).args(&arguments.suites);
    let status = cargo.status().context("cannot start cargo")?;
    Ok(status.code().map_or(1, |code| code as u8))
}

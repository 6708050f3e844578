//! The ways to run a program on this machine, for the measurements that compare them.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use anyhow::Result;
use launch::artifacts;

/// A way to run a program.
#[derive(Clone, Copy, PartialEq)]
pub enum Way {
    /// Without the runtime.
    Plain,
    /// With the pool.
    Pool,
    /// With threads in address spaces of their own.
    Isolate,
    /// The same, with IAmalloc as the program's `malloc`.
    IsolateMalloc,
}

impl Way {
    /// Returns its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Way::Plain => "plain",
            Way::Pool => "pool",
            Way::Isolate => "isolate",
            Way::IsolateMalloc => "isolate+malloc",
        }
    }

    /// Returns a command that runs a program in this way, without input.
    pub fn command(self, program: impl AsRef<OsStr>) -> Result<Command> {
        let mut command = match self {
            Way::Plain => Command::new(program),
            Way::Pool => runtime("--pool", program)?,
            Way::Isolate | Way::IsolateMalloc => runtime("--isolate", program)?,
        };
        if self == Way::IsolateMalloc {
            command.env("LD_PRELOAD", artifacts::malloc()?);
        }
        command.stdin(Stdio::null());
        Ok(command)
    }
}

fn runtime(option: &str, program: impl AsRef<OsStr>) -> Result<Command> {
    let mut command = Command::new(artifacts::runtime()?);
    command.arg(option).arg("--").arg(program);
    Ok(command)
}

/// Returns the middle one of some values. There must be one.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

//! `radixvm native`: becomes the runtime, which becomes the program.

mod calls;
mod check;
mod files;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;

use launch::artifacts;

use self::check::Mode;

const STATUSES: &str = "\
Exit status: the program's own, as its signals are; 125 if the runtime itself failed; 126 if PROGRAM cannot be
executed; 127 if there is no such program.

PROGRAM is a path or found on the PATH. The programs that it executes run in the same way. Linux executes those that
have rights of their own (set-user-ID, capabilities), cannot be read, or are not for x86-64, without the runtime.";

/// Options of `radixvm native`.
#[derive(Args)]
#[command(after_help = STATUSES)]
pub struct Arguments {
    /// Serve small mappings from a pool in the process (the default)
    ///
    /// Anonymous private mappings of 4 KiB to 1 MiB that name no address come from the pool, and munmap gives
    /// them back to it. Unmapped memory stays accessible for a while: at most 4 MiB for each CPU, and
    /// a tenth of a second or until the next call of the pool.
    #[arg(long)]
    pool: bool,
    /// Serve small mappings from the pool, too, but make unmapped memory inaccessible before munmap returns
    ///
    /// Each munmap protects its block by one call. Single pages of programs with threads are Linux's.
    #[arg(long, conflicts_with = "pool")]
    strict: bool,
    /// Give each thread an address space of its own, and share everything else (experimental)
    ///
    /// Memory has pages of 4 KiB, and private mappings of files are copied when they are written to. Each
    /// thread reuses its small anonymous mappings. Calls that cannot be right in this way are refused by
    /// name.
    #[arg(long, conflicts_with_all = ["pool", "strict"])]
    isolate: bool,
    /// Print counters on stderr when the program exits: of the pool, or of threads with address spaces of
    /// their own
    #[arg(long)]
    stats: bool,
    /// Replace the program's malloc by IAmalloc
    ///
    /// Each thread allocates from a sub-heap of its own, without a lock. For programs with the dynamic linker
    /// of Linux, which loads it first (LD_PRELOAD), as do the programs that they execute. With IAMALLOC_PAD=1
    /// in the environment no two blocks share a cache line.
    #[arg(long)]
    malloc: bool,
    /// Say what of the program cannot work, and do not run it
    ///
    /// Reads the program and its libraries, and executes nothing of them. Finds calls that the program
    /// contains, which it need not make. The exit status is 1 if a part of the program may fail, or was not
    /// looked at, otherwise 0; 126 and 127 as for a run.
    #[arg(long, conflicts_with_all = ["stats", "malloc"])]
    check: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM ARGS")]
    command: Vec<OsString>,
}

/// The variable with the libraries that the dynamic linker loads first.
const PRELOAD: &str = "LD_PRELOAD";

/// Returns the libraries to load first: the allocator, and those that are asked for already.
fn preloaded(malloc: &Path) -> Result<OsString> {
    let path = malloc.display().to_string();
    ensure!(!path.contains([' ', ':']), "{path}: {PRELOAD} takes no path with a blank or a colon");
    let mut libraries = malloc.as_os_str().to_owned();
    if let Some(others) = std::env::var_os(PRELOAD).filter(|others| !others.is_empty()) {
        libraries.push(":");
        libraries.push(others);
    }
    Ok(libraries)
}

/// Executes the runtime, and returns only if that fails. With `--check` it checks the program.
pub fn run(arguments: &Arguments) -> Result<u8> {
    if arguments.check {
        let mode = match arguments {
            Arguments { isolate: true, .. } => Mode::Isolate,
            Arguments { strict: true, .. } => Mode::Strict,
            _ => Mode::Pool,
        };
        return check::run(&arguments.command[0], mode);
    }
    let runtime = artifacts::runtime()?;
    let mut command = Command::new(&runtime);
    command.arg(match arguments {
        Arguments { isolate: true, .. } => "--isolate",
        Arguments { strict: true, .. } => "--strict",
        _ => "--pool",
    });
    if arguments.stats {
        command.arg("--stats");
    }
    if arguments.malloc {
        command.env(PRELOAD, preloaded(&artifacts::malloc()?)?);
    }
    let error = command.arg("--").args(&arguments.command).exec();
    Err(error).with_context(|| format!("cannot execute {}", runtime.display()))
}

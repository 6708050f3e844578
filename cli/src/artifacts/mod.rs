//! The kernel, the programs for guests, the meter, and the runtime for programs on this machine.
//!
//! In a checkout cargo builds them. It is called only when something is out of date (`stamp` decides),
//! because it waits for its own locks and needs a folder that it can write. An installed command has them
//! beside it and never builds anything.

mod build;
mod stamp;
mod workloads;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, Result};

pub use workloads::{FOLDER as WORKLOADS_FOLDER, OF_THREADS, WORKLOADS, workload};

use crate::place;
use stamp::Stamp;

/// A package that cargo builds.
struct Package {
    name: &'static str,
    /// The target, or `None` for this machine.
    target: Option<&'static str>,
    /// A profile of Cargo.toml.
    profile: &'static str,
    /// Its name in messages, after "the".
    what: &'static str,
    /// A feature that is switched on.
    feature: Option<&'static str>,
    /// The folders with its sources and those of the crates that it is made of.
    sources: &'static [&'static str],
}

const KERNEL: Package = Package {
    name: "radixvm-kernel",
    target: Some("x86_64-unknown-none"),
    profile: "release",
    what: "kernel",
    feature: None,
    sources: &["kernel", "crates", "abi", "firmware"],
};
const USER: Package = Package {
    name: "radixvm-user",
    target: Some("x86_64-unknown-linux-musl"),
    profile: "release",
    what: "programs",
    feature: None,
    sources: &["user", "crates", "abi", "commute"],
};
const METER: Package = Package {
    name: "radixvm-meter",
    target: None,
    profile: "release",
    what: "meter",
    feature: None,
    sources: &["meter"],
};
/// The runtime for programs on this machine. It stands alone, so it has the kernel's target.
const RUNTIME: Package = Package {
    name: "radixvm-pathreads",
    target: KERNEL.target,
    profile: "release",
    what: "runtime",
    feature: Some("runtime"),
    sources: &["pathreads", "abi", "crates"],
};
/// The allocator that takes the place of a program's `malloc`. The program's dynamic linker loads it.
const MALLOC: Package = Package {
    name: "radixvm-malloc",
    target: None,
    profile: "release",
    what: "allocator",
    feature: None,
    sources: &["malloc", "crates"],
};
/// The name of the laboratory's file.
pub const LABORATORY_NAME: &str = "radixvm-lab";
/// The laboratory, with the profile of this command, whose dependencies it shares.
const LABORATORY: Package = Package {
    name: LABORATORY_NAME,
    target: None,
    profile: "dev",
    what: "laboratory",
    feature: None,
    sources: &["lab", "cli", "crates", "abi", "commute", "pathreads"],
};
/// The command itself for an installation. It needs no library of the machine on which it runs.
const COMMAND: Package = Package {
    name: "radixvm",
    target: Some("x86_64-unknown-linux-musl"),
    profile: "dist",
    what: "command",
    feature: None,
    sources: &["cli", "crates", "abi", "commute", "pathreads"],
};
/// The laboratory for an installation.
const INSTALLED_LABORATORY: Package =
    Package { target: COMMAND.target, profile: COMMAND.profile, ..LABORATORY };

/// Files by name.
type Built = BTreeMap<String, PathBuf>;

/// Returns the kernel's ELF file.
pub fn kernel() -> Result<PathBuf> {
    static BUILT: OnceLock<Built> = OnceLock::new();
    if let Some(installed) = place::installed() {
        return Ok(installed.join("kernel"));
    }
    let built = once(&BUILT, &KERNEL)?;
    built.values().next().cloned().context("cargo built no kernel")
}

/// Returns the programs for guests.
pub fn programs() -> Result<&'static Built> {
    static BUILT: OnceLock<Built> = OnceLock::new();
    if let Some(installed) = place::installed() {
        return installed_programs(&BUILT, &installed.join("programs"));
    }
    once(&BUILT, &USER)
}

/// Returns one of the programs for guests.
pub fn program(name: &str) -> Result<PathBuf> {
    programs()?.get(name).cloned().with_context(|| format!("user/ has no program {name}"))
}

/// Returns the plugin that meters guests, loaded by QEMU.
pub fn meter() -> Result<PathBuf> {
    static BUILT: OnceLock<Built> = OnceLock::new();
    if let Some(installed) = place::installed() {
        return Ok(installed.join("meter.so"));
    }
    let built = once(&BUILT, &METER)?;
    built.values().next().cloned().context("cargo built no plugin")
}

/// The name of the runtime's file.
pub const RUNTIME_NAME: &str = "pathreads";

/// Returns the runtime for programs on this machine.
pub fn runtime() -> Result<PathBuf> {
    static BUILT: OnceLock<Built> = OnceLock::new();
    if let Some(installed) = place::installed() {
        return Ok(installed.join(RUNTIME_NAME));
    }
    once(&BUILT, &RUNTIME)?.get(RUNTIME_NAME).cloned().context("cargo built no runtime")
}

/// The name of the installed allocator's file.
pub const MALLOC_NAME: &str = "malloc.so";

/// Returns the allocator for programs on this machine.
pub fn malloc() -> Result<PathBuf> {
    static BUILT: OnceLock<Built> = OnceLock::new();
    if let Some(installed) = place::installed() {
        return Ok(installed.join(MALLOC_NAME));
    }
    once(&BUILT, &MALLOC)?.values().next().cloned().context("cargo built no allocator")
}

/// Returns the command behind `radixvm bench`.
pub fn laboratory() -> Result<PathBuf> {
    static BUILT: OnceLock<Built> = OnceLock::new();
    if let Some(installed) = place::installed() {
        return Ok(installed.join(LABORATORY_NAME));
    }
    once(&BUILT, &LABORATORY)?.get(LABORATORY_NAME).cloned().context("cargo built no laboratory")
}

/// Returns the command and the laboratory to be installed.
pub fn commands() -> Result<(PathBuf, PathBuf)> {
    static COMMANDS: [OnceLock<Built>; 2] = [OnceLock::new(), OnceLock::new()];
    let command = once(&COMMANDS[0], &COMMAND)?.get(COMMAND.name).cloned();
    let laboratory = once(&COMMANDS[1], &INSTALLED_LABORATORY)?.get(LABORATORY_NAME).cloned();
    command.zip(laboratory).context("cargo built no command")
}

/// Checks the stamp, and calls cargo if it is out of date, once in the life of this process.
fn once(built: &'static OnceLock<Built>, package: &Package) -> Result<&'static Built> {
    if let Some(built) = built.get() {
        return Ok(built);
    }
    let stamp = Stamp::new(&place::target(), &place::root(), package);
    let fresh = match stamp.look() {
        Ok(fresh) => fresh,
        Err(why) => build::build(package, &stamp, &why)?,
    };
    Ok(built.get_or_init(|| fresh))
}

fn installed_programs(known: &'static OnceLock<Built>, folder: &Path) -> Result<&'static Built> {
    if let Some(known) = known.get() {
        return Ok(known);
    }
    let entries = folder.read_dir().with_context(|| folder.display().to_string())?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let named = |path: PathBuf| Some((path.file_name()?.to_str()?.to_owned(), path));
    Ok(known.get_or_init(|| paths.into_iter().filter_map(named).collect()))
}

/// Returns whether `name` is one of the programs in `user/`. It looks at the sources, so that nothing is
/// built for a negative answer.
pub fn is_bundled(name: &str) -> bool {
    if name.contains('/') {
        return false;
    }
    if let Some(installed) = place::installed() {
        return installed.join("programs").join(name).is_file();
    }
    let source = place::root().join("user/src/bin").join(name);
    source.with_extension("rs").is_file() || source.join("main.rs").is_file()
}

/// Returns whether rustup has a target installed, as far as files can tell.
pub fn has_target(sysroot: &Path, target: &str) -> bool {
    sysroot.join("lib/rustlib").join(target).join("lib").is_dir()
}

/// Returns the targets that guests are built for.
pub fn targets() -> [&'static str; 2] {
    [KERNEL.target, USER.target].map(|target| target.expect("guests are not this machine"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the folders of the workspace's crates that a manifest names outside its dev-dependencies.
    fn needs(manifest: &str) -> Vec<String> {
        let workspace = std::fs::read_to_string(place::root().join("Cargo.toml")).unwrap();
        let folder = |name: &str| {
            let line = workspace.lines().find(|line| line.starts_with(&format!("{name} = {{ path = \"")))?;
            line.split('"').nth(1).map(|path| path.split('/').next().unwrap().to_owned())
        };
        let used = manifest.split("[dev-dependencies]").next().unwrap().lines();
        used.filter(|line| line.contains("workspace = true"))
            .filter_map(|line| folder(line.split(' ').next()?))
            .collect()
    }

    #[test]
    fn sources_are_all_that_a_package_is_made_of() {
        for package in [KERNEL, USER, METER, RUNTIME, MALLOC, LABORATORY, COMMAND] {
            for folder in package.sources.iter().filter(|folder| **folder != "crates") {
                let manifest =
                    std::fs::read_to_string(place::root().join(folder).join("Cargo.toml")).unwrap();
                for needed in needs(&manifest) {
                    assert!(package.sources.contains(&&*needed), "{}: {needed}", package.name);
                }
            }
        }
        assert!(needs("[dependencies]\nvm = { workspace = true }\n").contains(&"crates".to_owned()));
    }
}

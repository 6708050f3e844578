//! The paths of the checkout or the folder of an installed command, and of the folder for files that can be
//! made again.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, Result};
use rustix::fs::{Access, access};

/// The folder beside an installed command with the kernel, the programs, the plugin, and files of the
/// repository.
pub const LIBRARY: &str = "lib/radixvm";
/// The folder in it with the files that a checkout builds.
pub const ARTIFACTS: &str = "artifacts";

/// Returns the checkout's root, or the folder of an installed command that has the repository's data files
/// under the same names.
pub fn root() -> PathBuf {
    library().or_else(|| std::env::var_os("RADIXVM_HOME").map(PathBuf::from)).unwrap_or_else(built_at)
}

/// Returns the root of the checkout in which this command was built. Debugging information of the same build
/// refers to it.
pub fn built_at() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("cli/ lies in the repository").to_owned()
}

/// Returns the folder with the kernel, the programs and the plugin, if this command is installed.
pub fn installed() -> Option<PathBuf> {
    library().map(|library| library.join(ARTIFACTS))
}

/// Returns the checkout's root.
///
/// # Errors
/// If this command is installed, because `what` needs the checkout.
pub fn checkout(what: &str) -> Result<PathBuf> {
    let checkout = library().is_none().then(root);
    checkout
        .with_context(|| format!("{what} needs the sources: run ./radixvm in a checkout of the repository"))
}

/// Returns the folder beside this command. The command's path does not change while it runs.
fn library() -> Option<PathBuf> {
    static LIBRARY_FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    LIBRARY_FOUND.get_or_init(|| beside(&std::env::current_exe().ok()?)).clone()
}

/// Returns the library beside a command in `bin/`, or the one that contains the laboratory.
fn beside(command: &Path) -> Option<PathBuf> {
    let above = command.parent()?.parent()?;
    let libraries = [above.join(LIBRARY), above.to_owned()];
    libraries.into_iter().find(|library| library.join(ARTIFACTS).join("kernel").is_file())
}

/// Returns the folder that cargo builds into.
pub fn target() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// Returns the folder for downloads and remembered answers, which may be deleted at any time. It is
/// `.radixvm` of a checkout that can be written, or else the user's.
pub fn cache() -> PathBuf {
    checkouts_cache().filter(|folder| can_be_written(folder)).unwrap_or_else(users_cache)
}

/// Returns the folders in which something may have been stored earlier.
pub fn caches() -> Vec<PathBuf> {
    checkouts_cache().into_iter().chain([users_cache()]).collect()
}

fn checkouts_cache() -> Option<PathBuf> {
    library().is_none().then(|| root().join(".radixvm"))
}

fn users_cache() -> PathBuf {
    cache_of(
        std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from),
        std::env::var_os("HOME").map(PathBuf::from),
    )
}

/// Returns the cache by the XDG specification, which does not cover users without a home.
fn cache_of(xdg: Option<PathBuf>, home: Option<PathBuf>) -> PathBuf {
    let named = xdg.filter(|folder| folder.is_absolute()).or_else(|| Some(home?.join(".cache")));
    named.unwrap_or_else(std::env::temp_dir).join("radixvm")
}

/// Returns whether a folder can be written, or can be made.
pub fn can_be_written(folder: &Path) -> bool {
    let nearest = folder.ancestors().find(|folder| folder.exists());
    nearest.is_some_and(|folder| folder.is_dir() && access(folder, Access::WRITE_OK).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installed_command_knows_its_library() {
        let prefix = tempfile::tempdir().unwrap();
        let (command, library) = (prefix.path().join("bin/radixvm"), prefix.path().join("lib/radixvm"));
        assert_eq!(beside(&command), None);
        std::fs::create_dir_all(library.join("artifacts")).unwrap();
        std::fs::write(library.join("artifacts/kernel"), "").unwrap();
        assert_eq!(beside(&command), Some(library.clone()));
        assert_eq!(beside(&library.join("artifacts/radixvm-lab")), Some(library));
    }

    #[test]
    fn a_cache_is_where_the_user_wants_it() {
        let of = |xdg: Option<&str>, home: Option<&str>| cache_of(xdg.map(Into::into), home.map(Into::into));
        assert_eq!(of(Some("/x"), Some("/h")), Path::new("/x/radixvm"));
        assert_eq!(of(Some("relative"), Some("/h")), Path::new("/h/.cache/radixvm"));
        assert_eq!(of(None, None), std::env::temp_dir().join("radixvm"));
    }

    #[test]
    fn a_folder_that_is_not_there_yet_can_be_made() {
        let folder = tempfile::tempdir().unwrap();
        assert!(can_be_written(&folder.path().join("a/b")));
        std::fs::write(folder.path().join("file"), "").unwrap();
        assert!(!can_be_written(&folder.path().join("file/b")));
    }

    #[test]
    fn a_checkout_has_its_sources() {
        assert!(checkout("this test").unwrap().join("cli/src/place.rs").is_file());
    }
}

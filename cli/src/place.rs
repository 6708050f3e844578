//! Where things are: the repository and the folder for what can be made again.

use std::path::{Path, PathBuf};

/// The repository's root: `RADIXVM_HOME`, which the launcher sets, or where this binary was built.
pub fn root() -> PathBuf {
    std::env::var_os("RADIXVM_HOME").map_or_else(built_at, PathBuf::from)
}

fn built_at() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("cli/ lies in the repository").to_owned()
}

/// Downloads and remembered answers. May be deleted at any time.
pub fn cache() -> PathBuf {
    root().join(".radixvm")
}

//! Checks that each crate under crates/ can be published and used.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::root;
use crate::shell::{succeeds, target_dir};

/// Files that each package has besides its code.
const FILES: [&str; 3] = ["README.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// Returns whether each crate can be packaged, and prints the faults of the others. Builds nothing, so it
/// takes a second.
pub fn check() -> Result<bool> {
    let complaints = complaints(&root())?;
    complaints.iter().for_each(|complaint| println!("{complaint}"));
    Ok(complaints.is_empty())
}

/// Returns the faults that keep the crates under `workspace`/crates from being published.
fn complaints(workspace: &Path) -> Result<Vec<String>> {
    let crates = workspace.join("crates");
    let mut complaints = Vec::new();
    let mut folders = Vec::new();
    for entry in fs::read_dir(&crates).with_context(|| crates.display().to_string())? {
        folders.push(entry?.file_name().to_string_lossy().into_owned());
    }
    folders.sort();
    for folder in &folders {
        let missing = FILES.iter().filter(|file| !crates.join(folder).join(file).exists());
        complaints.extend(missing.map(|file| format!("crates/{folder}: there is no {file}")));
    }
    let output = package(workspace, &folders)
        .args(["--no-verify", "--offline"])
        .output()
        .context("cannot run cargo package")?;
    let told = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() || told.lines().any(|line| line.starts_with("warning: ")) {
        complaints.push(told.into_owned());
    }
    Ok(complaints)
}

/// Returns a command that packages the crates in these folders of `workspace`/crates, all at once: they need
/// each other.
fn package(workspace: &Path, folders: &[String]) -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(workspace).args(["package", "--quiet", "--allow-dirty"]);
    command.args(folders.iter().map(|folder| format!("--package=radixvm-{folder}")));
    command.arg("--target-dir").arg(target_dir("package"));
    command
}

/// Builds each published crate from its package, and all of them with the oldest Rust that Cargo.toml
/// promises, and looks for unused dependencies.
pub fn verify() -> Result<bool> {
    let published = published()?;
    println!("== building from packages");
    let mut good = succeeds(&mut package(&root(), &published))?;
    let version = oldest_rust()?;
    println!("== building with Rust {version}");
    let toolchain = format!("+{version}");
    if runs(Command::new("cargo").args([&toolchain, "--version"])) {
        let mut command = Command::new("cargo");
        command.current_dir(root()).args([&toolchain, "check", "--locked", "--quiet", "--lib", "--examples"]);
        command.args(published.iter().map(|folder| format!("--package=radixvm-{folder}")));
        good &= succeeds(command.arg("--target-dir").arg(target_dir("oldest-rust")))?;
    } else {
        println!("skipped: no Rust {version} here (rustup toolchain install {version})");
    }
    println!("== unused dependencies");
    if runs(Command::new("cargo-machete").arg("--version")) {
        good &= succeeds(Command::new("cargo-machete").current_dir(root()))?;
    } else {
        println!("skipped: no cargo-machete here (cargo install cargo-machete)");
    }
    Ok(good)
}

/// Returns the folders under crates/ of the crates that are published.
fn published() -> Result<Vec<String>> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(root().join("crates"))? {
        let folder = entry?.path();
        if !fs::read_to_string(folder.join("Cargo.toml"))?.contains("publish = false") {
            folders.push(folder.file_name().unwrap_or_default().to_string_lossy().into_owned());
        }
    }
    folders.sort();
    Ok(folders)
}

/// Returns the `rust-version` of the workspace.
fn oldest_rust() -> Result<String> {
    let manifest = fs::read_to_string(root().join("Cargo.toml"))?;
    let line = manifest.lines().find_map(|line| line.strip_prefix("rust-version = \""));
    let version = line.and_then(|rest| rest.strip_suffix('"'));
    // A toolchain's name has three numbers: "1.88" would be its own channel.
    Ok(format!("{}.0", version.context("Cargo.toml: no rust-version")?))
}

fn runs(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A workspace of two crates, of which `b` needs `a`.
    struct Workspace(PathBuf);

    impl Workspace {
        fn new(name: &str, dependency: &str) -> Self {
            let workspace = Self(std::env::temp_dir().join(format!("radixvm-{name}-{}", std::process::id())));
            workspace.write("Cargo.toml", "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\"]\n");
            for (folder, needs) in [("a", ""), ("b", dependency)] {
                let about = "edition = \"2024\"\ndescription = \"x\"\nlicense = \"MIT\"\ndocumentation = \"https://docs.rs/x\"";
                workspace.write(
                    &format!("crates/{folder}/Cargo.toml"),
                    &format!("[package]\nname = \"radixvm-{folder}\"\nversion = \"0.1.0\"\n{about}\n[dependencies]\n{needs}\n"),
                );
                workspace.write(&format!("crates/{folder}/src/lib.rs"), "");
                FILES.iter().for_each(|file| workspace.write(&format!("crates/{folder}/{file}"), "x"));
            }
            workspace
        }

        fn write(&self, file: &str, text: &str) {
            let path = self.0.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    impl Drop for Workspace {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_complete_workspace_is_packaged() {
        let workspace = Workspace::new("good", "radixvm-a = { path = \"../a\", version = \"0.1.0\" }");
        assert_eq!(complaints(&workspace.0).unwrap(), [""; 0]);
    }

    #[test]
    fn a_dependency_without_a_version_is_found() {
        let workspace = Workspace::new("version", "radixvm-a = { path = \"../a\" }");
        let found = complaints(&workspace.0).unwrap();
        assert!(found.len() == 1 && found[0].contains("must have a version"), "{found:?}");
    }

    #[test]
    fn a_missing_licence_is_found() {
        let workspace = Workspace::new("licence", "");
        fs::remove_file(workspace.0.join("crates/b/LICENSE-MIT")).unwrap();
        assert_eq!(complaints(&workspace.0).unwrap(), ["crates/b: there is no LICENSE-MIT"]);
    }
}

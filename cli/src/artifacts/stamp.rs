//! Stamps: files that tell without cargo whether its output is up to date.
//!
//! A stamp is written after a build. Its time of modification is a moment before the build began, and its
//! content names the files that were built, with their sizes and times. They are up to date if no source is
//! as new as the stamp and each of them is unchanged. Folders are checked as well, because their times change
//! when files are added or removed.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use super::{Built, Package};

/// The sources of every package, besides its own.
const COMMON: [&str; 3] = ["Cargo.toml", "Cargo.lock", ".cargo"];

/// The reason why something has to be built.
#[derive(Debug, PartialEq, Eq)]
pub enum Stale {
    /// There is no stamp.
    NotBuilt,
    /// A source has changed since, or has gone.
    Changed(PathBuf),
    /// A file that was built is another one, or has gone.
    Lost(PathBuf),
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stale::NotBuilt => f.write_str("not built here yet"),
            Stale::Changed(path) => write!(f, "{} has changed", path.display()),
            Stale::Lost(path) => write!(f, "{} is not what was built", path.display()),
        }
    }
}

/// A file that was built.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Artifact {
    /// The path relative to the target folder, so that a checkout can be moved.
    path: PathBuf,
    bytes: u64,
    /// Nanoseconds since 1970.
    modified: u64,
}

impl Artifact {
    fn of(target: &Path, path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(target.join(path))?;
        let modified = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        let path = path.strip_prefix(target).unwrap_or(path).to_owned();
        Ok(Artifact { path, bytes: metadata.len(), modified: modified.as_nanos() as u64 })
    }
}

/// The stamp of a package.
pub struct Stamp {
    target: PathBuf,
    root: PathBuf,
    file: PathBuf,
    sources: Vec<PathBuf>,
}

impl Stamp {
    /// Returns the stamp of a package that is built from the checkout `root` into `target`.
    pub fn new(target: &Path, root: &Path, package: &Package) -> Self {
        let file = folder(target).join(format!("{}-{}", package.name, package.profile));
        let sources = package.sources.iter().chain(&COMMON).map(|name| root.join(name)).collect();
        Stamp { target: target.to_owned(), root: root.to_owned(), file, sources }
    }

    /// Returns the files that were built, if they are up to date.
    ///
    /// # Errors
    /// The reason why they have to be built.
    pub fn look(&self) -> Result<Built, Stale> {
        let (since, artifacts) = self.read().ok_or(Stale::NotBuilt)?;
        for source in &self.sources {
            unchanged(source, since).map_err(|path| Stale::Changed(self.short(path)))?;
        }
        artifacts.into_iter().map(|(name, artifact)| Ok((name, self.kept(artifact)?))).collect()
    }

    fn read(&self) -> Option<(SystemTime, BTreeMap<String, Artifact>)> {
        let text = fs::read_to_string(&self.file).ok()?;
        let since = fs::metadata(&self.file).ok()?.modified().ok()?;
        Some((since, serde_json::from_str(&text).ok()?))
    }

    fn kept(&self, artifact: Artifact) -> Result<PathBuf, Stale> {
        let path = self.target.join(&artifact.path);
        match Artifact::of(&self.target, &path) {
            Ok(found) if found == artifact => Ok(path),
            _ => Err(Stale::Lost(self.short(path))),
        }
    }

    fn short(&self, path: PathBuf) -> PathBuf {
        path.strip_prefix(&self.root).map(Path::to_owned).unwrap_or(path)
    }

    /// Returns a moment before a build, by the clock of the file system, for [`write`](Self::write).
    pub fn begin(&self) -> io::Result<SystemTime> {
        let folder = folder(&self.target);
        fs::create_dir_all(&folder)?;
        NamedTempFile::new_in(folder)?.as_file().metadata()?.modified()
    }

    /// Writes the stamp of a build that began at this moment.
    pub fn write(&self, begin: SystemTime, built: &Built) -> io::Result<()> {
        let artifact =
            |(name, path): (&String, &PathBuf)| Ok((name.clone(), Artifact::of(&self.target, path)?));
        let artifacts: BTreeMap<_, _> = built.iter().map(artifact).collect::<io::Result<_>>()?;
        let mut half = NamedTempFile::new_in(folder(&self.target))?;
        half.write_all(serde_json::to_string(&artifacts)?.as_bytes())?;
        half.as_file().set_modified(begin)?;
        half.persist(&self.file)?;
        Ok(())
    }
}

/// Checks a source and everything below it. The error is a path that is as new as `since`, or cannot be read.
fn unchanged(path: &Path, since: SystemTime) -> Result<(), PathBuf> {
    let changed = |_| path.to_owned();
    let metadata = fs::symlink_metadata(path).map_err(changed)?;
    if metadata.modified().map_err(changed)? >= since {
        return Err(path.to_owned());
    }
    if metadata.is_dir() {
        for entry in fs::read_dir(path).map_err(changed)? {
            unchanged(&entry.map_err(changed)?.path(), since)?;
        }
    }
    Ok(())
}

fn folder(target: &Path) -> PathBuf {
    target.join("radixvm-stamps")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const PACKAGE: Package = Package {
        name: "p",
        target: None,
        profile: "release",
        what: "thing",
        feature: None,
        sources: &["src"],
    };

    /// A checkout with one source that was built a moment ago.
    struct Checkout(tempfile::TempDir);

    impl Checkout {
        fn new() -> Self {
            let checkout = Checkout(tempfile::tempdir().unwrap());
            for folder in ["src/deep", ".cargo", "target"] {
                fs::create_dir_all(checkout.path(folder)).unwrap();
            }
            for file in ["Cargo.toml", "Cargo.lock", "src/deep/lib.rs", "target/thing"] {
                fs::write(checkout.path(file), "old").unwrap();
            }
            checkout
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn stamp(&self) -> Stamp {
            Stamp::new(&self.path("target"), self.0.path(), &PACKAGE)
        }

        fn built(&self) -> Built {
            [("thing".to_owned(), self.path("target/thing"))].into()
        }

        /// Writes a stamp as if the build had begun `seconds` seconds from now.
        fn build(&self, seconds: u64) {
            let begin = self.stamp().begin().unwrap();
            self.stamp().write(begin + Duration::from_secs(seconds), &self.built()).unwrap();
        }

        fn set_time(&self, name: &str, seconds: u64) {
            let file = fs::File::open(self.path(name)).unwrap();
            file.set_modified(SystemTime::now() + Duration::from_secs(seconds)).unwrap();
        }
    }

    #[test]
    fn built_artifacts_are_found_without_cargo() {
        let checkout = Checkout::new();
        assert_eq!(checkout.stamp().look(), Err(Stale::NotBuilt));
        checkout.build(5);
        assert_eq!(checkout.stamp().look(), Ok(checkout.built()));
    }

    #[test]
    fn a_source_that_changed_is_named_wherever_it_is() {
        for (changed, named) in
            [("src/deep/lib.rs", "src/deep/lib.rs"), ("src/deep", "src/deep"), ("Cargo.lock", "Cargo.lock")]
        {
            let checkout = Checkout::new();
            checkout.build(5);
            checkout.set_time(changed, 9);
            assert_eq!(checkout.stamp().look(), Err(Stale::Changed(named.into())), "{changed}");
        }
    }

    /// A change while cargo works must count.
    #[test]
    fn the_time_of_a_stamp_is_that_of_the_beginning() {
        let checkout = Checkout::new();
        let begin = checkout.stamp().begin().unwrap() - Duration::from_secs(3600);
        checkout.stamp().write(begin, &checkout.built()).unwrap();
        assert_eq!(fs::metadata(checkout.stamp().file).unwrap().modified().unwrap(), begin);
        assert!(matches!(checkout.stamp().look(), Err(Stale::Changed(_))));
    }

    #[test]
    fn a_file_that_somebody_else_built_is_not_taken_for_ours() {
        let checkout = Checkout::new();
        checkout.build(5);
        checkout.set_time("target/thing", 9);
        assert_eq!(checkout.stamp().look(), Err(Stale::Lost("target/thing".into())));
        fs::remove_file(checkout.path("target/thing")).unwrap();
        assert_eq!(checkout.stamp().look(), Err(Stale::Lost("target/thing".into())));
    }

    #[test]
    fn a_checkout_can_be_moved() {
        let checkout = Checkout::new();
        checkout.build(5);
        let elsewhere = tempfile::tempdir().unwrap();
        let moved = elsewhere.path().join("moved");
        fs::rename(checkout.0.path(), &moved).unwrap();
        let stamp = Stamp::new(&moved.join("target"), &moved, &PACKAGE);
        assert_eq!(stamp.look().unwrap()["thing"], moved.join("target/thing"));
        fs::create_dir(checkout.0.path()).unwrap();
    }
}

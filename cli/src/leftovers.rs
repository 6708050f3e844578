//! Removing files that earlier commands left in a folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The age from which on a file belongs to no command that still runs, and is of no use any more.
const OLD: Duration = Duration::from_secs(7 * 24 * 3600);

/// Keeps the newest `count` of the things whose names begin with `prefix`, and none that is old. Files and
/// folders whose names are the same up to the first dot are one thing. Files that cannot be removed stay.
pub fn prune(folder: &Path, prefix: &str, count: usize) {
    let now = SystemTime::now();
    for (number, (modified, paths)) in things(folder, prefix).into_iter().enumerate() {
        if number >= count || now.duration_since(modified).is_ok_and(|age| age > OLD) {
            paths.iter().for_each(|path| remove(path));
        }
    }
}

/// Returns the things in a folder, the newest first.
fn things(folder: &Path, prefix: &str) -> Vec<(SystemTime, Vec<PathBuf>)> {
    let mut things = std::collections::BTreeMap::<String, (SystemTime, Vec<PathBuf>)>::new();
    for entry in fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(modified) = entry.metadata().ok().and_then(|metadata| metadata.modified().ok()) else {
            continue;
        };
        if name.starts_with(prefix) {
            let stem = name.split('.').next().unwrap_or_default().to_owned();
            let thing = things.entry(stem).or_insert((modified, Vec::new()));
            thing.0 = thing.0.max(modified);
            thing.1.push(entry.path());
        }
    }
    let mut things: Vec<_> = things.into_values().collect();
    things.sort_by_key(|(modified, _)| std::cmp::Reverse(*modified));
    things
}

fn remove(path: &Path) {
    let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a folder with these files, each with its age in hours.
    fn folder(files: &[(&str, u64)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, hours) in files {
            let file = fs::File::create(folder.path().join(name)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(hours * 3600)).unwrap();
        }
        folder
    }

    fn names(folder: &tempfile::TempDir) -> Vec<String> {
        let names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_newest_stay_with_all_that_belongs_to_them() {
        let files =
            [("run-a.cpio", 9), ("run-a.log", 1), ("run-b.cpio", 2), ("run-c.cpio", 3), ("other", 900)];
        let folder = folder(&files);
        prune(folder.path(), "run-", 2);
        assert_eq!(names(&folder), ["other", "run-a.cpio", "run-a.log", "run-b.cpio"]);
    }

    #[test]
    fn nothing_old_stays() {
        let folder = folder(&[("run-a", 24 * 8), ("run-b", 24 * 6)]);
        fs::create_dir(folder.path().join("run-c")).unwrap();
        prune(folder.path(), "run-", 9);
        assert_eq!(names(&folder), ["run-b", "run-c"]);
        prune(folder.path(), "run-", 0);
        assert!(names(&folder).is_empty());
        prune(Path::new("/no/such/folder"), "run-", 0);
    }
}

//! The finished runs, a file for each boot, so that a stopped command can be continued.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::measure::Measured;
use super::plan::Run;

/// A folder of runs of one build.
pub struct Store {
    folder: PathBuf,
    build: String,
}

/// The contents of a file.
#[derive(Serialize, Deserialize)]
struct Kept {
    /// The build that was measured. The results of another build are measured anew.
    build: String,
    result: Measured,
}

impl Store {
    /// Opens the runs under `folder` that `build` made. Uses none of them if `fresh`.
    pub fn open(folder: &Path, build: String, fresh: bool) -> Result<Self> {
        let folder = folder.join("runs");
        if fresh && folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
        }
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        Ok(Store { folder, build })
    }

    fn file(&self, run: &Run, boot: usize) -> PathBuf {
        let further = if boot == 1 { String::new() } else { format!("-boot{boot}") };
        self.folder.join(run.name() + &further + ".json")
    }

    /// Returns the results of each boot of the run, if this build made it.
    pub fn boots(&self, run: &Run) -> Vec<Measured> {
        (1..).map_while(|boot| self.get(run, boot)).collect()
    }

    /// Reads a file. One that cannot be parsed was truncated when the command was stopped.
    fn get(&self, run: &Run, boot: usize) -> Option<Measured> {
        let kept: Kept = serde_json::from_str(&fs::read_to_string(self.file(run, boot)).ok()?).ok()?;
        (kept.build == self.build).then_some(kept.result)
    }

    /// Stores the result of a boot. The first boot is 1.
    pub fn put(&self, run: &Run, boot: usize, result: Measured) -> Result<()> {
        let kept = Kept { build: self.build.clone(), result };
        let file = self.file(run, boot);
        let text = serde_json::to_string_pretty(&kept)? + "\n";
        fs::write(&file, text).with_context(|| file.display().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{RADIX, Work};
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn boots_are_found_again_by_their_build_until_all_is_done_afresh() {
        let folder = tempfile::tempdir().unwrap();
        let run = Run { on: RADIX, work: Work::new("local", &[]), x: None, cpus: 2, metered: false };
        let open = |build: &str, fresh| Store::open(folder.path(), build.to_owned(), fresh).unwrap();
        let found = |build, fresh| open(build, fresh).boots(&run).len();
        let left = || Measured::Reported(BTreeMap::from([("mmap".to_owned(), 3)]));
        let store = open("a", false);
        assert_eq!(found("a", false), 0);
        store.put(&run, 1, left()).unwrap();
        store.put(&run, 2, left()).unwrap();
        assert_eq!((found("a", false), found("b", false)), (2, 0));
        fs::write(store.file(&run, 1), "{\"build\":").unwrap();
        assert_eq!(found("a", false), 0);
        store.put(&run, 1, left()).unwrap();
        assert_eq!((found("a", false), found("a", true)), (2, 0));
    }
}

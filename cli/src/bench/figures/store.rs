//! The runs that are done, a file each, so that a stopped command goes on where it was.

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

/// What a file says.
#[derive(Serialize, Deserialize)]
struct Kept {
    /// What it was measured with: the result of another build is measured anew.
    build: String,
    result: Measured,
}

impl Store {
    /// The runs under `folder` that `build` made; none of them if all is to be done afresh.
    pub fn open(folder: &Path, build: String, fresh: bool) -> Result<Self> {
        let folder = folder.join("runs");
        if fresh && folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
        }
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        Ok(Store { folder, build })
    }

    fn file(&self, run: &Run) -> PathBuf {
        self.folder.join(run.name() + ".json")
    }

    /// What the run left, if this build did it. A file that cannot be understood was cut off when the command was stopped.
    pub fn get(&self, run: &Run) -> Option<Measured> {
        let kept: Kept = serde_json::from_str(&fs::read_to_string(self.file(run)).ok()?).ok()?;
        (kept.build == self.build).then_some(kept.result)
    }

    /// Keeps it.
    pub fn put(&self, run: &Run, result: Measured) -> Result<()> {
        let kept = Kept { build: self.build.clone(), result };
        let file = self.file(run);
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
    fn a_run_is_found_again_by_its_build_until_all_is_done_afresh() {
        let folder = std::env::temp_dir().join(format!("radixvm-figures-{}", std::process::id()));
        let run = Run { on: RADIX, work: Work::new("local", &[]), x: None, cpus: 2, metered: false };
        let open = |build: &str, fresh| Store::open(&folder, build.to_owned(), fresh).unwrap();
        let store = open("a", false);
        assert!(store.get(&run).is_none());
        store.put(&run, Measured::Reported(BTreeMap::from([("mmap".to_owned(), 3)]))).unwrap();
        assert!(open("a", false).get(&run).is_some());
        assert!(open("b", false).get(&run).is_none());
        fs::write(store.file(&run), "{\"build\":").unwrap();
        assert!(store.get(&run).is_none());
        store.put(&run, Measured::Reported(BTreeMap::new())).unwrap();
        assert!(open("a", true).get(&run).is_none());
        fs::remove_dir_all(folder).unwrap();
    }
}

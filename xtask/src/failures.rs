//! Keeps the output of failed tests in files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::shell::target_dir;

/// Reads the output of one test runner and keeps each section `---- NAME stdout ----` in a file of its own.
pub struct Failures {
    folder: PathBuf,
    open: Option<Section>,
    kept: Vec<PathBuf>,
}

struct Section {
    file: PathBuf,
    text: String,
}

impl Failures {
    /// Keeps the output of the failed tests of this suite.
    pub fn of(suite: &str) -> Self {
        Self::in_folder(folder(suite))
    }

    fn in_folder(folder: PathBuf) -> Self {
        Failures { folder, open: None, kept: Vec::new() }
    }

    /// Takes in a line of output.
    pub fn hear(&mut self, line: &str) -> Result<()> {
        if let Some(name) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")) {
            self.close()?;
            self.open = Some(Section { file: self.folder.join(file_name(name)), text: String::new() });
        } else if line == "failures:" || line.starts_with("test result: ") {
            self.close()?;
        } else if let Some(section) = &mut self.open {
            section.text += line;
            section.text.push('\n');
        }
        Ok(())
    }

    /// Returns the files that were written, one for each failed test.
    pub fn finish(mut self) -> Result<Vec<PathBuf>> {
        self.close()?;
        Ok(self.kept)
    }

    fn close(&mut self) -> Result<()> {
        let Some(Section { file, text }) = self.open.take() else { return Ok(()) };
        fs::create_dir_all(&self.folder).with_context(|| self.folder.display().to_string())?;
        fs::write(&file, text).with_context(|| file.display().to_string())?;
        self.kept.push(file);
        Ok(())
    }
}

/// Returns the last lines of what a failed test has printed before its backtrace, without the rest of lines
/// that are very long.
pub fn end_of(output: &str) -> Vec<String> {
    const LINES: usize = 16;
    const WIDTH: usize = 4000;
    let said = output.split("\nstack backtrace:\n").next().unwrap_or_default();
    let lines: Vec<&str> = said.lines().filter(|line| !line.is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LINES)..];
    last.iter().map(|line| line.chars().take(WIDTH).collect()).collect()
}

/// Removes what an earlier run of the suite kept.
pub fn forget(suite: &str) -> Result<()> {
    let folder = folder(suite);
    if folder.exists() { remove(&folder) } else { Ok(()) }
}

fn remove(folder: &Path) -> Result<()> {
    fs::remove_dir_all(folder).with_context(|| folder.display().to_string())
}

fn folder(suite: &str) -> PathBuf {
    target_dir("test-logs").join(suite)
}

/// Returns the name of a test as a file name that every file system takes.
fn file_name(test: &str) -> String {
    let words = test.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(".") + ".log"
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
test a::fails ... FAILED
test b ... ok

failures:

---- a::fails stdout ----
guest said: no
panicked

---- a::too stdout ----
also

failures:
    a::fails
    a::too

test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

    #[test]
    fn each_failed_test_has_its_file() {
        let folder = std::env::temp_dir().join(format!("radixvm-failures-{}", std::process::id()));
        let mut failures = Failures::in_folder(folder.clone());
        OUTPUT.lines().for_each(|line| failures.hear(line).unwrap());
        let kept = failures.finish().unwrap();
        let text: Vec<_> = kept.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
        remove(&folder).unwrap();
        assert_eq!(kept, ["a.fails.log", "a.too.log"].map(|name| folder.join(name)));
        assert_eq!(text, ["guest said: no\npanicked\n\n", "also\n\n"]);
    }

    #[test]
    fn the_end_of_an_output_is_short() {
        let output: String = (0..20).map(|line| format!("{line}\n\n")).collect();
        assert_eq!((end_of(&output).len(), end_of(&output)[0].as_str()), (16, "4"));
        assert_eq!(end_of(&"é".repeat(5000)), ["é".repeat(4000)]);
        assert_eq!(end_of("a\nb\nstack backtrace:\n   0: c\n"), ["a", "b"]);
    }

    #[test]
    fn the_name_of_a_documentation_test_is_a_file_name_too() {
        assert_eq!(
            file_name("crates/sync/src/spin.rs - SpinGuard (line 67)"),
            "crates.sync.src.spin.rs.SpinGuard.line.67.log"
        );
    }
}

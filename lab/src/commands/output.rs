//! A file for results.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};

/// A file that will be written. It keeps its contents until then.
pub struct Output {
    path: PathBuf,
    file: File,
}

impl Output {
    /// Opens the file, so that an error shows before minutes of measuring.
    pub fn open(path: PathBuf) -> Result<Self> {
        let file = File::options().write(true).create(true).truncate(false).open(&path);
        Ok(Output { file: file.with_context(|| path.display().to_string())?, path })
    }

    /// Writes all of it.
    pub fn write(mut self, text: &str) -> Result<()> {
        let written = self.empty().and_then(|()| self.file.write_all(text.as_bytes()));
        written.with_context(|| self.path.display().to_string())
    }

    /// Truncates the file. A pipe cannot be truncated.
    fn empty(&self) -> io::Result<()> {
        if self.file.metadata()?.is_file() { self.file.set_len(0) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_keeps_its_content_until_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("figures.json");
        std::fs::write(&path, "what was there before").unwrap();
        let output = Output::open(path.clone()).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "what was there before");
        output.write("new").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn a_place_that_cannot_be_written_is_named() {
        let error = Output::open("/no/such/folder/x.json".into()).err().unwrap();
        assert!(format!("{error:#}").starts_with("/no/such/folder/x.json: "), "{error:#}");
        Output::open("/dev/full".into()).unwrap().write("x").unwrap_err();
        Output::open("/dev/null".into()).unwrap().write("x").unwrap();
    }
}

//! How much memory a program uses: sums over its mappings.

use vm::{Flags, Prot, Region};

use super::memory::is_stack;
use crate::fs::OpenFile;
use crate::fs::StaticOrArc;
use crate::fs::node::Volume;
use crate::mm::file_mapping::Source;

/// Pages of a program.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pages {
    /// All that are mapped.
    pub mapped: u64,
    /// Those locked in memory.
    pub locked: u64,
    /// Private ones that may be written, without the stack.
    pub data: u64,
    /// The main thread's stack.
    pub stack: u64,
    /// Code of the program itself.
    pub code: u64,
    /// Code of others.
    pub library: u64,
    /// In memory: the program's own.
    pub anonymous: u64,
    /// In memory: a file's.
    pub file: u64,
    /// In memory: shared memory's, and those of files that live in memory.
    pub shared: u64,
    /// Compressed, and not in memory: the program's own.
    pub compressed: u64,
}

impl Pages {
    /// Those in memory.
    pub fn resident(&self) -> u64 {
        self.anonymous + self.file + self.shared
    }

    /// Counts part of a mapping of the program in `program`, and what it shows.
    pub fn add(&mut self, region: &Region, shown: Option<&Source>, program: &StaticOrArc<OpenFile>) {
        let (pages, flags) = (region.pages.pages(), region.mapping.flags());
        self.mapped += pages;
        if flags.contains(Flags::LOCKED) {
            self.locked += pages;
        }
        if let Some(kind) = self.kind(region, shown, program) {
            *kind += pages;
        }
        self.add_resident(region, shown);
    }

    /// The sum of the mappings that are of the same kind, as Linux tells them apart.
    fn kind(
        &mut self,
        region: &Region,
        shown: Option<&Source>,
        program: &StaticOrArc<OpenFile>,
    ) -> Option<&mut u64> {
        let (prot, flags) = (region.mapping.prot(), region.mapping.flags());
        let is_program = || shown.and_then(Source::opened).is_some_and(|file| file.is(program));
        match (prot.contains(Prot::WRITE), prot.contains(Prot::EXEC)) {
            _ if shown.is_none() && is_stack(region) => Some(&mut self.stack),
            (true, _) if !flags.contains(Flags::SHARED) => Some(&mut self.data),
            (false, true) if is_program() => Some(&mut self.code),
            (false, true) => Some(&mut self.library),
            _ => None,
        }
    }

    fn add_resident(&mut self, region: &Region, shown: Option<&Source>) {
        let resident = region.resident;
        self.anonymous += resident.alone + resident.counted;
        self.compressed += resident.compressed;
        match shown.and_then(Source::opened).map(|file| file.node().volume()) {
            Some(Volume::Image) => self.file += resident.shown,
            _ => self.shared += resident.shown,
        }
    }
}

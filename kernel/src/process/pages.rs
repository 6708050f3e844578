//! The pages that a program has mapped and in memory, as sums over its mappings.

use vm::{Flags, Prot, Region};

use super::memory::is_stack;
use crate::fs::OpenFile;
use crate::fs::Source;
use crate::fs::node::Volume;
use crate::mm::static_or_arc::StaticOrArc;

/// The pages of a program.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pages {
    /// All mapped pages.
    pub mapped: u64,
    /// Pages locked in memory.
    pub locked: u64,
    /// Private pages that may be written, without the stack.
    pub data: u64,
    /// The main thread's stack.
    pub stack: u64,
    /// Code of the program.
    pub code: u64,
    /// Code of other files.
    pub library: u64,
    /// Resident anonymous pages.
    pub anonymous: u64,
    /// Resident pages of files.
    pub file: u64,
    /// Resident pages of shared memory, and of files in memory.
    pub shared: u64,
    /// Compressed anonymous pages.
    pub compressed: u64,
}

impl Pages {
    /// Returns the number of resident pages.
    pub fn resident(&self) -> u64 {
        self.anonymous + self.file + self.shared
    }

    /// Counts `region`, which is part of a mapping of the program in `program` and shows `shown`.
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

    /// Returns the sum for mappings of this kind, by Linux's rules.
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

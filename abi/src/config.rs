//! The configurations of the RadixVM kernel: the choices, the word for each alternative, and its meaning.
//!
//! The options of the `radixvm` command, the kernel's command line and the JSON of benchmarks use these
//! words, and no others.

/// One of several alternatives, named by a word.
pub trait Choice: Copy + PartialEq + Send + Sync + 'static {
    /// The key on the kernel's command line, as in `KEY=WORD`.
    const KEY: &'static str;
    /// Every alternative, with its word and a line that explains it.
    const ALL: &'static [(Self, &'static str, &'static str)];

    /// Returns the alternative that `word` names.
    fn named(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, name, _)| *name == word).map(|(choice, ..)| *choice)
    }

    /// Returns the word that names this alternative.
    fn word(self) -> &'static str {
        let known = Self::ALL.iter().find(|(choice, ..)| *choice == self);
        known.map_or("", |(_, name, _)| name)
    }
}

/// Defines enums of alternatives. The documentation of each is its explanation.
macro_rules! choices {
    ($($(#[$meta:meta])* $name:ident, $key:literal { $($choice:ident = $word:literal: $help:literal,)* })*) => {
        $(
            $(#[$meta])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub enum $name { $(#[doc = $help] $choice,)* }

            impl Choice for $name {
                const KEY: &'static str = $key;
                const ALL: &'static [(Self, &'static str, &'static str)] = &[$((Self::$choice, $word, $help),)*];
            }
        )*
    };
}

choices! {
    /// The design of address spaces.
    Design, "vm" {
        Radix = "radix": "A radix tree of page slots with range locks: the design of the RadixVM paper",
        Rwlock = "rwlock": "A tree of regions under one reader-writer lock, as in Linux 2.6",
        Faultlock = "faultlock": "The tree of regions, with a lock of their own for page faults",
        Hybrid = "hybrid": "The tree of regions, which page faults lock only to look a region up",
        Bonsai = "bonsai": "The tree of regions, which page faults read without a lock (the Bonsai paper)",
        Pervma = "pervma": "The tree of regions with a lock per region for page faults, as in today's Linux",
    }

    /// The page tables of an address space.
    Tables, "tables" {
        Adaptive = "adaptive": "Private to each core, and shared where many cores fill the same 2 MiB",
        Percore = "percore": "One per core: a shootdown interrupts exactly the cores that used the page",
        Shared = "shared": "One for all cores: a shootdown interrupts every core that runs the program",
    }

    /// The kind of counter of the references to pages of files.
    Refs, "refs" {
        Refcache = "refcache": "Deltas per core, reconciled in epochs",
        Atomic = "atomic": "One atomic word for all cores",
        Locked = "locked": "One word under a lock",
        Snzi = "snzi": "A tree of words with a leaf per core",
        Sloppy = "sloppy": "A shared word, and spare references per core",
        None = "none": "No counter: pages that leave their file are never freed",
    }

    /// The way in which a read keeps the page of a file that it copies to the program.
    ReadRefs, "read_refs" {
        Pinned = "pinned": "The core stays in its epoch, in which no page is freed: nothing is counted",
        Shared = "shared": "One atomic word in the page's descriptor, as in Linux",
        Refcache = "refcache": "Deltas per core, reconciled in epochs",
        Paygo = "paygo": "A table per core, and the read remembers the core that counted it",
        Lodic = "lodic": "Bits of the reader's page table entry where it maps the page and said so, a counter of its process where readers contend, or else as shared",
        LodicFile = "lodic-file": "As lodic, but the read looks for the entry among all mappings of its file, to compare with",
        LodicUnsplit = "lodic-unsplit": "As lodic, but threads of a process share its counters, as in the paper, to compare with",
        LodicPaper = "lodic-paper": "As in the paper, to compare with: bits of page table entries or the page's word, and reclaim and advice ask for their sum while reads wait",
        None = "none": "Not at all, the ideal to compare with. Unsafe: a read may return bytes of other programs",
    }

    /// The anonymous memory that gets huge pages while memory is plentiful.
    Huge, "huge" {
        Never = "never": "None",
        Madvise = "madvise": "Memory that the program advised with MADV_HUGEPAGE",
        Always = "always": "All memory, except where the program advised MADV_NOHUGEPAGE",
    }
}

/// The word that switches compression on, on the kernel's command line and as an option.
pub const COMPRESS: &str = "compress";
/// The explanation of [`COMPRESS`].
pub const COMPRESS_HELP: &str =
    "Compress anonymous pages that nobody touches when memory runs short, as zswap and zram do; radix only";
/// The word on the kernel's command line that makes the tree of names the host's.
pub const HOST_FILES: &str = "host-files";
/// Key of the user and the group who run the guest, `USER:GROUP`: their files are root's there.
pub const HOST_USER: &str = "host-user";
/// The word on the kernel's command line that gives the guest a network.
pub const NETWORK: &str = "network";
/// The word that lets it make connections there, too.
pub const NETWORK_OUT: &str = "network-out";
/// The key of the device by which the changes of the host's files are written at the end.
pub const OVERLAY_OUT: &str = "overlay-out";
/// The option by which those in `/tmp` are among them.
pub const OVERLAY_TMP: &str = "overlay-tmp";
/// The option by which each system call is reported.
pub const TRACE: &str = "trace";
/// The option by which the first call that is not supported ends the run.
pub const STRICT: &str = "strict";
/// The key with which standard input, output and error are a terminal: its rows and columns, as `24x80`.
pub const TERMINAL: &str = "tty";

impl Design {
    /// Returns the page tables of a space of this design by default.
    pub const fn default_tables(self) -> Tables {
        match self {
            Design::Radix => Tables::Adaptive,
            _ => Tables::Shared,
        }
    }

    /// Returns whether a space of this design can have such page tables.
    pub const fn has(self, tables: Tables) -> bool {
        matches!((self, tables), (Design::Radix, _) | (_, Tables::Shared))
    }

    /// Returns whether a space of this design can compress pages (`compress`).
    pub const fn compresses(self) -> bool {
        matches!(self, Design::Radix)
    }
}

impl ReadRefs {
    /// Returns whether reads are counted in page tables, with such tables and such a counter of pages. That
    /// needs tables that link no leaf of the map, and a counter that frees a page some epochs after the last
    /// holder.
    pub fn counts_in_entries(self, tables: Tables, refs: Refs) -> bool {
        let has_place = match tables {
            Tables::Shared => self.is_lodic(),
            Tables::Percore => matches!(self, ReadRefs::Lodic | ReadRefs::LodicUnsplit),
            Tables::Adaptive => false,
        };
        has_place && refs == Refs::Refcache
    }

    /// Returns whether processes count their reads themselves.
    pub const fn is_lodic(self) -> bool {
        matches!(self, ReadRefs::Lodic | ReadRefs::LodicFile | ReadRefs::LodicUnsplit | ReadRefs::LodicPaper)
    }
}

impl Huge {
    /// The kernel's default, and the choice for both kernels where they are compared.
    pub const DEFAULT: Huge = Huge::Always;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words_are_distinct_and_name_their_choice<T: Choice + core::fmt::Debug>() {
        for (choice, word, help) in T::ALL {
            assert_eq!((T::named(word), choice.word()), (Some(*choice), *word));
            assert!(!help.is_empty() && !help.ends_with('.'), "{word}");
        }
        assert_eq!(T::named("nothing"), None);
    }

    #[test]
    fn every_word_names_one_choice() {
        words_are_distinct_and_name_their_choice::<Design>();
        words_are_distinct_and_name_their_choice::<Tables>();
        words_are_distinct_and_name_their_choice::<Refs>();
        words_are_distinct_and_name_their_choice::<ReadRefs>();
        words_are_distinct_and_name_their_choice::<Huge>();
    }

    #[test]
    fn only_lodic_counts_in_page_tables() {
        let counts = |reads: ReadRefs, tables, refs| reads.counts_in_entries(tables, refs);
        assert!(counts(ReadRefs::Lodic, Tables::Shared, Refs::Refcache));
        assert!(counts(ReadRefs::LodicFile, Tables::Shared, Refs::Refcache));
        assert!(!counts(ReadRefs::Shared, Tables::Shared, Refs::Refcache));
        assert!(counts(ReadRefs::LodicPaper, Tables::Shared, Refs::Refcache));
        assert!(counts(ReadRefs::Lodic, Tables::Percore, Refs::Refcache));
        assert!(!counts(ReadRefs::LodicPaper, Tables::Percore, Refs::Refcache));
        assert!(!counts(ReadRefs::Lodic, Tables::Adaptive, Refs::Refcache));
        assert!(!counts(ReadRefs::Lodic, Tables::Shared, Refs::Snzi));
    }

    #[test]
    fn a_design_has_its_default_tables() {
        for (design, ..) in Design::ALL {
            assert!(design.has(design.default_tables()));
            assert_eq!(
                design.has(Tables::Percore),
                design.compresses(),
                "only radix has more than one table"
            );
        }
    }
}

//! The kernel's command line.

use sync::{CachePadded, SetOnce};
use vm::{Locking, Tables};

/// What the user of the kernel chose.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// `vm=radix|rwlock|faultlock|hybrid|bonsai|pervma`.
    pub design: Design,
    /// `tables=percore|shared|adaptive`. Only radix can have other than one for all.
    pub tables: Tables,
    /// `refs=refcache|atomic|locked|snzi|sloppy|none`.
    pub refs: Refs,
    /// `huge=never|madvise|always`.
    pub huge: Huge,
    /// `compress`: pages that nobody touches are compressed when memory is short. Only radix can.
    pub compress: bool,
    /// `norandmaps`: address spaces are laid out alike in every boot, as on Linux with this word.
    pub norandmaps: bool,
    /// `probe`: boot, say so, and stop.
    pub probe: bool,
    /// `stats`: counters and leaks at the end.
    pub stats: bool,
    /// `fail-alloc`: a device that lets allocations fail.
    pub fail_alloc: bool,
    /// `skew`: the counters of all cores but the first are set wrong, where the CPU lets them be, to test that clocks agree.
    pub skew: bool,
    /// `meter`: who owns what memory, at the end.
    pub meter: bool,
}

/// What counts the references of pages to the frames of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refs {
    /// Refcache.
    Refcache,
    /// A shared word.
    Atomic,
    /// A word under a lock.
    Locked,
    /// A tree of words.
    Snzi,
    /// A shared word, and spare references of each core.
    Sloppy,
    /// Nobody: such frames never come back.
    Nobody,
}

/// What address spaces are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Design {
    /// The paper's.
    Radix,
    /// A baseline: a tree of regions, with one page table.
    Tree(Locking),
}

/// Which anonymous memory gets huge pages, as long as there is plenty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Huge {
    /// None.
    Never,
    /// What a program wants them for (MADV_HUGEPAGE).
    Advised,
    /// All but what a program does not want them for (MADV_NOHUGEPAGE).
    Always,
}

/// Read all the time: what lies beside it must not be written.
static OPTIONS: CachePadded<SetOnce<Options>> = CachePadded::new(SetOnce::new());

/// The options of this boot; the defaults before they are known.
pub fn get() -> Options {
    OPTIONS.get().copied().unwrap_or(Options::DEFAULT)
}

impl Options {
    const DEFAULT: Self = Self {
        design: Design::Radix,
        tables: Tables::Adaptive,
        refs: Refs::Refcache,
        huge: Huge::Always,
        compress: false,
        norandmaps: false,
        probe: false,
        stats: false,
        fail_alloc: false,
        skew: false,
        meter: false,
    };

    /// Reads the command line; [`get`] knows the options from now on.
    ///
    /// # Panics
    /// On a key or a value that does not exist, or what does not go together: a measurement of something else than was asked
    /// for is worse than none.
    pub fn read(command_line: &[u8]) -> Self {
        let text = str::from_utf8(command_line).expect("the kernel's command line is text");
        let options = text.split_ascii_whitespace().fold(Self::DEFAULT, Self::with);
        assert!(!options.compress || options.design == Design::Radix, "compress is an option of vm=radix");
        OPTIONS.set(options);
        options
    }

    fn with(self, word: &str) -> Self {
        match word {
            "vm=radix" => Self { design: Design::Radix, ..self },
            "vm=rwlock" => self.tree(Locking::RwLock),
            "vm=faultlock" => self.tree(Locking::FaultLock),
            "vm=hybrid" => self.tree(Locking::Hybrid),
            "vm=bonsai" => self.tree(Locking::Bonsai),
            "vm=pervma" => self.tree(Locking::PerVma),
            "tables=percore" => Self { tables: Tables::PerCore, ..self },
            "tables=shared" => Self { tables: Tables::Shared, ..self },
            "refs=refcache" => Self { refs: Refs::Refcache, ..self },
            "refs=atomic" => Self { refs: Refs::Atomic, ..self },
            "refs=locked" => Self { refs: Refs::Locked, ..self },
            "refs=snzi" => Self { refs: Refs::Snzi, ..self },
            "refs=sloppy" => Self { refs: Refs::Sloppy, ..self },
            "refs=none" => Self { refs: Refs::Nobody, ..self },
            "huge=never" => Self { huge: Huge::Never, ..self },
            "huge=madvise" => Self { huge: Huge::Advised, ..self },
            "huge=always" => Self { huge: Huge::Always, ..self },
            "tables=adaptive" => Self { tables: Tables::Adaptive, ..self },
            "compress" => Self { compress: true, ..self },
            "norandmaps" => Self { norandmaps: true, ..self },
            "probe" => Self { probe: true, ..self },
            "stats" => Self { stats: true, ..self },
            "fail-alloc" => Self { fail_alloc: true, ..self },
            "skew" => Self { skew: true, ..self },
            "meter" => Self { meter: true, ..self },
            other => panic!("unknown option on the kernel's command line: {other}"),
        }
    }

    fn tree(self, locking: Locking) -> Self {
        Self { design: Design::Tree(locking), tables: Tables::Shared, ..self }
    }
}

//! The kernel's command line.

use sync::SetOnce;
use vm::Tables;

/// What the user of the kernel chose.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// `tables=percore|shared|adaptive`.
    pub tables: Tables,
    /// `huge=never|madvise|always`.
    pub huge: Huge,
    /// `probe`: boot, say so, and stop.
    pub probe: bool,
    /// `stats`: counters and leaks at the end.
    pub stats: bool,
    /// `fail-alloc`: a device that lets allocations fail.
    pub fail_alloc: bool,
    /// `meter`: who owns what memory, at the end.
    pub meter: bool,
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

static OPTIONS: SetOnce<Options> = SetOnce::new();

/// The options of this boot; the defaults before they are known.
pub fn get() -> Options {
    OPTIONS.get().copied().unwrap_or(Options::DEFAULT)
}

impl Options {
    const DEFAULT: Self = Self {
        tables: Tables::PerCore,
        huge: Huge::Always,
        probe: false,
        stats: false,
        fail_alloc: false,
        meter: false,
    };

    /// Reads the command line; [`get`] knows the options from now on.
    ///
    /// # Panics
    /// On a key or a value that does not exist: a measurement of something else than was asked for is worse than none.
    pub fn read(command_line: &[u8]) -> Self {
        let text = str::from_utf8(command_line).expect("the kernel's command line is text");
        let options = text.split_ascii_whitespace().fold(Self::DEFAULT, Self::with);
        OPTIONS.set(options);
        options
    }

    fn with(self, word: &str) -> Self {
        match word {
            "vm=radix" => self,
            "tables=percore" => Self { tables: Tables::PerCore, ..self },
            "tables=shared" => Self { tables: Tables::Shared, ..self },
            "huge=never" => Self { huge: Huge::Never, ..self },
            "huge=madvise" => Self { huge: Huge::Advised, ..self },
            "huge=always" => Self { huge: Huge::Always, ..self },
            "tables=adaptive" => Self { tables: Tables::Adaptive, ..self },
            "probe" => Self { probe: true, ..self },
            "stats" => Self { stats: true, ..self },
            "fail-alloc" => Self { fail_alloc: true, ..self },
            "meter" => Self { meter: true, ..self },
            other => panic!("unknown option on the kernel's command line: {other}"),
        }
    }
}

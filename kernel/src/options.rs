//! The kernel's command line.

use core::str::FromStr;

use abi::config::{
    COMPRESS, Choice, Design, HOST_FILES, HOST_USER, Huge, NETWORK, NETWORK_OUT, OVERLAY_OUT, OVERLAY_TMP,
    ReadRefs, Refs, STRICT, TERMINAL, TRACE, Tables,
};
use sync::{CachePadded, SetOnce};

/// The options that the user of the kernel chose.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// `vm=DESIGN`. It selects the default tables of the design.
    pub design: Design,
    /// `tables=TABLES`, which comes after the design.
    pub tables: Tables,
    /// `refs=COUNTER`.
    pub refs: Refs,
    /// `read_refs=COUNTER`.
    pub read_refs: ReadRefs,
    /// The way in which a read follows that.
    pub read_way: ReadWay,
    /// `huge=MEMORY`.
    pub huge: Huge,
    /// `compress`: pages that are not touched are compressed when memory is short.
    pub compress: bool,
    /// `norandmaps`: address spaces have the same layout in every boot, as on Linux with this option.
    pub norandmaps: bool,
    /// `probe`: boot, report that, and stop.
    pub probe: bool,
    /// `stats`: report counters and leaks at the end.
    pub stats: bool,
    /// `fail-alloc`: a device that makes allocations fail.
    pub fail_alloc: bool,
    /// `skew`: the time stamp counters of all cores but the first are set wrong, if the CPU allows it, to
    /// test that clocks agree.
    pub skew: bool,
    /// `host-files`: the tree of names is the host's, by a device for that.
    pub host_files: bool,
    /// `host-user=USER:GROUP`: files of this user and of this group on the host are root's here.
    pub host_user: (u32, u32),
    /// `network`: there is a network, which can make connections to the guest.
    pub network: bool,
    /// `network-out`: the guest can make connections there, too.
    pub network_out: bool,
    /// `overlay-out=DEVICE`: the changes of the host's files are written by this device at the end.
    pub overlay_out: Option<u8>,
    /// `overlay-tmp`: those in `/tmp` too.
    pub overlay_tmp: bool,
    /// `trace`: report each system call.
    pub trace: bool,
    /// `strict`: the first call that is not supported ends the run.
    pub strict: bool,
    /// `meter`: report the owners of memory at the end.
    pub meter: bool,
    /// `tty=ROWSxCOLUMNS`: standard input, output and error are a terminal of this size.
    pub terminal: Option<(u16, u16)>,
}

/// The way in which a read keeps a page of a file while it is copied, as far as the copy must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadWay {
    /// The core stays pinned.
    Pinned,
    /// It is counted, or not, in the way of all processes.
    Counted,
    /// Its process counts it.
    ByProcess,
    /// Its process counts it, in the page table of the core that reads if that shows the page.
    ByCore,
    /// Its process counts it as in LODIC's paper.
    AsInPaper,
}

/// Read all the time, so data that is written must not share its cache line.
static OPTIONS: CachePadded<SetOnce<Options>> = CachePadded::new(SetOnce::new());

/// Returns the options of this boot, or the defaults before they are known.
pub fn get() -> Options {
    OPTIONS.get().copied().unwrap_or(Options::DEFAULT)
}

impl Options {
    const DEFAULT: Self = Self {
        design: Design::Radix,
        tables: Design::Radix.default_tables(),
        refs: Refs::Refcache,
        read_refs: ReadRefs::Pinned,
        read_way: ReadWay::Pinned,
        huge: Huge::DEFAULT,
        compress: false,
        norandmaps: false,
        probe: false,
        stats: false,
        fail_alloc: false,
        skew: false,
        host_files: false,
        host_user: (0, 0),
        network: false,
        network_out: false,
        overlay_out: None,
        overlay_tmp: false,
        trace: false,
        strict: false,
        meter: false,
        terminal: None,
    };

    /// Reads the command line and sets the options that [`get`] returns.
    ///
    /// # Panics
    /// If a key or a value is unknown, or options exclude each other. Running with other options than the
    /// given ones would measure something else.
    pub fn read(command_line: &[u8]) -> Self {
        let text = str::from_utf8(command_line).expect("the kernel's command line is text");
        let options = text.split_ascii_whitespace().fold(Self::DEFAULT, Self::with);
        let Self { design, tables, .. } = options;
        assert!(design.has(tables), "vm={} has no tables={}", design.word(), tables.word());
        assert!(!options.compress || design.compresses(), "vm={} cannot compress", design.word());
        let options = Self { read_way: options.read_way(), ..options };
        OPTIONS.set(options);
        options
    }

    fn read_way(&self) -> ReadWay {
        match self.read_refs {
            ReadRefs::Pinned => ReadWay::Pinned,
            ReadRefs::LodicPaper => ReadWay::AsInPaper,
            _ if self.counts_by_core() => ReadWay::ByCore,
            read_refs if read_refs.is_lodic() => ReadWay::ByProcess,
            _ => ReadWay::Counted,
        }
    }

    /// Returns whether a process counts reads in the page tables of its cores.
    fn counts_by_core(&self) -> bool {
        self.tables == Tables::Percore && self.counts_in_entries()
    }

    /// Returns whether a process counts reads in its page table.
    pub fn counts_in_entries(&self) -> bool {
        self.read_refs.counts_in_entries(self.tables, self.refs)
    }

    fn with(self, word: &str) -> Self {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        match key {
            Design::KEY => {
                let design = chosen(value);
                Self { design, tables: Design::default_tables(design), ..self }
            }
            Tables::KEY => Self { tables: chosen(value), ..self },
            Refs::KEY => Self { refs: chosen(value), ..self },
            ReadRefs::KEY => Self { read_refs: chosen(value), ..self },
            Huge::KEY => Self { huge: chosen(value), ..self },
            OVERLAY_OUT => Self { overlay_out: Some(value.parse().expect("the number of a device")), ..self },
            HOST_USER => Self { host_user: pair(value, ':'), ..self },
            TERMINAL => Self { terminal: Some(pair(value, 'x')), ..self },
            _ => self.with_flag(word),
        }
    }

    fn with_flag(self, word: &str) -> Self {
        match word {
            COMPRESS => Self { compress: true, ..self },
            "norandmaps" => Self { norandmaps: true, ..self },
            "probe" => Self { probe: true, ..self },
            "stats" => Self { stats: true, ..self },
            "fail-alloc" => Self { fail_alloc: true, ..self },
            HOST_FILES => Self { host_files: true, ..self },
            NETWORK => Self { network: true, ..self },
            NETWORK_OUT => Self { network: true, network_out: true, ..self },
            OVERLAY_TMP => Self { overlay_tmp: true, ..self },
            TRACE => Self { trace: true, ..self },
            STRICT => Self { strict: true, ..self },
            "skew" => Self { skew: true, ..self },
            "meter" => Self { meter: true, ..self },
            other => panic!("unknown option on the kernel's command line: {other}"),
        }
    }
}

/// Returns two numbers with a character between them.
fn pair<N: FromStr>(value: &str, between: char) -> (N, N) {
    let numbers = value.split_once(between).map(|(first, second)| (first.parse(), second.parse()));
    match numbers {
        Some((Ok(first), Ok(second))) => (first, second),
        _ => panic!("no two numbers on the kernel's command line: {value}"),
    }
}

/// Returns the choice that `word` names.
fn chosen<T: Choice>(word: &str) -> T {
    T::named(word).unwrap_or_else(|| panic!("unknown value on the kernel's command line: {}={word}", T::KEY))
}

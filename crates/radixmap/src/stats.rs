use percore::{CoreId, Counts, Pinned};

/// Nodes made and nodes given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Nodes that were created, roots included.
    pub created: u64,
    /// Nodes that went away: empty ones that collapsed, and roots of destroyed maps.
    pub collapsed: u64,
}

impl Stats {
    /// Nodes that exist. An estimate while others work: the two numbers are not read at once.
    pub fn live(self) -> u64 {
        self.created.saturating_sub(self.collapsed)
    }
}

/// Counts the nodes of one map or of many, each core on its own cache lines.
#[derive(Debug)]
pub struct NodeCounters(Counts<2>);

const CREATED: usize = 0;
const COLLAPSED: usize = 1;

impl NodeCounters {
    /// Zero everywhere, for cores 0 to `cores - 1`.
    ///
    /// # Panics
    /// If there is no memory for it.
    pub fn new(cores: usize) -> Self {
        Self::try_new(cores).expect("memory for a word for each core")
    }

    /// The same; `None` if there is no memory for it.
    pub fn try_new(cores: usize) -> Option<Self> {
        Counts::try_new(cores).map(Self)
    }

    /// How many cores there are.
    pub fn cores(&self) -> usize {
        self.0.cores()
    }

    /// What `core` did.
    pub fn of(&self, core: CoreId) -> Stats {
        self.0.of(core).into()
    }

    /// What all cores did. Exact when nobody is creating or collapsing meanwhile.
    pub fn total(&self) -> Stats {
        self.0.sum().into()
    }

    pub(crate) fn created(&self, pin: &Pinned) {
        self.0.add(pin, CREATED, 1);
    }

    pub(crate) fn collapsed(&self, pin: &Pinned) {
        self.0.add(pin, COLLAPSED, 1);
    }
}

impl From<[u64; 2]> for Stats {
    fn from(counts: [u64; 2]) -> Self {
        Self { created: counts[CREATED], collapsed: counts[COLLAPSED] }
    }
}

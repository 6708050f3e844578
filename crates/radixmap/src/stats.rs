use percore::{CoreId, Counts, Pinned};

/// Numbers of nodes created and freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Number of nodes that were created, including roots.
    pub created: u64,
    /// Number of nodes that were freed: empty ones that collapsed, and roots of destroyed maps.
    pub collapsed: u64,
}

impl Stats {
    /// Returns the number of existing nodes. It is an estimate while other cores work, because the two
    /// numbers are not read at once.
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
    /// Makes counters that are zero, for cores 0 to `cores - 1`.
    ///
    /// # Panics
    /// Panics if there is no memory for them.
    pub fn new(cores: usize) -> Self {
        Self::try_new(cores).expect("memory for a word for each core")
    }

    /// Makes counters as `new` does, or returns `None` if there is no memory for them.
    pub fn try_new(cores: usize) -> Option<Self> {
        Counts::try_new(cores).map(Self)
    }

    /// Returns the number of cores.
    pub fn cores(&self) -> usize {
        self.0.cores()
    }

    /// Returns the counts of `core`.
    pub fn of(&self, core: CoreId) -> Stats {
        self.0.of(core).into()
    }

    /// Returns the sums over all cores. They are exact when no core is creating or collapsing nodes
    /// meanwhile.
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

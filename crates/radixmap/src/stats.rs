use percore::{CoreId, PerCore, Pinned};
use sync::atomic::{AtomicU64, Ordering};

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
pub struct NodeCounters(PerCore<Cells>);

#[derive(Debug, Default)]
struct Cells {
    created: AtomicU64,
    collapsed: AtomicU64,
}

impl NodeCounters {
    /// Zero everywhere, for cores 0 to `cores - 1`.
    pub fn new(cores: usize) -> Self {
        Self(PerCore::new(cores, |_| Cells::default()))
    }

    /// The same; `None` if there is no memory for it.
    pub fn try_new(cores: usize) -> Option<Self> {
        PerCore::try_new(cores, |_| Cells::default()).map(Self)
    }

    /// How many cores there are.
    pub fn cores(&self) -> usize {
        self.0.cores()
    }

    /// What `core` did.
    pub fn of(&self, core: CoreId) -> Stats {
        self.0.of(core).read()
    }

    /// What all cores did. Exact when nobody is creating or collapsing meanwhile.
    pub fn total(&self) -> Stats {
        self.0.iter().map(Cells::read).fold(Stats::default(), |sum, each| Stats {
            created: sum.created + each.created,
            collapsed: sum.collapsed + each.collapsed,
        })
    }

    pub(crate) fn created(&self, pin: &Pinned) {
        bump(&self.0.mine(pin).created);
    }

    pub(crate) fn collapsed(&self, pin: &Pinned) {
        bump(&self.0.mine(pin).collapsed);
    }
}

impl Cells {
    fn read(&self) -> Stats {
        let relaxed = Ordering::Relaxed;
        Stats { created: self.created.load(relaxed), collapsed: self.collapsed.load(relaxed) }
    }
}

/// Only the owner core writes its cells, so no read-modify-write is needed. Relaxed: a number, no message.
fn bump(cell: &AtomicU64) {
    cell.store(cell.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

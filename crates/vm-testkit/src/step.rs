//! The steps of a trial.

use vm::{Flags, Prot};

use crate::{Forks, Shows};

/// One step of one core. Pages are counted from the start of user space.
#[derive(Clone, Debug)]
pub enum Step {
    /// Map a number of pages.
    Map(StepPlacement, u64, Prot, Shows),
    /// Unmap.
    Unmap(Target),
    /// Change rights.
    Protect(Target, Prot),
    /// Set and clear flags.
    Advise(Target, Flags, Flags),
    /// Drop contents.
    Discard(Target),
    /// Make a huge page of the block that a page is in.
    Collapse(u64),
    /// Move, and grow by a number of pages. Keep the old ones or not. In pieces of at most a number of pages,
    /// or in one step.
    Remap(Target, u64, StepPlacement, bool, Option<u64>),
    /// Grow by a number of pages.
    Extend(Target, u64),
    /// Load a word of a page.
    Load(u64, usize),
    /// Store a word of a page.
    Store(u64, usize, u64),
    /// The space has a child, and the next steps are the child's.
    Fork(Forks),
    /// The next steps are those of another space.
    Switch(usize),
    /// The space is ended, unless it is the last.
    End,
    /// A file has another length.
    Truncate(usize, u64),
    /// A file wants its frames back.
    Reclaim(usize),
    /// The space's clock goes a step, from a page on.
    PageOut(u64),
    /// Tell no holder that it is the last to hold a frame, or every one.
    Unsure(bool),
    /// There are huge frames from now on, or none.
    OfferHuge(bool),
    /// Let epochs pass.
    Tick,
    /// The core is idle from now on, or no longer.
    Idle(bool),
    /// The core leaves the space, until a program loads or stores there.
    Leave,
    /// Read a page from a process on the core that need not run the space.
    Outside(u64),
    /// The core's tables are dropped.
    DropTables,
}

/// A [`vm::Placement`].
#[derive(Clone, Copy, Debug)]
pub enum StepPlacement {
    /// Anywhere, without a wish.
    Anywhere,
    /// Anywhere, best there.
    Hint(u64),
    /// There, over what is mapped.
    Fixed(u64),
    /// There, if nothing is mapped.
    NoReplace(u64),
    /// Anywhere before it.
    Below(u64),
}

/// Pages: may be none, may leave user space.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The first.
    pub offset: u64,
    /// How many.
    pub pages: u64,
}

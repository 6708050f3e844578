//! The traits by which memory reaches the rooms above: see `above.rs` in the kernel's folder.

use abi::Errno;
use percore::Pinned;
use vm::FrameNum;

use super::mappings::Mappings;

/// The scheduler, for work that takes long.
pub trait Scheduler {
    /// Lets this core change reference counts, though it may idle.
    fn come_online();
    /// Returns whether this core was asked to look up, so that `pause` is due.
    fn is_asked() -> bool;
    /// Lets other tasks run if that is due, and returns whether to go on. The caller holds no lock.
    fn pause() -> bool;
    /// Frees tasks that have exited on this core.
    fn reap();
    /// Makes this core free what its tasks have left, before it returns to user mode or sleeps.
    fn ask_to_reap();
}

/// The first process, which watches the others.
pub trait Watcher {
    /// Returns whether this core runs the first process, or `None` if it runs none.
    fn is_watcher() -> Option<bool>;
}

/// Files, for their mappings.
pub trait Files {
    /// The source of a mapping: a file, or memory that is shared without one.
    type Source: Source;
    /// An open file.
    type Open: Send + Sync + 'static;
}

/// The file or memory that a mapping shows.
pub trait Source: Clone + Send + Sync + 'static {
    /// Returns the mappings that show it.
    fn mappings(&self) -> &Mappings;
    /// Returns the frame of `page`, made if there is none, with a reference for the caller.
    ///
    /// # Errors
    /// ENXIO beyond the end, ENOMEM, ENOSPC.
    fn frame(&self, pin: &Pinned, page: u64) -> Result<FrameNum, Errno>;
}

//! The treatment of a folded slot that sticks out of a range to be locked. It is a type, because it decides
//! which operations the holder has: see [`Entry`](crate::Entry) and [`RangeGuard`](crate::RangeGuard).

/// The treatment of a folded slot that sticks out of the range to be locked.
pub trait Expand: Copy + sealed::Sealed {}

/// Treatments under which no slot with a value sticks out of the range. Each value that the holder sees is
/// that of keys of the range alone, and may be changed or taken away.
pub trait ExpandUsed: Expand {}

/// Expands the slot: exactly the range is locked, and every key of it can be set.
#[derive(Clone, Copy, Debug)]
pub struct Always;

/// Expands the slot if it has a value, and locks it as a whole if it is empty. Meant for callers that look,
/// change or clear.
#[derive(Clone, Copy, Debug)]
pub struct IfPresent;

/// Expands the slot if its keys' values differ ([`Value::part`](crate::Value::part)), and locks it as a whole
/// otherwise. Meant for callers that change no other slots.
#[derive(Clone, Copy, Debug)]
pub struct IfDiffering;

/// Locks the slot as a whole, whatever its content, which needs no memory. Meant for callers that look, or
/// change leaves.
#[derive(Clone, Copy, Debug)]
pub struct Never;

impl Expand for Always {}
impl Expand for IfPresent {}
impl Expand for IfDiffering {}
impl Expand for Never {}
impl ExpandUsed for Always {}
impl ExpandUsed for IfPresent {}

/// The treatment as a value, for the code that locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Always,
    IfPresent,
    IfDiffering,
    Never,
}

impl Mode {
    /// Returns whether no slot with a value sticks out of the range.
    pub(crate) const fn expands_used(self) -> bool {
        matches!(self, Self::Always | Self::IfPresent)
    }
}

pub(crate) mod sealed {
    use super::{Always, IfDiffering, IfPresent, Mode, Never};

    pub trait Sealed {
        const MODE: Mode;
    }

    impl Sealed for Always {
        const MODE: Mode = Mode::Always;
    }
    impl Sealed for IfPresent {
        const MODE: Mode = Mode::IfPresent;
    }
    impl Sealed for IfDiffering {
        const MODE: Mode = Mode::IfDiffering;
    }
    impl Sealed for Never {
        const MODE: Mode = Mode::Never;
    }
}

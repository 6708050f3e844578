//! A mapping: its rights, flags and backing. They are the same for all its pages, so they fold.
//!
//! ```text
//! bits 0-2 rights   3-9 flags   10-17 spare   18-59 backing, or 0   60-63 spare
//! ```

use core::fmt;
use core::num::NonZeroU64;
use core::ops::{BitAnd, BitOr, Sub};

use crate::Prot;

/// The backing of a mapping that is not plain anonymous memory: a file or shared memory. Opaque to this
/// crate.
///
/// It knows which of its pages is shown at a page number (that number less a base), so all pages of a mapping
/// have the same one. A mapping that moves gets another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BackingNum(NonZeroU64);

impl BackingNum {
    /// Bits of a backing's number.
    pub const BITS: u32 = 42;

    /// Backing `number`, which is not zero and fits in [`BackingNum::BITS`].
    pub const fn new(number: u64) -> Self {
        assert!(number >> Self::BITS == 0);
        match NonZeroU64::new(number) {
            Some(number) => Self(number),
            None => panic!("zero stands for no backing"),
        }
    }

    /// Returns the backing whose number these bits are, or none for zero.
    #[inline(always)]
    pub(crate) const fn from_bits(bits: u64) -> Option<Self> {
        match NonZeroU64::new(bits) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// Returns the plain number.
    #[inline(always)]
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Debug for BackingNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BackingNum({:#x})", self.get())
    }
}

/// How pages behave: a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u16);

impl Flags {
    /// None.
    pub const NONE: Self = Self(0);
    /// Writes are seen by every space that maps the backing (MAP_SHARED). Only a mapping with a backing has
    /// it.
    pub const SHARED: Self = Self(1 << 0);
    /// A child does not get the pages (MADV_DONTFORK).
    pub const DONTFORK: Self = Self(1 << 1);
    /// A child gets the pages untouched (MADV_WIPEONFORK).
    pub const WIPEONFORK: Self = Self(1 << 2);
    /// The pages stay in memory (mlock). A child's do not.
    pub const LOCKED: Self = Self(1 << 3);
    /// Huge pages are wanted (MADV_HUGEPAGE).
    pub const HUGE: Self = Self(1 << 4);
    /// Huge pages are not wanted (MADV_NOHUGEPAGE).
    pub const NOHUGE: Self = Self(1 << 5);
    /// The pages may never be written (a shared mapping of a file that was opened for reading).
    pub const SEALED: Self = Self(1 << 6);
    /// The flags that may be advised later. The others are decided when the mapping is made.
    pub const ADVICE: Self = Self(0b11_1110);

    pub(crate) const ALL: Self = Self(0b111_1111);

    #[inline(always)]
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits as u16 & Self::ALL.0)
    }

    #[inline(always)]
    pub(crate) const fn bits(self) -> u64 {
        self.0 as u64
    }

    /// Returns whether every flag of `other` is in the set.
    #[inline(always)]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Flags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for Flags {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Sub for Flags {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

const FLAGS_SHIFT: u32 = 3;
const BACKING_SHIFT: u32 = 18;

/// The attributes that all pages of a mapping have in common.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Mapping(u64);

impl Mapping {
    /// Returns a mapping of private pages of zeroes.
    #[inline(always)]
    pub const fn anonymous(prot: Prot) -> Self {
        Self(prot.bits())
    }

    /// Returns a private mapping of `backing`: writes stay in the space.
    pub const fn private(prot: Prot, backing: BackingNum) -> Self {
        Self(prot.bits() | backing.get() << BACKING_SHIFT)
    }

    /// Returns a shared mapping of `backing`: writes go to the backing.
    pub const fn shared(prot: Prot, backing: BackingNum) -> Self {
        Self::private(prot, backing).with_flags(Flags::SHARED)
    }

    /// Returns this mapping, sealed against the right to write for ever.
    pub const fn sealed(self) -> Self {
        let prot = Prot::from_bits(self.prot().bits() & !Prot::WRITE.bits());
        self.with_prot(prot).with_flags(Flags(self.flags().0 | Flags::SEALED.0))
    }

    /// Returns this mapping with the flags `advice` added, all of them in [`Flags::ADVICE`].
    pub const fn with(self, advice: Flags) -> Self {
        assert!(Flags::ADVICE.contains(advice));
        Self(self.0 | advice.bits() << FLAGS_SHIFT)
    }

    /// Returns what a program may do to the pages.
    #[inline(always)]
    pub const fn prot(self) -> Prot {
        Prot::from_bits(self.0)
    }

    /// How they behave.
    #[inline(always)]
    pub const fn flags(self) -> Flags {
        Flags::from_bits(self.0 >> FLAGS_SHIFT)
    }

    /// Returns the backing of the pages, or none for anonymous memory.
    #[inline(always)]
    pub const fn backing(self) -> Option<BackingNum> {
        BackingNum::from_bits(self.0 >> BACKING_SHIFT)
    }

    /// Returns this mapping with the rights `prot`.
    #[inline(always)]
    pub const fn with_prot(self, prot: Prot) -> Self {
        Self(self.0 & !Prot::ALL.bits() | prot.bits())
    }

    /// Returns this mapping with these flags and no others.
    pub const fn with_flags(self, flags: Flags) -> Self {
        Self(self.0 & !(Flags::ALL.bits() << FLAGS_SHIFT) | flags.bits() << FLAGS_SHIFT)
    }

    /// Returns this mapping with another backing, or without one.
    pub fn with_backing(self, backing: Option<BackingNum>) -> Self {
        let others = self.0 & !(!0 << BACKING_SHIFT);
        Self(others | backing.map_or(0, BackingNum::get) << BACKING_SHIFT)
    }

    /// Returns the mapping whose [`bits`](Self::bits) these are.
    #[inline(always)]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns the mapping as bits, of which 60 to 63 are 0.
    #[inline(always)]
    pub const fn bits(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mapping({:?}, {:?}, {:?})", self.prot(), self.flags(), self.backing())
    }
}

//! Numbers that carry their unit, so that a page cannot be passed for an address or a frame for a page.

use core::fmt;
use core::ops::{BitAnd, BitOr, Sub};

/// log2 of [`PAGE_SIZE`].
pub const PAGE_BITS: u32 = 12;

/// Bytes in a page.
pub const PAGE_SIZE: u64 = 1 << PAGE_BITS;

/// Pages of a huge page, which is aligned to as many: 2 MiB.
pub const HUGE_PAGES: u64 = radixmap::BLOCK;

/// A virtual address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VirtAddr(u64);

impl VirtAddr {
    /// Returns the address `at`.
    pub const fn new(at: u64) -> Self {
        Self(at)
    }

    /// Returns the plain number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the page it lies in.
    #[inline(always)]
    pub const fn page(self) -> PageNum {
        PageNum(self.0 >> PAGE_BITS)
    }

    /// How far into its page it lies.
    pub const fn offset(self) -> u64 {
        self.0 % PAGE_SIZE
    }
}

/// The number of a virtual page: an address without its low [`PAGE_BITS`] bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageNum(u64);

impl PageNum {
    /// Page number `number`.
    #[inline(always)]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the plain number.
    #[inline(always)]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the page's first byte, or `None` if the number is no page of a 64-bit space.
    pub fn address(self) -> Option<VirtAddr> {
        self.0.checked_mul(PAGE_SIZE).map(VirtAddr)
    }
}

/// The number of a physical page frame. 32 bits are kept for each page: 16 TiB of memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameNum(u64);

impl FrameNum {
    /// Bits of a frame number.
    pub const BITS: u32 = 32;

    /// Frame number `number`, which must fit in [`FrameNum::BITS`].
    #[inline(always)]
    pub const fn new(number: u64) -> Self {
        assert!(number >> Self::BITS == 0);
        Self(number)
    }

    /// Returns the plain number.
    #[inline(always)]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// The number of a page's contents in compressed memory. Opaque to this crate, and as wide as a [`FrameNum`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CompressedNum(u32);

impl CompressedNum {
    /// Compressed contents number `number`.
    #[inline(always)]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the plain number.
    #[inline(always)]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// Pages from `start` up to, not including, `end`. `start <= end` always.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageRange {
    start: PageNum,
    end: PageNum,
}

impl PageRange {
    /// No page.
    pub const EMPTY: Self = Self::between(PageNum(0), PageNum(0));

    /// Returns the `pages` pages from `start`, or `None` if the end is not a number.
    #[inline]
    pub fn new(start: PageNum, pages: u64) -> Option<Self> {
        let end = PageNum(start.0.checked_add(pages)?);
        Some(Self { start, end })
    }

    /// From `start` up to, not including, `end`, which must not lie before it.
    #[inline]
    pub const fn between(start: PageNum, end: PageNum) -> Self {
        assert!(start.0 <= end.0);
        Self { start, end }
    }

    /// Returns the page `page` alone, which is not the last number.
    #[inline(always)]
    pub const fn one(page: PageNum) -> Self {
        Self { start: page, end: PageNum(page.0 + 1) }
    }

    /// Returns the first page.
    #[inline(always)]
    pub const fn start(self) -> PageNum {
        self.start
    }

    /// Returns the page after the last.
    #[inline(always)]
    pub const fn end(self) -> PageNum {
        self.end
    }

    /// Returns how many pages.
    #[inline(always)]
    pub const fn pages(self) -> u64 {
        self.end.0 - self.start.0
    }

    /// Returns whether there is no page.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.start.0 == self.end.0
    }

    /// Returns whether `page` is in the range.
    #[inline]
    pub const fn contains(self, page: PageNum) -> bool {
        self.start.0 <= page.0 && page.0 < self.end.0
    }

    /// Returns whether every page of `other` is in the range.
    #[inline]
    pub const fn covers(self, other: Self) -> bool {
        other.is_empty() || (self.start.0 <= other.start.0 && other.end.0 <= self.end.0)
    }

    /// Returns the smallest range that covers both.
    #[inline]
    pub fn hull(self, other: Self) -> Self {
        match (self.is_empty(), other.is_empty()) {
            (true, _) => other,
            (_, true) => self,
            _ => Self { start: self.start.min(other.start), end: self.end.max(other.end) },
        }
    }

    /// Returns the pages that are in both.
    pub fn common(self, other: Self) -> Self {
        let (start, end) = (self.start.max(other.start), self.end.min(other.end));
        if start < end { Self { start, end } } else { Self::EMPTY }
    }

    /// Returns the pages, first to last.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = PageNum> {
        (self.start.0..self.end.0).map(PageNum)
    }
}

/// A set of rights: what a program may do to a page.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Prot(u8);

impl Prot {
    /// No right.
    pub const NONE: Self = Self(0);
    /// To read.
    pub const READ: Self = Self(1);
    /// To write. A writable page can be read too, as on x86.
    pub const WRITE: Self = Self(2);
    /// To execute. An executable page can be read too, as on x86.
    pub const EXEC: Self = Self(4);
    /// Every right.
    pub const ALL: Self = Self(7);

    /// Returns the rights in the low three bits (Linux's PROT_READ, PROT_WRITE, PROT_EXEC). Other bits are
    /// dropped.
    #[inline(always)]
    pub const fn from_bits(bits: u64) -> Self {
        Self((bits & 7) as u8)
    }

    /// Returns the rights as three bits.
    #[inline(always)]
    pub const fn bits(self) -> u64 {
        self.0 as u64
    }

    /// Returns whether every right of `other` is in the set.
    #[inline(always)]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns whether `access` is allowed.
    #[inline(always)]
    pub const fn allows(self, access: Access) -> bool {
        match access {
            Access::Read => self.0 != 0,
            Access::Write => self.contains(Self::WRITE),
            Access::Exec => self.contains(Self::EXEC),
        }
    }
}

impl BitOr for Prot {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for Prot {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Sub for Prot {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// The access that a program tried on a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// It read.
    Read,
    /// It wrote.
    Write,
    /// It executed.
    Exec,
}

impl fmt::Debug for VirtAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VirtAddr({:#x})", self.0)
    }
}

impl fmt::Debug for PageNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageNum({:#x})", self.0)
    }
}

impl fmt::Debug for FrameNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FrameNum({:#x})", self.0)
    }
}

impl fmt::Debug for PageRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageRange({:#x}..{:#x})", self.start.0, self.end.0)
    }
}

impl fmt::Debug for Prot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let right = |set: Self, name| if self.contains(set) { name } else { "-" };
        write!(f, "{}{}{}", right(Self::READ, "r"), right(Self::WRITE, "w"), right(Self::EXEC, "x"))
    }
}

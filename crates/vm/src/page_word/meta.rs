//! The radix map's value for each page: one word for anonymous memory, two if the page has a backing or
//! advice.
//!
//! ```text
//!          63   62    61     60      59    58-56   55-54   53-52  51-44   43-12   11-9    8-1    0
//! main      -   tag SHOWN COUNTED PRESENT rights   R -     tracker        frame   tags  tracker  0   translated by those tracked, R: refused
//!           e   tag SHOWN COUNTED PRESENT rights     sharers      -       frame   tags     e     1   translated through the leaf
//! second    the page's mapping without its rights (`mapping.rs`)
//! ```
//! A word with bit 0 is an entry of a machine's page table. The bits `e` are the machine's
//! ([`Mmu::entry`](crate::Mmu)); the rest of the word is in bits that the machine leaves to software.
//! `linkage.rs` says which cores walk such words.
//!
//! Where COUNTED is set and PRESENT is not, the contents are in compressed memory (`compressed.rs`). A fresh
//! mapping has neither frame nor tracker, so all its pages are equal and fold into few slots. The states of a
//! page are in `sharing.rs`.

mod contents;
mod translation;

use radixmap::{TAGS, Value};

use super::tracker::Tracker;
use crate::{Access, BackingNum, Detail, Flags, FrameNum, Mapping, Prot};

const RIGHTS_SHIFT: u32 = 56;
const RIGHTS: u64 = Prot::ALL.bits() << RIGHTS_SHIFT;
/// The page has a frame.
const PRESENT: u64 = 1 << 59;
/// The frame has references, of which this page is one.
const COUNTED: u64 = 1 << 60;
/// With COUNTED: the frame is the backing's own, its contents are the backing's.
const SHOWN: u64 = 1 << 61;
/// Without COUNTED: a block's pages have the frames from this one on, as one translation. Never with LINKED.
const HUGE: u64 = SHOWN;
const FRAME_SHIFT: u32 = 12;
const FRAME: u64 = ((1 << FrameNum::BITS) - 1) << FRAME_SHIFT;
/// Without PRESENT: the page's contents are in compressed memory, and it holds one reference of them; the
/// frame's place has their number.
const COMPRESSED: u64 = COUNTED;
/// Without LINKED: compressed memory did not want the contents, and no core has translated the page since;
/// or, of a page without contents, its place is held by a move (`relocation.rs`).
const REFUSED: u64 = 1 << 55;
/// The page is translated through its leaf.
const LINKED: u64 = 1 << 0;
/// The bits in which a machine's entry gives a page's rights and how it is translated.
const MACHINE: u64 = 0x1ff | 1 << 63;
/// The shift of the field that names the leaf's private sharers which have the page too. Only with LINKED.
const PRIVATE_SHARERS_SHIFT: u32 = 52;
const PRIVATE_SHARERS: u64 = 0b1111 << PRIVATE_SHARERS_SHIFT;
/// The tracker's low bits are in bits 1 to 8, the others from bit 44. Only without LINKED.
const TRACKER_LOW: u32 = 8;
const TRACKER_HIGH_SHIFT: u32 = 44;
const TRACKER: u64 = 0xff << 1 | ((1 << (Tracker::BITS - TRACKER_LOW)) - 1) << TRACKER_HIGH_SHIFT;
const _: () =
    assert!((RIGHTS | PRESENT | COUNTED | SHOWN | FRAME | TRACKER | PRIVATE_SHARERS | MACHINE) & TAGS == 0);
const _: () =
    assert!((RIGHTS | PRESENT | COUNTED | SHOWN | FRAME) & (TRACKER | PRIVATE_SHARERS | MACHINE) == 0);
const _: () = assert!(REFUSED & (TRACKER | MACHINE | LINKED) == 0 && REFUSED & PRIVATE_SHARERS != 0);

/// A mapped page. Only a page with a frame is tracked, or counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    main: u64,
    second: u64,
}

impl Page {
    /// Returns a page that has not been touched.
    #[inline(always)]
    pub fn new(mapping: Mapping) -> Self {
        Self { main: 0, second: 0 }.with_mapping(mapping)
    }

    /// Returns whether it needs a second word.
    #[inline(always)]
    pub(crate) fn is_wide(self) -> bool {
        self.second != 0
    }

    /// Returns the attributes that it has in common with all pages of its mapping.
    #[inline(always)]
    pub(crate) fn mapping(self) -> Mapping {
        Mapping::from_bits(self.second | self.prot().bits())
    }

    /// Returns the bits of main words by which pages differ at this `detail`.
    pub(crate) fn mask(detail: Detail) -> u64 {
        match detail {
            Detail::Mappings => RIGHTS,
            Detail::Resident => u64::MAX,
        }
    }

    /// Returns the page as far as `detail` is told of it.
    #[inline(always)]
    pub(crate) fn told(self, detail: Detail) -> Self {
        match detail {
            Detail::Mappings => self.without_frame(),
            Detail::Resident => self,
        }
    }

    /// Returns the page in another mapping.
    #[inline(always)]
    pub fn with_mapping(self, mapping: Mapping) -> Self {
        Self { second: mapping.bits() & !Prot::ALL.bits(), ..self.with_prot(mapping.prot()) }
    }

    #[inline(always)]
    pub(crate) fn prot(self) -> Prot {
        Prot::from_bits(self.main >> RIGHTS_SHIFT)
    }

    /// Returns the page with the rights `prot`.
    #[inline(always)]
    pub fn with_prot(self, prot: Prot) -> Self {
        Self { main: self.main & !RIGHTS | prot.bits() << RIGHTS_SHIFT, ..self }
    }

    /// Returns the flags of its mapping.
    #[inline(always)]
    pub fn flags(self) -> Flags {
        self.mapping().flags()
    }

    /// Returns the page in a mapping with these flags.
    pub fn with_flags(self, flags: Flags) -> Self {
        self.with_mapping(self.mapping().with_flags(flags))
    }

    #[inline(always)]
    pub(crate) fn backing(self) -> Option<BackingNum> {
        self.mapping().backing()
    }

    pub(crate) fn with_backing(self, backing: Option<BackingNum>) -> Self {
        self.with_mapping(self.mapping().with_backing(backing))
    }

    #[inline(always)]
    pub(crate) fn is_shared(self) -> bool {
        self.flags().contains(Flags::SHARED)
    }

    /// Returns whether it may be given the rights `prot`.
    pub fn may_be(self, prot: Prot) -> bool {
        !(self.flags().contains(Flags::SEALED) && prot.contains(Prot::WRITE))
    }

    /// Returns the rights that a translation of the page may allow: its own, but no writing while a write has
    /// to copy first. A page that may be written may be read.
    #[inline(always)]
    pub fn rights(self) -> Prot {
        match self.is_copied_on_write() && self.prot().allows(Access::Write) {
            true => (self.prot() - Prot::WRITE) | Prot::READ,
            false => self.prot(),
        }
    }
}

impl Value for Page {
    #[inline(always)]
    fn to_words(self) -> (u64, u64) {
        (self.main, self.second)
    }

    #[inline(always)]
    fn from_words(main: u64, second: u64) -> Self {
        Self { main, second }
    }

    /// Untouched pages are alike. A frame, or compressed contents, belongs to one page.
    #[inline(always)]
    fn joins(main: u64) -> bool {
        main & (PRESENT | COMPRESSED) == 0
    }

    /// A page of a huge one has a frame of its own, and the cores that translate the whole translate the
    /// page.
    fn part(self, key: u64) -> Self {
        match self.is_huge() {
            true => Self { main: (self.main & !HUGE) + (key << FRAME_SHIFT), ..self },
            false => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leaf::PrivateSharers;
    use crate::page_word::Grain;
    use percore::CoreId;

    const LAST: BackingNum = BackingNum::new((1 << BackingNum::BITS) - 1);

    #[test]
    fn fields_do_not_touch_each_other() {
        let grain = Grain::new(256);
        let frame = FrameNum::new(FRAME >> FRAME_SHIFT);
        let tracker = [255, 254].map(CoreId::new).into_iter().fold(Tracker::NOBODY, |t, c| t.with(c, grain));
        let mapping = Mapping::shared(Prot::ALL, LAST).with(Flags::ADVICE);
        let page = Page::new(mapping).with_shown(frame).with_tracker(tracker).with_prot(Prot::WRITE);
        assert_eq!((page.prot(), page.frame(), page.tracker()), (Prot::WRITE, Some(frame), tracker));
        assert_eq!(page.mapping(), mapping.with_prot(Prot::WRITE));
        let (main, second) = page.to_words();
        assert_eq!(main & TAGS, 0);
        assert_eq!(Page::from_words(main, second), page);
        assert_eq!(page.without_frame(), Page::new(mapping.with_prot(Prot::WRITE)));
        let moved = page.with_backing(Some(BackingNum::new(5))).with_flags(Flags::SHARED);
        assert_eq!(moved.mapping(), Mapping::shared(Prot::WRITE, BackingNum::new(5)));
        assert!(moved.is_shown() && moved.tracker() == tracker);
    }

    #[test]
    fn only_what_is_shown_or_advised_has_a_second_word() {
        let anonymous = Mapping::anonymous(Prot::ALL);
        let touched = Page::new(anonymous).with_counted(FrameNum::new(5));
        assert!(!touched.is_wide());
        assert!(touched.with_flags(Flags::LOCKED).is_wide());
        assert!(Page::new(Mapping::private(Prot::NONE, LAST)).is_wide());
    }

    #[test]
    fn the_parts_of_a_huge_page_are_small_pages_side_by_side() {
        let grain = Grain::new(256);
        let tracker = Tracker::NOBODY.with(CoreId::new(200), grain);
        let huge = Page::new(Mapping::anonymous(Prot::ALL).with(Flags::HUGE))
            .with_huge(FrameNum::new(512))
            .with_tracker(tracker);
        let part = huge.part(511);
        assert!(huge.is_huge() && !part.is_huge());
        assert_eq!((part.frame(), part.tracker()), (Some(FrameNum::new(1023)), tracker));
        assert_eq!(part.mapping(), huge.mapping());
        assert_eq!(part.part(3), part);
        assert_eq!(huge.without_frame(), Page::new(huge.mapping()));
    }

    #[test]
    fn a_linked_page_is_an_entry_and_still_says_everything() {
        let (frame, entry) = (FrameNum::new(FRAME >> FRAME_SHIFT), MACHINE);
        let page = Page::new(Mapping::anonymous(Prot::READ | Prot::EXEC)).with_counted(frame).linked(entry);
        let (main, _) = page.to_words();
        let software = TAGS | 0x7ff << 52 | 0b111 << 9;
        assert_eq!(main & !software, entry | frame.get() << 12);
        assert!(page.is_linked() && page.is_counted() && !page.is_shown());
        assert_eq!(page.with_private_sharers(PrivateSharers::ALL).private_sharers(), PrivateSharers::ALL);
        assert_eq!(page.private_sharers(), PrivateSharers::NONE);
        assert_eq!((page.prot(), page.frame()), (Prot::READ | Prot::EXEC, Some(frame)));
        assert_eq!(
            page.with_private_sharers(PrivateSharers::ALL).untracked(),
            Page::new(page.mapping()).with_counted(frame)
        );
    }

    #[test]
    fn frame_zero_is_a_frame() {
        let page = Page::new(Mapping::anonymous(Prot::READ)).with_frame(FrameNum::new(0));
        assert_eq!(page.frame(), Some(FrameNum::new(0)));
        assert!(page.tracker().is_empty());
    }

    #[test]
    fn only_what_others_cannot_see_is_written_in_place() {
        let frame = FrameNum::new(7);
        let rw = Prot::READ | Prot::WRITE;
        let private = Page::new(Mapping::private(rw, LAST));
        assert_eq!(private.with_frame(frame).rights(), rw);
        assert_eq!(private.with_shown(frame).rights(), Prot::READ);
        assert_eq!(private.with_counted(frame).owned().rights(), rw);
        assert_eq!(private.with_counted(frame).with_prot(Prot::WRITE).rights(), Prot::READ);
        assert_eq!(private.with_counted(frame).with_prot(Prot::NONE).rights(), Prot::NONE);
        assert_eq!(private.with_counted(frame).with_prot(Prot::EXEC).rights(), Prot::EXEC);
        assert_eq!(Page::new(Mapping::shared(rw, LAST)).with_shown(frame).rights(), rw);
    }
}

//! The simplest model of an address space: a map from pages to rights and contents.

mod moves;

use std::collections::BTreeMap;

use vm::{Access, FaultError, Flags, PageNum, PageRange, Placement, Prot, VmError};

use crate::{Disk, Shows, WORDS};

#[derive(Clone, Copy, Debug, PartialEq)]
struct Page {
    prot: Prot,
    advice: Flags,
    /// The contents that it shows while it has no words of its own. A page of zeroes gets its own when it is
    /// written, as any page does.
    shows: Shows,
    words: Option<[u64; WORDS]>,
    /// Tells mappings of files apart, or 0 for zeroes.
    id: u64,
}

impl Page {
    /// Returns such a page of the mapping, `by` pages further on.
    fn further(self, by: u64) -> Self {
        Self { shows: self.shows.further(by), words: None, ..self }
    }

    /// Returns whether `next` may be the next page of the same mapping.
    fn is_followed_by(self, next: Self) -> bool {
        self.further(1) == next.further(0)
    }
}

/// The oracle. Its methods do what the space's methods do, and say what the space must answer.
#[derive(Clone, Debug)]
pub struct Model {
    user: PageRange,
    disk: Disk,
    pages: BTreeMap<u64, Page>,
}

impl Model {
    /// Returns a model without mappings, in which `user` may be mapped, and with the files of `disk`.
    pub fn new(user: PageRange, disk: &Disk) -> Self {
        Self { user, disk: disk.clone(), pages: BTreeMap::new() }
    }

    /// Mapped pages.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Returns whether nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Judges the space's answer to `map`, and does the same.
    ///
    /// # Panics
    /// If the answer is wrong.
    pub fn map(
        &mut self,
        place: Placement,
        pages: u64,
        prot: Prot,
        shows: Shows,
        answer: Result<PageNum, VmError>,
    ) {
        match self.expect_map(place, pages) {
            Some(expected) => assert_eq!(answer, expected, "map {place:?} of {pages} pages"),
            None => self.judge_choice(place, pages, answer),
        }
        if let Ok(start) = answer {
            let range = PageRange::new(start, pages).expect("a range");
            let (id, sealed) = (self.disk.id(shows), matches!(shows, Shows::Sealed(..)));
            let prot = if sealed { prot - Prot::WRITE } else { prot };
            self.put(range, Page { prot, advice: Flags::NONE, shows, words: None, id });
        }
    }

    /// Returns what `map` must answer, unless the space may choose.
    fn expect_map(&self, place: Placement, pages: u64) -> Option<Result<PageNum, VmError>> {
        if pages == 0 {
            return Some(Err(VmError::Empty));
        }
        let exact = |start| self.check(start, pages).map(|range| (start, self.is_free(range)));
        match place {
            Placement::Fixed(start) => Some(exact(start).map(|_| start)),
            Placement::FixedNoReplace(start) => Some(
                exact(start).and_then(|(start, free)| if free { Ok(start) } else { Err(VmError::Exists) }),
            ),
            Placement::Anywhere { hint: Some(hint) } => {
                exact(hint).ok().filter(|found| found.1).map(|_| Ok(hint))
            }
            Placement::Anywhere { hint: None } | Placement::Below(_) => None,
        }
    }

    fn judge_choice(&self, place: Placement, pages: u64, answer: Result<PageNum, VmError>) {
        let end =
            if let Placement::Below(limit) = place { limit.min(self.user.end()) } else { self.user.end() };
        match answer {
            Ok(start) => {
                let range = self.check(start, pages).expect("a choice within user space");
                assert!(self.is_free(range), "{place:?}: {range:?} was chosen and is taken");
                assert!(range.end() <= end, "{place:?}: {range:?} was chosen");
            }
            Err(error) => {
                assert_eq!(error, VmError::NoSpace);
                assert!(!self.has_hole(end, pages), "{place:?}: there is a hole of {pages} pages");
            }
        }
    }

    fn has_hole(&self, end: PageNum, pages: u64) -> bool {
        let taken = self.pages.keys().copied().filter(|&page| page < end.get());
        let mut hole_start = self.user.start().get();
        let mut holes = taken.chain([end.get()]).map(|page| {
            let hole = page.saturating_sub(hole_start);
            hole_start = page + 1;
            hole
        });
        holes.any(|hole| hole >= pages)
    }

    /// Does `unmap`.
    pub fn unmap(&mut self, pages: PageRange) -> Result<(), VmError> {
        let pages = self.check(pages.start(), pages.pages())?;
        self.drain(pages);
        Ok(())
    }

    /// Does `protect`.
    pub fn protect(&mut self, pages: PageRange, prot: Prot) -> Result<(), VmError> {
        let pages = self.check(pages.start(), pages.pages())?;
        let refuses = |page: PageNum| match self.pages.get(&page.get()) {
            None => Some((page, VmError::NotMapped)),
            Some(Page { shows: Shows::Sealed(..), .. }) if prot.contains(Prot::WRITE) => {
                Some((page, VmError::Denied))
            }
            Some(_) => None,
        };
        let refusal = pages.iter().find_map(refuses);
        let end = refusal.map_or(pages.end(), |(page, _)| page);
        self.within(PageRange::between(pages.start(), end)).for_each(|page| page.prot = prot);
        refusal.map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Does `discard`.
    pub fn discard(&mut self, pages: PageRange) -> Result<(), VmError> {
        let pages = self.check(pages.start(), pages.pages())?;
        self.within(pages).for_each(|page| page.words = None);
        if self.is_mapped(pages) { Ok(()) } else { Err(VmError::NotMapped) }
    }

    /// Does `advise`.
    pub fn advise(&mut self, pages: PageRange, set: Flags, clear: Flags) -> Result<(), VmError> {
        let pages = self.check(pages.start(), pages.pages())?;
        if set.contains(Flags::WIPEONFORK) && self.within(pages).any(|page| page.shows != Shows::Zeroes) {
            return Err(VmError::Mixed);
        }
        self.within(pages).for_each(|page| page.advice = (page.advice - clear) | set);
        if self.is_mapped(pages) { Ok(()) } else { Err(VmError::NotMapped) }
    }

    /// Judges the space's answer to `collapse`, which changes nothing visible. A lack of huge frames, or of
    /// pages with frames, is always a reason to fail.
    ///
    /// # Panics
    /// If the answer is wrong.
    pub fn judge_collapse(&self, block: PageRange, answer: Result<(), VmError>) {
        let pages = || self.pages.range(block.start().get()..block.end().get()).map(|(_, page)| page);
        let fit = |page: &Page| page.shows == Shows::Zeroes && !page.advice.contains(Flags::NOHUGE);
        let alike = |page: &Page| pages().all(|other| (other.prot, other.advice) == (page.prot, page.advice));
        match answer {
            Ok(()) => assert!(self.is_mapped(block) && pages().all(|page| fit(page) && alike(page))),
            Err(VmError::NotMapped) => assert!(!self.is_mapped(block)),
            Err(VmError::OutOfRange) => assert!(!self.user.covers(block)),
            Err(error) => assert!(matches!(error, VmError::Mixed | VmError::OutOfMemory), "{error:?}"),
        }
    }

    /// Pages that show `file` from `first` on are as they were before they were written.
    pub fn zap(&mut self, file: usize, first: u64) {
        let gone = |shows| matches!(shows, Shows::Private(of, index) if of == file && index >= first);
        self.pages.values_mut().filter(|page| gone(page.shows)).for_each(|page| page.words = None);
    }

    /// Does a load.
    pub fn load(&self, page: PageNum, word: usize) -> Result<u64, FaultError> {
        let page = self.pages.get(&page.get()).ok_or(FaultError::NotMapped)?;
        if !page.prot.allows(Access::Read) {
            return Err(FaultError::Denied);
        }
        self.contents(page).map(|words| words[word]).ok_or(FaultError::BeyondEnd)
    }

    /// Does a store.
    pub fn store(&mut self, at: PageNum, word: usize, value: u64) -> Result<(), FaultError> {
        let page = *self.pages.get(&at.get()).ok_or(FaultError::NotMapped)?;
        if !page.prot.allows(Access::Write) {
            return Err(FaultError::Denied);
        }
        let mut words = self.contents(&page).ok_or(FaultError::BeyondEnd)?;
        words[word] = value;
        match page.shows {
            Shows::Shared(file, index) => self.disk.write((file, index), word, value),
            _ => _ = self.pages.insert(at.get(), Page { words: Some(words), ..page }),
        }
        Ok(())
    }

    /// Returns the contents of a page, or none beyond the end of what it shows.
    fn contents(&self, page: &Page) -> Option<[u64; WORDS]> {
        page.words.or_else(|| match page.shows.file_page() {
            None => Some([0; WORDS]),
            Some(at) => self.disk.page(at),
        })
    }

    /// Returns the rights and advice of `page`, and what it shows, if it is mapped.
    pub fn describe(&self, page: PageNum) -> Option<(Prot, Flags, Shows)> {
        self.pages.get(&page.get()).map(|page| (page.prot, page.advice, page.shows))
    }

    /// Returns whether all of `pages` is mapped.
    pub fn is_mapped(&self, pages: PageRange) -> bool {
        self.pages.range(pages.start().get()..pages.end().get()).count() as u64 == pages.pages()
    }

    /// Judges one translation that core `core` could use.
    ///
    /// # Panics
    /// If it leads elsewhere than the page does, or allows more.
    pub fn judge_translation(
        &self,
        core: usize,
        at: PageNum,
        prot: Prot,
        counted: bool,
        contents: [u64; WORDS],
    ) {
        let Some(page) = self.pages.get(&at.get()) else {
            panic!("core {core} still translates {at:?}, which is not mapped")
        };
        for access in [Access::Read, Access::Write, Access::Exec] {
            let stale = prot.allows(access) && !page.prot.allows(access);
            assert!(!stale, "core {core} may still {access:?} {at:?}, whose rights are {:?}", page.prot);
        }
        let shared = page.shows.is_shared();
        assert!(shared || !counted || !prot.allows(Access::Write), "core {core} may write {at:?} for others");
        assert_eq!(Some(contents), self.contents(page), "core {core} sees other contents at {at:?}");
    }

    fn check(&self, start: PageNum, pages: u64) -> Result<PageRange, VmError> {
        if pages == 0 {
            return Err(VmError::Empty);
        }
        PageRange::new(start, pages).filter(|range| self.user.covers(*range)).ok_or(VmError::OutOfRange)
    }

    fn is_free(&self, pages: PageRange) -> bool {
        self.pages.range(pages.start().get()..pages.end().get()).next().is_none()
    }

    fn within(&mut self, pages: PageRange) -> impl Iterator<Item = &mut Page> {
        self.pages.range_mut(pages.start().get()..pages.end().get()).map(|(_, page)| page)
    }

    /// Maps `pages`, the first of which is `first`.
    fn put(&mut self, pages: PageRange, first: Page) {
        let start = pages.start().get();
        self.pages.extend(pages.iter().map(|page| (page.get(), first.further(page.get() - start))));
    }

    fn drain(&mut self, pages: PageRange) {
        let (start, end) = (pages.start().get(), pages.end().get());
        let mut upper = self.pages.split_off(&start);
        self.pages.extend(upper.split_off(&end));
    }
}

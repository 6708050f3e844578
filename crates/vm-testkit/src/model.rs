//! What an address space must do, in the plainest words: a map from pages to rights and contents.

use std::collections::BTreeMap;

use vm::{Access, FaultError, PageNum, PageRange, Placement, Prot, VmError};

use crate::WORDS;

#[derive(Clone, Copy, Debug)]
struct Page {
    prot: Prot,
    words: [u64; WORDS],
}

/// The oracle. Its methods do what the space's methods do, and say what the space must answer.
#[derive(Clone, Debug)]
pub struct Model {
    user: PageRange,
    pages: BTreeMap<u64, Page>,
}

impl Model {
    /// Nothing is mapped; `user` may be.
    pub fn new(user: PageRange) -> Self {
        Self { user, pages: BTreeMap::new() }
    }

    /// Mapped pages.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Whether nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Judges the space's answer to `map`, and does the same.
    ///
    /// # Panics
    /// If the answer is wrong.
    pub fn map(&mut self, place: Placement, pages: u64, prot: Prot, answer: Result<PageNum, VmError>) {
        match self.expect_map(place, pages) {
            Some(expected) => assert_eq!(answer, expected, "map {place:?} of {pages} pages"),
            None => self.judge_choice(place, pages, answer),
        }
        if let Ok(start) = answer {
            let range = PageRange::new(start, pages).expect("a range");
            self.put(range, prot);
        }
    }

    /// What `map` must answer, unless the space may choose.
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
        let hole = pages.iter().find(|page| !self.pages.contains_key(&page.get()));
        let before = PageRange::between(pages.start(), hole.unwrap_or(pages.end()));
        self.within(before).for_each(|page| page.prot = prot);
        hole.map_or(Ok(()), |_| Err(VmError::NotMapped))
    }

    /// Does `discard`.
    pub fn discard(&mut self, pages: PageRange) -> Result<(), VmError> {
        let pages = self.check(pages.start(), pages.pages())?;
        self.within(pages).for_each(|page| page.words = [0; WORDS]);
        if self.is_mapped(pages) { Ok(()) } else { Err(VmError::NotMapped) }
    }

    /// Does a load.
    pub fn load(&self, page: PageNum, word: usize) -> Result<u64, FaultError> {
        let page = self.pages.get(&page.get()).ok_or(FaultError::NotMapped)?;
        if page.prot.allows(Access::Read) { Ok(page.words[word]) } else { Err(FaultError::Denied) }
    }

    /// Does a store.
    pub fn store(&mut self, page: PageNum, word: usize, value: u64) -> Result<(), FaultError> {
        let page = self.pages.get_mut(&page.get()).ok_or(FaultError::NotMapped)?;
        if !page.prot.allows(Access::Write) {
            return Err(FaultError::Denied);
        }
        page.words[word] = value;
        Ok(())
    }

    /// Whether all of `pages` is mapped.
    pub fn is_mapped(&self, pages: PageRange) -> bool {
        self.pages.range(pages.start().get()..pages.end().get()).count() as u64 == pages.pages()
    }

    /// Judges one translation that core `core` could use.
    ///
    /// # Panics
    /// If it leads elsewhere than the page does, or allows more.
    pub fn judge_translation(&self, core: usize, at: PageNum, prot: Prot, contents: [u64; WORDS]) {
        let Some(page) = self.pages.get(&at.get()) else {
            panic!("core {core} still translates {at:?}, which is not mapped")
        };
        for access in [Access::Read, Access::Write, Access::Exec] {
            let stale = prot.allows(access) && !page.prot.allows(access);
            assert!(!stale, "core {core} may still {access:?} {at:?}, whose rights are {:?}", page.prot);
        }
        assert_eq!(contents, page.words, "core {core} sees other contents at {at:?}");
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

    fn put(&mut self, pages: PageRange, prot: Prot) {
        let fresh = Page { prot, words: [0; WORDS] };
        self.pages.extend(pages.iter().map(|page| (page.get(), fresh)));
    }

    fn drain(&mut self, pages: PageRange) {
        let (start, end) = (pages.start().get(), pages.end().get());
        let mut upper = self.pages.split_off(&start);
        self.pages.extend(upper.split_off(&end));
    }
}

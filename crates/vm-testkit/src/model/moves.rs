//! Verbs on whole mappings: growing, moving, and copying all of them.

use vm::{Flags, PageNum, PageRange, Placement, Remap, VmError};

use super::{Model, Page};

impl Model {
    /// Does `fork`.
    pub fn fork(&self) -> Self {
        let mut child = self.clone();
        child.pages.retain(|_, page| !page.advice.contains(Flags::DONTFORK));
        for page in child.pages.values_mut() {
            page.advice = page.advice - Flags::LOCKED;
            if page.advice.contains(Flags::WIPEONFORK) {
                page.words = None;
            }
        }
        child
    }

    /// Does `extend`.
    pub fn extend(&mut self, pages: PageRange, more: u64) -> Result<(), VmError> {
        self.check(pages.start(), pages.pages())?;
        let all = self.check(pages.start(), pages.pages().saturating_add(more))?;
        let rest = PageRange::between(pages.end(), all.end());
        if rest.is_empty() {
            return Err(VmError::Empty);
        }
        let first = self.mapping(pages)?;
        if !self.is_free(rest) {
            return Err(VmError::Exists);
        }
        self.put(rest, first.further(pages.pages()));
        Ok(())
    }

    /// Judges the space's answer to `remap`, and does the same.
    ///
    /// # Panics
    /// If the answer is wrong.
    pub fn remap(&mut self, what: &Remap, answer: Result<PageNum, VmError>) {
        let expected = self.expect_remap(what);
        match (expected, answer) {
            (Err(error), _) => assert_eq!(answer, Err(error), "{what:?}"),
            (Ok(()), Err(error)) => self.judge_choice(what.to, what.pages, Err(error)),
            (Ok(()), Ok(start)) => self.carry(what, start),
        }
    }

    /// Returns what `remap` must answer, unless that depends on the place.
    fn expect_remap(&self, what: &Remap) -> Result<(), VmError> {
        self.check(what.from.start(), what.from.pages())?;
        self.mapping(what.from)?;
        if let Some(placed) = self.expect_map(what.to, what.pages) {
            let start = placed?;
            let to = self.check(start, what.pages)?;
            let meet = what.from.start() < to.end() && to.start() < what.from.end();
            if meet {
                return Err(VmError::Exists);
            }
        }
        Ok(())
    }

    fn carry(&mut self, what: &Remap, start: PageNum) {
        let to = PageRange::new(start, what.pages).expect("a range");
        let first = self.pages[&what.from.start().get()];
        let contents: Vec<_> = self.within(what.from).map(|page| page.words.take()).collect();
        if !what.keep {
            self.drain(what.from);
        }
        assert!(matches!(what.to, Placement::Fixed(_)) || self.is_free(to), "{to:?} was chosen and is taken");
        self.put(to, Page { id: self.disk.id(first.shows), ..first.further(0) });
        self.within(to).zip(contents).for_each(|(page, words)| page.words = words);
    }

    /// Returns the first of `pages`, which must be of one mapping.
    fn mapping(&self, pages: PageRange) -> Result<Page, VmError> {
        let found: Vec<_> = pages.iter().map_while(|page| self.pages.get(&page.get())).collect();
        match found.windows(2).all(|pair| pair[0].is_followed_by(*pair[1])) {
            false => Err(VmError::Mixed),
            true if (found.len() as u64) < pages.pages() => Err(VmError::NotMapped),
            true => Ok(*found[0]),
        }
    }
}

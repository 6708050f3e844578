//! A core with a tagged TLB, its tables of some spaces, and memory that is used again at once. The core uses
//! `vm::Presence` and `vm::Asids` as a kernel does.

use std::collections::{BTreeMap, BTreeSet};

use vm::{Asid, Asids, PageNum, PageRange, Presence};

use crate::tlb::Tlb;

/// Pages to which a table of the lower level leads.
pub const LEAF: u64 = 512;

/// A table or a page: what each entry leads to, or whose page it is, and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    Table(BTreeMap<u64, usize>),
    Page { stamp: u64 },
}

/// All frames: the last one freed is the first to be used again.
#[derive(Default)]
pub struct Memory {
    frames: BTreeMap<usize, Frame>,
    free: Vec<usize>,
}

impl Memory {
    fn alloc(&mut self, frame: Frame) -> usize {
        let number = self.free.pop().unwrap_or(self.frames.len());
        assert_eq!(self.frames.insert(number, frame), None, "allocated twice");
        number
    }

    fn free(&mut self, number: usize) {
        self.frames.remove(&number).expect("freed once");
        self.free.push(number);
    }

    fn holds(&self, number: usize, stamp: u64) -> bool {
        self.frames.get(&number) == Some(&Frame::Page { stamp })
    }

    pub fn entry(&self, table: usize, at: u64) -> Option<usize> {
        match &self.frames[&table] {
            Frame::Table(entries) => entries.get(&at).copied(),
            page => panic!("walks a page: {page:?}"),
        }
    }

    fn entries(&mut self, table: usize) -> &mut BTreeMap<u64, usize> {
        match self.frames.get_mut(&table) {
            Some(Frame::Table(entries)) => entries,
            other => panic!("no table: {other:?}"),
        }
    }
}

/// One space, and what the core has of it.
#[derive(Default)]
struct Space {
    presence: Presence,
    asid: Asid,
    root: Option<usize>,
    /// Its pages, and what was written there last.
    pages: BTreeMap<u64, (usize, u64)>,
}

/// The core, with `NUMBERS` ASIDs.
pub struct Core<const NUMBERS: u64> {
    pub tlb: Tlb,
    memory: Memory,
    numbers: Asids<NUMBERS>,
    spaces: Vec<Space>,
    running: Option<usize>,
    stamps: u64,
}

impl<const NUMBERS: u64> Core<NUMBERS> {
    pub fn new(spaces: usize) -> Self {
        Self {
            tlb: Tlb::default(),
            memory: Memory::default(),
            numbers: Asids::default(),
            spaces: (0..spaces).map(|_| Space::default()).collect(),
            running: None,
            stamps: 0,
        }
    }

    pub fn running(&self) -> Option<usize> {
        self.running
    }

    /// Runs another space, or none.
    pub fn run(&mut self, next: Option<usize>) {
        if next == self.running {
            return;
        }
        if let Some(old) = self.running.take() {
            self.tlb.load(None, 0, true);
            self.spaces[old].presence.leave();
        }
        self.running = next;
        let Some(space) = next else { return };
        let missed = self.spaces[space].presence.enter();
        if let Some(missed) = missed {
            self.clear_entries(space, missed);
        }
        self.load(space, missed.is_some());
    }

    fn load(&mut self, space: usize, flush: bool) {
        let Some(root) = self.spaces[space].root else { return self.tlb.load(None, 0, true) };
        let given = self.numbers.give(&self.spaces[space].asid);
        self.tlb.load(Some(root), given.number, given.kept && !flush);
    }

    /// The program that runs reads `page`: it finds what was written there last.
    pub fn touch(&mut self, page: u64) {
        let Some(space) = self.running else { return };
        let frame = self.tlb.translate(&self.memory, page).unwrap_or_else(|| self.fault(space, page));
        let stamp = self.spaces[space].pages.get(&page).map(|(_, stamp)| *stamp);
        assert!(stamp.is_some_and(|stamp| self.memory.holds(frame, stamp)), "a stale translation of {page}");
    }

    /// The core fills the page, and the program tries again.
    fn fault(&mut self, space: usize, page: u64) -> usize {
        let frame = match self.spaces[space].pages.get(&page) {
            Some((frame, _)) => *frame,
            None => self.write(space, page),
        };
        self.fill(space, page, frame);
        self.tlb.translate(&self.memory, page).expect("filled")
    }

    /// The page gets a frame of its own, with something new in it.
    fn write(&mut self, space: usize, page: u64) -> usize {
        self.stamps += 1;
        let stamp = self.stamps;
        let frame = self.memory.alloc(Frame::Page { stamp });
        self.spaces[space].pages.insert(page, (frame, stamp));
        frame
    }

    fn fill(&mut self, space: usize, page: u64, frame: usize) {
        let root = self.root_or_new(space);
        let leaf = match self.memory.entry(root, page / LEAF) {
            Some(leaf) => leaf,
            None => self.memory.alloc(Frame::Table(BTreeMap::new())),
        };
        self.memory.entries(root).insert(page / LEAF, leaf);
        if self.memory.entries(leaf).insert(page, frame).is_some() {
            self.flush(space, page);
        }
    }

    fn root_or_new(&mut self, space: usize) -> usize {
        if let Some(root) = self.spaces[space].root {
            return root;
        }
        let root = self.memory.alloc(Frame::Table(BTreeMap::new()));
        self.spaces[space].root = Some(root);
        if self.running == Some(space) {
            self.load(space, true);
        }
        root
    }

    /// The core's entry of `page` is no longer what it was.
    fn flush(&mut self, space: usize, page: u64) {
        match self.spaces[space].presence.is_here() {
            true => self.tlb.flush_page(page),
            false => self.spaces[space].asid.forget(),
        }
    }

    /// Removes the entries of `pages`, and says which there were.
    fn clear_entries(&mut self, space: usize, pages: PageRange) -> BTreeSet<u64> {
        let Some(root) = self.spaces[space].root else { return BTreeSet::new() };
        let leaves: Vec<usize> = self.memory.entries(root).values().copied().collect();
        let mut removed = BTreeSet::new();
        for leaf in leaves {
            let covered = |page: &u64| pages.covers(PageRange::one(PageNum::new(*page)));
            let entries = self.memory.entries(leaf);
            removed.extend(entries.keys().copied().filter(covered));
            entries.retain(|page, _| !covered(page));
        }
        removed
    }

    /// The core clears `pages`, for itself or because it was interrupted.
    fn clear(&mut self, space: usize, pages: PageRange) {
        let removed = self.clear_entries(space, pages);
        match self.spaces[space].presence.is_here() {
            true => removed.into_iter().for_each(|page| self.tlb.flush_page(page)),
            false => self.spaces[space].asid.forget(),
        }
    }

    /// The core itself invalidates `page`.
    pub fn invalidate(&mut self, space: usize, page: u64) {
        self.clear(space, PageRange::one(PageNum::new(page)));
        self.free_page(space, page);
    }

    /// Another core invalidates `page`, and this one switches to another space before the interrupt arrives.
    pub fn invalidate_remotely(&mut self, space: usize, page: u64, meanwhile: Option<usize>) {
        let pages = PageRange::one(PageNum::new(page));
        let interrupt = self.spaces[space].presence.must_interrupt(pages);
        self.run(meanwhile);
        if interrupt {
            self.clear(space, pages);
        }
        self.free_page(space, page);
    }

    fn free_page(&mut self, space: usize, page: u64) {
        if let Some((frame, _)) = self.spaces[space].pages.remove(&page) {
            self.memory.free(frame);
        }
    }

    /// The core gives `page` another frame, over the entry that it may have: a copy before a write.
    pub fn copy(&mut self, space: usize, page: u64) {
        let old = self.spaces[space].pages.get(&page).copied();
        let new = self.write(space, page);
        self.fill(space, page, new);
        if let Some((frame, _)) = old {
            self.memory.free(frame);
        }
    }

    /// The core frees the table that leads to `page`, which it empties before.
    pub fn free_leaf(&mut self, space: usize, page: u64) {
        let Some(root) = self.spaces[space].root else { return };
        let first = PageNum::new(page / LEAF * LEAF);
        self.clear(space, PageRange::new(first, LEAF).expect("there are so many"));
        if let Some(leaf) = self.memory.entries(root).remove(&(page / LEAF)) {
            self.flush(space, page);
            self.memory.free(leaf);
        }
    }

    /// The core frees all its tables of the space.
    pub fn drop_tables(&mut self, space: usize) {
        if self.running == Some(space) {
            self.tlb.load(None, 0, true);
        }
        self.spaces[space].asid.forget();
        self.free_tables(space);
    }

    fn free_tables(&mut self, space: usize) {
        let Some(root) = self.spaces[space].root.take() else { return };
        let leaves: Vec<usize> = self.memory.entries(root).values().copied().collect();
        leaves.into_iter().chain([root]).for_each(|table| self.memory.free(table));
    }

    /// The space ends while the core does not run it. Another begins in its memory.
    pub fn replace(&mut self, space: usize) {
        if self.running == Some(space) {
            self.run(None);
        }
        self.free_tables(space);
        let dead = std::mem::take(&mut self.spaces[space]);
        dead.pages.into_values().for_each(|(frame, _)| self.memory.free(frame));
    }
}

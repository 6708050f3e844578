//! Simulated files: pages that mappings show, held by one reference of the file and one of each page that
//! shows them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

use percore::Pinned;
use vm::{Access, BackingError, BackingNum, FrameNum, Frames, PageNum};

use crate::{FrameStore, WORDS};

/// Returns the value of word `word` of page `index` of a file before it is written.
pub fn original(file: usize, index: u64, word: usize) -> u64 {
    1 << 40 | (file as u64) << 32 | index << 8 | word as u64
}

struct File {
    len: u64,
    pages: BTreeMap<u64, FrameNum>,
    /// The pages that mappings may have written.
    written: BTreeSet<u64>,
}

/// A file as it is mapped in one place: the page of the file that comes first, where it is, and the number of
/// references.
#[derive(Clone, Copy)]
struct View {
    file: usize,
    offset: u64,
    start: Option<u64>,
    /// The first page of the file that it must not show.
    end: u64,
    references: i64,
}

impl View {
    /// Returns the page of the file that shows at `page`.
    fn index(&self, page: PageNum) -> u64 {
        let start = self.start.expect("a backing is placed before it shows");
        page.get().wrapping_sub(start).wrapping_add(self.offset)
    }
}

#[derive(Default)]
struct State {
    files: Vec<File>,
    views: Vec<View>,
}

/// All files of a [`Machine`](crate::Machine), and the backings that show them.
#[derive(Default)]
pub struct FileStore(Mutex<State>);

impl FileStore {
    /// Creates a file of `len` pages and returns its number.
    pub fn create(&self, len: u64) -> usize {
        let files = &mut self.lock().files;
        files.push(File { len, pages: BTreeMap::new(), written: BTreeSet::new() });
        files.len() - 1
    }

    /// Returns a backing that shows `pages` pages of `file` from `offset` on, with one reference for the
    /// caller.
    pub fn view(&self, file: usize, offset: u64, pages: u64) -> BackingNum {
        self.add(View { file, offset, start: None, end: offset + pages, references: 1 })
    }

    /// Returns a backing that shows at `to` what `backing` shows at `from`, with one reference for the
    /// caller.
    pub fn moved(&self, backing: BackingNum, from: PageNum, to: PageNum) -> BackingNum {
        let (file, offset) = self.shown(backing, from);
        let end = self.lock().views[backing.get() as usize - 1].end;
        self.add(View { file, offset, start: Some(to.get()), end, references: 1 })
    }

    /// Returns a backing that shows what `backing` shows, where it does, with one reference for the caller.
    pub fn again(&self, backing: BackingNum) -> BackingNum {
        let view = self.lock().views[backing.get() as usize - 1];
        assert!(view.start.is_some() && view.references > 0, "{backing:?} shows nothing");
        self.add(View { references: 1, ..view })
    }

    /// File and page that `backing` shows at `page`.
    pub fn shown(&self, backing: BackingNum, page: PageNum) -> (usize, u64) {
        let state = self.lock();
        let view = &state.views[backing.get() as usize - 1];
        (view.file, view.index(page))
    }

    /// A backing, in use, begins at `start`.
    pub(crate) fn place(&self, backing: BackingNum, start: PageNum) {
        let was = self.lock().views[backing.get() as usize - 1].start.replace(start.get());
        assert_eq!(was, None, "{backing:?} is placed twice");
    }

    /// A backing shows pages up to `end`.
    pub(crate) fn grow(&self, backing: BackingNum, end: PageNum) {
        let view = &mut self.lock().views[backing.get() as usize - 1];
        view.end = view.end.max(view.index(end));
    }

    fn add(&self, view: View) -> BackingNum {
        let views = &mut self.lock().views;
        views.push(view);
        BackingNum::new(views.len() as u64)
    }

    /// Pages, and callers of [`view`](Self::view), that refer to any backing.
    pub fn references(&self) -> i64 {
        self.lock().views.iter().map(|view| view.references).sum()
    }

    /// Adds `references` references to `backing`.
    ///
    /// # Panics
    /// If it had none.
    pub fn adjust(&self, backing: BackingNum, references: i64) {
        let view = &mut self.lock().views[backing.get() as usize - 1];
        assert!(view.references > 0, "{backing:?} is used after its last reference was given up");
        view.references += references;
        assert!(view.references >= 0, "{backing:?} has lost more references than it had");
    }

    /// The file ends after `len` pages: none beyond is shown from now on, but what is shown stays until the
    /// mappings are told.
    pub fn set_len(&self, file: usize, len: u64) {
        self.lock().files[file].len = len;
    }

    /// Drops the file's pages beyond its end, which no space shows any more.
    pub fn drop_beyond(&self, pin: &Pinned, frames: &FrameStore, file: usize) {
        let file = &mut self.lock().files[file];
        for frame in file.pages.split_off(&file.len).into_values() {
            frames.adjust(pin, frame, -1);
        }
    }

    /// Returns the pages of the file that were asked for to be written.
    pub fn written(&self, file: usize) -> Vec<u64> {
        self.lock().files[file].written.iter().copied().collect()
    }

    /// Every file ends at its beginning.
    pub fn clear(&self, pin: &Pinned, frames: &FrameStore) {
        let files = self.lock().files.len();
        for file in 0..files {
            self.set_len(file, 0);
            self.drop_beyond(pin, frames, file);
        }
    }

    pub(crate) fn frame(
        &self,
        pin: &Pinned,
        frames: &FrameStore,
        backing: BackingNum,
        page: PageNum,
        access: Access,
    ) -> Result<FrameNum, BackingError> {
        let (file, index) = self.shown(backing, page);
        let mut state = self.lock();
        assert!(
            index < state.views[backing.get() as usize - 1].end,
            "{backing:?} was not told that it has grown"
        );
        let File { len, pages, written } = &mut state.files[file];
        if index >= *len {
            return Err(BackingError::BeyondEnd);
        }
        let shown = match pages.get(&index) {
            Some(&frame) => frame,
            None => {
                let fresh = first_page(pin, frames, file, index).ok_or(BackingError::OutOfMemory)?;
                pages.insert(index, fresh);
                fresh
            }
        };
        if access == Access::Write {
            written.insert(index);
        }
        frames.adjust(pin, shown, 1);
        Ok(shown)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

/// Returns a page of a file, with the file's reference.
fn first_page(pin: &Pinned, frames: &FrameStore, file: usize, index: u64) -> Option<FrameNum> {
    let fresh = frames.alloc_zeroed(pin)?;
    (0..WORDS).for_each(|word| frames.write(fresh, word, original(file, index, word)));
    frames.share(pin, fresh);
    Some(fresh)
}

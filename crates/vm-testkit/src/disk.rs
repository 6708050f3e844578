//! The simplest model of files' contents, for all models of one machine.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::{Shows, WORDS, original};

#[derive(Debug, Default)]
struct Files {
    lens: BTreeMap<usize, u64>,
    mappings: u64,
    written: BTreeMap<(usize, u64), [u64; WORDS]>,
}

/// Files by number. Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct Disk(Rc<RefCell<Files>>);

impl Disk {
    /// Sets the length of `file` to `len` pages. Those beyond are lost.
    pub fn set_len(&self, file: usize, len: u64) {
        let files = &mut *self.0.borrow_mut();
        files.lens.insert(file, len);
        files.written.retain(|&(of, index), _| of != file || index < len);
    }

    /// Returns a number for a new mapping. All mappings of zeroes have the same one.
    pub(crate) fn id(&self, shows: Shows) -> u64 {
        if shows == Shows::Zeroes {
            return 0;
        }
        self.0.borrow_mut().mappings += 1;
        self.0.borrow().mappings
    }

    /// Returns a page of a file, or none beyond its end.
    pub(crate) fn page(&self, (file, index): (usize, u64)) -> Option<[u64; WORDS]> {
        let files = self.0.borrow();
        let fresh = || std::array::from_fn(|word| original(file, index, word));
        (index < files.lens[&file]).then(|| files.written.get(&(file, index)).copied().unwrap_or_else(fresh))
    }

    /// Writes a word of a page that is there.
    pub(crate) fn write(&self, at: (usize, u64), word: usize, value: u64) {
        let mut page = self.page(at).expect("the page is there");
        page[word] = value;
        self.0.borrow_mut().written.insert(at, page);
    }
}

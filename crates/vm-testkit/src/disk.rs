//! What files must hold, in the plainest words: for all models of one machine.

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
    /// `file` has `len` pages from now on; those beyond are lost.
    pub fn set_len(&self, file: usize, len: u64) {
        let files = &mut *self.0.borrow_mut();
        files.lens.insert(file, len);
        files.written.retain(|&(of, index), _| of != file || index < len);
    }

    /// A number for a new mapping; all of zeroes are as one.
    pub(crate) fn id(&self, shows: Shows) -> u64 {
        if shows == Shows::Zeroes {
            return 0;
        }
        self.0.borrow_mut().mappings += 1;
        self.0.borrow().mappings
    }

    /// A page of a file; none beyond its end.
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

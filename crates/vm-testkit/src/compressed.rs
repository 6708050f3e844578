//! Simulated compressed memory: contents by number, and how many hold them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use vm::CompressedNum;

use crate::WORDS;

struct Kept {
    contents: [u64; WORDS],
    holders: i64,
}

#[derive(Default)]
struct State {
    kept: BTreeMap<u32, Kept>,
    /// The next number. None is used twice, so that a late use is detected.
    next: u32,
}

#[derive(Default)]
pub(crate) struct CompressedStore(Mutex<State>);

impl CompressedStore {
    /// Keeps `contents`, with one holder. Refuses one page in four.
    pub(crate) fn keep(&self, contents: [u64; WORDS]) -> Option<CompressedNum> {
        if contents.iter().fold(0, |all, word| all ^ word) % 4 == 3 {
            return None;
        }
        let state = &mut *self.lock();
        state.next += 1;
        state.kept.insert(state.next, Kept { contents, holders: 1 });
        Some(CompressedNum::new(state.next))
    }

    pub(crate) fn get(&self, number: CompressedNum) -> [u64; WORDS] {
        self.lock().kept.get(&number.get()).expect("what is compressed is held").contents
    }

    pub(crate) fn adjust(&self, number: CompressedNum, by: i64) {
        let kept = &mut self.lock().kept;
        let one = kept.get_mut(&number.get()).expect("what is compressed is held");
        one.holders += by;
        assert!(one.holders >= 0, "{number:?} has lost more holders than it had");
        if one.holders == 0 {
            kept.remove(&number.get());
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().kept.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

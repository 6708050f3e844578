//! A look along many keys that takes no lock and shows each slot's word as it was when the walk came by.
//!
//! 1. A main word is read at once. A second word belongs to the main word beside it as long as that has not
//!    changed. So the main word is read again after the second, and both are read anew if the main word has
//!    changed. The pair that is shown was in the map at one moment, with one exception: if the same main word
//!    came back meanwhile, the second word may be one that the slot had in between. Both were there after the
//!    look began.
//! 2. A locked slot has the last word that its holder wrote. If that has a second word, the walk waits for
//!    the holder.
//! 3. If a node is folded under the walk, the walk leaves it and reads its parent's slot again, from the key
//!    that was next.

use core::ops::{ControlFlow, Range};

use sync::atomic::{AtomicU64, Ordering};

use crate::here::Here;
use crate::levels::{GROUP, slot_index, slot_keys};
use crate::node::{NodeRef, Step};
use crate::section::{SECTION, count_while, first_of};
use crate::slot::{Slot, Word};

/// The answer of [`RadixMap::peek`](crate::RadixMap::peek).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peek {
    /// The keys of the slot that covers the key.
    pub span: Range<u64>,
    /// Whether they have a value.
    pub used: bool,
}

/// Returns the address of the frame of the leaf that covers `key`, and the slot's word in it, as a machine
/// would read it at this moment.
pub(crate) fn leaf_word<'p>(here: Here<'p>, root: NodeRef<'p>, key: u64) -> Option<(usize, u64)> {
    let mut node = root;
    while node.level() > 0 {
        match node.step(&here, node.slot(key)) {
            Step::Child(child) => node = child,
            Step::Slot(_) => return None,
        }
    }
    Some((node.address(), node.slot(key).walk()))
}

/// Returns the slot that covers `key`, as it is at this moment.
pub(crate) fn peek<'p>(here: Here<'p>, root: NodeRef<'p>, key: u64) -> Peek {
    let mut node = root;
    loop {
        match node.step(&here, node.slot(key)) {
            Step::Child(child) => node = child,
            Step::Slot(word) => {
                return Peek { span: node.span(key), used: word.is_used() };
            }
        }
    }
}

/// Returns the keys of the first slot with a value that `keys` touches, each slot as it is when the walk
/// comes by.
pub(crate) fn first_used<'p>(here: Here<'p>, root: NodeRef<'p>, keys: Range<u64>) -> Option<Range<u64>> {
    first_used_below(&here, root.descend(&here, &keys), keys)
}

#[inline]
fn first_used_below<'p>(here: &Here<'p>, node: NodeRef<'p>, keys: Range<u64>) -> Option<Range<u64>> {
    let mut left = keys;
    while let Some(part) = node.first_used_part(left.clone()) {
        left.start = part.keys.end;
        let used = match node.step(here, part.slot) {
            Step::Child(child) => first_used_below(here, child, part.keys),
            Step::Slot(word) => word.is_used().then(|| node.span(part.keys.start)),
        };
        if used.is_some() {
            return used;
        }
    }
    None
}

/// The reason why a walk below a node ended early.
pub(crate) enum Stop<B> {
    /// The node was folded when this key was next.
    Gone(u64),
    /// The visitor broke off.
    Broke(B),
}

/// Shows each used slot below `node` that `keys` touches to `visit`, from the left: its keys in the range,
/// its main word and its second word. Neighbours in a leaf whose second words are the same, and whose main
/// words agree in the bits of `mask`, are shown as one with the first slot's words.
pub(crate) fn look<'p, B>(
    here: &Here<'p>,
    node: NodeRef<'p>,
    keys: Range<u64>,
    mask: u64,
    visit: &mut impl FnMut(Range<u64>, u64, u64) -> ControlFlow<B>,
) -> ControlFlow<Stop<B>> {
    let slots = node.indices(&keys);
    let mut left = keys.clone();
    while !left.is_empty()
        && let Some(at) = node.first_used(slot_index(left.start, node.level())..slots.end)
    {
        let all = node.slot_span(at, keys.start);
        left.start = left.start.max(all.start);
        let end = all.end.min(keys.end);
        left.start = match node.step(here, &node.slots().0[at]) {
            Step::Child(child) => match look_into(here, child, left.start..end, mask, visit) {
                ControlFlow::Break(Stop::Gone(key)) => key,
                ControlFlow::Break(broke) => return ControlFlow::Break(broke),
                ControlFlow::Continue(()) => end,
            },
            Step::Slot(word) if word.is_gone() => return ControlFlow::Break(Stop::Gone(left.start)),
            Step::Slot(word) if !word.is_used() => end,
            Step::Slot(word) => match Seconds::of(node).settled(at, word) {
                Some(second) => {
                    let more = (word.next(at) - at - 1) as u64;
                    let end = (all.end + more * slot_keys(node.level())).min(keys.end);
                    visit(left.start..end, word.main(), second).map_break(Stop::Broke)?;
                    end
                }
                None => left.start,
            },
        };
    }
    ControlFlow::Continue(())
}

fn look_into<'p, B>(
    here: &Here<'p>,
    node: NodeRef<'p>,
    keys: Range<u64>,
    mask: u64,
    visit: &mut impl FnMut(Range<u64>, u64, u64) -> ControlFlow<B>,
) -> ControlFlow<Stop<B>> {
    if node.level() > 0 { look(here, node, keys, mask, visit) } else { look_at_leaf(node, keys, mask, visit) }
}

/// Looks as `look` does in a leaf, whose slots have no children.
fn look_at_leaf<B>(
    leaf: NodeRef<'_>,
    keys: Range<u64>,
    mask: u64,
    visit: &mut impl FnMut(Range<u64>, u64, u64) -> ControlFlow<B>,
) -> ControlFlow<Stop<B>> {
    let left = leaf.indices(&keys);
    let base = keys.start - left.start as u64;
    let key = |index: usize| base + index as u64;
    let seconds = Seconds::of(leaf);
    let mut at = left.start;
    while let Some(start) = leaf.first_used(at..left.end) {
        let word = leaf.slots().seen(start);
        if word.is_gone() {
            return ControlFlow::Break(Stop::Gone(key(start)));
        }
        at = if word.is_used() { start } else { start + 1 };
        if word.is_used()
            && let Some(second) = seconds.settled(start, word)
        {
            let like = Like { seconds: &seconds, word, bits: word.telling(mask), second };
            at = like.end(word.next(start)..left.end).min(left.end);
            visit(key(start)..key(at), word.main(), second).map_break(Stop::Broke)?;
        }
    }
    ControlFlow::Continue(())
}

/// The words of the first slot of a run in a leaf.
struct Like<'a, 'p> {
    seconds: &'a Seconds<'p>,
    /// The main word with its tags. If it is wide, it is not locked.
    word: Word,
    /// The bits in which other words must agree with it.
    bits: u64,
    second: u64,
}

impl Like<'_, '_> {
    /// Returns the first of `slots` that is not like it, or their end. Slots with words of their own are
    /// compared in groups.
    #[inline(always)]
    fn end(&self, slots: Range<usize>) -> usize {
        let all = self.seconds.node.slots();
        let Range { start: mut at, end } = slots;
        while at < end {
            let word = all.seen(at);
            if !self.are_like(at, &[word], |_| self.seconds.speaker(at, word)) {
                return at;
            }
            at = word.next(at);
            if at < end {
                let left = &all.0[at..end];
                at = if word.is_folded() {
                    self.end_of_sections(at, word, left)
                } else {
                    self.end_of_groups(at, left)
                };
            }
        }
        end
    }

    /// Returns the end of the sections of `slots` that are folded and have `word`, which is like it. Slot
    /// `at`, the first of `slots`, is the first of a section. A section that sticks out is not read.
    #[inline(always)]
    fn end_of_sections(&self, at: usize, word: Word, slots: &[Slot]) -> usize {
        let sections = slots.as_chunks::<SECTION>().0;
        let end = at + SECTION * count_while(sections, |section| section[0].held() == word);
        // One look at the second word is enough for all words that were read before.
        if end == at || !word.is_wide() || self.seconds.node.still_has_one(self.second) { end } else { at }
    }

    /// Returns the end of those of `slots` that are like it and have words of their own. The first of `slots`
    /// is slot `at`. The last few, which do not fill a group, are not read.
    #[inline(always)]
    fn end_of_groups(&self, mut at: usize, slots: &[Slot]) -> usize {
        for group in slots.as_chunks::<GROUP>().0 {
            let words = group.each_ref().map(Slot::held);
            if self.are_like(at, &words, |index| &group[index]) {
                at += GROUP;
                continue;
            }
            for (slot, word) in group.iter().zip(words) {
                if !self.are_like(at, &[word], |_| slot) {
                    return at;
                }
                at += 1;
            }
        }
        at
    }

    /// Returns whether `words`, those of slot `at` and the following ones, are like it. `speaker` returns the
    /// slot that had each word. A wide word that a core holds is not like it.
    #[inline(always)]
    fn are_like<'s, const N: usize>(
        &self,
        at: usize,
        words: &[Word; N],
        speaker: impl Fn(usize) -> &'s Slot,
    ) -> bool {
        let differing = |bits, word: &Word| bits | word.differing(self.word, self.bits);
        words.iter().fold(0, differing) == 0 && (!self.word.is_wide() || self.have_second(at, words, speaker))
    }

    /// Returns whether the slots from slot `at` on have its second word. They had `words`, and were not
    /// locked.
    #[inline(always)]
    fn have_second<'s, const N: usize>(
        &self,
        at: usize,
        words: &[Word; N],
        speaker: impl Fn(usize) -> &'s Slot,
    ) -> bool {
        if self.seconds.node.still_has_one(self.second) {
            return true;
        }
        let seconds = match self.seconds.each.get(at..).and_then(|each| each.first_chunk::<N>()) {
            // Relaxed, as in `Seconds::get`.
            Some(each) => {
                each.iter().fold(0, |bits, second| bits | second.load(Ordering::Relaxed) ^ self.second)
            }
            None => (at..)
                .zip(words)
                .fold(0, |bits, (index, &word)| bits | self.seconds.get(index, word) ^ self.second),
        };
        let changed = |bits, index| bits | speaker(index).changed_since(words[index]);
        seconds == 0 && (0..N).fold(0, changed) == 0
    }
}

/// The second words of a node.
struct Seconds<'p> {
    node: NodeRef<'p>,
    /// All second words, if each slot has one of its own, which stays so.
    each: &'p [AtomicU64],
}

impl<'p> Seconds<'p> {
    fn of(node: NodeRef<'p>) -> Self {
        Self { node, each: node.seconds() }
    }

    /// Returns the second word that belongs to `word`, which was the word of slot `index` or of its section.
    /// Returns `None` if the slot must be read again.
    #[inline(always)]
    fn settled(&self, index: usize, word: Word) -> Option<u64> {
        if !word.is_wide() {
            return Some(0);
        }
        if word.is_locked() {
            percore::relax();
            return None;
        }
        let second = self.get(index, word);
        self.still_says(index, word).then_some(second)
    }

    /// Returns whether slot `index`, or its section, still has `word`.
    #[inline(always)]
    fn still_says(&self, index: usize, word: Word) -> bool {
        self.speaker(index, word).still_says(word)
    }

    /// Returns the slot in which `word` was found, which is slot `index` or the first of its section.
    #[inline(always)]
    fn speaker(&self, index: usize, word: Word) -> &'p Slot {
        &self.node.slots().0[if word.is_folded() { first_of(index) } else { index }]
    }

    /// Returns the second word of a slot. Relaxed: `still_says` tells whether it was changed.
    #[inline(always)]
    fn get(&self, index: usize, word: Word) -> u64 {
        match self.each.get(index) {
            Some(second) => second.load(Ordering::Relaxed),
            None => self.one(index, word),
        }
    }

    /// Reads one second word. This is out of line to keep the walk over the slots short.
    #[inline(never)]
    fn one(&self, index: usize, word: Word) -> u64 {
        self.node.second(index, word)
    }
}

//! A value whose code panics when the test wants it.

use std::cell::Cell;

use radixmap::Value;

/// A function of its user that a map calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    ToWords,
    FromWords,
    Joins,
    Part,
    Closure,
}

pub const CALLS: [Call; 5] = [Call::ToWords, Call::FromWords, Call::Joins, Call::Part, Call::Closure];

thread_local! {
    /// The kind of this thread's next panic, and the number of calls before it.
    static ARMED: Cell<Option<(Call, usize)>> = const { Cell::new(None) };
}

/// Makes a call of this kind panic, after this many more calls.
pub fn trap(call: Call, after: usize) {
    ARMED.set(Some((call, after)));
}

/// Disarms the trap. Returns whether a panic was still to come.
pub fn disarm() -> bool {
    ARMED.replace(None).is_some()
}

/// Records a call of the map's user.
pub fn step(call: Call) {
    if let Some((_, left)) = ARMED.get().filter(|(armed, _)| *armed == call) {
        ARMED.set((left > 0).then(|| (call, left - 1)));
        assert!(left > 0, "sprung");
    }
}

/// A number. If a block is `parted` the number is its first key's, and the others count on from there. An odd
/// one has a second word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trap {
    pub number: u64,
    pub parted: bool,
}

impl Trap {
    pub const fn new(number: u64) -> Self {
        Self { number, parted: false }
    }

    fn second(self) -> u64 {
        (self.number / SAME) << 1
    }
}

/// Bits of the number that the second word repeats. Parts of a block have the same ones.
const SAME: u64 = 1 << 20;

impl Value for Trap {
    fn to_words(self) -> (u64, u64) {
        step(Call::ToWords);
        (self.number << 12 | u64::from(self.parted), self.second())
    }
    fn from_words(main: u64, second: u64) -> Self {
        step(Call::FromWords);
        let value = Self { number: main >> 12, parted: main & 1 != 0 };
        assert_eq!(second, value.second(), "a value was torn");
        value
    }
    fn joins(_: u64) -> bool {
        step(Call::Joins);
        true
    }
    fn part(self, key: u64) -> Self {
        step(Call::Part);
        if self.parted { Self::new(self.number + key) } else { self }
    }
}

/// A number with a second word.
pub const WIDE: u64 = 3 * SAME;

//! Random accesses, compared with a textbook model that keeps every cache separately.

use proptest::prelude::*;

use super::*;
use crate::counts::Kind;

/// CPUs of both words of sharers, among them the first and last of each.
const CPUS: [usize; 6] = [0, 1, 62, 63, 64, 127];
const LINES: usize = 2;

/// A CPU's copy of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Copy {
    #[default]
    Invalid,
    Shared,
    Exclusive,
    Modified,
}

/// The cost of an access. The copies removed are those of other CPUs.
#[derive(Debug, PartialEq, Eq)]
enum Cost {
    Nothing,
    Cold,
    Moved(Kind, u64),
}

/// The state of one line in all caches.
#[derive(Clone, Copy, Debug, Default)]
struct Caches([Copy; CPUS.len()]);

impl Caches {
    fn access(&mut self, me: usize, store: bool) -> Cost {
        let own = self.0[me];
        let others = self.holders().filter(|other| *other != me).count() as u64;
        let modified = self.0.contains(&Copy::Modified);
        if store {
            self.0 = Default::default();
            self.0[me] = Copy::Modified;
            store_cost(own, others, modified)
        } else if own == Copy::Invalid {
            self.join(me, others);
            load_cost(others, modified)
        } else {
            Cost::Nothing
        }
    }

    fn holders(&self) -> impl Iterator<Item = usize> {
        (0..CPUS.len()).filter(|cpu| self.0[*cpu] != Copy::Invalid)
    }

    fn join(&mut self, me: usize, others: u64) {
        self.0[me] = Copy::Exclusive;
        if others > 0 {
            self.0.iter_mut().filter(|copy| **copy != Copy::Invalid).for_each(|copy| *copy = Copy::Shared);
        }
    }
}

fn load_cost(others: u64, modified: bool) -> Cost {
    match (others, modified) {
        (0, _) => Cost::Cold,
        (_, true) => Cost::Moved(Kind::ReadModified, 0),
        (_, false) => Cost::Moved(Kind::ReadClean, 0),
    }
}

fn store_cost(own: Copy, others: u64, modified: bool) -> Cost {
    match (own, others, modified) {
        (Copy::Exclusive | Copy::Modified, ..) => Cost::Nothing,
        (Copy::Shared, ..) => Cost::Moved(Kind::Upgrades, others),
        (Copy::Invalid, 0, _) => Cost::Cold,
        (Copy::Invalid, _, true) => Cost::Moved(Kind::WriteModified, others),
        (Copy::Invalid, _, false) => Cost::Moved(Kind::WriteClean, others),
    }
}

fn cost(seen: Seen) -> Cost {
    match seen {
        Seen::Hit => Cost::Nothing,
        Seen::Cold => Cost::Cold,
        Seen::Moved(transfer) => Cost::Moved(transfer.kind, transfer.invalidations),
    }
}

/// Line, CPU, and whether the access stores.
type Step = (usize, usize, bool);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec((0..LINES, 0..CPUS.len(), any::<bool>()), 0..200)
}

proptest! {
    #[test]
    fn costs_what_textbook_caches_cost_and_blames_one_that_had_a_copy(steps in steps()) {
        let directory = Directory::new(LINES as u64 * LINE_SIZE).unwrap();
        let mut caches = [Caches::default(); LINES];
        for (line, me, store) in steps {
            let had: Vec<usize> = caches[line].holders().map(|cpu| CPUS[cpu]).collect();
            let expected = caches[line].access(me, store);
            let seen = directory.access(line as u64, &Access { cpu: CPUS[me], store, bytes: 1, pc: 1 });
            prop_assert_eq!(cost(seen), expected);
            if let Seen::Moved(transfer) = seen {
                let from = transfer.from.cpu();
                prop_assert!(from != CPUS[me] && had.contains(&from), "{:?} of {:?}", transfer, had);
            }
        }
    }
}

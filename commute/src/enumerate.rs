//! Enumerates all pairs of calls over a few states, and keeps one test of each class of those that commute.
//!
//! Two tests are in one class if they have the same operations and results, and their arguments refer to
//! things of the same kinds that relate to each other in the same way: the same descriptor, two descriptors
//! of one open file, two names in one directory, neighbouring pages. A setup is then reduced to the steps
//! without which the test would be in another class.

use std::collections::{BTreeMap, BTreeSet};

use crate::call::*;
use crate::case::{Case, Mode, Step, commute, prepare};
use crate::model::{Answer, State};

/// The most classes of a pair of operations in one mode that are looked at.
const CLASSES_OF_A_PAIR: usize = 12;
/// The most of these that become tests, spread evenly over them.
const TESTS_OF_A_PAIR: usize = 5;
/// The same for a call that has states of its own and one that has not.
const TESTS_OF_A_MIXED_PAIR: usize = 2;

/// The states, each a name in keys, a mode and the steps that make it. The last two are those of calls
/// that have states of their own, which are tested in no other.
const SETUPS: [(&str, Mode, &str); 5] = [
    (
        "all",
        Mode::Threads,
        "0:creat.0.1 1:creat.1.1 0:dup.3 0:open.0.1 0:pipe 1:open.0.0 1:pipe \
         0:pwrite.3.0.10 0:pwrite.3.1.11 1:pwrite.4.0.20 0:write.8.30 0:write.8.31 1:write.11.32 \
         0:link.0.2 0:creat.5.1 0:close.12 \
         0:mmap.0.99.1 0:store.0.40 1:mmap.1.99.1 1:store.1.41 1:mmap.3.99.1 0:mmap.4.99.1 0:store.4.42 \
         1:mmap.5.99.1 1:store.5.43 0:mmap.6.3.1 0:load.6 1:mmap.7.4.1 1:load.7 \
         0:kill.0.0 1:tgkill.1.1",
    ),
    (
        "hole",
        Mode::Threads,
        "0:creat.0.1 1:creat.1.1 0:dup.3 0:open.0.1 1:dup.4 \
         0:pwrite.3.0.10 1:pwrite.4.0.20 0:lseek.3.0.2 0:close.5 \
         0:mmap.0.99.0 0:load.0 1:mmap.1.99.0 1:load.1 0:mmap.4.99.1 1:mmap.5.99.1",
    ),
    (
        "apart",
        Mode::Processes,
        "0:creat.0.1 1:open.0.1 1:creat.1.1 0:open.1.1 0:pipe 1:pipe 0:dup.3 1:dup.3 \
         0:pwrite.3.0.10 0:pwrite.3.1.11 1:pwrite.4.0.20 0:write.6.30 0:write.6.31 1:write.6.32 \
         0:link.0.2 0:creat.5.1 0:close.8 \
         0:mmap.0.99.1 0:store.0.40 1:mmap.0.99.1 1:store.0.41 0:mmap.4.99.1 1:mmap.5.99.1 \
         0:mmap.6.3.1 0:load.6 1:mmap.6.3.1 1:load.6 \
         1:kill.1.0 0:tgkill.0.1",
    ),
    (
        "more",
        Mode::Threads,
        "0:creat.0.1 1:open.0.0 1:creat.1.1 0:pwrite.3.0.10 0:pwrite.3.1.11 1:pwrite.5.0.20 \
         0:socketpair 1:socketpair 0:eventfd 1:eventfd \
         0:send.6.30 0:send.6.31 1:send.8.32 0:eventwrite.10.5 0:lock.3.2 \
         0:mmap.0.99.1 0:store.0.40 1:mmap.1.99.1 1:store.1.41 0:mmap.4.99.1 1:mmap.5.99.1 \
         0:mmap.6.3.1 0:load.6",
    ),
    (
        "locks",
        Mode::Processes,
        "0:creat.0.1 1:open.0.1 0:open.0.0 1:creat.1.1 0:open.1.1 0:pwrite.3.0.10 0:pwrite.3.1.11 \
         1:pwrite.4.0.20 0:socketpair 1:eventfd 0:send.6.30 1:eventwrite.5.5 0:lock.3.1 1:lock.4.2 \
         0:mmap.0.99.1 0:store.0.40 1:mmap.1.99.1 1:store.1.41 1:mmap.6.3.1 1:load.6",
    ),
];

/// The values that the two sides write.
const WRITTEN: [u8; 2] = [101, 102];
/// A descriptor that is never open.
const CLOSED: u8 = 14;

/// A state, with the pages that each side has touched.
#[derive(Clone)]
struct Setup {
    mode: Mode,
    steps: Vec<Step>,
    state: State,
    touched: BTreeSet<(usize, u8)>,
}

impl Setup {
    fn new(mode: Mode, steps: Vec<Step>) -> Option<Self> {
        let state = prepare(mode, &steps)?;
        let touches = steps.iter().filter(|step| matches!(step.call.op, Op::Load | Op::Store));
        let touched = touches.map(|step| (step.side, step.call.args[0])).collect();
        Some(Setup { mode, steps, state, touched })
    }

    /// Returns whether a call takes a translation from the CPU of the other side, which needs an interrupt
    /// whatever the kernel does.
    fn removes_a_translation(&self, calls: [Call; 2]) -> bool {
        let is_touched =
            |side: usize, slot: u8| self.mode == Mode::Threads && self.touched.contains(&(1 - side, slot));
        let removes = |side: usize| {
            let Call { op, args } = calls[side];
            match op {
                Op::Mmap | Op::Munmap | Op::Mprotect => is_touched(side, args[0]),
                Op::Mremap => is_touched(side, args[0]) || is_touched(side, args[1]),
                Op::Ftruncate if args[1] == 0 => self.shows_to_other(side, args[0]),
                _ => false,
            }
        };
        removes(0) || removes(1)
    }

    /// Returns whether the other side has touched a page of the file behind a descriptor.
    fn shows_to_other(&self, side: usize, fd: u8) -> bool {
        let file = self.state.file_behind(self.mode.process(side), fd).map(|(_, file)| file);
        let shown = |slot| self.state.kind_of_slot(self.mode.process(1 - side), slot).1.map(i64::from);
        let mut touched = self.touched.iter().filter(|(other, _)| *other != side);
        file.is_some() && touched.any(|(_, slot)| shown(*slot) == file)
    }
}

/// Returns all tests, in the order of their keys.
pub fn all() -> Vec<Case> {
    let mut classes = BTreeSet::new();
    let mut pairs_of_mode: BTreeMap<(Mode, Op, Op), Vec<Case>> = BTreeMap::new();
    for (name, mode, steps) in SETUPS {
        let is_of_own_states = ["more", "locks"].contains(&name);
        let steps = steps.split_whitespace().map(|word| word.parse().expect("a setup has steps")).collect();
        let setup = Setup::new(mode, steps).expect("the calls of a setup succeed");
        for calls in pairs() {
            let found = pairs_of_mode.entry((mode, calls[0].op, calls[1].op)).or_default();
            if found.len() == CLASSES_OF_A_PAIR {
                continue;
            }
            if is_of_own_states != calls.iter().any(|call| has_own_states(call.op))
                || setup.removes_a_translation(calls)
            {
                continue;
            }
            let Some((answers, _)) = commute(mode, &setup.state, calls) else { continue };
            if classes.insert(class(&setup, calls, &answers)) {
                found.push(case(name, &setup, calls, &answers));
            }
        }
    }
    let spread = |((_, one, other), found)| spread(found, tests_of(one, other));
    let mut cases: Vec<Case> = pairs_of_mode.into_iter().flat_map(spread).collect();
    cases.sort_by(|one, other| (one.mode, &one.key).cmp(&(other.mode, &other.key)));
    cases
}

/// Returns whether a word is the name of an operation.
pub fn is_call(word: &str) -> bool {
    OPS.iter().any(|(_, name, _)| *name == word)
}

/// Returns whether an operation has states of its own.
fn has_own_states(op: Op) -> bool {
    op >= Op::Ftruncate
}

/// Returns the number of tests of a pair of operations.
fn tests_of(one: Op, other: Op) -> usize {
    if has_own_states(one) == has_own_states(other) { TESTS_OF_A_PAIR } else { TESTS_OF_A_MIXED_PAIR }
}

/// Returns `most` tests of a pair of operations, evenly spread.
fn spread(mut found: Vec<Case>, most: usize) -> Vec<Case> {
    let classes = found.len();
    let kept: BTreeSet<usize> = (0..most).map(|number| number * classes / most).collect();
    let mut place = 0;
    found.retain(|_| {
        place += 1;
        kept.contains(&(place - 1))
    });
    found
}

/// Returns all pairs of calls, each pair of operations in one order.
fn pairs() -> impl Iterator<Item = [Call; 2]> {
    let [first, second] = WRITTEN.map(calls);
    first.into_iter().flat_map(move |one| {
        let others: Vec<Call> = second.iter().copied().filter(|other| one.op <= other.op).collect();
        others.into_iter().map(move |other| [one, other])
    })
}

/// Returns every call with every argument of interest, `written` being the value to write.
fn calls(written: u8) -> Vec<Call> {
    let fds = || (FIRST_FD..FIRST_FD + 9).chain([CLOSED]);
    let names = || 0..NAMES.len() as u8;
    let slots = || 0..SLOTS as u8;
    let mut all = Vec::new();
    for name in names() {
        all.extend([READ_ONLY, READ_WRITE, TRUNCATE].map(|how| Op::Open.with(&[name, how])));
        all.extend([0, 1].map(|exclusive| Op::Creat.with(&[name, exclusive])));
        all.extend([Op::Unlink, Op::Stat].map(|op| op.with(&[name])));
        for other in names().filter(|other| *other != name) {
            all.extend([Op::Link, Op::Rename].map(|op| op.with(&[name, other])));
        }
    }
    for fd in fds() {
        all.extend([Op::Close, Op::Dup, Op::Fstat, Op::Read].map(|op| op.with(&[fd])));
        all.extend(
            [(0, CUR), (1, SET), (0, END), (0, BAD_WHENCE)]
                .map(|(page, whence)| Op::Lseek.with(&[fd, page, whence])),
        );
        all.extend([0, 1].map(|page| Op::Pread.with(&[fd, page])));
        all.extend([0, 1].map(|page| Op::Pwrite.with(&[fd, page, written])));
        all.push(Op::Write.with(&[fd, written]));
        all.extend([3, 4, 5, 13].map(|to| Op::Dup2.with(&[fd, to])));
        all.extend([0, 1, 3].map(|pages| Op::Ftruncate.with(&[fd, pages])));
        all.extend([Op::Send, Op::EventWrite].map(|op| op.with(&[fd, written])));
        all.extend([Op::Recv, Op::EventRead].map(|op| op.with(&[fd])));
        all.extend([ASK, SHARED, EXCLUSIVE, UNLOCK].map(|how| Op::Lock.with(&[fd, how])));
    }
    all.extend([Op::Pipe, Op::Socketpair, Op::Eventfd].map(|op| op.with(&[])));
    for slot in slots() {
        all.extend([3, 4, ANONYMOUS].map(|fd| Op::Mmap.with(&[slot, fd, 1])));
        all.extend([0, 1].map(|writable| Op::Mprotect.with(&[slot, writable])));
        all.extend([Op::Munmap, Op::Load].map(|op| op.with(&[slot])));
        all.push(Op::Store.with(&[slot, written]));
        all.extend([Op::FutexWake, Op::FutexWait].map(|op| op.with(&[slot])));
        all.extend([2, 8, 9].into_iter().filter(|to| *to != slot).map(|to| Op::Mremap.with(&[slot, to])));
    }
    for signal in 0..SIGNALS as u8 {
        all.extend([0, 1].map(|side| Op::Kill.with(&[side, signal])));
        all.extend([0, 1].map(|side| Op::Tgkill.with(&[side, signal])));
        all.extend([ASK, DEFAULT, IGNORE].map(|how| Op::Sigaction.with(&[signal, how])));
    }
    all.extend([ASK, BLOCK, UNBLOCK].map(|how| Op::Sigmask.with(&[how])));
    all.push(Op::Sigpending.with(&[]));
    all.sort();
    all
}

/// A thing that an argument refers to.
#[derive(Clone, Copy)]
enum Thing {
    Name(u8),
    Fd(u8),
    Slot(u8),
    /// The signals of the process of a side.
    Process(u8),
    /// The signals of the thread of a side.
    Thread(u8),
}

/// Returns the things that a call of `side` refers to.
fn things(side: usize, call: Call) -> Vec<Thing> {
    let [first, second, _] = call.args;
    match call.op {
        Op::Open | Op::Creat | Op::Unlink | Op::Stat => vec![Thing::Name(first)],
        Op::Link | Op::Rename => vec![Thing::Name(first), Thing::Name(second)],
        Op::Pipe | Op::Socketpair | Op::Eventfd => Vec::new(),
        Op::Mremap => vec![Thing::Slot(first), Thing::Slot(second)],
        Op::Dup2 => vec![Thing::Fd(first), Thing::Fd(second)],
        Op::Mmap if second != ANONYMOUS => vec![Thing::Slot(first), Thing::Fd(second)],
        Op::Mmap | Op::Munmap | Op::Mprotect | Op::Load | Op::Store => vec![Thing::Slot(first)],
        Op::FutexWake | Op::FutexWait => vec![Thing::Slot(first)],
        Op::Kill => vec![Thing::Process(first)],
        Op::Tgkill => vec![Thing::Thread(first)],
        Op::Sigpending => vec![Thing::Process(side as u8), Thing::Thread(side as u8)],
        Op::Sigmask => vec![Thing::Thread(side as u8)],
        Op::Sigaction => vec![Thing::Process(side as u8)],
        Op::Close | Op::Dup | Op::Fstat | Op::Lseek | Op::Read | Op::Write | Op::Pread | Op::Pwrite => {
            vec![Thing::Fd(first)]
        }
        Op::Ftruncate | Op::Send | Op::Recv | Op::EventWrite | Op::EventRead | Op::Lock => {
            vec![Thing::Fd(first)]
        }
    }
}

/// Returns the arguments that refer to no thing.
fn flags(call: Call) -> Vec<u8> {
    let [first, second, third] = call.args;
    match call.op {
        Op::Sigmask => vec![first],
        Op::Kill | Op::Tgkill => vec![second],
        Op::Sigaction => vec![first, second],
        Op::Open | Op::Creat | Op::Mprotect | Op::Pread | Op::Pwrite => vec![second],
        Op::Ftruncate | Op::Lock => vec![second],
        Op::Lseek => vec![second, third],
        _ => Vec::new(),
    }
}

/// Returns the name of a test's class.
fn class(setup: &Setup, calls: [Call; 2], answers: &[Answer; 2]) -> String {
    let mut sides = [0, 1].map(|side| one_side(setup, side, calls[side], &answers[side]));
    let relations: Vec<String> = things(0, calls[0])
        .into_iter()
        .flat_map(|one| things(1, calls[1]).into_iter().map(move |other| (one, other)))
        .map(|(one, other)| relation(setup, one, other).to_owned())
        .collect();
    if calls[0].op == calls[1].op && relations.len() <= 1 {
        sides.sort();
    }
    format!("{}|{}|{}", setup.mode.name(), sides.join("|"), relations.join(","))
}

fn one_side(setup: &Setup, side: usize, call: Call, answer: &Answer) -> String {
    let kinds: Vec<String> = things(side, call).into_iter().map(|thing| kind(setup, side, thing)).collect();
    let result = match answer.values[0] {
        error @ ..0 => error.to_string(),
        0 if matches!(call.op, Op::Read | Op::Pread | Op::Recv) => "end".to_owned(),
        _ => "done".to_owned(),
    };
    format!("{} {:?} {} {result}", call.op.name(), flags(call), kinds.join(" "))
}

fn kind(setup: &Setup, side: usize, thing: Thing) -> String {
    let process = setup.mode.process(side);
    match thing {
        Thing::Name(name) => {
            if setup.state.file_named(name).is_some() { "there" } else { "absent" }.to_owned()
        }
        Thing::Fd(fd) => setup.state.kind_of(process, fd).to_owned(),
        Thing::Process(side) => {
            let is_pending = setup.state.is_pending(setup.mode.process(side.into()));
            if is_pending { "process-pending" } else { "process" }.to_owned()
        }
        Thing::Thread(side) => {
            let is_pending = setup.state.is_pending_for_thread(side.into());
            if is_pending { "thread-pending" } else { "thread" }.to_owned()
        }
        Thing::Slot(slot) => {
            let (kind, file) = setup.state.kind_of_slot(process, slot);
            let touched = setup.touched.contains(&(side, slot));
            format!(
                "{kind}{}{}",
                if file.is_some() { "-file" } else { "" },
                if touched { "" } else { "-new" }
            )
        }
    }
}

/// Returns how a thing of side 0 relates to one of side 1.
fn relation(setup: &Setup, one: Thing, other: Thing) -> &'static str {
    let same_process = setup.mode == Mode::Threads;
    match (one, other) {
        (Thing::Name(one), Thing::Name(other)) if one == other => return "name",
        (Thing::Fd(one), Thing::Fd(other)) if same_process && one == other => return "fd",
        (Thing::Slot(one), Thing::Slot(other)) if same_process && one == other => return "slot",
        (Thing::Thread(one), Thing::Thread(other)) if one == other => return "thread",
        (Thing::Process(one), Thing::Process(other)) if same_process || one == other => return "process",
        (Thing::Process(one), Thing::Thread(other)) | (Thing::Thread(one), Thing::Process(other))
            if same_process || one == other =>
        {
            return "member";
        }
        _ => {}
    }
    if let (Thing::Fd(one), Thing::Fd(other)) = (one, other) {
        let open =
            |side: usize, fd| setup.state.file_behind(setup.mode.process(side), fd).map(|(open, _)| open);
        if open(0, one).is_some() && open(0, one) == open(1, other) {
            return "open";
        }
    }
    let (file, same) = (file(setup, 0, one), file(setup, 1, other));
    if file.is_some() && file == same {
        return "file";
    }
    match (one, other) {
        (Thing::Name(one), Thing::Name(other)) if folder(one) == folder(other) => "directory",
        (Thing::Slot(one), Thing::Slot(other)) if same_process && one.max(other) < NEAR_SLOTS => {
            if one.abs_diff(other) == 1 { "beside" } else { "near" }
        }
        _ => "apart",
    }
}

fn folder(name: u8) -> &'static str {
    NAMES[name as usize].split('/').next().unwrap_or_default()
}

fn file(setup: &Setup, side: usize, thing: Thing) -> Option<i64> {
    let process = setup.mode.process(side);
    match thing {
        Thing::Name(name) => setup.state.file_named(name).map(i64::from),
        Thing::Fd(fd) => setup.state.file_behind(process, fd).map(|(_, file)| file),
        Thing::Slot(slot) => setup.state.kind_of_slot(process, slot).1.map(i64::from),
        Thing::Process(_) | Thing::Thread(_) => None,
    }
}

fn case(name: &str, setup: &Setup, calls: [Call; 2], answers: &[Answer; 2]) -> Case {
    let [first, second] = calls;
    let setup = reduced(setup, calls, answers);
    let (answers, after) = commute(setup.mode, &setup.state, calls).expect("a reduced test commutes");
    Case {
        key: format!("{name}:{first}+{second}"),
        mode: setup.mode,
        calls,
        after: looks(setup.mode, calls, &answers, &after),
        setup: setup.steps,
    }
}

/// Returns a setup of those steps without which the test would be in another class.
fn reduced(setup: &Setup, calls: [Call; 2], answers: &[Answer; 2]) -> Setup {
    let wanted = class(setup, calls, answers);
    let mut least = setup.clone();
    for place in (0..least.steps.len()).rev() {
        let mut fewer = least.steps.clone();
        fewer.remove(place);
        let Some(smaller) = Setup::new(setup.mode, fewer) else { continue };
        let Some((found, _)) = commute(setup.mode, &smaller.state, calls) else { continue };
        if class(&smaller, calls, &found) == wanted {
            least = smaller;
        }
    }
    least
}

/// Returns calls that look at what the two calls have left of the things that they refer to.
fn looks(mode: Mode, calls: [Call; 2], answers: &[Answer; 2], after: &State) -> Vec<Step> {
    let mut looks: Vec<Step> = Vec::new();
    let mut look = |side, call: Call| {
        let of_thread = matches!(call.op, Op::Sigpending | Op::Sigmask);
        let sees_the_same =
            |other| if of_thread { other == side } else { mode.process(other) == mode.process(side) };
        if !looks.iter().any(|step| step.call == call && sees_the_same(step.side)) {
            looks.push(Step { side, call });
        }
    };
    for side in [0, 1] {
        let mut all = things(side, calls[side]);
        if matches!(calls[side].op, Op::Open | Op::Creat | Op::Dup | Op::Pipe | Op::Socketpair | Op::Eventfd)
        {
            let new = answers[side].values.iter().filter(|value| **value >= i64::from(FIRST_FD));
            all.extend(new.map(|fd| Thing::Fd(*fd as u8)));
        }
        match calls[side].op {
            Op::Sigmask => look(side, Op::Sigmask.with(&[ASK])),
            Op::Sigaction => look(side, Op::Sigaction.with(&[calls[side].args[0], ASK])),
            Op::Lock if mode == Mode::Processes => {
                let fd = calls[side].args[0];
                let is_open = after.kind_of(mode.process(side), fd) != "closed";
                if is_open {
                    look(side, Op::Lock.with(&[fd, ASK]));
                }
            }
            _ => {}
        }
        for thing in all {
            match thing {
                Thing::Process(of) | Thing::Thread(of) => look(of.into(), Op::Sigpending.with(&[])),
                Thing::Name(name) => look(side, Op::Stat.with(&[name])),
                Thing::Fd(fd) if after.kind_of(mode.process(side), fd) == "socket" => {
                    look(side, Op::Recv.with(&[fd]));
                }
                Thing::Fd(fd) if after.kind_of(mode.process(side), fd) == "event" => {
                    look(side, Op::EventRead.with(&[fd]));
                }
                Thing::Fd(fd) => {
                    look(side, Op::Fstat.with(&[fd]));
                    look(side, Op::Lseek.with(&[fd, 0, CUR]));
                    look(side, Op::Pread.with(&[fd, 0]));
                }
                Thing::Slot(slot) => {
                    if after.can_load(mode.process(side), slot) {
                        look(side, Op::Load.with(&[slot]));
                    }
                }
            }
        }
    }
    looks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_commutes_and_has_a_key_of_its_own() {
        let cases = all();
        let keys: BTreeSet<_> = cases.iter().map(|case| &case.key).collect();
        assert_eq!(keys.len(), cases.len());
        for case in &cases {
            let expected = case.expected().unwrap();
            assert_eq!(expected.len(), 2 + case.after.len(), "{}", case.key);
            assert_eq!(case.to_string().parse::<Case>().as_ref(), Ok(case));
        }
        println!("{} tests", cases.len());
        assert!((1000..6000).contains(&cases.len()), "{} tests", cases.len());
    }

    #[test]
    fn every_operation_meets_every_other_somewhere() {
        let cases = all();
        let met: BTreeSet<_> = cases.iter().map(|case| case.calls.map(|call| call.op)).collect();
        let missing: Vec<_> = OPS
            .iter()
            .flat_map(|(one, ..)| OPS.iter().map(move |(other, ..)| [*one, *other]))
            .filter(|pair| pair[0] <= pair[1] && !met.contains(pair))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn setups_have_the_needed_steps_only() {
        let cases = all();
        assert!(cases.iter().any(|case| case.setup.is_empty()), "two absent names need nothing");
        // Tests of which no class stays if the first step is missing. The order in which steps are tried
        // matters only for those after it.
        for case in cases.iter().step_by(10).filter(|case| !case.setup.is_empty()) {
            let class_of = |steps: &[Step]| {
                let setup = Setup::new(case.mode, steps.to_vec())?;
                let (answers, _) = commute(case.mode, &setup.state, case.calls)?;
                Some(class(&setup, case.calls, &answers))
            };
            assert!(class_of(&case.setup).is_some(), "{}", case.key);
            assert_ne!(class_of(&case.setup[1..]), class_of(&case.setup), "{}", case.key);
        }
    }
}

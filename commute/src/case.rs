//! A test: a setup, two calls, and calls that look at the state afterwards.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::call::Call;
use crate::model::{Answer, Outcome, State};

/// The labels of what the two calls make. Those of the setup are lower.
const CALL_LABELS: [u8; 2] = [200, 210];

/// The two sides of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Two processes.
    Processes,
    /// Two threads of one process.
    Threads,
}

impl Mode {
    /// Both, in the order in which the guest must run them: a process with two threads cannot become one with
    /// a single thread again.
    pub const ALL: [Mode; 2] = [Mode::Processes, Mode::Threads];

    /// Returns its name in keys.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Threads => "threads",
            Mode::Processes => "processes",
        }
    }

    /// Returns the process to which a side belongs.
    pub fn process(self, side: usize) -> usize {
        match self {
            Mode::Threads => 0,
            Mode::Processes => side,
        }
    }
}

/// A call of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The side, 0 or 1.
    pub side: usize,
    /// Its call.
    pub call: Call,
}

/// A test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Its name, which stays the same as long as the setups and the calls do.
    pub key: String,
    /// Threads or processes.
    pub mode: Mode,
    /// The calls that make the state.
    pub setup: Vec<Step>,
    /// The two calls, one of each side.
    pub calls: [Call; 2],
    /// Calls that look at the state afterwards.
    pub after: Vec<Step>,
}

/// The order of the two calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Side 0 first.
    Forward,
    /// Side 1 first.
    Backward,
}

impl Order {
    /// Both orders.
    pub const BOTH: [Order; 2] = [Order::Forward, Order::Backward];

    /// Returns the sides in this order.
    pub fn sides(self) -> [usize; 2] {
        match self {
            Order::Forward => [0, 1],
            Order::Backward => [1, 0],
        }
    }
}

/// Performs a setup and returns the state, unless one of its calls fails.
pub fn prepare(mode: Mode, setup: &[Step]) -> Option<State> {
    let mut state = State::default();
    for (number, step) in setup.iter().enumerate() {
        match state.apply(mode, step.side, step.call, 2 * number as u8 + 1) {
            Outcome::Returned(answer) if answer.values[0] >= 0 => {}
            _ => return None,
        }
    }
    state.settle();
    Some(state)
}

/// Performs two calls in one order. Returns their answers, side 0 first, and the state, unless one is
/// undefined.
pub fn perform(mode: Mode, before: &State, calls: [Call; 2], order: Order) -> Option<([Answer; 2], State)> {
    let mut state = before.clone();
    let mut answers = [Answer::default(), Answer::default()];
    for side in order.sides() {
        match state.apply(mode, side, calls[side], CALL_LABELS[side]) {
            Outcome::Returned(answer) => answers[side] = answer,
            Outcome::Undefined => return None,
        }
    }
    Some((answers, state))
}

/// Returns the answers and the state if both orders have the same ones: the calls commute.
pub fn commute(mode: Mode, before: &State, calls: [Call; 2]) -> Option<([Answer; 2], State)> {
    let forward = perform(mode, before, calls, Order::Forward)?;
    let backward = perform(mode, before, calls, Order::Backward)?;
    (forward == backward).then_some(forward)
}

impl Case {
    /// Returns the answers by the model of the setup, the two calls and the calls afterwards, in this order.
    ///
    /// # Errors
    /// If the calls do not commute, or a call of the setup fails.
    pub fn expected(&self) -> Result<Vec<Answer>, String> {
        let before = prepare(self.mode, &self.setup).ok_or_else(|| format!("{}: bad setup", self.key))?;
        let found = commute(self.mode, &before, self.calls);
        let (answers, mut state) = found.ok_or_else(|| format!("{}: calls do not commute", self.key))?;
        let mut expected = answers.to_vec();
        for step in &self.after {
            match state.apply(self.mode, step.side, step.call, u8::MAX - 1) {
                Outcome::Returned(answer) => expected.push(answer),
                Outcome::Undefined => return Err(format!("{}: {} is undefined", self.key, step.call)),
            }
        }
        Ok(expected)
    }

    /// Compares a kernel's values with the model's answers. Returns the first difference in words.
    pub fn difference(&self, expected: &[Answer], got: &[Vec<i64>]) -> Option<String> {
        let calls = self.calls.iter().chain(self.after.iter().map(|step| &step.call));
        let mut labels = Labels::default();
        for (number, call) in calls.enumerate() {
            let (Some(want), Some(have)) = (expected.get(number), got.get(number)) else {
                return Some(format!("{call}: no answer"));
            };
            if !labels.agree(want, have) {
                return Some(format!("{call}: {have:?}, by the model {:?}", want.values));
            }
        }
        None
    }
}

/// The numbers that a kernel has given to the files of the model, which must be one to one.
#[derive(Default)]
struct Labels {
    numbers: BTreeMap<i64, i64>,
    labels: BTreeMap<i64, i64>,
}

impl Labels {
    fn agree(&mut self, want: &Answer, have: &[i64]) -> bool {
        want.values.len() == have.len()
            && want.values.iter().zip(have).enumerate().all(|(place, (want_value, have_value))| {
                if want.label == Some(place) {
                    self.pair(*want_value, *have_value)
                } else {
                    want_value == have_value
                }
            })
    }

    fn pair(&mut self, label: i64, number: i64) -> bool {
        *self.numbers.entry(label).or_insert(number) == number
            && *self.labels.entry(number).or_insert(label) == label
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.side, self.call)
    }
}

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (side, call) = text.split_once(':').ok_or_else(|| format!("{text:?} is not a step"))?;
        let side = ["0", "1"].iter().position(|known| *known == side);
        Ok(Step { side: side.ok_or_else(|| format!("{text:?} has no side"))?, call: call.parse()? })
    }
}

/// Writes the line that the guest reads: key, mode, setup, the two calls and those afterwards, with
/// semicolons between them.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = |steps: &[Step]| steps.iter().map(Step::to_string).collect::<Vec<_>>().join(" ");
        let (setup, after) = (words(&self.setup), words(&self.after));
        let [first, second] = self.calls;
        write!(f, "{};{};{setup};{first} {second};{after}", self.key, self.mode.name())
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a case");
        let parts: Vec<&str> = text.split(';').collect();
        let [key, mode, setup, calls, after] = parts[..] else { return Err(wrong()) };
        let mode = Mode::ALL.into_iter().find(|known| known.name() == mode).ok_or_else(wrong)?;
        let calls: Vec<Call> = calls.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        let steps = |text: &str| text.split_whitespace().map(str::parse).collect::<Result<_, _>>();
        Ok(Case {
            key: key.to_owned(),
            mode,
            setup: steps(setup)?,
            calls: calls.try_into().map_err(|_| wrong())?,
            after: steps(after)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(text: &str) -> Vec<Step> {
        text.split_whitespace().map(|word| word.parse().unwrap()).collect()
    }

    fn commutes(mode: Mode, setup: &str, calls: [&str; 2]) -> bool {
        let before = prepare(mode, &steps(setup)).unwrap();
        commute(mode, &before, calls.map(|call| call.parse().unwrap())).is_some()
    }

    #[test]
    fn creating_two_names_commutes_between_processes_only() {
        let calls = ["creat.0.1", "creat.1.1"];
        assert!(commutes(Mode::Processes, "", calls));
        assert!(
            !commutes(Mode::Threads, "", calls),
            "each order gives the lowest descriptor to another file"
        );
        assert!(!commutes(Mode::Processes, "", ["creat.0.1", "creat.0.1"]), "one of them gets EEXIST");
    }

    #[test]
    fn calls_on_one_file_commute_by_page_and_by_time() {
        let setup = "0:creat.0.1 0:pwrite.3.0.7 0:pwrite.3.1.8";
        assert!(commutes(Mode::Threads, setup, ["pread.3.0", "pread.3.0"]));
        assert!(commutes(Mode::Threads, setup, ["pread.3.0", "pwrite.3.1.9"]));
        assert!(commutes(Mode::Threads, setup, ["pwrite.3.0.5", "pwrite.3.1.9"]));
        assert!(!commutes(Mode::Threads, setup, ["pread.3.1", "pwrite.3.1.9"]));
        assert!(!commutes(Mode::Threads, setup, ["fstat.3", "pwrite.3.1.9"]), "the file's time changes");
        assert!(!commutes(Mode::Threads, setup, ["read.3", "read.3"]));
        assert!(
            commutes(Mode::Threads, setup, ["lseek.3.1.0", "lseek.3.1.0"]),
            "both orders end at one offset"
        );
    }

    #[test]
    fn names_commute_unless_they_meet() {
        let setup = "0:creat.0.1 0:link.0.2";
        assert!(commutes(Mode::Threads, setup, ["unlink.0", "unlink.2"]), "each order leaves no link");
        assert!(!commutes(Mode::Threads, setup, ["rename.0.3", "link.2.3"]));
        assert!(commutes(Mode::Threads, setup, ["stat.4", "creat.3.0"]), "an absent name and another one");
        assert!(!commutes(Mode::Threads, setup, ["stat.0", "link.2.3"]), "the number of links is reported");
    }

    #[test]
    fn memory_commutes_by_page() {
        let setup = "0:mmap.0.99.1 0:store.0.4";
        assert!(commutes(Mode::Threads, setup, ["load.0", "mmap.1.99.1"]));
        assert!(!commutes(Mode::Threads, setup, ["load.0", "munmap.0"]), "an access may fault");
        assert!(commutes(Mode::Threads, setup, ["munmap.0", "munmap.0"]));
        assert!(commutes(Mode::Processes, setup, ["load.0", "munmap.0"]));
    }

    #[test]
    fn pipes_keep_their_order_and_a_blocking_call_is_no_test() {
        let filled = "0:pipe 0:write.4.1 0:write.4.1";
        assert!(commutes(Mode::Threads, filled, ["read.3", "write.4.2"]));
        assert!(commutes(Mode::Threads, filled, ["read.3", "read.3"]), "both pages have one value");
        assert!(!commutes(Mode::Threads, filled, ["write.4.3", "write.4.2"]));
        assert!(!commutes(Mode::Threads, "0:pipe", ["read.3", "fstat.3"]), "an empty pipe blocks");
    }

    #[test]
    fn errors_come_in_linux_order() {
        let errno = |setup: &str, call: &str| {
            let mut state = prepare(Mode::Threads, &steps(setup)).unwrap();
            match state.apply(Mode::Threads, 0, call.parse().unwrap(), 200) {
                Outcome::Returned(answer) => answer.values[0],
                Outcome::Undefined => 0,
            }
        };
        assert_eq!(errno("0:pipe", "lseek.3.0.99"), -22, "whence before the kind of file");
        assert_eq!(errno("0:pipe", "lseek.3.0.0"), -29);
        assert_eq!(errno("0:pipe", "pread.4.0"), -29, "the kind of file before the access mode");
        assert_eq!(errno("0:pipe", "read.4"), -9);
        assert_eq!(errno("0:pipe 0:close.3", "write.4.1"), -32);
        assert_eq!(errno("0:creat.0.1 0:open.0.0", "mmap.0.4.1"), -13);
        assert_eq!(errno("0:creat.0.1", "link.1.0"), -2, "the old name before the new one");
    }

    #[test]
    fn cases_are_read_as_they_are_written_and_compared_up_to_the_numbers_of_files() {
        let text = "k;threads;0:creat.0.1 1:creat.1.1;stat.0 stat.1;0:stat.0 0:fstat.4";
        let case: Case = text.parse().unwrap();
        assert_eq!(case.to_string(), text);
        let expected = case.expected().unwrap();
        let stat = |number| vec![0, number, 1, 0];
        assert_eq!(case.difference(&expected, &[stat(70), stat(71), stat(70), stat(71)]), None);
        assert!(case.difference(&expected, &[stat(70), stat(71), stat(70), stat(70)]).is_some());
        assert!(case.difference(&expected, &[stat(70), stat(70), stat(70), stat(70)]).is_some());
        assert!(case.difference(&expected, &[stat(70)]).unwrap().contains("no answer"));
        assert!("k;threads;;read.3;".parse::<Case>().is_err());
    }
}

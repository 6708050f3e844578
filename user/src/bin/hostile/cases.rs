//! Cases: a call, its arguments, and the correct outcomes.

use crate::fixture::Fixture;
use libc::{EFAULT, c_long};
use std::fmt;
use std::io;

/// The result of a call, or its errno.
pub type Outcome = Result<usize, i32>;

/// Stands for the pointer under test in the arguments of [`Cases::reads`] and [`Cases::writes`].
pub const AT: usize = 0x5ca1_ab1e_0000_0001;
/// The same, rounded down to the alignment of a word.
pub const AT_WORD: usize = 0x5ca1_ab1e_0000_0002;

/// One call.
pub struct Case {
    name: String,
    number: c_long,
    args: [usize; 6],
    /// Correct outcomes. If there are none, any success is correct.
    accepted: Vec<Outcome>,
}

impl Case {
    /// Makes the call.
    pub fn run(&self) -> Outcome {
        let [a, b, c, d, e, f] = self.args;
        // SAFETY: the kernel must refuse the call, or touch nothing but the memory of the fixture, into which
        // there are no references. That is what this program tests.
        let result = unsafe { libc::syscall(self.number, a, b, c, d, e, f) };
        if result == -1 {
            Err(io::Error::last_os_error().raw_os_error().unwrap_or(0))
        } else {
            Ok(result as usize)
        }
    }

    /// Returns whether the outcome is correct.
    pub fn accepts(&self, outcome: Outcome) -> bool {
        if self.accepted.is_empty() { outcome.is_ok() } else { self.accepted.contains(&outcome) }
    }

    /// Returns the correct outcomes, in words.
    pub fn expected(&self) -> String {
        let all: Vec<_> = self.accepted.iter().map(show).collect();
        if all.is_empty() { "success".to_string() } else { all.join(" or ") }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, to: &mut fmt::Formatter) -> fmt::Result {
        to.write_str(&self.name)
    }
}

/// Returns an outcome in words.
pub fn show(outcome: &Outcome) -> String {
    match outcome {
        Ok(value) => format!("{value:#x}"),
        Err(error) => io::Error::from_raw_os_error(*error).to_string(),
    }
}

/// A list of cases under construction.
pub struct Cases {
    /// The cases so far.
    pub list: Vec<Case>,
    unreadable: Vec<(&'static str, usize)>,
    unwritable: Vec<(&'static str, usize)>,
}

impl Cases {
    /// Creates an empty list.
    pub fn new(fixture: &Fixture) -> Cases {
        let unreadable = fixture.unreadable();
        let unwritable = [&unreadable[..], &[("read-only", fixture.read_only)]].concat();
        Cases { list: Vec::new(), unreadable, unwritable }
    }

    fn add(&mut self, name: String, number: c_long, args: &[usize], accepted: &[Outcome]) {
        let mut all = [0; 6];
        all[..args.len()].copy_from_slice(args);
        self.list.push(Case { name, number, args: all, accepted: accepted.to_vec() });
    }

    /// Adds a call that must fail with `error`.
    pub fn fails(&mut self, name: &str, number: c_long, args: &[usize], error: i32) {
        self.add(name.to_string(), number, args, &[Err(error)]);
    }

    /// Adds a call with one of several correct outcomes.
    pub fn gives(&mut self, name: &str, number: c_long, args: &[usize], accepted: &[Outcome]) {
        self.add(name.to_string(), number, args, accepted);
    }

    /// Adds a call that must succeed, whatever it returns.
    pub fn works(&mut self, name: &str, number: c_long, args: &[usize]) {
        self.add(name.to_string(), number, args, &[]);
    }

    /// Adds a call that reads memory: EFAULT wherever [`AT`] points to memory that cannot be read.
    pub fn reads(&mut self, name: &str, number: c_long, args: &[usize]) {
        self.everywhere(name, number, args, &self.unreadable.clone());
    }

    /// Adds a call that writes memory: EFAULT wherever [`AT`] points to memory that cannot be written.
    pub fn writes(&mut self, name: &str, number: c_long, args: &[usize]) {
        self.everywhere(name, number, args, &self.unwritable.clone());
    }

    /// Does the same as [`Cases::reads`], where null means that there is nothing to read.
    pub fn reads_unless_null(&mut self, name: &str, number: c_long, args: &[usize]) {
        self.everywhere(name, number, args, &without_null(&self.unreadable));
    }

    /// Does the same as [`Cases::writes`], where null means that nothing is wanted.
    pub fn writes_unless_null(&mut self, name: &str, number: c_long, args: &[usize]) {
        self.everywhere(name, number, args, &without_null(&self.unwritable));
    }

    fn everywhere(&mut self, name: &str, number: c_long, args: &[usize], places: &[(&str, usize)]) {
        for (kind, place) in places {
            let put = |arg: &usize| match *arg {
                AT => *place,
                AT_WORD => *place & !3,
                other => other,
            };
            let args: Vec<_> = args.iter().map(put).collect();
            self.add(format!("{name}, {kind} pointer"), number, &args, &[Err(EFAULT)]);
        }
    }
}

fn without_null<'a>(places: &[(&'a str, usize)]) -> Vec<(&'a str, usize)> {
    places.iter().copied().filter(|(_, place)| *place != 0).collect()
}

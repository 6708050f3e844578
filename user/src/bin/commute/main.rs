//! Runs tests of pairs of calls that commute, and prints their results: the guest's part of
//! `radixvm commute`.
//!
//! Each line of the file is a test. For every repeat its setup is performed anew, then the two calls, one
//! after the other on two CPUs and in alternating order, then the calls that look at the state. The meter
//! lists the lines that each of the two calls touches. The first repeat is not marked, so that no call is the
//! first of its kind.
//!
//! A line of output is the test's number in the file and the values of the two calls and of those afterwards.
//! A test has one line unless a repeat gives other values. Numbers of files are replaced by 1, 2, ... in the
//! order in which they appear.

mod execute;
mod sides;

use std::fmt::Write;
use std::{env, fs, thread};

use commute::call::{Call, Op};
use commute::case::{Case, Mode, Order, Step};
use programs::args::{Parsed, options};
use programs::{cores, marker, processes, require, say};

use execute::Executor;
use sides::Board;

const USAGE: &str = "usage: commute [--repeats N] FILE\nRuns the tests in FILE with N marked repeats each.";
const REPEATS: u64 = 4;

/// Both sides, of which the leader performs its own calls.
struct Sides {
    leader: Executor,
    follower: &'static Board,
}

impl Sides {
    fn execute(&mut self, side: usize, call: Call, is_marked: bool) -> Vec<i64> {
        match side {
            0 => self.leader.execute(call, is_marked),
            _ => self.follower.execute(call, is_marked),
        }
    }

    fn perform(&mut self, step: &Step) -> Vec<i64> {
        self.execute(step.side, step.call, false)
    }

    /// Runs a test once, and returns the values of the two calls and of those afterwards.
    fn run(&mut self, case: &Case, order: Order, is_marked: bool) -> String {
        case.setup.iter().for_each(|step| drop(self.perform(step)));
        let mut values = [Vec::new(), Vec::new()];
        for side in order.sides() {
            values[side] = self.execute(side, case.calls[side], is_marked);
        }
        if is_marked {
            marker::pair();
        }
        let mut values = Vec::from(values);
        values.extend(case.after.iter().map(|step| self.perform(step)));
        self.clean();
        let calls = case.calls.iter().chain(case.after.iter().map(|step| &step.call));
        text(calls.map(|call| call.op), values)
    }

    fn clean(&mut self) {
        self.leader.clean();
        self.follower.clean();
        self.leader.remove_names();
    }

    /// Runs all repeats of a test, and returns its lines of output.
    fn repeat(&mut self, number: usize, case: &Case, repeats: u64) -> String {
        let mut known = vec![self.run(case, Order::Forward, false)];
        for repeat in 0..repeats {
            let text = self.run(case, Order::BOTH[repeat as usize % 2], true);
            if !known.contains(&text) {
                known.push(text);
            }
        }
        known.iter().fold(String::new(), |mut lines, text| {
            writeln!(lines, "{number} {text}").expect("strings take all");
            lines
        })
    }
}

/// Formats values, `1,2;3`, with the numbers of files replaced.
fn text(ops: impl Iterator<Item = Op>, mut values: Vec<Vec<i64>>) -> String {
    let mut files = Vec::new();
    for (op, values) in ops.zip(&mut values) {
        if let (Op::Stat | Op::Fstat, Some(file)) = (op, values.get_mut(1)) {
            let number = *file;
            let place = files.iter().position(|known| *known == number).unwrap_or(files.len());
            if place == files.len() {
                files.push(number);
            }
            *file = place as i64 + 1;
        }
    }
    let words = |values: &Vec<i64>| values.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
    values.iter().map(words).collect::<Vec<_>>().join(";")
}

/// Starts the follower, and runs the tests of one mode.
fn run_all(mode: Mode, cases: &[Case], repeats: u64, cpus: [usize; 2]) -> String {
    let board = require(Board::map(), "mmap");
    let follow = move || {
        require(cores::pin(cpus[1]), "sched_setaffinity");
        board.follow();
    };
    let mut sides = Sides { leader: Executor::new(board, 0), follower: board };
    let mut run = || {
        let chosen = cases.iter().enumerate().filter(|(_, case)| case.mode == mode);
        let lines = chosen.map(|(number, case)| sides.repeat(number, case, repeats)).collect();
        board.stop();
        lines
    };
    match mode {
        Mode::Processes => {
            let child = require(processes::spawn(follow), "fork");
            let lines = run();
            assert_eq!(require(processes::wait(child), "waitpid"), Some(0), "the other process failed");
            lines
        }
        Mode::Threads => thread::scope(|scope| {
            scope.spawn(follow);
            run()
        }),
    }
}

fn parse(file: &str) -> Vec<Case> {
    let text = require(fs::read_to_string(file), file);
    text.lines().map(|line| require(line.parse(), file)).collect()
}

fn main() {
    let (repeats, file) = options(USAGE, |mut args| -> Parsed<_> {
        let repeats = args.number("--repeats", REPEATS, 1..=1000)?;
        let file = args.word().ok_or("give the file with the tests")?;
        args.end().map(|()| (repeats, file))
    });
    let cases = parse(&file);
    let folder = env::temp_dir().join("commute");
    for folder in ["x", "y"].map(|name| folder.join(name)) {
        require(fs::create_dir_all(&folder), folder.display());
    }
    require(env::set_current_dir(&folder), "chdir");
    let cpus = require(cores::allowed(), "sched_getaffinity");
    let cpus = [cpus[0], *cpus.last().expect("there is a CPU")];
    assert_ne!(cpus[0], cpus[1], "the two calls need two CPUs");
    require(cores::pin(cpus[0]), "sched_setaffinity");
    let lines: String = Mode::ALL.iter().map(|mode| run_all(*mode, &cases, repeats, cpus)).collect();
    say(lines.trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_numbered_as_they_appear() {
        let ops = [Op::Stat, Op::Fstat, Op::Read, Op::Stat].into_iter();
        let values = vec![vec![0, 77, 1, 0], vec![0, 55, 1, 0], vec![0], vec![0, 77, 1, 0]];
        assert_eq!(text(ops, values), "0,1,1,0;0,2,1,0;0;0,1,1,0");
    }
}

//! `run --strace` and `run --syscall-summary`: the program's system calls.

use std::collections::{BTreeMap, BTreeSet};

use abi::Errno;
use abi::signatures::{may_not_return, signature};
use anyhow::{Result, ensure};

use launch::guest::protocol::Call;
use launch::table::{Table, count};

use super::syscalls;

/// The descriptor that stands for the current directory.
const AT_FDCWD: i64 = -100;

/// The calls that are shown, and what is counted of all.
#[derive(Default)]
pub struct Trace {
    shown: Option<Wanted>,
    summary: Option<BTreeMap<u64, Sums>>,
}

/// The calls that are wanted.
enum Wanted {
    All,
    Named(BTreeSet<u64>),
}

#[derive(Default)]
struct Sums {
    calls: u64,
    errors: BTreeMap<i64, u64>,
}

impl Trace {
    /// Creates a trace of the calls in `names`, which commas separate, or of all if it is empty. It counts
    /// all calls if a summary is wanted.
    ///
    /// # Errors
    /// If there is no call of a name.
    pub fn new(names: Option<&str>, summary: bool) -> Result<Self> {
        let shown = names.map(wanted).transpose()?;
        Ok(Self { shown, summary: summary.then(BTreeMap::new) })
    }

    /// Returns whether the kernel is to report calls.
    pub fn is_wanted(&self) -> bool {
        self.shown.is_some() || self.summary.is_some()
    }

    /// Takes a call, and returns its line if it is to be shown.
    pub fn take(&mut self, call: &Call) -> Option<String> {
        // Calls that do not return are reported before, and again if they fail.
        if let Some(sums) = &mut self.summary {
            let sums = sums.entry(call.number).or_default();
            sums.calls += u64::from(call.result.is_empty() || !may_not_return(call.number));
            let error = call.result.first().filter(|&&result| is_error(result));
            error.into_iter().for_each(|&error| *sums.errors.entry(-error).or_default() += 1);
        }
        let is_shown = match &self.shown {
            Some(Wanted::All) => true,
            Some(Wanted::Named(numbers)) => numbers.contains(&call.number),
            None => false,
        };
        is_shown.then(|| line(call))
    }

    /// Returns the table of all calls, if that is wanted.
    pub fn summary(&self) -> Option<String> {
        let sums = self.summary.as_ref()?;
        let mut rows: Vec<(&u64, &Sums)> = sums.iter().collect();
        rows.sort_by_key(|(number, sums)| (u64::MAX - sums.calls, **number));
        let mut table = Table::new(["call", "calls", "errors", "of these"]).left(3);
        for (number, sums) in rows {
            let names = sums.errors.iter().map(|(&error, times)| format!("{} {times}", error_name(error)));
            let errors: u64 = sums.errors.values().sum();
            let errors = if errors == 0 { String::new() } else { count(errors as i64) };
            table.row([
                name(*number),
                count(sums.calls as i64),
                errors,
                names.collect::<Vec<_>>().join(", "),
            ]);
        }
        Some(table.to_string())
    }
}

fn wanted(names: &str) -> Result<Wanted> {
    if names.is_empty() {
        return Ok(Wanted::All);
    }
    let mut numbers = BTreeSet::new();
    for wanted in names.split(',') {
        let entry = abi::syscalls::TABLE.iter().find(|entry| entry.name == wanted);
        ensure!(
            entry.is_some(),
            "--strace={names}: Linux has no call {wanted}; `radixvm syscalls --json` lists them"
        );
        numbers.extend(entry.map(|entry| u64::from(entry.number)));
    }
    Ok(Wanted::Named(numbers))
}

fn is_error(result: i64) -> bool {
    (-4095..0).contains(&result)
}

fn name(number: u64) -> String {
    syscalls::name(number).map_or_else(|| format!("call {number}"), str::to_owned)
}

fn error_name(error: i64) -> String {
    let name = Errno::from_result((error as u64).wrapping_neg()).and_then(Errno::name);
    name.map_or_else(|| format!("error {error}"), str::to_owned)
}

/// Formats a call as strace does.
fn line(call: &Call) -> String {
    let letters = signature(call.number).chars().zip(&call.args).enumerate();
    let args = letters.map(|(at, (letter, arg))| match (letter, call.strings.get(&format!("s{at}"))) {
        ('s', Some(serde_json::Value::String(text))) => format!("\"{text}\""),
        ('s' | 'x' | 'o', _) if arg.0 == 0 => "0".to_owned(),
        ('d', _) => signed(arg.0),
        ('u', _) => arg.0.to_string(),
        ('o', _) => format!("{:#o}", arg.0 as u32),
        _ => format!("{:#x}", arg.0),
    });
    let result = match call.result.first() {
        None => "?".to_owned(),
        Some(&result) if is_error(result) => format!("-1 {}", error_name(-result)),
        Some(&result) if result > 0xffff_ffff => format!("{result:#x}"),
        Some(result) => result.to_string(),
    };
    let Call { tid, number, .. } = call;
    format!("{}[{tid}] {}({}) = {result}", call.name, name(*number), args.collect::<Vec<_>>().join(", "))
}

/// Formats an `int`, whose upper half means nothing, or a longer number.
fn signed(arg: u64) -> String {
    let value = if arg >> 32 == 0 { i64::from(arg as i32) } else { arg as i64 };
    if value == AT_FDCWD { "AT_FDCWD".to_owned() } else { value.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(text: &str) -> Call {
        serde_json::from_str(text).unwrap()
    }

    fn openat(result: &str) -> Call {
        call(&format!(
            r#"{{"tid":7,"name":"cat","number":257,"args":["0xffffff9c","0x40","0x0","0x1a4","0x5","0x6"],
                "s1":"/etc/a\"b","result":[{result}]}}"#
        ))
    }

    #[test]
    fn a_call_has_a_line() {
        assert_eq!(line(&openat("3")), r#"cat[7] openat(AT_FDCWD, "/etc/a"b", 0, 0o644) = 3"#);
        assert_eq!(line(&openat("-2")), r#"cat[7] openat(AT_FDCWD, "/etc/a"b", 0, 0o644) = -1 ENOENT"#);
        let exit =
            call(r#"{"tid":7,"name":"cat","number":231,"args":["0x1","0x0","0x0","0x0","0x0","0x0"]}"#);
        assert_eq!(line(&exit), "cat[7] exit_group(1) = ?");
        let unknown = call(
            r#"{"tid":1,"name":"x","number":999,"args":["0x1","0x2","0x3","0x4","0x5","0x6"],"result":[-38]}"#,
        );
        assert_eq!(line(&unknown), "x[1] call 999(0x1, 0x2, 0x3, 0x4, 0x5, 0x6) = -1 ENOSYS");
    }

    #[test]
    fn calls_are_chosen_by_name_and_counted() {
        let mut trace = Trace::new(Some("read,openat"), true).unwrap();
        assert!(trace.take(&openat("3")).is_some() && trace.take(&openat("-2")).is_some());
        let close = call(
            r#"{"tid":7,"name":"cat","number":3,"args":["0x1","0x0","0x0","0x0","0x0","0x0"],"result":[0]}"#,
        );
        assert_eq!(trace.take(&close), None);
        let summary = trace.summary().unwrap();
        let rows: Vec<Vec<&str>> =
            summary.lines().skip(2).map(|row| row.split_whitespace().collect()).collect();
        assert_eq!(rows, [vec!["openat", "2", "1", "ENOENT", "1"], vec!["close", "1"]], "{summary}");
        assert!(Trace::new(Some("reed"), false).err().unwrap().to_string().contains("no call reed"));
    }
}

//! Writes the results as JSON.

use std::fmt::Write;
use std::io;

use crate::calls::{Conflict, Test};
use crate::counts::{KINDS, Kind, PHASES};
use crate::cpu::{Round, Snapshot};
use crate::directory::LINE_SHIFT;
use crate::meter::Meter;
use crate::report::{self, Line, Pair};
use crate::sites::{Cause, Key, Sites, Stack, Tally};
use crate::window::Outcome;

/// Writes the results to the file that was asked for, all at once, for readers that wait for them.
pub fn write(meter: &Meter) -> io::Result<()> {
    let mut unfinished = meter.options.out.clone().into_os_string();
    unfinished.push(".unfinished");
    std::fs::write(&unfinished, json(meter))?;
    std::fs::rename(&unfinished, &meter.options.out)
}

/// Returns the results as JSON.
pub fn json(meter: &Meter) -> String {
    let outcome = meter.window.outcome();
    let sections = [
        header(meter, &outcome),
        format!("\"totals\":[{}]", totals(&outcome.totals)),
        format!("\"columns\":[{}]", columns()),
        format!("\"rounds\":[{}]", rounds(meter)),
        format!("\"lines\":[{}]", lines(meter)),
        format!("\"tests\":[{}]", list(meter.calls.tests().iter().map(test))),
    ];
    let sections = sections.into_iter().chain(meter.sites.iter().flat_map(sites));
    let sections: Vec<_> = sections.collect();
    format!("{{{}}}\n", sections.join(",\n"))
}

fn header(meter: &Meter, outcome: &Outcome) -> String {
    let (throttled, escapes) = meter.gate.waits_and_escapes();
    format!(
        "\"version\":1,\"cpus\":{},\"slack\":{},\"marked\":{},\"escapes\":{escapes},\"throttled\":{throttled},\
         \"virtual_time\":{},\"virtual_seconds\":{:.9},\"window_virtual_seconds\":{:.9},\
         \"host_seconds\":{:.6},\"ignored_windows\":{},\"begin\":{}",
        meter.cpus.len(),
        meter.options.slack,
        outcome.marked,
        meter.had_virtual_time(),
        meter.clock.elapsed() as f64 / 1e9,
        meter.window_elapsed() as f64 / 1e9,
        meter.host_seconds(),
        outcome.ignored,
        meter.begin().map_or("null".into(), |begin| format!("\"{begin:#x}\"")),
    )
}

/// Joins the parts with commas.
fn list(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(",")
}

fn totals(totals: &[Snapshot]) -> String {
    let all = totals.iter().enumerate().flat_map(|(cpu, snapshot)| {
        let places = (0..2).flat_map(|privilege| (0..PHASES).map(move |phase| (privilege, phase)));
        places.filter_map(move |(privilege, phase)| total(cpu, privilege, phase, snapshot))
    });
    list(all)
}

/// Returns the counts of a phase, or nothing if all are zero.
fn total(cpu: usize, privilege: usize, phase: usize, snapshot: &Snapshot) -> Option<String> {
    let counts = &snapshot[privilege][phase];
    let name = ["user", "kernel"][privilege];
    let numbers = list(KINDS.iter().map(|kind| format!("\"{}\":{}", kind.name(), counts.get(*kind))));
    (!counts.is_zero()).then(|| {
        format!("\n{{\"cpu\":{cpu},\"privilege\":\"{name}\",\"phase\":{phase},\"counts\":{{{numbers}}}}}")
    })
}

/// Returns the names of the columns. Only instructions have a column for each privilege.
fn columns() -> String {
    let first = ["cpu", "phase", "user_instructions", "kernel_instructions"].into_iter();
    list(first.chain(others().map(Kind::name)).map(|name| format!("\"{name}\"")))
}

fn others() -> impl Iterator<Item = Kind> {
    KINDS.into_iter().filter(|kind| *kind != Kind::Instructions)
}

fn rounds(meter: &Meter) -> String {
    let mut text = String::new();
    for (cpu, state) in meter.cpus.iter().enumerate() {
        for each in &state.log().rounds {
            if !text.is_empty() {
                text.push(',');
            }
            round(&mut text, cpu, each);
        }
    }
    text
}

fn round(text: &mut String, cpu: usize, round: &Round) {
    let [user, kernel] = &round.counts;
    let instructions = [user, kernel].map(|counts| counts.get(Kind::Instructions));
    let both = user.plus(kernel);
    write!(text, "\n[{cpu},{},{},{}", round.phase, instructions[0], instructions[1])
        .expect("strings take all");
    others().for_each(|kind| write!(text, ",{}", both.get(kind)).expect("strings take all"));
    text.push(']');
}

fn lines(meter: &Meter) -> String {
    list(report::hottest(&meter.cpus).iter().map(line))
}

fn line(line: &Line) -> String {
    format!(
        "\n{{\"address\":\"{:#x}\",\"virtual\":\"{:#x}\",\"user\":{},\"transfers\":{},\"upgrades\":{},\
         \"invalidations\":{},\"disjoint\":{},\"cpus\":[{}],\"false_sharing\":{},\"pairs\":[{}]}}",
        line.address,
        line.touched_at,
        line.is_user(),
        line.transfers,
        line.upgrades,
        line.invalidations,
        line.disjoint,
        list(line.cpus().map(|cpu| cpu.to_string())),
        line.is_false_sharing(),
        list(line.pairs.iter().map(pair)),
    )
}

fn pair(pair: &Pair) -> String {
    format!(
        "{{\"from\":\"{:#x}\",\"to\":\"{:#x}\",\"to_user\":{},\"kind\":\"{}\",\"bytes_from\":\"{:#x}\",\
         \"bytes_to\":\"{:#x}\",\"disjoint\":{},\"count\":{}}}",
        pair.from,
        pair.to,
        pair.to_user(),
        pair.kind.name(),
        pair.bytes_from,
        pair.bytes_to,
        pair.disjoint,
        pair.count,
    )
}

/// Returns the conflicts of a test of two calls.
fn test(test: &Test) -> String {
    format!(
        "\n{{\"sent\":{},\"ticks\":{},\"conflicts\":[{}]}}",
        test.interrupts.sent,
        test.interrupts.ticks,
        list(test.conflicts.iter().map(conflict)),
    )
}

fn conflict(conflict: &Conflict) -> String {
    format!(
        "{{\"address\":\"{:#x}\",\"virtual\":\"{:#x}\",\"writer\":\"{:#x}\",\"other\":\"{:#x}\",\
         \"both_write\":{},\"disjoint\":{}}}",
        conflict.line << LINE_SHIFT,
        conflict.address,
        conflict.writer,
        conflict.other,
        conflict.both_write,
        conflict.disjoint,
    )
}

/// Sites in the results.
const SITES: usize = 2000;
/// Instructions of the kernel of each.
const CODE: usize = 8;

fn sites(sites: &Sites) -> [String; 2] {
    let all = sites.sorted(SITES);
    let pieces = sites.pieces();
    [
        format!("\"sites\":[{}]", list(all.iter().map(|(key, tally)| site(sites, key, tally)))),
        format!(
            "\"code\":[{}]",
            list(pieces.iter().map(|(at, bytes)| format!("\n[\"{at:#x}\",{}]", hex(bytes))))
        ),
    ]
}

/// Returns bytes as a text of hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    format!("\"{}\"", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

fn site(sites: &Sites, key: &Key, tally: &Tally) -> String {
    let (cause, number) = match key.cause {
        // The kernel's registers could not be read.
        Cause::Call(u64::MAX) => ("call", "null".to_owned()),
        Cause::Call(number) => ("call", number.to_string()),
        Cause::Fault => ("fault", "null".to_owned()),
        Cause::Interrupt => ("interrupt", "null".to_owned()),
        Cause::Other => ("other", "null".to_owned()),
    };
    let mut code: Vec<_> = tally.code.iter().collect();
    code.sort_by_key(|(pc, count)| (std::cmp::Reverse(**count), **pc));
    let fields = [
        format!("\"cause\":\"{cause}\",\"number\":{number},\"pc\":\"{:#x}\"", key.pc),
        format!("\"ending\":{}", sites.ending(key).map_or("null".into(), |bytes| hex(&bytes))),
        format!("\"callers\":[{}]", list(key.callers().map(|caller| format!("\"{caller:#x}\"")))),
        format!("\"entries\":{},\"instructions\":{}", tally.entries, tally.instructions),
        format!("\"transfers\":{},\"invalidations\":{}", tally.transfers, tally.invalidations),
        format!("\"sent\":{}", tally.sent),
        format!(
            "\"code\":[{}]",
            list(code.iter().take(CODE).map(|(pc, count)| format!("[\"{pc:#x}\",{count}]")))
        ),
        format!("\"stack\":{}", tally.stack.as_ref().map_or("null".into(), stack)),
    ];
    format!("\n{{{}}}", fields.join(","))
}

fn stack(stack: &Stack) -> String {
    let bytes: Vec<u8> = stack.words.iter().flat_map(|word| word.to_le_bytes()).collect();
    format!("{{\"rsp\":\"{:#x}\",\"rbp\":\"{:#x}\",\"bytes\":{}}}", stack.rsp, stack.rbp, hex(&bytes))
}

#[cfg(test)]
#[path = "output_tests.rs"]
mod tests;

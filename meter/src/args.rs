//! The plugin's arguments on QEMU's command line.

use std::fs;
use std::path::PathBuf;

use crate::counts::Kind;
use crate::directory::MAX_CPUS;

/// `-plugin FILE,out=PATH,memory=BYTES[,cpus=N][,slack=N][,rounds=N][,quantum_ns=N][,events=PATH][,sites=N]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// File for the results.
    pub out: PathBuf,
    /// Bytes of the guest's memory.
    pub memory: u64,
    /// Number of virtual CPUs.
    pub cpus: usize,
    /// Number of instructions that a CPU may be ahead of the slowest.
    pub slack: u64,
    /// Number of rounds after which the window ends, if it has not ended before. 0 means all.
    pub rounds: u64,
    /// Nanoseconds of virtual time for an instruction.
    pub quantum_ns: u64,
    /// Entry points: an execution of the instruction at that address counts as that kind.
    pub events: Vec<(u64, Kind)>,
    /// Set if counts are kept by the place in the program that made the kernel work: the bytes from the saved
    /// frame pointer up to the saved instruction pointer, where the kernel saves the program's registers.
    pub sites: Option<u64>,
}

const KNOWN: [&str; 8] = ["out", "memory", "cpus", "slack", "rounds", "quantum_ns", "events", "sites"];

/// The default slack.
pub const SLACK: u64 = 200;

impl Options {
    /// Parses the arguments. `cpus` is the number that QEMU gives.
    pub fn parse<'a>(arguments: impl Iterator<Item = &'a str>, cpus: usize) -> Result<Self, String> {
        let pairs: Vec<(&str, &str)> = arguments.map(pair).collect::<Result<_, _>>()?;
        let last = |name| pairs.iter().rev().find(|(known, _)| *known == name).map(|(_, value)| *value);
        let number = |name, default| last(name).map_or(Ok(default), |value| number(name, value));
        Ok(Self {
            out: last("out").ok_or("out=PATH is missing")?.into(),
            memory: number("memory", 0).and_then(positive("memory"))?,
            cpus: number("cpus", cpus as u64).and_then(|count| cpu_count(count, cpus))?,
            slack: number("slack", SLACK).and_then(positive("slack"))?,
            rounds: number("rounds", 0)?,
            quantum_ns: number("quantum_ns", 1).and_then(positive("quantum_ns"))?,
            events: last("events").map_or(Ok(Vec::new()), read_events)?,
            sites: last("sites").map(|_| number("sites", 0)).transpose()?,
        })
    }
}

fn pair(argument: &str) -> Result<(&str, &str), String> {
    match argument.split_once('=') {
        Some((name, value)) if KNOWN.contains(&name) => Ok((name, value)),
        _ => Err(format!("unknown argument {argument:?}; known are {}", KNOWN.join(", "))),
    }
}

fn number(name: &str, value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| format!("{name}={value}: not a number"))
}

fn positive(name: &str) -> impl Fn(u64) -> Result<u64, String> {
    move |value| if value > 0 { Ok(value) } else { Err(format!("{name} must be given, and not 0")) }
}

fn cpu_count(count: u64, least: usize) -> Result<usize, String> {
    if (least as u64..=MAX_CPUS as u64).contains(&count) {
        Ok(count as usize)
    } else {
        Err(format!("cpus={count}: the machine has {least}, and {MAX_CPUS} is the most"))
    }
}

fn read_events(path: &str) -> Result<Vec<(u64, Kind)>, String> {
    parse_events(&fs::read_to_string(path).map_err(|error| format!("events={path}: {error}"))?)
}

/// Parses lines of a name and a hexadecimal address.
fn parse_events(text: &str) -> Result<Vec<(u64, Kind)>, String> {
    text.lines().filter(|line| !line.trim().is_empty()).map(parse_event).collect()
}

fn parse_event(line: &str) -> Result<(u64, Kind), String> {
    let fault = || format!("events: {line:?} is not \"fault|syscall|ipi|tick|schedule HEXADDRESS\"");
    let (name, address) = line.trim().split_once(' ').ok_or_else(fault)?;
    let kind = match name {
        "fault" => Kind::Faults,
        "syscall" => Kind::Syscalls,
        "ipi" => Kind::IpisReceived,
        "tick" => Kind::Ticks,
        "schedule" => Kind::Schedules,
        _ => return Err(fault()),
    };
    let address = u64::from_str_radix(address.trim().trim_start_matches("0x"), 16).map_err(|_| fault())?;
    Ok((address, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Options, String> {
        Options::parse(text.split(','), 4)
    }

    #[test]
    fn defaults_and_values() {
        let options = parse("out=/tmp/x,memory=1073741824").unwrap();
        assert_eq!((options.cpus, options.slack, options.quantum_ns), (4, 200, 1));
        let options = parse("out=x,memory=4096,cpus=8,slack=2000,quantum_ns=3,rounds=9").unwrap();
        assert_eq!((options.memory, options.cpus, options.slack, options.quantum_ns), (4096, 8, 2000, 3));
        assert_eq!((options.rounds, options.sites), (9, None));
        assert_eq!(parse("out=x,memory=1,sites=96").unwrap().sites, Some(96));
    }

    #[test]
    fn a_bad_argument_is_named() {
        for (text, named) in [
            ("memory=1", "out"),
            ("out=x", "memory"),
            ("out=x,memory=lots", "memory=lots"),
            ("out=x,memory=1,slack=0", "slack"),
            ("out=x,memory=1,cpus=129", "cpus=129"),
            ("out=x,memory=1,cpus=3", "cpus=3"),
            ("out=x,memory=1,sites=here", "sites=here"),
            ("out=x,memory=1,speed=9", "speed=9"),
            ("out=x,memory=1,on", "\"on\""),
            ("out=x,memory=1,events=/nowhere/at/all", "/nowhere/at/all"),
        ] {
            let message = parse(text).unwrap_err();
            assert!(message.contains(named), "{text}: {message}");
        }
    }

    #[test]
    fn events_are_names_and_addresses() {
        let events = parse_events("fault ffffffff80001000\n\nipi 0x10\n").unwrap();
        assert_eq!(events, [(0xffff_ffff_8000_1000, Kind::Faults), (0x10, Kind::IpisReceived)]);
        assert!(parse_events("pagefault 10").unwrap_err().contains("pagefault"));
        assert!(parse_events("fault here").unwrap_err().contains("here"));
    }
}

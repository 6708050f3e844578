//! The lines that a guest writes to its control port: one JSON object per line.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One line from the guest.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Line {
    /// The kernel has started.
    Booted {
        /// The number of CPUs that came up.
        cpus: u32,
        /// The bytes of memory that the kernel found.
        memory_bytes: u64,
    },
    /// The program reads its standard input. The host sends one frame.
    Stdin,
    /// A message of the kernel's log.
    Log {
        /// error, warn, info or debug.
        level: String,
        /// The message.
        text: String,
    },
    /// A system call that is not implemented. Each is reported once.
    UnknownSyscall {
        /// Its number.
        number: u64,
        /// Its six arguments, in hexadecimal.
        args: Vec<String>,
    },
    /// A system call, if they are traced.
    Call(Box<Call>),
    /// The program died of a signal by its own fault.
    Crash(Box<Crash>),
    /// Memory ran out and the program was killed for it.
    Oom {
        /// The page, the process and its memory.
        text: String,
    },
    /// The changes of a file could not be written back to this machine.
    Unwritten {
        /// The file's name.
        name: String,
        /// The reason.
        text: String,
    },
    /// The kernel itself failed.
    Panic {
        /// The place and the reason.
        text: String,
    },
    /// The last line instead of `Exit`: the program was not started.
    Refused {
        /// The reason.
        text: String,
    },
    /// Counters, after the program has ended.
    Stats(Stats),
    /// The owners of physical memory, after the program has ended.
    Owners(Owners),
    /// The last line: how the program ended.
    Exit {
        /// The status of `exit`.
        status: Option<i32>,
        /// The signal that killed the program.
        signal: Option<i32>,
    },
}

/// A system call.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Call {
    /// The thread.
    pub tid: u32,
    /// The name of its command.
    pub name: String,
    /// The number of the call.
    pub number: u64,
    /// The arguments.
    pub args: [Address; 6],
    /// Those of them that are strings, by their place as `s0` to `s5`.
    #[serde(flatten)]
    pub strings: BTreeMap<String, serde_json::Value>,
    /// The result, or none before the call.
    #[serde(default)]
    pub result: Vec<i64>,
}

/// The state of a thread that crashed.
#[derive(Debug, Clone, Deserialize)]
pub struct Crash {
    /// The path in the guest of the program that died, or empty if the guest does not know it.
    #[serde(default)]
    pub program: String,
    /// The signal's number.
    pub signal: i32,
    /// The thread.
    pub tid: u32,
    /// The address that was accessed.
    #[serde(deserialize_with = "hex")]
    pub address: u64,
    /// read, write or exec.
    #[serde(default)]
    pub access: String,
    /// General registers by name.
    #[serde(deserialize_with = "hex_map")]
    pub registers: BTreeMap<String, u64>,
    /// The address where a position-independent program was loaded, or 0 for other programs.
    #[serde(deserialize_with = "hex")]
    pub load_bias: u64,
    /// The address of the first byte of `stack`.
    #[serde(deserialize_with = "hex")]
    pub stack_base: u64,
    /// Bytes of the stack upwards, in hexadecimal.
    pub stack: String,
}

/// The kernel's counters.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct Stats {
    /// The counters by name, one number per core. A core that gives back more than it took has a negative
    /// number.
    pub counters: BTreeMap<String, Vec<i64>>,
    /// The frames that were not freed.
    pub leaked_frames: i64,
    /// The radix nodes that were not freed.
    pub leaked_nodes: i64,
    /// The bytes of a kernel stack that were used at most. Stacks have 16,384.
    pub deepest_stack: i64,
}

impl Stats {
    /// Returns a counter summed over cores, or 0 if the kernel does not know it.
    pub fn total(&self, name: &str) -> i64 {
        self.counters.get(name).map_or(0, |cores| cores.iter().sum())
    }
}

/// The owners of physical memory.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Owners {
    /// The first address, the address past the last one, and the kind. Both addresses are in hexadecimal.
    pub ranges: Vec<(Address, Address, String)>,
}

impl Owners {
    /// Returns the kind of the first range that has a physical address.
    pub fn kind(&self, physical: u64) -> Option<&str> {
        let mut ranges = self.ranges.iter();
        ranges.find(|(start, end, _)| (start.0..end.0).contains(&physical)).map(|(_, _, kind)| kind.as_str())
    }
}

/// An address that is encoded as hexadecimal text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
pub struct Address(#[serde(deserialize_with = "hex")] pub u64);

fn parse_hex(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").ok_or_else(|| format!("not hexadecimal: {text}"))?;
    u64::from_str_radix(digits, 16).map_err(|error| format!("{text}: {error}"))
}

fn hex<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    parse_hex(&String::deserialize(from)?).map_err(serde::de::Error::custom)
}

fn hex_map<'de, D: serde::Deserializer<'de>>(from: D) -> Result<BTreeMap<String, u64>, D::Error> {
    let words = BTreeMap::<String, String>::deserialize(from)?;
    let parsed = words.into_iter().map(|(name, text)| Ok((name, parse_hex(&text)?)));
    parsed.collect::<Result<_, String>>().map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_parse() {
        let line = |text| serde_json::from_str::<Line>(text).unwrap();
        assert!(matches!(
            line(r#"{"type":"booted","cpus":2,"memory_bytes":5}"#),
            Line::Booted { cpus: 2, .. }
        ));
        let Line::Exit { status, signal } = line(r#"{"type":"exit","signal":11}"#) else { panic!() };
        assert_eq!((status, signal), (None, Some(11)));
        let Line::Stats(stats) = line(
            r#"{"type":"stats","counters":{"mmap":[1,2]},"leaked_frames":0,"leaked_nodes":0,"deepest_stack":0}"#,
        ) else {
            panic!()
        };
        assert_eq!((stats.total("mmap"), stats.total("none")), (3, 0));
    }

    #[test]
    fn owners_parse() {
        let text = r#"{"type":"owners","ranges":[["0x200000","0x400000","image"]]}"#;
        let Line::Owners(owners) = serde_json::from_str(text).unwrap() else { panic!() };
        assert_eq!(owners.ranges, [(Address(0x20_0000), Address(0x40_0000), "image".to_owned())]);
    }

    #[test]
    fn a_crash_parses_and_bad_hex_does_not() {
        let text = r#"{"type":"crash","signal":11,"pid":1,"tid":7,"address":"0x10","access":"read",
            "registers":{"rip":"0x401000"},"load_bias":"0x0","stack_base":"0x7000","stack":"00"}"#;
        let Line::Crash(crash) = serde_json::from_str(text).unwrap() else { panic!() };
        assert_eq!((crash.address, crash.registers["rip"]), (0x10, 0x40_1000));
        assert!(serde_json::from_str::<Line>(&text.replace("0x401000", "401000")).is_err());
    }
}

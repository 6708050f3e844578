//! The kinds of probes, and the number of transfers that each must cause.

use programs::args::Parsed;

/// Maximum number of threads whose bytes fit on one line.
const BYTES: usize = 64;

/// The access of the threads in each round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Each thread adds to a counter of its own. There are no turns.
    Private,
    /// Every thread loads a line that is not written after the warm-up. There are no turns.
    ReadMostly,
    /// All threads add to one counter, in turn.
    Shared,
    /// Each thread adds to a byte of its own, in turn. The bytes are neighbours on one line.
    FalseSharing,
    /// Threads in pairs pass the turn to and fro, and do nothing else.
    PingPong,
    /// Thread 0 stores a word in its turn, and every other thread loads it in its own.
    Readers,
    /// All threads add, by an instruction each, to a word that lies on two lines, in turn.
    Split,
    /// All threads add to one counter and compute between their adds, evenly spread over a round of some 330
    /// instructions. There are no turns: they alternate as long as no thread is ahead by much of a round.
    Racing,
}

/// Transfers per round and thread, from the end of the warm-up on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Transfers to take the turn and to pass it on: phase 0.
    pub turn: u64,
    /// Transfers of the access itself: phase 1.
    pub access: u64,
}

impl Kind {
    /// All kinds, by their names on the command line.
    pub const NAMES: [(&str, Kind); 8] = [
        ("private", Kind::Private),
        ("read-mostly", Kind::ReadMostly),
        ("shared", Kind::Shared),
        ("false-sharing", Kind::FalseSharing),
        ("ping-pong", Kind::PingPong),
        ("readers", Kind::Readers),
        ("split", Kind::Split),
        ("racing", Kind::Racing),
    ];

    /// Returns the kind of this name, for this many threads.
    pub fn parse(name: Option<String>, threads: usize) -> Parsed<Kind> {
        let names = Kind::NAMES.map(|(name, _)| name).join(", ");
        let name = name.ok_or(format!("no kind: name one of {names}"))?;
        let kind = Kind::NAMES.into_iter().find(|(known, _)| *known == name);
        let (_, kind) = kind.ok_or(format!("{name} is no kind: name one of {names}"))?;
        if kind == Kind::FalseSharing && threads > BYTES {
            return Err(format!("--threads {threads}: only {BYTES} bytes fit on a line"));
        }
        Ok(kind)
    }

    /// Returns its name on the command line.
    pub fn name(self) -> &'static str {
        Kind::NAMES.into_iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// Returns how many threads take turns with each other.
    pub fn ring(self, threads: usize) -> usize {
        match self {
            Kind::Private | Kind::ReadMostly | Kind::Racing => 1,
            Kind::PingPong => threads.min(2),
            Kind::Shared | Kind::FalseSharing | Kind::Readers | Kind::Split => threads,
        }
    }

    /// Returns the transfers that a round must cause for each of `threads` threads. See `turns.rs` for the
    /// turn. The access costs one, of these kinds:
    /// - shared, false sharing and racing: the last thread has the line modified, and the add takes it (1
    ///   copy invalidated).
    /// - readers: the store finds a copy with every reader, an upgrade (`threads` - 1 copies invalidated).
    ///   The first reader is served the modified line, the others a clean one.
    /// - split: the same as shared, of two lines.
    pub fn expected(self, threads: usize) -> Expected {
        let turn = if self.ring(threads) < 2 { 0 } else { 2 };
        let access = match self {
            _ if threads < 2 => 0,
            Kind::Private | Kind::ReadMostly | Kind::PingPong => 0,
            Kind::Shared | Kind::FalseSharing | Kind::Readers | Kind::Racing => 1,
            Kind::Split => 2,
        };
        Expected { turn, access }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_name_and_a_price() {
        let price = |name: &str, threads| {
            let kind = Kind::parse(Some(name.to_string()), threads).unwrap();
            assert_eq!(kind.name(), name);
            let Expected { turn, access } = kind.expected(threads);
            (turn, access)
        };
        let at_four = Kind::NAMES.map(|(name, _)| price(name, 4));
        assert_eq!(at_four, [(0, 0), (0, 0), (2, 1), (2, 1), (2, 0), (2, 1), (2, 2), (0, 1)]);
        assert_eq!(Kind::NAMES.map(|(name, _)| price(name, 1)), [(0, 0); 8]);
    }

    #[test]
    fn impossible_requests_are_refused() {
        assert!(Kind::parse(None, 1).unwrap_err().contains("ping-pong"));
        assert!(Kind::parse(Some("x".to_string()), 1).unwrap_err().contains("x is no kind"));
        assert!(Kind::parse(Some("false-sharing".to_string()), 65).unwrap_err().contains("64 bytes"));
    }
}

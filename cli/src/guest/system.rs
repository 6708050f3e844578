//! The systems that can run a program, by name.

mod boot;

use std::fmt;

use abi::config::{Choice, Design, ReadRefs, Refs, Tables};
use anyhow::{Result, ensure};
use clap::ValueEnum;
use clap::builder::PossibleValue;

use super::linux;

pub use boot::{CPU_MODEL, Job, Size, Streams, compress, environment, host_environment, huge, plan};

/// A kernel under which a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// Our kernel.
    Radixvm(Design, Tables, Refs, ReadRefs),
    /// The distribution's kernel.
    Linux,
}

/// The names of a system.
struct Known {
    system: System,
    /// The name in options.
    name: &'static str,
    /// The name in tables.
    title: &'static str,
    /// The name where there is room.
    label: &'static str,
}

/// All systems that can be compared, with their names.
#[rustfmt::skip]
const KNOWN: [Known; 9] = [
    Known { system: System::ADAPTIVE, name: "adaptive", title: "RadixVM adaptive", label: "RadixVM, adaptive tables" },
    Known { system: System::PERCORE, name: "percore", title: "RadixVM percore", label: "RadixVM, a table per core" },
    Known { system: System::SHARED, name: "shared", title: "RadixVM shared", label: "RadixVM, one shared table" },
    Known { system: System::tree(Design::Rwlock), name: "rwlock", title: "rwlock", label: "read/write lock (Linux 2.6)" },
    Known { system: System::tree(Design::Faultlock), name: "faultlock", title: "faultlock", label: "fault lock" },
    Known { system: System::tree(Design::Hybrid), name: "hybrid", title: "hybrid", label: "hybrid lock/RCU" },
    Known { system: System::tree(Design::Bonsai), name: "bonsai", title: "bonsai", label: "pure RCU (Bonsai)" },
    Known { system: System::tree(Design::Pervma), name: "pervma", title: "pervma", label: "a lock per region (today's Linux)" },
    Known { system: System::Linux, name: "linux", title: "stock Linux", label: "stock Linux" },
];

impl System {
    /// Our kernel with a page table per core, as in the paper.
    pub const PERCORE: System = System::usual(Design::Radix, Tables::Percore);
    /// Our kernel with one page table.
    pub const SHARED: System = System::usual(Design::Radix, Tables::Shared);
    /// Our kernel with tables that are shared only where the program shares memory.
    pub const ADAPTIVE: System = System::usual(Design::Radix, Tables::Adaptive);
    /// Our kernel's default.
    pub const DEFAULT: System = System::ADAPTIVE;
    /// All systems.
    pub const ALL: [System; KNOWN.len()] = {
        let mut all = [System::Linux; KNOWN.len()];
        let mut at = 0;
        while at < all.len() {
            all[at] = KNOWN[at].system;
            at += 1;
        }
        all
    };

    const fn tree(design: Design) -> System {
        System::usual(design, Tables::Shared)
    }

    /// Returns our kernel with the default counters.
    const fn usual(design: Design, tables: Tables) -> System {
        System::Radixvm(design, tables, Refs::Refcache, ReadRefs::Pinned)
    }

    /// Returns our kernel with a design. Without `tables` they are the design's default.
    ///
    /// # Errors
    /// If the design has no such tables.
    pub fn ours(design: Design, tables: Option<Tables>) -> Result<System> {
        let tables = tables.unwrap_or(design.default_tables());
        ensure!(
            design.has(tables),
            "--vm {} has one page table for all cores: leave --tables {} out",
            design.word(),
            tables.word()
        );
        Ok(System::usual(design, tables))
    }

    /// Returns the same system with another counter of references, if it is ours.
    pub fn counting(self, refs: Refs) -> System {
        match self {
            System::Radixvm(design, tables, _, reads) => System::Radixvm(design, tables, refs, reads),
            System::Linux => System::Linux,
        }
    }

    /// Returns the same system with another way of reads to keep pages, if it is ours.
    pub fn reading(self, read_refs: ReadRefs) -> System {
        match self {
            System::Radixvm(design, tables, refs, _) => System::Radixvm(design, tables, refs, read_refs),
            System::Linux => System::Linux,
        }
    }

    /// Returns the same system with the default counters.
    pub fn with_usual_counters(self) -> System {
        self.counting(Refs::Refcache).reading(ReadRefs::Pinned)
    }

    /// Returns its name where there is room.
    pub fn label(self) -> String {
        self.named(self.known().label)
    }

    /// Returns the version of its kernel.
    pub fn version(self) -> Result<String> {
        match self {
            System::Radixvm(..) => Ok(concat!("radixvm ", env!("CARGO_PKG_VERSION")).to_owned()),
            System::Linux => Ok(linux::kernel()?.version.clone()),
        }
    }

    /// Returns a name of our kernel with its unusual options, or of the stock kernel with its version.
    fn named(self, name: &str) -> String {
        match self {
            System::Linux => linux::name(),
            System::Radixvm(..) => format!("{name}{}", self.counted()),
        }
    }

    /// Returns a note about the counters of references that are not the default.
    fn counted(self) -> String {
        let System::Radixvm(_, _, refs, read_refs) = self else { return String::new() };
        let note = |key, word, is_usual| if is_usual { String::new() } else { format!(", {key}={word}") };
        let pages = note(Refs::KEY, refs.word(), refs == Refs::Refcache);
        pages + &note(ReadRefs::KEY, read_refs.word(), read_refs == ReadRefs::Pinned)
    }

    fn known(self) -> &'static Known {
        let usual = self.with_usual_counters();
        KNOWN.iter().find(|known| known.system == usual).expect("every system is in the table")
    }
}

impl ValueEnum for System {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.known().name).help(self.known().label))
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.named(self.known().title))
    }
}

/// Returns the word for an alternative of an option.
pub fn word(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_design_is_in_the_table_and_has_tables() {
        for &(design, ..) in Design::ALL {
            for tables in [None, Some(Tables::Shared)] {
                let system = System::ours(design, tables).unwrap();
                assert!(System::ALL.contains(&system), "{design:?}");
            }
        }
        for tables in [Tables::Percore, Tables::Adaptive] {
            assert!(System::ours(Design::Rwlock, Some(tables)).is_err());
            assert!(System::ALL.contains(&System::ours(Design::Radix, Some(tables)).unwrap()));
        }
    }
}

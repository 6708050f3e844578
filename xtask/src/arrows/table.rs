//! The rooms of each unit, from the bottom to the top.

/// A crate whose folders are rooms.
pub struct Unit {
    /// Its folder of sources, from the repository's root.
    pub source: &'static str,
    /// Its rooms, from the bottom to the top.
    pub rooms: &'static [Room],
    /// Pairs of rooms of which the lower names the upper in spite of the rule.
    pub exceptions: &'static [Exception],
}

/// A part of a unit.
pub struct Room {
    pub name: &'static str,
    /// Files and folders below the unit's folder. Where several rooms have a path to a file, the longest
    /// counts.
    pub paths: &'static [&'static str],
    /// The room's description in ARCHITECTURE.md.
    pub what: &'static str,
}

/// A pair of rooms that violates the order.
pub struct Exception {
    pub from: &'static str,
    pub to: &'static str,
    /// The reason why it is still there.
    pub why: &'static str,
}

/// The units whose rooms are checked.
pub const UNITS: [Unit; 2] = [KERNEL, VM];

const KERNEL: Unit = Unit {
    source: "kernel/src",
    rooms: &[
        Room {
            name: "base",
            paths: &["above.rs", "arch/per_core.rs", "bytes.rs", "counters.rs", "options.rs"],
            what: "per-core values and counters, the kernel's command line, parts of slices, calls to rooms above",
        },
        Room {
            name: "arch",
            paths: &["arch"],
            what: "x86-64: CPUs, interrupts, clocks, page tables, copies to and from user memory",
        },
        Room {
            name: "control",
            paths: &["control.rs", "control"],
            what: "the control port: one JSON object per line",
        },
        Room {
            name: "mm",
            paths: &["mm"],
            what: "frames, the heap, epochs, address spaces, mappings of files",
        },
        Room {
            name: "users",
            paths: &["users"],
            what: "credentials of threads: users, groups, capabilities",
        },
        Room { name: "sched", paths: &["sched"], what: "tasks, run queues, timers, sleeping" },
        Room { name: "fs", paths: &["fs"], what: "files, folders, pipes, descriptors, the host's files" },
        Room {
            name: "process",
            paths: &["process"],
            what: "processes, threads, signals, futexes, faults of programs, reclaim",
        },
        Room { name: "procfs", paths: &["procfs"], what: "/proc and /sys" },
        Room { name: "syscall", paths: &["syscall"], what: "Linux calls, one function each" },
        Room { name: "trap", paths: &["trap.rs"], what: "which room handles which trap" },
        Room {
            name: "main",
            paths: &["main.rs", "panic.rs"],
            what: "the boot, and the kernel's own failure",
        },
    ],
    exceptions: &[],
};

const VM: Unit = Unit {
    source: "crates/vm/src",
    rooms: &[
        Room { name: "types", paths: &["types"], what: "pages and other units, mappings, regions, counts" },
        Room {
            name: "machine",
            paths: &["machine"],
            what: "the seam below: the traits of a machine, their contract, parts to build a machine from",
        },
        Room {
            name: "space",
            paths: &["space"],
            what: "the seam above: the trait that a kernel calls, its errors, moves in pieces",
        },
        Room {
            name: "placement",
            paths: &["placement"],
            what: "where a mapping goes when the caller does not say",
        },
        Room {
            name: "leaf",
            paths: &["leaf"],
            what: "leaves that serve as page tables, and the cores that walk them",
        },
        Room {
            name: "page_word",
            paths: &["page_word"],
            what: "what is kept for each page: mapping, frame, cores that translate it",
        },
        Room {
            name: "protocol",
            paths: &["protocol"],
            what: "faults, shootdowns, sharing and moves, on pages whose slots are locked",
        },
        Room { name: "radix", paths: &["radix"], what: "the design: a radix map of page words" },
        Room { name: "lib", paths: &["lib.rs"], what: "what the crate offers" },
    ],
    exceptions: &[],
};

//! Program files made by hand. Files that Linux runs can be run, and the others are refused with a reason.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use crate::harness::{radixvm, run, scratch};

const LOAD: u32 = 1;
const FIXED: u16 = 2;
const INDEPENDENT: u16 = 3;
const BASE: u64 = 0x40_0000;
const USER_END: u64 = 0x7fff_ffff_f000;
/// A page of the main thread's stack.
const STACK: u64 = 0x5555_5543_f000;
/// exit(0)
const CODE: [u8; 9] = [0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05];
const HEADER: usize = 64;
const SEGMENT: usize = 56;

/// A program header: the offset in the file, the address in memory, and the bytes in both.
#[derive(Clone, Copy)]
struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    file_size: u64,
    memory_size: u64,
}

/// The whole file, readable, writable and executable.
const ALL: Segment = Segment { kind: LOAD, offset: 0, address: BASE, file_size: 192, memory_size: 192 };
const NOTHING: Segment = Segment { file_size: 0, memory_size: 0, ..ALL };

/// Returns a file with two program headers and the code behind them.
fn file(kind: u16, entry: u64, segments: [Segment; 2]) -> Vec<u8> {
    let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
    bytes.resize(16, 0);
    bytes.extend([kind, 62].map(u16::to_le_bytes).concat());
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend([entry, HEADER as u64, 0].map(u64::to_le_bytes).concat());
    bytes.extend(0_u32.to_le_bytes());
    bytes.extend([HEADER as u16, SEGMENT as u16, 2, 0, 0, 0].map(u16::to_le_bytes).concat());
    for segment in segments {
        let Segment { kind, offset, address, file_size, memory_size } = segment;
        bytes.extend([kind, 7].map(u32::to_le_bytes).concat());
        bytes.extend([offset, address, address, file_size, memory_size, 4096].map(u64::to_le_bytes).concat());
    }
    bytes.extend(CODE);
    bytes.resize(ALL.file_size as usize, 0);
    bytes
}

fn entry() -> u64 {
    BASE + (HEADER + 2 * SEGMENT) as u64
}

fn stored(name: &str, content: &[u8]) -> String {
    let path = scratch("programs").join(name);
    std::fs::write(&path, content).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

/// Stores a file that is valid except for its second segment.
fn with(name: &str, second: Segment) -> String {
    stored(name, &file(FIXED, entry(), [ALL, second]))
}

#[test]
fn empty_segments_may_have_any_address() {
    for (name, address) in [("empty-below", 0), ("empty-at-the-end", USER_END), ("empty-above", 1 << 63)] {
        let run = run(&[], &[&with(name, Segment { address, ..NOTHING })]);
        assert_eq!(run.status, 0, "{name}: {run:?}");
    }
}

#[test]
fn errors_in_a_file_are_reported() {
    let segment = |name, second| (name, with(name, second));
    let cases = [
        (segment("above", Segment { address: 1 << 63, ..ALL }), "outside of user space"),
        (segment("over-the-end", Segment { memory_size: USER_END, ..ALL }), "outside of user space"),
        (segment("below", Segment { address: 0, ..ALL }), "outside of user space"),
        (segment("endless", Segment { memory_size: u64::MAX, ..ALL }), "outside of user space"),
        (segment("on-the-stack", Segment { address: STACK, ..ALL }), "overlaps the stack"),
        (segment("misplaced", Segment { address: BASE + 1, ..ALL }), "different offsets"),
        (segment("shrinking", Segment { memory_size: 100, ..ALL }), "longer in the file"),
        (("idle", stored("idle", &file(FIXED, entry(), [NOTHING; 2]))), "no segment to load"),
    ];
    for ((name, path), why) in cases {
        let output = radixvm().args(["run", &path]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        let said = text.contains("cannot be run: ENOEXEC") && text.contains(why);
        assert_eq!((output.status.code(), said), (Some(126), true), "{name}: {text}");
    }
}

/// There is no code at the entry, and no section tells where the code is.
#[test]
fn a_crash_of_a_program_without_sections_is_explained() {
    let all = Segment { address: 0, ..ALL };
    let run = run(&[], &[&stored("lost", &file(INDEPENDENT, u64::MAX, [all, NOTHING]))]);
    assert_eq!(run.status, 128 + 11, "{run:?}");
    assert!(run.stderr.contains("SIGSEGV") && run.stderr.ends_with(" ?\n"), "{run:?}");
}

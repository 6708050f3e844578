//! The same static ELF file gives the same output here and in a guest, whoever made it.

use crate::harness::{Compiler, compiled, here, run_with};

/// Runs a C program everywhere and compares.
fn same(compiler: Compiler, name: &str, options: &[&str], arguments: &[&str], stdin: &[u8]) {
    let program = compiled(name, compiler);
    let words: Vec<&str> = [program.as_str()].iter().chain(arguments).copied().collect();
    let (stdout, status) = here(&words, stdin);
    let run = run_with(options, &words, stdin);
    assert_eq!(Some(run.status), status, "{run:?}");
    assert_eq!(run.text(), String::from_utf8_lossy(&stdout), "{}", run.stderr);
}

/// Every C program under one compiler.
macro_rules! made_by {
    ($($module:ident: $compiler:expr;)*) => {$(
        mod $module {
            use super::{same, Compiler::*};

            #[test]
            fn arguments_environment_and_status() {
                same($compiler, "hello", &[], &["7", "two words", ""], b"");
            }

            #[test]
            fn threads() {
                same($compiler, "pthreads", &["-c", "4"], &["16"], b"");
            }

            #[test]
            fn signals() {
                same($compiler, "signals", &["-c", "2"], &[], b"");
            }

            #[test]
            fn signal_frames() {
                same($compiler, "frames", &[], &[], b"");
            }

            #[test]
            fn exceptions() {
                same($compiler, "faults", &[], &[], b"");
            }

            #[test]
            fn clocks() {
                same($compiler, "time", &["-c", "2"], &[], b"");
            }

            #[test]
            fn files() {
                let text = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
                same($compiler, "files", &["--file", text], &[text], b"");
            }

            #[test]
            fn names() {
                same($compiler, "names", &["-c", "2"], &[], b"");
            }

            #[test]
            fn mappings_of_files() {
                let text = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
                same($compiler, "mappings", &["--file", text, "-c", "2"], &[text], b"");
            }

            #[test]
            fn mappings_that_move() {
                same($compiler, "remap", &["-c", "2"], &[], b"");
            }

            #[test]
            fn pipes() {
                same($compiler, "pipes", &["-c", "4"], &["6", "200"], b"");
            }

            #[test]
            fn processes() {
                same($compiler, "processes", &["-c", "4"], &[], b"");
            }

            #[test]
            fn programs() {
                same($compiler, "programs", &["-c", "2"], &[], b"");
            }

            #[test]
            fn standard_input() {
                same($compiler, "stdin", &[], &["7"], b"a line\nand an unfinished one");
            }
        }
    )*};
}

made_by! {
    glibc_static: Static;
    glibc_static_pie: StaticPie;
    musl: Musl;
}

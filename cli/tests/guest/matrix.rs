//! Every kind of mapping under every call, on this machine and in a guest.

use crate::harness::{Compiler, compiled, here, run};

/// The expected answers are those of the Linux that runs the tests. Exceptions are named in the program, with
/// the reason.
#[test]
fn every_call_on_every_mapping_answers_as_on_linux() {
    let program = compiled("matrix", Compiler::Musl);
    let (expected, status) = here(&[&program], b"");
    assert_eq!(status, Some(0));
    let expected = String::from_utf8(expected).unwrap();
    for tables in ["adaptive", "percore", "shared"] {
        let run = run(&["-c", "2", "--tables", tables], &[&program]);
        let text = run.text();
        let differing: Vec<_> =
            expected.lines().zip(text.lines()).filter(|(linux, ours)| linux != ours).collect();
        assert!(differing.is_empty(), "{tables}: {differing:#?}");
        assert_eq!((run.status, text.lines().count()), (0, expected.lines().count()), "{tables}");
    }
}

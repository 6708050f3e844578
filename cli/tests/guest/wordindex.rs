//! The application: the same index at every size, with every kind of tables, and on this machine.

use serde_json::Value;

use crate::harness::{here, radixvm, root, run};

const ARGUMENTS: [&str; 3] = ["--repeat", "4", "--json"];

fn text() -> String {
    root().join("LICENSE-APACHE").display().to_string()
}

fn index(cpus: &str, tables: &str, block: &str) -> Value {
    let text = text();
    let words =
        ["wordindex", "--threads", cpus, "--block", block, ARGUMENTS[0], ARGUMENTS[1], ARGUMENTS[2], &text];
    run(&["-c", cpus, "--tables", tables, "--file", &text], &words).report()
}

/// The digest that this machine's own kernel gives. The file is found the way a person would: from a dry run.
fn digest_here() -> Value {
    let output = radixvm().args(["run", "--dry-run", "wordindex"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let line = String::from_utf8(output.stdout).unwrap();
    let image = line.split(' ').skip_while(|word| *word != "-initrd").nth(1).expect("it names the image");
    let program = crate::launching::program_in(&std::fs::read(image).unwrap());
    let words =
        [program.to_str().unwrap(), "--threads", "2", ARGUMENTS[0], ARGUMENTS[1], ARGUMENTS[2], &text()];
    let (stdout, status) = here(&words, b"");
    assert_eq!(status, Some(0));
    serde_json::from_slice::<Value>(&stdout).unwrap()["digest"].clone()
}

#[test]
fn the_index_is_the_same_everywhere() {
    let expected = digest_here();
    for tables in ["percore", "shared", "adaptive"] {
        for cpus in ["1", "2", "4", "8"] {
            let report = index(cpus, tables, "64K");
            assert_eq!(report["digest"], expected, "{cpus} CPUs, {tables}: {report}");
        }
    }
}

#[test]
fn large_blocks_make_few_mmaps_and_the_same_index() {
    let (small, large) = (index("4", "percore", "64K"), index("4", "percore", "8M"));
    assert_eq!(small["digest"], large["digest"]);
    assert!(small["mmaps"].as_u64().unwrap() > 2 * large["mmaps"].as_u64().unwrap(), "{small} {large}");
}

//! A host that instantiates a module of WebAssembly for each request, by wasmtime.

use std::path::PathBuf;
use std::process::Command;

use crate::{WAYS, in_way, see};

/// Builds the host, which takes some minutes the first time.
fn host() -> PathBuf {
    let (root, target) = (launch::place::root(), launch::place::target().join("wasm"));
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--quiet", "--locked", "--release", "--manifest-path"]);
    let status = cargo.arg(root.join("user/wasm/Cargo.toml")).arg("--target-dir").arg(&target).status();
    assert!(status.expect("cargo starts").success(), "user/wasm cannot be built");
    target.join("release/radixvm-wasm")
}

/// Its sums are the same in each way, whatever memories it takes. `./radixvm test fuzz wasm` runs it.
#[test]
#[ignore = "a build of minutes: `./radixvm test fuzz wasm`"]
fn wasm_has_the_same_results() {
    let host = host();
    for allocator in ["on-demand", "small", "pooling"] {
        for (threads, data) in [("1", "0"), ("3", "0"), ("3", "30000")] {
            let run = |way: &[&str]| {
                let mut command = in_way(way, &host);
                command.args(["--threads", threads, "--requests", "6000"]);
                command.args(["--data", data, "--allocator", allocator]);
                let seen = see(command);
                (seen.status, seen.text)
            };
            let plain = run(&[]);
            assert!(plain.0 == Some(0) && plain.1.trim().parse::<u64>().is_ok(), "{plain:?}");
            for way in WAYS.into_iter().chain([&["--isolate"][..]]) {
                assert_eq!(plain, run(way), "{way:?} {allocator}, {threads} threads, {data} bytes of data");
            }
        }
    }
}

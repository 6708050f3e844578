//! Runs the programs on the Linux they are built on. A guest run is compared with this, so it must be right
//! first.

use serde_json::Value;
use std::process::{Command, Output};

fn run(program: &str, line: &str) -> Output {
    let arguments = line.split_whitespace();
    Command::new(program).args(arguments).output().expect("the program starts")
}

fn json(program: &str, line: &str) -> Value {
    let output = run(program, line);
    assert!(output.status.success(), "{program} {line}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

const BENCHMARKS: [(&str, &str); 3] = [
    ("local", env!("CARGO_BIN_EXE_local")),
    ("pipeline", env!("CARGO_BIN_EXE_pipeline")),
    ("global", env!("CARGO_BIN_EXE_global")),
];

#[test]
fn benchmarks_do_every_round_on_every_number_of_threads() {
    for (name, program) in BENCHMARKS {
        for threads in [1, 2, 5] {
            let report = json(program, &format!("--threads {threads} --pages 3 --iterations 20 --json"));
            assert_eq!(report["program"], name);
            assert_eq!(report["rounds"], threads * 20);
            // Every round maps fresh memory and writes to it.
            assert!(report["minor_faults"].as_u64().unwrap() >= threads * 20, "{name}: {report}");
        }
    }
}

#[test]
fn the_warm_up_is_not_counted() {
    for warm_up in [0, 300] {
        let report = json(
            env!("CARGO_BIN_EXE_local"),
            &format!("--threads 2 --iterations 20 --warmup {warm_up} --json"),
        );
        assert_eq!((&report["rounds"], &report["warmup"]), (&40.into(), &warm_up.into()));
        assert!(report["minor_faults"].as_u64().unwrap() < 300, "{report}");
    }
}

#[test]
fn faultstorm_touches_a_page_every_round() {
    for (threads, mappers) in [(1, 0), (2, 1), (5, 2), (3, 0)] {
        let line = format!("--threads {threads} --mappers {mappers} --pages 7 --iterations 100 --json");
        let report = json(env!("CARGO_BIN_EXE_faultstorm"), &line);
        assert_eq!((&report["rounds"], &report["mappers"]), (&(threads * 100).into(), &mappers.into()));
        let faults = report["minor_faults"].as_u64().unwrap();
        assert!(faults >= (threads - mappers) * 100 && faults < (threads - mappers) * 100 + 100, "{report}");
    }
    let report = json(env!("CARGO_BIN_EXE_faultstorm"), "--threads 4 --iterations 10 --json");
    assert_eq!(report["mappers"], 2);
    let output = run(env!("CARGO_BIN_EXE_faultstorm"), "--threads 2 --mappers 2");
    assert!(String::from_utf8_lossy(&output.stderr).contains("--mappers 2: give a whole number from 0 to 1"));
}

#[test]
fn one_thread_of_faultstorm_maps_for_a_fraction_of_its_time() {
    for (threads, fraction, mappers) in [(1, 50, 0), (3, 0, 1), (2, 10, 1), (2, 100, 1)] {
        let line = format!("--threads {threads} --mmap-fraction {fraction} --iterations 100 --json");
        let report = json(env!("CARGO_BIN_EXE_faultstorm"), &line);
        assert_eq!((&report["mappers"], &report["mmap_fraction"]), (&mappers.into(), &fraction.into()));
        assert_eq!(report["rounds"], threads * 100);
    }
    for wrong in ["101", "-1", "half"] {
        let output = run(env!("CARGO_BIN_EXE_faultstorm"), &format!("--mmap-fraction={wrong}"));
        assert_eq!(output.status.code(), Some(2), "{wrong}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("--mmap-fraction"), "{wrong}");
    }
}

#[test]
fn microbenchmarks_do_their_rounds_apart_and_in_one_region() {
    let touching = ["mmap-PF", "PF"];
    for kind in ["mmap", "mmap-PF", "PF", "unmap-virt", "unmap", "mprotect"] {
        for contention in ["low", "high"] {
            let line =
                format!("{kind} --contention {contention} --threads 3 --pages 2 --iterations 50 --json");
            let report = json(env!("CARGO_BIN_EXE_microbench"), &line);
            assert_eq!((&report["kind"], &report["contention"]), (&kind.into(), &contention.into()));
            assert_eq!(report["rounds"], 150);
            let faults = report["minor_faults"].as_u64().unwrap();
            assert_eq!(faults >= 300, touching.contains(&kind), "{report}");
        }
    }
    for wrong in ["", "brk", "mmap PF", "PF --contention some", "PF --iterations 1000000"] {
        assert!(!run(env!("CARGO_BIN_EXE_microbench"), wrong).status.success(), "{wrong}");
    }
}

#[test]
fn calls_touch_what_their_kinds_say() {
    let kinds = [
        ("map", 20..40),
        ("stack", 20..40),
        ("discard", 40..60),
        ("protect", 0..20),
        ("mincore", 0..20),
        ("scattered", 0..20),
        // The C library of the machine that runs the tests may keep stacks.
        ("thread", 0..60),
        ("kept-thread", 0..20),
        ("maps", 0..20),
        ("stat", 0..20),
    ];
    for (kind, faults) in kinds {
        let line = format!("{kind} --threads 1 --pages 512 --iterations 20 --warmup 8 --json");
        let report = json(env!("CARGO_BIN_EXE_calls"), &line);
        assert_eq!((&report["kind"], &report["rounds"]), (&kind.into(), &20.into()));
        assert!(faults.contains(&report["minor_faults"].as_u64().unwrap()), "{report}");
    }
    for wrong in ["", "brk", "scattered --threads 2", "scattered --pages 4096 --iterations 9"] {
        assert!(!run(env!("CARGO_BIN_EXE_calls"), wrong).status.success(), "{wrong}");
    }
}

#[test]
fn readers_share_a_file() {
    let report = json(env!("CARGO_BIN_EXE_readers"), "--threads 3 --pages 2 --iterations 10 --json");
    assert_eq!((&report["rounds"], &report["pages"]), (&30.into(), &2.into()), "{report}");
    assert_eq!(run(env!("CARGO_BIN_EXE_readers"), "--pages 65").status.code(), Some(2));
}

#[test]
fn drbh_reads_by_processes_and_by_threads() {
    for by in ["", "--by-threads", "--mapped", "--noise 1 --beside extends", "--noise 1 --beside truncates"] {
        let line = format!("--threads 3 --bytes 64 --iterations 10 --json {by}");
        let report = json(env!("CARGO_BIN_EXE_drbh"), &line);
        assert_eq!((&report["rounds"], &report["iterations"]), (&30.into(), &10.into()), "{report}");
    }
    for bytes in ["0", "4097"] {
        assert_eq!(run(env!("CARGO_BIN_EXE_drbh"), &format!("--bytes {bytes}")).status.code(), Some(2));
    }
}

#[test]
fn kvread_reads_points_and_scans() {
    for what in ["", "--scan", "--by-threads", "--scan --by-threads --records 1", "--mapped --records 17000"]
    {
        let report =
            json(env!("CARGO_BIN_EXE_kvread"), &format!("--threads 3 --iterations 50 --json {what}"));
        assert_eq!((&report["rounds"], &report["iterations"]), (&150.into(), &50.into()), "{report}");
    }
    assert_eq!(run(env!("CARGO_BIN_EXE_kvread"), "--records 0").status.code(), Some(2));
}

#[test]
fn webserve_answers_every_request() {
    for what in ["", "--mapped", "--bytes 4096"] {
        let line = format!("--threads 3 --iterations 50 --json {what}");
        let report = json(env!("CARGO_BIN_EXE_webserve"), &line);
        assert_eq!((&report["rounds"], &report["iterations"]), (&150.into(), &50.into()), "{report}");
    }
    assert_eq!(run(env!("CARGO_BIN_EXE_webserve"), "--bytes 0").status.code(), Some(2));
}

#[test]
fn neighbours_map_and_touch_every_round() {
    for (threads, pages) in [(1, 1), (2, 7), (65, 2)] {
        let line = format!("--threads {threads} --pages {pages} --iterations 10 --json");
        let report = json(env!("CARGO_BIN_EXE_neighbours"), &line);
        assert_eq!(report["rounds"], threads * 10);
        assert!(report["minor_faults"].as_u64().unwrap() >= threads * pages * 10, "{report}");
    }
    assert_eq!(run(env!("CARGO_BIN_EXE_neighbours"), "--pages 8").status.code(), Some(2));
}

#[test]
fn pageshare_faults_in_every_round() {
    for (threads, kind) in [(1, ""), (3, ""), (3, "--keep"), (3, "--again")] {
        let line = format!("--threads {threads} --iterations 50 {kind} --json");
        let report = json(env!("CARGO_BIN_EXE_pageshare"), &line);
        assert_eq!(
            (&report["rounds"], &report["keep"], &report["again"]),
            (&(threads * 50).into(), &(kind == "--keep").into(), &(kind == "--again").into())
        );
        assert!(report["minor_faults"].as_u64().unwrap() >= threads * 50, "{report}");
    }
}

/// The program checks by itself that every lookup finds its region.
#[test]
fn treelookup_reads_beside_writers() {
    for map in ["radix", "skiplist", "bonsai"] {
        for (threads, writers) in [(1, 0), (3, 2)] {
            let line = format!("--map {map} --threads {threads} --writers {writers} --lookups 20000 --json");
            let report = json(env!("CARGO_BIN_EXE_treelookup"), &line);
            // Batches of 64.
            assert_eq!(
                (&report["map"], &report["lookups"]),
                (&map.into(), &((threads - writers) * 19968).into())
            );
            assert!(report["lookups_per_s"].as_f64().unwrap() > 0.0);
            assert_eq!(report["changes"].as_u64().unwrap() > 0, writers > 0, "{report}");
        }
    }
    let output = run(env!("CARGO_BIN_EXE_treelookup"), "--map list");
    assert!(String::from_utf8_lossy(&output.stderr).contains("radix, skiplist or bonsai"));
}

/// The programs check by themselves that every access took place, in its turn.
#[test]
fn probes_of_every_kind_take_their_turns() {
    let transfers = |kind: &str, threads: u64| {
        let report =
            json(env!("CARGO_BIN_EXE_probe"), &format!("{kind} --threads {threads} --iterations 30 --json"));
        assert_eq!((&report["kind"], &report["rounds"]), (&kind.into(), &(threads * 30).into()));
        let expected = &report["expected_transfers"];
        (expected["turn"].as_u64().unwrap(), expected["access"].as_u64().unwrap())
    };
    for kind in ["private", "read-mostly", "shared", "false-sharing", "ping-pong", "readers"] {
        assert_eq!(transfers(kind, 1), (0, 0), "{kind}");
        transfers(kind, 5);
    }
    assert_eq!(
        (transfers("shared", 2), transfers("ping-pong", 2), transfers("readers", 3)),
        ((2, 1), (2, 0), (2, 1))
    );
    for wrong in ["", "shard", "shared private", "false-sharing --threads 65"] {
        assert_eq!(run(env!("CARGO_BIN_EXE_probe"), wrong).status.code(), Some(2), "{wrong}");
    }
}

#[test]
fn show_writes_a_file_as_it_is() {
    let file = env!("CARGO_BIN_EXE_show");
    assert_eq!(run(file, file).stdout, std::fs::read(file).unwrap());
    assert!(!run(file, "/proc/kallsyms").stdout.is_empty());
    assert_eq!(run(file, "/no/such/file").status.code(), Some(1));
    assert_eq!(run(file, "").status.code(), Some(2));
}

#[test]
fn wordindex_finds_the_same_index_with_any_threads_and_blocks() {
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/src/bin/hostile/files.rs");
    let digest = |options: &str| {
        let report = json(env!("CARGO_BIN_EXE_wordindex"), &format!("{options} --json {text}"));
        (report["digest"].clone(), report["words"].clone())
    };
    let expected = digest("--threads 1");
    for options in ["--threads 2 --block 8M", "--threads 7 --block 4K", "--threads 3 --block 100000"] {
        assert_eq!(digest(options), expected, "{options}");
    }
    assert_ne!(digest("--repeat 2"), expected);
}

#[test]
fn textindex_finds_the_same_index_with_any_threads_and_buffers() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    let index = |options: &str| json(env!("CARGO_BIN_EXE_textindex"), &format!("{options} --json {folder}"));
    let expected = index("--threads 1");
    for options in ["--threads 2 --buffer 64K", "--threads 7 --slots 3", "--threads 3 --buffer 5000"] {
        let report = index(options);
        for key in ["digest", "words", "distinct", "files", "bytes"] {
            assert_eq!(report[key], expected[key], "{options}: {key}");
        }
        assert!(report["mmaps"].as_u64() > report["files"].as_u64(), "a buffer for each file");
    }
    let found = index("--find MUNMAP")["found"].clone();
    let (file, at) = (found[0][0].as_str().unwrap(), found[0][1].as_u64().unwrap() as usize);
    assert!(std::fs::read(file).unwrap()[at..at + 6].eq_ignore_ascii_case(b"munmap"), "{found}");
}

#[test]
fn dedup_makes_the_same_archive_with_any_threads_and_restores_it() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.lock");
    let archive = concat!(env!("CARGO_TARGET_TMPDIR"), "/Cargo.lock.dedup");
    let pack = |options: &str| {
        json(env!("CARGO_BIN_EXE_dedup"), &format!("{options} --block 16K --repeat 3 --json {file}"))
    };
    let expected = pack("--threads 1");
    for threads in [2, 3, 8] {
        assert_eq!(pack(&format!("--threads {threads} --output {archive}"))["digest"], expected["digest"]);
    }
    let once = std::fs::read(file).unwrap();
    assert!(expected["archive"].as_u64().unwrap() < once.len() as u64, "{expected}");
    assert_eq!(expected["buffers"].as_u64().unwrap(), 2 * expected["blocks"].as_u64().unwrap());
    let restored = run(env!("CARGO_BIN_EXE_dedup"), &format!("--restore {archive}"));
    assert!(restored.stdout == once.repeat(3), "{} bytes", restored.stdout.len());
    let restored = run(env!("CARGO_BIN_EXE_dedup"), &format!("--restore {file}"));
    assert_eq!(restored.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&restored.stderr).contains("not an archive"));
}

#[test]
fn vmstress_finds_linux_right() {
    for line in ["--threads 4 --operations 2000", "--threads 3 --pages 7 --operations 2000 --seed 9"] {
        let report = json(env!("CARGO_BIN_EXE_vmstress"), &format!("{line} --json"));
        assert!(report["operations"].as_u64().unwrap() >= 6000);
    }
}

#[test]
fn hostile_expects_what_linux_does() {
    let output = run(env!("CARGO_BIN_EXE_hostile"), "");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("passed, 0 failed\n"));
}

#[test]
fn exhaust_stops_at_its_limit() {
    for line in ["--limit 3M", "--limit 30M --reserve"] {
        let output = run(env!("CARGO_BIN_EXE_exhaust"), line);
        assert!(output.status.success());
        assert!(output.stdout.ends_with(b"exhaust: limit reached\n"));
    }
}

#[test]
fn bad_options_end_with_status_2_and_name_the_option() {
    for (_, program) in BENCHMARKS {
        let output = run(program, "--threads none");
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains("--threads none"));
    }
    for program in
        [env!("CARGO_BIN_EXE_wordindex"), env!("CARGO_BIN_EXE_textindex"), env!("CARGO_BIN_EXE_dedup")]
    {
        assert_eq!(run(program, "").status.code(), Some(2));
        assert_eq!(run(program, "--block x --buffer x /tmp").status.code(), Some(2));
        let output = run(program, "/no/such/text");
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stderr).contains("/no/such/text"));
    }
}

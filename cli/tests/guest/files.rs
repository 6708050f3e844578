//! Mapped files when there is little memory.

use std::fs;
use std::os::unix::fs::FileExt;

use crate::harness::{Compiler, compiled, here, radixvm, run, scratch};

/// Makes a file of this many pages, none of which is zero, for the boot image.
fn big_file(pages: usize) -> String {
    let path = scratch("files").join("big");
    let words = (1..=pages as u64 * 512).map(|word| word.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    fs::write(&path, words.flatten().collect::<Vec<u8>>()).unwrap();
    format!("{}:/big", path.display())
}

/// The boot image takes half of the memory, and the rest is smaller than the file. So its pages are dropped
/// again and again while three threads read them.
#[test]
fn a_file_that_does_not_fit_into_memory_is_read_by_mapping() {
    let file = big_file(8192);
    for tables in ["adaptive", "percore", "shared"] {
        let options = ["-m", "68M", "-c", "2", "--tables", tables, "--file", &file];
        let run = run(&options, &[&compiled("bigfile", Compiler::Static), "/big", "3"]);
        assert!(run.status == 0 && run.text().starts_with("bigfile: 8192 pages"), "{run:?}");
        assert!(run.counter("pages_reclaimed") > 0, "{run:?}");
    }
}

/// Four processes on four CPUs have all pages of a file, which are dropped 512 at a time. A step interrupts
/// the three other CPUs at most.
#[test]
fn reclaim_interrupts_those_that_share_a_file_once_per_batch() {
    let path = scratch("sharers").join("big");
    fs::write(&path, (0..4096u32).flat_map(|page| [1 + (page % 255) as u8; 4096]).collect::<Vec<u8>>())
        .unwrap();
    let file = format!("{}:/big", path.display());
    for tables in ["adaptive", "percore", "shared"] {
        let options = ["-m", "36M", "-c", "4", "--tables", tables, "--file", &file];
        let run = run(&options, &[&compiled("sharers", Compiler::Musl), "/big", "4", "10"]);
        assert!(run.status == 0 && run.text() == "sharers: done\n", "{run:?}");
        let [pages, invalidations, interrupted] =
            ["pages_reclaimed", "shootdowns", "ipi_targets"].map(|name| run.counter(name));
        assert!(pages >= 4096 && invalidations > 0, "{tables}: {run:?}");
        assert!(interrupted <= pages / 128, "{tables}: {interrupted} interrupted for {pages} pages");
    }
}

/// Three processes that compute have all pages of a file, which another one's memory needs. Each batch of 512
/// interrupts each of them once.
#[test]
fn reclaim_interrupts_each_sharer_once_per_batch() {
    let path = scratch("pressed").join("big");
    fs::write(&path, vec![7; 16 << 20]).unwrap();
    let file = format!("{}:/big", path.display());
    for tables in ["adaptive", "percore", "shared"] {
        let options = ["-m", "44M", "-c", "4", "--tables", tables, "--file", &file];
        let run = run(&options, &[&compiled("sharers", Compiler::Musl), "/big", "3", "1", "press"]);
        assert!(run.status == 0 && run.text() == "sharers: done\n", "{run:?}");
        let [pages, interrupted] = ["pages_reclaimed", "ipi_targets"].map(|name| run.counter(name));
        assert!(pages >= 512, "{tables}: {run:?}");
        assert!((1..=3 * (pages / 512 + 1)).contains(&interrupted), "{tables}: {interrupted} of {pages}");
    }
}

/// Pages that can be made again are dropped on request, with each kind of page table.
#[test]
fn pages_that_are_not_needed_are_dropped_if_they_can_be_made_again() {
    let path = scratch("files").join("dropped");
    let bytes: Vec<u8> = (0..600 * 4096 + 100).map(|at: u32| (at / 4096 + at) as u8 | 1).collect();
    fs::write(&path, bytes).unwrap();
    let file = format!("{}:/dropped", path.display());
    for tables in ["adaptive", "percore", "shared"] {
        let options = ["-c", "2", "--tables", tables, "--file", &file];
        let run = run(&options, &[&compiled("dontneed", Compiler::Musl), "/dropped"]);
        assert!(run.status == 0 && run.text().lines().count() == 19, "{run:?}");
    }
}

/// A request for more room than there is fails, and others can use the room.
#[test]
fn room_that_is_refused_is_not_taken() {
    let run = run(&["-m", "64M"], &[&compiled("reserve", Compiler::Musl)]);
    assert!(run.status == 0 && run.text() == "file: ok\nreserve: done\n", "{run:?}");
}

/// A file is larger than all memory of the guest, beside small ones. Stock Linux reads it from a disk, as a
/// regular file.
#[test]
fn stock_linux_gets_files_that_its_memory_has_no_room_for() {
    let folder = scratch("large");
    let large = fs::File::create(folder.join("large")).unwrap();
    large.set_len(200 << 20).unwrap();
    large.write_all_at(b"somewhere", 150 << 20).unwrap();
    fs::write(folder.join("small"), "small").unwrap();
    fs::copy(compiled("total", Compiler::Static), folder.join("program")).unwrap();
    let file_arg = format!("{}:/in put", folder.display());
    let starter = compiled("starter", Compiler::Static);
    let words = ["/in put/program", "/in put/large"];
    let mut command = radixvm();
    command.args(["run", "--system", "linux", "-m", "128M", "--file", &file_arg, "--", &starter]).args(words);
    let output = command.output().unwrap();
    let (expected, _) =
        here(&[compiled("total", Compiler::Static).as_str(), folder.join("large").to_str().unwrap()], b"");
    assert!(output.status.success() && expected.len() > 5, "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&expected));
}

//! Huge pages, by the option of the command and by the advice of programs.

use crate::harness::{Compiler, compiled, run};

/// Returns how many huge pages are made of small ones, in a heap of `mib` MiB that grows page by page.
fn promotions(options: &[&str], mib: u64) -> i64 {
    let run = run(options, &[&compiled("collapse", Compiler::Static), "fill", &mib.to_string()]);
    assert_eq!(run.status, 0, "{run:?}");
    run.counter("promotions")
}

#[test]
fn a_heap_that_grows_has_huge_pages_in_the_end() {
    for tables in ["adaptive", "percore", "shared"] {
        assert!(promotions(&["--tables", tables], 8) >= 3);
    }
}

#[test]
fn the_kernel_can_run_without_huge_pages() {
    assert_eq!(promotions(&["--huge", "never"], 4), 0);
    assert_eq!(promotions(&["--huge", "madvise"], 4), 0);
    assert!(promotions(&["--huge", "always"], 4) > 0);
}

/// An eighth of the memory is reserved for small pages.
#[test]
fn where_memory_is_short_pages_stay_small() {
    assert!(promotions(&["-m", "32M"], 24) < 11);
}

//! The designs to compare with: programs find the same memory in all of them, and all of it is freed.

use crate::harness::run;

const TREES: [&str; 5] = ["rwlock", "faultlock", "hybrid", "bonsai", "pervma"];

#[test]
fn every_byte_is_right_under_stress_in_every_design() {
    for design in TREES {
        let words = ["vmstress", "--threads", "4", "--operations", "500", "--json"];
        let report = run(&["-c", "4", "--vm", design], &words).report();
        assert!(report["counters"]["shootdowns"].as_u64().unwrap() > 0, "{design}: {report}");
    }
}

#[test]
fn bad_arguments_get_the_same_errors_in_every_design() {
    for design in TREES {
        let run = run(&["-c", "2", "--vm", design], &["hostile"]);
        assert!(run.status == 0 && run.text().ends_with(", 0 failed\n"), "{design}: {run:?}");
    }
}

//! Tests of the cost model: private work, one hot line, a lock, interrupts, and extrapolation.

use super::*;

fn private(instructions: f64) -> Load {
    Load { instructions, ..Load::default() }
}

#[test]
fn private_work_is_linear() {
    let curve = curve(&[(1, private(2400.0)), (4, private(2400.0))]);
    assert_eq!((curve[0].growing, curve[127].growing), (1e6, 128e6));
    assert!(curve.iter().all(|point| point.limit == Limit::Cores && point.growing == point.steady));
}

#[test]
fn pages_are_not_zeroed_for_nothing() {
    let zeroing = Load { iterations: 512.0, ..private(2400.0) };
    assert_eq!(zeroing.cycles(1.0) - private(2400.0).cycles(1.0), 256.0);
    let points = curve(&[(1, zeroing), (4, zeroing)]);
    assert_eq!(points[127].growing, 128.0 * FREQUENCY / (2400.0 + 256.0));
}

#[test]
fn one_hot_line_saturates_whatever_the_number_of_cpus() {
    let add = Load { instructions: 3.0, write: 1.0, hottest: 1.0, ..Load::default() };
    let (speed, limit) = add.throughput(8.0);
    assert_eq!((speed, limit), (FREQUENCY / 115.0, Limit::Line));
    assert!(add.throughput(80.0).0 < speed);
}

#[test]
fn a_lock_held_with_sleepers_limits_and_transfers_lengthen_it() {
    let held = Load { instructions: 1000.0, waiting: 900.0, ..Load::default() };
    assert_eq!(held.throughput(64.0), (FREQUENCY / 900.0, Limit::Lock));
    let moved = Load { write: 1.0, ..held };
    assert!(moved.throughput(64.0).0 < held.throughput(64.0).0);
    assert_eq!(held.throughput(1.0).1, Limit::Cores);
}

#[test]
fn latencies_are_those_of_one_socket_up_to_its_size() {
    assert_eq!((WRITE.cycles(2.0), WRITE.cycles(10.0)), (115.0, 115.0));
    let eighty = WRITE.cycles(80.0);
    assert!(WRITE.cycles(20.0) < eighty && eighty < 384.0, "{eighty}");
}

#[test]
fn interrupts_cost_what_was_published() {
    let all = |cores: f64| answer(cores) + (cores - 1.0) * send(cores);
    assert!((all(16.0) / FREQUENCY - 6e-6).abs() < 1e-9);
    assert!((all(120.0) / FREQUENCY - 80e-6).abs() < 1e-9);
}

#[test]
fn beyond_the_measured_counts_grow_or_stay() {
    let targets = |targets: f64| Load { targets, ..private(5000.0) };
    let points = curve(&[(1, targets(0.0)), (4, targets(3.0)), (8, targets(7.0))]);
    let expected = targets(127.0).throughput(128.0).0;
    assert!((points[127].growing - expected).abs() < 1e-6);
    assert!(points[127].steady > points[127].growing);
    let two = curve(&[(1, targets(0.0)), (2, targets(1.0))]);
    assert_eq!(two[127].growing, two[127].steady);
    assert!(curve(&[]).is_empty());
}

#[test]
fn noise_is_not_taken_for_growth() {
    let noise = |hottest: f64| Load { read_clean: hottest, hottest, ..private(2400.0) };
    let points = curve(&[(32, noise(0.0)), (64, noise(0.05))]);
    assert_eq!((points[127].limit, points[127].growing), (Limit::Cores, points[127].steady));
}

#[test]
fn a_falling_curve_does_not_end_at_zero() {
    let busy = |instructions: f64| Load { waiting: instructions, ..private(instructions) };
    let points = curve(&[(4, busy(1100.0)), (8, busy(1000.0))]);
    assert_eq!(points[127].growing, points[127].steady);
}

#[test]
fn slow_rounds_make_the_low_percentile() {
    let instructions = Summary { median: 100.0, p10: 90.0, p90: 200.0, mean: 120.0 };
    let speed = summary(|pick| private(pick(&instructions)), 1);
    assert!(speed.p10 < speed.mean && speed.mean < speed.median && speed.median < speed.p90);
}

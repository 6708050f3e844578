use super::*;
use std::sync::Barrier;
use std::thread;

impl CpuStates for [CpuState] {
    fn states(&self) -> impl Iterator<Item = &CpuState> {
        self.iter()
    }
}

fn advance(gate: &Gate, cpus: &[CpuState], me: usize, instructions: u64) {
    if cpus[me].advance(instructions) {
        gate.pass(&cpus[me], cpus);
    }
}

fn cpus(count: usize) -> Vec<CpuState> {
    (0..count).map(|_| CpuState::default()).collect()
}

/// Makes the CPU look not ready: the same thread uses both cpus here, so it would wait for itself.
fn no_thread(cpu: &CpuState) {
    cpu.thread.store(u32::MAX, Relaxed);
}

/// Runs `work` for every CPU on a thread of its own.
fn together(count: usize, slack: u64, work: impl Fn(&Gate, &[CpuState], usize) + Sync) -> Gate {
    let (gate, cpus) = (Gate::new(slack), cpus(count));
    gate.open();
    // All are inside before one runs. Otherwise the first may be far ahead when the second enters.
    (0..count).for_each(|me| advance(&gate, &cpus, me, 0));
    let begin = Barrier::new(count);
    thread::scope(|scope| {
        for me in 0..count {
            let (gate, cpus, work, begin) = (&gate, &cpus[..], &work, &begin);
            scope.spawn(move || {
                // It entered on the main thread, which sleeps: one that waits for a core would not be seen.
                cpus[me].thread.store(host::thread(), Relaxed);
                begin.wait();
                work(gate, cpus, me);
            });
        }
    });
    gate
}

#[test]
fn no_cpu_is_further_ahead_than_the_slack_and_a_block() {
    let gate = together(5, 100, |gate, cpus, me| {
        for _ in 0..2_000 {
            advance(gate, cpus, me, 7);
            let mine = cpus[me].clock();
            let least = cpus.iter().filter(|cpu| cpu.phase.load(Relaxed) != OUT).map(CpuState::clock).min();
            assert!(least.is_none_or(|least| mine <= least + 100 + 7), "{mine} and {least:?}");
        }
        gate.leave(&cpus[me]);
    });
    assert!(gate.is_empty());
    assert_eq!(gate.waits_and_escapes().1, 0);
}

#[test]
fn no_cpu_waits_for_one_that_idles() {
    let gate = together(2, 10, |gate, cpus, me| {
        if me == 0 {
            gate.leave(&cpus[0]);
        } else {
            (0..1_000).for_each(|_| advance(gate, cpus, 1, 5));
            gate.leave(&cpus[1]);
        }
    });
    assert!(gate.elapsed() >= 4_000, "the other went on alone: {}", gate.elapsed());
    assert_eq!(gate.waits_and_escapes().1, 0);
}

#[test]
fn a_cpu_comes_back_into_the_quantum_of_the_day() {
    let (gate, cpus) = (Gate::new(10), cpus(2));
    gate.open();
    for turn in 0..50 {
        advance(&gate, &cpus, 0, 0);
        assert!(!gate.leave(&cpus[1]), "it is out");
        (0..100).for_each(|_| advance(&gate, &cpus, 0, 10));
        advance(&gate, &cpus, 1, 3);
        assert_eq!(gate.state().inside, 2);
        assert!(!gate.leave(&cpus[1]), "one stays (turn {turn})");
    }
    assert!(gate.leave(&cpus[0]), "the last one");
}

#[test]
fn a_cpu_that_was_called_is_waited_for_before_its_thread_runs() {
    let (gate, cpus) = (Gate::new(10), cpus(2));
    gate.open();
    advance(&gate, &cpus, 0, 0);
    assert!(!gate.call(&cpus[0]), "it runs");
    assert!(!gate.call(&cpus[1]) && !gate.call(&cpus[1]), "a CPU was inside");
    assert_eq!(gate.state(), State { quantum: 0, inside: 2, missing: 2 });
    thread::scope(|scope| {
        scope.spawn(|| advance(&gate, &cpus, 0, 10));
        while gate.state().missing == 2 {
            thread::yield_now();
        }
        assert_eq!(gate.elapsed(), 0);
        gate.leave(&cpus[1]);
    });
    assert_eq!(gate.state(), State { quantum: 1, inside: 1, missing: 1 });
}

#[test]
fn waking_takes_time_by_the_gate() {
    let (gate, cpus) = (Gate::new(10), cpus(1));
    gate.open();
    gate.call(&cpus[0]);
    advance(&gate, &cpus, 0, 0);
    assert_eq!((gate.elapsed(), cpus[0].clock()), (WAKING, 0));
}

#[test]
fn a_call_for_nothing_ends_when_the_cpu_idles_again() {
    let (gate, cpus) = (Gate::new(10), cpus(1));
    assert!(!gate.call(&cpus[0]), "the gate is not open yet");
    gate.open();
    assert!(gate.call(&cpus[0]), "the first inside");
    assert!(gate.leave(&cpus[0]) && gate.is_empty());
}

/// Calls race with entries and exits. Every CPU that is counted is inside, and is counted once.
#[test]
fn calls_that_race_with_entries_count_once() {
    let (gate, cpus) = (Gate::new(1_000), cpus(1));
    gate.open();
    thread::scope(|scope| {
        let caller = scope.spawn(|| (0..20_000).filter(|_| gate.call(&cpus[0])).count());
        while !caller.is_finished() {
            advance(&gate, &cpus, 0, 0);
            assert_eq!(cpus[0].phase.load(Relaxed), RUNNING);
            gate.leave(&cpus[0]);
        }
    });
    gate.leave(&cpus[0]);
    assert_eq!((gate.state().inside, gate.state().missing), (0, 0));
}

#[test]
fn a_stuck_cpu_is_escaped_from_and_waited_for_again() {
    let (gate, cpus) = (Gate::new(10), cpus(2));
    gate.open();
    advance(&gate, &cpus, 0, 0);
    advance(&gate, &cpus, 1, 0);
    no_thread(&cpus[1]);
    advance(&gate, &cpus, 0, 10);
    assert_eq!(gate.waits_and_escapes().1, 1, "nobody got on");
    assert_eq!(gate.state(), State { quantum: 0, inside: 2, missing: 1 });
    thread::scope(|scope| {
        scope.spawn(|| advance(&gate, &cpus, 1, 10));
        advance(&gate, &cpus, 0, 10);
        gate.leave(&cpus[0]);
    });
    gate.leave(&cpus[1]);
    assert_eq!((gate.state().inside, gate.state().missing), (0, 0));
}

#[test]
fn a_closed_gate_holds_no_cpu() {
    let (gate, cpus) = (Gate::new(10), cpus(2));
    (0..100).for_each(|_| advance(&gate, &cpus, 0, 100));
    let cpus = self::cpus(2);
    gate.open();
    (0..2).for_each(|me| advance(&gate, &cpus, me, 0));
    thread::scope(|scope| {
        scope.spawn(|| advance(&gate, &cpus, 0, u64::MAX / 4));
        while gate.state().missing == 2 {
            thread::yield_now();
        }
        gate.close();
    });
    assert!(!gate.leave(&cpus[0]) || !gate.leave(&cpus[1]));
}

#[test]
fn a_starved_cpu_is_waited_for() {
    let (gate, cpus) = (Gate::new(10), cpus(2));
    gate.open();
    thread::scope(|scope| {
        (0..2).for_each(|me| advance(&gate, &cpus, me, 0));
        let patient = scope.spawn(|| advance(&gate, &cpus, 0, 10));
        while gate.waits_and_escapes().0 < 4 {
            thread::yield_now();
        }
        assert_eq!(gate.waits_and_escapes().1, 0, "this thread is ready all the time");
        advance(&gate, &cpus, 1, 10);
        gate.leave(&cpus[1]);
        patient.join().unwrap();
    });
}

#[test]
fn one_that_has_not_noticed_the_new_quantum_is_missing() {
    let cpu = CpuState::default();
    assert!(!cpu.is_missing(5));
    cpu.set_phase(ARRIVED, 5);
    assert!(!cpu.is_missing(5) && cpu.is_missing(6));
    cpu.set_phase(RUNNING, 6);
    assert!(cpu.is_missing(6));
}

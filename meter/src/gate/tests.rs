use super::*;
use std::thread;

impl Crowd for [Seat] {
    fn seats(&self) -> impl Iterator<Item = &Seat> {
        self.iter()
    }
}

fn advance(gate: &Gate, seats: &[Seat], me: usize, instructions: u64) {
    if seats[me].advance(instructions) {
        gate.pass(&seats[me], seats);
    }
}

fn seats(count: usize) -> Vec<Seat> {
    (0..count).map(|_| Seat::default()).collect()
}

/// Makes the seat look not ready: the same thread uses both seats here, so it would wait for itself.
fn no_thread(seat: &Seat) {
    seat.thread.store(u32::MAX, Relaxed);
}

/// Runs `work` for every seat on a thread of its own.
fn together(count: usize, slack: u64, work: impl Fn(&Gate, &[Seat], usize) + Sync) -> Gate {
    let (gate, seats) = (Gate::new(slack), seats(count));
    gate.open();
    // All are inside before one runs. Otherwise the first may be far ahead when the second enters.
    (0..count).for_each(|me| advance(&gate, &seats, me, 0));
    thread::scope(|scope| {
        for me in 0..count {
            let (gate, seats, work) = (&gate, &seats[..], &work);
            scope.spawn(move || work(gate, seats, me));
        }
    });
    gate
}

#[test]
fn nobody_is_further_ahead_than_the_slack_and_a_block() {
    let gate = together(5, 100, |gate, seats, me| {
        for _ in 0..2_000 {
            advance(gate, seats, me, 7);
            let mine = seats[me].clock();
            let least = seats.iter().filter(|seat| seat.place.load(Relaxed) != OUT).map(Seat::clock).min();
            assert!(least.is_none_or(|least| mine <= least + 100 + 7), "{mine} and {least:?}");
        }
        gate.leave(&seats[me]);
    });
    assert!(gate.is_deserted());
    assert_eq!(gate.waits_and_escapes().1, 0);
}

#[test]
fn nobody_waits_for_a_cpu_that_idles() {
    let gate = together(2, 10, |gate, seats, me| {
        if me == 0 {
            gate.leave(&seats[0]);
        } else {
            (0..1_000).for_each(|_| advance(gate, seats, 1, 5));
            gate.leave(&seats[1]);
        }
    });
    assert!(gate.elapsed() >= 4_000, "the other went on alone: {}", gate.elapsed());
    assert_eq!(gate.waits_and_escapes().1, 0);
}

#[test]
fn a_cpu_comes_back_into_the_quantum_of_the_day() {
    let (gate, seats) = (Gate::new(10), seats(2));
    gate.open();
    for turn in 0..50 {
        advance(&gate, &seats, 0, 0);
        assert!(!gate.leave(&seats[1]), "it is out");
        (0..100).for_each(|_| advance(&gate, &seats, 0, 10));
        advance(&gate, &seats, 1, 3);
        assert_eq!(gate.state().inside, 2);
        assert!(!gate.leave(&seats[1]), "one stays (turn {turn})");
    }
    assert!(gate.leave(&seats[0]), "the last one");
}

#[test]
fn a_cpu_that_was_called_is_waited_for_before_its_thread_runs() {
    let (gate, seats) = (Gate::new(10), seats(2));
    gate.open();
    advance(&gate, &seats, 0, 0);
    assert!(!gate.call(&seats[0]), "it runs");
    assert!(!gate.call(&seats[1]) && !gate.call(&seats[1]), "somebody was inside");
    assert_eq!(gate.state(), State { quantum: 0, inside: 2, missing: 2 });
    thread::scope(|scope| {
        scope.spawn(|| advance(&gate, &seats, 0, 10));
        while gate.state().missing == 2 {
            thread::yield_now();
        }
        assert_eq!(gate.elapsed(), 0);
        gate.leave(&seats[1]);
    });
    assert_eq!(gate.state(), State { quantum: 1, inside: 1, missing: 1 });
}

#[test]
fn waking_takes_time_by_the_gate() {
    let (gate, seats) = (Gate::new(10), seats(1));
    gate.open();
    gate.call(&seats[0]);
    advance(&gate, &seats, 0, 0);
    assert_eq!((gate.elapsed(), seats[0].clock()), (WAKING, 0));
}

#[test]
fn a_call_for_nothing_ends_when_the_cpu_idles_again() {
    let (gate, seats) = (Gate::new(10), seats(1));
    assert!(!gate.call(&seats[0]), "the gate is not open yet");
    gate.open();
    assert!(gate.call(&seats[0]), "the first inside");
    assert!(gate.leave(&seats[0]) && gate.is_deserted());
}

/// Calls race with entries and exits. Every CPU that is counted is inside, and is counted once.
#[test]
fn calls_that_race_with_entries_count_once() {
    let (gate, seats) = (Gate::new(1_000), seats(1));
    gate.open();
    thread::scope(|scope| {
        let caller = scope.spawn(|| (0..20_000).filter(|_| gate.call(&seats[0])).count());
        while !caller.is_finished() {
            advance(&gate, &seats, 0, 0);
            assert_eq!(seats[0].place.load(Relaxed), RUNNING);
            gate.leave(&seats[0]);
        }
    });
    gate.leave(&seats[0]);
    assert_eq!((gate.state().inside, gate.state().missing), (0, 0));
}

#[test]
fn a_stuck_cpu_is_escaped_from_and_waited_for_again() {
    let (gate, seats) = (Gate::new(10), seats(2));
    gate.open();
    advance(&gate, &seats, 0, 0);
    advance(&gate, &seats, 1, 0);
    no_thread(&seats[1]);
    advance(&gate, &seats, 0, 10);
    assert_eq!(gate.waits_and_escapes().1, 1, "nobody got on");
    assert_eq!(gate.state(), State { quantum: 0, inside: 2, missing: 1 });
    thread::scope(|scope| {
        scope.spawn(|| advance(&gate, &seats, 1, 10));
        advance(&gate, &seats, 0, 10);
        gate.leave(&seats[0]);
    });
    gate.leave(&seats[1]);
    assert_eq!((gate.state().inside, gate.state().missing), (0, 0));
}

#[test]
fn a_closed_gate_holds_nobody() {
    let (gate, seats) = (Gate::new(10), seats(2));
    (0..100).for_each(|_| advance(&gate, &seats, 0, 100));
    let seats = self::seats(2);
    gate.open();
    (0..2).for_each(|me| advance(&gate, &seats, me, 0));
    thread::scope(|scope| {
        scope.spawn(|| advance(&gate, &seats, 0, u64::MAX / 4));
        while gate.state().missing == 2 {
            thread::yield_now();
        }
        gate.close();
    });
    assert!(!gate.leave(&seats[0]) || !gate.leave(&seats[1]));
}

#[test]
fn a_starved_cpu_is_waited_for() {
    let (gate, seats) = (Gate::new(10), seats(2));
    gate.open();
    thread::scope(|scope| {
        (0..2).for_each(|me| advance(&gate, &seats, me, 0));
        let patient = scope.spawn(|| advance(&gate, &seats, 0, 10));
        while gate.waits_and_escapes().0 < 4 {
            thread::yield_now();
        }
        assert_eq!(gate.waits_and_escapes().1, 0, "this thread is ready all the time");
        advance(&gate, &seats, 1, 10);
        gate.leave(&seats[1]);
        patient.join().unwrap();
    });
}

#[test]
fn one_that_has_not_noticed_the_new_quantum_is_missing() {
    let seat = Seat::default();
    assert!(!seat.is_missing(5));
    seat.sit(ARRIVED, 5);
    assert!(!seat.is_missing(5) && seat.is_missing(6));
    seat.sit(RUNNING, 6);
    assert!(seat.is_missing(6));
}

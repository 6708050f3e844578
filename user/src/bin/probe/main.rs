//! Causes a known traffic of cache lines, which tests the contention meter.
//!
//! Each round of a thread is one access to memory, in strict turns where threads would otherwise race, so
//! that the number of transfers per round is known exactly (`Kind::expected`, and in the report). For racing
//! threads it is known if they are kept in step. Taking and passing the turn is phase 0, the access phase 1.
//!
//! | kind | phase 0 | phase 1 | together | of one thread |
//! |---|---|---|---|---|
//! | private | 0 | 0 | 0 | 0 |
//! | read-mostly | 0 | 0 | 0 | 0 |
//! | shared | 2 | 1 | 3 | 0 |
//! | false-sharing | 2 | 1 | 3 | 0 |
//! | ping-pong | 2 | 0 | 2 (0 for the last of an odd number) | 0 |
//! | readers | 2 | 1 | 3 | 0 |
//! | split | 2 | 2 | 4 | 0 |
//! | racing | 1 | - | 1 | 0 |

mod kind;
mod turns;

use kind::Kind;
use programs::benchmark::{Options, Program};
use programs::marker;
use programs::spin::Line;
use programs::window::Worker;
use serde_json::{Map, Value, json};
use std::arch::asm;
use std::cell::UnsafeCell;
use std::hint::black_box;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use turns::{Ring, RingPosition};

const PROGRAM: Program = Program {
    usage: "usage: probe [OPTIONS] KIND\nTraffic of cache lines that is known: private, read-mostly, shared, \
            false-sharing, ping-pong, readers, split, racing.",
    options: "",
    pages: (0, 0),
    iterations: 1000,
};

/// The phase of the access.
const ACCESS: usize = 1;
/// Adds per round of the private kind.
const ADDS: u64 = 16;
/// Steps of computing, of four instructions each, in a round of the racing kind.
const STEPS: usize = 48;
/// Steps that take as long as half a round of the racing kind, which has some 100 instructions besides its
/// steps.
const HALF_A_ROUND: usize = 40;
/// Offset of the word of the split kind: four of its bytes lie on the next line.
const SPLIT: usize = 60;

/// The probed memory, by kind. Every access is Relaxed: turns and barriers order it.
struct Ground {
    own: Vec<Line<AtomicU64>>,
    word: Line<AtomicU64>,
    bytes: Line<[AtomicU8; 64]>,
    split: Line<UnsafeCell<[u8; 128]>>,
}

// SAFETY: `split` is accessed in strict turns only, and when all threads are done.
unsafe impl Sync for Ground {}

impl Ground {
    fn new(threads: usize) -> Ground {
        let own = (0..threads).map(|_| Line::default()).collect();
        Ground {
            own,
            word: Line::default(),
            bytes: Line([const { AtomicU8::new(0) }; 64]),
            split: Line(UnsafeCell::new([0; 128])),
        }
    }

    /// Performs one access. `lap` counts this thread's from 1.
    fn access(&self, kind: Kind, index: usize, lap: u64) {
        match kind {
            Kind::Private => (0..ADDS).for_each(|_| add(&self.own[index].0)),
            Kind::ReadMostly => assert_eq!(self.word.0.load(Relaxed), 0, "somebody wrote"),
            Kind::Shared => add(&self.word.0),
            Kind::FalseSharing => {
                // The result is unused, so this is one instruction that loads and stores.
                self.bytes.0[index].fetch_add(1, Relaxed);
            }
            Kind::PingPong => {}
            Kind::Readers if index == 0 => self.word.0.store(lap, Relaxed),
            Kind::Readers => assert_eq!(self.word.0.load(Relaxed), lap, "a turn was not strict"),
            // SAFETY: the word lies in the memory, and this is the thread's turn.
            Kind::Split => unsafe { asm!("add qword ptr [{}], 1", in(reg) self.split_word()) },
            Kind::Racing => {
                // Never 0, so that every thread executes the same number of instructions. Otherwise they
                // would drift past each other.
                let before = 1 + STEPS * index / self.own.len();
                compute(before);
                self.add_in_turn(index);
                compute(STEPS + 2 - before);
            }
        }
    }

    /// Adds to the word, and waits for half a round if no other thread has added since this one did. Threads
    /// whose adds nearly coincide are kept in step, but in no order. This moves them apart, once. Thread 0
    /// never waits: two threads that both moved would meet again.
    fn add_in_turn(&self, index: usize) {
        let last = &self.own[index].0;
        let before = self.word.0.fetch_add(1, Relaxed);
        let moves = usize::from(index > 0) & usize::from(before == last.load(Relaxed) + 1);
        // Without a branch: otherwise thread 0 would execute fewer instructions, and drift.
        compute(black_box(moves) * HALF_A_ROUND);
        last.store(before, Relaxed);
    }

    /// Returns the word on two lines.
    fn split_word(&self) -> *mut u64 {
        self.split.0.get().cast::<u8>().wrapping_add(SPLIT).cast()
    }

    /// Checks that every round of every thread has left its trace.
    fn check(&self, kind: Kind, threads: usize, rounds: u64) {
        let (word, all) = (self.word.0.load(Relaxed), threads as u64 * rounds);
        match kind {
            Kind::Private => assert!(self.own.iter().all(|own| own.0.load(Relaxed) == ADDS * rounds)),
            Kind::Shared | Kind::Racing => assert_eq!(word, all),
            // SAFETY: the word lies in the memory, and all threads are done.
            Kind::Split => assert_eq!(unsafe { self.split_word().read_unaligned() }, all),
            Kind::FalseSharing => {
                assert!(self.bytes.0[..threads].iter().all(|byte| byte.load(Relaxed) == rounds as u8));
            }
            Kind::Readers => assert_eq!(word, rounds),
            Kind::ReadMostly | Kind::PingPong => {}
        }
    }
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

/// Takes four instructions a step, and no memory but the stack. It is not inlined: the compiler would turn a
/// known number of steps into as many single stores.
#[inline(never)]
fn compute(steps: usize) {
    (0..black_box(steps)).for_each(|step| _ = black_box(step));
}

fn round(kind: Kind, ground: &Ground, worker: &Worker, place: &mut RingPosition) {
    if kind == Kind::Racing {
        return black_box(ground).access(kind, worker.index, 0);
    }
    let lap = place.take(worker.crowded);
    marker::phase(ACCESS);
    black_box(ground).access(kind, worker.index, lap);
    marker::phase(0);
    place.pass();
}

fn rings(threads: usize, size: usize) -> Vec<Ring> {
    (0..threads).step_by(size).map(|first| Ring::new(size.min(threads - first))).collect()
}

fn more(kind: Kind, threads: usize) -> Map<String, Value> {
    let expected = kind.expected(threads);
    let transfers = json!({"turn": expected.turn, "access": expected.access});
    Map::from_iter([("kind".to_string(), json!(kind.name())), ("expected_transfers".to_string(), transfers)])
}

fn main() {
    let (options, kind) = Options::parse_with(&PROGRAM, |args, threads| Kind::parse(args.word(), threads));
    let size = kind.ring(options.threads);
    let (ground, rings) = (Ground::new(options.threads), rings(options.threads, size));
    options.run_with(
        "probe",
        more(kind, options.threads),
        |worker| rings[worker.index / size].place(worker.index % size),
        |worker, place, _| round(kind, &ground, worker, place),
    );
    ground.check(kind, options.threads, options.warm_up + options.iterations);
}

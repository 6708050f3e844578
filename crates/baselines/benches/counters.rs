//! Pairs of inc and dec of one shared object by 1, 2, 4, ... host threads, for every counter (RadixVM's
//! figure 8).
//!
//! `cargo bench -p radixvm-baselines --bench counters [-- THREADS]` runs it. The runs of all counters are
//! interleaved, and the table shows their median. Times depend on the machine. The bytes do not.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use baselines::{Deltas, Locked, PayGo, Scheme, Shared, Sloppy, Snzi, Uncounted};
use percore::{CoreId, threads};
use refcache::Config;

const PAIRS: u64 = 1_000_000;
const RUNS: usize = 5;
/// Number of pairs between two ticks of a core.
const TICK: u64 = 10_000;

/// A row of the table.
struct Row {
    name: &'static str,
    /// Measures pairs per second of this number of threads together, until the last is done.
    run: fn(usize) -> f64,
    bytes: fn(usize) -> usize,
}

/// Makes a row for a scheme. `$scheme` makes the scheme after the count, because the count must live longer.
macro_rules! row {
    ($kind:ty, $threads:ident, $scheme:expr) => {
        Row {
            name: <$kind>::NAME,
            run: |$threads| {
                let count = <$kind>::count($threads).unwrap();
                let scheme = $scheme;
                measure(&scheme, $threads, &count)
            },
            bytes: <$kind>::object_bytes,
        }
    };
}

const ROWS: [Row; 7] = [
    row!(Uncounted, threads, Uncounted),
    row!(Shared, threads, Shared),
    row!(Locked, threads, Locked),
    row!(Snzi, threads, Snzi),
    row!(Sloppy, threads, Sloppy { threshold: 8 }),
    row!(PayGo, threads, PayGo::new(threads, 4096)),
    row!(Deltas<'_>, threads, Deltas::new(Config { cores: threads, cache_slots: 4096, review_budget: 64 })),
];

fn measure<'c, S: Scheme<'c>>(scheme: &S, threads: usize, count: &'c S::Count) -> f64 {
    let start = Barrier::new(threads);
    let slowest = std::thread::scope(|scope| {
        let play = |core| {
            let start = &start;
            scope.spawn(move || play(scheme, core, count, start))
        };
        let players = (0..threads).map(play).collect::<Vec<_>>();
        players.into_iter().map(|player| player.join().unwrap()).max().unwrap()
    });
    (PAIRS * threads as u64) as f64 / slowest.as_secs_f64()
}

fn play<'c, S: Scheme<'c>>(scheme: &S, core: usize, count: &'c S::Count, start: &Barrier) -> Duration {
    let _core = threads::enter(CoreId::new(core));
    let pin = percore::pin();
    scheme.online(&pin);
    start.wait();
    let begin = Instant::now();
    for pair in 0..PAIRS {
        let token = black_box(scheme.inc(&pin, black_box(count)));
        assert!(!scheme.dec(&pin, count, token), "the object has its first reference");
        if pair % TICK == 0 {
            scheme.tick(&pin);
        }
    }
    let elapsed = begin.elapsed();
    scheme.offline(&pin);
    elapsed
}

/// The median of each row's runs, which take turns.
fn medians(threads: usize) -> [f64; ROWS.len()] {
    let mut rates = ROWS.each_ref().map(|_| Vec::new());
    for _ in 0..RUNS {
        ROWS.iter().zip(&mut rates).for_each(|(row, rates)| rates.push((row.run)(threads)));
    }
    rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[RUNS / 2]
    })
}

fn main() {
    let wanted = std::env::args().skip(1).find_map(|argument| argument.parse().ok());
    let most = wanted.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    for threads in
        std::iter::successors(Some(1), |threads| Some(threads * 2)).take_while(|&many| many <= most)
    {
        for (row, rate) in ROWS.iter().zip(medians(threads)) {
            println!(
                "{:10} {threads:3} threads {:8.1} pairs/us {:6} bytes for each object",
                row.name,
                rate / 1e6,
                (row.bytes)(threads),
            );
        }
    }
}

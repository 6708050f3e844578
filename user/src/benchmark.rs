//! Common options and report of programs that work in rounds: the three microbenchmarks of the paper (section
//! 5.1), and those made for the contention meter.

use crate::args::{Args, Parsed, options};
use crate::processes::{Team, measure_processes, measure_teams};
use crate::window::{Rounds, Window, Worker, measure_rounds};
use crate::{cores, say};
use serde_json::{Map, Value, json};

/// Limit of the threads that any of the programs starts.
pub const MAX_THREADS: u64 = 256;
const LEAST_WARM_UP: u64 = 8;
const MOST_WARM_UP: u64 = 1000;
/// Limit of `--pages`.
pub const MOST_PAGES: u64 = 1 << 20;

/// Usage and defaults of a program.
pub struct Program<'a> {
    /// The first lines of its help.
    pub usage: &'a str,
    /// The lines about options that are its own.
    pub options: &'a str,
    /// Default and maximum of `--pages`. With maximum 0 there is no such option.
    pub pages: (u64, u64),
    /// Default of `--iterations`.
    pub iterations: u64,
}

impl Program<'_> {
    fn help(&self) -> String {
        let &Program { usage, options, pages: (pages, most), iterations } = self;
        let pages = match most {
            0 => String::new(),
            _ => format!("  --pages N       4 KiB pages each thread maps at a time (default {pages})\n"),
        };
        format!(
            "{usage}\n\n  --threads N     pinned threads (default: one per CPU)\n{pages}{options}  \
             --iterations N  rounds per thread (default {iterations})\n  \
             --warmup N      rounds per thread before them (default: a quarter, 8 to {MOST_WARM_UP})\n  \
             --json          one JSON object instead of a line of text"
        )
    }
}

/// Options that every program in rounds has.
pub struct Options {
    /// Pinned threads.
    pub threads: usize,
    /// Pages per region.
    pub pages: usize,
    /// Rounds per thread.
    pub iterations: u64,
    /// Rounds per thread before those, which do not count.
    pub warm_up: u64,
    json: bool,
}

impl Options {
    /// Reads the command line. `pages` and `iterations` are the defaults.
    pub fn parse(usage: &str, pages: u64, iterations: u64) -> Options {
        Options::parse_with(
            &Program { usage, options: "", pages: (pages, MOST_PAGES), iterations },
            |_, _| Ok(()),
        )
        .0
    }

    /// Reads the command line. `own` takes the program's own words and knows the number of threads.
    pub fn parse_with<T>(program: &Program, own: impl FnOnce(&mut Args, usize) -> Parsed<T>) -> (Options, T) {
        options(&program.help(), |args| Options::from(args, program, own))
    }

    fn from<T>(
        mut args: Args,
        program: &Program,
        own: impl FnOnce(&mut Args, usize) -> Parsed<T>,
    ) -> Parsed<(Options, T)> {
        let iterations = args.number("--iterations", program.iterations, 1..=1 << 40)?;
        let (pages, most) = program.pages;
        let options = Options {
            threads: threads(&mut args)?,
            pages: if most == 0 { 0 } else { args.number("--pages", pages, 1..=most)? as usize },
            iterations,
            warm_up: warm_up(&mut args, iterations)?,
            json: args.flag("--json"),
        };
        let own = own(&mut args, options.threads)?;
        args.end().map(|()| (options, own))
    }

    /// Makes every thread do its rounds, passing the number of the round, and prints the report.
    pub fn run(&self, program: &str, round: impl Fn(&Worker, u64) + Sync) {
        self.run_with(program, Map::new(), |_| (), |worker, (), number| round(worker, number));
    }

    /// Does the same for threads with state of their own, and adds `more` to the report.
    pub fn run_with<T>(
        &self,
        program: &str,
        more: Map<String, Value>,
        prepare: impl Fn(&Worker) -> T + Sync,
        round: impl Fn(&Worker, &mut T, u64) + Sync,
    ) {
        self.tell(program, more, &measure_rounds(self.threads, self.counted(), prepare, round));
    }

    /// Does the same for processes instead of threads. `prepare` gets the number of its process.
    pub fn run_processes<T>(
        &self,
        program: &str,
        prepare: impl Fn(usize) -> T + Sync,
        round: impl Fn(&mut T, u64) + Sync,
    ) {
        self.tell(program, Map::new(), &measure_processes(self.threads, self.counted(), prepare, round));
    }

    /// Does the same for processes of `each` threads, which divides the number of threads.
    pub fn run_teams<T>(
        &self,
        program: &str,
        each: usize,
        prepare: impl Fn(usize) -> T + Sync,
        round: impl Fn(&mut T, u64) + Sync,
    ) {
        let team = Team { processes: self.threads / each, each };
        self.tell(program, Map::new(), &measure_teams(team, self.counted(), prepare, round));
    }

    fn counted(&self) -> Rounds {
        Rounds { warm_up: self.warm_up, counted: self.iterations }
    }

    fn tell(&self, program: &str, more: Map<String, Value>, window: &Window) {
        if self.json { say(self.report(program, more, window)) } else { say(self.line(program, window)) }
    }

    fn rounds(&self) -> u64 {
        self.threads as u64 * self.iterations
    }

    fn report(&self, program: &str, more: Map<String, Value>, window: &Window) -> Value {
        let mut report = window_json(program, window);
        report["threads"] = json!(self.threads);
        report["pages"] = json!(self.pages);
        report["iterations"] = json!(self.iterations);
        report["warmup"] = json!(self.warm_up);
        report["rounds"] = json!(self.rounds());
        report["rounds_per_s"] = json!(self.rounds() as f64 / window.seconds);
        more.into_iter().for_each(|(name, value)| report[name] = value);
        report
    }

    fn line(&self, program: &str, window: &Window) -> String {
        let (rounds, seconds) = (self.rounds(), window.seconds);
        let pages = if self.pages == 0 { String::new() } else { format!(" of {} pages", self.pages) };
        format!(
            "{program}: {} threads, {rounds} rounds{pages} in {seconds:.3} s: {:.0} rounds/s{}",
            self.threads,
            rounds as f64 / seconds,
            window_text(window)
        )
    }
}

/// Returns the value of `--threads`, by default one per CPU.
pub fn threads(args: &mut Args) -> Parsed<usize> {
    let cpus = cores::allowed().map_or(1, |cpus| cpus.len() as u64);
    Ok(args.number("--threads", cpus.min(MAX_THREADS), 1..=MAX_THREADS)? as usize)
}

/// Returns the value of `--warmup`. The default fills caches and node pools, and is never most of the run.
pub fn warm_up(args: &mut Args, iterations: u64) -> Parsed<u64> {
    args.number("--warmup", (iterations / 4).clamp(LEAST_WARM_UP, MOST_WARM_UP), 0..=1 << 40)
}

/// Returns the part of every JSON report that describes the measured window.
pub fn window_json(program: &str, window: &Window) -> Value {
    json!({
        "program": program,
        "seconds": window.seconds,
        "tsc": window.cycles,
        "minor_faults": window.minor_faults,
        "counters": window.counters,
    })
}

/// Returns the nonzero counts of the window as readable text.
pub fn window_text(window: &Window) -> String {
    let counters = window.counters.iter().flatten().filter(|(_, value)| **value != 0);
    let faults = (window.minor_faults > 0).then(|| format!(", {} minor faults", window.minor_faults));
    let counters = counters.map(|(name, value)| format!(", {value} {}", name.replace('_', " ")));
    faults.into_iter().chain(counters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Parsed<Options> {
        let program = Program { usage: "", options: "", pages: (3, 9), iterations: 5 };
        let args = Args::new(line.split_whitespace().map(Into::into))?;
        Options::from(args, &program, |args, _| Ok(args.word())).map(|(options, _)| options)
    }

    #[test]
    fn the_report_has_the_agreed_keys() {
        let options = parse("--threads 2 --json").unwrap();
        let window = Window { seconds: 0.5, cycles: 9, minor_faults: 4, counters: None };
        assert_eq!(
            options.report("local", Map::new(), &window),
            json!({"program": "local", "threads": 2, "pages": 3, "iterations": 5, "warmup": 8, "rounds": 10, "seconds": 0.5,
                   "rounds_per_s": 20.0, "tsc": 9, "counters": null, "minor_faults": 4})
        );
    }

    #[test]
    fn the_warm_up_follows_the_iterations_unless_told() {
        let warm_up = |line| parse(line).unwrap().warm_up;
        assert_eq!(warm_up("--iterations 10"), 8);
        assert_eq!(warm_up("--iterations 400"), 100);
        assert_eq!(warm_up("--iterations 40000"), 1000);
        assert_eq!(warm_up("--iterations 400 --warmup 0"), 0);
    }

    #[test]
    fn bad_options_are_refused() {
        assert!(parse("--threads 0").is_err());
        assert!(parse("--pages 0").is_err());
        assert!(parse("--pages 10").is_err());
        assert!(parse("--iterations x").is_err());
        assert!(parse("--warmup some").is_err());
        assert!(parse("--paegs 1").is_err());
    }
}

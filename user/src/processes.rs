//! Measures processes: each with memory of its own, all doing rounds at the same time. A process has one
//! pinned thread, or several.
//!
//! They share no memory to wait in, so they meet at two pipes: a thread writes a byte to one when it is
//! ready, and all start when the other one ends.

use crate::counters::{Reading, minor_faults};
use crate::window::{Rounds, Window};
use crate::{cores, marker, require};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::thread;
use std::time::Instant;

/// Starts a process that does `body` and ends, and returns its number. The caller must have one thread.
pub fn spawn(body: impl FnOnce()) -> io::Result<i32> {
    // SAFETY: there is one thread, so the child has no state that another thread would have to change.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            body();
            exit(0)
        }
        pid => Ok(pid),
    }
}

/// Ends the process at once.
pub fn exit(status: i32) -> ! {
    // SAFETY: nothing is left to be done.
    unsafe { libc::_exit(status) }
}

/// Waits for a child. Returns the status it exited with, unless a signal ended it.
pub fn wait(pid: i32) -> io::Result<Option<i32>> {
    let mut status = 0;
    // SAFETY: the call fills the word.
    match unsafe { libc::waitpid(pid, &mut status, 0) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status))),
    }
}

/// The size of a run: processes, and pinned threads of each.
#[derive(Clone, Copy)]
pub struct Team {
    /// The number of processes.
    pub processes: usize,
    /// The number of threads of each, at least 1.
    pub each: usize,
}

impl Team {
    fn threads(self) -> usize {
        self.processes * self.each
    }
}

/// Makes processes of one thread do rounds, passing the number of the round, and returns the costs of the
/// counted rounds. Each has state of its own, which `prepare` makes before the first round from the number of
/// the process. Nothing here links the code of threads, whose data a process that forks would copy.
pub fn measure_processes<T>(
    processes: usize,
    rounds: Rounds,
    prepare: impl Fn(usize) -> T + Sync,
    round: impl Fn(&mut T, u64) + Sync,
) -> Window {
    measure(Team { processes, each: 1 }, rounds, prepare, round, |first, work| work(first))
}

/// Does the same with all threads of all processes. `prepare` gets the number of its thread.
pub fn measure_teams<T>(
    team: Team,
    rounds: Rounds,
    prepare: impl Fn(usize) -> T + Sync,
    round: impl Fn(&mut T, u64) + Sync,
) -> Window {
    measure(team, rounds, prepare, round, |first, work| {
        thread::scope(|scope| {
            (first + 1..first + team.each).for_each(|index| drop(scope.spawn(move || work(index))));
            work(first);
        });
    })
}

/// Measures processes. `run` does the work of all threads of one process, from the number of the first on.
fn measure<T>(
    team: Team,
    rounds: Rounds,
    prepare: impl Fn(usize) -> T + Sync,
    round: impl Fn(&mut T, u64) + Sync,
    run: impl Fn(usize, &(dyn Fn(usize) + Sync)),
) -> Window {
    let cpus = require(cores::allowed(), "sched_getaffinity");
    let (mut ready, says_ready) = require(io::pipe(), "pipe");
    let (starts, start) = require(io::pipe(), "pipe");
    let work = |index: usize| {
        require(cores::pin(cpus[index % cpus.len()]), "sched_setaffinity");
        let mut own = prepare(index);
        (0..rounds.warm_up).for_each(|number| round(&mut own, number));
        meet(&says_ready, &starts);
        count(team.threads(), rounds, |number| round(&mut own, number));
    };
    let spawned: Vec<i32> = (0..team.processes)
        .map(|process| {
            let child = || {
                // A process that holds it open would wait for itself.
                close(&start);
                run(process * team.each, &work);
            };
            require(spawn(child), "fork")
        })
        .collect();
    // The wait below ends also when a process ends before it is ready.
    drop(says_ready);
    require(ready.read_exact(&mut vec![0; team.threads()]), "a process is not ready");
    observe(start, &spawned)
}

fn close(end: &PipeWriter) {
    use std::os::fd::AsRawFd;
    // SAFETY: the process ends without using it.
    unsafe { libc::close(end.as_raw_fd()) };
}

/// Reports that the thread is ready, and waits for the start.
fn meet(mut ready: &PipeWriter, mut start: &PipeReader) {
    require(ready.write_all(b"r"), "write");
    require(start.read_to_end(&mut Vec::new()), "read");
}

/// Does the counted rounds. The first is left out of the meter's window, as that of threads is.
fn count(threads: usize, rounds: Rounds, mut round: impl FnMut(u64)) {
    let metered = u64::from(rounds.counted > 1);
    for number in 0..rounds.counted {
        if number == metered {
            marker::begin(threads);
        }
        round(number);
        if number >= metered {
            marker::iter();
        }
    }
    marker::end();
}

/// Measures from the start to the end of the last process.
fn observe(start: PipeWriter, processes: &[i32]) -> Window {
    let (mut before, mut after) = (Reading::prepare(), Reading::prepare());
    before.take();
    let (faults, clock, cycles) = (minor_faults(), Instant::now(), cores::cycles());
    drop(start);
    for &pid in processes {
        assert_eq!(require(wait(pid), "waitpid"), Some(0), "a process failed");
    }
    let (cycles, seconds) = (cores::cycles() - cycles, clock.elapsed().as_secs_f64());
    let minor_faults = minor_faults() - faults;
    after.take();
    Window { seconds, cycles, minor_faults, counters: after.since(&before) }
}

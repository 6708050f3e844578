//! The messages of `radixvm run`. They share stderr with the program, so they are few.

use launch::crash;
use launch::guest::protocol::Line;
use launch::guest::session::{End, Notice, Outcome};
use launch::guest::system::{Job, System};
use launch::program::Program;
use launch::terminal;

/// The messages about a run.
pub struct Messages {
    /// Set if messages may appear beside the program's stderr.
    pub talkative: bool,
    /// Set if all messages are wanted.
    pub verbose: bool,
    /// The system that runs the program.
    pub system: System,
}

impl Messages {
    /// Prints the notices that are wanted while the program runs.
    pub fn tell(&self, notice: &Notice<'_>) {
        match notice {
            Notice::Line(line) => self.hear(line),
            Notice::StillBooting(times) if self.talkative => {
                terminal::message(format_args!(
                    "{} is still booting after {}",
                    self.system,
                    times.describe()
                ));
            }
            Notice::StillBooting(_) => {}
        }
    }

    fn hear(&self, line: &Line) {
        match line {
            Line::Oom { text } => terminal::message(text),
            Line::Unwritten { name, text } => terminal::message(format_args!(
                "{}: its changes could not be written to this machine: {text}",
                terminal::name(name)
            )),
            Line::UnknownSyscall { number, args } if self.talkative => {
                let name = super::syscalls::name(*number).unwrap_or("?");
                terminal::message(format_args!(
                    "system call {number} ({name}) is not there: {}",
                    args.join(", ")
                ));
            }
            Line::Log { level, text } if self.verbose || level == "error" && self.talkative => {
                terminal::message(format_args!("{level}: {text}"))
            }
            Line::Booted { cpus, memory_bytes } if self.verbose => {
                terminal::message(format_args!("booted with {cpus} CPUs and {} MiB", memory_bytes >> 20));
            }
            _ => {}
        }
    }

    /// Prints how the program died.
    pub fn explain(&self, outcome: &Outcome, job: &Job) {
        match (&outcome.crash, &outcome.end) {
            (Some(crash), _) => terminal::eprint_plain(&crash::report(crash, job)),
            (None, End::Killed(signal)) if self.talkative => terminal::message(killed(&job.program, *signal)),
            _ => {}
        }
    }
}

fn killed(program: &Program, signal: i32) -> String {
    let name = signal_hook::low_level::signal_name(signal);
    let name = name.map_or_else(|| format!("signal {signal}"), str::to_owned);
    format!("{} was killed by {name}", terminal::name(&program.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_names() {
        let program = Program { path: "/x/mine".into(), bytes: Vec::new() };
        assert_eq!(killed(&program, 6), "mine was killed by SIGABRT");
        assert_eq!(killed(&program, 34), "mine was killed by signal 34");
    }
}

//! What `radixvm run` says on stderr, which is the program's own: as little as possible.

use crate::crash;
use crate::guest::protocol::Line;
use crate::guest::session::{End, Notice, Outcome};
use crate::guest::system::System;
use crate::program::Program;

/// What a person is told about the run beside the program's own words.
pub struct Remarks {
    /// Whether remarks are welcome beside the program's stderr.
    pub talkative: bool,
    /// Whether everything is.
    pub verbose: bool,
    /// What runs the program.
    pub system: System,
}

impl Remarks {
    /// Passes on what is worth it while the program runs.
    pub fn tell(&self, notice: &Notice<'_>) {
        match notice {
            Notice::Line(line) => self.hear(line),
            Notice::StillBooting(after) if self.talkative => {
                eprintln!("radixvm: {} is still booting after {} s", self.system, after.as_secs());
            }
            Notice::StillBooting(_) => {}
        }
    }

    fn hear(&self, line: &Line) {
        match line {
            Line::Oom { text } => eprintln!("radixvm: {text}"),
            Line::UnknownSyscall { number, args } if self.talkative => {
                let name = super::syscalls::name(*number).unwrap_or("?");
                eprintln!("radixvm: system call {number} ({name}) is not there: {}", args.join(", "));
            }
            Line::Log { level, text } if self.verbose || level == "error" && self.talkative => {
                eprintln!("radixvm: {level}: {text}")
            }
            Line::Booted { cpus, memory_bytes } if self.verbose => {
                eprintln!("radixvm: booted with {cpus} CPUs and {} MiB", memory_bytes >> 20);
            }
            _ => {}
        }
    }

    /// Says what the program died of.
    pub fn explain(&self, outcome: &Outcome, program: &Program) {
        match (&outcome.crash, &outcome.end) {
            (Some(crash), _) => eprint!("{}", crash::report(crash, program)),
            (None, End::Killed(signal)) if self.talkative => eprintln!("{}", killed(program, *signal)),
            _ => {}
        }
    }
}

fn killed(program: &Program, signal: i32) -> String {
    let name = signal_hook::low_level::signal_name(signal);
    let name = name.map_or_else(|| format!("signal {signal}"), str::to_owned);
    format!("radixvm: {} was killed by {name}", program.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_names() {
        let program = Program { path: "/x/mine".into(), bytes: Vec::new() };
        assert_eq!(killed(&program, 6), "radixvm: mine was killed by SIGABRT");
        assert_eq!(killed(&program, 34), "radixvm: mine was killed by signal 34");
    }
}

//! `radixvm why`: says where the kernel makes a program slow with more threads.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use abi::config::{Choice, Huge};
use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;

use super::contend::write;
use launch::exit_status::{NOT_RUNNABLE, StatusError, is_interrupt};
use launch::guest::channels::Sink;
use launch::guest::file_arg::FileArg;
use launch::guest::qemu::Accel;
use launch::guest::system::{self, Size, Streams, System};
use launch::meter::benchmarks::SLACK;
use launch::meter::why::{self, Measured, Question};
use launch::program::{self, Needs, Program};
use launch::{artifacts, options, terminal};

const HELP: &str = "\
The program runs on each system under QEMU's translator, with a plugin that follows every cache line between the CPUs. \
Each line that moves in the kernel, and each interrupt that it sends, is charged to the system call or page fault in which \
it happens, and to the place in the program from which that came. docs/guide/why.md explains the answer.

The program sees itself, its libraries, and what --file gives it, on either system alike. Its output is not shown. In ARGS, \
{cpus} stands for the number of CPUs. Debug information (-g) gives source lines, and symbols give functions.

The JSON is an object with the keys program, arguments, verdict, and systems, an array with an object per system.";

/// The most memory of a guest. Of more, QEMU's machine has a part above the addresses of devices, and its
/// versions do not agree on the addresses of that part.
const MOST_MEMORY: u64 = 2815 << 20;

/// Options of `radixvm why`.
#[derive(Args)]
#[command(after_help = HELP)]
pub struct Arguments {
    /// Virtual CPUs
    #[arg(short, long, default_value = "4", value_parser = options::metered_cpus, value_name = "N")]
    cpus: u16,
    /// Memory of every guest, at most 2815M
    #[arg(short, long, default_value = "1G", value_parser = options::size, value_name = "SIZE")]
    memory: u64,
    /// Kernels under the program
    #[arg(
        long,
        value_enum,
        default_value = "linux,adaptive",
        value_delimiter = ',',
        value_name = "SYSTEM,..."
    )]
    systems: Vec<System>,
    /// Write the answer as a page with all places and their callers
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write the answer as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Copy a file or folder into the guests, to the same path or to GUEST
    #[arg(long = "file", value_name = "HOST[:GUEST]")]
    files: Vec<String>,
    /// Set a variable of the program's environment, or without a value pass on the host's
    #[arg(short, long = "env", value_parser = options::setting, value_name = "K=V")]
    env: Vec<OsString>,
    /// Huge pages, on either kernel
    #[arg(long, value_parser = options::choice::<Huge>(), default_value = Huge::DEFAULT.word())]
    huge: Huge,
    /// Instructions that a CPU may run ahead of the slowest
    #[arg(long, default_value_t = SLACK, value_parser = clap::value_parser!(u64).range(1..=1_000_000), value_name = "N")]
    slack: u64,
    /// Print the QEMU commands, which are those without the meter, and run nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    guests: options::Guests,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM ARGS")]
    command: Vec<OsString>,
}

impl Arguments {
    fn question(&self) -> Result<Question> {
        ensure!(
            self.memory <= MOST_MEMORY,
            "-m: the meter reads the calls in the guest's memory, which it can up to 2815M: give no more"
        );
        let program = load(&self.command[0].to_string_lossy())?;
        let library_path = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let inherited = (!library_path.is_empty()).then(|| setting("LD_LIBRARY_PATH", &library_path));
        Ok(Question {
            program,
            argv: self.command.clone(),
            environment: inherited.into_iter().chain(self.env.iter().cloned()).collect(),
            files: self.files.iter().map(|text| FileArg::parse(text)).collect::<Result<_>>()?,
            library_path,
            cpus: self.cpus,
            memory: self.memory,
            systems: self.systems.clone(),
            huge: self.huge,
            slack: self.slack,
        })
    }

    fn shown_command(&self) -> String {
        self.command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }
}

fn setting(name: &str, value: &OsString) -> OsString {
    let mut setting = OsString::from(format!("{name}="));
    setting.push(value);
    setting
}

/// Finds and reads a program, which may be dynamic.
fn load(name: &str) -> Result<Program> {
    let path = if artifacts::is_bundled(name) { artifacts::program(name)? } else { program::find(name)? };
    let (mut program, needs) = Program::load_any(&path)?;
    if let Some(Needs::Interpreter(interpreter, _)) = needs {
        return Err(StatusError::error(NOT_RUNNABLE, script(&path, &interpreter)));
    }
    program.path = path.canonicalize().with_context(|| path.display().to_string())?;
    Ok(program)
}

fn script(path: &Path, interpreter: &str) -> String {
    let shown = path.display();
    format!(
        "{shown}: a script: name its interpreter, and give it the script and what else it reads, as in `radixvm why \
         --file {shown}:/script -- {interpreter} /script`"
    )
}

/// Asks, prints the answer, and writes the requested files.
pub fn run(arguments: &Arguments) -> Result<u8> {
    arguments.guests.apply();
    let question = arguments.question()?;
    if arguments.dry_run {
        return dry_run(&question);
    }
    for file in [&arguments.report, &arguments.json].into_iter().flatten() {
        // Now, so that a failure shows before the long work.
        write(file, "")?;
    }
    let measured = question.answer().inspect_err(|error| {
        if !is_interrupt(error) {
            terminal::message(
                "the program sees itself, its libraries and what --file gives it, and nothing else",
            );
        }
    })?;
    terminal::print_plain(why::text(&measured))?;
    if let Some(file) = &arguments.json {
        write(file, &json(arguments, &measured)?)?;
    }
    if let Some(file) = &arguments.report {
        write(file, &why::page(&measured, &arguments.shown_command()))?;
    }
    Ok(0)
}

/// Prints the commands that boot the guests.
fn dry_run(question: &Question) -> Result<u8> {
    let job = question.job()?;
    for system in &question.systems {
        let size = Size { cpus: question.cpus, memory: question.memory, accel: Accel::Tcg };
        let streams = Streams { stdout: Sink::Stdout, stderr: Sink::Stderr, stdin: false };
        let plan = system::plan(*system, &job, size, streams)?;
        terminal::print_plain(super::dry_run::shell_line(&plan)? + "\n")?;
    }
    Ok(0)
}

/// The whole answer.
#[derive(Serialize)]
struct Answer<'a> {
    program: String,
    arguments: Vec<String>,
    verdict: String,
    systems: &'a [Measured],
}

fn json(arguments: &Arguments, measured: &[Measured]) -> Result<String> {
    let words: Vec<String> =
        arguments.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let answer = Answer {
        program: words[0].clone(),
        arguments: words[1..].to_vec(),
        verdict: why::verdict(measured),
        systems: measured,
    };
    Ok(serde_json::to_string_pretty(&answer)? + "\n")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parsed(words: &str) -> Arguments {
        let words = std::iter::once("why").chain(words.split_whitespace());
        Line::try_parse_from(words).map_err(|error| error.to_string()).map(|line| line.arguments).unwrap()
    }

    #[test]
    fn words_after_the_program_are_its_own() {
        let arguments = parsed("-c 2 -- prog -c 3 --json x");
        assert_eq!((arguments.cpus, arguments.shown_command().as_str()), (2, "prog -c 3 --json x"));
        assert_eq!(arguments.systems, [System::Linux, System::ADAPTIVE]);
    }

    #[test]
    fn memory_that_the_meter_cannot_read_is_refused() {
        let error = parsed("-m 4G -- prog").question().err().unwrap().to_string();
        assert!(error.contains("-m") && error.contains("2815M"), "{error}");
    }

    #[test]
    fn a_program_that_cannot_run_is_named_with_the_fix() {
        let error = |name: &str| load(name).err().unwrap().to_string();
        assert!(error("no-such-program-anywhere").contains("no-such-program-anywhere: no such program"));
        assert!(error("/etc/passwd").contains("/etc/passwd: not an ELF program"));
        let text = script(Path::new("/x/s.py"), "/usr/bin/python3");
        assert!(
            text.contains("/x/s.py: a script")
                && text.contains("--file /x/s.py:/script -- /usr/bin/python3 /script")
        );
    }

    #[test]
    fn the_json_has_stable_keys() {
        let answer: serde_json::Value =
            serde_json::from_str(&json(&parsed("-- prog a b"), &[]).unwrap()).unwrap();
        assert_eq!(answer["program"], "prog");
        assert_eq!(answer["arguments"].as_array().unwrap().len(), 2);
        assert!(answer["systems"].is_array() && answer["verdict"].is_string());
    }
}

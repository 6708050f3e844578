//! `radixvm run`: runs a program in a guest, as if it ran on the host.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use abi::config::{
    COMPRESS, COMPRESS_HELP, Design, Huge, OVERLAY_OUT, OVERLAY_TMP, ReadRefs, Refs, STRICT, TERMINAL, TRACE,
    Tables,
};
use anyhow::Result;
use clap::{Args, ValueEnum};

use super::messages::Messages;
use super::strace::Trace;
use launch::exit_status::{FAILED, NOT_RUNNABLE};
use launch::guest::channels::Sink;
use launch::guest::file_arg::FileArg;
use launch::guest::gdb::{self, Gdb};
use launch::guest::kvm;
use launch::guest::mount_arg::{self, MountArg};
use launch::guest::network_arg::Network;
use launch::guest::overlay_out::OverlayOut;
use launch::guest::protocol::{Line, Stats};
use launch::guest::qemu::Accel;
use launch::guest::session::{self, End, Notice, Outcome, Plan};
use launch::guest::system::{self, Job, Size, Streams, System};
use launch::program::{self, Program};
use launch::table::{Table, count};
use launch::{artifacts, options, progress, terminal};

const STATUSES: &str = "\
Exit status: the program's own; 128+N if signal N killed it or ended the run; 125 if radixvm or the
guest itself failed; 126 if PROGRAM cannot run here (neither ELF nor a script, damaged, another
machine, no right to execute it); 127 if there is no such program.

PROGRAM is a path, the name of a program in user/ (local, pipeline, global, wordindex, ...), or found
on the PATH.";

/// Options of `radixvm run`.
#[derive(Args)]
#[command(after_help = STATUSES)]
pub struct Arguments {
    /// Virtual CPUs, 1 to 255
    #[arg(short, long, default_value = "1", value_parser = options::cpus, value_name = "N")]
    cpus: u16,
    /// Memory of the guest, such as 512M or 2G (a number alone is in MiB)
    #[arg(short, long, default_value = "1G", value_parser = options::size, value_name = "SIZE")]
    memory: u64,
    /// Set a variable of the program's environment, or without a value pass on the host's
    #[arg(short, long = "env", value_parser = options::setting, value_name = "K=V")]
    env: Vec<OsString>,
    /// Copy a file or folder into the guest, to the same path or to GUEST
    ///
    /// A GUEST that ends in / is a folder to copy it into, as with cp. HOST/. means the contents of HOST.
    /// Links are followed, and their targets are copied. Named pipes, sockets, devices and dangling
    /// links are skipped. Large files reach stock Linux on a read-only disk.
    #[arg(long = "file", verbatim_doc_comment, value_name = "HOST[:GUEST]")]
    files: Vec<String>,
    /// Let the program see this machine's files, environment and working directory. Nothing is written to
    /// them: changes stay in the guest, except with --rw
    #[arg(long, value_enum, default_value = "auto", value_name = "WHEN")]
    host_files: HostFiles,
    /// Let the program change this directory of this machine and all below it, under the same path or GUEST
    ///
    /// Names change here at once. The bytes of a file are written when the program closes it or calls
    /// fsync, and at the end of the run.
    #[arg(long, value_name = "DIR[:GUEST]")]
    rw: Vec<String>,
    /// Write the program's changes of this machine's files to FILE at the end, as a tar archive
    ///
    /// Removed names are marked as in container images (.wh.NAME). The changes below --rw, and those in
    /// /tmp unless --overlay-tmp is given, are not among them.
    #[arg(long, value_name = "FILE")]
    overlay_out: Option<PathBuf>,
    /// Write the changes in /tmp there too
    #[arg(long, requires = "overlay_out")]
    overlay_tmp: bool,
    /// Let connections to port HOST of this machine reach port GUEST of the program, as `docker run -p` does
    ///
    /// Only programs of this machine reach it, unless ADDRESS says otherwise: 0.0.0.0 is all addresses.
    #[arg(short, long = "publish", value_name = "[ADDRESS:]HOST:GUEST[/udp]")]
    ports: Vec<String>,
    /// Let the program make connections to this machine, which is 10.0.2.2 for it, and beyond
    #[arg(long)]
    net: bool,
    /// Give the program this terminal, with control characters and job control, as `docker run -t` does
    ///
    /// Without it, standard streams are pipes. Ctrl-] three times in a row ends the run.
    #[arg(short, long)]
    tty: bool,
    /// Print the program's system calls on stderr, as strace does, or those of these names only
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "", value_name = "NAME,...")]
    strace: Option<String>,
    /// Print how often each system call was made and failed on stderr after the program
    #[arg(long)]
    syscall_summary: bool,
    /// Stop at the first system call that RadixVM does not support, with a report as of a crash (status 159)
    #[arg(long)]
    strict: bool,
    /// Wait for gdb at this port of this machine before the guest's first instruction
    ///
    /// gdb sees the whole guest: the program and the kernel. The CPUs are its threads.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..), value_name = "PORT")]
    gdb: Option<u16>,
    /// Print the RadixVM kernel's counters on stderr after the program
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "table", value_name = "FORM")]
    stats: Option<Form>,
    /// Address-space design
    #[arg(long, visible_alias = "design", value_parser = options::choice::<Design>(), default_value = "radix", value_name = "DESIGN")]
    vm: Design,
    /// Page tables (default: adaptive if the design has them)
    #[arg(long, value_parser = options::choice::<Tables>())]
    tables: Option<Tables>,
    /// Counter of the references to the pages of files
    #[arg(long, value_parser = options::choice::<Refs>(), default_value = "refcache", value_name = "COUNT")]
    refs: Refs,
    /// The way in which a read keeps the page of a file
    #[arg(long, value_parser = options::choice::<ReadRefs>(), default_value = "pinned", value_name = "COUNT")]
    read_refs: ReadRefs,
    /// Huge pages for anonymous memory, while there is plenty of it (default: the kernel's, which is always
    /// on RadixVM)
    #[arg(long, value_parser = options::choice::<Huge>())]
    huge: Option<Huge>,
    #[arg(long = COMPRESS, help = COMPRESS_HELP)]
    compress: bool,
    /// Kernel under the program [default: radixvm; linux with --linux]
    #[arg(long, value_enum)]
    system: Option<Kind>,
    #[command(flatten)]
    guests: options::Guests,
    /// Accelerator of the guest's CPUs
    #[arg(long, value_enum, default_value = "auto")]
    accel: Choice,
    /// Print the QEMU command instead of running it
    ///
    /// Its boot image stays in .radixvm, under a name of its own. Run by hand, the command shows the
    /// program's output but exits with QEMU's status. The program's own is in the last line of the
    /// .control file that the command names. There is no answer when the program reads its standard
    /// input.
    #[arg(long, verbatim_doc_comment)]
    dry_run: bool,
    /// Give the guest /dev/fail-alloc, for tests: a program chooses allocations that fail
    #[arg(long, hide = true)]
    fail_alloc: bool,
    /// Print the guest's reports on stderr, even if stderr is not a terminal
    #[arg(short, long)]
    verbose: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM ARGS")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    Table,
    Json,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum HostFiles {
    /// If it is dynamic or a script
    Auto,
    /// Always
    Always,
    /// Never: it must be static
    Never,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// The RadixVM kernel
    Radixvm,
    /// The distribution's own kernel, for comparison
    Linux,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Choice {
    /// KVM if a guest boots with it, otherwise TCG
    Auto,
    /// The processor
    Kvm,
    /// QEMU's translator
    Tcg,
    /// The translator on one CPU with one instruction per nanosecond, so that rdtsc counts instructions
    Count,
}

impl Arguments {
    fn system(&self) -> Result<System> {
        let named = self.guests.name_linux();
        match self.system {
            Some(Kind::Radixvm) if named => anyhow::bail!("--linux is for --system linux"),
            None if named => Ok(System::Linux),
            Some(Kind::Linux) => Ok(System::Linux),
            Some(Kind::Radixvm) | None => {
                Ok(System::ours(self.vm, self.tables)?.counting(self.refs).reading(self.read_refs))
            }
        }
    }

    /// Returns whether our messages may appear beside the program's stderr.
    fn talkative(&self) -> bool {
        self.verbose || progress::on_terminal()
    }

    /// Refuses `--stats json -- PROGRAM`, in which json would be the program.
    fn refuse_detached_form(&self) -> Result<()> {
        let [form, dashes, ..] = &self.command[..] else { return Ok(()) };
        let form = form.to_string_lossy();
        let meant = self.stats.is_some() && dashes == "--" && Form::from_str(&form, false).is_ok();
        anyhow::ensure!(!meant, "--stats {form}: write --stats={form}");
        Ok(())
    }

    fn job(&self) -> Result<Job> {
        let (program, argv, host_files) = self.program()?;
        let files = self.files.iter().map(|text| FileArg::parse(text)).collect::<Result<_>>()?;
        let given = self.env.iter().cloned();
        let envp = if host_files { system::host_environment(given) } else { system::environment(given) };
        let mounts = MountArg::parse_all(&self.rw)?;
        let network = Network::parse(&self.ports, self.net)?;
        Ok(Job { program, argv, envp, files, host_files, mounts, network, is_at_own_path: false })
    }

    /// Returns the program, its arguments, and whether it sees the host's files.
    fn program(&self) -> Result<(Program, Vec<OsString>, bool)> {
        let path = locate(&self.command[0].to_string_lossy())?;
        let argv = self.command.clone();
        let sees_none = self.host_files == HostFiles::Never || self.system()? == System::Linux;
        anyhow::ensure!(!sees_none || self.rw.is_empty(), "--rw needs --host-files and the RadixVM kernel");
        let overlay = self.overlay_out.is_some();
        anyhow::ensure!(!sees_none || !overlay, "--overlay-out needs --host-files and the RadixVM kernel");
        if sees_none {
            return Ok((Program::load(&path)?, argv, false));
        }
        let (mut program, needs) = Program::load_any(&path)?;
        let is_wanted = self.host_files == HostFiles::Always || !self.rw.is_empty() || overlay;
        let host_files = is_wanted || needs.is_some();
        if !host_files {
            return Ok((program, argv, false));
        }
        let argv = program::follow_scripts(&mut program, needs, argv)?;
        program.path = std::path::absolute(&program.path)?;
        Ok((program, argv, true))
    }

    fn plan(&self, job: &Job) -> Result<Plan> {
        // First, because finding out the accelerator takes time.
        let words = self.words()?;
        let size = Size { cpus: self.cpus, memory: self.memory, accel: self.accel()? };
        let streams = Streams { stdout: Sink::Stdout, stderr: Sink::Stderr, stdin: true };
        let mut plan = system::plan(self.system()?, job, size, streams)?;
        plan.command_line.push_str(&words);
        plan.terminal = self.tty;
        if let Some(gdb) = self.gdb() {
            plan.machine.gdb = Some(gdb);
            plan.boot_limit = Duration::MAX;
        }
        Ok(plan)
    }

    /// Returns the further words of the kernel's command line.
    fn words(&self) -> Result<String> {
        let (system, mut words) = (self.system()?, String::new());
        if let Some(huge) = self.huge {
            words.push_str(&system::huge(system, huge));
        }
        if self.compress {
            words.push_str(&system::compress(system)?);
        }
        if self.trace()?.is_wanted() {
            anyhow::ensure!(
                system != System::Linux,
                "--strace and --syscall-summary are for the RadixVM kernel"
            );
            words.push_str(&format!(" {TRACE}"));
        }
        if self.strict {
            anyhow::ensure!(system != System::Linux, "--strict is for the RadixVM kernel");
            words.push_str(&format!(" {STRICT}"));
        }
        if self.gdb.is_some() {
            anyhow::ensure!(system != System::Linux, "--gdb is for the RadixVM kernel");
            words.push_str(gdb::WORD);
        }
        if self.fail_alloc {
            words.push_str(" fail-alloc");
        }
        if self.tty {
            anyhow::ensure!(system != System::Linux, "--tty is for the RadixVM kernel");
            let (rows, columns) = terminal::size().unwrap_or((24, 80));
            words.push_str(&format!(" {TERMINAL}={rows}x{columns}"));
        }
        Ok(words)
    }

    /// Adds the device for the program's changes to `plan`, if they are wanted.
    fn overlay(&self, plan: &mut Plan) -> Result<Option<OverlayOut>> {
        let Some(file) = &self.overlay_out else { return Ok(None) };
        anyhow::ensure!(plan.mounts.len() < mount_arg::MOST, "--overlay-out takes the place of one --rw");
        let out = OverlayOut::create(file)?;
        plan.mounts.push(out.folder().to_owned());
        plan.command_line.push_str(&format!(" {OVERLAY_OUT}={}", plan.mounts.len()));
        if self.overlay_tmp {
            plan.command_line.push_str(&format!(" {OVERLAY_TMP}"));
        }
        Ok(Some(out))
    }

    fn gdb(&self) -> Option<Gdb> {
        self.gdb.map(Gdb)
    }

    /// Checks the port for gdb, and says what to do with it.
    fn wait_for_gdb(&self, job: &Job) -> Result<()> {
        let Some(gdb) = self.gdb() else { return Ok(()) };
        gdb.check()?;
        let (command, kernel) = gdb.commands(&job.program, &artifacts::kernel()?);
        terminal::message(format_args!("the guest waits for gdb:\n  {command}"));
        terminal::eprint_plain(&format!("For the names of the kernel, too: {kernel}\n"));
        Ok(())
    }

    fn trace(&self) -> Result<Trace> {
        Trace::new(self.strace.as_deref(), self.syscall_summary)
    }

    fn accel(&self) -> Result<Accel> {
        match self.accel {
            Choice::Kvm => Ok(Accel::Kvm),
            Choice::Tcg => Ok(Accel::Tcg),
            Choice::Count => {
                anyhow::ensure!(self.cpus == 1, "--accel count needs -c 1");
                Ok(Accel::Counting)
            }
            // Breakpoints can be set before there is memory to write them to.
            Choice::Auto if self.gdb.is_some() => Ok(Accel::Tcg),
            Choice::Auto => Ok(choose(self.talkative())?),
        }
    }
}

/// Returns KVM if a guest boots with it, and otherwise the translator. Prints the reason if it may.
fn choose(talkative: bool) -> Result<Accel> {
    let Some(trouble) = kvm::trouble(&artifacts::kernel()?)? else { return Ok(Accel::Kvm) };
    if talkative {
        terminal::message(format_args!("TCG because a KVM guest does not boot here: {trouble}"));
    }
    Ok(Accel::Tcg)
}

/// Returns the file of a program by its name.
fn locate(name: &str) -> Result<PathBuf> {
    if artifacts::is_bundled(name) { artifacts::program(name) } else { program::find(name) }
}

/// Runs the command and returns the exit status.
pub fn run(arguments: Arguments) -> Result<u8> {
    arguments.refuse_detached_form()?;
    arguments.guests.apply();
    let job = arguments.job()?;
    let mut plan = arguments.plan(&job)?;
    if arguments.dry_run {
        terminal::print_plain(super::dry_run::shell_line(&plan)? + "\n")?;
        return Ok(0);
    }
    job.network.as_ref().map_or(Ok(()), Network::check)?;
    arguments.wait_for_gdb(&job)?;
    let overlay = arguments.overlay(&mut plan)?;
    let messages = Messages {
        talkative: arguments.talkative(),
        verbose: arguments.verbose,
        system: arguments.system()?,
    };
    let mut trace = arguments.trace()?;
    let raw = if arguments.tty { Some(terminal::Raw::begin()?) } else { None };
    let mut outcome = session::run(plan, &mut |notice| match notice {
        Notice::Line(Line::Call(call)) => {
            trace.take(call).into_iter().for_each(|line| terminal::eprint_plain(&(line + "\n")));
        }
        notice => messages.tell(&notice),
    })?;
    drop(raw);
    trace.summary().into_iter().for_each(|table| terminal::eprint_plain(&table));
    messages.explain(&outcome, &job);
    if let Some(Err(error)) = overlay.map(OverlayOut::finish) {
        terminal::message(format_args!("{error:#}"));
        outcome.lost_changes = true;
    }
    if let Some(form) = arguments.stats {
        terminal::eprint_plain(&stats(form, outcome.stats.as_ref())?);
    }
    Ok(status(&outcome, &job.program))
}

fn status(outcome: &Outcome, program: &Program) -> u8 {
    match &outcome.end {
        End::Exited(0) if outcome.lost_changes => FAILED,
        End::Exited(status) => *status as u8,
        End::Killed(signal) | End::Interrupted(signal) => 128 + *signal as u8,
        End::Refused(why) => {
            terminal::message(format_args!("{}: cannot be run: {why}", program.path.display()));
            NOT_RUNNABLE
        }
        End::Enough => 0,
        End::Failed(why) | End::Unbooted(why) => {
            terminal::message(why);
            FAILED
        }
    }
}

fn stats(form: Form, stats: Option<&Stats>) -> Result<String> {
    match (form, stats) {
        (Form::Json, stats) => Ok(serde_json::to_string(&stats)? + "\n"),
        (Form::Table, None) => Ok("radixvm: this guest sent no counters\n".to_owned()),
        (Form::Table, Some(stats)) => Ok(counters(stats)),
    }
}

/// Formats the counters in rows, with the sum and then every core in columns.
fn counters(stats: &Stats) -> String {
    let cores = stats.counters.values().map(Vec::len).max().unwrap_or(0);
    let heading = ["counter".to_owned(), "total".to_owned()];
    let mut table = Table::new(heading.into_iter().chain((0..cores).map(|core| format!("core {core}"))));
    for (name, values) in &stats.counters {
        let cells = [name.clone(), count(stats.total(name))];
        table.row(cells.into_iter().chain(values.iter().map(|value| count(*value))));
    }
    table.row(["leaked_frames".to_owned(), stats.leaked_frames.to_string()]);
    table.row(["leaked_nodes".to_owned(), stats.leaked_nodes.to_string()]);
    table.row(["deepest_stack".to_owned(), count(stats.deepest_stack)]);
    table.to_string()
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

    fn parsed(words: &str) -> Result<Arguments, clap::Error> {
        let words = std::iter::once("run").chain(words.split_whitespace());
        Line::try_parse_from(words).map(|line| line.arguments)
    }

    #[test]
    fn mistyped_options_are_not_programs() {
        for (words, word) in [
            ("--tabels shared -- ./ex", "--tabels"),
            ("-stats ./ex", "-s"),
            ("--tabels=shared ./ex", "--tabels"),
        ] {
            let error = parsed(words).err().unwrap().to_string();
            assert!(error.contains(&format!("unexpected argument '{word}'")), "{error}");
        }
        let error = parsed("--stats json -- ./ex").unwrap().refuse_detached_form().unwrap_err();
        assert_eq!(error.to_string(), "--stats json: write --stats=json");
    }

    #[test]
    fn a_named_stock_kernel_is_the_one_to_run_on() {
        let system = |words| parsed(words).unwrap().system();
        assert_eq!(system("--linux 6.12 ./ex").unwrap(), System::Linux);
        assert_eq!(system("--system linux ./ex").unwrap(), System::Linux);
        assert_eq!(system("./ex").unwrap(), System::DEFAULT);
        assert!(system("--system radixvm --linux 6.12 ./ex").is_err());
    }

    #[test]
    fn words_after_the_program_are_its_own() {
        for (words, command) in [
            ("-c 2 ./ex --cpus 3 -v -- x --", "./ex --cpus 3 -v -- x --"),
            ("--stats -- ./ex -h", "./ex -h"),
            ("-- --odd -- -x", "--odd -- -x"),
            ("json -- ./ex", "json -- ./ex"),
        ] {
            let arguments = parsed(words).unwrap();
            assert_eq!(arguments.command.join(" ".as_ref()), command);
            assert!(arguments.refuse_detached_form().is_ok());
        }
    }
}

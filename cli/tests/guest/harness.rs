//! Helpers that run the command and the programs in tests.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use serde_json::Value;

/// Returns the command under test. `timeout` ends it when it hangs. These runs take no minutes, but on a busy
/// machine they may.
pub fn radixvm() -> Command {
    radixvm_within("1800")
}

/// Does the same with a limit of `limit` seconds.
pub fn radixvm_within(limit: &str) -> Command {
    build();
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", limit, env!("CARGO_BIN_EXE_radixvm")]);
    command.stdin(Stdio::null());
    command
}

/// Returns the output of a command that meters. Where the host keeps a CPU from running it refuses to say
/// anything, and is run again, at most five times.
pub fn unless_busy(meter: impl Fn() -> Output) -> Output {
    let is_busy =
        |output: &Output| String::from_utf8_lossy(&output.stderr).contains("this machine is too busy");
    (0..5).map(|_| meter()).find(|output| !is_busy(output)).unwrap_or_else(meter)
}

/// Returns `radixvm bench` with a limit of `limit` seconds. Building the laboratory does not count.
pub fn bench(limit: &str) -> Command {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_radixvm"));
        let built = command.args(["bench", "--help"]).output().expect("the command starts");
        assert!(built.status.success(), "{built:?}");
    });
    let mut command = radixvm_within(limit);
    command.arg("bench");
    command
}

/// Builds everything that the command builds when it is first used, and fetches the stock kernel. That comes
/// before any time limit begins, and before several tests do it at once.
fn build() {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        let dry_run = |options: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_radixvm"));
            command
                .args(["run", "--dry-run"])
                .args(options)
                .arg("wordindex")
                .output()
                .expect("the command starts")
        };
        let built = dry_run(&[]);
        assert!(built.status.success(), "{built:?}");
        // If no stock kernel can be fetched, only the tests that need it fail.
        dry_run(&["--system", "linux"]);
    });
}

/// Keeps other tests from booting the output of `run --dry-run`, because the same image means the same
/// control file.
pub fn dry_run_turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The results of a run.
#[derive(Debug)]
pub struct Run {
    /// The program's standard output.
    pub stdout: Vec<u8>,
    /// Everything on stderr except the counters.
    pub stderr: String,
    /// The exit status.
    pub status: i32,
    /// The kernel's counters.
    pub stats: Value,
}

impl Run {
    /// Returns standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8(self.stdout.clone()).expect("this program prints text")
    }

    /// Returns a counter of the kernel, summed over all CPUs.
    pub fn counter(&self, name: &str) -> i64 {
        let counts =
            self.stats["counters"][name].as_array().unwrap_or_else(|| panic!("no counter {name}: {self:?}"));
        counts.iter().map(|count| count.as_i64().expect("a number")).sum()
    }

    /// Returns the object that a program prints with `--json`.
    pub fn report(&self) -> Value {
        assert_eq!(self.status, 0, "{self:?}");
        serde_json::from_slice(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Runs `radixvm run OPTIONS -- WORDS` with an empty standard input. Whatever happened to the program, all
/// its memory must have been freed.
pub fn run(options: &[&str], words: &[&str]) -> Run {
    run_with(options, words, b"")
}

/// Does the same for a kernel that was told to leak memory.
pub fn run_losing(options: &[&str], words: &[&str]) -> Run {
    unchecked(options, words, b"")
}

fn unchecked(options: &[&str], words: &[&str], stdin: &[u8]) -> Run {
    let mut command = radixvm();
    command.args(["run", "--stats=json"]).args(options).arg("--").args(words);
    split(feed(command, stdin))
}

/// The bytes of a kernel stack that may be used. The deepest call, `fork`, uses 11,152 of 16,384, and an
/// interrupt may come at its deepest place.
const MOST_STACK: u64 = 14 << 10;

/// Runs [`run`] with `stdin` on standard input.
pub fn run_with(options: &[&str], words: &[&str], stdin: &[u8]) -> Run {
    let run = unchecked(options, words, stdin);
    assert_eq!(run.stats["leaked_frames"], 0, "{run:?}");
    assert_eq!(run.stats["leaked_nodes"], 0, "{run:?}");
    let deepest = run.stats["deepest_stack"].as_u64().unwrap_or_else(|| panic!("{run:?}"));
    assert!((1..=MOST_STACK).contains(&deepest), "{run:?}");
    run
}

/// Runs a command with this standard input, which another thread writes so that neither side waits for the
/// other. The outcome is printed, and the test runner shows it if the test fails.
#[allow(clippy::disallowed_macros)] // a test's own words
pub fn feed(command: Command, stdin: &[u8]) -> Output {
    let named = format!("{command:?}");
    let output = feed_quietly(command, stdin);
    println!("{named}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    println!("{}", ending(&String::from_utf8_lossy(&output.stdout)));
    output
}

/// Returns the last thousand lines of a text.
fn ending(text: &str) -> &str {
    text.rmatch_indices('\n').nth(1000).map_or(text, |(at, _)| &text[at + 1..])
}

fn feed_quietly(mut command: Command, stdin: &[u8]) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the command starts");
    let mut pipe = child.stdin.take().expect("piped");
    std::thread::scope(|scope| {
        // A program that ends early does not read the rest.
        scope.spawn(move || drop(pipe.write_all(stdin)));
        child.wait_with_output().expect("the command ends")
    })
}

/// Separates the counters, which are the last line, from stderr.
fn split(output: Output) -> Run {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let end = stderr.trim_end_matches('\n');
    let at = end.rfind('\n').map_or(0, |at| at + 1);
    let stats = serde_json::from_str(&end[at..]).unwrap_or(Value::Null);
    let status = output.status.code().expect("timeout passes the status on");
    let messages = if stats.is_null() { stderr.len() } else { at };
    Run { stdout: output.stdout, stderr: stderr[..messages].to_owned(), status, stats }
}

/// Returns a scratch folder of one test.
pub fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).expect("the target folder can be written");
    folder
}

/// Returns the repository's root.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("cli/ lies in the repository")
}

/// A way to make a program from C.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Compiler {
    /// glibc at a fixed address.
    Static,
    /// glibc, position-independent.
    StaticPie,
    /// musl.
    Musl,
    /// glibc, linked dynamically.
    Dynamic,
}

impl Compiler {
    fn command(self) -> (&'static str, &'static str) {
        match self {
            Compiler::Static => ("gcc", "-static"),
            Compiler::StaticPie => ("gcc", "-static-pie"),
            Compiler::Musl => ("musl-gcc", "-static"),
            Compiler::Dynamic => ("gcc", "-pie"),
        }
    }
}

/// Compiles `user/c/NAME.c` once, and returns the program.
pub fn compiled(name: &str, compiler: Compiler) -> String {
    static DONE: Mutex<BTreeMap<(String, Compiler), String>> = Mutex::new(BTreeMap::new());
    // A program that does not compile fails its own tests only.
    let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    done.entry((name.to_owned(), compiler)).or_insert_with(|| compile(name, compiler)).clone()
}

fn compile(name: &str, compiler: Compiler) -> String {
    let source = root().join("user/c").join(name).with_extension("c");
    let program = scratch("c").join(format!("{name}-{compiler:?}")).display().to_string();
    let (gcc, flag) = compiler.command();
    let built = Command::new(gcc).args(["-O1", "-g", "-pthread", flag, "-o", &program]).arg(source).status();
    assert!(built.unwrap_or_else(|error| panic!("{gcc}: {error}")).success(), "{name}.c does not compile");
    program
}

/// Runs a program on this machine, and returns its output and its status.
pub fn here(words: &[impl AsRef<OsStr>], stdin: &[u8]) -> (Vec<u8>, Option<i32>) {
    let mut command = Command::new(words[0].as_ref());
    command.args(&words[1..]);
    let output = feed(command, stdin);
    let killed = output.status.signal().map(|signal| 128 + signal);
    (output.stdout, output.status.code().or(killed))
}

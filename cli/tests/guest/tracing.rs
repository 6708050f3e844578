//! Installed programs that trace others.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};

use crate::harness::{radixvm, scratch};

/// Runs words in a guest with two CPUs.
fn in_guest(words: &[&str]) -> Output {
    radixvm().args(["run", "-c", "2", "--"]).args(words).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The lines that strace prints about the chosen calls say what the program did, of each process.
#[test]
fn strace_follows_processes() {
    let script = "mkdir /none/folder; (echo child; exit 3); kill -USR1 $$; exit 4";
    let calls = "trace=mkdir,write,exit_group,execve";
    let output = in_guest(&["strace", "-f", "-e", calls, "sh", "-c", script]);
    let (shown, all) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(shown, "child\n", "{output:?}");
    for wanted in [
        "execve(\"/usr/bin/mkdir\", [\"mkdir\", \"/none/folder\"], ",
        "mkdir(\"/none/folder\", 0777) = -1 ENOENT (No such file or directory)",
        "write(1, \"child\\n\", 6",
        "exit_group(3)",
        "+++ exited with 3 +++",
        "--- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED, ",
        "--- SIGUSR1 {si_signo=SIGUSR1, si_code=SI_USER, ",
        "+++ killed by SIGUSR1 +++",
    ] {
        assert!(all.contains(wanted), "{wanted}: {all}");
    }
}

const PROGRAM: &str = "#include <stdio.h>
static int sum(const int *at, int count) {
    int all = 0;
    for (int i = 0; i < count; i++)
        all += at[i];
    return all;
}
int main(void) {
    int numbers[] = {1, 2, 3};
    printf(\"%d\\n\", sum(numbers, 3));
    return 5;
}
";

/// Compiles `PROGRAM` in a folder of its own, and returns its path.
fn built(name: &str, options: &[&str]) -> String {
    let folder = scratch(name);
    let (source, program) = (folder.join("sum.c"), folder.join("sum").display().to_string());
    std::fs::write(&source, PROGRAM).unwrap();
    let words = ["-g", "-O0", "-o", &program];
    let built = Command::new("gcc").args(words).args(options).arg(&source).status().unwrap();
    assert!(built.success());
    program
}

/// gdb stops a program at a function, shows its frames, steps, changes a variable, calls a function, and lets
/// the program end.
#[test]
fn gdb_stops_steps_and_changes() {
    let program = built("tracing", &[]);
    let commands = [
        "break sum",
        "run",
        "backtrace",
        "next",
        "next",
        "print count",
        "print at[2]",
        "set variable count = 2",
        "finish",
        "delete",
        "print sum(numbers, 1)",
        "continue",
    ];
    let mut words = vec!["gdb", "--batch", "-nx"];
    words.extend(commands.iter().flat_map(|command| ["-ex", *command]));
    words.push(&program);
    let output = in_guest(&words);
    let all = text(&output.stdout);
    for wanted in [
        "Breakpoint 1, sum (",
        "#1 ",
        " in main () at ",
        "$1 = 3",
        "$2 = 3",
        "Value returned is $3 = 3",
        "$4 = 1",
        "exited with code 05]",
    ] {
        assert!(all.contains(wanted), "{wanted}: {all}{}", text(&output.stderr));
    }
}

/// Returns a port that no program of this machine has.
fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// Runs `PROGRAM` in a guest that waits for gdb, with the command of gdb that the run prints and these
/// commands. Returns the output of gdb and of the run.
fn by_port(program: &str, commands: &[&str]) -> (Output, Output) {
    let mut command = radixvm();
    command.args(["run", "-c", "2", "--gdb", &free_port().to_string(), "--", program]);
    let mut run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(run.stderr.take().unwrap());
    let mut line = String::new();
    while !line.trim_start().starts_with("gdb ") {
        line.clear();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "{:?}", run.wait_with_output());
    }
    let patient = "exec timeout 1800 gdb --batch -nx -iex 'set tcp connect-timeout unlimited' -iex 'set remotetimeout 250'";
    let given: String = commands.iter().map(|command| format!(" -ex '{command}'")).collect();
    let shell = line.trim().replacen("gdb", patient, 1) + &given;
    let debugger = Command::new("sh").args(["-c", &shell]).output().unwrap();
    let mut rest = Vec::new();
    lines.read_to_end(&mut rest).unwrap();
    let output = run.wait_with_output().unwrap();
    (debugger, Output { stderr: rest, ..output })
}

/// With `--gdb` the guest waits for gdb, which stops the program, wherever it is loaded, and changes it.
#[test]
fn gdb_stops_a_guest_by_a_port() {
    for (name, options) in [("gdb-moved", &[][..]), ("gdb-fixed", &["-static", "-no-pie"])] {
        let program = built(name, options);
        let commands = [
            "break sum",
            "continue",
            "backtrace",
            "next",
            "print at[2]",
            "set variable count = 2",
            "delete",
            "detach",
        ];
        let (debugger, run) = by_port(&program, &commands);
        let all = text(&debugger.stdout);
        for wanted in ["Breakpoint 1, sum (", "#1 ", " in main () at ", "$1 = 3"] {
            assert!(all.contains(wanted), "{wanted}: {debugger:?} {run:?}");
        }
        assert_eq!((text(&run.stdout).as_str(), run.status.code()), ("3\n", Some(5)), "{run:?}");
    }
}

//! The same static ELF file gives the same output on this machine and in a guest, whatever compiler made it.

use std::fs::File;

use rustix::fs::{FlockOperation, flock};

use crate::harness::{Compiler, compiled, here, run, run_with};
use crate::skipped::skip;

/// The status of a program that this machine refuses a call, as containers do.
const REFUSED: i32 = 97;

/// Returns a lock to hold while a program runs on this machine, where programs of several tests, and of those
/// of another checkout, would share paths, names and users.
fn alone_here() -> File {
    let path = std::env::temp_dir().join("radixvm-tests-alone");
    // Linux may refuse to create a file that another user has made.
    let open = |is_new| File::options().create(is_new).append(true).open(&path);
    let file = open(false).or_else(|_| open(true)).expect("a folder for temporary files");
    flock(&file, FlockOperation::LockExclusive).expect("a file can be locked");
    file
}

/// Runs a C program everywhere and compares its output.
fn same(compiler: Compiler, name: &str, options: &[&str], arguments: &[&str], stdin: &[u8]) {
    let program = compiled(name, compiler);
    let words: Vec<&str> = [program.as_str()].iter().chain(arguments).copied().collect();
    let alone = alone_here();
    let (stdout, status) = here(&words, stdin);
    drop(alone);
    if status == Some(REFUSED) {
        return skip(&format!("{name} is refused here"));
    }
    let run = run_with(options, &words, stdin);
    assert_eq!(Some(run.status), status, "{run:?}");
    assert_eq!(run.text(), String::from_utf8_lossy(&stdout), "{}", run.stderr);
}

/// Returns the files that a program of this machine needs to be loaded, itself included.
fn with_libraries(program: &str) -> Vec<String> {
    let listed = std::process::Command::new("ldd").arg(program).output().expect("ldd").stdout;
    let listed = String::from_utf8(listed).expect("paths");
    let paths = listed.split_whitespace().filter(|word| word.starts_with('/'));
    paths.chain([program]).map(str::to_owned).collect()
}

/// The kernel loads the interpreter beside the program, and the interpreter maps the libraries.
#[test]
fn a_dynamic_program_is_run_by_another() {
    let files = with_libraries("/bin/echo");
    let options: Vec<&str> = files.iter().flat_map(|file| ["--file", file]).collect();
    let run = run(&options, &[&compiled("programs", Compiler::Musl), "run", "/bin/echo", "two", "words"]);
    assert_eq!((run.status, run.text().as_str()), (0, "two words\n"), "{run:?}");
}

/// A thousand children leave no memory in use if no other process runs.
#[test]
fn children_leave_nothing() {
    let run = run(&["-c", "4"], &[&compiled("processes", Compiler::Musl), "alone"]);
    assert!(run.text().contains("leave nothing: ok\n"), "{run:?}");
}

/// Queues of messages are limited in number and in bytes, which the end of a queue gives back.
#[test]
fn message_queues_have_limits() {
    let run = run(&["-m", "256M"], &[&compiled("mqueue", Compiler::Musl), "limits"]);
    let wanted = "\
9 queues: No file descriptors available
9 queues: No file descriptors available
256 queues: No space left on device
more: 0
more than the memory: No file descriptors available
long messages: yes
send: 0
receive: 1048576
the same: yes
";
    assert_eq!((run.status, run.text().as_str()), (0, wanted), "{run:?}");
}

/// A core may keep translations of a process that it does not run.
#[test]
fn processes_that_take_turns_find_their_own_pages() {
    for (tables, cpus) in [("percore", "1"), ("percore", "3"), ("adaptive", "1"), ("shared", "2")] {
        let options = ["-c", cpus, "--tables", tables];
        let run = run(&options, &[&compiled("context_switches", Compiler::Musl), "5", "40"]);
        assert!(run.status == 0 && run.text() == "context_switches: done\n", "{run:?}");
    }
}

/// Linux promises less: the lines are consistent although other threads run meanwhile.
#[test]
fn proc_is_consistent_while_others_work() {
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let run = run(&["--file", text, "-c", "4"], &[&compiled("maps", Compiler::Musl), text, "others"]);
    assert!(run.text().contains("while others work: ok\n"), "{run:?}");
}

/// Runs every C program made by one compiler.
macro_rules! made_by {
    ($($module:ident: $compiler:expr;)*) => {$(
        mod $module {
            use super::{same, Compiler::*};

            #[test]
            fn arguments_environment_and_status() {
                same($compiler, "hello", &[], &["7", "two words", ""], b"");
            }

            #[test]
            fn threads() {
                same($compiler, "pthreads", &["-c", "4"], &["16"], b"");
            }

            #[test]
            fn signals() {
                same($compiler, "signals", &["-c", "2"], &[], b"");
            }

            #[test]
            fn waits_for_sets_of_files() {
                same($compiler, "select", &["-c", "2"], &[], b"");
            }

            #[test]
            fn pairs_of_sockets() {
                same($compiler, "socketpair", &["-c", "2"], &[], b"");
            }

            #[test]
            fn locks_of_files() {
                same($compiler, "locks", &["-c", "4"], &[], b"");
            }

            #[test]
            fn locks_end_with_their_files() {
                same($compiler, "lock_ends", &["-c", "4"], &["150", "1"], b"");
            }

            #[test]
            fn sockets_that_listen() {
                same($compiler, "sockets", &["-c", "4"], &[], b"");
            }

            #[test]
            fn sockets_for_messages() {
                for cpus in ["1", "4"] {
                    same($compiler, "datagrams", &["-c", cpus], &[], b"");
                }
            }

            #[test]
            fn messages_of_a_connection() {
                for cpus in ["1", "4"] {
                    same($compiler, "packets", &["-c", cpus], &[], b"");
                }
            }

            #[test]
            fn several_messages_and_limited_waits() {
                for cpus in ["1", "4"] {
                    same($compiler, "several", &["-c", cpus], &[], b"");
                }
            }

            #[test]
            fn descriptors_in_messages() {
                for cpus in ["1", "4"] {
                    same($compiler, "rights", &["-c", cpus], &[], b"");
                }
            }

            #[test]
            fn events_of_files() {
                for cpus in ["1", "4"] {
                    same($compiler, "inotify", &["-c", cpus], &["/tmp"], b"");
                }
            }

            #[test]
            fn limits_and_names_of_descriptors() {
                same($compiler, "descriptors", &["-c", "2"], &[], b"");
            }

            #[test]
            fn pseudo_terminals() {
                for cpus in ["1", "4"] {
                    same($compiler, "pty", &["-c", cpus], &[], b"");
                }
            }

            #[test]
            fn timers() {
                same($compiler, "timers", &["-c", "2"], &[], b"");
            }

            #[test]
            fn timers_that_are_deleted_while_they_are_set() {
                same($compiler, "timer_race", &["-c", "2"], &["3000"], b"");
            }

            #[test]
            fn timers_that_are_over_or_stopped() {
                same($compiler, "timer_ends", &["-c", "2"], &["1000"], b"");
            }

            #[test]
            fn timers_of_cpu_time() {
                for cpus in ["1", "4"] {
                    same($compiler, "cpu_timers", &["-c", cpus], &[], b"");
                }
            }

            #[test]
            fn signals_that_are_read() {
                for cpus in ["1", "4"] {
                    same($compiler, "signalfd", &["-c", cpus], &[], b"");
                }
            }

            #[test]
            fn signals_that_queue() {
                for cpus in ["1", "4"] {
                    same($compiler, "queued", &["-c", cpus], &[], b"");
                }
            }

            #[test]
            fn actions_that_change() {
                for cpus in ["1", "4"] {
                    same($compiler, "actions", &["-c", cpus], &[], b"");
                }
            }

            #[test]
            fn tracing_by_another_process() {
                for cpus in ["1", "4"] {
                    same($compiler, "ptrace", &["-c", cpus], &[], b"");
                    same($compiler, "ptrace_attach", &["-c", cpus], &[], b"");
                }
            }

            #[test]
            fn signals_of_later_threads() {
                for cpus in ["1", "4"] {
                    same($compiler, "later_threads", &["-c", cpus], &[], b"");
                }
            }

            #[test]
            fn sysv_shared_memory() {
                for cpus in ["1", "4"] {
                    same($compiler, "shm", &["-c", cpus], &[], b"");
                }
            }

            #[test]
            fn sysv_semaphores_and_messages() {
                for cpus in ["1", "4"] {
                    same($compiler, "sem", &["-c", cpus], &[], b"");
                    same($compiler, "msg", &["-c", cpus], &[], b"");
                }
            }

            #[test]
            fn posix_message_queues() {
                for cpus in ["1", "4"] {
                    same($compiler, "mqueue", &["-c", cpus], &[], b"");
                }
            }

            #[test]
            fn users_groups_and_capabilities() {
                for cpus in ["1", "4"] {
                    same($compiler, "users", &["-c", cpus], &[], b"");
                }
            }

            #[test]
            fn set_id_programs_and_those_who_look_at_them() {
                for cpus in ["1", "4"] {
                    same($compiler, "setid", &["-c", cpus], &[], b"");
                }
            }

            #[test]
            fn rights_of_sysv_objects_message_queues_and_ports() {
                for cpus in ["1", "4"] {
                    same($compiler, "ipc_rights", &["-c", cpus], &[], b"");
                }
            }

            #[test]
            fn lists_of_files() {
                same($compiler, "epoll", &["-c", "4"], &[], b"");
            }

            #[test]
            fn signal_frames() {
                same($compiler, "frames", &[], &[], b"");
            }

            #[test]
            fn exceptions() {
                same($compiler, "faults", &[], &[], b"");
            }

            #[test]
            fn clocks() {
                same($compiler, "time", &["-c", "2"], &[], b"");
            }

            #[test]
            fn clocks_without_a_call() {
                for cpus in ["1", "4"] {
                    same($compiler, "vdso", &["-c", cpus], &[], b"");
                }
            }

            #[test]
            fn files() {
                let text = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
                same($compiler, "files", &["--file", text], &[text], b"");
            }

            #[test]
            fn what_processes_share() {
                same($compiler, "shared_parts", &["-c", "2"], &[], b"");
            }

            #[test]
            fn limits_as_a_file() {
                same($compiler, "limits", &["-c", "1"], &[], b"");
            }

            #[test]
            fn personalities() {
                same($compiler, "personality", &["-c", "1"], &[], b"");
            }

            #[test]
            fn names() {
                same($compiler, "directories", &["-c", "2"], &[], b"");
            }

            #[test]
            fn mappings_of_files() {
                let text = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
                same($compiler, "mappings", &["--file", text, "-c", "2"], &[text], b"");
            }

            #[test]
            fn proc_lists_many_mappings() {
                same($compiler, "regions", &["-c", "2"], &[], b"");
            }

            #[test]
            fn proc_reports_memory() {
                let text = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
                same($compiler, "maps", &["--file", text, "-c", "4"], &[text], b"");
            }

            #[test]
            fn calls_about_memory() {
                same($compiler, "memory", &["-c", "2"], &[], b"");
            }

            #[test]
            fn mappings_that_move() {
                same($compiler, "remap", &["-c", "2"], &[], b"");
            }

            #[test]
            fn huge_pages() {
                same($compiler, "hugepages", &["-c", "4"], &[], b"");
            }

            #[test]
            fn pages_that_become_huge() {
                same($compiler, "collapse", &["-c", "4"], &[], b"");
            }

            #[test]
            fn seals() {
                same($compiler, "seals", &["-c", "2"], &[], b"");
            }

            #[test]
            fn pipes() {
                same($compiler, "pipes", &["-c", "4"], &["6", "200"], b"");
            }

            #[test]
            fn processes() {
                same($compiler, "processes", &["-c", "4"], &[], b"");
            }

            #[test]
            fn programs() {
                same($compiler, "programs", &["-c", "2"], &[], b"");
            }

            #[test]
            fn standard_input() {
                same($compiler, "stdin", &[], &["7"], b"a line\nand an unfinished one");
            }
        }
    )*};
}

made_by! {
    glibc_static: Static;
    glibc_static_pie: StaticPie;
    musl: Musl;
}

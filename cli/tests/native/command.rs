//! The command itself: statuses, messages, counters.

use std::process::{Command, Stdio};

use super::{Seen, in_way, see};

fn native(words: &[&str]) -> Seen {
    super::runtime();
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", "600", env!("CARGO_BIN_EXE_radixvm"), "native"]).args(words);
    command.stdin(Stdio::null());
    see(command)
}

#[test]
fn the_status_is_the_programs() {
    for status in [0, 1, 77, 255] {
        let seen = native(&["--", "sh", "-c", &format!("exit {status}")]);
        assert_eq!((seen.status, seen.text.as_str(), seen.messages.as_str()), (Some(status), "", ""));
    }
}

#[test]
fn the_first_program_may_be_a_script() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    std::fs::write(&script, "#!/bin/sh -e\necho $0: $# $1; cat /proc/$$/comm; exit 6\n").unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let script = script.to_str().unwrap();
    let seen = native(&["--", script, "one", "two"]);
    assert_eq!((seen.status, seen.text), (Some(6), format!("{script}: 2 one\nscript\n")));
}

#[test]
fn the_program_is_the_process() {
    // timeout sends the signal that ends its child to itself, so the shell prints it.
    let script = format!("{} native -- sh -c 'kill -TERM $$'; echo $?", env!("CARGO_BIN_EXE_radixvm"));
    super::runtime();
    let mut command = Command::new("sh");
    command.args(["-c", &script]);
    assert!(see(command).text.contains("143"));
}

#[test]
fn programs_that_cannot_run_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    std::fs::write(&text, "no program").unwrap();
    let text = text.to_str().unwrap();
    for (program, status, why) in [
        ("no-such-program", 127, "no such program"),
        ("/no/such/program", 127, "no such program"),
        (text, 126, "no permission"),
    ] {
        let seen = native(&["--", program]);
        assert_eq!((seen.status, seen.text.as_str()), (Some(status), ""), "{seen:?}");
        assert!(seen.messages.starts_with(&format!("pathreads: {program}: {why}")), "{seen:?}");
    }
    std::fs::set_permissions(text, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let seen = native(&["--", text]);
    assert!(seen.status == Some(126) && seen.messages.contains("neither a program"), "{seen:?}");
}

/// The runtime cannot load a program whose addresses it has itself, or one with rights of its own. Linux
/// does, whether it is the first program or another one executes it.
#[test]
fn linux_executes_other_programs() {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("seven.c"), folder.path().join("seven"));
    std::fs::write(&source, "int main() { return 7; }").unwrap();
    let addresses = ["-no-pie", "-Wl,-Ttext-segment=0x70000000"];
    let mut compiler = Command::new("gcc");
    assert!(compiler.args(addresses).arg("-o").arg(&program).arg(&source).status().unwrap().success());
    let program = program.to_str().unwrap();
    let seen = native(&["--", program]);
    assert_eq!((seen.status, seen.text.as_str()), (Some(7), ""), "{seen:?}");
    assert!(seen.messages.contains("Linux executes it without the runtime"), "{seen:?}");
    assert_eq!(native(&["--", "sh", "-c", &format!("{program}; exit $?")]).status, Some(7));
    let compiled = Command::new("gcc").arg("-o").arg(program).arg(&source).status();
    assert!(compiled.unwrap().success());
    let rights = std::os::unix::fs::PermissionsExt::from_mode(0o4755);
    std::fs::set_permissions(program, rights).unwrap();
    let seen = native(&["--", program]);
    assert!(seen.status == Some(7) && seen.messages.contains("without the runtime"), "{seen:?}");
}

#[test]
fn the_runtime_explains_itself() {
    for words in [&[][..], &["--unknown", "--", "true"], &["--"]] {
        let mut command = Command::new(super::runtime());
        let seen = see({
            command.args(words);
            command
        });
        assert_eq!(seen.status, Some(125), "{words:?}");
        assert!(seen.messages.starts_with("pathreads: usage: "), "{seen:?}");
    }
}

#[test]
fn the_pool_is_used_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("churn.c");
    // Maps memory of this length, and unmaps one of as many as the second argument says. If there is a third,
    // it maps without rights, and then makes so much accessible.
    let text = "#include <stdlib.h>\n#include <sys/mman.h>\nint main(int count, char **words) {\
        long length = atol(words[1]), kept = atol(words[2]), part = count > 3 ? atol(words[3]) : 0;\
        for (int i = 1; i <= 1016; i++) {\
        char *p = mmap(0, length, part ? 0 : 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);\
        if (part) mprotect(p, part, 3);\
        p[5] = 1;\
        if (i % kept == 0) munmap(p, length); } }";
    std::fs::write(&source, text).unwrap();
    let program = folder.path().join("churn");
    assert!(Command::new("gcc").arg("-o").arg(&program).arg(&source).status().unwrap().success());
    let mappings = |way: &[&str], words: &[&str]| {
        let mut command = in_way(way, &program);
        command.args(words);
        let seen = see(command);
        let first = seen.messages.strip_prefix("pathreads: ").and_then(|text| text.split(' ').next());
        first.and_then(|number| number.parse::<u64>().ok()).unwrap_or_else(|| panic!("{seen:?}"))
    };
    // Linux makes the first 16.
    assert!(mappings(&["--stats"], &["8192", "1"]) >= 1000);
    assert!(mappings(&["--strict", "--stats"], &["8192", "1"]) >= 1000);
    // Large ones come from the pool when the program has unmapped such: a thread may change its CPU, which
    // has a list of its own.
    assert!(mappings(&["--stats"], &["1048576", "1"]) >= 900);
    assert!(mappings(&["--strict", "--stats"], &["270336", "1"]) >= 900);
    assert_eq!(mappings(&["--stats"], &["1048576", "2000"]), 0);
    assert_eq!(mappings(&["--stats"], &["1052672", "1"]), 0);
    // A reservation, when the program has unmapped one of that length.
    for length in ["65536", "4362076160"] {
        assert!(mappings(&["--stats"], &[length, "1", "65536"]) >= 900);
        assert_eq!(mappings(&["--stats"], &[length, "2000", "65536"]), 0);
        assert_eq!(mappings(&["--strict", "--stats"], &[length, "1", "65536"]), 0);
    }
}

/// A thread that maps and unmaps memory of its own asks no other thread under `--isolate`, although another
/// makes calls that name memory.
#[test]
fn memory_of_one_thread_disturbs_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("quiet.c");
    let text = "#include <poll.h>\n#include <pthread.h>\n#include <sys/mman.h>\n#include <sys/random.h>\n\
        #include <time.h>\nstatic volatile int is_over;\n\
        static void *churn(void *with) { for (int i = 0; i < 3000; i++) {\
        char *at = mmap(0, 8192, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); at[5] = 1; munmap(at, 8192); }\
        is_over = 1; return with; }\n\
        int main() { pthread_t thread; char bytes[8]; struct timespec time = {0, 1000};\
        pthread_create(&thread, 0, churn, 0);\
        while (!is_over) { poll(0, 0, 0); getrandom(bytes, 8, 0); nanosleep(&time, 0); }\
        return pthread_join(thread, 0); }";
    std::fs::write(&source, text).unwrap();
    let program = folder.path().join("quiet");
    let mut compiler = Command::new("gcc");
    assert!(compiler.args(["-pthread", "-o"]).arg(&program).arg(&source).status().unwrap().success());
    let seen = see(in_way(&["--isolate", "--stats"], &program));
    assert!(seen.messages.contains(" 0 requests to other threads"), "{seen:?}");
}

/// `--stats` counts what threads do to each other under `--isolate`: a fault in memory of another thread, a
/// request when that goes, those that had it and are not asked the next time, and the threads that need not
/// be asked because they had not the memory.
#[test]
fn work_for_other_threads_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("shared.c");
    let text = "#include <pthread.h>\n#include <sys/mman.h>\nstatic char *at;\n\
        static pthread_barrier_t barrier;\n\
        static void *touch(void *with) { pthread_barrier_wait(&barrier); if (with) at[5]++;\
        pthread_barrier_wait(&barrier); pthread_barrier_wait(&barrier); if (with) at[5]++;\
        pthread_barrier_wait(&barrier); pthread_barrier_wait(&barrier); return 0; }\n\
        int main() { pthread_t threads[3]; size_t length = 8 << 20;\
        pthread_barrier_init(&barrier, 0, 4);\
        for (long i = 0; i < 3; i++) pthread_create(threads + i, 0, touch, (void *)i);\
        at = mmap(0, length, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); at[4] = 1;\
        for (int round = 0; round < 2; round++) {\
        pthread_barrier_wait(&barrier); pthread_barrier_wait(&barrier); munmap(at, length);\
        at = mmap(0, length, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }\
        pthread_barrier_wait(&barrier);\
        for (int i = 0; i < 3; i++) pthread_join(threads[i], 0); return 0; }";
    std::fs::write(&source, text).unwrap();
    let program = folder.path().join("shared");
    let mut compiler = Command::new("gcc");
    assert!(compiler.args(["-pthread", "-o"]).arg(&program).arg(&source).status().unwrap().success());
    let seen = see(in_way(&["--isolate", "--stats"], &program));
    let count = |what: &str| {
        let before = seen.messages.split(what).next().filter(|before| before.len() < seen.messages.len());
        let number = before.and_then(|before| before.rsplit(' ').next()).and_then(|word| word.parse().ok());
        number.unwrap_or_else(|| panic!("no{what}: {seen:?}"))
    };
    let least = [
        (" faults that mapped", 2),
        (" requests to other", 2),
        (" regions mapped", 2),
        (" requests avoided", 1),
        (" threads not asked", 2),
        (" in faults", 1),
        (" asking", 1),
    ];
    for (what, least) in least {
        let number: u64 = count(what);
        assert!(number >= least, "{number}{what}: {seen:?}");
    }
}

/// A process with large memory is made without a copy of that under `--isolate`. A part is copied before a
/// process writes to it, but not when no other has it any more.
#[test]
fn large_memory_is_copied_on_demand() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("fork.c");
    // The second argument says whether the children live while their maker writes.
    let text = "#include <stdlib.h>\n#include <string.h>\n#include <sys/mman.h>\n#include <sys/wait.h>\n\
        #include <unistd.h>\n\
        int main(int count, char **words) { size_t large = 256 << 20; int ends[2]; char byte;\
        char *at = mmap(0, large, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); memset(at, 1, large);\
        for (int i = 0; i < 5; i++) { if (pipe(ends)) return 2; int child = fork();\
        if (child == 0) { close(ends[1]); _exit(read(ends[0], &byte, 1) != 0); }\
        if (atoi(words[1]) == 0) { close(ends[1]); wait(0); }\
        for (size_t j = 0; j < large / 8; j += 4096) at[j] = i;\
        if (atoi(words[1]) != 0) { close(ends[1]); wait(0); } close(ends[0]); }\
        return count == 1; }";
    std::fs::write(&source, text).unwrap();
    let program = folder.path().join("fork");
    assert!(Command::new("gcc").arg("-o").arg(&program).arg(&source).status().unwrap().success());
    let copied = |lives: &str| {
        let mut command = in_way(&["--isolate", "--stats"], &program);
        command.arg(lives);
        let seen = see(command);
        assert_eq!(seen.status, Some(0), "{seen:?}");
        let before = |what: &str| {
            let text = seen.messages.split(what).next().unwrap_or_default();
            text.rsplit(' ').next().and_then(|number| number.parse::<u64>().ok())
        };
        let counts = [before(" bytes copied by fork"), before(" before they were written to")];
        counts.map(|count| count.unwrap_or_else(|| panic!("{seen:?}")))
    };
    let [at_fork, later] = copied("0");
    assert!(at_fork < 64 << 20 && later < 16 << 20, "{at_fork} {later}");
    // A part that is written to is copied once for each child that lives, in parts that may be larger.
    let [at_fork, later] = copied("1");
    let written = 5 * (32 << 20);
    assert!(at_fork < 64 << 20 && (written..2 * written).contains(&later), "{at_fork} {later}");
}

/// The runtime rewrites a function that makes a call, before the process has a second thread.
#[test]
fn calls_are_rewritten() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("code.c");
    let text = "#include <pthread.h>\n#include <string.h>\n#include <unistd.h>\n\
        static void *run(void *with) { return with; }\n\
        int main() { unsigned char before[8]; memcpy(before, (void *)getppid, 8); pthread_t thread;\
        pthread_create(&thread, 0, run, 0); pthread_join(thread, 0);\
        return memcmp(before, (void *)getppid, 8) == 0; }";
    std::fs::write(&source, text).unwrap();
    let program = folder.path().join("code");
    let mut compiler = Command::new("gcc");
    assert!(compiler.args(["-pthread", "-o"]).arg(&program).arg(&source).status().unwrap().success());
    let statuses = [&[][..], &["--pool"], &["--isolate"]].map(|way| see(in_way(way, &program)).status);
    assert_eq!(statuses, [Some(1), Some(0), Some(0)]);
}

/// Compiles C code to a file in a folder.
fn compile(folder: &std::path::Path, name: &str, text: &str, options: &[&str]) -> std::path::PathBuf {
    let (source, to) = (folder.join(format!("{name}.c")), folder.join(name));
    std::fs::write(&source, text).unwrap();
    let mut compiler = Command::new("gcc");
    compiler.current_dir(folder).arg("-o").arg(&to).arg(&source).args(options);
    assert!(compiler.status().unwrap().success());
    to
}

/// The dynamic linker finds the libraries beside a program, whose place it asks for.
#[test]
fn libraries_beside_the_program_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    compile(folder, "libseven.so", "int seven() { return 7; }", &["-shared", "-fPIC"]);
    let text = "int seven();\nint main() { return seven(); }";
    let by_program = compile(folder, "by_program", text, &["-L.", "-lseven", "-Wl,-rpath,$ORIGIN"]);
    let by_variable = compile(folder, "by_variable", text, &["-L.", "-lseven"]);
    for way in super::WAYS {
        assert_eq!(see(in_way(way, &by_program)).status, Some(7), "{way:?}");
        let mut command = in_way(way, &by_variable);
        command.env("LD_LIBRARY_PATH", "$ORIGIN");
        assert_eq!(see(command).status, Some(7), "{way:?}");
    }
}

/// The dynamic linker loads a program as its own library by the path that the program has in `/proc`.
#[test]
fn a_program_is_its_own_library() {
    let folder = tempfile::tempdir().unwrap();
    let text = "#include <stdio.h>\n#include <stdlib.h>\n\
        const char linker[] __attribute__((section(\".interp\"))) = \"/lib64/ld-linux-x86-64.so.2\";\
        __attribute__((constructor)) static void begin() { puts(\"loaded\"); fflush(stdout); }\
        void start() { __asm__ volatile(\"and $-16, %rsp\"); exit(4); }";
    let program = compile(folder.path(), "own", text, &["-shared", "-fPIC", "-Wl,-e,start"]);
    for way in super::WAYS {
        let mut command = in_way(way, "/usr/bin/env");
        command.arg("LD_PRELOAD=/proc/self/exe").arg(&program);
        let seen = see(command);
        assert_eq!((seen.status, seen.text.as_str()), (Some(4), "loaded\n"), "{way:?}: {}", seen.messages);
    }
}

/// The first call that is not the dynamic linker's has the program's registers: the C library asks for the
/// limit of stacks.
#[test]
fn the_first_call_has_its_arguments() {
    let folder = tempfile::tempdir().unwrap();
    let text = "#define _GNU_SOURCE\n#include <pthread.h>\n#include <stdio.h>\n\
        int main() { pthread_attr_t defaults; size_t size; pthread_getattr_default_np(&defaults);\
        pthread_attr_getstacksize(&defaults, &size); printf(\"%zu\\n\", size); return 0; }";
    let program = compile(folder.path(), "stack", text, &["-pthread"]);
    let line = format!("ulimit -S -s 3072; exec {}", program.display());
    for way in super::WAYS {
        let mut command = in_way(way, "/bin/sh");
        assert_eq!(
            see({
                command.args(["-c", &line]);
                command
            })
            .text,
            "3145728\n",
            "{way:?}"
        );
    }
}

/// Where a limit of data leaves the runtime no room, Linux executes the program.
#[test]
fn a_limit_of_data_leaves_a_program_to_linux() {
    let runtime = super::runtime().display();
    for (way, limit) in [("--pool", 600), ("--pool", 3000), ("--isolate", 600), ("--isolate", 16_000)] {
        let mut command = std::process::Command::new("/bin/sh");
        command.args(["-c", &format!("ulimit -S -d {limit}; exec {runtime} {way} /bin/echo hello")]);
        let seen = see(command);
        assert_eq!((seen.status, seen.text.as_str()), (Some(0), "hello\n"), "{way} {limit}: {seen:?}");
        assert!(seen.messages.contains("Linux executes it without the runtime"), "{way} {limit}: {seen:?}");
    }
}

/// A program names its dynamic linker by any path, as those of Nix and Guix do.
#[test]
fn a_dynamic_linker_lies_anywhere() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let linker = folder.join("ld.so");
    std::fs::copy("/lib64/ld-linux-x86-64.so.2", &linker).unwrap();
    let text = "#include <stdio.h>\n#include <unistd.h>\nint main(int count) { char path[300] = {0}; \
        readlink(\"/proc/self/exe\", path, 299); puts(path); fflush(stdout);\
        if (count == 1) execl(path, path, \"executed\", NULL); return 0; }";
    let option = format!("-Wl,--dynamic-linker={}", linker.display());
    let program = compile(folder, "elsewhere", text, &[&option]);
    let plain = see(in_way(&[], &program));
    assert!(plain.status == Some(0) && plain.text.contains("elsewhere"), "{plain:?}");
    for way in [&["--pool"][..], &["--strict"], &["--isolate"]] {
        assert_eq!(see(in_way(way, &program)), plain, "{way:?}");
    }
    std::fs::remove_file(&linker).unwrap();
    let ends = [&[][..], &["--pool"], &["--isolate"]].map(|way| see(in_way(way, &program)).status);
    assert_eq!(ends, [Some(127); 3], "without the linker");
}

/// A program ends as on Linux if the dynamic linker touches a part that its library does not have.
#[test]
fn a_fault_of_the_dynamic_linker_is_the_programs() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let text = "static int value; int *pointers[100000] = {[99999] = &value}; int seven() { return 7; }";
    let library = compile(folder, "libcut.so", text, &["-shared", "-fPIC"]);
    let text = "int seven();\nint main() { return seven(); }";
    let program = compile(folder, "cut", text, &["-L.", "-lcut", "-Wl,-rpath,."]);
    let file = std::fs::OpenOptions::new().write(true).open(library).unwrap();
    file.set_len(64 << 10).unwrap();
    let ends = super::WAYS.map(|way| {
        let mut command = in_way(way, &program);
        let seen = see({
            command.current_dir(folder);
            command
        });
        (seen.status, seen.signal)
    });
    // `timeout` dies of the signal of the program.
    assert!(ends.iter().all(|end| *end == (None, Some(7)) || *end == (Some(135), None)), "{ends:?}");
}

/// A child of `vfork` that ends without executing a program does not print the counters.
#[test]
fn counters_are_printed_once() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("spawn.c");
    let text = "#include <spawn.h>\nint main() { char *words[] = {\"x\", 0}; pid_t child;\
        return posix_spawn(&child, \"/no/such/program\", 0, 0, words, words + 1); }";
    std::fs::write(&source, text).unwrap();
    let program = folder.path().join("spawn");
    assert!(Command::new("gcc").arg("-o").arg(&program).arg(&source).status().unwrap().success());
    let seen = see(in_way(&["--stats"], &program));
    assert_eq!((seen.status, seen.messages.matches("pathreads: ").count()), (Some(2), 1), "{seen:?}");
}

/// Compiles a program whose calls `--isolate` refuses: by the C library's functions, by `syscall`, and by the
/// instruction.
fn compile_refused(folder: &std::path::Path, options: &[&str]) -> String {
    let (source, program) = (folder.join("refused.c"), folder.join("refused"));
    let text = "#include <sys/prctl.h>\n#include <sys/shm.h>\n#include <unistd.h>\n\
        int main(int count, char **words) {\n\
        if (count > 1) { long r; __asm__ volatile (\"syscall\" : \"=a\"(r) : \"a\"(216), \"D\"(0L) : \"rcx\", \"r11\"); }\n\
        if (count > 2) shmat(0, 0, 0);\n\
        if (count > 3) prctl(22, 1L, 0L);\n\
        syscall(500, 0);\n\
        syscall(323, 0); return 0; }\n";
    std::fs::write(&source, text).unwrap();
    let compiled = Command::new("gcc").args(options).arg("-o").arg(&program).arg(&source).status();
    assert!(compiled.unwrap().success());
    program.to_str().unwrap().to_owned()
}

/// A check finds the calls that are refused when the program runs.
#[test]
fn a_check_names_the_calls_that_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for options in [&["-O1"][..], &["-O1", "-fno-plt"], &["-O1", "-static"]] {
        let program = compile_refused(folder.path(), options);
        let seen = native(&["--isolate", "--check", "--", &program]);
        assert_eq!(seen.status, Some(1), "{options:?} {seen:?}");
        assert!(seen.text.starts_with(&format!("{program}: parts of it may not work")), "{seen:?}");
        let refused = |name: &str| seen.text.lines().any(|line| line.starts_with(&format!("{name} ")));
        for name in ["remap_file_pages", "shmat", "userfaultfd", "prctl(PR_SET_SECCOMP)"] {
            assert!(refused(name), "{name}, {options:?}: {seen:?}");
        }
        let run = native(&["--isolate", "--", &program]);
        let unknown = "pathreads: --isolate does not know system call 500\n";
        let refused = "pathreads: --isolate cannot do this: userfaultfd\n";
        assert_eq!(run.messages, format!("{unknown}{refused}"));
        let with_pool = native(&["--check", "--", &program]);
        assert_eq!(with_pool.status, Some(0), "{with_pool:?}");
        assert!(with_pool.text.contains("userfaultfd") && with_pool.text.contains("the pool is off"));
    }
}

/// A device that knows one address space only is named when it is opened, once.
#[test]
fn a_device_of_one_address_space_is_named() {
    let line =
        "(exec 3<>/dev/kvm) 2> /dev/null || exit 9; for i in 1 2; do exec 3<>/dev/kvm; done; echo opened";
    let seen = native(&["--isolate", "--", "sh", "-c", line]);
    if seen.status == Some(9) {
        return super::skipped::skip("/dev/kvm cannot be opened here");
    }
    assert_eq!(seen.text, "opened\n");
    assert_eq!(seen.messages.matches("KVM may not work, since /dev/kvm").count(), 1, "{seen:?}");
    assert_eq!(native(&["--pool", "--", "sh", "-c", line]).messages, "");
}

#[test]
fn a_check_says_what_linux_executes_without_the_runtime() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let program = compile_refused(folder.path(), &[]);
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o4755)).unwrap();
    let seen = native(&["--check", "--", &program]);
    assert_eq!(seen.status, Some(1), "{seen:?}");
    assert!(seen.text.contains("Linux executes it without the runtime") && seen.text.contains("set-user-ID"));
    let moved = compile_refused(folder.path(), &["-no-pie", "-Wl,-Ttext-segment=0x70000000"]);
    let seen = native(&["--check", "--", &moved]);
    assert!(seen.status == Some(1) && seen.text.contains("fixed addresses"), "{seen:?}");
}

/// A check executes nothing of the program, and takes no executed program's status.
#[test]
fn a_check_does_not_run_the_program() {
    let seen = native(&["--check", "--", "sh", "-c", "echo ran; exit 7"]);
    assert!(seen.status == Some(0) && !seen.text.contains("ran\n"), "{seen:?}");
    let seen = native(&["--check", "--", "no-such-program"]);
    assert_eq!((seen.status, seen.text.as_str()), (Some(127), ""), "{seen:?}");
    assert!(seen.messages.contains("no-such-program: no such program"), "{seen:?}");
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    std::fs::write(&text, "no program").unwrap();
    assert_eq!(native(&["--check", "--", text.to_str().unwrap()]).status, Some(126));
}

/// Files that only pretend to be programs get the status that a run of them has.
#[test]
fn a_check_has_the_status_of_a_run() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    let whole = std::fs::read("/bin/true").unwrap();
    for (bytes, checked) in [
        (&b"no program"[..], 126),
        (b"#!/no/such/interpreter\n", 127),
        (b"#!/dev/zero\n", 126),
        (&whole[..3000], 1),
        (&whole[..whole.len() - 100], 1),
    ] {
        std::fs::write(&file, bytes).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
        let seen = native(&["--isolate", "--check", "--", file.to_str().unwrap()]);
        assert_eq!(seen.status, Some(checked), "{} bytes: {seen:?}", bytes.len());
    }
    assert_eq!(native(&["--check", "--", "/"]).status, Some(126));
}

/// The dynamic linker executes libraries for auditing before it lists anything, so it is not asked.
#[test]
fn a_check_executes_no_audit_library() {
    let folder = tempfile::tempdir().unwrap();
    let (source, library) = (folder.path().join("audit.c"), folder.path().join("libaudit.so"));
    let text = "#include <stdio.h>\nunsigned la_version(unsigned v) { puts(\"auditing\"); fflush(stdout); return v; }\n";
    std::fs::write(&source, text).unwrap();
    let shared = Command::new("gcc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    assert!(shared.unwrap().success());
    let (main, program) = (folder.path().join("main.c"), folder.path().join("audited"));
    std::fs::write(&main, "int main() { return 0; }").unwrap();
    let option = format!("-Wl,--audit={}", library.display());
    let linked = Command::new("gcc").arg(option).arg("-o").arg(&program).arg(&main).status();
    assert!(linked.unwrap().success());
    let seen = native(&["--check", "--", program.to_str().unwrap()]);
    assert!(seen.status == Some(1) && seen.text.contains("not looked at"), "{seen:?}");
    assert!(!seen.text.contains("auditing") && !seen.messages.contains("auditing"), "{seen:?}");
}

#[test]
fn a_check_names_missing_libraries() {
    let folder = tempfile::tempdir().unwrap();
    let (source, library) = (folder.path().join("empty.c"), folder.path().join("libgone.so"));
    let program = folder.path().join("needs");
    std::fs::write(&source, "int gone(void) { return 0; }").unwrap();
    let main = folder.path().join("main.c");
    std::fs::write(&main, "int gone(void); int main() { return gone(); }").unwrap();
    let shared = Command::new("gcc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    let linked = Command::new("gcc").arg("-o").arg(&program).arg(&main).arg(&library).status();
    assert!(shared.unwrap().success() && linked.unwrap().success());
    std::fs::remove_file(&library).unwrap();
    let seen = native(&["--check", "--", program.to_str().unwrap()]);
    assert!(seen.status == Some(1) && seen.text.contains("libgone.so"), "{seen:?}");
}

/// Programs do the same with IAmalloc, in both ways. A block of 1,000 bytes has 1,024 there, and 1,000 or
/// 1,008 in glibc.
#[test]
fn malloc_can_be_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("usable.c"), folder.path().join("usable"));
    let text = "#include <malloc.h>\n#include <stdio.h>\n\
        int main() { printf(\"%zu\\n\", malloc_usable_size(malloc(1000))); return 0; }\n";
    std::fs::write(&source, text).unwrap();
    let compiled = Command::new("gcc").arg("-o").arg(&program).arg(&source).status();
    assert!(compiled.unwrap().success());
    let program = program.to_str().unwrap();
    let threads = "import threading\n\
        def work(n, out):\n\
        \x20   words = {i: str(i) * (i % 9) for i in range(20000)}\n\
        \x20   out[n] = sum(map(len, words.values()))\n\
        out = {}\n\
        threads = [threading.Thread(target=work, args=(n, out)) for n in range(6)]\n\
        [thread.start() for thread in threads]; [thread.join() for thread in threads]\n\
        print(sorted(out.items()))\n";
    let lines = folder.path().join("lines");
    let text: String =
        (0..100_000_u64).map(|line| format!("{}\n", line.wrapping_mul(2_654_435_761) % 99_991)).collect();
    std::fs::write(&lines, text).unwrap();
    let lines = lines.to_str().unwrap();
    for way in ["--pool", "--isolate"] {
        assert_eq!(native(&[way, "--malloc", "--", program]).text, "1024\n");
        assert_ne!(native(&[way, "--", program]).text, "1024\n");
        for command in [&["python3", "-c", threads][..], &["sort", "--parallel=4", "-S", "1M", lines]] {
            // A minimal machine has no python.
            if command[0] == "python3" && Command::new(command[0]).arg("-V").output().is_err() {
                continue;
            }
            let mut plain = in_way(&[], command[0]);
            plain.args(&command[1..]);
            let seen = native(&[&[way, "--malloc", "--"], command].concat());
            assert_eq!(seen, see(plain), "{way} {command:?}");
        }
    }
}

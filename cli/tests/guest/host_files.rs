//! Programs that see this machine's files: they read them as here, and change them in the guest only.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::harness::{Compiler, compiled, here, radixvm, run, scratch};

/// Makes the folder that `user/c/host_files.c` describes.
fn folder(name: &str) -> PathBuf {
    let folder = scratch("host-files").join(name);
    let _not_there = fs::remove_dir_all(&folder);
    for sub in ["sub", "many", "shared"] {
        fs::create_dir_all(folder.join(sub)).unwrap();
    }
    let write = |name: &str, bytes: Vec<u8>| fs::write(folder.join(name), bytes).unwrap();
    write("a", (0..10_000_u32).map(|i| (i * 7 + i / 256) as u8).collect());
    write("b", vec![b'b'; 5000]);
    write("c", vec![b'c'; 5000]);
    write("sub/f", b"inner\n".to_vec());
    (0..2500).for_each(|i| write(&format!("many/{i:05}"), Vec::new()));
    (0..16).for_each(|n| write(&format!("shared/{n}"), (0..70_000).map(|i| (n + i / 4096) as u8).collect()));
    symlink("sub/f", folder.join("link")).unwrap();
    symlink("b", folder.join("up")).unwrap();
    symlink("none", folder.join("nowhere")).unwrap();
    folder
}

/// Returns the names, contents, permissions and times of all files below a folder.
fn contents(folder: &Path) -> Vec<u8> {
    let words = ["-cf", "-", "--sort=name", "-C", &folder.display().to_string(), "."];
    let output = Command::new("tar").args(words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

#[test]
fn are_read_as_here_and_changed_in_the_guest_only() {
    let program = compiled("host_files", Compiler::Dynamic);
    let (expected, status) = here(&[&program, &folder("here").display().to_string()], b"");
    assert_eq!(status, Some(0), "{}", String::from_utf8_lossy(&expected));
    let guests = folder("guest");
    let before = contents(&guests);
    for options in [&["-c", "4"][..], &["-c", "1", "-m", "48M"]] {
        let run = run(options, &[&program, &guests.display().to_string()]);
        assert_eq!((run.status, run.text()), (0, String::from_utf8_lossy(&expected).into_owned()), "{run:?}");
    }
    assert!(contents(&guests) == before, "the guest has changed files of this machine");
}

/// A file that is opened for writing becomes another one, as in Linux's overlayfs. Threads that open,
/// truncate and rename meet no state in between.
#[test]
fn copies_are_other_files() {
    let program = compiled("host_files", Compiler::Dynamic);
    let guests = folder("overlay");
    let before = contents(&guests);
    let run = run(&["-c", "2"], &[&program, &guests.display().to_string(), "overlay"]);
    let expected = "two files: 1, lengths 5001 5000, names 1 1\n\
        a folder: Not a directory\nsame number: 1\nan old descriptor: c\nby its number: Read-only file system\n\
        rename of /dev: Device or resource busy\nin its place: No such file or directory\n\
        a hole: Operation not supported\nold bytes: 0\nopened: 1\n";
    assert_eq!((run.status, run.text().as_str()), (0, expected), "{run:?}");
    assert!(contents(&guests) == before, "the guest has changed files of this machine");
}

/// A file that the guest has looked at grows on this machine, and one that it has not looked at is removed.
#[test]
fn changes_of_this_machine_are_met_calmly() {
    let program = compiled("host_files", Compiler::Dynamic);
    let folder = folder("outside");
    let mut command = radixvm();
    command.args(["run", "--", &program]).arg(&folder).arg("outside");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while line != "ready\n" {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "the guest ended");
    }
    let mut grown = fs::OpenOptions::new().append(true).open(folder.join("b")).unwrap();
    grown.write_all(&[b'g'; 1000]).unwrap();
    fs::remove_file(folder.join("sub/f")).unwrap();
    child.stdin.take().unwrap().write_all(b"x").unwrap();
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "bytes from outside: 0\nmade again: 0\nremoved: 0\nall: 0\n");
    assert!(child.wait().unwrap().success());
}

#[test]
fn programs_of_this_machine_run_as_here() {
    for words in [
        &["/bin/ls", "-1a", "/usr/lib"][..],
        &["/bin/sh", "-c", "cd /usr; pwd; cat /etc/passwd | sort | tail -n 2; exec echo $((6 * 7))"],
        &["/bin/cat", "/etc/os-release"],
        &["/bin/sh", "-c", "find /etc -name 'pass*' | sort"],
    ] {
        let (expected, status) = here(words, b"");
        let run = run(&["-c", "2"], words);
        assert_eq!((Some(run.status), run.text().into_bytes()), (status, expected), "{run:?}");
    }
}

/// Programs that every Debian has do real work: pipes, archives, a compiler, processes that talk by TCP.
#[test]
fn real_work_has_the_same_results() {
    let folder = folder("work").display().to_string();
    let shell = r#"for i in {1..30}; do echo $((i * i)); done | sort -rn | head -n 3; diff <(seq 5) <(seq 6)
        printf '%s\n' a b | while read -r x; do echo "[$x]"; done; (exit 3) || echo "status $?"
        trap 'echo trapped' USR1; kill -USR1 $$; echo "${BASH_SUBSHELL} $(wc -c < /etc/passwd)"; exec 3<>/tmp/$$
        echo text >&3; read -r y < /tmp/$$; echo "$y"; rm /tmp/$$"#;
    let archive = r#"set -e; d=$(mktemp -d); cd "$0"; tar czf "$d/x.tgz" sub shared many a link; cd "$d"; tar xzf x.tgz
        find . -type f ! -name x.tgz | sort | xargs cksum | cksum; grep -rc inner sub; rm -rf "$d""#;
    let compiler = r#"set -e; d=$(mktemp -d); cd "$d"
        printf '#include <stdio.h>\nint main(int c, char **v) { printf("%%d %%s\n", c, v[1]); return 7; }\n' > a.c
        gcc -O1 -o a a.c; ./a argument || echo "status $?"; rm -rf "$d""#;
    let tcp = r#"use IO::Socket::INET; $| = 1;
        my $s = IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1', LocalPort => 0) or die "listen: $@";
        my $port = $s->sockport;
        my @all = map { my $i = $_; my $pid = fork; if (!$pid) {
            my $c = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port) or exit 2;
            for my $n (1 .. 50) { print $c "$i $n\n"; my $l = <$c>; exit 3 if $l ne "$i times $n is " . $i * $n . "\n"; }
            exit 0; } $pid } 1 .. 4;
        for (@all) { my $c = $s->accept; while (my $l = <$c>) {
            my ($i, $n) = split ' ', $l; print $c "$i times $n is " . $i * $n . "\n"; } }
        for (@all) { waitpid $_, 0; print "status $?\n"; }"#;
    for words in [
        &["/bin/bash", "-c", shell][..],
        &["/bin/bash", "-c", archive, &folder],
        &["/bin/bash", "-c", compiler],
        &["/usr/bin/perl", "-e", tcp],
    ] {
        let (expected, status) = here(words, b"");
        let run = run(&["-c", "2"], words);
        assert_eq!((Some(run.status), run.text()), (status, String::from_utf8(expected).unwrap()), "{run:?}");
    }
}

/// The program starts in the directory of the command, with its environment and umask.
#[test]
fn surroundings_are_those_of_the_command() {
    let folder = scratch("host-files/surroundings");
    let script = folder.join("script");
    fs::write(
        &script,
        "#!/bin/sh -e\npwd\necho \"$0 $1 $FROM_HERE $GIVEN\"\numask\n: > new\nls -l new | cut -c1-10\n",
    )
    .unwrap();
    let made = Command::new("chmod").arg("+x").arg(&script).status().unwrap();
    assert!(made.success());
    let command = radixvm();
    let words = "umask 027; exec \"$0\" \"$@\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", words]).arg(command.get_program()).args(command.get_args());
    shell.args(["run", "-e", "GIVEN=given", "--", "./script", "argument"]);
    let output = shell.current_dir(&folder).env("FROM_HERE", "here").output().unwrap();
    let expected = format!("{}\n./script argument here given\n0027\n-rw-r-----\n", folder.display());
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{output:?}");
    assert!(!folder.join("new").exists(), "the guest has made a file on this machine");
}

/// A static program sees them if that is asked for, and files that are handed over lie in front of them.
#[test]
fn handed_over_files_lie_in_front() {
    let folder = scratch("host-files/front");
    fs::write(folder.join("given"), "given\n").unwrap();
    fs::write(folder.join("there"), "there\n").unwrap();
    let given = folder.join("given").display().to_string();
    let there = folder.join("there").display().to_string();
    let words = ["/bin/cat", &there, "/new/below/given"];
    let run =
        run(&["--file", &format!("{given}:{there}"), "--file", &format!("{given}:/new/below/given")], &words);
    assert_eq!((run.status, run.text().as_str()), (0, "given\ngiven\n"), "{run:?}");
    assert_eq!(fs::read_to_string(there).unwrap(), "there\n");
}

#[test]
fn memory_is_reclaimed_from_pages_of_large_files() {
    let file = scratch("host-files").join("large");
    let bytes: Vec<u8> =
        (0..24_u32 << 20).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    fs::write(&file, bytes).unwrap();
    let words = ["/usr/bin/cksum", &file.display().to_string()];
    let (expected, _) = here(&words, b"");
    let run = run(&["-m", "48M", "-c", "2"], &words);
    assert_eq!((run.status, run.text().into_bytes()), (0, expected), "{run:?}");
    fs::remove_file(file).unwrap();
}

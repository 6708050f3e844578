//! Directories of this machine that the guest may change (`--rw`).

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::harness::{Compiler, compiled, radixvm, scratch};
use crate::skipped::skip;

pub fn folder(name: &str) -> PathBuf {
    let folder = scratch("mounts").join(name);
    let _not_there = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Returns a line for each file below a folder: its path, type, permissions, names, and contents or target.
/// Directories have no more than the first three.
pub fn contents(folder: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut left = vec![folder.to_owned()];
    while let Some(path) = left.pop() {
        let about = fs::symlink_metadata(&path).unwrap();
        let name = path.strip_prefix(folder).unwrap().display().to_string();
        let more = if about.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            String::new()
        } else if about.is_symlink() {
            fs::read_link(&path).unwrap().display().to_string()
        } else {
            let bytes = fs::read(&path).unwrap();
            let sum = bytes.iter().fold(0_u64, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
            format!("{} names, {} bytes, sum {sum:x}", about.nlink(), bytes.len())
        };
        lines.push(format!("{name} {:o} {more}", about.permissions().mode()));
    }
    lines.sort();
    lines
}

/// Runs a line for a shell here in one folder, and in a guest in another one that it may change.
fn compare(name: &str, cpus: &str, line: &str) {
    let (here, there) = (folder(&format!("{name}-here")), folder(&format!("{name}-there")));
    let expected = Command::new("sh").args(["-c", line]).current_dir(&here).output().unwrap();
    let radixvm = radixvm();
    // As many open files as a user usually may have.
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 1024 && exec \"$0\" \"$@\""]).arg(radixvm.get_program());
    command.args(radixvm.get_args()).args(["run", "-c", cpus, "--rw", ".", "--", "sh", "-c", line]);
    let output = command.stdin(Stdio::null()).current_dir(&there).output().unwrap();
    let lines = |bytes: &[u8]| String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(
        first_difference(&lines(&output.stdout), &lines(&expected.stdout)),
        None,
        "{name}, there and here"
    );
    assert_eq!(first_difference(&contents(&there), &contents(&here)), None, "{name}, there and here");
    let status = output.status.code();
    assert_eq!(status, expected.status.code(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Returns the first lines that differ, and the one before.
fn first_difference(one: &[String], other: &[String]) -> Option<[String; 3]> {
    let at = (0..one.len().max(other.len())).find(|&line| one.get(line) != other.get(line))?;
    let line = |lines: &[String], at: usize| lines.get(at).cloned().unwrap_or_default();
    Some([
        at.checked_sub(1).map_or(String::new(), |before| line(one, before)),
        line(one, at),
        line(other, at),
    ])
}

#[test]
fn random_changes_are_this_machines_too() {
    let program = compiled("tree_changes", Compiler::Musl);
    for (cpus, seed) in [("1", 1), ("2", 3), ("4", 5)] {
        compare(&format!("random-{seed}"), cpus, &format!("{program} 1500 {seed}"));
    }
}

/// Four processes at once, each in a folder of its own.
#[test]
fn processes_change_folders_side_by_side() {
    let program = compiled("tree_changes", Compiler::Musl);
    let each = format!("(mkdir $n && cd $n && {program} 700 $n > log) &");
    compare("side-by-side", "4", &format!("for n in 1 2 3 4; do {each} done; wait"));
}

#[test]
fn both_machines_change_a_folder() {
    let folder = folder("both");
    fs::create_dir(folder.join("old")).unwrap();
    fs::write(folder.join("log"), "one\n").unwrap();
    fs::write(folder.join("gone"), "gone").unwrap();
    fs::write(folder.join("known"), "known").unwrap();
    let mut command = radixvm();
    command.args(["run", "--rw", ".", "--", &compiled("mounted", Compiler::Musl)]).current_dir(&folder);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut said = String::new();
    while !said.ends_with("ready: ok\n") {
        assert!(output.read_line(&mut said).unwrap() > 0, "{said}");
    }
    let written = fs::read(folder.join("second")).unwrap();
    assert!(
        written.len() == 8200 && written.iter().all(|&byte| byte == b'x') && !folder.join("written").exists()
    );
    fs::write(folder.join("new"), "hello").unwrap();
    fs::create_dir(folder.join("made")).unwrap();
    fs::remove_dir(folder.join("old")).unwrap();
    // A file that the guest has looked at grows, and another one goes.
    fs::write(folder.join("log"), "one\ntwo\n").unwrap();
    for name in ["gone", "output"] {
        fs::remove_file(folder.join(name)).unwrap();
    }
    fs::write(folder.join("taken"), "here first").unwrap();
    writeln!(child.stdin.take().unwrap()).unwrap();
    while output.read_line(&mut said).unwrap() > 0 {}
    assert_eq!(child.wait().unwrap().code(), Some(0), "{said}");
    let expected = "written: ok\nfsync: ok\nlink: ok\nunlink: ok\nhost's: ok\nready: ok\n\
        new for itself: File exists\nnew: ok\nnew says hello\nold: No such file or directory\nmade before: File exists\nmade again: ok\n\
        written anew: ok\ntruncated: ok\nchmod: ok\nclosed: ok\nftruncate: ok\nmapped: ok\n\
        a hole: Not supported\na nameless file: Not supported\nout: Cross-device link\nopen: ok\n\
        output: ok\nclosed: ok\nknown: ok\nlog: ok\nlog says one two three\ngone: ok\ntaken: File exists\nsynced: ok\n";
    assert_eq!(said, expected);
    let read = |name: &str| fs::read(folder.join(name)).unwrap();
    assert_eq!(
        (read("second"), read("written"), read("open")),
        (vec![b'x'; 100], Vec::new(), b"the end".to_vec())
    );
    assert_eq!(
        (read("log"), read("gone"), read("taken")),
        (b"one\ntwo\nthree\n".to_vec(), b"new".to_vec(), b"here first".to_vec())
    );
    assert_eq!(read("output"), b"again");
    let mapped = read("mapped");
    assert!(
        mapped.len() == 5000
            && &mapped[4096..4100] == b"late"
            && mapped[..4096].iter().all(|&byte| byte == 0)
    );
    assert_eq!(fs::metadata(folder.join("second")).unwrap().permissions().mode() & 0o7777, 0o600);
    assert!(folder.join("made/inside").is_dir() && !folder.join("old").exists());
}

/// Names move between files while descriptors are open, files have several names, and many are made.
#[test]
fn a_file_keeps_to_itself() {
    let program = compiled("renamed", Compiler::Musl);
    compare("renamed", "2", &format!("cp /proc/version none 2>/dev/null; rm -f none; {program}"));
    compare("many", "1", "i=0; while [ $i -lt 1500 ]; do echo $i > f$i; i=$((i+1)); done; cat f1499 f3");
}

/// Processes change the same files at once: this machine has the bytes that the guest has read last.
#[test]
fn a_storm_on_files_leaves_the_same_here() {
    let program = compiled("mountstorm", Compiler::Musl);
    for (cpus, seed) in [("1", "1"), ("4", "2"), ("4", "3")] {
        let folder = folder("storm");
        let words = ["run", "-c", cpus, "--rw", ".", "--", &program, "4", "400", seed];
        let output = radixvm().args(words).current_dir(&folder).output().unwrap();
        let here = (0..3).map(|number| {
            let bytes = fs::read(folder.join(format!("storm{number}"))).unwrap();
            let sum = bytes.iter().fold(0_u64, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
            format!("storm{number} {} bytes, sum {sum:x}\n", bytes.len())
        });
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            here.collect::<String>(),
            "{cpus} {seed}: {output:?}"
        );
    }
}

/// More is written than the guest has memory for, by one descriptor, by many, and through a mapping.
#[test]
fn files_need_not_fit_into_memory() {
    let folder = folder("large");
    let line = "dd if=/dev/zero bs=1M count=200 status=none | tr '\\0' x > one; cp one two; \
        for n in 1 2 3 4 5 6; do head -c 30000000 one > part$n; done; cmp one two && tail -c 4 two";
    let mut command = radixvm();
    let words = ["run", "-c", "2", "-m", "256M", "--rw", ".", "--", "sh", "-c", line];
    let output = command.args(words).current_dir(&folder).output().unwrap();
    assert_eq!((&output.stdout[..], output.status.code()), (&b"xxxx"[..], Some(0)), "{output:?}");
    for (name, len) in [("one", 200 << 20), ("two", 200 << 20), ("part1", 30_000_000), ("part6", 30_000_000)]
    {
        let bytes = fs::read(folder.join(name)).unwrap();
        assert!(bytes.len() == len && bytes.iter().all(|&byte| byte == b'x'), "{name}: {}", bytes.len());
    }
    fs::remove_dir_all(folder).unwrap();
}

/// A program that is built, marked with a time, and run keeps the time.
#[test]
fn mapped_files_are_not_written_again() {
    let folder = folder("mapped");
    fs::copy(compiled("hello", Compiler::Dynamic), folder.join("program")).unwrap();
    let line = "cp program copy; touch -d @1000000000 program copy; ./program > said; ./copy > said-too; cat < copy > again";
    let mut command = radixvm();
    let output =
        command.args(["run", "--rw", ".", "--", "sh", "-c", line]).current_dir(&folder).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for name in ["program", "copy"] {
        assert_eq!(fs::metadata(folder.join(name)).unwrap().mtime(), 1_000_000_000, "{name}");
    }
    assert_eq!(fs::read(folder.join("again")).unwrap(), fs::read(folder.join("program")).unwrap());
    assert_eq!(fs::read(folder.join("said")).unwrap(), fs::read(folder.join("said-too")).unwrap());
}

/// The next run finds root's files. It finds none of the set-id bits that another user has set.
#[test]
fn set_id_bits_of_users_stay_in_the_guest() {
    let folder = folder("set-ids");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    let opens = "import os\nos.umask(0)\nos.open('made', os.O_CREAT | os.O_WRONLY, 0o4755)\n";
    fs::write(folder.join("open.py"), opens).unwrap();
    let say = "stat -c '%n %u:%g %a' alices given made joined passed mine";
    let alices = "cp /bin/true alices; chmod 6755 alices; mkdir joined; chmod 2775 joined";
    let line = format!(
        "setpriv --reuid 1000 --regid 1000 --clear-groups sh -c '{alices}; python3 open.py' && \
         touch mine given && chmod 6755 mine given && chown 1000:1000 given && chmod 2755 given && \
         mkdir passed && chmod 2775 passed && chown 1000:1000 passed && {say}"
    );
    for (line, expected) in [
        (
            &*line,
            "alices 1000:1000 6755\ngiven 1000:1000 2755\nmade 1000:1000 4755\njoined 1000:1000 2775\npassed 1000:1000 2775\nmine 0:0 6755\n",
        ),
        (say, "alices 0:0 755\ngiven 0:0 755\nmade 0:0 755\njoined 0:0 775\npassed 0:0 775\nmine 0:0 6755\n"),
    ] {
        // The folders above are not open to all users.
        let (mount, line) = (format!("{}:/tmp/there", folder.display()), format!("cd /tmp/there && {line}"));
        let output = radixvm().args(["run", "--rw", &mount, "--", "sh", "-c", &line]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{output:?}");
    }
}

/// The host's folder loses the bit of the group that it does not have, and keeps the rights that it has got
/// since the guest looked.
#[test]
fn another_owner_takes_only_bits_away() {
    let folder = folder("chown");
    let there = folder.join("there");
    fs::create_dir(&there).unwrap();
    fs::set_permissions(&there, fs::Permissions::from_mode(0o2775)).unwrap();
    let line = "cd /tmp/it; stat -c %a there; read line; chown 1000:1000 there; stat -c %a there";
    let mut command = radixvm();
    command.args(["run", "--rw", &format!("{}:/tmp/it", folder.display()), "--", "sh", "-c", line]);
    let mut run = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(run.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "2775");
    fs::set_permissions(&there, fs::Permissions::from_mode(0o2770)).unwrap();
    run.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "2775");
    assert!(run.wait().unwrap().success());
    assert_eq!(fs::metadata(&there).unwrap().permissions().mode() & 0o7777, 0o770);
}

/// Links that lead out of the folder, and files beside it, are changed in the guest only.
#[test]
fn nothing_outside_is_written() {
    let all = folder("outside");
    for name in ["inside", "beside"] {
        fs::create_dir(all.join(name)).unwrap();
    }
    fs::write(all.join("beside/file"), "as it was").unwrap();
    symlink("../beside/file", all.join("inside/link")).unwrap();
    symlink(all.join("beside"), all.join("inside/absolute")).unwrap();
    let before = contents(&all.join("beside"));
    let line = "echo 1 > inside/link; echo 2 > inside/absolute/file; echo 3 > inside/../beside/more; \
        rm -f beside/file; echo 4 > beside/file; mv beside/file inside/taken; ln beside/more inside/hard; \
        cat inside/taken; ls inside";
    let mut command = radixvm();
    let command = command.args(["run", "--rw", "inside", "--", "sh", "-c", line]).current_dir(&all);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!((text.as_ref(), output.status.code()), ("4\nabsolute\nlink\ntaken\n", Some(0)), "{output:?}");
    assert_eq!(contents(&all.join("beside")), before);
    assert_eq!(fs::read(all.join("inside/taken")).unwrap(), b"4\n");
}

/// Another path in the guest, and two directories at once.
#[test]
fn a_directory_may_be_elsewhere_in_the_guest() {
    let (one, two) = (folder("one"), folder("two"));
    let line =
        "echo 1 > /tmp/here/a; echo 2 > /tmp/there/b; mv /tmp/here/a /tmp/there/; rmdir /tmp/here; echo $?";
    let mounts = [format!("{}:/tmp/here", one.display()), format!("{}:/tmp/there", two.display())];
    let words = ["run", "--rw", &mounts[0], "--rw", &mounts[1], "--", "sh", "-c", line];
    let output = radixvm().args(words).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n", "{output:?}");
    assert_eq!(contents(&one).len(), 1);
    assert_eq!(fs::read(two.join("a")).unwrap(), b"1\n");
    assert_eq!(fs::read(two.join("b")).unwrap(), b"2\n");
}

/// A repository, an archive and a program that are made in the guest are whole here.
#[test]
fn real_work_comes_back() {
    let folder = folder("work");
    fs::write(folder.join("m.c"), "#include <stdio.h>\nint main(void) { return puts(\"built\") < 0; }\n")
        .unwrap();
    let line = "git init -q . && git config user.email a@b && git config user.name n && git add m.c && \
        git commit -qm one && gcc -O1 -o m m.c && ./m && echo more >> m.c && git commit -qam two && git gc -q && \
        git clone -q . clone && tar czf clone.tgz clone && sed -i s/built/changed/ clone/m.c && rm -r clone/.git";
    let mut command = radixvm();
    let words = ["run", "-c", "2", "--rw", ".", "--", "sh", "-c", line];
    let output = command.args(words).env("GIT_CONFIG_NOSYSTEM", "1").current_dir(&folder).output().unwrap();
    assert_eq!((&output.stdout[..], output.status.code()), (&b"built\n"[..], Some(0)), "{output:?}");
    let here = |line: &str| {
        let output = Command::new("sh").args(["-c", line]).current_dir(&folder).output().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    here("git fsck --strict");
    assert_eq!(here("git log --format=%s"), "two\none\n");
    assert_eq!(here("git status --short"), "?? clone.tgz\n?? clone/\n?? m\n");
    assert_eq!(here("./m"), "built\n");
    assert_eq!(
        here(
            "tar xzf clone.tgz -O clone/m.c | tail -1; ls clone; tail -1 clone/m.c; grep -c changed clone/m.c"
        ),
        "more\nm.c\nmore\n1\n"
    );
}

/// The disk of this machine is full: `close` says so to a program that asks, and the command in any case.
#[test]
fn a_full_disk_is_told() {
    let small = folder("small");
    let run = |line: &str| {
        let command = radixvm();
        let inside = "mount -t tmpfs -o size=64k none \"$0\" && cd \"$0\" && exec \"$@\"";
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "sh", "-c", inside]).arg(&small).arg(command.get_program());
        unshare.args(command.get_args()).args(["run", "--rw", ".", "--", "sh", "-c", line]).output().unwrap()
    };
    let probe = Command::new("unshare").args(["--mount", "mount", "-t", "tmpfs", "none", "/mnt"]).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        return skip("this machine does not let the test mount a small disk");
    }
    let output = run("head -c 200000 /dev/zero > large || echo refused; echo fine > small.txt");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("large: its changes could not be written to this machine: ENOSPC"), "{output:?}");
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    let output = run("head -c 200000 /dev/zero > large; rm large; echo fine > small.txt; cat small.txt");
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b"fine\n"[..]), "{output:?}");
}

#[test]
fn mistakes_are_named() {
    for (words, reason) in [
        (&["run", "--rw", "/none", "--", "true"][..], "--rw /none"),
        (&["run", "--rw", "/etc/passwd", "--", "true"], "not a directory"),
        (&["run", "--rw", ".", "--host-files", "never", "--", "true"], "--rw needs --host-files"),
        (&["run", "--rw", ".", "--system", "linux", "--", "true"], "--rw needs --host-files"),
    ] {
        let output = radixvm().args(words).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(reason) && output.status.code() == Some(125), "{words:?}: {output:?}");
    }
}

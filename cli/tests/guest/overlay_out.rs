//! The changes of this machine's files that a program takes home (`--overlay-out`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::harness::radixvm;
use crate::mounts::{contents, folder};

/// A folder for a program to change, in which `prepare` has run.
fn prepared(name: &str, prepare: &str) -> PathBuf {
    let folder = folder(name);
    sh(prepare, &folder);
    folder
}

/// Removes what an earlier run has left.
fn no_file(path: &Path) -> PathBuf {
    let _not_there = fs::remove_file(path);
    path.to_owned()
}

fn sh(line: &str, folder: &Path) -> Output {
    let output = Command::new("sh").args(["-c", line]).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output
}

/// Runs a line for a shell in a guest, in a folder of this machine.
fn run(options: &[&str], line: &str, folder: &Path) -> Output {
    let mut command = radixvm();
    command.arg("run").args(options).args(["--", "sh", "-ec", line]);
    command.stdin(Stdio::null()).current_dir(folder).output().unwrap()
}

/// Extracts an archive over a folder, as the layers of a container image are.
fn apply(archive: &Path, folder: &Path) {
    let layer = folder.with_extension("layer");
    let _not_there = fs::remove_dir_all(&layer);
    fs::create_dir_all(&layer).unwrap();
    sh(&format!("tar -xpf '{}'", archive.display()), &layer);
    let changed = layer.join(folder.strip_prefix("/").unwrap());
    // Hidden contents go first, and then the removed names and the marks.
    sh(
        &format!(
            "cd '{}' && find . -name .wh..wh..opq | while read mark; do rm -rf \"{to}/${{mark%/*}}\"; done; \
             find . -name '.wh.*' ! -name .wh..wh..opq | while read mark; do \
             gone=${{mark##*/.wh.}}; rm -rf \"{to}/${{mark%/*}}/$gone\"; done; find . -name '.wh.*' -delete",
            changed.display(),
            to = folder.display()
        ),
        &layer,
    );
    sh(&format!("tar -C '{}' -cf - . | tar -xpf - -C '{}'", changed.display(), folder.display()), &layer);
}

const PREPARE: &str = "umask 022; mkdir -p kept emptied/below replaced moving/deep; echo a >kept/same; \
    echo old >changed; echo gone >gone; echo x >emptied/below/x; echo hidden >replaced/hidden; \
    echo in >moving/deep/in; echo here >renamed; echo mode >mode; ln -s gone dangling; echo over >over";

const CHANGE: &str = "umask 022; echo new >new; echo more >>changed; rm gone; rm -r emptied; \
    rm -r replaced; mkdir replaced; echo fresh >replaced/fresh; mv moving moved; mv renamed over; \
    chmod 640 mode; ln new other; ln -s new link; mkdir -p made/deeper; echo d >made/deeper/d; \
    rm dangling; head -c 300000 /dev/zero >large; echo t >tempo; rm tempo; \
    echo long >a_name_that_is_long_enough_that_the_head_of_an_entry_of_tar_has_no_room_for_the_whole_of_it_at_all_1";

#[test]
fn changes_come_home() {
    let (here, there) = (prepared("overlay-here", PREPARE), prepared("overlay-there", PREPARE));
    let (before, archive) = (contents(&there), no_file(&there.with_extension("tar")));
    let output = run(&["-c", "2", "--overlay-out", archive.to_str().unwrap()], CHANGE, &there);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(contents(&there), before, "nothing is written to this machine's files");
    sh(CHANGE, &here);
    let listed = sh(&format!("tar -tf '{}'", archive.display()), &there).stdout;
    let listed = String::from_utf8(listed).unwrap();
    let path = |name: &str| there.join(name).strip_prefix("/").unwrap().display().to_string();
    for name in
        [".wh.gone", ".wh.emptied", ".wh.moving", ".wh.renamed", ".wh.dangling", "replaced/.wh..wh..opq"]
    {
        assert!(listed.lines().any(|line| line == path(name)), "no {name} in {listed}");
    }
    for name in ["kept/same", "tempo", ".wh.tempo", ".wh.over"] {
        assert!(!listed.lines().any(|line| line == path(name)), "{name} in {listed}");
    }
    assert!(
        !listed.lines().any(|line| ["dev/", "proc/", "tmp/"].iter().any(|top| line.starts_with(top))),
        "{listed}"
    );
    apply(&archive, &there);
    assert_eq!(contents(&there), contents(&here));
}

/// Changes in `/tmp`, and those of a run that fails, are taken home, too.
#[test]
fn changes_in_tmp_come_home_if_they_are_wanted() {
    let there = folder("overlay-tmp");
    let archive = there.join("out.tar");
    let name = format!("/tmp/radixvm-overlay-{}", std::process::id());
    let out = ["--overlay-out", archive.to_str().unwrap(), "--overlay-tmp"];
    let output = run(&out, &format!("echo text >{name}; exit 3"), &there);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(!Path::new(&name).exists());
    let listed = sh(&format!("tar -xOf '{}' '{}'", archive.display(), &name[1..]), &there);
    assert_eq!(listed.stdout, b"text\n");
}

/// All files of the archive belong to the user of the command.
#[test]
fn set_id_bits_of_users_stay_in_the_guest() {
    let folder = prepared("overlay-set-ids", ":");
    let line = "touch given mine; mkdir joined; chown 1000:1000 given joined; chmod 6755 given mine; chmod 2775 joined";
    let archive = no_file(&folder.with_extension("tar"));
    let output = run(&["--overlay-out", archive.to_str().unwrap()], line, &folder);
    assert!(output.status.success(), "{output:?}");
    apply(&archive, &folder);
    let modes = sh("stat -c '%n %a' given joined mine", &folder).stdout;
    assert_eq!(String::from_utf8_lossy(&modes), "given 755\njoined 775\nmine 6755\n");
}

#[test]
fn an_archive_that_cannot_be_made_is_refused_first() {
    let there = folder("overlay-refused");
    fs::write(there.join("mine"), "mine").unwrap();
    for (file, reason) in [("mine", "is not replaced"), ("absent/out.tar", "No such file")] {
        let output = run(&["--overlay-out", file], "echo ran", &there);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(125) && told.contains(reason), "{output:?}");
        assert_eq!(output.stdout, b"", "the program did not run");
    }
    assert_eq!(fs::read(there.join("mine")).unwrap(), b"mine");
}

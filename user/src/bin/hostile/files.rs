//! Calls about files with bad pointers, descriptors, lengths and names.

use crate::cases::{AT, Cases};
use crate::fixture::{Fixture, NOWHERE, text, words};
use libc::*;

const HERE: usize = AT_FDCWD as usize;
/// The last offset of a file.
const LAST: usize = i64::MAX as usize;
/// Flags that Linux adds to every file's. The C library's O_LARGEFILE is 0 here.
const LARGE: usize = 0o100000;

/// Adds the cases.
pub fn add(cases: &mut Cases, fixture: &Fixture) {
    reading(cases, fixture);
    writing(cases, fixture);
    vectors(cases, fixture);
    names(cases, fixture);
    opening(cases, fixture);
    status(cases, fixture);
    descriptors(cases, fixture);
    places(cases, fixture);
    copies(cases, fixture);
    cases.works("unlink of the file", SYS_unlink, &[fixture.path]);
    cases.works("rmdir of the directory", SYS_rmdir, &[fixture.directory_path]);
}

fn reading(cases: &mut Cases, f: &Fixture) {
    cases.writes("read of /dev/zero", SYS_read, &[f.zero, AT, 8]);
    cases.writes("pread64 of a file", SYS_pread64, &[f.file, AT, 8, 0]);
    cases.gives("read that ends in a hole", SYS_read, &[f.zero, f.edge, 16], &[Ok(8), Err(EFAULT)]);
    cases.gives("read of nothing to null", SYS_read, &[f.file, 0, 0], &[Ok(0)]);
    cases.fails(
        "read of more bytes than there are addresses",
        SYS_read,
        &[f.zero, f.page, usize::MAX],
        EFAULT,
    );
    for (name, descriptor) in [("-1", NOWHERE), ("never opened", 1 << 20), ("write-only", f.file_write)] {
        cases.fails(&format!("read, descriptor {name}"), SYS_read, &[descriptor, f.page, 8], EBADF);
    }
    cases.fails("read of a directory", SYS_read, &[f.directory, f.page, 8], EISDIR);
    cases.fails("read of an empty pipe that does not block", SYS_read, &[f.pipe[0], f.page, 8], EAGAIN);
    cases.fails("read of the writing end of a pipe", SYS_read, &[f.pipe[1], f.page, 8], EBADF);
    cases.fails("pread64 before the start", SYS_pread64, &[f.file, f.page, 8, usize::MAX], EINVAL);
    cases.fails("pread64 beyond the last offset", SYS_pread64, &[f.file, f.page, 8, LAST], EINVAL);
    cases.gives("pread64 of nothing at the last offset", SYS_pread64, &[f.file, f.page, 0, LAST], &[Ok(0)]);
    cases.fails("pread64 of a pipe", SYS_pread64, &[f.pipe[0], f.page, 8, 0], ESPIPE);
}

fn writing(cases: &mut Cases, f: &Fixture) {
    cases.reads("write to a pipe", SYS_write, &[f.pipe[1], AT, 8]);
    cases.reads("pwrite64 to a file", SYS_pwrite64, &[f.file, AT, 8, 0]);
    cases.gives("write of nothing from null", SYS_write, &[f.file, 0, 0], &[Ok(0)]);
    cases.fails(
        "write of more bytes than there are addresses",
        SYS_write,
        &[f.pipe[1], f.page, usize::MAX],
        EFAULT,
    );
    for (name, descriptor) in [("-1", NOWHERE), ("never opened", 1 << 20), ("read-only", f.file_read)] {
        cases.fails(&format!("write, descriptor {name}"), SYS_write, &[descriptor, f.page, 8], EBADF);
    }
    cases.fails("write to the reading end of a pipe", SYS_write, &[f.pipe[0], f.page, 8], EBADF);
    cases.fails("pwrite64 before the start", SYS_pwrite64, &[f.file, f.page, 8, usize::MAX], EINVAL);
    cases.fails("pwrite64 beyond the last offset", SYS_pwrite64, &[f.file, f.page, 8, LAST - 3], EINVAL);
    cases.fails("ftruncate to a negative length", SYS_ftruncate, &[f.file, usize::MAX], EINVAL);
    cases.fails("ftruncate of a pipe", SYS_ftruncate, &[f.pipe[1], 0], EINVAL);
}

fn vectors(cases: &mut Cases, f: &Fixture) {
    cases.reads("readv, the vector", SYS_readv, &[f.zero, AT, 1]);
    cases.reads("writev, the vector", SYS_writev, &[f.pipe[1], AT, 1]);
    for (kind, place) in f.unreadable() {
        let vector = words(&[place, 8]);
        cases.fails(&format!("readv into it, {kind} pointer"), SYS_readv, &[f.zero, vector, 1], EFAULT);
        cases.fails(&format!("writev from it, {kind} pointer"), SYS_writev, &[f.pipe[1], vector, 1], EFAULT);
    }
    let good = words(&[f.page, 8]);
    let negative = words(&[f.page, usize::MAX]);
    cases.fails("readv of 1025 parts", SYS_readv, &[f.zero, good, 1025], EINVAL);
    cases.fails("writev of -1 parts", SYS_writev, &[f.pipe[1], good, usize::MAX], EINVAL);
    cases.fails("readv, a part of negative length", SYS_readv, &[f.zero, negative, 1], EINVAL);
    cases.fails("writev, a part of negative length", SYS_writev, &[f.pipe[1], negative, 1], EINVAL);
    cases.gives("readv of no parts", SYS_readv, &[f.zero, 0, 0], &[Ok(0)]);
}

/// Adds the same bad paths for every call that takes a path.
fn names(cases: &mut Cases, f: &Fixture) {
    let (nothing, missing) = (text(""), text("/tmp/no/such/file"));
    let below_file = text("/dev/null/below");
    let long_part = text(&format!("/tmp/{}", "x".repeat(256)));
    let long = text(&format!("/tmp/{}", "x/".repeat(2100)));
    let calls: [(&str, c_long, &[usize]); 8] = [
        ("open", SYS_open, &[AT, 0]),
        ("openat", SYS_openat, &[HERE, AT, 0]),
        ("stat", SYS_stat, &[AT, f.page]),
        ("lstat", SYS_lstat, &[AT, f.page]),
        ("newfstatat", SYS_newfstatat, &[HERE, AT, f.page, 0]),
        ("access", SYS_access, &[AT, 0]),
        ("chdir", SYS_chdir, &[AT]),
        ("readlink", SYS_readlink, &[AT, f.page, 64]),
    ];
    for (call, number, args) in calls {
        cases.reads(&format!("{call}, the path"), number, args);
        let mut fails = |name: &str, path: usize, error| {
            let args: Vec<_> = args.iter().map(|arg| if *arg == AT { path } else { *arg }).collect();
            cases.fails(&format!("{call}, {name}"), number, &args, error);
        };
        fails("an empty path", nothing, ENOENT);
        fails("a missing file", missing, ENOENT);
        fails("a path below a file", below_file, ENOTDIR);
        fails("a part of 256 bytes", long_part, ENAMETOOLONG);
        fails("a path of 4 KiB", long, ENAMETOOLONG);
    }
}

fn opening(cases: &mut Cases, f: &Fixture) {
    let create = (O_CREAT | O_EXCL | O_RDWR) as usize;
    cases.fails("open of a directory to write", SYS_open, &[f.directory_path, O_WRONLY as usize], EISDIR);
    cases.fails("open of a file as a directory", SYS_open, &[f.path, O_DIRECTORY as usize], ENOTDIR);
    cases.fails("open of what exists exclusively", SYS_open, &[f.path, create, 0o600], EEXIST);
    cases.fails("open with all flags", SYS_open, &[f.path, NOWHERE], ENOTDIR);
    cases.fails("openat below no directory", SYS_openat, &[NOWHERE, text("x"), 0], EBADF);
    cases.fails("openat below a file", SYS_openat, &[f.file, text("x"), 0], ENOTDIR);
    cases.fails("mkdir of what exists", SYS_mkdir, &[f.directory_path, 0o700], EEXIST);
    cases.fails("unlink of a directory", SYS_unlink, &[f.directory_path], EISDIR);
    cases.fails("unlink of a missing file", SYS_unlink, &[text("/tmp/no-such-file")], ENOENT);
    cases.fails("rmdir of a file", SYS_rmdir, &[f.path], ENOTDIR);
    cases.fails("access with an unknown mode", SYS_access, &[f.path, 0xff], EINVAL);
    cases.fails("chdir to a file", SYS_chdir, &[f.path], ENOTDIR);
    cases.fails("rmdir of a missing directory", SYS_rmdir, &[text("/tmp/no-such-directory")], ENOENT);
}

fn status(cases: &mut Cases, f: &Fixture) {
    cases.writes("fstat", SYS_fstat, &[f.file, AT]);
    cases.writes("stat, the result", SYS_stat, &[f.directory_path, AT]);
    cases.writes("newfstatat, the result", SYS_newfstatat, &[HERE, f.directory_path, AT, 0]);
    cases.fails("fstat of nothing", SYS_fstat, &[NOWHERE, f.page], EBADF);
    cases.fails(
        "newfstatat with unknown flags",
        SYS_newfstatat,
        &[HERE, f.directory_path, f.page, 0xff],
        EINVAL,
    );
    cases.writes("getdents64", SYS_getdents64, &[f.directory, AT, 4096]);
    cases.fails("getdents64 into 8 bytes", SYS_getdents64, &[f.directory, f.page, 8], EINVAL);
    cases.fails("getdents64 into -1 bytes", SYS_getdents64, &[f.directory, f.page, NOWHERE], EINVAL);
    cases.fails("utimensat with unknown flags", SYS_utimensat, &[HERE, f.path, 0, 1], EINVAL);
    cases.fails("getdents64 of a file", SYS_getdents64, &[f.file, f.page, 4096], ENOTDIR);
    cases.writes("readlink, the result", SYS_readlink, &[text("/proc/self/exe"), AT, 64]);
    cases.fails("readlink into nothing", SYS_readlink, &[text("/proc/self/exe"), f.page, 0], EINVAL);
    cases.fails("readlink of a directory", SYS_readlink, &[f.directory_path, f.page, 64], EINVAL);
    cases.writes("getcwd", SYS_getcwd, &[AT, 4096]);
    cases.fails("getcwd into one byte", SYS_getcwd, &[f.page, 1], ERANGE);
    cases.fails("getcwd into nothing", SYS_getcwd, &[f.page, 0], ERANGE);
}

fn descriptors(cases: &mut Cases, f: &Fixture) {
    cases.fails("close of -1", SYS_close, &[NOWHERE], EBADF);
    cases.fails("close of one never opened", SYS_close, &[1 << 20], EBADF);
    cases.fails("dup of -1", SYS_dup, &[NOWHERE], EBADF);
    cases.fails("dup2 to -1", SYS_dup2, &[f.file, NOWHERE], EBADF);
    cases.fails("dup2 beyond the limit", SYS_dup2, &[f.file, 1 << 30], EBADF);
    cases.gives("dup2 to itself", SYS_dup2, &[f.file, f.file], &[Ok(f.file)]);
    cases.fails("dup3 to itself", SYS_dup3, &[f.file, f.file, 0], EINVAL);
    cases.fails("dup3 with unknown flags", SYS_dup3, &[f.file, 100, 1], EINVAL);
    cases.writes("pipe2", SYS_pipe2, &[AT, 0]);
    cases.fails("pipe2 with unknown flags", SYS_pipe2, &[f.page, 0x7f], EINVAL);
    cases.fails("fcntl of nothing", SYS_fcntl, &[NOWHERE, F_GETFD as usize], EBADF);
    cases.gives("fcntl, a file's flags", SYS_fcntl, &[f.file_read, F_GETFL as usize], &[Ok(LARGE)]);
    cases.gives("fcntl, a place's flags", SYS_fcntl, &[f.place, F_GETFL as usize], &[Ok(O_PATH as usize)]);
    cases.fails("fcntl, unknown", SYS_fcntl, &[f.file, 12345], EINVAL);
    cases.fails("fcntl, copy beyond the limit", SYS_fcntl, &[f.file, F_DUPFD as usize, 1 << 30], EINVAL);
    cases.fails("ioctl of nothing", SYS_ioctl, &[NOWHERE, TIOCGWINSZ as usize, f.page], EBADF);
    cases.fails("ioctl, a file is no terminal", SYS_ioctl, &[f.file, TIOCGWINSZ as usize, 0], ENOTTY);
    cases.fails("ioctl, unknown", SYS_ioctl, &[f.file, 0x12345678, 0], ENOTTY);
    cases.reads("poll", SYS_poll, &[AT, 1, 0]);
    cases.fails("poll of too many", SYS_poll, &[f.page, u32::MAX as usize, 0], EINVAL);
}

fn places(cases: &mut Cases, f: &Fixture) {
    cases.fails("lseek before the start", SYS_lseek, &[f.file, usize::MAX, 0], EINVAL);
    cases.fails("lseek from nowhere", SYS_lseek, &[f.file, 0, 99], EINVAL);
    cases.fails("lseek in a pipe", SYS_lseek, &[f.pipe[0], 0, 0], ESPIPE);
    cases.fails("lseek in nothing", SYS_lseek, &[NOWHERE, 0, 0], EBADF);
    cases.fails("sync_file_range of nothing", SYS_sync_file_range, &[NOWHERE, 0, 0, 0], EBADF);
    cases.fails("sync_file_range, negative", SYS_sync_file_range, &[f.file, NOWHERE, 0, 0], EINVAL);
    cases.fails("fadvise64 of a negative length", SYS_fadvise64, &[f.file, 0, NOWHERE, 0], EINVAL);
}

fn copies(cases: &mut Cases, f: &Fixture) {
    let at = |offset| words(&[offset]);
    cases.fails("sendfile of -1 bytes", SYS_sendfile, &[f.file, f.file_read, 0, NOWHERE], EINVAL);
    cases.fails("sendfile beyond the last offset", SYS_sendfile, &[f.file, f.file_read, at(LAST), 8], EINVAL);
    let mut copy = |name: &str, from: usize, to: usize, length: usize, accepted| {
        let args = [f.file_read, at(from), f.file, at(to), length, 0];
        cases.gives(&format!("copy_file_range {name}"), SYS_copy_file_range, &args, &[accepted]);
    };
    copy("onto itself", 0, 0, 100, Err(EINVAL));
    copy("onto its tail", 0, 9, 10, Err(EINVAL));
    copy("onto its head", 9, 5, 5, Ok(1));
    copy("to its end", 0, 10, 10, Ok(10));
    copy("back to its old length", 20, 0, 10, Ok(0));
    copy("that wraps", 5, 0, NOWHERE, Err(EOVERFLOW));
}

//! Clocks, limits, facts about the machine, and calls that do not exist.

use crate::cases::{AT, Cases};
use crate::fixture::{Fixture, NOWHERE, text, words};
use libc::*;
use programs::memory::PAGE;

/// Adds the cases.
pub fn add(cases: &mut Cases, fixture: &Fixture) {
    clocks(cases, fixture);
    sleeping(cases, fixture);
    facts(cases, fixture);
    waiting(cases, fixture);
    processes(cases);
    priorities(cases);
    missing(cases);
}

fn clocks(cases: &mut Cases, f: &Fixture) {
    let monotonic = CLOCK_MONOTONIC as usize;
    cases.writes("clock_gettime", SYS_clock_gettime, &[monotonic, AT]);
    cases.writes_unless_null("clock_getres", SYS_clock_getres, &[monotonic, AT]);
    cases.writes_unless_null("gettimeofday", SYS_gettimeofday, &[AT, 0]);
    cases.writes_unless_null("time", SYS_time, &[AT]);
    cases.fails("clock_gettime, unknown", SYS_clock_gettime, &[12345, f.page], EINVAL);
    cases.fails("clock_getres, unknown", SYS_clock_getres, &[12345, f.page], EINVAL);
}

fn sleeping(cases: &mut Cases, f: &Fixture) {
    let monotonic = CLOCK_MONOTONIC as usize;
    cases.reads("nanosleep", SYS_nanosleep, &[AT, 0]);
    cases.reads("clock_nanosleep", SYS_clock_nanosleep, &[monotonic, 0, AT, 0]);
    for (name, seconds, nanoseconds) in
        [("1e9 ns", 0, 1_000_000_000), ("-1 ns", 0, NOWHERE), ("-1 s", NOWHERE, 0)]
    {
        let time = words(&[seconds, nanoseconds]);
        cases.fails(&format!("nanosleep for {name}"), SYS_nanosleep, &[time, 0], EINVAL);
        cases.fails(
            &format!("clock_nanosleep for {name}"),
            SYS_clock_nanosleep,
            &[monotonic, 0, time, 0],
            EINVAL,
        );
    }
    cases.fails("clock_nanosleep, unknown", SYS_clock_nanosleep, &[12345, 0, f.page, 0], EINVAL);
}

fn facts(cases: &mut Cases, f: &Fixture) {
    cases.writes("uname", SYS_uname, &[AT]);
    cases.writes("sysinfo", SYS_sysinfo, &[AT]);
    cases.writes_unless_null("times", SYS_times, &[AT]);
    cases.writes("getrusage", SYS_getrusage, &[0, AT]);
    cases.fails("getrusage of somebody", SYS_getrusage, &[12345, f.page], EINVAL);
    cases.writes("getrandom", SYS_getrandom, &[AT, 8, 0]);
    cases.fails("getrandom with unknown flags", SYS_getrandom, &[f.page, 8, 0xff], EINVAL);
    let until_the_hole = [Ok(PAGE), Err(EFAULT)];
    cases.gives("getrandom into a hole", SYS_getrandom, &[f.page, 1 << 20, 0], &until_the_hole);
    cases.writes_unless_null("prlimit64, the old limit", SYS_prlimit64, &[0, 3, 0, AT]);
    cases.reads_unless_null("prlimit64, the new limit", SYS_prlimit64, &[0, 3, AT, 0]);
    cases.fails("prlimit64, unknown", SYS_prlimit64, &[0, 99, 0, f.page], EINVAL);
    cases.fails("prlimit64 of nobody", SYS_prlimit64, &[0x3fff_fff0, 3, 0, f.page], ESRCH);
    cases.fails("prlimit64, soft above hard", SYS_prlimit64, &[0, 3, words(&[2, 1]), 0], EINVAL);
}

/// Adds calls that wait. There are no children here.
fn waiting(cases: &mut Cases, f: &Fixture) {
    let (anybody, exited) = (P_ALL as usize, WEXITED as usize);
    cases.fails("wait4 without children", SYS_wait4, &[NOWHERE, 0, 0, 0], ECHILD);
    cases.fails("wait4 with unknown options", SYS_wait4, &[NOWHERE, 0, 0x12345, 0], EINVAL);
    cases.fails("waitid without children", SYS_waitid, &[anybody, 0, f.page, exited, 0], ECHILD);
    cases.fails("waitid for nothing", SYS_waitid, &[anybody, 0, f.page, 0, 0], EINVAL);
    cases.fails("waitid with unknown options", SYS_waitid, &[anybody, 0, f.page, exited | 0x100, 0], EINVAL);
    cases.fails("waitid for an unknown kind", SYS_waitid, &[9, 1, f.page, exited, 0], EINVAL);
    cases.fails("waitid for process 0", SYS_waitid, &[P_PID as usize, 0, f.page, exited, 0], EINVAL);
}

/// Adds calls for programs that are not run, and for processes that do not exist.
fn processes(cases: &mut Cases) {
    let (me, nobody) = (text("/proc/self/exe"), 0x3fff_fff0);
    cases.reads("execve, the path", SYS_execve, &[AT, 0, 0]);
    cases.reads_unless_null("execve, the arguments", SYS_execve, &[me, AT, 0]);
    cases.reads_unless_null("execve, the environment", SYS_execve, &[me, 0, AT]);
    cases.fails("execve of nothing", SYS_execve, &[text(""), 0, 0], ENOENT);
    cases.fails("execve of a directory", SYS_execve, &[text("/"), 0, 0], EACCES);
    cases.fails("execveat with unknown flags", SYS_execveat, &[NOWHERE, me, 0, 0, 0x1], EINVAL);
    cases.fails("execveat from nowhere", SYS_execveat, &[12345, text("x"), 0, 0, 0], EBADF);
    cases.fails("setpgid to a negative group", SYS_setpgid, &[0, NOWHERE], EINVAL);
    cases.fails("setpgid of nobody", SYS_setpgid, &[nobody, 0], ESRCH);
    for (name, call) in [("getpgid", SYS_getpgid), ("getsid", SYS_getsid), ("kill", SYS_kill)] {
        cases.fails(&format!("{name} of nobody"), call, &[nobody, 0], ESRCH);
    }
    cases.fails("kill of the group of nobody", SYS_kill, &[nobody.wrapping_neg(), 0], ESRCH);
    cases.fails("kill of -2^31", SYS_kill, &[i32::MIN as usize, 0], ESRCH);
    cases.fails("pidfd_open of 0", SYS_pidfd_open, &[0, 0], EINVAL);
    cases.fails("pidfd_open of nobody", SYS_pidfd_open, &[nobody, 0], ESRCH);
    cases.fails("pidfd_open with unknown flags", SYS_pidfd_open, &[1, 0x10], EINVAL);
    cases.fails("pidfd_send_signal to no descriptor", SYS_pidfd_send_signal, &[12345, 0, 0, 0], EBADF);
    cases.fails("clone with half of what it needs", SYS_clone, &[CLONE_SIGHAND as usize, 0], EINVAL);
}

fn priorities(cases: &mut Cases) {
    for (name, call) in [("getpriority", SYS_getpriority), ("setpriority", SYS_setpriority)] {
        cases.fails(&format!("{name}, unknown"), call, &[9, 0, 0], EINVAL);
        cases.fails(&format!("{name} of nobody"), call, &[0, 0x3fff_fff0, 0], ESRCH);
        cases.works(&format!("{name} of the caller"), call, &[0, 0, 0]);
    }
}

fn missing(cases: &mut Cases) {
    for number in [1000, 0x7fff_ffff, 0x4000_0000, -1] {
        cases.fails(&format!("call number {number}"), number, &[1, 2, 3, 4, 5, 6], ENOSYS);
    }
}

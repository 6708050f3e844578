//! Signals.

use crate::cases::{AT, Cases};
use crate::fixture::{Fixture, NOWHERE, words};
use libc::*;

const USR1: usize = SIGUSR1 as usize;
const NOBODY: usize = 0x3fff_fff0;

/// Adds the cases.
pub fn add(cases: &mut Cases, f: &Fixture) {
    actions(cases);
    masks(cases, f);
    sending(cases);
}

fn actions(cases: &mut Cases) {
    let action = words(&[0; 4]);
    cases.reads_unless_null("rt_sigaction, the action", SYS_rt_sigaction, &[USR1, AT, 0, 8]);
    cases.writes_unless_null("rt_sigaction, the old action", SYS_rt_sigaction, &[USR1, 0, AT, 8]);
    for (name, signal) in [("0", 0), ("65", 65), ("-1", NOWHERE), ("9", 9), ("19", 19)] {
        cases.fails(
            &format!("rt_sigaction of signal {name}"),
            SYS_rt_sigaction,
            &[signal, action, 0, 8],
            EINVAL,
        );
    }
    cases.fails("rt_sigaction, masks of 4 bytes", SYS_rt_sigaction, &[USR1, action, 0, 4], EINVAL);
    cases.reads_unless_null("sigaltstack, the stack", SYS_sigaltstack, &[AT, 0]);
    cases.writes_unless_null("sigaltstack, the old stack", SYS_sigaltstack, &[0, AT]);
    cases.fails("sigaltstack of 1 KiB", SYS_sigaltstack, &[words(&[0, 0, 1024]), 0], ENOMEM);
    cases.fails("sigaltstack with unknown flags", SYS_sigaltstack, &[words(&[0, 0x55, 1 << 16]), 0], EINVAL);
}

fn masks(cases: &mut Cases, f: &Fixture) {
    let empty = words(&[0]);
    cases.reads_unless_null("rt_sigprocmask, the mask", SYS_rt_sigprocmask, &[0, AT, 0, 8]);
    cases.writes_unless_null("rt_sigprocmask, the old mask", SYS_rt_sigprocmask, &[0, 0, AT, 8]);
    cases.fails("rt_sigprocmask, unknown", SYS_rt_sigprocmask, &[99, empty, 0, 8], EINVAL);
    cases.fails("rt_sigprocmask, masks of 4 bytes", SYS_rt_sigprocmask, &[0, empty, 0, 4], EINVAL);
    cases.writes("rt_sigpending", SYS_rt_sigpending, &[AT, 8]);
    cases.fails("rt_sigpending, masks of 16 bytes", SYS_rt_sigpending, &[f.page, 16], EINVAL);
}

fn sending(cases: &mut Cases) {
    let me = std::process::id() as usize;
    cases.fails("kill, signal 65", SYS_kill, &[me, 65], EINVAL);
    cases.fails("kill, signal -1", SYS_kill, &[me, NOWHERE], EINVAL);
    cases.fails("kill of nobody", SYS_kill, &[NOBODY, 0], ESRCH);
    cases.gives("kill, signal 0", SYS_kill, &[me, 0], &[Ok(0)]);
    cases.fails("tgkill of thread -1", SYS_tgkill, &[me, NOWHERE, 0], EINVAL);
    cases.fails("tgkill of nobody", SYS_tgkill, &[me, NOBODY, 0], ESRCH);
    cases.fails("tgkill, signal 65", SYS_tgkill, &[me, me, 65], EINVAL);
}

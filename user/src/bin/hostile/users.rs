//! Users, capabilities and POSIX message queues.

use crate::cases::{AT, Cases};
use crate::fixture::{Fixture, NOWHERE, text, words};
use libc::*;

/// The version of capability sets of 64 bits.
const VERSION: usize = 0x2008_0522;
/// More groups than a process may have.
const TOO_MANY: usize = 65_537;

/// Adds the cases.
pub fn add(cases: &mut Cases, fixture: &Fixture) {
    capabilities(cases, fixture);
    users(cases, fixture);
    queues(cases, fixture);
}

fn capabilities(cases: &mut Cases, f: &Fixture) {
    let (own, none, other) = (words(&[VERSION]), words(&[VERSION | NOWHERE << 32]), VERSION | 1 << 62);
    cases.reads("capget, the header", SYS_capget, &[AT, f.page]);
    cases.reads("capset, the header", SYS_capset, &[AT, f.page]);
    cases.writes_unless_null("capget", SYS_capget, &[own, AT]);
    cases.reads("capset", SYS_capset, &[own, AT]);
    cases.fails("capget of a negative number", SYS_capget, &[none, f.page], EINVAL);
    cases.fails("capget of nobody", SYS_capget, &[words(&[other]), f.page], ESRCH);
    cases.fails("capset of nobody", SYS_capset, &[words(&[other]), f.page], EPERM);
    cases.fails("capget of no version", SYS_capget, &[words(&[1]), f.page], EINVAL);
    cases.fails("capset of no version", SYS_capset, &[words(&[1]), f.page], EINVAL);
}

fn users(cases: &mut Cases, f: &Fixture) {
    let refused = |error: i32| [Err(error), Err(EPERM)];
    cases.gives("setgroups from a hole", SYS_setgroups, &[3, f.hole], &refused(EFAULT));
    cases.gives("setgroups from the top", SYS_setgroups, &[3, f.top], &refused(EFAULT));
    cases.gives("setgroups of too many", SYS_setgroups, &[TOO_MANY, f.page], &refused(EINVAL));
    cases.gives("setgroups of a negative number", SYS_setgroups, &[NOWHERE, f.page], &refused(EINVAL));
    cases.gives("setgroups of no group", SYS_setgroups, &[1, words(&[NOWHERE])], &refused(EINVAL));
    cases.fails("getgroups, negative", SYS_getgroups, &[NOWHERE, f.page], EINVAL);
    cases.writes("getresuid", SYS_getresuid, &[AT, f.page, f.page]);
    cases.writes("getresgid", SYS_getresgid, &[f.page, f.page, AT]);
    cases.works("setresuid of nothing", SYS_setresuid, &[NOWHERE, NOWHERE, NOWHERE]);
    cases.fails("setuid of no user", SYS_setuid, &[NOWHERE], EINVAL);
    cases.fails("setgid of no group", SYS_setgid, &[NOWHERE], EINVAL);
}

fn queues(cases: &mut Cases, f: &Fixture) {
    let (name, long) = (text("radixvm-hostile"), text(&"x".repeat(256)));
    let make = (O_CREAT | O_RDWR) as usize;
    cases.reads("mq_open, the name", SYS_mq_open, &[AT, 0, 0, 0]);
    cases.reads_unless_null("mq_open, the attributes", SYS_mq_open, &[name, make, 0o600, AT]);
    let attributes = |most: usize, bytes: usize| words(&[0, most, bytes, 0, 0, 0, 0, 0]);
    for (most, bytes) in [(0, 1), (NOWHERE, 1), (1, 0), (1, NOWHERE), (1 << 60, 1 << 60)] {
        let args = [name, make, 0o600, attributes(most, bytes)];
        cases.fails(&format!("mq_open of {most} messages of {bytes} bytes"), SYS_mq_open, &args, EINVAL);
    }
    for (call, name_of) in [(SYS_mq_open, "mq_open"), (SYS_mq_unlink, "mq_unlink")] {
        cases.fails(&format!("{name_of} of no queue"), call, &[name, 0, 0, 0], ENOENT);
        cases.fails(&format!("{name_of} of a path"), call, &[text("a/b"), 0, 0, 0], EACCES);
        cases.fails(&format!("{name_of} without a name"), call, &[text(""), 0, 0, 0], ENOENT);
        cases.fails(&format!("{name_of} of a long name"), call, &[long, 0, 0, 0], ENAMETOOLONG);
    }
    cases.reads("mq_unlink", SYS_mq_unlink, &[AT]);
    cases.reads_unless_null("mq_timedsend, the time", SYS_mq_timedsend, &[f.file, f.page, 1, 0, AT]);
    cases.reads_unless_null("mq_timedreceive, the time", SYS_mq_timedreceive, &[f.file, f.page, 1, 0, AT]);
    cases.reads_unless_null("mq_notify", SYS_mq_notify, &[f.file, AT]);
    cases.reads_unless_null("mq_getsetattr", SYS_mq_getsetattr, &[f.file, AT, 0]);
    cases.fails("mq_timedsend, priority", SYS_mq_timedsend, &[f.file, f.page, 1, 40_000, 0], EINVAL);
    for file in [f.file, NOWHERE, f.pipe[0]] {
        cases.fails("mq_timedsend to no queue", SYS_mq_timedsend, &[file, f.page, 1, 0, 0], EBADF);
        cases.fails("mq_timedreceive from no queue", SYS_mq_timedreceive, &[file, f.page, 1, 0, 0], EBADF);
        cases.fails("mq_notify of no queue", SYS_mq_notify, &[file, 0], EBADF);
        cases.fails("mq_getsetattr of no queue", SYS_mq_getsetattr, &[file, 0, f.page], EBADF);
    }
}

//! Futexes, clone and scheduling.

use crate::cases::{AT, AT_WORD, Cases};
use crate::fixture::{Fixture, NOWHERE, words};
use libc::*;

const PRIVATE: usize = FUTEX_PRIVATE_FLAG as usize;
const WAIT: usize = FUTEX_WAIT as usize | PRIVATE;
const WAKE: usize = FUTEX_WAKE as usize | PRIVATE;
const WAIT_BITSET: usize = FUTEX_WAIT_BITSET as usize | PRIVATE;
const REALTIME: usize = FUTEX_CLOCK_REALTIME as usize;
const CMP_REQUEUE: usize = FUTEX_CMP_REQUEUE as usize | PRIVATE;
/// No process or thread has this number.
const NOBODY: usize = 0x3fff_fff0;

/// Adds the cases.
pub fn add(cases: &mut Cases, fixture: &Fixture) {
    futex(cases, fixture);
    shared_futex(cases);
    clone(cases, fixture);
    scheduling(cases, fixture);
}

fn futex(cases: &mut Cases, f: &Fixture) {
    let word = words(&[7]);
    cases.reads("futex wait", SYS_futex, &[AT_WORD, WAIT, 1, 0]);
    cases.fails("futex wait, unaligned", SYS_futex, &[word + 1, WAIT, 7, 0], EINVAL);
    cases.fails("futex wake, unaligned", SYS_futex, &[word + 2, WAKE, 1], EINVAL);
    cases.fails("futex wait, other value", SYS_futex, &[word, WAIT, 8, 0], EAGAIN);
    cases.reads_unless_null("futex wait, the timeout", SYS_futex, &[word, WAIT, 7, AT]);
    for (name, seconds, nanoseconds) in
        [("1e9 ns", 0, 1_000_000_000), ("-1 ns", 0, NOWHERE), ("-1 s", NOWHERE, 0)]
    {
        let timeout = words(&[seconds, nanoseconds]);
        cases.fails(&format!("futex wait, timeout of {name}"), SYS_futex, &[word, WAIT, 7, timeout], EINVAL);
    }
    cases.fails("futex wait, no time", SYS_futex, &[word, WAIT, 7, words(&[0, 0])], ETIMEDOUT);
    cases.fails("futex wait, no bits", SYS_futex, &[word, WAIT_BITSET, 7, 0, 0, 0], EINVAL);
    cases.gives("futex wake of nobody", SYS_futex, &[word, WAKE, 1], &[Ok(0)]);
    cases.gives("futex wake in a hole", SYS_futex, &[f.hole, WAKE, 1], &[Ok(0), Err(EFAULT)]);
    cases.fails("futex wake in the kernel", SYS_futex, &[0xffff_8000_0000_0000, WAKE, 1], EFAULT);
    cases.fails("futex requeue, other value", SYS_futex, &[word, CMP_REQUEUE, 1, 1, f.page, 8], EAGAIN);
    cases.fails(
        "futex requeue, unaligned target",
        SYS_futex,
        &[word, CMP_REQUEUE, 1, 1, f.page + 1, 7],
        EINVAL,
    );
    cases.fails(
        "futex requeue of -1",
        SYS_futex,
        &[word, CMP_REQUEUE, 1, u32::MAX as usize, f.page, 7],
        EINVAL,
    );
    cases.fails("futex, unknown", SYS_futex, &[word, 0x7f], ENOSYS);
    for (name, operation) in [("wait", WAIT), ("wake", WAKE), ("requeue", CMP_REQUEUE)] {
        let args = [word, operation | REALTIME, 1, 0, f.page, 8];
        cases.fails(&format!("futex {name} by the wall clock"), SYS_futex, &args, ENOSYS);
    }
}

/// The page of a shared futex must exist even if no thread waits there.
fn shared_futex(cases: &mut Cases) {
    const fn shared(operation: usize) -> usize {
        operation & !PRIVATE
    }
    let word = words(&[7]);
    cases.reads("futex wake, shared", SYS_futex, &[AT_WORD, shared(WAKE), 1]);
    cases.reads("futex requeue, shared", SYS_futex, &[AT_WORD, shared(CMP_REQUEUE), 1, 1, word, 7]);
    cases.reads("futex requeue to it, shared", SYS_futex, &[word, shared(CMP_REQUEUE), 1, 1, AT_WORD, 7]);
    let negative = [0, shared(CMP_REQUEUE), 1, u32::MAX as usize, word, 7];
    cases.fails("futex requeue of -1, shared, null pointer", SYS_futex, &negative, EINVAL);
}

fn clone(cases: &mut Cases, f: &Fixture) {
    cases.fails(
        "clone of a thread without handlers",
        SYS_clone,
        &[(CLONE_THREAD | CLONE_VM) as usize],
        EINVAL,
    );
    cases.fails("clone of handlers without memory", SYS_clone, &[CLONE_SIGHAND as usize], EINVAL);
    cases.reads("clone3", SYS_clone3, &[AT, 88]);
    cases.fails("clone3, too small", SYS_clone3, &[f.page, 8], EINVAL);
    cases.fails("clone3, too large", SYS_clone3, &[f.page, 1 << 20], E2BIG);
    cases.fails("set_robust_list, wrong size", SYS_set_robust_list, &[f.page, 1], EINVAL);
    cases.fails("arch_prctl, unknown", SYS_arch_prctl, &[0x1_0000, 0], EINVAL);
    cases.fails(
        "arch_prctl, thread pointer in the kernel",
        SYS_arch_prctl,
        &[0x1002, 0xffff_8000_0000_0000],
        EPERM,
    );
    cases.fails("arch_prctl, thread pointer non-canonical", SYS_arch_prctl, &[0x1002, 1 << 60], EPERM);
    cases.writes("arch_prctl, where is the thread pointer", SYS_arch_prctl, &[0x1003, AT]);
}

fn scheduling(cases: &mut Cases, f: &Fixture) {
    cases.reads("sched_setaffinity", SYS_sched_setaffinity, &[0, 128, AT]);
    cases.writes("sched_getaffinity", SYS_sched_getaffinity, &[0, 128, AT]);
    cases.fails("sched_setaffinity to no CPU", SYS_sched_setaffinity, &[0, 8, words(&[0])], EINVAL);
    cases.fails("sched_setaffinity of nobody", SYS_sched_setaffinity, &[NOBODY, 8, words(&[1])], ESRCH);
    cases.fails("sched_getaffinity of an odd length", SYS_sched_getaffinity, &[0, 129, f.page], EINVAL);
    cases.fails("sched_getaffinity into nothing", SYS_sched_getaffinity, &[0, 0, f.page], EINVAL);
    cases.fails("sched_getaffinity of nobody", SYS_sched_getaffinity, &[NOBODY, 128, f.page], ESRCH);
    cases.fails("sched_setscheduler, unknown", SYS_sched_setscheduler, &[0, 99, words(&[0])], EINVAL);
    cases.fails("sched_getscheduler of nobody", SYS_sched_getscheduler, &[NOBODY], ESRCH);
    cases.writes_unless_null("getcpu", SYS_getcpu, &[AT, 0, 0]);
}

//! The system calls that do not work with `--isolate`, and those that end the pool: for the runtime, which
//! refuses them, and for `radixvm native --check`, which looks for them in a program's code.

/// The way in which a call fails with `--isolate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It fails with ENOSYS, and a message on stderr has this name.
    Named(&'static str),
    /// It is [`Self::Named`] if the program has several threads.
    WithThreads(&'static str),
    /// It is [`Self::Named`] for some values of its first argument.
    Sometimes(&'static str),
    /// It fails with ENOSYS, without a message. Programs try it, and do without.
    Absent,
    /// It fails with ENOSYS, and a message on stderr has its number: it may change memory in a new way.
    Unknown,
}

use Refusal::{Absent, Named, Sometimes, Unknown, WithThreads};

/// No call with this number, or a higher one, is known.
const FIRST_UNKNOWN: u64 = 463;

/// Returns how a call fails, or `None` if it works.
pub const fn of(number: u64) -> Option<Refusal> {
    const USER: &str = "changing the user of a program with several threads";
    const FILTER: &str = "a filter of system calls";
    Some(match number {
        30 => Named("shmat"),
        101 => Sometimes("ptrace"),
        // setuid, setgid, setreuid, setregid, setresuid, setresgid
        105 | 106 | 113 | 114 | 117 | 119 => WithThreads(USER),
        151 => Named("mlockall"),
        154 => Named("modify_ldt"),
        // prctl, seccomp
        157 => Sometimes(FILTER),
        317 => Named(FILTER),
        206 => Named("io_setup"),
        216 => Named("remap_file_pages"),
        272 => Named("unshare"),
        278 => Named("vmsplice"),
        308 => Named("setns"),
        323 => Named("userfaultfd"),
        329 => Named("protection keys"),
        462 => Named("mseal"),
        // pkey_alloc, rseq, io_uring_setup, futex_waitv, map_shadow_stack, futex_wake, futex_wait,
        // futex_requeue
        330 | 334 | 425 | 449 | 453..=456 => Absent,
        FIRST_UNKNOWN.. => Unknown,
        _ => return None,
    })
}

/// The beginnings of paths of devices whose drivers remember the address space that opened them, and what
/// these are.
pub const DEVICES: [(&str, &str); 4] =
    [("/dev/kvm", "KVM"), ("/dev/nvidia", "GPU"), ("/dev/dri/", "GPU"), ("/dev/infiniband", "RDMA")];

/// Returns whether the pool is off from a call on: the kernel would keep to memory that the pool gives to
/// others, or the program would see more memory than it has.
pub const fn ends_pool(number: u64) -> bool {
    // mlockall, io_setup, vmsplice, userfaultfd, io_uring_setup, process_madvise
    matches!(number, 151 | 206 | 278 | 323 | 425 | 440)
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::syscalls::find;

    #[test]
    fn numbers_are_those_of_the_named_calls() {
        for number in 0..500 {
            if let Some(Named(name) | Sometimes(name)) = of(number)
                && let Some(call) = find(number)
                && !name.contains(' ')
            {
                assert_eq!(call.name, name);
            }
        }
        assert_eq!(find(329).unwrap().name, "pkey_mprotect");
        assert_eq!(find(317).unwrap().name, "seccomp");
        assert_eq!(of(0), None);
        let last = abi::syscalls::TABLE.last().unwrap().number;
        assert_eq!((of(u64::from(last) + 1), last as u64 + 1), (Some(Unknown), FIRST_UNKNOWN));
        let names: [&str; 6] =
            ["mlockall", "io_setup", "vmsplice", "userfaultfd", "io_uring_setup", "process_madvise"];
        let ends = (0..500).filter(|number| ends_pool(*number)).map(|number| find(number).unwrap().name);
        assert!(ends.eq(names));
    }
}

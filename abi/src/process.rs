//! Threads, futexes, limits, and the description of the machine for programs.

use crate::time::Timeval;
use crate::{constants, plain};

constants! { u32:
    WNOHANG = 1, "wait4, waitid: do not wait.";
    WUNTRACED = 2, "wait4: children that stopped, too.";
    WSTOPPED = 2, "waitid: children that stopped.";
    WEXITED = 4, "waitid: children that ended.";
    WCONTINUED = 8, "Children that go on.";
    WNOWAIT = 0x100_0000, "waitid: leave the child as it is.";
    WNOTHREAD = 0x2000_0000, "Not the children of other threads.";
    WALL = 0x4000_0000, "All kinds of children.";
    WCLONE = 0x8000_0000, "Children that do not tell by SIGCHLD.";
}

constants! { i32:
    KCMP_FILE = 0, "kcmp: the open files of two descriptors.";
    KCMP_VM = 1, "kcmp: memory.";
    KCMP_FILES = 2, "kcmp: descriptor tables.";
    KCMP_FS = 3, "kcmp: working directory and umask.";
    KCMP_SIGHAND = 4, "kcmp: actions for signals.";
    KCMP_IO = 5, "kcmp: contexts of reads and writes.";
    KCMP_SYSVSEM = 6, "kcmp: what semaphores undo.";
}

constants! { u32:
    ADDR_NO_RANDOMIZE = 0x4_0000, "personality: addresses are not random.";
    MMAP_PAGE_ZERO = 0x10_0000, "personality: programs have a page 0.";
    ADDR_COMPAT_LAYOUT = 0x20_0000, "personality: the layout of old programs.";
    READ_IMPLIES_EXEC = 0x40_0000, "personality: what may be read may be executed.";
}

constants! { i32:
    P_ALL = 0, "waitid: any child.";
    P_PID = 1, "waitid: the child with this number.";
    P_PGID = 2, "waitid: a child of this group.";
    P_PIDFD = 3, "waitid: the child of this descriptor.";
}

constants! { u64:
    CSIGNAL = 0xff, "clone: the bits of the exit signal.";
    CLONE_VM = 0x100, "Share the address space.";
    CLONE_FS = 0x200, "Share cwd and umask.";
    CLONE_FILES = 0x400, "Share the fd table.";
    CLONE_SIGHAND = 0x800, "Share signal handlers.";
    CLONE_PIDFD = 0x1000, "Return a pidfd.";
    CLONE_PTRACE = 0x2000, "Keep tracing.";
    CLONE_VFORK = 0x4000, "The parent waits.";
    CLONE_PARENT = 0x8000, "The caller's parent is the parent.";
    CLONE_THREAD = 0x1_0000, "A thread of this process.";
    CLONE_NEWNS = 0x2_0000, "New mount namespace.";
    CLONE_SYSVSEM = 0x4_0000, "Share semaphore adjustments.";
    CLONE_SETTLS = 0x8_0000, "Set fs base.";
    CLONE_PARENT_SETTID = 0x10_0000, "Store the tid for the parent.";
    CLONE_CHILD_CLEARTID = 0x20_0000, "Clear the tid on exit and wake.";
    CLONE_DETACHED = 0x40_0000, "Ignored.";
    CLONE_UNTRACED = 0x80_0000, "Not to be traced.";
    CLONE_CHILD_SETTID = 0x100_0000, "Store the tid for the child.";
    CLONE_NEWCGROUP = 0x200_0000, "New cgroup namespace.";
    CLONE_NEWUTS = 0x400_0000, "New UTS namespace.";
    CLONE_NEWIPC = 0x800_0000, "New IPC namespace.";
    CLONE_NEWUSER = 0x1000_0000, "New user namespace.";
    CLONE_NEWPID = 0x2000_0000, "New pid namespace.";
    CLONE_NEWNET = 0x4000_0000, "New network namespace.";
    CLONE_IO = 0x8000_0000, "Share the io context.";
    CLONE_CLEAR_SIGHAND = 0x1_0000_0000, "Default all handlers (clone3).";
    CLONE_INTO_CGROUP = 0x2_0000_0000, "Start in the given cgroup (clone3).";

    FUTEX_WAIT = 0, "Sleep if the word has the value.";
    FUTEX_WAKE = 1, "Wake sleepers.";
    FUTEX_REQUEUE = 3, "Wake some, move the rest.";
    FUTEX_CMP_REQUEUE = 4, "Requeue if the word has the value.";
    FUTEX_WAKE_OP = 5, "Wake on two words after an operation on one.";
    FUTEX_LOCK_PI = 6, "Lock with priority inheritance.";
    FUTEX_UNLOCK_PI = 7, "Unlock with priority inheritance.";
    FUTEX_TRYLOCK_PI = 8, "Try to lock with priority inheritance.";
    FUTEX_WAIT_BITSET = 9, "Wait for wakes that share a bit; absolute timeout.";
    FUTEX_WAKE_BITSET = 10, "Wake those who share a bit.";
    FUTEX_WAIT_REQUEUE_PI = 11, "Wait, then lock with priority inheritance.";
    FUTEX_CMP_REQUEUE_PI = 12, "Requeue to a lock with priority inheritance.";
    FUTEX_LOCK_PI2 = 13, "Lock, with a clock of choice.";
    FUTEX_PRIVATE_FLAG = 128, "Only threads of one process wait here.";
    FUTEX_CLOCK_REALTIME = 256, "The timeout is wall-clock time.";

    ARCH_SET_GS = 0x1001, "arch_prctl: set gs base.";
    ARCH_SET_FS = 0x1002, "arch_prctl: set fs base.";
    ARCH_GET_FS = 0x1003, "arch_prctl: get fs base.";
    ARCH_GET_GS = 0x1004, "arch_prctl: get gs base.";

    RLIMIT_CPU = 0, "CPU seconds.";
    RLIMIT_FSIZE = 1, "File size.";
    RLIMIT_DATA = 2, "Data segment.";
    RLIMIT_STACK = 3, "Stack.";
    RLIMIT_CORE = 4, "Core file.";
    RLIMIT_RSS = 5, "Resident set.";
    RLIMIT_NPROC = 6, "Processes.";
    RLIMIT_NOFILE = 7, "File descriptors.";
    RLIMIT_MEMLOCK = 8, "Locked memory.";
    RLIMIT_AS = 9, "Address space.";
    RLIMIT_SIGPENDING = 11, "Real-time signals that wait.";
    RLIMIT_MSGQUEUE = 12, "Bytes of POSIX message queues.";
    RLIMIT_NICE = 13, "20 less the lowest nice value.";
    RLIMIT_RTPRIO = 14, "Real-time priority.";
    RLIMIT_NLIMITS = 16, "How many limits there are.";
    RLIM_INFINITY = u64::MAX, "No limit.";

    GRND_NONBLOCK = 1, "getrandom: do not wait.";
    GRND_RANDOM = 2, "getrandom: from /dev/random.";
    GRND_INSECURE = 4, "getrandom: even before there is entropy.";
}

constants! { u32:
    FUTEX_WAITERS = 0x8000_0000, "Robust futex: somebody waits.";
    FUTEX_OWNER_DIED = 0x4000_0000, "Robust futex: the owner died.";
    FUTEX_TID_MASK = 0x3fff_ffff, "Robust futex: the owner's tid.";
    FUTEX_BITSET_MATCH_ANY = 0xffff_ffff, "Every bit.";
}

constants! { u64:
    AT_NULL = 0, "End of the vector.";
    AT_PHDR = 3, "Address of the program headers.";
    AT_PHENT = 4, "Size of one program header.";
    AT_PHNUM = 5, "How many program headers.";
    AT_PAGESZ = 6, "Page size.";
    AT_BASE = 7, "Base of the interpreter.";
    AT_FLAGS = 8, "Zero.";
    AT_ENTRY = 9, "Entry point of the program.";
    AT_UID = 11, "User id.";
    AT_EUID = 12, "Effective user id.";
    AT_GID = 13, "Group id.";
    AT_EGID = 14, "Effective group id.";
    AT_PLATFORM = 15, "Address of the platform's name.";
    AT_HWCAP = 16, "CPUID leaf 1, edx.";
    AT_CLKTCK = 17, "Ticks per second of times().";
    AT_SECURE = 23, "Whether privileges were gained.";
    AT_RANDOM = 25, "Address of 16 random bytes.";
    AT_HWCAP2 = 26, "More capabilities.";
    AT_EXECFN = 31, "Address of the program's path.";
    AT_SYSINFO_EHDR = 33, "Address of the vDSO.";
    AT_MINSIGSTKSZ = 51, "Smallest stack that a signal frame fits.";
}

plain! {
    /// `struct clone_args`.
    #[derive(Default)]
    pub struct CloneArgs {
        /// `CLONE_*`.
        pub flags: u64,
        /// Address for a pidfd.
        pub pidfd: u64,
        /// Address for the child's tid in the child.
        pub child_tid: u64,
        /// Address for the child's tid in the parent.
        pub parent_tid: u64,
        /// Signal on the child's exit.
        pub exit_signal: u64,
        /// Lowest address of the stack.
        pub stack: u64,
        /// Bytes of the stack.
        pub stack_size: u64,
        /// New fs base.
        pub tls: u64,
        /// Address of wanted tids.
        pub set_tid: u64,
        /// Number of those tids.
        pub set_tid_size: u64,
        /// A cgroup's descriptor.
        pub cgroup: u64,
    }

    /// `struct robust_list_head`.
    #[derive(Default)]
    pub struct RobustListHead {
        /// First entry.
        pub next: u64,
        /// From an entry to its futex word.
        pub futex_offset: i64,
        /// The entry being added or removed.
        pub pending: u64,
    }

    /// `struct rlimit64`.
    #[derive(Default)]
    pub struct Rlimit {
        /// The limit that is enforced.
        pub current: u64,
        /// The maximum to which it may be raised.
        pub maximum: u64,
    }

    /// `struct rusage`.
    #[derive(Default)]
    pub struct Rusage {
        /// Time in user mode.
        pub user_time: Timeval,
        /// Time in the kernel.
        pub system_time: Timeval,
        /// Peak resident KiB.
        pub max_rss: i64,
        /// Unused.
        pub ix_rss: i64,
        /// Unused.
        pub id_rss: i64,
        /// Unused.
        pub is_rss: i64,
        /// Faults without input.
        pub minor_faults: i64,
        /// Faults with input.
        pub major_faults: i64,
        /// Unused.
        pub swaps: i64,
        /// Block inputs.
        pub in_blocks: i64,
        /// Block outputs.
        pub out_blocks: i64,
        /// Unused.
        pub messages_sent: i64,
        /// Unused.
        pub messages_received: i64,
        /// Unused.
        pub signals: i64,
        /// Waits.
        pub voluntary_switches: i64,
        /// Preemptions.
        pub involuntary_switches: i64,
    }

    /// `struct sysinfo`.
    #[derive(Default)]
    pub struct Sysinfo {
        /// Seconds since boot.
        pub uptime: i64,
        /// Load averages, 16 bits of fraction.
        pub loads: [u64; 3],
        /// Memory.
        pub total_ram: u64,
        /// Free memory.
        pub free_ram: u64,
        /// Shared memory.
        pub shared_ram: u64,
        /// Buffers.
        pub buffer_ram: u64,
        /// Swap.
        pub total_swap: u64,
        /// Free swap.
        pub free_swap: u64,
        /// Processes.
        pub processes: u16,
        /// Zero.
        pub padding: [u16; 3],
        /// High memory.
        pub total_high: u64,
        /// Free high memory.
        pub free_high: u64,
        /// Unit of the sizes.
        pub unit: u32,
        /// Zero.
        pub end: u32,
    }

    /// `struct new_utsname`.
    pub struct Utsname {
        /// System.
        pub system: [u8; 65],
        /// Host.
        pub node: [u8; 65],
        /// Release.
        pub release: [u8; 65],
        /// Version.
        pub version: [u8; 65],
        /// Machine.
        pub machine: [u8; 65],
        /// Domain.
        pub domain: [u8; 65],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_linux() {
        assert_eq!(size_of::<CloneArgs>(), 88);
        assert_eq!(size_of::<Rusage>(), 144);
        assert_eq!(size_of::<Sysinfo>(), 112);
        assert_eq!(size_of::<Utsname>(), 390);
    }
}

//! Every Linux x86-64 call and how much of it the kernel does. The kernel's dispatch table and
//! `radixvm syscalls` are both made from this list.

/// Hands the list to the macro `$callback`, one `number name support;` per call. Support is one of `full`,
/// `partial "what is missing"`, `none`, or `declined`: a `none` that programs are written to expect, so that
/// it need not be reported. The kernel has a handler for `full` and `partial`, or does not compile.
#[macro_export]
macro_rules! for_each_syscall {
    ($callback:ident) => {
        $callback! {
            0 read full;
            1 write full;
            2 open full;
            3 close full;
            4 stat full;
            5 fstat full;
            6 lstat full;
            7 poll full;
            8 lseek full;
            9 mmap partial "MAP_GROWSDOWN is refused (EINVAL); no huge pages are set aside for MAP_HUGETLB (ENOMEM, with MAP_NORESERVE too)";
            10 mprotect partial "PROT_GROWSDOWN and PROT_GROWSUP are refused";
            11 munmap full;
            12 brk full;
            13 rt_sigaction full;
            14 rt_sigprocmask full;
            15 rt_sigreturn partial "registers that no CPU would load are corrected, without SIGSEGV";
            16 ioctl partial "FIONREAD, FIONBIO, FIOASYNC (SIGIO is never sent), FIOCLEX, FIONCLEX, and those of terminals, without TIOCSTI, TIOCPKT, breaks, modem lines and line disciplines";
            17 pread64 full;
            18 pwrite64 full;
            19 readv full;
            20 writev full;
            21 access full;
            22 pipe full;
            23 select full;
            24 sched_yield full;
            25 mremap full;
            26 msync partial "checks the range: files live in memory, and mappings show their own pages";
            27 mincore full;
            28 madvise partial "MADV_DONTNEED, MADV_DONTNEED_LOCKED, MADV_REMOVE, MADV_DONTFORK, MADV_WIPEONFORK, MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_COLLAPSE (of anonymous memory) and MADV_POPULATE_* are real, MADV_COUNT_READS (0x52560001) is ours: a process counts its reads of the mapped file here (`read_refs=lodic` and its relatives with `tables=shared`, `lodic` and `lodic-unsplit` with `tables=percore`; a hint otherwise), hints are accepted without effect, the rest is refused";
            29 shmget partial "no huge pages are set aside for SHM_HUGETLB (ENOMEM)";
            30 shmat full;
            31 shmctl full;
            32 dup full;
            33 dup2 full;
            34 pause full;
            35 nanosleep full;
            36 getitimer partial "all CPU time counts as time in user mode";
            37 alarm full;
            38 setitimer partial "all CPU time counts as time in user mode";
            39 getpid full;
            40 sendfile full;
            41 socket partial "SOCK_STREAM and SOCK_DGRAM: AF_UNIX, and AF_INET and AF_INET6 within the guest";
            42 connect partial "loopback addresses only, and at once";
            43 accept full;
            44 sendto partial "no MSG_OOB";
            45 recvfrom partial "no MSG_OOB";
            46 sendmsg partial "control messages of AF_UNIX only, no MSG_OOB";
            47 recvmsg partial "SCM_RIGHTS and SCM_CREDENTIALS only, descriptors not with MSG_PEEK";
            48 shutdown full;
            49 bind partial "loopback addresses only";
            50 listen full;
            51 getsockname full;
            52 getpeername full;
            53 socketpair partial "AF_UNIX only, SOCK_STREAM and SOCK_DGRAM";
            54 setsockopt partial "options that make no difference within one machine are accepted without effect, the rest is refused";
            55 getsockopt partial "those of setsockopt, SO_TYPE, SO_DOMAIN, SO_PROTOCOL, SO_ERROR and SO_ACCEPTCONN";
            56 clone partial "no namespaces; CLONE_PTRACE, CLONE_SYSVSEM and CLONE_IO have no effect";
            57 fork full;
            58 vfork full;
            59 execve partial "files have no capabilities, and a set-user-id program that is traced gets no rights";
            60 exit full;
            61 wait4 full;
            62 kill full;
            63 uname full;
            64 semget full;
            65 semop full;
            66 semctl full;
            67 shmdt full;
            68 msgget full;
            69 msgsnd full;
            70 msgrcv full;
            71 msgctl full;
            72 fcntl partial "leases and notifications are refused; SIGIO is never sent; O_DIRECT has no effect; a pipe keeps its size";
            73 flock full;
            74 fsync full;
            75 fdatasync full;
            76 truncate full;
            77 ftruncate full;
            78 getdents none;
            79 getcwd full;
            80 chdir full;
            81 fchdir full;
            82 rename full;
            83 mkdir full;
            84 rmdir full;
            85 creat full;
            86 link full;
            87 unlink full;
            88 symlink full;
            89 readlink full;
            90 chmod full;
            91 fchmod full;
            92 chown partial "not passed on to files below `--rw`";
            93 fchown partial "not passed on to files below `--rw`";
            94 lchown partial "not passed on to files below `--rw`";
            95 umask full;
            96 gettimeofday full;
            97 getrlimit partial "enforced: RLIMIT_NOFILE up to 1024, RLIMIT_NPROC, RLIMIT_AS, RLIMIT_DATA, RLIMIT_SIGPENDING for each process and thread";
            98 getrusage partial "CPU time, all of it as user time, and minor faults";
            99 sysinfo partial "memory, uptime and the number of threads only";
            100 times partial "all CPU time counts as user time";
            101 ptrace partial "no hardware breakpoints, seccomp stops, PTRACE_SYSEMU, PTRACE_PEEKSIGINFO, PTRACE_ARCH_PRCTL and GS base: EIO; threads that a parent makes do not matter for PTRACE_TRACEME: any thread of the parent is the tracer";
            102 getuid full;
            103 syslog none;
            104 getgid full;
            105 setuid full;
            106 setgid full;
            107 geteuid full;
            108 getegid full;
            109 setpgid full;
            110 getppid full;
            111 getpgrp full;
            112 setsid full;
            113 setreuid full;
            114 setregid full;
            115 getgroups full;
            116 setgroups full;
            117 setresuid full;
            118 getresuid full;
            119 setresgid full;
            120 getresgid full;
            121 getpgid full;
            122 setfsuid full;
            123 setfsgid full;
            124 getsid full;
            125 capget full;
            126 capset full;
            127 rt_sigpending full;
            128 rt_sigtimedwait full;
            129 rt_sigqueueinfo full;
            130 rt_sigsuspend full;
            131 sigaltstack full;
            132 utime none;
            133 mknod none;
            134 uselib none;
            135 personality partial "ADDR_NO_RANDOMIZE has its effect, though the core still matters for addresses, and the others are only remembered; it is lost with a program that runs with other users than those of its caller, set-id or not";
            136 ustat none;
            137 statfs full;
            138 fstatfs full;
            139 sysfs none;
            140 getpriority partial "always the default";
            141 setpriority partial "accepted without effect";
            142 sched_setparam partial "priority 0 only";
            143 sched_getparam partial "always priority 0";
            144 sched_setscheduler partial "SCHED_OTHER, SCHED_BATCH and SCHED_IDLE, all treated alike";
            145 sched_getscheduler partial "always SCHED_OTHER";
            146 sched_get_priority_max full;
            147 sched_get_priority_min full;
            148 sched_rr_get_interval none;
            149 mlock full;
            150 munlock full;
            151 mlockall full;
            152 munlockall full;
            153 vhangup none;
            154 modify_ldt none;
            155 pivot_root none;
            156 _sysctl none;
            157 prctl partial "names, PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS and those of capabilities";
            158 arch_prctl partial "ARCH_SET_FS and ARCH_GET_FS only";
            159 adjtimex none;
            160 setrlimit partial "enforced: RLIMIT_NOFILE up to 1024, RLIMIT_AS, RLIMIT_DATA, RLIMIT_SIGPENDING for each process and thread, and RLIMIT_NPROC, which binds root too";
            161 chroot none;
            162 sync full;
            163 acct none;
            164 settimeofday none;
            165 mount none;
            166 umount2 none;
            167 swapon none;
            168 swapoff none;
            169 reboot none;
            170 sethostname none;
            171 setdomainname none;
            172 iopl none;
            173 ioperm none;
            174 create_module none;
            175 init_module none;
            176 delete_module none;
            177 get_kernel_syms none;
            178 query_module none;
            179 quotactl none;
            180 nfsservctl none;
            181 getpmsg none;
            182 putpmsg none;
            183 afs_syscall none;
            184 tuxcall none;
            185 security none;
            186 gettid full;
            187 readahead none;
            188 setxattr partial "no file has any (EOPNOTSUPP)";
            189 lsetxattr partial "no file has any (EOPNOTSUPP)";
            190 fsetxattr partial "no file has any (EOPNOTSUPP)";
            191 getxattr partial "no file has any (EOPNOTSUPP)";
            192 lgetxattr partial "no file has any (EOPNOTSUPP)";
            193 fgetxattr partial "no file has any (EOPNOTSUPP)";
            194 listxattr partial "no file has any";
            195 llistxattr partial "no file has any";
            196 flistxattr partial "no file has any";
            197 removexattr partial "no file has any (EOPNOTSUPP)";
            198 lremovexattr partial "no file has any (EOPNOTSUPP)";
            199 fremovexattr partial "no file has any (EOPNOTSUPP)";
            200 tkill full;
            201 time full;
            202 futex partial "no priority inheritance";
            203 sched_setaffinity full;
            204 sched_getaffinity full;
            205 set_thread_area none;
            206 io_setup none;
            207 io_destroy none;
            208 io_getevents none;
            209 io_submit none;
            210 io_cancel none;
            211 get_thread_area none;
            212 lookup_dcookie none;
            213 epoll_create full;
            214 epoll_ctl_old none;
            215 epoll_wait_old none;
            216 remap_file_pages none;
            217 getdents64 full;
            218 set_tid_address full;
            219 restart_syscall full;
            220 semtimedop full;
            221 fadvise64 partial "POSIX_FADV_DONTNEED drops pages of files of the boot image, also mapped ones, which Linux keeps; files in memory have no place to be read from again, and keep theirs, as in tmpfs; other advice has no effect";
            222 timer_create partial "no timers of the CPU time of other processes";
            223 timer_settime full;
            224 timer_gettime full;
            225 timer_getoverrun full;
            226 timer_delete full;
            227 clock_settime none;
            228 clock_gettime full;
            229 clock_getres full;
            230 clock_nanosleep partial "not on CPU-time clocks";
            231 exit_group full;
            232 epoll_wait full;
            233 epoll_ctl partial "a list in a list has none itself (ELOOP); EPOLLEXCLUSIVE and EPOLLWAKEUP have no effect";
            234 tgkill full;
            235 utimes none;
            236 vserver none;
            237 mbind none;
            238 set_mempolicy none;
            239 get_mempolicy none;
            240 mq_open full;
            241 mq_unlink full;
            242 mq_timedsend full;
            243 mq_timedreceive full;
            244 mq_notify partial "no SIGEV_THREAD, which needs a netlink socket";
            245 mq_getsetattr full;
            246 kexec_load none;
            247 waitid full;
            248 add_key none;
            249 request_key none;
            250 keyctl none;
            251 ioprio_set none;
            252 ioprio_get none;
            253 inotify_init full;
            254 inotify_add_watch partial "an open file keeps the name that it was opened by; a file that was open before it was watched does not delay IN_DELETE_SELF";
            255 inotify_rm_watch full;
            256 migrate_pages none;
            257 openat full;
            258 mkdirat full;
            259 mknodat none;
            260 fchownat partial "not passed on to files below `--rw`";
            261 futimesat none;
            262 newfstatat full;
            263 unlinkat full;
            264 renameat full;
            265 linkat full;
            266 symlinkat full;
            267 readlinkat full;
            268 fchmodat full;
            269 faccessat full;
            270 pselect6 full;
            271 ppoll full;
            272 unshare none;
            273 set_robust_list full;
            274 get_robust_list full;
            275 splice none;
            276 tee none;
            277 sync_file_range full;
            278 vmsplice none;
            279 move_pages none;
            280 utimensat partial "only the time of the last change is kept";
            281 epoll_pwait full;
            282 signalfd full;
            283 timerfd_create full;
            284 eventfd full;
            285 fallocate partial "zeroing, collapsing and inserting ranges are refused (EOPNOTSUPP), as by tmpfs; KEEP_SIZE without a hole has no effect";
            286 timerfd_settime full;
            287 timerfd_gettime full;
            288 accept4 full;
            289 signalfd4 full;
            290 eventfd2 full;
            291 epoll_create1 full;
            292 dup3 full;
            293 pipe2 full;
            294 inotify_init1 full;
            295 preadv full;
            296 pwritev full;
            297 rt_tgsigqueueinfo full;
            298 perf_event_open none;
            299 recvmmsg partial "as recvmsg";
            300 fanotify_init none;
            301 fanotify_mark none;
            302 prlimit64 partial "enforced: RLIMIT_NOFILE up to 1024, RLIMIT_AS, RLIMIT_DATA, RLIMIT_SIGPENDING for each process and thread, and RLIMIT_NPROC, which binds root too";
            303 name_to_handle_at none;
            304 open_by_handle_at none;
            305 clock_adjtime none;
            306 syncfs full;
            307 sendmmsg partial "as sendmsg";
            308 setns none;
            309 getcpu full;
            310 process_vm_readv full;
            311 process_vm_writev full;
            312 kcmp partial "no KCMP_EPOLL_TFD: EINVAL; a zombie gives ESRCH; processes without SEM_UNDO do not share what semaphores undo";
            313 finit_module none;
            314 sched_setattr none;
            315 sched_getattr none;
            316 renameat2 partial "RENAME_EXCHANGE and RENAME_WHITEOUT are refused";
            317 seccomp none;
            318 getrandom full;
            319 memfd_create partial "huge pages and MFD_NOEXEC_SEAL are refused (EINVAL)";
            320 kexec_file_load none;
            321 bpf none;
            322 execveat partial "as execve";
            323 userfaultfd none;
            324 membarrier partial "MEMBARRIER_CMD_QUERY answers that no command is offered";
            325 mlock2 full;
            326 copy_file_range full;
            327 preadv2 none;
            328 pwritev2 none;
            329 pkey_mprotect none;
            330 pkey_alloc none;
            331 pkey_free none;
            332 statx partial "there is no birth time";
            333 io_pgetevents none;
            334 rseq declined;
            424 pidfd_send_signal full;
            425 io_uring_setup none;
            426 io_uring_enter none;
            427 io_uring_register none;
            428 open_tree none;
            429 move_mount none;
            430 fsopen none;
            431 fsconfig none;
            432 fsmount none;
            433 fspick none;
            434 pidfd_open partial "processes only";
            435 clone3 partial "no namespaces, no set_tid, no cgroups";
            436 close_range full;
            437 openat2 none;
            438 pidfd_getfd partial "the descriptors of any thread, if the first one has ended";
            439 faccessat2 full;
            440 process_madvise partial "hints are accepted without effect";
            441 epoll_pwait2 full;
            442 mount_setattr none;
            443 quotactl_fd none;
            444 landlock_create_ruleset none;
            445 landlock_add_rule none;
            446 landlock_restrict_self none;
            447 memfd_secret none;
            448 process_mrelease none;
            449 futex_waitv none;
            450 set_mempolicy_home_node none;
            451 cachestat none;
            452 fchmodat2 none;
            453 map_shadow_stack none;
            454 futex_wake none;
            455 futex_wait none;
            456 futex_requeue none;
            457 statmount none;
            458 listmount none;
            459 lsm_get_self_attr none;
            460 lsm_set_self_attr none;
            461 lsm_list_modules none;
            462 mseal none;
        }
    };
}

/// Support of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// All of the call works.
    Full,
    /// The call works except for the parts that the text names.
    Partial(&'static str),
    /// The call returns `ENOSYS`.
    None,
}

/// One Linux call.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The number in rax.
    pub number: u32,
    /// The name in the Linux manual.
    pub name: &'static str,
    /// Its support.
    pub support: Support,
}

macro_rules! support {
    (full) => {
        Support::Full
    };
    (partial $missing:literal) => {
        Support::Partial($missing)
    };
    (none) => {
        Support::None
    };
    (declined) => {
        Support::None
    };
}

macro_rules! entries {
    ($($number:literal $name:ident $support:ident $($missing:literal)?;)*) => {
        &[$(Entry { number: $number, name: stringify!($name), support: support!($support $($missing)?) }),*]
    };
}

/// Every call, by rising number.
pub const TABLE: &[Entry] = for_each_syscall!(entries);

/// Returns the call with this number.
pub fn find(number: u64) -> Option<&'static Entry> {
    let at = TABLE.binary_search_by_key(&number, |entry| entry.number.into()).ok()?;
    Some(&TABLE[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_rise_and_are_found() {
        assert!(TABLE.is_sorted_by(|a, b| a.number < b.number));
        assert_eq!(find(9).map(|entry| entry.name), Some("mmap"));
        assert!(find(9999).is_none());
    }
}

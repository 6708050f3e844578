// Rules of children: any thread makes them, and any thread waits for them.
#include "rule.h"
#include <xmmintrin.h>

static int ends[2];
static volatile sig_atomic_t count;

// Runs a function in another thread, and returns its result.
static long in_thread(void *(*run)(void *), void *with) {
    return (long)finish(start(run, with));
}

static pid_t spawn(const char *command) {
    pid_t child;
    char *words[] = {"sh", "-c", (char *)command, NULL};
    NEED(posix_spawn(&child, "/bin/sh", NULL, NULL, words, NULL) == 0);
    return child;
}

static pid_t fork_one(int status) {
    pid_t child = fork();
    if (child == 0) _exit(status);
    return child;
}

static pid_t vfork_one(int status) {
    pid_t child = vfork();
    if (child == 0) _exit(status);
    return child;
}

static void *make_one(void *kind) {
    switch ((intptr_t)kind) {
    case 0:
        return (void *)(intptr_t)fork_one(10);
    case 1:
        return (void *)(intptr_t)vfork_one(11);
    case 2:
        return (void *)(intptr_t)spawn("exit 12");
    default:
        return (void *)(intptr_t)spawn("kill -9 $$");
    }
}

static void *wait_for_one(void *child) {
    say_end("a child", (pid_t)(intptr_t)child);
    return NULL;
}

static void children_of_a_thread_are_the_processes(void) {
    for (intptr_t kind = 0; kind < 4; kind++) {
        say_end("of a thread, for the first", in_thread(make_one, (void *)kind));
        in_thread(wait_for_one, make_one((void *)kind));
        in_thread(wait_for_one, (void *)in_thread(make_one, (void *)kind));
    }
}

static void *wait_for_all(void *with) {
    long sum = 0;
    int status;
    for (;;) {
        pid_t child = waitpid(-1, &status, 0);
        if (child < 0) break;
        sum += WEXITSTATUS(status);
    }
    NEED(errno == ECHILD);
    return with ? with : (void *)sum;
}

static void any_child_is_found(void) {
    for (int i = 0; i < 6; i++) in_thread(make_one, (void *)(intptr_t)(i % 3));
    SAY("%ld\n", in_thread(wait_for_all, NULL));
    SAY_CALL(wait(NULL));
}

// Describes what waitid says.
static void say_information(int kind, id_t id, int options) {
    siginfo_t information;
    memset(&information, 0, sizeof information);
    int result = waitid(kind, id, &information, options);
    SAY("%d %d: %d %d %d %d\n", result, result < 0 ? errno : 0, information.si_signo, information.si_code,
        information.si_status, information.si_pid != 0 && (information.si_pid == (pid_t)id || kind != P_PID));
}

static void *wait_in_many_ways(void *unused) {
    pid_t child = spawn("read line; exit 7");
    (void)unused;
    NEED(waitpid(child, NULL, WNOHANG) == 0);
    say_information(P_PID, child, WEXITED | WNOHANG);
    NEED(kill(child, SIGSTOP) == 0);
    int status;
    NEED(waitpid(child, &status, WUNTRACED) == child);
    SAY("%d %d\n", WIFSTOPPED(status), WSTOPSIG(status));
    NEED(kill(child, SIGCONT) == 0);
    say_information(P_PID, child, WCONTINUED);
    say_information(P_PID, child, WCONTINUED | WNOHANG);
    NEED(write(ends[1], "\n", 1) == 1);
    say_information(P_PID, child, WEXITED | WNOWAIT);
    say_information(P_ALL, 0, WEXITED | WNOWAIT);
    int descriptor = syscall(SYS_pidfd_open, child, 0);
    NEED(descriptor >= 0);
    say_information(P_PIDFD, descriptor, WEXITED | WNOWAIT);
    say_information(P_PGID, getpgrp(), WEXITED | WNOWAIT);
    struct rusage usage;
    memset(&usage, 0, sizeof usage);
    NEED(wait4(child, &status, 0, &usage) == child);
    SAY("%d %d\n", WEXITSTATUS(status), usage.ru_maxrss > 0);
    say_information(P_PID, child, WEXITED);
    say_information(P_ALL, 0, 0);
    SAY_CALL(waitpid(-1, NULL, 1 << 20));
    return NULL;
}

static void *set_groups(void *unused) {
    pid_t child = spawn("read line; exit 8");
    SAY("%d ", setpgid(child, child) == 0 || errno == EACCES);
    pid_t forked = fork();
    if (forked == 0) {
        for (;;) pause();
    }
    NEED(setpgid(forked, forked) == 0 && getpgid(forked) == forked);
    SAY_CALL(setpgid(getpid() + 100000, 0));
    NEED(kill(-forked, SIGKILL) == 0);
    int status;
    NEED(waitpid(-forked, &status, 0) == forked);
    SAY("%d\n", WTERMSIG(status));
    NEED(kill(child, SIGKILL) == 0);
    say_end("the other", child);
    return unused;
}

static void a_thread_sets_the_group_of_its_child(void) {
    NEED(pipe(ends) == 0 && dup2(ends[0], 0) == 0);
    in_thread(set_groups, NULL);
}

static void a_thread_waits_in_many_ways(void) {
    NEED(pipe(ends) == 0 && dup2(ends[0], 0) == 0);
    in_thread(wait_in_many_ways, NULL);
}

static void note(int signal) {
    count += signal == SIGUSR1;
}

static volatile int interruptions;

static void *wait_and_say(void *child) {
    int status, result;
    while ((result = waitpid((pid_t)(intptr_t)child, &status, 0)) < 0 && errno == EINTR) interruptions++;
    SAY("%d\n", result == (pid_t)(intptr_t)child ? WEXITSTATUS(status) : -errno);
    return NULL;
}

static void interrupt_a_wait(int flags) {
    NEED(pipe(ends) == 0);
    NEED(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = note, .sa_flags = flags}, NULL) == 0);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        NEED(close(ends[1]) == 0 && read(ends[0], &byte, 1) == 1);
        _exit(5);
    }
    count = 0;
    pthread_t thread = start(wait_and_say, (void *)(intptr_t)child);
    // A signal may come before the thread waits, and then interrupts nothing.
    while (count < 3 || (flags == 0 && interruptions < 3)) {
        NEED(pthread_kill(thread, SIGUSR1) == 0);
        usleep(2000);
    }
    NEED(write(ends[1], "a", 1) == 1);
    finish(thread);
    SAY("%d\n", interruptions > 0);
}

static void a_handler_interrupts_a_wait(void) {
    interrupt_a_wait(0);
}

static void a_wait_goes_on_after_a_handler(void) {
    interrupt_a_wait(SA_RESTART);
}

static void *spawn_nothing(void *unused) {
    pid_t child = 0;
    char *words[] = {"no", NULL};
    (void)unused;
    SAY("%d ", posix_spawn(&child, "/no/such/program", NULL, NULL, words, NULL));
    SAY("%d ", posix_spawnp(&child, "no-such-program", NULL, NULL, words, NULL));
    SAY("%d ", posix_spawn(&child, "/etc/passwd", NULL, NULL, words, NULL));
    SAY_CALL(wait(NULL));
    return NULL;
}

static void a_program_that_is_missing_is_an_error(void) {
    in_thread(spawn_nothing, NULL);
}

// A child of vfork has its parent's memory, and descriptors of its own.
static void *change_in_vfork(void *at) {
    unsigned char *memory = at;
    volatile int local = 1;
    int file = open("/dev/null", O_RDONLY);
    pid_t child = vfork();
    if (child == 0) {
        memory[0] = 5;
        local = 2;
        count = 3;
        close(file);
        signal(SIGUSR1, SIG_IGN);
        memory[page] = getppid() == memory[2 * page];
        void *own = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        *(unsigned char **)(memory + 3 * page) = own;
        if (own != MAP_FAILED) *(unsigned char *)own = 77;
        munmap(memory + 4 * page, page);
        _exit(9);
    }
    say_end("the child", child);
    unsigned char *own = *(unsigned char **)(memory + 3 * page);
    struct sigaction action;
    NEED(sigaction(SIGUSR1, NULL, &action) == 0);
    SAY("%d %d %d %d %d", memory[0], local, (int)count, fcntl(file, F_GETFD), action.sa_handler == SIG_IGN);
    SAY(" %d %d\n", *own, madvise(memory + 4 * page, page, MADV_WILLNEED) == 0);
    return NULL;
}

static void a_child_of_vfork_has_its_parents_memory(void) {
    in_thread(change_in_vfork, map_pages(5));
}

// What a child of vfork has mapped gets other rights.
static void *protect_what_a_child_mapped(void *unused) {
    static unsigned char *volatile mapped;
    pid_t child = vfork();
    if (child == 0) {
        mapped = map_pages(100);
        *mapped = 5;
        _exit(0);
    }
    say_end("the child", child);
    SAY_CALL(mprotect(mapped, 100 * page, PROT_READ));
    SAY("%d\n", *mapped);
    return unused;
}

static void memory_of_a_child_of_vfork_gets_other_rights(void) { in_thread(protect_what_a_child_mapped, NULL); }

static _Thread_local int own = 1;
static void *fork_with_state(void *unused) {
    (void)unused;
    own = 2;
    errno = 33;
    _MM_SET_ROUNDING_MODE(_MM_ROUND_UP);
    stack_t stack = {.ss_sp = map_pages(8), .ss_size = 8 * page}, found;
    NEED(sigaltstack(&stack, NULL) == 0);
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    NEED(pthread_sigmask(SIG_SETMASK, &set, NULL) == 0);
    pid_t child = fork();
    if (child == 0) {
        NEED(sigaltstack(NULL, &found) == 0 && pthread_sigmask(SIG_BLOCK, NULL, &before) == 0);
        SAY("%d %d %d %d ", own, errno, _MM_GET_ROUNDING_MODE() == _MM_ROUND_UP, found.ss_sp == stack.ss_sp);
        SAY("%d %d\n", sigismember(&before, SIGUSR2), sigismember(&before, SIGUSR1));
        NEED(sigaction(SIGSEGV, &(struct sigaction){.sa_handler = jump_back, .sa_flags = SA_ONSTACK}, NULL) == 0);
        if (sigsetjmp(back, 1) == 0) *(volatile char *)8 = 1;
        unsigned char *at = map_pages(3);
        at[page] = own;
        pthread_t thread = start(make_one, (void *)1);
        say_end("a child's child", (pid_t)(intptr_t)finish(thread));
        fflush(stdout);
        _exit(at[page]);
    }
    say_end("the child", child);
    return NULL;
}

static void a_child_begins_as_its_thread(void) {
    fflush(stdout);
    in_thread(fork_with_state, NULL);
}

static void fork_in_handler(int signal) {
    count = fork_one(signal);
}

static void *fork_on_signal_stack(void *flags) {
    stack_t stack = {.ss_sp = map_pages(16), .ss_size = 16 * page};
    NEED(sigaltstack(&stack, NULL) == 0);
    struct sigaction action = {.sa_handler = fork_in_handler, .sa_flags = (intptr_t)flags};
    NEED(sigaction(SIGUSR1, &action, NULL) == 0);
    NEED(raise(SIGUSR1) == 0);
    say_end("of a handler", count);
    return NULL;
}

static void a_handler_may_fork(void) {
    in_thread(fork_on_signal_stack, (void *)0);
    in_thread(fork_on_signal_stack, (void *)SA_ONSTACK);
}

struct apart {
    volatile int is_done;
    unsigned char *stack;
};

static int work_apart(void *with) {
    struct apart *apart = with;
    usleep(3000);
    apart->is_done = 1;
    return 0;
}

// Go makes such a child to see what the kernel can do.
static void *make_without_signal(void *unused) {
    struct apart apart = {.stack = map_pages(8)};
    long early = 0;
    for (int i = 0; i < 20; i++) {
        apart.is_done = 0;
        NEED(clone(work_apart, apart.stack + 8 * page, CLONE_VM | CLONE_VFORK, &apart) > 0);
        early += !apart.is_done;
    }
    NEED(munmap(apart.stack, 8 * page) == 0);
    return unused ? unused : (void *)early;
}

static void a_child_without_a_signal_is_waited_for(void) {
    pthread_t threads[6];
    long early = 0;
    for (int i = 0; i < 6; i++) threads[i] = start(make_without_signal, NULL);
    for (int i = 0; i < 6; i++) early += (long)finish(threads[i]);
    SAY("%ld\n", early);
}

static int sleep_for_ever(void *unused) {
    for (;;) pause();
    return unused != NULL;
}

static void *kill_one_without_signal(void *unused) {
    unsigned char *stack = map_pages(8);
    pid_t child = clone(sleep_for_ever, stack + 8 * page, 0, NULL);
    NEED(child > 0 && kill(child, SIGKILL) == 0);
    while (kill(child, 0) == 0 && waitpid(child, NULL, __WALL | WNOHANG) == 0) usleep(1000);
    return unused;
}

static void a_child_without_a_signal_may_be_killed(void) {
    in_thread(kill_one_without_signal, NULL);
    // By the time that this has run, a process that ends with the child has ended.
    say_end("another", in_thread(make_one, (void *)2));
}

static void *give_rights_up(void *unused) {
    NEED(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    pid_t child = fork();
    if (child == 0) _exit(20 + prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    say_end("the forked", child);
    child = vfork();
    if (child == 0) _exit(20 + prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    say_end("the vforked", child);
    return unused;
}

static void a_child_has_the_rights_of_its_thread(void) {
    in_thread(give_rights_up, NULL);
    say_end("another", in_thread(make_one, (void *)2));
}

static void *make_in_child(void *unused) {
    pid_t child = vfork();
    if (child == 0) {
        int status = 0;
        pid_t own = fork();
        if (own == 0) _exit(6);
        if (waitpid(own, &status, 0) != own) _exit(99);
        _exit(WEXITSTATUS(status) + 1);
    }
    say_end("the child", child);
    return unused;
}

static void a_child_of_vfork_makes_one_of_its_own(void) {
    in_thread(make_in_child, NULL);
}

// A child of `vfork` on a stack of its own starts a program, goes on with calls that look at files, and returns to a
// parent that has not lost where it was.
static int start_and_look(void *unused) {
    (void)unused;
    pid_t own = spawn("exit 3");
    int status = 0;
    if (waitpid(own, &status, 0) != own) _exit(99);
    char path[64];
    for (int i = 0; i < 10; i++) {
        int file = open("/proc/self/exe", O_RDONLY);
        if (file < 0 || close(file) != 0 || readlink("/proc/self/exe", path, sizeof path) <= 0) _exit(98);
    }
    _exit(WEXITSTATUS(status) + 1);
}

static void a_child_of_vfork_starts_programs(void) {
    static char room[64 << 10] __attribute__((aligned(16)));
    for (int i = 0; i < 3; i++) {
        pid_t child = clone(start_and_look, room + sizeof room, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
        say_end("the child", child);
    }
}

enum { THREADS = 4, CHILDREN = 12 };
static volatile int are_over;

static void *make_and_wait(void *number) {
    long sum = 0;
    for (intptr_t i = 0; i < CHILDREN; i++) {
        pid_t child = (pid_t)(intptr_t)make_one((void *)((i + (intptr_t)number) % 3));
        int status;
        NEED(child > 0 && waitpid(child, &status, 0) == child);
        sum += WEXITSTATUS(status);
    }
    return (void *)sum;
}

static void *map_until_over(void *unused) {
    while (!are_over) {
        unsigned char *at = map_pages(3);
        memset(at, 1, 3 * page);
        NEED(mprotect(at, page, PROT_READ) == 0 && munmap(at, 3 * page) == 0);
    }
    return unused;
}

static void threads_make_children_at_once(void) {
    pthread_t threads[THREADS], other = start(map_until_over, NULL);
    for (intptr_t i = 0; i < THREADS; i++) threads[i] = start(make_and_wait, (void *)i);
    long sum = 0;
    for (int i = 0; i < THREADS; i++) sum += (long)finish(threads[i]);
    are_over = 1;
    finish(other);
    SAY("%ld\n", sum);
    SAY_CALL(wait(NULL));
}

// Each child is found by one of the threads that wait for any.
static void threads_wait_for_any(void) {
    pid_t keeper = fork();
    if (keeper == 0) {
        for (;;) pause();
    }
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) threads[i] = start(wait_for_all, NULL);
    for (int i = 0; i < 30; i++) fork_one(1);
    for (int i = 0; i < 10; i++) in_thread(make_one, (void *)2);
    NEED(kill(keeper, SIGKILL) == 0);
    long sum = 0;
    for (int i = 0; i < THREADS; i++) sum += (long)finish(threads[i]);
    SAY("%ld\n", sum);
}

static void children_that_are_ignored_are_not_found(void) {
    NEED(signal(SIGCHLD, SIG_IGN) != SIG_ERR);
    for (int i = 0; i < 4; i++) in_thread(make_one, (void *)(intptr_t)i);
    SAY("%ld\n", in_thread(wait_for_all, NULL));
}

static void count_one(int signal) {
    count += signal == SIGCHLD;
}

static void the_end_of_a_child_is_a_signal(void) {
    NEED(signal(SIGCHLD, count_one) != SIG_ERR);
    for (int kind = 0; kind < 3; kind++) {
        count = 0;
        pid_t child = in_thread(make_one, (void *)(intptr_t)kind);
        say_end("a child", child);
        while (count == 0) sched_yield();
    }
    SAY("%d\n", count > 0);
}

static volatile pid_t waiter;

static void *say_number_and_wait(void *unused) {
    waiter = gettid();
    return wait_for_all(unused);
}

// A thread that waits for ever does not keep others from it, and ends with the process.
static void a_thread_that_waits_is_cancelled(void) {
    pid_t keeper = fork();
    if (keeper == 0) {
        for (;;) pause();
    }
    pthread_t thread = start(say_number_and_wait, NULL);
    while (waiter == 0) sched_yield();
    until_asleep(waiter);
    NEED(pthread_cancel(thread) == 0);
    SAY("%d ", finish(thread) == PTHREAD_CANCELED);
    say_end("another", in_thread(make_one, (void *)0));
    NEED(kill(keeper, SIGKILL) == 0);
    in_thread(wait_for_one, (void *)(intptr_t)keeper);
}

// A child of vfork maps memory while a thread unmaps much of its own, and is killed by another process.
static struct shared {
    volatile pid_t child;
    volatile int is_unmapping, is_mapping;
} *shared;

static void *unmap_much(void *unused) {
    const size_t pages = 128 << 10;
    while (shared->child == 0) {}
    unsigned char *much = mmap(NULL, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    NEED(much != MAP_FAILED);
    for (size_t i = 0; i < pages; i++) much[i * page] = 1;
    shared->is_unmapping = 1;
    NEED(munmap(much, pages * page) == 0);
    return unused;
}

static void *map_in_vfork(void *unused) {
    pid_t child = vfork();
    if (child == 0) {
        shared->child = getpid();
        while (!shared->is_unmapping) {}
        for (volatile int i = 0; i < 10000; i++) {}
        shared->is_mapping = 1;
        mmap(NULL, 300 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (;;) pause();
    }
    say_end("the child", child);
    return unused;
}

static void a_child_of_vfork_that_is_killed_keeps_no_lock(void) {
    shared = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    NEED(shared != MAP_FAILED);
    pid_t killer = fork();
    if (killer == 0) {
        while (!shared->is_mapping) sched_yield();
        // Not before it has begun to wait.
        usleep(1000);
        _exit(kill(shared->child, SIGKILL));
    }
    pthread_t threads[] = {start(unmap_much, NULL), start(map_in_vfork, NULL)};
    finish(threads[0]);
    finish(threads[1]);
    say_end("the killer", killer);
    NEED(munmap(map_pages(300), 300 * page) == 0);
}

static volatile sig_atomic_t handled_after;
static void handle_after(int signal) {
    handled_after += signal;
}

// Changes memory until a signal ends it.
static void change_until_the_end(void) {
    // One more child, which has the same memory and ends before.
    pid_t child = vfork();
    if (child == 0) _exit(0);
    NEED(waitpid(child, NULL, 0) == child);
    struct itimerval soon = {.it_value = {.tv_usec = 1000}};
    setitimer(ITIMER_REAL, &soon, NULL);
    for (;;) {
        unsigned char *at = mmap(NULL, page, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        *at = 1;
        munmap(at, page);
    }
}

// A signal ends a child that has its maker's memory, wherever it is.
static void a_child_that_shares_memory_is_ended_anywhere(void) {
    NEED(signal(SIGUSR1, handle_after) != SIG_ERR);
    for (int i = 0; i < 100; i++) {
        pid_t child = vfork();
        if (child == 0) change_until_the_end();
        int status;
        NEED(waitpid(child, &status, 0) == child && status == SIGALRM);
        raise(SIGUSR1);
        NEED(handled_after == SIGUSR1 * (2 * i + 1));
        unsigned char *at = mmap(NULL, page, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        NEED(at != MAP_FAILED && *at == 0);
        raise(SIGUSR1);
        NEED(handled_after == SIGUSR1 * (2 * i + 2));
        NEED(munmap(at, page) == 0);
    }
    SAY("goes on\n");
}

RULES(RULE(a_child_that_shares_memory_is_ended_anywhere), RULE(children_of_a_thread_are_the_processes), RULE(any_child_is_found), RULE(a_thread_waits_in_many_ways),
      RULE(a_thread_sets_the_group_of_its_child),
      RULE(a_handler_interrupts_a_wait), RULE(a_wait_goes_on_after_a_handler), RULE(a_program_that_is_missing_is_an_error),
      RULE(a_child_of_vfork_has_its_parents_memory), RULE(memory_of_a_child_of_vfork_gets_other_rights), RULE(a_child_begins_as_its_thread), RULE(a_handler_may_fork),
      RULE(a_child_without_a_signal_may_be_killed), RULE(a_child_has_the_rights_of_its_thread),
      RULE(a_child_of_vfork_makes_one_of_its_own), RULE(a_child_of_vfork_starts_programs), RULE(a_child_without_a_signal_is_waited_for), RULE(threads_make_children_at_once), RULE(threads_wait_for_any), RULE(children_that_are_ignored_are_not_found),
      RULE(the_end_of_a_child_is_a_signal), RULE(a_thread_that_waits_is_cancelled),
      RULE(a_child_of_vfork_that_is_killed_keeps_no_lock))

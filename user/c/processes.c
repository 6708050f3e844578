/* Features that programs with several processes rely on: fork, vfork, exit statuses, orphans, zombies, groups
 * and sessions, signals across processes, pipes between them, stopping, limits.
 *
 * processes: prints a line per part and exits with 0 if every part was as it must be. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/times.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { PAGE = 4096, ROUNDS = 1000, FUTEX_WAIT = 0, FUTEX_WAKE = 1, FUTEX_REQUEUE = 3 };

static volatile sig_atomic_t heard, heard_code, heard_status;
static volatile pid_t heard_pid;

/* Returns the child's status from wait. */
static int status_of(pid_t pid)
{
    int status = -1;
    pid_t found = waitpid(pid, &status, 0);
    return found == pid || (pid == -1 && found > 0) ? status : -1;
}

static int exited(pid_t pid, int code)
{
    int status = status_of(pid);
    return WIFEXITED(status) && WEXITSTATUS(status) == code;
}

static int killed(pid_t pid, int signal)
{
    int status = status_of(pid);
    return WIFSIGNALED(status) && WTERMSIG(status) == signal;
}

static pid_t child_that(void (*body)(void))
{
    pid_t pid = fork();
    if (pid == 0) {
        body();
        _exit(0);
    }
    return pid;
}

static void sleep_for_ever(void)
{
    for (;;)
        pause();
}

static void statuses(void)
{
    int all = 1;
    for (int code = 0; code < 256; code += 51) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(code);
        all &= exited(pid, code);
    }
    check("exit statuses", all);
    int signals[] = {SIGTERM, SIGKILL, SIGSEGV, SIGUSR1, SIGPIPE};
    for (unsigned i = 0; i < sizeof signals / sizeof *signals; i++) {
        pid_t pid = child_that(sleep_for_ever);
        kill(pid, signals[i]);
        all &= killed(pid, signals[i]);
    }
    check("killing signals", all);
    check("no children", fails(wait(NULL), ECHILD) && fails(waitpid(getpid(), NULL, 0), ECHILD));
}

/* The child has memory of its own, and the parent's stays. */
static int global = 1;
static void memory(void)
{
    size_t size = 64 * PAGE;
    char *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *heap = malloc(size);
    memset(map, 1, size / 2);
    memset(heap, 1, size);
    int local = 1, all = 1;
    for (int round = 0; round < 8; round++) {
        pid_t pid = fork();
        if (pid == 0) {
            all = global == 1 && local == 1 && map[0] == 1 && map[size - 1] == 0 && heap[size - 1] == 1;
            global = local = 2;
            memset(map, 2, size);
            memset(heap, 2, size);
            _exit(all && map[5] + heap[5] == 4 ? 0 : 1);
        }
        map[PAGE] = 1;
        all &= exited(pid, 0) && global == 1 && local == 1 && map[0] == 1 && map[size - 1] == 0 && heap[0] == 1;
    }
    check("memory is copied", all && munmap(map, size) == 0);
    free(heap);
    long end = syscall(SYS_brk, 0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(syscall(SYS_brk, 0) == end && syscall(SYS_brk, end + PAGE) == end + PAGE ? 0 : 1);
    check("the break is copied", exited(pid, 0) && syscall(SYS_brk, 0) == end);
}

static void waits(void)
{
    siginfo_t info;
    pid_t asleep = child_that(sleep_for_ever);
    check("WNOHANG", waitpid(asleep, NULL, WNOHANG) == 0 && waitpid(-1, NULL, WNOHANG) == 0);
    memset(&info, 1, sizeof info);
    check("waitid finds nothing", waitid(P_ALL, 0, &info, WEXITED | WNOHANG) == 0 && info.si_pid == 0);
    kill(asleep, SIGUSR2);
    memset(&info, 0, sizeof info);
    check("WNOWAIT", waitid(P_PID, asleep, &info, WEXITED | WNOWAIT) == 0 && info.si_pid == asleep &&
          info.si_code == CLD_KILLED && info.si_status == SIGUSR2 && info.si_signo == SIGCHLD);
    check("a zombie can be signalled", kill(asleep, 0) == 0 && kill(asleep, SIGTERM) == 0);
    check("and is still there", killed(asleep, SIGUSR2) && fails(kill(asleep, 0), ESRCH));
    pid_t first = fork();
    if (first == 0)
        _exit(1);
    pid_t second = fork();
    if (second == 0)
        _exit(2);
    check("in any order", exited(second, 2) && exited(first, 1));
    pid_t pid = fork();
    if (pid == 0) {
        setpgid(0, 0);
        _exit(9);
    }
    setpgid(pid, pid);
    check("by group", waitid(P_PGID, pid, &info, WEXITED) == 0 && info.si_pid == pid && info.si_status == 9);
    check("of no such group", fails(waitpid(-pid, NULL, 0), ECHILD));
    struct rusage usage;
    pid = fork();
    if (pid == 0) {
        for (volatile long i = 0; i < 100000000; i++)
            if (i % 1000 == 0 && clock() * 1000 / CLOCKS_PER_SEC >= 30)
                break;
        _exit(0);
    }
    struct tms before, after;
    times(&before);
    int good = wait4(pid, NULL, 0, &usage) == pid && usage.ru_utime.tv_sec + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec > 0;
    getrusage(RUSAGE_CHILDREN, &usage);
    times(&after);
    long seconds = usage.ru_utime.tv_sec + usage.ru_stime.tv_sec;
    check("usage of children", good && seconds * 1000000 + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec >= 20000 &&
          after.tms_cutime + after.tms_cstime > before.tms_cutime + before.tms_cstime);
}

static void on_child(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    heard_pid = info->si_pid;
    heard_code = info->si_code;
    heard_status = info->si_status;
    heard++;
}

static void told(void)
{
    struct sigaction action = {.sa_sigaction = on_child, .sa_flags = SA_SIGINFO}, plain = {.sa_handler = SIG_DFL};
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, &old);
    sigaction(SIGCHLD, &action, NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(42);
    sigset_t none = old;
    while (!heard)
        sigsuspend(&none);
    check("SIGCHLD", heard_pid == pid && heard_code == CLD_EXITED && heard_status == 42 && exited(pid, 42));
    heard = 0;
    action.sa_flags |= SA_NOCLDWAIT;
    sigaction(SIGCHLD, &action, NULL);
    if (fork() == 0)
        _exit(1);
    while (!heard)
        sigsuspend(&none);
    check("SA_NOCLDWAIT leaves no zombie", fails(wait(NULL), ECHILD));
    plain.sa_handler = SIG_IGN;
    sigaction(SIGCHLD, &plain, NULL);
    int vanish = 1;
    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < 3; i++)
            if (fork() == 0)
                _exit(i);
        vanish &= fails(wait(NULL), ECHILD);
    }
    check("ignored children vanish", vanish);
    plain.sa_handler = SIG_DFL;
    sigaction(SIGCHLD, &plain, NULL);
    sigprocmask(SIG_SETMASK, &old, NULL);
}

static void orphans(void)
{
    int ends[2];
    char byte;
    check("pipe", pipe(ends) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        pid_t parent = getpid();
        if (fork() == 0) {
            while (getppid() == parent)
                sched_yield();
            _exit(write(ends[1], "o", 1) == 1 ? 0 : 1);
        }
        _exit(0);
    }
    close(ends[1]);
    check("an orphan outlives its parent", exited(pid, 0) && read(ends[0], &byte, 1) == 1 && byte == 'o');
    check("the last writer closes the pipe", read(ends[0], &byte, 1) == 0);
    close(ends[0]);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    int is = 0;
    check("PR_GET_CHILD_SUBREAPER", prctl(PR_GET_CHILD_SUBREAPER, &is) == 0 && is == 1);
    pid_t reaper = getpid();
    pid = fork();
    if (pid == 0) {
        if (fork() == 0) {
            while (getppid() != reaper)
                sched_yield();
            _exit(17);
        }
        _exit(0);
    }
    check("a subreaper adopts", exited(pid, 0) && exited(-1, 17));
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    pipe(ends);
    pid = fork();
    if (pid == 0) {
        int ready[2];
        pipe(ready);
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGTERM);
            write(ready[1], "r", 1);
            sleep_for_ever();
        }
        read(ready[0], &byte, 1);
        _exit(0);
    }
    close(ends[1]);
    check("PR_SET_PDEATHSIG", exited(pid, 0) && read(ends[0], &byte, 1) == 0);
    close(ends[0]);
}

static void groups(void)
{
    int ends[2];
    char byte;
    pipe(ends);
    pid_t pid = fork();
    if (pid == 0) {
        int good = setpgid(0, 0) == 0 && getpgrp() == getpid() && fails(setsid(), EPERM);
        for (int i = 0; i < 3; i++)
            if (fork() == 0) {
                write(ends[1], "g", 1);
                sleep_for_ever();
            }
        write(ends[1], good ? "g" : "b", 1);
        sleep_for_ever();
    }
    setpgid(pid, pid);
    int ready = 0;
    while (ready < 4 && read(ends[0], &byte, 1) == 1 && byte == 'g')
        ready++;
    close(ends[1]);
    check("a group of its own", ready == 4 && getpgid(pid) == pid && getsid(pid) == getsid(0));
    check("kill a group", kill(-pid, SIGTERM) == 0 && killed(pid, SIGTERM) && read(ends[0], &byte, 1) == 0);
    close(ends[0]);
    check("no such process", fails(getpgid(pid), ESRCH) && fails(getsid(pid), ESRCH) && fails(setpgid(pid, 0), ESRCH));
    check("no such group", fails(kill(-0x3fff0, 0), ESRCH));
    check("not to a strange group", fails(setpgid(0, 0x3fff0), EPERM) && fails(setpgid(0, -1), EINVAL));
    pid = fork();
    if (pid == 0)
        _exit(setsid() == getpid() && getsid(0) == getpid() && getpgrp() == getpid() && fails(setpgid(0, 0), EPERM) ? 0 : 1);
    check("a session of its own", exited(pid, 0));
}

static void on_signal(int signal, siginfo_t *info, void *context)
{
    (void)context;
    heard = signal;
    heard_pid = info->si_pid;
}

static void signals(void)
{
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, &old);
    sigaction(SIGUSR1, &action, NULL);
    heard = 0;
    pid_t pid = fork();
    if (pid == 0) {
        kill(getppid(), SIGUSR1);
        while (!heard)
            sigsuspend(&old);
        _exit(heard_pid == getppid() ? 3 : 4);
    }
    while (!heard)
        sigsuspend(&old);
    check("a signal from a child", heard == SIGUSR1 && heard_pid == pid);
    kill(pid, SIGUSR1);
    check("and back", exited(pid, 3));
    kill(getpid(), SIGUSR1);
    pid = fork();
    if (pid == 0) {
        sigset_t waiting;
        sigpending(&waiting);
        _exit(sigismember(&waiting, SIGUSR1));
    }
    check("what waits is not inherited", exited(pid, 0));
    sigprocmask(SIG_SETMASK, &old, NULL);
    check("nobody", fails(kill(0x3fff0, 0), ESRCH) && fails(kill(getpid(), 65), EINVAL) &&
          fails(syscall(SYS_tgkill, getpid(), 0x3fff0, 0), ESRCH) && fails(syscall(SYS_tkill, 0x3fff0, 0), ESRCH));
    check("threads of others", (pid = child_that(sleep_for_ever)) > 0 && syscall(SYS_tkill, pid, 0) == 0 &&
          fails(syscall(SYS_tgkill, getpid(), pid, 0), ESRCH) && syscall(SYS_tgkill, pid, pid, SIGTERM) == 0 && killed(pid, SIGTERM));
}

static void stops(void)
{
    siginfo_t info;
    int status;
    pid_t pid = child_that(sleep_for_ever);
    kill(pid, SIGSTOP);
    check("stopped", waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    check("told once", waitpid(pid, &status, WUNTRACED | WNOHANG) == 0);
    kill(pid, SIGCONT);
    check("continued", waitid(P_PID, pid, &info, WCONTINUED) == 0 && info.si_code == CLD_CONTINUED && info.si_pid == pid);
    kill(pid, SIGSTOP);
    check("stopped again", waitid(P_PID, pid, &info, WSTOPPED) == 0 && info.si_code == CLD_STOPPED && info.si_status == SIGSTOP);
    kill(pid, SIGKILL);
    check("killed though stopped", killed(pid, SIGKILL));
    pid = fork();
    if (pid == 0) {
        raise(SIGSTOP);
        _exit(8);
    }
    int good = waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status);
    check("goes on where it stopped", good && kill(pid, SIGCONT) == 0 && exited(pid, 8));
}

/* Each of a thousand processes waits for the next in the same memory, until all are killed. */
static void long_chain(void)
{
    int ends[2];
    char byte;
    check("pipe", pipe(ends) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        setpgid(0, 0);
        for (volatile int left = 1000; left > 0; left--) {
            long made;
            /* Calls vfork without the library, which keeps its return address where all processes write. So a
             * parent whose child is killed first waits for its turn. */
            __asm__ volatile("syscall" : "=a"(made) : "a"(SYS_vfork) : "rcx", "r11", "memory");
            while (made != 0)
                __asm__ volatile("syscall" : "=a"(made) : "a"(SYS_pause) : "rcx", "r11", "memory");
        }
        write(ends[1], "l", 1);
        sleep_for_ever();
    }
    check("a long chain is killed", read(ends[0], &byte, 1) == 1 && kill(-pid, SIGKILL) == 0 && killed(pid, SIGKILL));
    close(ends[0]);
    close(ends[1]);
}

static volatile int shared;
static void vforks(void)
{
    shared = 0;
    pid_t pid = vfork();
    if (pid == 0) {
        shared = 1;
        _exit(6);
    }
    check("vfork runs in the parent's memory, first", shared == 1 && exited(pid, 6));
    long_chain();
}

static int *shared_words(void)
{
    return mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static void *sleep_on(void *word)
{
    syscall(SYS_futex, word, FUTEX_WAIT, 0, NULL, NULL, 0);
    return NULL;
}

/* A thread sleeps on a word in unmapped memory, and other mappings reuse the place where the kernel kept that
 * memory. */
static void forgotten_words(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        pthread_t id;
        int *words = shared_words();
        pthread_create(&id, NULL, sleep_on, words);
        while (syscall(SYS_futex, words, FUTEX_REQUEUE, 0, 1L, words + 1, 0) != 1)
            sched_yield();
        munmap(words, PAGE);
        for (int map = 0; map < 10 * ROUNDS; map++) {
            int *others = shared_words();
            if (syscall(SYS_futex, others + 1, FUTEX_WAKE, 1, NULL, NULL, 0) != 0 || munmap(others, PAGE) != 0)
                _exit(1);
        }
        _exit(0);
    }
    check("nobody sleeps on new words", exited(pid, 0));
}

/* Semaphores in memory that processes share: they sleep on the same words. */
static void shared_memory(void)
{
    struct { sem_t ping, pong; int value; } *page =
        mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    sem_init(&page->ping, 1, 0);
    sem_init(&page->pong, 1, 0);
    pid_t pid = fork();
    if (pid == 0) {
        for (int i = 0; i < 100; i++) {
            sem_wait(&page->ping);
            page->value++;
            sem_post(&page->pong);
        }
        _exit(0);
    }
    int good = 1;
    for (int i = 1; i <= 100; i++) {
        sem_post(&page->ping);
        sem_wait(&page->pong);
        good &= page->value == i;
    }
    check("words that processes share", exited(pid, 0) && good && munmap(page, PAGE) == 0);
}

static int in_clone(void *arg)
{
    *(int *)arg += 1;
    return 11;
}

static void clones(void)
{
    static char stack[16 * PAGE];
    int value = 1, status, pidfd = -1;
    pid_t pid = clone(in_clone, stack + sizeof stack, CLONE_VM | SIGCHLD, &value);
    check("clone in the same memory", exited(pid, 11) && value == 2);
    pid = clone(in_clone, stack + sizeof stack, 0, &value);
    check("a child that does not tell", fails(waitpid(pid, &status, WNOHANG), ECHILD) && waitpid(pid, &status, __WCLONE) == pid &&
          WEXITSTATUS(status) == 11 && value == 2);
    signal(SIGUSR2, SIG_IGN);
    pid = clone(in_clone, stack + sizeof stack, SIGUSR2, &value);
    check("any kind", waitpid(pid, &status, __WALL) == pid);
    signal(SIGUSR2, SIG_DFL);
    pid = clone(in_clone, stack + sizeof stack, CLONE_FILES | SIGCHLD, &value);
    check("shared descriptors survive a child", exited(pid, 11) && write(1, "", 0) == 0);
    pid = clone(in_clone, stack + sizeof stack, CLONE_PIDFD | SIGCHLD, &value, &pidfd);
    struct pollfd polled = {pidfd, POLLIN, 0};
    siginfo_t info;
    check("pidfd", poll(&polled, 1, -1) == 1 && polled.revents == POLLIN && syscall(SYS_waitid, 3, pidfd, &info, WEXITED, NULL) == 0 &&
          info.si_pid == pid && info.si_status == 11);
    check("of somebody gone", fails(syscall(SYS_pidfd_send_signal, pidfd, 0, NULL, 0), ESRCH) && close(pidfd) == 0);
    pid = child_that(sleep_for_ever);
    pidfd = syscall(SYS_pidfd_open, pid, 0);
    check("pidfd_send_signal", pidfd >= 0 && syscall(SYS_pidfd_send_signal, pidfd, SIGTERM, NULL, 0) == 0 && killed(pid, SIGTERM));
    close(pidfd);
    check("flags that exclude one another", fails(syscall(SYS_clone, CLONE_SIGHAND, 0, 0, 0, 0), EINVAL) &&
          fails(syscall(SYS_clone, CLONE_THREAD, 0, 0, 0, 0), EINVAL));
}

static volatile int failing;

/* Makes calls that take a descriptor's number and then fail. */
static void *make_and_fail(void *nowhere)
{
    for (int round = 0; round < 200; round++) {
        pipe(nowhere);
        syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, 0, nowhere, 0, 0);
    }
    failing = 0;
    return NULL;
}

/* Meanwhile this thread closes all descriptors that are open there, and uses the numbers itself. */
static void numbers_of_others(void)
{
    pthread_t id;
    int first = dup(0), good = 1;
    failing = 1;
    pthread_create(&id, NULL, make_and_fail, (void *)8);
    while (failing) {
        for (int fd = first; fd < first + 3; fd++)
            close(fd);
        int mine = dup(0);
        good &= mine >= first && fcntl(mine, F_GETFD) == 0 && fcntl(mine, F_GETFD) == 0;
    }
    pthread_join(id, NULL);
    for (int fd = first; fd < first + 3; fd++)
        close(fd);
    check("a call that fails closes nobody's file", good);
}

static void *fork_and_wait(void *arg)
{
    (void)arg;
    long good = 0;
    for (int i = 0; i < 20; i++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(i);
        good += exited(pid, i);
    }
    return (void *)good;
}

static void *exit_group_soon(void *arg)
{
    (void)arg;
    _exit(33);
}

static void threads(void)
{
    pthread_t ids[4];
    void *good;
    long sum = 0;
    for (int i = 0; i < 4; i++)
        pthread_create(&ids[i], NULL, fork_and_wait, NULL);
    for (int i = 0; i < 4; i++) {
        pthread_join(ids[i], &good);
        sum += (long)good;
    }
    check("threads fork", sum == 80);
    pid_t pid = fork();
    if (pid == 0) {
        pthread_create(&ids[0], NULL, exit_group_soon, NULL);
        pthread_create(&ids[1], NULL, fork_and_wait, NULL);
        sleep_for_ever();
    }
    check("a thread ends its process", exited(pid, 33));
}

/* A chain of processes, each one's output the next one's input. */
static void chain(void)
{
    int in[2], out[2];
    pipe(in);
    int first = in[1];
    for (int i = 0; i < 8; i++) {
        pipe(out);
        if (fork() == 0) {
            close(first);
            close(out[0]);
            char byte;
            while (read(in[0], &byte, 1) == 1) {
                byte++;
                write(out[1], &byte, 1);
            }
            _exit(0);
        }
        close(in[0]);
        close(out[1]);
        in[0] = out[0];
    }
    char text[5] = {0};
    write(first, "ABCD", 4);
    close(first);
    for (int done = 0; done < 4;)
        done += read(in[0], text + done, 4 - done);
    check("a chain of pipes", strcmp(text, "IJKL") == 0 && read(in[0], text, 1) == 0);
    close(in[0]);
    int good = 1;
    for (int i = 0; i < 8; i++)
        good &= exited(-1, 0);
    check("and all are gone", good && fails(wait(NULL), ECHILD));
}

/* Memory that a thousand children may leave behind. */
#define LEFT_KIB (16 * 1024)

static long free_kib(void)
{
    long kib = 0;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "r");
    while (file && fgets(line, sizeof line, file))
        sscanf(line, "MemFree: %ld kB", &kib);
    if (file)
        fclose(file);
    return kib;
}

/* Whether no other program runs here. */
static int alone;

static void rounds(void)
{
    int good = 1;
    long before = 0;
    for (int i = 0; i < ROUNDS; i++) {
        if (i == ROUNDS / 10)
            before = free_kib();
        pid_t pid = fork();
        if (pid == 0)
            _exit(i & 127);
        good &= exited(pid, i & 127);
    }
    check("a thousand rounds", good);
    /* Other programs would use memory meanwhile. Unreferenced memory, also that of all checks before, comes
     * back some epochs later, as fast as the cores tick, which on a busy machine is not often. */
    time_t end = time(NULL) + 150;
    while (alone && before - free_kib() >= LEFT_KIB && time(NULL) < end)
        sched_yield();
    if (alone)
        check("leave nothing", before - free_kib() < LEFT_KIB);
}

static void bomb(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit limit = {40, 40};
        setpgid(0, 0);
        setrlimit(RLIMIT_NPROC, &limit);
        /* Root is not bound by the limit on Linux. */
        if (setresuid(65534, 65534, 65534) != 0 && errno != EPERM)
            _exit(2);
        int made = 0;
        while (made < 200 && (pid = fork()) > 0)
            made++;
        if (pid == 0)
            sleep_for_ever();
        int refused = pid == -1 && errno == EAGAIN && made >= 10 && made < 200;
        signal(SIGTERM, SIG_IGN);
        kill(0, SIGTERM);
        while (wait(NULL) > 0)
            ;
        _exit(refused ? 0 : 1);
    }
    check("RLIMIT_NPROC", exited(pid, 0));
}

static void all(void)
{
    statuses();
    memory();
    waits();
    told();
    orphans();
    groups();
    signals();
    stops();
    vforks();
    shared_memory();
    forgotten_words();
    clones();
    numbers_of_others();
    threads();
    chain();
    rounds();
    bomb();
    printf("processes: %s\n", failures ? "FAILED" : "done");
    fflush(stdout);
    _exit(failures != 0);
}

/* The first process of a machine gets all orphans, so it is not the one that counts its children. */
int main(int count, char **arguments)
{
    (void)arguments;
    alone = count > 1;
    pid_t pid = child_that(all);
    int status = status_of(pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

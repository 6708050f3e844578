/* Real-time signals queue, each with what its sender says, and the lowest number comes first. Of each other
 * signal one is pending. The limit of signals that wait is kept, and a timer has one signal pending. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static const struct timespec now;

static sigset_t set_of(int signal, int other)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal), sigaddset(&set, other);
    return set;
}

static int queue(int signal, int value)
{
    return sigqueue(getpid(), signal, (union sigval){ .sival_int = value });
}

/* Takes a signal, and returns whether it is this one. */
static int takes(sigset_t *set, int signal, int code, int value)
{
    siginfo_t info;
    memset(&info, 0, sizeof info);
    int taken = sigtimedwait(set, &info, &now);
    int is_same = taken == signal && info.si_signo == signal && info.si_code == code && info.si_value.sival_int == value;
    if (!is_same)
        printf("taken %d code %d value %d, not %d\n", taken, info.si_code, info.si_value.sival_int, value);
    return is_same && info.si_pid == getpid() && info.si_uid == getuid();
}

static int is_empty(sigset_t *set)
{
    return sigtimedwait(set, NULL, &now) == -1 && errno == EAGAIN;
}

static void order(void)
{
    sigset_t set = set_of(SIGRTMIN, SIGRTMIN + 1), pending;
    sigprocmask(SIG_BLOCK, &set, NULL);
    check("queued", queue(SIGRTMIN + 1, 1) == 0 && queue(SIGRTMIN, 2) == 0 && queue(SIGRTMIN, 3) == 0);
    check("queued by kill", kill(getpid(), SIGRTMIN) == 0 && queue(SIGRTMIN + 1, 4) == 0);
    sigpending(&pending);
    check("pending", sigismember(&pending, SIGRTMIN) && sigismember(&pending, SIGRTMIN + 1));
    check("the lowest first", takes(&set, SIGRTMIN, SI_QUEUE, 2) && takes(&set, SIGRTMIN, SI_QUEUE, 3));
    check("that of kill", takes(&set, SIGRTMIN, SI_USER, 0));
    sigpending(&pending);
    check("one number less", !sigismember(&pending, SIGRTMIN) && sigismember(&pending, SIGRTMIN + 1));
    check("then the next", takes(&set, SIGRTMIN + 1, SI_QUEUE, 1) && takes(&set, SIGRTMIN + 1, SI_QUEUE, 4));
    check("none is left", is_empty(&set));
}

static void standard(void)
{
    sigset_t set = set_of(SIGUSR1, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    check("sent twice", queue(SIGUSR1, 5) == 0 && queue(SIGUSR1, 6) == 0);
    check("the first stays", takes(&set, SIGUSR1, SI_QUEUE, 5) && is_empty(&set));
}

/* Signals that faults raise come first, whatever their numbers. */
static void faults_first(void)
{
    sigset_t set = set_of(SIGHUP, SIGSEGV);
    sigaddset(&set, SIGSYS), sigaddset(&set, SIGILL);
    sigprocmask(SIG_BLOCK, &set, NULL);
    queue(SIGHUP, 1), queue(SIGSYS, 2), queue(SIGSEGV, 3), queue(SIGILL, 4);
    check("faults first", takes(&set, SIGILL, SI_QUEUE, 4) && takes(&set, SIGSEGV, SI_QUEUE, 3));
    check("then the rest", takes(&set, SIGSYS, SI_QUEUE, 2) && takes(&set, SIGHUP, SI_QUEUE, 1));
}

static int seen[8], count;

static void note(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    seen[count++ % 8] = info->si_value.sival_int;
}

static void handlers(void)
{
    struct sigaction action = { .sa_sigaction = note, .sa_flags = SA_SIGINFO };
    sigaction(SIGRTMIN + 2, &action, NULL);
    sigset_t set = set_of(SIGRTMIN + 2, SIGRTMIN + 2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (int i = 0; i < 4; i++)
        queue(SIGRTMIN + 2, 10 + i);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    check("handlers run in order", count == 4 && seen[0] == 10 && seen[1] == 11 && seen[2] == 12 && seen[3] == 13);
    siginfo_t own;
    memset(&own, 0, sizeof own);
    own.si_code = SI_QUEUE, own.si_value.sival_int = 14;
    syscall(SYS_rt_tgsigqueueinfo, getpid(), getpid(), SIGRTMIN + 2, &own);
    check("a thread's own", count == 5 && seen[4] == 14);
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (int i = 0; i < 3; i++)
        queue(SIGRTMIN + 2, i);
    signal(SIGRTMIN + 2, SIG_IGN);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    check("ignored, all go", count == 5 && is_empty(&set));
}

static void limits(void)
{
    sigset_t set = set_of(SIGRTMIN, SIGUSR1);
    struct rlimit old;
    getrlimit(RLIMIT_SIGPENDING, &old);
    check("there is a limit", old.rlim_cur != RLIM_INFINITY && old.rlim_cur > 100);
    queue(SIGRTMIN, 7);
    setrlimit(RLIMIT_SIGPENDING, &(struct rlimit){ 0, old.rlim_max });
    check("no more than the limit", queue(SIGRTMIN, 8) == -1 && errno == EAGAIN);
    siginfo_t forged;
    memset(&forged, 0, sizeof forged);
    forged.si_code = SI_KERNEL;
    check("as from the kernel", syscall(SYS_rt_sigqueueinfo, getpid(), SIGRTMIN, &forged) == -1 && errno == EAGAIN);
    forged.si_code = SI_TIMER;
    check("as from a timer", syscall(SYS_rt_sigqueueinfo, getpid(), SIGRTMIN, &forged) == -1 && errno == EAGAIN);
    check("to a thread", syscall(SYS_tgkill, getpid(), getpid(), SIGRTMIN) == -1 && errno == EAGAIN);
    check("kill succeeds", kill(getpid(), SIGRTMIN) == 0);
    check("another signal is sent", queue(SIGUSR1, 7) == 0);
    siginfo_t info;
    check("that is taken first", sigtimedwait(&set, &info, &now) == SIGUSR1);
    check("it has no sender", info.si_code == SI_USER && info.si_pid == 0 && info.si_value.sival_int == 0);
    check("and by kill", kill(getpid(), SIGUSR1) == 0 && takes(&set, SIGUSR1, SI_USER, 0));
    timer_t timer;
    check("a timer has a place", timer_create(CLOCK_MONOTONIC, NULL, &timer) == -1 && errno == EAGAIN);
    check("the one from before", takes(&set, SIGRTMIN, SI_QUEUE, 7) && is_empty(&set));
    check("without room", kill(getpid(), SIGRTMIN) == 0);
    check("it has no sender", sigtimedwait(&set, &info, &now) == SIGRTMIN && info.si_code == SI_USER && info.si_pid == 0);
    setrlimit(RLIMIT_SIGPENDING, &old);
}

/* The signals of all processes of a user count together. */
static void limits_of_a_user(void)
{
    sigset_t set = set_of(SIGRTMIN, SIGUSR1);
    queue(SIGRTMIN, 7);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit one = { 1, 1 };
        setrlimit(RLIMIT_SIGPENDING, &one);
        _exit(queue(SIGRTMIN, 8) == -1 && errno == EAGAIN ? 5 : 6);
    }
    int status;
    check("of a user", waitpid(child, &status, 0) == child && status == 5 << 8);
    check("the parent's stays", takes(&set, SIGRTMIN, SI_QUEUE, 7) && is_empty(&set));
}

static void errors(void)
{
    siginfo_t info;
    memset(&info, 0, sizeof info);
    info.si_code = SI_QUEUE;
    long pid = getpid(), child = fork();
    if (child == 0)
        for (;;)
            pause();
    check("no signal", syscall(SYS_rt_sigqueueinfo, pid, 0, &info) == 0);
    check("a bad one", syscall(SYS_rt_sigqueueinfo, pid, 65, &info) == -1 && errno == EINVAL);
    check("no process", syscall(SYS_rt_sigqueueinfo, 999999, SIGUSR1, &info) == -1 && errno == ESRCH);
    check("a bad address", syscall(SYS_rt_sigqueueinfo, pid, SIGUSR1, 8L) == -1 && errno == EFAULT);
    check("a bad thread", syscall(SYS_rt_tgsigqueueinfo, pid, 0, SIGUSR1, &info) == -1 && errno == EINVAL);
    check("another's thread", syscall(SYS_rt_tgsigqueueinfo, pid, child, SIGUSR1, &info) == -1 && errno == ESRCH);
    info.si_code = SI_USER;
    check("as kill", syscall(SYS_rt_sigqueueinfo, child, SIGUSR1, &info) == -1 && errno == EPERM);
    info.si_code = SI_TKILL;
    check("as tgkill", syscall(SYS_rt_sigqueueinfo, child, SIGUSR1, &info) == -1 && errno == EPERM);
    info.si_code = SI_QUEUE, info.si_signo = SIGTERM;
    int file = syscall(SYS_pidfd_open, child, 0), status;
    check("another number", syscall(SYS_pidfd_send_signal, file, SIGUSR1, &info, 0) == -1 && errno == EINVAL);
    check("by a descriptor", syscall(SYS_pidfd_send_signal, file, SIGTERM, &info, 0) == 0);
    check("it ends", waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    info.si_code = SI_USER, info.si_pid = 77;
    sigset_t set = set_of(SIGRTMIN, SIGRTMIN);
    check("to itself", syscall(SYS_rt_sigqueueinfo, pid, SIGRTMIN, &info) == 0);
    check("what it says", sigtimedwait(&set, &info, &now) == SIGRTMIN && info.si_pid == 77 && info.si_code == SI_USER);
}

static int send_to(int pid, int code)
{
    siginfo_t info;
    memset(&info, 0, sizeof info);
    info.si_code = code;
    return syscall(SYS_rt_sigqueueinfo, pid, SIGRTMIN, &info) == 0 ? 0 : errno;
}

/* Only the thread itself may say that `kill` or the kernel sent it a signal. The number of any thread stands
 * for its process. */
static void *from_a_thread(void *unused)
{
    sigset_t set = set_of(SIGRTMIN, SIGRTMIN);
    siginfo_t info;
    int pid = getpid(), tid = syscall(SYS_gettid);
    check("a thread is not its process", send_to(pid, SI_USER) == EPERM && send_to(pid, SI_TKILL) == EPERM);
    check("but may queue", send_to(pid, SI_QUEUE) == 0 && sigtimedwait(&set, NULL, &now) == SIGRTMIN);
    check("it sends to itself", send_to(tid, SI_USER) == 0 && sigtimedwait(&set, NULL, &now) == SIGRTMIN);
    check("kill of a thread", kill(tid, SIGRTMIN) == 0 && sigtimedwait(&set, NULL, &now) == SIGRTMIN);
    memset(&info, 0, sizeof info);
    check("to another thread", syscall(SYS_rt_tgsigqueueinfo, pid, pid, SIGRTMIN, &info) == -1 && errno == EPERM);
    int file = syscall(SYS_pidfd_open, pid, 0);
    info.si_signo = SIGRTMIN;
    check("nor by a descriptor", syscall(SYS_pidfd_send_signal, file, SIGRTMIN, &info, 0) == -1 && errno == EPERM);
    close(file);
    return unused;
}

static void forged(void)
{
    sigset_t set = set_of(SIGRTMIN, SIGRTMIN);
    int pid = getpid();
    pthread_t thread;
    pthread_create(&thread, NULL, from_a_thread, NULL);
    pthread_join(thread, NULL);
    check("as two of one timer", send_to(pid, SI_TIMER) == 0 && send_to(pid, SI_TIMER) == 0);
    check("both come", sigtimedwait(&set, NULL, &now) == SIGRTMIN && sigtimedwait(&set, NULL, &now) == SIGRTMIN && is_empty(&set));
    check("no process first", kill(999999, 65) == -1 && errno == ESRCH);
    check("no thread first", syscall(SYS_tgkill, pid, 999999, 65) == -1 && errno == ESRCH);
    char *at = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(at + 4096, 4096);
    siginfo_t *last = (siginfo_t *)(at + 4096 - 48);
    last->si_code = SI_QUEUE;
    check("48 bytes are read", syscall(SYS_rt_sigqueueinfo, pid, SIGRTMIN, last) == 0 && sigtimedwait(&set, NULL, &now) == SIGRTMIN);
    last->si_code = 1000;
    check("all of an unknown one", syscall(SYS_rt_sigqueueinfo, pid, SIGRTMIN, last) == -1 && errno == EFAULT);
    last = (siginfo_t *)at;
    last->si_code = 1000, at[100] = 1;
    check("of which the rest is 0", syscall(SYS_rt_sigqueueinfo, pid, SIGRTMIN, last) == -1 && errno == E2BIG);
    munmap(at, 4096);
}

static void files(void)
{
    sigset_t set = set_of(SIGRTMIN, SIGRTMIN);
    int file = signalfd(-1, &set, SFD_NONBLOCK);
    struct signalfd_siginfo info[4];
    queue(SIGRTMIN, 21), queue(SIGRTMIN, -22);
    check("two at once", read(file, info, sizeof info) == 2 * sizeof *info);
    check("with values", info[0].ssi_int == 21 && info[1].ssi_int == -22 && info[1].ssi_code == SI_QUEUE && info[0].ssi_pid == (unsigned)getpid());
    siginfo_t given;
    memset(&given, 0, sizeof given);
    given.si_code = POLL_IN, given.si_errno = 5, given.si_band = 6, given.si_fd = 7;
    check("one of a file", syscall(SYS_rt_sigqueueinfo, getpid(), SIGRTMIN, &given) == 0 && read(file, info, sizeof info) == sizeof *info);
    check("with a descriptor", info[0].ssi_errno == 5 && info[0].ssi_band == 6 && info[0].ssi_fd == 7 && info[0].ssi_addr == 0);
    close(file);
}

static void until_due(timer_t timer)
{
    struct itimerspec soon = { { 0, 0 }, { 0, 1000000 } }, left = soon;
    timer_settime(timer, 0, &soon, NULL);
    do
        timer_gettime(timer, &left);
    while (left.it_value.tv_nsec != 0);
    nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
}

/* Takes signals until none is left, and returns whether one was a timer's with this value. */
static int takes_from_timer(int value)
{
    sigset_t set = set_of(SIGRTMIN, SIGRTMIN);
    siginfo_t info;
    int found = 0;
    while (sigtimedwait(&set, &info, &now) == SIGRTMIN)
        found |= info.si_code == SI_TIMER && info.si_value.sival_int == value;
    return found;
}

/* A timer's signal has a place of its own, whatever else is pending. */
static void timers_beside_others(void)
{
    struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN, .sigev_value.sival_int = 41 };
    struct rlimit old;
    timer_t timer, second;
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    getrlimit(RLIMIT_SIGPENDING, &old);
    setrlimit(RLIMIT_SIGPENDING, &(struct rlimit){ 0, old.rlim_max });
    until_due(timer);
    setrlimit(RLIMIT_SIGPENDING, &old);
    check("a timer at the limit", takes_from_timer(41));
    siginfo_t like;
    memset(&like, 0, sizeof like);
    like.si_code = SI_TIMER;
    memcpy((char *)&like + 16, &timer, sizeof(int));
    syscall(SYS_rt_sigqueueinfo, getpid(), SIGRTMIN, &like);
    until_due(timer);
    check("beside a forged one", takes_from_timer(41));
    until_due(timer);
    timer_delete(timer);
    event.sigev_value.sival_int = 42;
    timer_create(CLOCK_MONOTONIC, &event, &second);
    until_due(second);
    check("beside that of a deleted one", takes_from_timer(42));
    struct itimerspec often = { { 0, 1000000 }, { 0, 1000000 } }, never = { { 0, 0 }, { 0, 0 } };
    timer_settime(second, 0, &often, NULL);
    nanosleep(&(struct timespec){ 0, 50000000 }, NULL);
    siginfo_t info;
    sigset_t set = set_of(SIGRTMIN, SIGRTMIN);
    check("many times", sigtimedwait(&set, &info, &now) == SIGRTMIN && info.si_value.sival_int == 42 && info.si_overrun >= 20);
    timer_settime(second, 0, &never, NULL);
    timer_delete(second);
    takes_from_timer(42);
}

static void timers(void)
{
    sigset_t set = set_of(SIGRTMIN, SIGRTMIN);
    struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN, .sigev_value.sival_int = 31 };
    struct itimerspec soon = { { 0, 0 }, { 0, 1000000 } }, left = soon;
    timer_t timer;
    check("a timer", timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    for (int i = 0; i < 2; i++) {
        timer_settime(timer, 0, &soon, NULL);
        do
            timer_gettime(timer, &left);
        while (left.it_value.tv_nsec != 0);
        nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
    }
    siginfo_t info;
    check("its signal", sigtimedwait(&set, &info, &now) == SIGRTMIN && info.si_code == SI_TIMER && info.si_value.sival_int == 31);
    check("is one", is_empty(&set));
    timer_delete(timer);
}

int main(void)
{
    order();
    standard();
    faults_first();
    handlers();
    limits();
    limits_of_a_user();
    errors();
    forged();
    files();
    timers();
    timers_beside_others();
    return failures;
}

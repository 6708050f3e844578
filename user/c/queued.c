/* Real-time signals queue, each with what its sender says, and the lowest number comes first. Of each other
 * signal one is pending. The limit of signals that wait is kept, and a timer has one signal pending. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
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
    check("to a thread", syscall(SYS_tgkill, getpid(), getpid(), SIGRTMIN) == -1 && errno == EAGAIN);
    check("kill succeeds", kill(getpid(), SIGRTMIN) == 0);
    check("another signal is sent", queue(SIGUSR1, 7) == 0);
    check("that is taken first", sigtimedwait(&set, NULL, &now) == SIGUSR1);
    check("the one from before", takes(&set, SIGRTMIN, SI_QUEUE, 7) && is_empty(&set));
    check("without room", kill(getpid(), SIGRTMIN) == 0);
    siginfo_t info;
    check("it has no sender", sigtimedwait(&set, &info, &now) == SIGRTMIN && info.si_code == SI_USER && info.si_pid == 0);
    setrlimit(RLIMIT_SIGPENDING, &old);
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

static void files(void)
{
    sigset_t set = set_of(SIGRTMIN, SIGRTMIN);
    int file = signalfd(-1, &set, SFD_NONBLOCK);
    struct signalfd_siginfo info[4];
    queue(SIGRTMIN, 21), queue(SIGRTMIN, -22);
    check("two at once", read(file, info, sizeof info) == 2 * sizeof *info);
    check("with values", info[0].ssi_int == 21 && info[1].ssi_int == -22 && info[1].ssi_code == SI_QUEUE && info[0].ssi_pid == (unsigned)getpid());
    close(file);
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
    handlers();
    limits();
    errors();
    files();
    timers();
    return failures;
}

/* Timers of CPU time: setitimer, timer_create with clocks of CPU time, RLIMIT_CPU. And the times that a timer
 * was due, in its signal. Prints what every Linux prints. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tell.h"

static volatile int signals, value, code;

static void on_signal(int signal, siginfo_t *info, void *unused) {
    (void)signal, (void)unused;
    value = info->si_value.sival_int;
    code = info->si_code;
    signals++;
}

static void handle(int signal) {
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(signal, &action, NULL);
}

static long long cpu(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

/* Uses CPU time until there are as many signals. */
static void work(int count) {
    while (signals < count)
        ;
}

/* Linux samples times, and may miss by a few ticks. So a timer is too early only before half of its time. */
static int is_about(long long time, int milliseconds) {
    return time >= milliseconds * 1000000LL / 2;
}

static void intervals(int which, int signal) {
    printf("timer %d\n", which);
    handle(signal);
    struct itimerval soon = {.it_value = {0, 120000}}, old = {.it_value = {7, 7}}, now;
    getitimer(which, &now);
    printf("not set: %ld %ld\n", (long)now.it_value.tv_sec, (long)now.it_value.tv_usec);
    signals = 0;
    long long start = cpu(CLOCK_PROCESS_CPUTIME_ID);
    tell("set", setitimer(which, &soon, &old));
    printf("was not set: %ld %ld\n", (long)old.it_value.tv_sec, (long)old.it_value.tv_usec);
    work(1);
    printf("not too early: %d\n", is_about(cpu(CLOCK_PROCESS_CPUTIME_ID) - start, 120));
    printf("code %d\n", code == SI_KERNEL);
    getitimer(which, &now);
    printf("over: %ld %ld\n", (long)now.it_value.tv_sec, (long)now.it_value.tv_usec);
    struct itimerval often = {.it_value = {0, 40000}, .it_interval = {0, 40000}};
    signals = 0;
    start = cpu(CLOCK_PROCESS_CPUTIME_ID);
    setitimer(which, &often, NULL);
    work(3);
    printf("again and again: %d\n", is_about(cpu(CLOCK_PROCESS_CPUTIME_ID) - start, 120));
    getitimer(which, &now);
    printf("goes on: %d, %ld\n", now.it_value.tv_usec > 0, (long)now.it_interval.tv_usec);
    /* Time that passes does not count. A guest's CPU that does not run in time does, so it is tried again. */
    soon.it_value.tv_usec = 20000;
    int early = 1;
    for (int tries = 0; tries < 50 && early; tries++) {
        often.it_value = (struct timeval){3600, 0};
        setitimer(which, &often, NULL);
        signals = 0;
        setitimer(which, &soon, &old);
        usleep(60000);
        getitimer(which, &now);
        early = signals;
    }
    printf("had an hour: %d\n", old.it_value.tv_sec > 3000);
    printf("asleep: %d\n", early);
    printf("some is left: %d\n", now.it_value.tv_usec > 0);
    pid_t child = fork();
    if (child == 0) {
        getitimer(which, &now);
        _exit(now.it_value.tv_sec || now.it_value.tv_usec);
    }
    int status;
    waitpid(child, &status, 0);
    printf("a child has none: %d\n", status == 0);
    work(1);
    tell("stopped", setitimer(which, &(struct itimerval){0}, NULL));
}

static void refusals(void) {
    struct itimerval bad = {.it_value = {0, 1000000}};
    tell("a kind", setitimer(3, &bad, NULL));
    tell("a kind", getitimer(-1, &bad));
    tell("a time", setitimer(ITIMER_PROF, &bad, NULL));
    tell("a place", syscall(SYS_getitimer, ITIMER_VIRTUAL, 8));
    timer_t timer;
    clockid_t clock = ~9999999 * 8 | 2;
    tell("a process that does not exist", timer_create(clock, NULL, &timer));
}

static volatile int stop;

static void *other(void *unused) {
    while (!stop)
        ;
    return unused;
}

static void created(const char *name, clockid_t clock) {
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 42};
    printf("%s\n", name);
    tell("created", timer_create(clock, &event, &timer));
    handle(SIGUSR1);
    struct itimerspec soon = {.it_value = {0, 30000000}}, now;
    signals = 0;
    long long start = cpu(clock);
    tell("set", timer_settime(timer, 0, &soon, NULL));
    work(1);
    printf("not too early: %d\n", is_about(cpu(clock) - start, 30));
    printf("value %d, code %d\n", value, code == SI_TIMER);
    timer_gettime(timer, &now);
    printf("over: %ld %ld\n", (long)now.it_value.tv_sec, (long)now.it_value.tv_nsec);
    start = cpu(clock);
    long long end = start + 30000000;
    struct itimerspec then = {.it_value = {end / 1000000000, end % 1000000000}, .it_interval = {0, 10000000}};
    signals = 0;
    tell("at a time", timer_settime(timer, TIMER_ABSTIME, &then, NULL));
    work(2);
    printf("not too early: %d\n", is_about(cpu(clock) - start, 40));
    timer_gettime(timer, &now);
    printf("interval %ld, left %d\n", (long)now.it_interval.tv_nsec, now.it_value.tv_nsec > 0);
    struct itimerspec past = {.it_value = {0, 1}};
    signals = 0;
    tell("in the past", timer_settime(timer, TIMER_ABSTIME, &past, NULL));
    work(1);
    tell("deleted", timer_delete(timer));
}

/* The time of another thread counts for the process, and not for this one. */
static void threads(void) {
    pthread_t thread;
    clockid_t clock;
    timer_t timer;
    struct itimerspec soon = {.it_value = {0, 30000000}}, now;
    signals = 0;
    tell("of this thread", timer_create(CLOCK_THREAD_CPUTIME_ID, NULL, &timer));
    handle(SIGALRM);
    soon.it_value = (struct timespec){3600, 0};
    timer_settime(timer, 0, &soon, NULL);
    pthread_create(&thread, NULL, other, NULL);
    pthread_getcpuclockid(thread, &clock);
    timer_t its;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    tell("of another thread", timer_create(clock, &event, &its));
    soon.it_value = (struct timespec){0, 30000000};
    timer_settime(its, 0, &soon, NULL);
    long long start = cpu(CLOCK_THREAD_CPUTIME_ID);
    while (signals < 1)
        usleep(1000);
    printf("its time: %d\n", is_about(cpu(clock), 30));
    timer_gettime(timer, &now);
    long long used = cpu(CLOCK_THREAD_CPUTIME_ID) - start;
    long long left = now.it_value.tv_sec * 1000000000LL + now.it_value.tv_nsec;
    printf("left is what this thread did not use: %d\n", 3600000000000LL - left <= used + 1000000000LL && left > 0);
    stop = 1;
    pthread_join(thread, NULL);
    timer_delete(timer), timer_delete(its);
}

static volatile int warnings;

static void on_warning(int signal) {
    (void)signal;
    warnings++;
}

/* Uses CPU time in a child with a limit, and says how it ends. */
static void limited(const char *name, long seconds, long most, int handles) {
    pid_t child = fork();
    if (child == 0) {
        if (handles)
            signal(SIGXCPU, on_warning);
        setrlimit(RLIMIT_CPU, &(struct rlimit){seconds, most});
        while (handles != 2 || warnings == 0)
            ;
        struct rlimit now;
        long seen;
        do {
            seen = warnings;
            getrlimit(RLIMIT_CPU, &now);
        } while (seen != warnings);
        _exit(now.rlim_cur == (rlim_t)(seconds + seen) ? 5 : 6);
    }
    int status;
    waitpid(child, &status, 0);
    printf("%s: %s %d\n", name, WIFSIGNALED(status) ? "signal" : "status", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

static void inherited(void) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        signal(SIGXCPU, SIG_IGN);
        setrlimit(RLIMIT_CPU, &(struct rlimit){0, 100});
        pid_t its = fork();
        if (its == 0) {
            signal(SIGXCPU, SIG_DFL);
            for (;;)
                ;
        }
        waitpid(its, &status, 0);
        _exit(WTERMSIG(status));
    }
    waitpid(child, &status, 0);
    printf("a child inherits it: %d\n", WEXITSTATUS(status));
}

/* A signal that waits says how often its timer was due since. */
static void overruns(int signal) {
    sigset_t blocked;
    timer_t timer;
    siginfo_t info = {0};
    sigemptyset(&blocked);
    sigaddset(&blocked, signal);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = signal};
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    struct itimerspec often = {.it_value = {0, 1000000}, .it_interval = {0, 1000000}};
    timer_settime(timer, 0, &often, NULL);
    usleep(50000);
    tell("taken", sigwaitinfo(&blocked, &info) == signal);
    printf("due before: %d, code %d\n", info.si_overrun >= 20, info.si_code == SI_TIMER);
    timer_delete(timer);
    struct timespec none = {0, 0};
    while (sigtimedwait(&blocked, &info, &none) > 0)
        ;
}

int main(int count, char **words) {
    (void)words;
    struct itimerval now;
    if (count > 1) {
        getitimer(ITIMER_PROF, &now);
        printf("exec keeps it: %d\n", now.it_value.tv_sec > 3000);
        return 0;
    }
    intervals(ITIMER_VIRTUAL, SIGVTALRM);
    intervals(ITIMER_PROF, SIGPROF);
    refusals();
    created("process", CLOCK_PROCESS_CPUTIME_ID);
    created("thread", CLOCK_THREAD_CPUTIME_ID);
    clockid_t clock;
    clock_getcpuclockid(getpid(), &clock);
    created("process by its number", clock);
    pthread_getcpuclockid(pthread_self(), &clock);
    created("thread by its number", clock);
    threads();
    limited("warned", 0, 100, 1 + 1);
    limited("killed by the warning", 0, 100, 0);
    limited("a second", 1, 100, 2);
    limited("killed", 0, 1, 1);
    inherited();
    overruns(SIGUSR2);
    overruns(SIGRTMIN + 1);
    now = (struct itimerval){.it_value = {3600, 0}};
    setitimer(ITIMER_PROF, &now, NULL);
    fflush(stdout);
    execl("/proc/self/exe", "cpu_timers", "again", NULL);
    return 1;
}

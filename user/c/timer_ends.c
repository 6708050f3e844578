/* A timer that is over has sent its signal, and one that is stopped sends none later. Another thread sets the
 * timers, so that they ring on another core than the one that looks. Prints what every Linux prints. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static const struct timespec now;
static const struct itimerspec soon = { { 0, 0 }, { 0, 30000 } }, never;

/* The rounds that the main thread has begun, and that the other one has set the timers for. */
static atomic_long begun, set;
static long rounds;
static timer_t timer;
static int file;
static sigset_t wanted;

static void set_posix(void) { timer_settime(timer, 0, &soon, NULL); }
static void set_real(void) { setitimer(ITIMER_REAL, &(struct itimerval){ { 0, 0 }, { 0, 30 } }, NULL); }
static void set_file(void) { timerfd_settime(file, 0, &soon, NULL); }

static void *set_all(void *how)
{
    void (*set_one)(void) = *(void (**)(void))how;
    for (long round = 1; round <= rounds; round++) {
        while (begun < round)
            sched_yield();
        set_one();
        set = round;
    }
    return NULL;
}

/* In each round, lets the other thread set a timer, and counts the rounds in which `is_wrong` says so. */
static long wrong_rounds(void (*set_one)(void), int (*is_wrong)(long round))
{
    long wrong = 0;
    pthread_t thread;
    begun = set = 0;
    pthread_create(&thread, NULL, set_all, &set_one);
    for (long round = 1; round <= rounds; round++) {
        begun = round;
        while (set < round)
            sched_yield();
        wrong += is_wrong(round);
    }
    pthread_join(thread, NULL);
    return wrong;
}

static int takes(void) { return sigtimedwait(&wanted, NULL, &now) > 0; }

static void wait_a_little(long steps)
{
    for (volatile long step = 0; step < steps; step++)
        ;
}

static void until_over(void)
{
    struct itimerspec left;
    do
        timer_gettime(timer, &left);
    while (left.it_value.tv_nsec != 0);
}

static int over_without_signal(long round)
{
    (void)round;
    until_over();
    return !takes();
}

/* Whether a signal comes after the first look. */
static int comes_later(void)
{
    takes();
    wait_a_little(3000);
    return takes();
}

static int stopped_with_signal(long round)
{
    wait_a_little(round * 37 % 6000);
    timer_settime(timer, 0, &never, NULL);
    return comes_later();
}

static int real_stopped_with_signal(long round)
{
    wait_a_little(round * 37 % 6000);
    setitimer(ITIMER_REAL, &(struct itimerval){ 0 }, NULL);
    return comes_later();
}

static int file_stopped_with_count(long round)
{
    unsigned long count;
    wait_a_little(round * 37 % 6000);
    timerfd_settime(file, 0, &never, NULL);
    wait_a_little(3000);
    return read(file, &count, sizeof count) != -1 || errno != EAGAIN;
}

static int is_pending(int signal)
{
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, signal) == 1;
}

/* Leaves a signal of a timer pending, for the process or for this thread. */
static void leave_pending(int kind, int signal)
{
    struct sigevent event = { .sigev_notify = kind, .sigev_signo = signal };
    /* The member has another name in each library. */
    int tid = syscall(SYS_gettid);
    memcpy((char *)&event + 16, &tid, sizeof tid);
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    timer_settime(timer, 0, &soon, NULL);
    until_over();
    check("it is pending", is_pending(signal));
}

/* A new program has no timers, and none of their signals. */
static void execute(char *self)
{
    sigset_t all;
    sigfillset(&all), sigprocmask(SIG_BLOCK, &all, NULL);
    leave_pending(SIGEV_SIGNAL, SIGRTMIN);
    leave_pending(SIGEV_SIGNAL, SIGUSR1);
    leave_pending(SIGEV_THREAD_ID, SIGRTMIN + 1);
    leave_pending(SIGEV_SIGNAL, SIGRTMIN + 2);
    sigqueue(getpid(), SIGRTMIN + 2, (union sigval){ .sival_int = 5 });
    raise(SIGRTMIN + 3), raise(SIGUSR2);
    execl("/proc/self/exe", self, "executed", NULL);
    check("execl", 0);
}

static int executed(void)
{
    siginfo_t info;
    sigset_t last;
    sigemptyset(&last), sigaddset(&last, SIGRTMIN + 2);
    check("no signal of a timer", !is_pending(SIGRTMIN) && !is_pending(SIGUSR1) && !is_pending(SIGRTMIN + 1));
    check("but others", is_pending(SIGUSR2) && is_pending(SIGRTMIN + 3));
    check("the other one of a number", sigtimedwait(&last, &info, &now) == SIGRTMIN + 2 && info.si_code == SI_QUEUE);
    check("is the last", !is_pending(SIGRTMIN + 2));
    return failures;
}

int main(int count, char **words)
{
    if (count > 1 && strcmp(words[1], "executed") == 0)
        return executed();
    rounds = count > 1 ? atol(words[1]) : 2000;
    struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN };
    sigemptyset(&wanted), sigaddset(&wanted, SIGRTMIN), sigaddset(&wanted, SIGALRM);
    sigprocmask(SIG_BLOCK, &wanted, NULL);
    file = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) || file == -1)
        return 1;
    check("a timer that is over has sent its signal", wrong_rounds(set_posix, over_without_signal) == 0);
    check("one that is stopped sends none", wrong_rounds(set_posix, stopped_with_signal) == 0);
    check("nor does that of setitimer", wrong_rounds(set_real, real_stopped_with_signal) == 0);
    check("nor counts a file", wrong_rounds(set_file, file_stopped_with_count) == 0);
    execute(words[0]);
    return failures;
}

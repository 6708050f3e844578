/* Timers: alarm, setitimer, timer_create, timerfd. They are due, again and again if wanted, go with fork and
 * exec as they should, and can be stopped. Prints what every Linux prints. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
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
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    sigaction(signal, &action, NULL);
}

/* Waits for a number of signals, which the mask lets in only here. */
static void wait_for(int count) {
    sigset_t none;
    sigemptyset(&none);
    while (signals < count)
        sigsuspend(&none);
}

static void real(void) {
    tell("no alarm", alarm(0));
    tell("an hour", alarm(3600));
    tell("left", alarm(1800) > 2000);
    tell("left", alarm(0) > 1000);
    signals = 0;
    struct itimerval soon = {.it_value = {0, 20000}}, now;
    tell("soon", setitimer(ITIMER_REAL, &soon, NULL));
    wait_for(1);
    printf("once: %d\n", signals);
    getitimer(ITIMER_REAL, &now);
    printf("not set: %ld %ld\n", (long)now.it_value.tv_sec, (long)now.it_value.tv_usec);
    signals = 0;
    struct itimerval often = {.it_value = {0, 5000}, .it_interval = {0, 5000}};
    tell("often", setitimer(ITIMER_REAL, &often, NULL));
    wait_for(5);
    struct itimerval none = {{0, 0}, {0, 0}};
    tell("stopped", setitimer(ITIMER_REAL, &none, &now));
    printf("interval %ld, left %d\n", (long)now.it_interval.tv_usec, now.it_value.tv_usec <= 5000);
    signals = 0;
    usleep(30000);
    printf("after that: %d\n", signals);
    tell("which", setitimer(77, &often, NULL));
    often.it_value.tv_usec = 1000000;
    tell("too many microseconds", syscall(SYS_setitimer, ITIMER_REAL, &often, NULL));
    /* A program that sleeps is interrupted. */
    sigset_t open_mask;
    sigemptyset(&open_mask);
    sigaddset(&open_mask, SIGALRM);
    sigprocmask(SIG_UNBLOCK, &open_mask, NULL);
    struct itimerval second = {{1, 0}, {1, 0}};
    setitimer(ITIMER_REAL, &second, NULL);
    tell("a pause ends", pause());
    setitimer(ITIMER_REAL, &none, NULL);
    sigprocmask(SIG_BLOCK, &open_mask, NULL);
}

static void relations(void) {
    alarm(3600);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        tell("a child has none", alarm(0));
        fflush(stdout);
        alarm(1800);
        execl("/proc/self/exe", "again", "exec", (char *)NULL);
        _exit(9);
    }
    waitpid(pid, NULL, 0);
    tell("the parent has", alarm(0) > 2000);
    pid = fork();
    if (pid == 0) {
        signal(SIGALRM, SIG_DFL);
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        struct itimerval soon = {.it_value = {0, 10000}};
        setitimer(ITIMER_REAL, &soon, NULL);
        for (;;)
            ;
    }
    int status;
    waitpid(pid, &status, 0);
    printf("a busy child dies of %d\n", WTERMSIG(status));
}

static void created(void) {
    timer_t timer, other;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 42};
    tell("created", timer_create(CLOCK_MONOTONIC, &event, &timer));
    struct itimerspec often = {.it_value = {0, 3000000}, .it_interval = {0, 3000000}}, now;
    signals = 0;
    tell("set", timer_settime(timer, 0, &often, NULL));
    wait_for(3);
    printf("value %d, code %d\n", value, code == SI_TIMER);
    timer_gettime(timer, &now);
    printf("interval %ld, left %d\n", (long)now.it_interval.tv_nsec, now.it_value.tv_nsec > 0 && now.it_value.tv_nsec <= 3000000);
    struct itimerspec past = {.it_value = {1, 0}};
    /* A signal that is pending by now would count among those of the next setting. */
    often.it_value.tv_sec = 1000;
    tell("set for long", timer_settime(timer, 0, &often, NULL));
    sigset_t own;
    sigemptyset(&own), sigaddset(&own, SIGUSR1);
    while (sigtimedwait(&own, NULL, &(struct timespec){0}) > 0)
        ;
    signals = 0;
    tell("in the past", timer_settime(timer, TIMER_ABSTIME, &past, &now));
    wait_for(1);
    tell("overruns", timer_getoverrun(timer));
    clock_gettime(CLOCK_REALTIME, &past.it_value);
    past.it_value.tv_sec += 1000;
    tell("by the wall clock", timer_create(CLOCK_REALTIME, NULL, &other));
    tell("set", timer_settime(other, TIMER_ABSTIME, &past, NULL));
    timer_gettime(other, &now);
    printf("left: %d\n", now.it_value.tv_sec > 500 && now.it_value.tv_sec <= 1000);
    tell("deleted", timer_delete(other));
    event.sigev_notify = SIGEV_NONE;
    tell("without a signal", timer_create(CLOCK_MONOTONIC, &event, &other));
    tell("deleted", timer_delete(other));
    tell("deleted", timer_delete(timer));
    tell("deleted again", syscall(SYS_timer_delete, 12345));
    tell("a clock", syscall(SYS_timer_create, 99, NULL, &timer));
    event.sigev_notify = SIGEV_SIGNAL, event.sigev_signo = 99;
    tell("a signal", timer_create(CLOCK_MONOTONIC, &event, &timer));
}

static void files(void) {
    int file = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    uint64_t due = 0;
    tell("not due", read(file, &due, sizeof due));
    struct itimerspec often = {.it_value = {0, 2000000}, .it_interval = {0, 2000000}}, now;
    tell("set", timerfd_settime(file, 0, &often, NULL));
    struct pollfd polled = {.fd = file, .events = POLLIN};
    tell("polled", poll(&polled, 1, 10000));
    usleep(20000);
    tell("read", read(file, &due, sizeof due));
    printf("due several times: %d\n", due >= 5);
    int list = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = 7};
    epoll_ctl(list, EPOLL_CTL_ADD, file, &event);
    for (int i = 0; i < 3; i++) {
        tell("a change", epoll_wait(list, &event, 1, 10000));
        if (i < 2)
            tell("read", read(file, &due, sizeof due));
    }
    tell("no change without a read", epoll_wait(list, &event, 1, 20));
    struct itimerspec none = {{0, 0}, {0, 0}};
    tell("stopped", timerfd_settime(file, 0, &none, &now));
    printf("interval %ld\n", (long)now.it_interval.tv_nsec);
    tell("forgotten", read(file, &due, sizeof due));
    tell("a small read", read(file, &due, 4));
    tell("a write", write(file, &due, sizeof due));
    tell("no timer", timerfd_settime(list, 0, &often, NULL));
    tell("flags", timerfd_create(CLOCK_MONOTONIC, 1));
    tell("a clock", timerfd_create(99, 0));
    fcntl(file, F_SETFL, 0);
    clock_gettime(CLOCK_MONOTONIC, &often.it_value);
    often.it_value.tv_nsec = (often.it_value.tv_nsec + 20000000) % 1000000000;
    often.it_value.tv_sec += often.it_value.tv_nsec < 20000000;
    often.it_interval = (struct timespec){0, 0};
    timerfd_settime(file, TFD_TIMER_ABSTIME, &often, NULL);
    tell("waits", read(file, &due, sizeof due));
    printf("due: %d\n", (int)due);
    close(file), close(list);
}

/* Threads set and stop timers of many kinds at once. */
static void *storm(void *unused) {
    for (int i = 0; i < 300; i++) {
        timer_t timer;
        struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2};
        struct itimerspec soon = {.it_value = {0, i * 3000 + 1}, .it_interval = {0, i % 2 ? 1000 : 0}};
        if (timer_create(CLOCK_MONOTONIC, &event, &timer) < 0)
            exit(3);
        timer_settime(timer, 0, &soon, NULL);
        int file = timerfd_create(CLOCK_MONOTONIC, 0);
        timerfd_settime(file, 0, &soon, NULL);
        uint64_t due;
        if (read(file, &due, sizeof due) != sizeof due)
            exit(4);
        close(file);
        timer_delete(timer);
    }
    return unused;
}

int main(int argc, char **argv) {
    (void)argv;
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGALRM), sigaddset(&blocked, SIGUSR1), sigaddset(&blocked, SIGUSR2);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    if (argc > 1) {
        tell("and exec keeps it", alarm(0) > 1000);
        return 0;
    }
    handle(SIGALRM), handle(SIGUSR1), handle(SIGUSR2);
    real();
    relations();
    created();
    files();
    pthread_t all[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&all[i], NULL, storm, NULL);
    for (int i = 0; i < 3; i++)
        pthread_join(all[i], NULL);
    printf("done\n");
    return 0;
}

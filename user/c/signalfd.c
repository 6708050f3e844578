/* signalfd: signals that are read: what they say, waits, poll and epoll, threads and processes, errors.
 * Prints what every Linux prints. */
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
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tell.h"

static void show(const char *what, int fd)
{
    struct signalfd_siginfo info;
    long got = read(fd, &info, sizeof info);
    if (got != sizeof info)
        tell(what, got);
    else
        printf("%s: signal %d, code %d, pid %d, user %d, status %d\n", what, info.ssi_signo, info.ssi_code,
               info.ssi_pid == (unsigned)getpid(), info.ssi_uid, info.ssi_status);
}

static uint64_t mask_of(int first, int second)
{
    return 1UL << (first - 1) | (second ? 1UL << (second - 1) : 0);
}

static int ready(int fd)
{
    struct pollfd one = { .fd = fd, .events = POLLIN };
    return poll(&one, 1, 0) == 1 ? one.revents : 0;
}

static pid_t main_process;

static void *send_one(void *signal)
{
    /* After the other thread sleeps, or before: the result is the same. */
    kill(main_process, (int)(long)signal);
    return 0;
}

static int changed_file, sent_signal, told[2];
static pthread_t changer;

/* Sets the signals of the file when it is told to, and sends one. A thread, since Linux wakes none of another
 * process. */
static void *change(void *unused)
{
    (void)unused;
    char byte;
    if (read(told[0], &byte, 1) != 1)
        return 0;
    uint64_t mask = mask_of(SIGUSR2, 0);
    syscall(SYS_signalfd, changed_file, &mask, 8);
    if (sent_signal)
        kill(main_process, sent_signal);
    return 0;
}

/* Lets a thread do this once the process sleeps, of which a child tells it. */
static void begin_change(int fd, int signal)
{
    changed_file = fd;
    sent_signal = signal;
    pipe(told);
    pthread_create(&changer, 0, change, 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        char path[40], state = 0;
        snprintf(path, sizeof path, "/proc/%d/stat", main_process);
        while (state != 'S') {
            FILE *file = fopen(path, "r");
            if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
                state = 0;
            fclose(file);
        }
        _exit(write(told[1], "x", 1) != 1);
    }
}

static void end_change(void)
{
    pthread_join(changer, 0);
    wait(0);
    close(told[0]);
    close(told[1]);
}

/* Calls that wait take the signals that the file is given meanwhile. */
static void changing(int fd)
{
    uint64_t first = mask_of(SIGUSR1, 0), both = mask_of(SIGUSR1, SIGUSR2);
    syscall(SYS_signalfd, fd, &first, 8);
    begin_change(fd, SIGUSR2);
    show("changed, then sent", fd);
    end_change();

    syscall(SYS_signalfd, fd, &first, 8);
    kill(getpid(), SIGUSR2);
    begin_change(fd, 0);
    show("sent, then changed", fd);
    end_change();

    struct pollfd one = { .fd = fd, .events = POLLIN | POLLRDNORM };
    struct epoll_event event = { .events = EPOLLIN };
    int list = epoll_create1(0);
    epoll_ctl(list, EPOLL_CTL_ADD, fd, &event);
    kill(getpid(), SIGUSR2);
    for (int way = 0; way < 2; way++) {
        syscall(SYS_signalfd, fd, &first, 8);
        begin_change(fd, 0);
        if (way == 0)
            printf("poll %d\n", poll(&one, 1, -1));
        else
            printf("epoll %d\n", epoll_wait(list, &event, 1, -1));
        end_change();
    }
    poll(&one, 1, 0);
    printf("found %x\n", one.revents);
    show("polled", fd);
    close(list);

    syscall(SYS_signalfd, fd, &both, 8);
    event.events = EPOLLIN | EPOLLET;
    list = epoll_create1(0);
    epoll_ctl(list, EPOLL_CTL_ADD, fd, &event);
    kill(getpid(), SIGUSR1);
    printf("edge %d", epoll_wait(list, &event, 1, 0));
    printf(" %d", epoll_wait(list, &event, 1, 0));
    kill(getpid(), SIGUSR1);
    printf(" %d", epoll_wait(list, &event, 1, 0));
    kill(getpid(), SIGUSR2);
    printf(" %d", epoll_wait(list, &event, 1, 0));
    printf(" %d\n", epoll_wait(list, &event, 1, 0));
    show("edge", fd);
    show("edge", fd);
    close(list);
}

static int handled;

static void handle(int signal)
{
    handled = signal;
}

int main(void)
{
    sigset_t set, two;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGALRM);
    sigprocmask(SIG_BLOCK, &set, 0);
    main_process = getpid();

    uint64_t mask = mask_of(SIGUSR1, 0);
    tell("a bad size", syscall(SYS_signalfd4, -1, &mask, 4, 0));
    tell("a bad address", syscall(SYS_signalfd4, -1, 8, 8, 0));
    tell("a bad flag", syscall(SYS_signalfd4, -1, &mask, 8, 1));
    tell("a bad descriptor", syscall(SYS_signalfd4, 99, &mask, 8, 0));
    tell("another file", syscall(SYS_signalfd4, 1, &mask, 8, 0));
    int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    printf("flags %o %d\n", fcntl(fd, F_GETFL) & O_NONBLOCK, fcntl(fd, F_GETFD));
    show("nothing", fd);
    printf("ready %x\n", ready(fd));
    kill(getpid(), SIGUSR1);
    kill(getpid(), SIGUSR1);
    printf("ready %x\n", ready(fd));
    char small[64];
    tell("too little", read(fd, small, sizeof small));
    tell("write", write(fd, small, sizeof small));
    show("once", fd);
    show("no more", fd);
    syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGUSR2);
    kill(getpid(), SIGUSR1);
    struct signalfd_siginfo several[3];
    long got = read(fd, several, sizeof several);
    printf("%ld bytes: %d %d %d %d\n", got, several[0].ssi_signo, several[0].ssi_code, several[1].ssi_signo, several[1].ssi_code);

    mask = mask_of(SIGUSR2, SIGKILL);
    tell("another mask", syscall(SYS_signalfd, fd, &mask, 8) == fd ? 0 : -1);
    kill(getpid(), SIGUSR1);
    show("not that one", fd);
    tell("all again", signalfd(fd, &set, 0) == fd ? 0 : -1);
    show("now", fd);

    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(7);
    struct pollfd one = { .fd = fd, .events = POLLIN };
    printf("poll %d\n", poll(&one, 1, -1));
    struct signalfd_siginfo info;
    got = read(fd, &info, sizeof info);
    printf("child: %ld, %d %d %d %d\n", got, info.ssi_signo, info.ssi_code, info.ssi_pid == (unsigned)child, info.ssi_status);
    waitpid(child, 0, 0);

    fcntl(fd, F_SETFL, 0);
    pthread_t thread;
    pthread_create(&thread, 0, send_one, (void *)(long)SIGUSR2);
    show("waits", fd);
    pthread_join(thread, 0);

    struct itimerspec soon = { .it_value = { 0, 1000000 } };
    timer_t timer;
    struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM, .sigev_value.sival_int = 1234 };
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    timer_settime(timer, 0, &soon, 0);
    got = read(fd, &info, sizeof info);
    printf("timer: %ld, %d %d, value %d\n", got, info.ssi_signo, info.ssi_code, info.ssi_int);
    timer_delete(timer);

    int list = epoll_create1(0);
    struct epoll_event wanted = { .events = EPOLLIN, .data.u32 = 5 }, found = { 0 };
    epoll_ctl(list, EPOLL_CTL_ADD, fd, &wanted);
    printf("epoll %d\n", epoll_wait(list, &found, 1, 0));
    pthread_create(&thread, 0, send_one, (void *)(long)SIGUSR1);
    printf("epoll %d", epoll_wait(list, &found, 1, -1));
    printf(", %d %x\n", found.data.u32, found.events);
    pthread_join(thread, 0);
    show("from epoll", fd);

    changing(fd);

    /* A signal that is handled meanwhile ends the wait, unless the handler restarts it. */
    struct sigaction action = { .sa_handler = handle };
    sigaction(SIGHUP, &action, 0);
    fflush(stdout);
    child = fork();
    if (child == 0) {
        char path[40], state = 0;
        snprintf(path, sizeof path, "/proc/%d/stat", main_process);
        while (state != 'S') {
            FILE *file = fopen(path, "r");
            if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
                state = 0;
            fclose(file);
        }
        kill(main_process, SIGHUP);
        _exit(0);
    }
    mask = mask_of(SIGUSR1, 0);
    syscall(SYS_signalfd, fd, &mask, 8);
    show("interrupted", fd);
    printf("handled %d\n", handled);
    waitpid(child, 0, 0);
    sigemptyset(&two);
    sigpending(&two);
    printf("pending %d\n", sigismember(&two, SIGCHLD));
    close(fd);
    return 0;
}

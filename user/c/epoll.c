/* epoll and eventfd: states, changes, lists in lists, counters, errors. Prints what every Linux prints. */
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
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tell.h"

static int control(int list, int operation, int file, uint32_t events, uint64_t data) {
    struct epoll_event event = {.events = events, .data.u64 = data};
    return epoll_ctl(list, operation, file, &event);
}

static int by_data(const void *a, const void *b) {
    const struct epoll_event *x = a, *y = b;
    return x->data.u64 < y->data.u64 ? -1 : x->data.u64 > y->data.u64;
}

/* Prints the events that are there. */
static void look(const char *what, int list) {
    struct epoll_event events[8];
    int count = epoll_wait(list, events, 8, 0);
    printf("%s:", what);
    if (count < 0)
        printf(" %s", strerror(errno));
    else
        qsort(events, count, sizeof *events, by_data);
    for (int i = 0; i < count; i++)
        printf(" %llx=%x", (unsigned long long)events[i].data.u64, events[i].events);
    printf("\n");
}

static void put(int file, const char *text) {
    if (write(file, text, strlen(text)) != (long)strlen(text))
        exit(1);
}

static void take(int file) {
    char bytes[64];
    if (read(file, bytes, sizeof bytes) < 0)
        exit(1);
}

static void states_and_changes(void) {
    int list = epoll_create1(EPOLL_CLOEXEC), both[2], other[2];
    if (list < 0 || pipe(both) < 0 || pipe(other) < 0)
        exit(1);
    tell("add", control(list, EPOLL_CTL_ADD, both[0], EPOLLIN, 0x1122334455667788));
    tell("again", control(list, EPOLL_CTL_ADD, both[0], EPOLLIN, 2));
    tell("the other end", control(list, EPOLL_CTL_ADD, both[1], EPOLLOUT, 2));
    tell("changes", control(list, EPOLL_CTL_ADD, other[0], EPOLLIN | EPOLLET, 3));
    look("room", list);
    put(both[1], "x");
    put(other[1], "y");
    look("bytes", list);
    look("bytes that were reported", list);
    put(other[1], "z");
    look("more bytes", list);
    tell("once", control(list, EPOLL_CTL_MOD, both[0], EPOLLIN | EPOLLONESHOT, 4));
    tell("no more", control(list, EPOLL_CTL_DEL, both[1], 0, 0));
    look("first", list);
    look("second", list);
    tell("rearmed", control(list, EPOLL_CTL_MOD, both[0], EPOLLIN | EPOLLONESHOT, 5));
    tell("changes rearmed", control(list, EPOLL_CTL_MOD, other[0], EPOLLIN | EPOLLET, 6));
    look("after that", list);
    take(both[0]);
    take(other[0]);
    look("empty", list);
    tell("states", control(list, EPOLL_CTL_MOD, both[0], EPOLLIN, 7));
    close(both[1]);
    close(other[1]);
    look("without writers", list);
    int copy = dup(both[0]);
    close(both[0]);
    look("a copy keeps it open", list);
    tell("by its old number", control(list, EPOLL_CTL_DEL, both[0], 0, 0));
    close(copy);
    look("closed", list);
    struct epoll_event event;
    tell("a time that passes", epoll_wait(list, &event, 1, 20));
    tell("no room", epoll_wait(list, &event, 0, 0));
    tell("no list", epoll_wait(other[0], &event, 1, 0));
    tell("not open", control(list, EPOLL_CTL_ADD, 900, EPOLLIN, 0));
    tell("itself", control(list, EPOLL_CTL_ADD, list, EPOLLIN, 0));
    tell("not in it", control(list, EPOLL_CTL_MOD, other[0], EPOLLIN, 0) + control(list, EPOLL_CTL_DEL, other[0], 0, 0));
    int file = open("/proc/self/stat", O_RDONLY), folder = open("/", O_RDONLY | O_DIRECTORY);
    tell("a folder", control(list, EPOLL_CTL_ADD, folder, EPOLLIN, 0));
    tell("a size", epoll_create(0));
    close(file), close(folder), close(other[0]), close(list);
}

/* A reader that takes all until there is no more sees one change. An end is told without being asked for. */
static void ends_and_echoes(void) {
    int mine = epoll_create1(0), file = eventfd(0, EFD_NONBLOCK), both[2], seen = 0;
    control(mine, EPOLL_CTL_ADD, file, EPOLLIN | EPOLLOUT | EPOLLET, 1);
    struct epoll_event event;
    for (int i = 0; i < 50 && epoll_wait(mine, &event, 1, 0) == 1; i++, seen++) {
        eventfd_t value;
        if (read(file, &value, sizeof value) > 0)
            exit(1);
    }
    printf("changes of nothing: %d\n", seen);
    close(file);
    if (pipe(both) < 0)
        exit(1);
    tell("asks for nothing", control(mine, EPOLL_CTL_ADD, both[0], 0, 2));
    put(both[1], "x");
    look("bytes", mine);
    close(both[1]);
    look("the end", mine);
    close(both[0]), close(mine);
}

static void lists_in_lists(void) {
    int outer = epoll_create1(0), inner = epoll_create1(0), both[2];
    if (pipe(both) < 0)
        exit(1);
    tell("a list", control(outer, EPOLL_CTL_ADD, inner, EPOLLIN, 1));
    tell("each in the other", control(inner, EPOLL_CTL_ADD, outer, EPOLLIN, 1));
    tell("a pipe in the inner one", control(inner, EPOLL_CTL_ADD, both[0], EPOLLIN, 2));
    look("nothing", outer);
    put(both[1], "x");
    look("the inner list", outer);
    look("its pipe", inner);
    struct pollfd polled = {.fd = outer, .events = POLLIN};
    tell("polled", poll(&polled, 1, 0));
    take(both[0]);
    tell("polled again", poll(&polled, 1, 0));
    close(inner);
    put(both[1], "x");
    look("closed", outer);
    close(outer), close(both[0]), close(both[1]);
}

static void many(void) {
    int list = epoll_create1(0), files[32], seen[32] = {0};
    for (int i = 0; i < 32; i++) {
        files[i] = eventfd(1, EFD_NONBLOCK);
        if (control(list, EPOLL_CTL_ADD, files[i], EPOLLIN, i) < 0)
            exit(1);
    }
    for (int i = 0; i < 64; i++) {
        struct epoll_event event;
        if (epoll_wait(list, &event, 1, 0) != 1)
            exit(1);
        seen[event.data.u64]++;
    }
    int least = 64;
    for (int i = 0; i < 32; i++) {
        least = seen[i] < least ? seen[i] : least;
        close(files[i]);
    }
    printf("each of 32 had its turn: %d\n", least > 0);
    look("all closed", list);
    close(list);
}

static void counters(void) {
    int file = eventfd(3, EFD_NONBLOCK), one = eventfd(2, EFD_SEMAPHORE | EFD_NONBLOCK | EFD_CLOEXEC);
    eventfd_t value = 0;
    tell("read", read(file, &value, sizeof value));
    printf("value %llu\n", (unsigned long long)value);
    tell("read again", read(file, &value, sizeof value));
    for (int i = 0; i < 3; i++) {
        value = 99;
        tell("one", read(one, &value, sizeof value));
        printf("value %llu\n", (unsigned long long)value);
    }
    value = UINT64_MAX;
    tell("too much", write(file, &value, sizeof value));
    value = UINT64_MAX - 1;
    tell("most", write(file, &value, sizeof value));
    value = 1;
    tell("no room", write(file, &value, sizeof value));
    struct pollfd polled = {.fd = file, .events = POLLIN | POLLOUT};
    tell("polled", poll(&polled, 1, 0));
    printf("events %x\n", polled.revents);
    char small[4];
    tell("a small read", read(file, small, sizeof small));
    tell("a small write", write(file, small, sizeof small));
    take(file);
    tell("an unknown flag", eventfd(0, 2));
    tell("at an offset", pread(file, &value, sizeof value, 0));
    close(file), close(one);
}

static int list, wakes[4], answers;

static void *wait_and_answer(void *unused) {
    struct epoll_event event;
    for (int left = 200; left > 0; left--) {
        if (epoll_wait(list, &event, 1, -1) != 1)
            exit(1);
        eventfd_t value;
        if (read(wakes[event.data.u64], &value, sizeof value) == sizeof value) {
            if (eventfd_write(answers, value) < 0)
                exit(1);
        } else {
            left++; /* another thread was faster */
        }
        if (event.data.u64 == 3)
            return NULL;
    }
    return unused;
}

/* Threads wait for one list, and each event is answered once. */
static void threads(void) {
    list = epoll_create1(0);
    answers = eventfd(0, 0);
    for (int i = 0; i < 4; i++) {
        wakes[i] = eventfd(0, EFD_SEMAPHORE | EFD_NONBLOCK);
        if (control(list, EPOLL_CTL_ADD, wakes[i], i == 1 ? EPOLLIN | EPOLLET : EPOLLIN, i) < 0)
            exit(1);
    }
    pthread_t all[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&all[i], NULL, wait_and_answer, NULL);
    unsigned long sum = 0;
    for (int i = 0; i < 100; i++) {
        eventfd_t value;
        if (eventfd_write(wakes[i % 3], 1) < 0 || eventfd_read(answers, &value) < 0)
            exit(1);
        sum += value;
    }
    printf("answered: %lu\n", sum);
    eventfd_write(wakes[3], 1000);
    for (int i = 0; i < 3; i++)
        pthread_join(all[i], NULL);
    close(list);
}

static void on_signal(int signal) {
    (void)signal;
}

static void signals(void) {
    int mine = epoll_create1(0);
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, NULL);
    sigset_t blocked, none;
    sigemptyset(&none);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    kill(getpid(), SIGUSR1);
    struct epoll_event event;
    tell("blocked", epoll_wait(mine, &event, 1, 10));
    tell("not blocked", epoll_pwait(mine, &event, 1, 10000, &none));
    sigprocmask(SIG_SETMASK, NULL, &none);
    printf("still blocked: %d\n", sigismember(&none, SIGUSR1));
    close(mine);
}

int main(void) {
    states_and_changes();
    ends_and_echoes();
    lists_in_lists();
    many();
    counters();
    threads();
    signals();
    printf("done\n");
    return 0;
}

/* Threads get their own signals only: those that come after others, and those among many. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

enum { ROUNDS = 50, MANY = 120 };

static int send(int thread, int signal)
{
    return syscall(SYS_tgkill, getpid(), thread, signal);
}

static int is_pending(int signal)
{
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, signal);
}

static int has_blocked(int signal)
{
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    return sigismember(&mask, signal);
}

static void *join(pthread_t thread)
{
    void *result;
    pthread_join(thread, &result);
    return result;
}

static void *start_and_join(void *(*run)(void *))
{
    pthread_t thread;
    pthread_create(&thread, NULL, run, NULL);
    return join(thread);
}

/* Ends with signals pending, others blocked, and a stack for handlers. */
static void *leaves_all(void *nothing)
{
    stack_t stack = { .ss_sp = malloc(65536), .ss_size = 65536 };
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGUSR2), sigaddset(&set, SIGRTMIN);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    sigaltstack(&stack, NULL);
    send(gettid(), SIGUSR1), send(gettid(), SIGUSR2), send(gettid(), SIGRTMIN);
    return nothing;
}

static void *finds_nothing(void *nothing)
{
    (void)nothing;
    stack_t stack;
    sigaltstack(NULL, &stack);
    int finds = is_pending(SIGUSR1) || is_pending(SIGUSR2) || is_pending(SIGRTMIN);
    int has = has_blocked(SIGUSR2) || has_blocked(SIGRTMIN) || !has_blocked(SIGUSR1);
    return (void *)(long)(!finds && !has && stack.ss_flags == SS_DISABLE);
}

static void later(void)
{
    int good = 1;
    for (int round = 0; round < ROUNDS; round++) {
        start_and_join(leaves_all);
        good &= start_and_join(finds_nothing) != NULL;
    }
    check("a later thread finds nothing", good);
}

static int victim;
static int over;

static void *ends(void *nothing)
{
    __atomic_store_n(&victim, gettid(), __ATOMIC_SEQ_CST);
    return nothing;
}

/* Sends to threads that end. */
static void *sends(void *nothing)
{
    while (!__atomic_load_n(&over, __ATOMIC_SEQ_CST)) {
        int thread = __atomic_load_n(&victim, __ATOMIC_SEQ_CST);
        if (thread && send(thread, SIGUSR1) == -1 && errno != ESRCH)
            return "";
    }
    return nothing;
}

/* A signal that comes as its thread ends goes to no other. */
static void ending(void)
{
    pthread_t sender;
    int good = 1;
    pthread_create(&sender, NULL, sends, NULL);
    for (int round = 0; round < 4 * ROUNDS; round++) {
        start_and_join(ends);
        good &= start_and_join(finds_nothing) != NULL;
    }
    __atomic_store_n(&over, 1, __ATOMIC_SEQ_CST);
    check("signals to threads that end", good && join(sender) == NULL);
}

static pthread_barrier_t barrier;
static int threads[MANY];

static void *waits(void *place)
{
    sigset_t set;
    int signal = 0;
    sigemptyset(&set), sigaddset(&set, SIGUSR1);
    threads[(long)place] = gettid();
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    int good = is_pending(SIGUSR1) && sigwait(&set, &signal) == 0 && signal == SIGUSR1 && !is_pending(SIGUSR1);
    pthread_barrier_wait(&barrier);
    return (void *)(long)good;
}

/* Returns whether the thread is gone. A join is over a moment before the kernel forgets the thread. */
static int gone(int thread)
{
    while (send(thread, SIGUSR1) == 0)
        sched_yield();
    return errno == ESRCH;
}

static void many(void)
{
    pthread_t all[MANY];
    pthread_attr_t small;
    int good = 1, sent = 1;
    pthread_attr_init(&small), pthread_attr_setstacksize(&small, 65536);
    pthread_barrier_init(&barrier, NULL, MANY + 1);
    for (long place = 0; place < MANY; place++)
        pthread_create(&all[place], &small, waits, (void *)place);
    pthread_barrier_wait(&barrier);
    for (int place = 0; place < MANY; place++)
        sent &= send(threads[place], SIGUSR1) == 0 && send(threads[place], SIGUSR1) == 0;
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    for (int place = 0; place < MANY; place++)
        good &= join(all[place]) != NULL;
    check("each of many gets its own", good && sent && !is_pending(SIGUSR1));
    check("none is there any more", gone(threads[0]));
}

static void flags(void)
{
    struct { long handler; unsigned long flags; long restorer; unsigned long mask; } action = { 1, 0x400ul | 1ul << 40, 0, 0 }, old;
    syscall(SYS_rt_sigaction, SIGUSR2, &action, NULL, 8);
    syscall(SYS_rt_sigaction, SIGUSR2, NULL, &old, 8);
    check("unknown flags are cleared", old.handler == 1 && old.flags == 0);
}

int main(void)
{
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    later();
    ending();
    many();
    flags();
    return failures;
}

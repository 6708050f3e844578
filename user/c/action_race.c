/* Threads set the action for a signal at the same moment: one ignores it, which discards the pending one, and
 * the other one handles it, and then sends itself the signal, which it blocks.
 *
 * action_race ROUNDS THREADS: exits with 0 if no signal was lost that was sent after the action that ignores.
 */
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
#include <time.h>
#include <unistd.h>

#include "must.h"

static atomic_int turn, ready, over;
static long rounds;

static void handle(int signal) { (void)signal; }

static void set(void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler};
    must("sigaction", sigaction(SIGUSR1, &action, NULL) == 0);
}

static int is_pending(void)
{
    sigset_t pending;
    must("sigpending", sigpending(&pending) == 0);
    return sigismember(&pending, SIGUSR1);
}

/* The other threads' states lie between those of the two. */
static void *sleeper(void *unused)
{
    (void)unused;
    pause();
    return NULL;
}

static void *sender(void *unused)
{
    long kept = 0;
    (void)unused;
    for (int round = 1; round <= rounds; round++) {
        struct sigaction now;
        sigset_t all;
        const struct timespec none = {0};
        atomic_fetch_add(&ready, 1);
        while (atomic_load(&turn) != round)
            ;
        /* The other thread begins to ignore it now, a little before the rest of this or a little after. */
        for (volatile int wait = 0; wait < round % 64 * 32; wait++)
            ;
        set(handle);
        must("tgkill", syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGUSR1) == 0);
        while (atomic_load(&over) != round)
            sched_yield();
        must("the action", sigaction(SIGUSR1, NULL, &now) == 0);
        if (now.sa_handler == handle) {
            must("a signal that is sent later", is_pending());
            kept++;
        }
        sigemptyset(&all);
        sigaddset(&all, SIGUSR1);
        while (sigtimedwait(&all, NULL, &none) > 0)
            ;
    }
    must("both orders", rounds < 1000 || (kept > 0 && kept < rounds));
    return NULL;
}

int main(int argc, char **argv)
{
    int threads = argc > 2 ? atoi(argv[2]) : 200;
    pthread_attr_t small;
    pthread_t thread;
    sigset_t blocked;
    rounds = argc > 1 ? atol(argv[1]) : 1000;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    must("block", pthread_sigmask(SIG_BLOCK, &blocked, NULL) == 0);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    for (int i = 0; i < threads; i++)
        must("pthread_create", pthread_create(&thread, &small, sleeper, NULL) == 0);
    must("pthread_create", pthread_create(&thread, &small, sender, NULL) == 0);
    for (int round = 1; round <= rounds; round++) {
        while (atomic_load(&ready) != round)
            sched_yield();
        atomic_store(&turn, round);
        set(SIG_IGN);
        atomic_store(&over, round);
    }
    must("pthread_join", pthread_join(thread, NULL) == 0);
    printf("action_race: done\n");
    return 0;
}

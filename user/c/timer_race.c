/* A thread deletes a timer while another sets it. A timer that is gone must not be due any more. Prints what
 * every Linux prints. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long rounds;
/* The timer of this round, and the rounds that each thread has begun. */
static atomic_long timer, begun, set;
static struct itimerspec *often;

/* Sets each timer. The setting is on a page that is not there, so that the call takes a while between its
 * look for the timer and the change. */
static void *set_all(void *unused) {
    for (long round = 1; round <= rounds; round++) {
        while (begun < round)
            sched_yield();
        madvise(often, 4096, MADV_DONTNEED);
        set = round;
        syscall(SYS_timer_settime, (int)timer, 0, often, NULL);
    }
    return unused;
}

static void wait_a_little(long steps) {
    for (volatile long step = 0; step < steps; step++)
        ;
}

int main(int count, char **words) {
    rounds = count > 1 ? atol(words[1]) : 2000;
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &wanted, NULL);
    int file = memfd_create("setting", 0);
    if (ftruncate(file, 4096) || (often = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)) == MAP_FAILED)
        return 1;
    *often = (struct itimerspec){ { 0, 1000000 }, { 0, 1000000 } };
    pthread_t thread;
    pthread_create(&thread, NULL, set_all, NULL);
    for (long round = 1; round <= rounds; round++) {
        struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN };
        int made;
        if (syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &made))
            return 1;
        timer = made;
        begun = round;
        while (set < round)
            sched_yield();
        wait_a_little(round * 37 % 600);
        syscall(SYS_timer_delete, made);
    }
    pthread_join(thread, NULL);
    /* Those that were due before their timers went. */
    struct timespec none = { 0, 0 }, long_after = { 0, 50000000 };
    while (sigtimedwait(&wanted, NULL, &none) > 0)
        ;
    printf("a signal of a timer that is gone: %s\n", sigtimedwait(&wanted, NULL, &long_after) > 0 ? "yes" : "no");
    return 0;
}

/* Clocks and sleeping: time goes on, never backwards, and a sleep lasts at least as long as was asked for.
 *
 * No upper bound is checked: a busy host may make any sleep longer. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static long long now(clockid_t clock)
{
    struct timespec time;
    if (clock_gettime(clock, &time))
        return -1;
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static int never_backwards(clockid_t clock)
{
    long long last = now(clock), next;
    for (int i = 0; i < 100000; i++, last = next)
        if ((next = now(clock)) < last)
            return 0;
    return last > 0;
}

static void *watch(void *arg)
{
    (void)arg;
    return (void *)(long)never_backwards(CLOCK_MONOTONIC);
}

static int never_backwards_on_all_cores(void)
{
    pthread_t ids[4];
    void *good;
    long sum = 0;
    for (int i = 0; i < 4; i++)
        pthread_create(&ids[i], NULL, watch, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(ids[i], &good), sum += (long)good;
    return sum == 4;
}

static int sleeps_long_enough(void)
{
    const long asked = 30 * 1000 * 1000;
    long long start = now(CLOCK_MONOTONIC);
    nanosleep(&(struct timespec){0, asked}, NULL);
    return now(CLOCK_MONOTONIC) - start >= asked;
}

static int sleeps_until(void)
{
    long long end = now(CLOCK_MONOTONIC) + 30 * 1000 * 1000;
    struct timespec until = {end / 1000000000, end % 1000000000};
    return clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == 0 && now(CLOCK_MONOTONIC) >= end;
}

int main(void)
{
    check("monotonic", never_backwards(CLOCK_MONOTONIC));
    check("monotonic on all cores", never_backwards_on_all_cores());
    check("wall clock is after 2020", time(NULL) > 1577836800);
    check("process time grows", now(CLOCK_PROCESS_CPUTIME_ID) > 0);
    check("nanosleep", sleeps_long_enough());
    check("clock_nanosleep", sleeps_until());
    check("past is no sleep", clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &(struct timespec){0, 1}, NULL) == 0);
    check("bad time", nanosleep(&(struct timespec){0, 1000000000}, NULL) == -1 && errno == EINVAL);
    check("bad clock", clock_gettime(12345, &(struct timespec){0}) == -1 && errno == EINVAL);
    printf("time: %s\n", failures ? "FAILED" : "done");
    return failures != 0;
}

/* The clock never goes back, whichever CPU reads it. A thread visits the CPUs in turn and reads it on each.
 *
 * clocks CPUS ROUNDS: exits with 0 if it never went back. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

static void go_to(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) {
        perror("sched_setaffinity");
        exit(1);
    }
}

int main(int count, char **words)
{
    int cpus = count > 1 ? atoi(words[1]) : 1, rounds = count > 2 ? atoi(words[2]) : 1;
    go_to(0);
    long start = now(), last = start;
    for (int visit = 0; visit < cpus * rounds; visit++) {
        go_to(visit % cpus);
        long time = now();
        if (time < last) {
            printf("clocks: CPU %d is %ld ns behind the one before\n", visit % cpus, last - time);
            return 1;
        }
        last = time;
    }
    go_to(0);
    long back = now();
    if (back < last) {
        printf("clocks: CPU 0 is %ld ns behind\n", last - back);
        return 1;
    }
    printf("clocks: done\n");
    return 0;
}

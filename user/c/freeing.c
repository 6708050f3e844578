/* While the pages of removed files are freed, other tasks of the CPU run. One process removes large files and
 * computes. Two others on the same CPU sleep for a moment again and again, and check how late they wake. One
 * of them may have to free the pages, the other one does not wait for it.
 *
 * freeing FILES: prints how late the luckier one woke at most, in nanoseconds, which under `--accel count`
 * are instructions. It waits for a slice of the CPU of each other process. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SIZE (2L << 20)
#define NAP 20000L
#define WHILE 100000000L

/* Whether each sleeper has begun, and how late it woke at most since the files were removed. */
static volatile struct {
    long removed, has_begun[2], latest[2];
} *shared;

static long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

static void sleep_again_and_again(int which)
{
    struct timespec time = { 0, NAP };
    for (;;) {
        long before = now();
        nanosleep(&time, NULL);
        shared->has_begun[which] = 1;
        long late = now() - before - NAP;
        if (shared->removed && late > shared->latest[which])
            shared->latest[which] = late;
    }
}

static const char *name(int file)
{
    static char name[32];
    snprintf(name, sizeof name, "/tmp/freeing%d", file);
    return name;
}

int main(int count, char **words)
{
    int files = count > 1 ? atoi(words[1]) : 0;
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    sched_setaffinity(0, sizeof first, &first);
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < files; i++) {
        int file = open(name(i), O_CREAT | O_RDWR, 0600);
        if (file < 0 || fallocate(file, 0, 0, SIZE) != 0 || close(file) != 0) {
            perror("freeing: a file");
            return 1;
        }
    }
    pid_t sleepers[2];
    for (int i = 0; i < 2; i++) {
        sleepers[i] = fork();
        if (sleepers[i] == 0)
            sleep_again_and_again(i);
    }
    while (!shared->has_begun[0] || !shared->has_begun[1])
        sched_yield();
    shared->removed = 1;
    for (int i = 0; i < files; i++)
        unlink(name(i));
    for (long end = now() + WHILE; now() < end;) {}
    for (int i = 0; i < 2; i++) {
        kill(sleepers[i], SIGKILL);
        waitpid(sleepers[i], NULL, 0);
    }
    printf("late %ld\n", shared->latest[0] < shared->latest[1] ? shared->latest[0] : shared->latest[1]);
    return 0;
}

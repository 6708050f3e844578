/* Programs that make processes or threads without end. The first process kills them all. Soon all are gone,
 * and their memory is free.
 *
 * bombs SECONDS KIND...: for each KIND, starts that bomb and waits until it was refused memory often or has
 * been killed for taking all memory. Then it kills all other processes, waits for them, and uses most of the
 * memory that was free before. Says WRONG if that takes more than SECONDS, which under `--accel count` are
 * billions of instructions. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "sleepers.h"

#define PAGE 4096L
#define MIB (1L << 20)
/* Refusals after which the machine counts as full. FULL is the limit in seconds where it is slow. */
#define REFUSALS 20
#define FULL 5
/* The part of the memory that was free before that must be free again. */
#define PART(free) ((free) / 4 * 3)

/* State that all processes see, even after exec: a file without a name, always under the same number. */
#define SHARED 100
static volatile struct {
    long made, refused, odd;
} *shared;

static void see_shared(void)
{
    shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, SHARED, 0);
    if (shared == MAP_FAILED)
        exit(3);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void nap(long ms)
{
    struct timespec time = { ms / 1000, ms % 1000 * 1000000 };
    nanosleep(&time, NULL);
}

static void count(volatile long *counter)
{
    __atomic_add_fetch(counter, 1, __ATOMIC_RELAXED);
}

/* Counts the result of a call that makes a process or thread, and returns it. */
static long said(long child)
{
    if (child > 0)
        count(&shared->made);
    else if (child < 0 && (errno == EAGAIN || errno == ENOMEM))
        count(&shared->refused);
    else if (child < 0)
        count(&shared->odd);
    return child;
}

/* All processes fork all the time. */
static void forks(void)
{
    for (;;)
        said(fork());
}

/* As `forks`, in sessions of their own, with every signal ignored or blocked that can be. */
static void defies(void)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    for (int number = 1; number < 65; number++)
        signal(number, SIG_IGN);
    for (;;)
        if (said(fork()) == 0)
            setsid();
}

/* Each process sleeps until the child in its memory has gone, which never happens. */
static void vforks(void)
{
    for (;;)
        if (said(vfork()) < 0)
            nap(1);
}

/* Makes sleeping threads, as many as one process may have, and then another process. */
static void threads(void)
{
    for (;;) {
        while (said(start_sleeper()) > 0)
            ;
        if (said(fork()) < 0)
            nap(1);
    }
}

/* A thread that forks. */
static int multiplies(void *nothing)
{
    (void)nothing;
    forks();
    return 0;
}

static void threads_fork(void)
{
    for (int made = 0; made < 8; made++) {
        char *stack = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (stack != MAP_FAILED)
            said(start_thread(multiplies, stack + 4 * PAGE));
    }
    forks();
}

/* Each process becomes another program at once, the same one. */
static void execs(void)
{
    char *arguments[] = { "bombs", "execs", NULL };
    for (;;)
        if (said(fork()) == 0)
            execv("/proc/self/exe", arguments);
}

/* Each process has page tables all over its memory. */
static void tables(void)
{
    for (;;) {
        char *at = mmap(NULL, 64L << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        for (long gib = 0; at != MAP_FAILED && gib < 64; gib++)
            at[gib << 30] = 1;
        said(fork());
    }
}

static const struct {
    const char *name;
    void (*run)(void);
} kinds[] = {
    { "forks", forks },     { "defies", defies },   { "vforks", vforks },
    { "threads", threads }, { "threads-fork", threads_fork },
    { "execs", execs },     { "tables", tables },
};

static void run(const char *name)
{
    for (unsigned kind = 0; kind < sizeof kinds / sizeof *kinds; kind++)
        if (strcmp(kinds[kind].name, name) == 0)
            kinds[kind].run();
    exit(2);
}

static long unused(void)
{
    struct sysinfo info;
    sysinfo(&info);
    return (long)info.freeram;
}

/* Returns whether a child can have `bytes` bytes of memory. */
static int is_there(long bytes)
{
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (long done = 0; at != MAP_FAILED && done < bytes; done += PAGE)
            at[done] = 1;
        _exit(at == MAP_FAILED);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

/* Returns the number of threads of all processes. */
static int living(void)
{
    struct sysinfo info;
    sysinfo(&info);
    return info.procs;
}

/* Waits until the machine is full, no other thread is left (all were killed for memory), or FULL seconds have
 * passed. */
static void wait_until_full(void)
{
    double start = now();
    do
        nap(10);
    while (shared->refused < REFUSALS && living() > 1 && now() - start < FULL);
}

static void try(const char *name, double seconds)
{
    long before = unused();
    memset((void *)shared, 0, sizeof *shared);
    pid_t bomb = fork();
    if (bomb == 0)
        run(name);
    double began = now();
    wait_until_full();
    double full = now();
    kill(-1, SIGKILL);
    long waited = 0;
    while (waitpid(-1, NULL, 0) > 0)
        waited++;
    int lone = errno == ECHILD;
    /* Orphans that could not be adopted for lack of memory have no parent to wait for them. */
    while (living() > 1 && now() - full < seconds)
        nap(10);
    double gone = now();
    fprintf(stderr, "%s: made %ld, refused %ld, waited for %ld; full after %.2f s, gone after %.2f s; %ld of %ld KiB free\n",
            name, shared->made, shared->refused, waited, full - began, gone - full, unused() / 1024, before / 1024);
    printf("%s, ", name);
    check("refused for memory only", shared->odd == 0);
    printf("%s, ", name);
    check("all are gone", lone && gone - full < seconds);
    printf("%s, ", name);
    check("and so is what they had", is_there(PART(before)));
}

int main(int number, char **arguments)
{
    if (number == 2) {
        see_shared();
        run(arguments[1]);
    }
    int file = memfd_create("bombs", 0);
    check("a file to share", ftruncate(file, PAGE) == 0 && dup2(file, SHARED) == SHARED);
    see_shared();
    for (int at = 2; at < number; at++)
        try(arguments[at], atof(arguments[1]));
    return failures != 0;
}

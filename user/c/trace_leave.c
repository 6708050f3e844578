/* Threads trace a process that makes children, and leave.
 *
 * trace_leave ROUNDS: prints "trace_leave: done" if the process goes on each time. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_long *turns;
static pid_t maker;

static void must(const char *part, int good)
{
    if (good)
        return;
    printf("%s: WRONG, %s\n", part, strerror(errno));
    fflush(stdout);
    if (maker > 0)
        kill(maker, SIGKILL);
    _exit(1);
}

/* Makes children, and waits for the end of each. */
static void make(void)
{
    for (;;) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(0);
        while (pid > 0 && waitpid(pid, NULL, 0) != pid)
            ;
        atomic_fetch_add(turns, 1);
    }
}

static void *tracer(void *round)
{
    ptrace(PTRACE_SEIZE, maker, 0, PTRACE_O_TRACEFORK);
    /* The maker is a little further in its call each time. */
    for (volatile long wait = (long)round % 512 * 16; wait > 0; wait--)
        ;
    return NULL;
}

/* Waits until the maker goes on. */
static void await_turn(void)
{
    long before = atomic_load(turns);
    while (atomic_load(turns) <= before + 1)
        sched_yield();
}

int main(int argc, char **argv)
{
    long rounds = argc > 1 ? atol(argv[1]) : 1000;
    turns = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must("room", turns != MAP_FAILED);
    maker = fork();
    must("fork", maker >= 0);
    if (maker == 0)
        make();
    for (long round = 0; round < rounds; round++) {
        pthread_t thread;
        must("a thread", pthread_create(&thread, NULL, tracer, (void *)round) == 0);
        must("its end", pthread_join(thread, NULL) == 0);
        await_turn();
    }
    kill(maker, SIGKILL);
    must("its end", waitpid(maker, NULL, 0) == maker);
    printf("trace_leave: done\n");
    return 0;
}

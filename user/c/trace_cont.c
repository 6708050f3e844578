/* A process is traced and let go again and again, while others send it SIGCONT.
 *
 * trace_cont ROUNDS: prints "trace_cont: done" if it goes on each time that it is let go. */
#define _GNU_SOURCE
#include <errno.h>
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

enum { SENDERS = 3 };

static atomic_long *turns;
static pid_t children[SENDERS + 1];

static void must(const char *part, int good)
{
    if (good)
        return;
    printf("%s: WRONG, %s\n", part, strerror(errno));
    fflush(stdout);
    for (int i = 0; i <= SENDERS; i++)
        if (children[i] > 0)
            kill(children[i], SIGKILL);
    _exit(1);
}

static pid_t forked(void)
{
    pid_t pid = fork();
    must("fork", pid >= 0);
    return pid;
}

/* Waits until the traced process goes on. */
static void await_turn(void)
{
    long before = atomic_load(turns);
    while (atomic_load(turns) == before)
        sched_yield();
}

int main(int argc, char **argv)
{
    long rounds = argc > 1 ? atol(argv[1]) : 1000;
    turns = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must("room", turns != MAP_FAILED);
    pid_t victim = children[0] = forked();
    while (victim == 0)
        atomic_fetch_add(turns, 1);
    for (int i = 1; i <= SENDERS; i++) {
        children[i] = forked();
        while (children[i] == 0)
            kill(victim, SIGCONT);
    }
    for (long round = 0; round < rounds; round++) {
        int status;
        must("seize", ptrace(PTRACE_SEIZE, victim, 0, 0) == 0 && ptrace(PTRACE_INTERRUPT, victim, 0, 0) == 0);
        must("a stop", waitpid(victim, &status, __WALL) == victim && WIFSTOPPED(status));
        must("detach", ptrace(PTRACE_DETACH, victim, 0, 0) == 0);
        await_turn();
    }
    for (int i = 0; i <= SENDERS; i++) {
        kill(children[i], SIGKILL);
        must("an end", waitpid(children[i], NULL, 0) == children[i]);
    }
    printf("trace_cont: done\n");
    return 0;
}

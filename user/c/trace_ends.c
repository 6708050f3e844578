/* A process whose threads are all traced ends, or runs another program, while its main thread leaves at the
 * same moment.
 *
 * trace_ends ROUNDS: prints "trace_ends: done" if its tracer has nothing to wait for after each end. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "must.h"

enum { THREADS = 3 };

static atomic_int here, go;
static int kind;

static void *leave(void *number)
{
    atomic_fetch_add(&here, 1);
    while (!atomic_load(&go))
        ;
    if (kind == 0 && number == (void *)1)
        execl("/proc/self/exe", "trace_ends", NULL);
    if (kind == 1 && number == (void *)1)
        _exit(0);
    syscall(SYS_exit, 0);
    return NULL;
}

static void child(int begin)
{
    char byte;
    pthread_t thread;
    must("begin", read(begin, &byte, 1) == 1);
    for (long i = 1; i <= THREADS; i++)
        must("a thread", pthread_create(&thread, NULL, leave, (void *)i) == 0);
    while (atomic_load(&here) != THREADS)
        ;
    atomic_store(&go, 1);
    leave(NULL);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 0;
    for (long round = 0; round < atol(argv[1]); round++) {
        int begin[2], status = 0;
        kind = round % 3;
        must("pipe", pipe(begin) == 0);
        pid_t pid = fork(), found;
        must("fork", pid >= 0);
        if (pid == 0)
            child(begin[0]);
        must("seize", ptrace(PTRACE_SEIZE, pid, 0, PTRACE_O_TRACECLONE) == 0);
        must("go", write(begin[1], "", 1) == 1);
        close(begin[0]);
        close(begin[1]);
        do {
            found = waitpid(-1, &status, __WALL);
            must("news", found > 0);
            if (WIFSTOPPED(status))
                ptrace(PTRACE_CONT, found, 0, status >> 16 ? 0 : WSTOPSIG(status));
        } while (found != pid || WIFSTOPPED(status));
        /* The ends of other threads may come a little later. */
        while ((found = waitpid(-1, &status, __WALL)) > 0)
            ;
        must("nothing is left", found == -1 && errno == ECHILD);
    }
    printf("trace_ends: done\n");
    return 0;
}

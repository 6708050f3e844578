/* A child takes all memory. It alone is killed, a small one beside it goes on, and the memory of the large
 * one is free again. The same happens to a child whose memory is in an unmapped file without a name, when
 * another child needs memory, or when the kernel needs it to write for the other in a call.
 *
 * oom MEGABYTES: memory of the machine. Exits with 0 if everything is as it should be. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define PAGE 4096L
#define ROUNDS 3

static char *take(long pages)
{
    return mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* Touches more memory than there is. */
static void take_all(long pages)
{
    char *at = take(2 * pages);
    for (long page = 0; page < 2 * pages; page++)
        at[page * PAGE] = 1;
    _exit(0);
}

/* Works in a little memory until it is told to end. */
static void work(int told)
{
    char *at = take(16), end;
    for (int round = 0; read(told, &end, 1) != 1; round++) {
        memset(at, round, 16 * PAGE);
        if (at[15 * PAGE] != (char)round)
            _exit(1);
        madvise(at, 16 * PAGE, MADV_DONTNEED);
    }
    _exit(0);
}

static pid_t start(void (*body)(long), long argument)
{
    pid_t child = fork();
    if (child == 0)
        body(argument);
    if (child < 0)
        check("starts", 0), exit(1);
    return child;
}

/* Number of pages that the modest child wants, and their mapping, which is made while there is memory to note
 * it. */
static long wanted;
static char *promised;
/* A flag in shared memory, which needs no more memory to be set. */
static volatile int *full;

/* Fills a file that has no name, sets `full`, and waits to be killed. */
static void hoard(long nothing)
{
    (void)nothing;
    static char part[64 * 1024];
    int file = (int)syscall(SYS_memfd_create, "hoard", 0);
    memset(part, 1, sizeof part);
    while (write(file, part, sizeof part) > 0)
        ;
    *full = 1;
    for (;;)
        pause();
}

static int write_there(char *at)
{
    *at = 1;
    return 1;
}

static int zeroes;

/* Makes the kernel write there. */
static int read_there(char *at)
{
    return pread(zeroes, at, 1, 0) == 1;
}

/* Makes the kernel write to the memory of a process, as it would to another's. */
static int send_there(char *at)
{
    char one = 1;
    struct iovec from = {&one, 1}, to = {at, 1};
    return process_vm_writev(getpid(), &from, 1, &to, 1, 0) == 1;
}

static int (*const uses[])(char *) = {write_there, read_there, send_there};

/* Uses its mapping in this way once all memory is taken. */
static void want(long way)
{
    while (!*full)
        sched_yield();
    for (long page = 0; page < wanted; page++)
        if (!uses[way](promised + page * PAGE))
            _exit(2);
    _exit(0);
}

static void work_until(long told)
{
    work((int)told);
}

/* Returns the number of free pages. */
static long unused(void)
{
    struct sysinfo now;
    sysinfo(&now);
    return (long)(now.freeram * now.mem_unit / PAGE);
}

int main(int count, char **arguments)
{
    long pages = count > 1 ? atol(arguments[1]) * 256 : 0;
    int ends[2], status = 0;
    setvbuf(stdout, NULL, _IONBF, 0);
    check("a pipe", pipe2(ends, 04000 /* O_NONBLOCK */) == 0);
    pid_t small = start(work_until, ends[0]);
    for (int round = 0; round < ROUNDS; round++) {
        pid_t large = start(take_all, pages);
        check("waits", waitpid(large, &status, 0) == large);
        check("the large one is killed", WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    full = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    zeroes = open("/dev/zero", O_RDONLY);
    wanted = pages / 8;
    promised = take(wanted);
    long before = unused();
    for (int way = 0; way < ROUNDS; way++) {
        *full = 0;
        /* The memory of the last hoarder comes back after a while. Otherwise this one would find little, and
         * the modest child the rest. */
        while (unused() + pages / 32 < before)
            sched_yield();
        pid_t modest = start(want, way), hoarder = start(hoard, 0);
        check("waits", waitpid(hoarder, &status, 0) == hoarder);
        check("the hoarder is killed", WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        /* The hoarder may have been killed for another process's sake. */
        *full = 1;
        check("the modest one is well", waitpid(modest, &status, 0) == modest && status == 0);
    }
    check("the small one is told", write(ends[1], "", 1) == 1);
    check("and was well", waitpid(small, &status, 0) == small && status == 0);
    char *at = take(pages / 2);
    for (long page = 0; page < pages / 2; page++)
        at[page * PAGE] = 1;
    check("half of all is there", at[(pages / 2 - 1) * PAGE] == 1);
    return failures != 0;
}

/* A process with many sleeping threads has little memory of its own, but the kernel has a stack for each of
 * them. When memory runs out, this process is killed before others that have more pages, and all its memory
 * is free for the process that needs it. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "sleepers.h"

enum { PAGE = 4096, THREADS = 1500, BYSTANDER = 2048, NEEDED = 6144 };

static volatile long *shared;

static void touch(long pages)
{
    char *at = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(at, pages * PAGE, MADV_NOHUGEPAGE);
    for (long page = 0; page < pages; page++)
        at[page * PAGE] = 1;
}

static void crowd(void)
{
    for (long made = 0; made < THREADS; made++)
        if (start_sleeper() < 0)
            _exit(1);
    *shared = 1;
    sleeps(NULL);
}

static void stand_by(void)
{
    touch(BYSTANDER);
    *shared = 2;
    sleeps(NULL);
}

static void need(void)
{
    touch(NEEDED);
    _exit(0);
}

static pid_t start(void (*body)(void))
{
    pid_t child = fork();
    if (child == 0)
        body();
    return child;
}

static void wait_for(long news)
{
    while (*shared != news)
        usleep(1000);
}

int main(void)
{
    int status = 0;
    shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t many = start(crowd);
    wait_for(1);
    pid_t bystander = start(stand_by);
    wait_for(2);
    pid_t needy = start(need);
    check("who needs memory has it", waitpid(needy, &status, 0) == needy && status == 0);
    check("the crowd is killed", waitpid(many, &status, 0) == many && status == SIGKILL);
    check("the bystander is not", waitpid(bystander, &status, WNOHANG) == 0);
    kill(bystander, SIGKILL);
    check("until now", waitpid(bystander, &status, 0) == bystander && status == SIGKILL);
    return failures;
}

/* A child takes all memory: it alone is killed, a small one beside it goes on, and what the large one had is there again.
 *
 * oom MEGABYTES: of the machine. Exits with 0 if everything is as it should be. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096L
#define ROUNDS 3

static int failures;

static void check(const char *part, int good)
{
    printf("%s: %s\n", part, good ? "ok" : "WRONG");
    failures += !good;
}

static char *take(long pages)
{
    return mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* Touches more than there is. */
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
    return child;
}

static void work_until(long told)
{
    work((int)told);
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
    check("the small one is told", write(ends[1], "", 1) == 1);
    check("and was well", waitpid(small, &status, 0) == small && status == 0);
    char *at = take(pages / 2);
    for (long page = 0; page < pages / 2; page++)
        at[page * PAGE] = 1;
    check("half of all is there", at[(pages / 2 - 1) * PAGE] == 1);
    return failures != 0;
}

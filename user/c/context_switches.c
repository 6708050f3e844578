/* Processes take turns. Each has pages of its own at the addresses that the others use too, and pages of one
 * file. Whatever a core keeps of one process while it runs the others, each process finds what it wrote, and
 * zeroes in new pages.
 *
 * context_switches PROCESSES ROUNDS: exits with 0 if everything was as it must be. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 40, MAX_PROCESSES = 99 };

/* The first word of a page. */
#define WORD(base, page) (*(volatile long *)((base) + (page) * PAGE))

static char *const own = (char *)0x600000000000;
static char *shared;
static int file;

static void require(int good, const char *what)
{
    if (!good) {
        printf("context_switches: %s\n", what);
        fflush(stdout);
        _exit(1);
    }
}

static void map(int first, int pages)
{
    char *at = own + first * PAGE;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    require(mmap(at, pages * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0) == at, "mmap");
}

static void expect(char *base, int first, int pages, long word, const char *what)
{
    for (int page = first; page < first + pages; page++)
        require(WORD(base, page) == word, what);
}

static void put(char *base, long word)
{
    for (int page = 0; page < PAGES; page++)
        WORD(base, page) = word;
}

/* Removes some pages, or all, and maps new ones. */
static void renew(int round)
{
    int first = round % 3 ? 7 : 0, pages = round % 3 ? 9 : PAGES;
    require(munmap(own + first * PAGE, pages * PAGE) == 0, "munmap");
    map(first, pages);
    expect(own, first, pages, 0, "a page is not new");
}

/* Removes the file's pages from all processes, whichever runs. */
static void cut(void)
{
    require(ftruncate(file, 0) == 0 && ftruncate(file, PAGES * PAGE) == 0, "ftruncate");
    expect(shared, 0, PAGES, 0, "a page of the file is not new");
}

static void take_turns(int me, int in, int out, int rounds)
{
    long word;
    map(0, PAGES);
    put(own, me);
    for (int round = 0; round < rounds; round++) {
        require(read(in, &word, sizeof word) == sizeof word, "read");
        expect(own, 0, PAGES, round * 100 + me, "a page of another, or an old one");
        expect(shared, 0, PAGES, word, "an old page of the file");
        if ((round + me) % 16 == 0)
            cut();
        if ((round + me) % 2 == 0)
            renew(round);
        put(own, round * 100 + 100 + me);
        word = round * 100 + me;
        put(shared, word);
        require(write(out, &word, sizeof word) == sizeof word, "write");
    }
    _exit(0);
}

int main(int argc, char **argv)
{
    int processes = argc == 3 ? atoi(argv[1]) : 0, rounds = argc == 3 ? atoi(argv[2]) : 0, pipes[MAX_PROCESSES + 1][2], status;
    long word = 0;
    require(processes > 0 && processes <= MAX_PROCESSES, "usage: context_switches PROCESSES ROUNDS");
    file = memfd_create("context_switches", 0);
    require(file >= 0 && ftruncate(file, PAGES * PAGE) == 0, "memfd");
    shared = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    require(shared != MAP_FAILED, "mmap");
    for (int i = 0; i <= processes; i++)
        require(pipe(pipes[i]) == 0, "pipe");
    for (int i = 0; i < processes; i++)
        if (fork() == 0)
            take_turns(i + 1, pipes[i][0], pipes[i + 1][1], rounds);
    for (int round = 0; round < rounds; round++) {
        require(write(pipes[0][1], &word, sizeof word) == sizeof word, "write");
        require(read(pipes[processes][0], &word, sizeof word) == sizeof word, "read");
    }
    for (int i = 0; i < processes; i++)
        require(wait(&status) > 0 && status == 0, "a process failed");
    puts("context_switches: done");
    return 0;
}

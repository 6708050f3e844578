/* Small pages become huge ones. Their contents stay, even if threads read, write, fork or split them
 * meanwhile.
 *
 * collapse: by request (MADV_COLLAPSE). Exits with 0 if everything is as it should be. collapse fill MIB:
 * grows the data segment page by page and writes each. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#define PAGE 4096L
#define BLOCK 512L
#define BYTES (BLOCK * PAGE)
#define RW (PROT_READ | PROT_WRITE)
#define THREADS 4
#define TURNS 40

static int *word(char *at, long page)
{
    return (int *)(at + page * PAGE) + page % 1000;
}

/* Returns an aligned block. Its neighbours are mapped too, and it gets small pages. */
static char *untouched(void)
{
    char *all = mmap(NULL, 3 * BYTES, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *block = (char *)(((uintptr_t)all + BYTES - 1) & ~(BYTES - 1));
    if (all == MAP_FAILED || madvise(block, BYTES, MADV_NOHUGEPAGE)) {
        perror("block");
        exit(2);
    }
    return block;
}

static char *numbered(void)
{
    char *block = untouched();
    for (long page = 0; page < BLOCK; page++)
        *word(block, page) = page + 1;
    return block;
}

static int kept(char *block, long from, long to)
{
    for (long page = from; page < to; page++)
        if (*word(block, page) != page + 1)
            return 0;
    return 1;
}

/* Returns 0 or an errno. Linux may be using a page at that moment, and says so: the request is made again. */
static int collapse(char *block)
{
    if (madvise(block, BYTES, MADV_HUGEPAGE))
        return errno;
    for (int tries = 0; madvise(block, BYTES, MADV_COLLAPSE); tries++)
        if ((errno != EAGAIN && errno != EBUSY) || tries == 100)
            return errno;
    return 0;
}

/* Returns the KiB of huge pages in the mapping that begins at `block`. */
static long huge(char *block)
{
    char line[512];
    long found = -1, inside = 0;
    unsigned long start, end;
    FILE *file = fopen("/proc/self/smaps", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
            inside = start == (uintptr_t)block;
        else if (inside)
            sscanf(line, "AnonHugePages: %ld", &found);
    }
    if (file)
        fclose(file);
    return found;
}

static long resident(char *block)
{
    static unsigned char pages[BLOCK];
    long sum = 0;
    if (mincore(block, BYTES, pages))
        return -1;
    for (long page = 0; page < BLOCK; page++)
        sum += pages[page] & 1;
    return sum;
}

static void request(void)
{
    char *block = numbered();
    check("small at first", huge(block) == 0);
    check("on request", collapse(block) == 0 && collapse(block) == 0);
    check("all of it", huge(block) == BYTES / 1024 && resident(block) == BLOCK);
    check("with its contents", kept(block, 0, BLOCK));
    check("a part goes", munmap(block + 100 * PAGE, PAGE) == 0 && huge(block) == 0);
    check("the rest stays", kept(block, 0, 100) && kept(block, 101, BLOCK));
    check("not with a hole", madvise(block, BYTES, MADV_COLLAPSE) == -1 && errno == EINVAL);
    munmap(block, BYTES);
    check("not where nothing is", madvise(block, BYTES, MADV_COLLAPSE) == -1 && errno == ENOMEM);
}

static void dropped(void)
{
    char *block = numbered();
    madvise(block + 7 * PAGE, 300 * PAGE, MADV_DONTNEED);
    check("with pages dropped", collapse(block) == 0 && resident(block) == BLOCK);
    check("those are zeroes", *word(block, 7) == 0 && *word(block, 306) == 0);
    check("and the others not", kept(block, 0, 7) && kept(block, 307, BLOCK));
    munmap(block, BYTES);
}

static void refusals(void)
{
    char *block = numbered();
    check("what is advised against", madvise(block, BYTES, MADV_COLLAPSE) == -1 && errno == EINVAL);
    check("less than a block", madvise(block, BYTES - PAGE, MADV_COLLAPSE) == -1 && errno == EINVAL);
    mprotect(block + PAGE, PAGE, PROT_READ);
    check("rights that differ", collapse(block) == EINVAL && kept(block, 0, BLOCK));
    munmap(block, BYTES);
    block = untouched();
    check("nothing there", collapse(block) == EINVAL);
    munmap(block, BYTES);
}

static void children(void)
{
    char *block = numbered();
    int status, good = collapse(block) == 0;
    pid_t child = fork();
    if (child == 0) {
        int mine = kept(block, 0, BLOCK);
        *word(block, 5) = -1;
        _exit(!(mine && collapse(block) == 0 && kept(block, 6, BLOCK) && *word(block, 5) == -1));
    }
    *word(block, 9) = 10;
    good &= waitpid(child, &status, 0) == child && status == 0;
    check("a child has its own", good && kept(block, 0, BLOCK));
    check("and again", collapse(block) == 0 && kept(block, 0, BLOCK));
    munmap(block, BYTES);
}

static char *field;
static volatile int over;

/* Counts in a word of its own in each page, and counts how often the word was wrong. */
static void *count(void *own)
{
    long wrong = 0;
    for (int round = 0; !over; round++)
        for (long page = 0; page < BLOCK; page += 17) {
            volatile int *mine = (int *)(field + page * PAGE) + (long)own;
            wrong += *mine != round;
            *mine = round + 1;
        }
    return (void *)wrong;
}

static void threads(void)
{
    pthread_t others[THREADS];
    long wrong = 0, failed = 0;
    field = untouched();
    memset(field, 0, BYTES);
    for (long i = 0; i < THREADS; i++)
        pthread_create(&others[i], NULL, count, (void *)i);
    for (int turn = 0; turn < TURNS; turn++) {
        failed += collapse(field) != 0;
        madvise(field + turn * PAGE, PAGE, MADV_NOHUGEPAGE);
    }
    over = 1;
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(others[i], &result);
        wrong += (long)result;
    }
    check("threads lose nothing", wrong == 0 && failed == 0);
    munmap(field, BYTES);
}

static int fill(long pages)
{
    for (long page = 0; page < pages; page++) {
        char *at = sbrk(PAGE);
        if (at == (char *)-1)
            return 2;
        *(long *)at = page;
    }
    char *end = sbrk(0);
    for (long page = 0; page < pages; page++)
        failures += *(long *)(end - (pages - page) * PAGE) != page;
    return failures != 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "fill"))
        return fill(atol(argv[2]) * (1024 * 1024 / PAGE));
    request();
    dropped();
    refusals();
    children();
    threads();
    return failures != 0;
}

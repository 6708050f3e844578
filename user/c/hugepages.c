/* Parts of large aligned mappings are unmapped, protected, dropped, moved and inherited. Each page keeps its
 * contents, whatever happens to its neighbours.
 *
 * hugepages: exits with 0 if everything is as it should be. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define PAGE 4096L
#define BLOCK 512L
#define PAGES (2 * BLOCK)
#define RW (PROT_READ | PROT_WRITE)
#define THREADS 4
#define TURNS 60

static sigjmp_buf back;

static void on_segv(int signal)
{
    (void)signal;
    siglongjmp(back, 1);
}

static int refused(volatile char *at, int write)
{
    if (sigsetjmp(back, 1))
        return 1;
    if (write)
        *at = 1;
    else
        (void)*at;
    return 0;
}

static int *word(char *at, long page)
{
    return (int *)(at + page * PAGE) + page % 1000;
}

/* Returns two aligned blocks. Each page holds its number. */
static char *numbered(void)
{
    char *all = mmap(NULL, (PAGES + BLOCK) * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    char *at = (char *)(((uintptr_t)all + BLOCK * PAGE - 1) & ~(uintptr_t)(BLOCK * PAGE - 1));
    if (at > all)
        munmap(all, at - all);
    if (at < all + BLOCK * PAGE)
        munmap(at + PAGES * PAGE, all + BLOCK * PAGE - at);
    for (long page = 0; page < PAGES; page++)
        *word(at, page) = page + 1;
    return at;
}

/* Returns whether pages `from` to `to` have their numbers. */
static int kept(char *at, long from, long to)
{
    for (long page = from; page < to; page++)
        if (*word(at, page) != page + 1)
            return 0;
    return 1;
}

static void holes(void)
{
    char *at = numbered();
    check("all there", kept(at, 0, PAGES));
    check("a hole", munmap(at + 5 * PAGE, 3 * PAGE) == 0);
    check("in which nothing is", refused(at + 5 * PAGE, 0) && refused(at + 7 * PAGE, 1));
    check("around which all is", kept(at, 0, 5) && kept(at, 8, PAGES));
    check("a hole over the seam", munmap(at + 500 * PAGE, 50 * PAGE) == 0 && kept(at, 8, 500) && kept(at, 550, PAGES));
    char *again = mmap(at + 500 * PAGE, 50 * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    check("filled again with zeroes", again == at + 500 * PAGE && *word(at, 501) == 0 && kept(at, 550, PAGES));
    check("gone", munmap(at, PAGES * PAGE) == 0 && refused(at, 0));
}

static void rights(void)
{
    char *at = numbered();
    check("read only", mprotect(at, BLOCK * PAGE, PROT_READ) == 0 && refused(at + 9 * PAGE, 1) && kept(at, 0, PAGES));
    check("a page is writable again", mprotect(at + 9 * PAGE, PAGE, RW) == 0 && !refused(at + 9 * PAGE + 8, 1));
    check("its neighbours are not", refused(at + 8 * PAGE, 1) && refused(at + 10 * PAGE, 1) && kept(at, 0, PAGES));
    check("a page without rights", mprotect(at + 600 * PAGE, PAGE, PROT_NONE) == 0 && refused(at + 600 * PAGE, 0));
    check("and with them", mprotect(at + 600 * PAGE, PAGE, RW) == 0 && kept(at, 0, PAGES));
    munmap(at, PAGES * PAGE);
}

static void contents(void)
{
    char *at = numbered();
    unsigned char in[PAGES];
    check("dropped", madvise(at + 3 * PAGE, 4 * PAGE, MADV_DONTNEED) == 0 && *word(at, 4) == 0);
    check("the rest is not", kept(at, 0, 3) && kept(at, 7, PAGES));
    check("in memory", mincore(at, PAGES * PAGE, in) == 0 && in[0] & 1 && in[PAGES - 1] & 1);
    check("all dropped", madvise(at, PAGES * PAGE, MADV_DONTNEED) == 0 && *word(at, 0) == 0 && *word(at, 1000) == 0);
    munmap(at, PAGES * PAGE);
    at = numbered();
    char *place = mmap(NULL, PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *moved = mremap(at, PAGES * PAGE, PAGES * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place);
    check("moved", moved == place && kept(moved, 0, PAGES) && refused(at, 0));
    moved = mremap(moved, 600 * PAGE, 600 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at + PAGE);
    check("moved askew", moved == at + PAGE && kept(moved, 0, 600) && kept(place, 600, PAGES));
    munmap(moved, 600 * PAGE), munmap(place, PAGES * PAGE);
}

static void children(void)
{
    char *at = numbered();
    pid_t child = fork();
    if (child == 0) {
        int good = kept(at, 0, PAGES);
        *word(at, 7) = 0, *word(at, 700) = 0;
        good = good && kept(at, 0, 7) && kept(at, 8, 700) && munmap(at + 100 * PAGE, 100 * PAGE) == 0 && kept(at, 200, 700);
        _exit(!good);
    }
    *word(at, 9) = 0;
    int status = 1;
    check("a child has its own", waitpid(child, &status, 0) == child && status == 0);
    check("and the parent", kept(at, 0, 9) && kept(at, 10, PAGES) && *word(at, 9) == 0);
    munmap(at, PAGES * PAGE);
}

/* Each thread has one page in four and counts in them, while pages between are dropped, protected and
 * unmapped. */
static char *field;
static pthread_barrier_t start;

static void *count(void *argument)
{
    long mine = (long)argument, wrong = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        pthread_barrier_wait(&start);
        for (long page = mine; page < PAGES; page += THREADS + 1)
            *word(field, page) += page + 1;
        pthread_barrier_wait(&start);
        for (long page = mine; page < PAGES; page += THREADS + 1)
            wrong += *word(field, page) != page + 1;
        pthread_barrier_wait(&start);
    }
    return (void *)wrong;
}

static void disturb(int turn)
{
    for (long page = THREADS; page < PAGES; page += THREADS + 1) {
        char *at = field + page * PAGE;
        switch ((page + turn) % 3) {
        case 0: munmap(at, PAGE); break;
        case 1: madvise(at, PAGE, MADV_DONTNEED); break;
        default: mprotect(at, PAGE, PROT_NONE);
        }
    }
}

static void threads(void)
{
    pthread_t others[THREADS];
    long wrong = 0;
    pthread_barrier_init(&start, NULL, THREADS + 1);
    for (long i = 0; i < THREADS; i++)
        pthread_create(&others[i], NULL, count, (void *)i);
    for (int turn = 0; turn < TURNS; turn++) {
        field = mmap(field, PAGES * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | (field ? MAP_FIXED : 0), -1, 0);
        pthread_barrier_wait(&start);
        if (turn % 2)
            disturb(turn);
        pthread_barrier_wait(&start);
        if (!(turn % 2))
            disturb(turn);
        pthread_barrier_wait(&start);
    }
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(others[i], &result);
        wrong += (long)result;
    }
    check("threads keep theirs", wrong == 0);
    munmap(field, PAGES * PAGE);
}

int main(void)
{
    struct sigaction action = {.sa_handler = on_segv};
    sigaction(SIGSEGV, &action, NULL);
    holes();
    rights();
    contents();
    children();
    threads();
    return failures != 0;
}

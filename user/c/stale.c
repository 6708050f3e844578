/* Threads map a page where another thread's long mremap leaves, use it, and unmap it after the move: then no
 * thread reads it. One of the threads owns the page table there, another has the page in a table of its own.
 *
 * stale ROUNDS: prints a line when all is over. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096ul
#define PAGES 4096ul
#define BLOCK (512 * PAGE)

/* The events of a round, in this order. The thread that waits for one makes the next. */
enum { BEGUN = 1, OWNED, WRITTEN, READ, MOVED, UNMAPPED, JUDGED };

static char *old, *new, *volatile mine;
static atomic_int phase, moving;
static int rounds, delay;
static __thread sigjmp_buf back;
static __thread volatile int expected;

static void must(int good, const char *what)
{
    if (good)
        return;
    dprintf(2, "stale: %s\n", what);
    _exit(1);
}

static void on(int cpu)
{
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(cpu, &only);
    must(sched_setaffinity(0, sizeof only, &only) == 0, "sched_setaffinity");
}

static void await(int what)
{
    while (atomic_load(&phase) != what)
        sched_yield();
}

static void handler(int signal)
{
    (void)signal;
    if (!expected)
        abort();
    siglongjmp(back, 1);
}

/* Reads or writes a byte, and returns whether that was possible. */
static int touch(volatile char *at, int writes)
{
    int possible = 0;
    expected = 1;
    if (sigsetjmp(back, 1) == 0) {
        if (writes)
            *at = 0x5a;
        else
            (void)*at;
        possible = 1;
    }
    expected = 0;
    return possible;
}

static void *sharer(void *unused)
{
    on(2);
    for (int round = 0; round < rounds; round++) {
        await(WRITTEN);
        touch(mine, 0);
        phase = READ;
        await(UNMAPPED);
        must(!touch(mine, 0), "the page was read after it was unmapped");
        phase = JUDGED;
    }
    return unused;
}

static void *owner(void *unused)
{
    on(1);
    for (int round = 0; round < rounds; round++) {
        await(BEGUN);
        for (int page = 0; page < 512; page += 64)
            old[page * PAGE] = 1;
        phase = OWNED;
        while (!moving)
            ;
        for (volatile int i = 0; i < delay; i++)
            ;
        must(mmap(mine, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == mine, "mmap");
        /* Not possible if the page moves away after all. */
        touch(mine, 1);
        phase = WRITTEN;
        await(MOVED);
        must(munmap(mine, PAGE) == 0, "munmap");
        phase = UNMAPPED;
    }
    return unused;
}

int main(int count, char **words)
{
    pthread_t threads[2];
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_NODEFER};
    if (count < 2)
        return 2;
    rounds = atoi(words[1]);
    must(sigaction(SIGSEGV, &action, NULL) == 0, "sigaction");
    on(0);
    char *area = mmap(NULL, 4 * PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(area != MAP_FAILED, "mmap");
    old = (char *)(((uintptr_t)area + BLOCK) & ~(BLOCK - 1));
    new = old + 2 * PAGES * PAGE;
    mine = old + 7 * PAGE;
    must(pthread_create(&threads[0], NULL, owner, NULL) == 0, "pthread_create");
    must(pthread_create(&threads[1], NULL, sharer, NULL) == 0, "pthread_create");
    for (int round = 0; round < rounds; round++) {
        must(mmap(old, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == old, "mmap");
        must(madvise(old, PAGES * PAGE, MADV_NOHUGEPAGE) == 0, "madvise");
        delay = round * 15000 % 300000;
        moving = 0;
        phase = BEGUN;
        await(OWNED);
        for (unsigned long page = 512; page < PAGES; page++)
            old[page * PAGE] = 1;
        moving = 1;
        /* May fail: the page at the old place is not of the mapping any more. */
        (void)mremap(old, PAGES * PAGE, PAGES * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, new);
        await(READ);
        phase = MOVED;
        await(JUDGED);
        must(munmap(old, PAGES * PAGE) == 0 && munmap(new, PAGES * PAGE) == 0, "munmap");
    }
    printf("stale: done\n");
    return 0;
}

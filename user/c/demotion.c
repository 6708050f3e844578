/* Threads share 64 pages of a block. Then all but one only spin, and that one drops and touches a page beside
 * them again and again. The block should not concern the other threads any more.
 *
 * demotion ROUNDS */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PAGE 4096L
#define BLOCK (512 * PAGE)
#define SHARED 64
#define OTHERS 3

static volatile unsigned char *block;
static volatile int stop;
static _Atomic int arrived;

/* Waits by spinning until all threads are here. */
static void meet(int times)
{
    arrived++;
    while (arrived < times * (OTHERS + 1))
        ;
}

static void touch(void)
{
    for (long page = 0; page < SHARED; page++)
        block[page * PAGE] += 1;
}

static void *other(void *unused)
{
    meet(1);
    touch();
    meet(2);
    while (!stop)
        ;
    return unused;
}

static void must(int good, const char *what)
{
    if (!good) {
        printf("demotion: %s\n", what);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    pthread_t threads[OTHERS];
    unsigned char *room = mmap(NULL, 2 * BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(argc == 2 && room != MAP_FAILED, "no room");
    block = (unsigned char *)(((uintptr_t)room + BLOCK - 1) & -(uintptr_t)BLOCK);
    must(madvise(room, 2 * BLOCK, MADV_NOHUGEPAGE) == 0, "no small pages");
    touch();
    for (int i = 0; i < OTHERS; i++)
        must(pthread_create(&threads[i], NULL, other, NULL) == 0, "no thread");
    meet(1);
    meet(2);
    for (long round = atol(argv[1]); round > 0; round--) {
        volatile unsigned char *own = block + 2 * SHARED * PAGE;
        must(*own == 0, "a page that is not new");
        *own = 1;
        must(madvise((void *)own, PAGE, MADV_DONTNEED) == 0, "the page stays");
    }
    stop = 1;
    for (int i = 0; i < OTHERS; i++)
        pthread_join(threads[i], NULL);
    puts("demotion: done");
    return 0;
}

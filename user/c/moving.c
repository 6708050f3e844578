/* A large mapping moves to and fro between two places, while other threads write to it, map memory of their
 * own, fork and, in the second part, unmap pages of it.
 *
 * moving ROUNDS: exits with 0 if every write is found again, every child has the whole mapping at one of the
 * two places, and a failed move has moved nothing. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096L
#define PAGES 2000L
#define LENGTH (PAGES * PAGE)
#define WRITERS 2
#define RW (PROT_READ | PROT_WRITE)
#define ANONYMOUS (MAP_PRIVATE | MAP_ANONYMOUS)

/* The places have different distances from the ends of page tables. */
static char *const places[2] = { (char *)0x200000000000, (char *)0x300000123000 };
static volatile int over;
static long written[WRITERS][PAGES];
static __thread sigjmp_buf back;

static void must(int good, const char *what)
{
    if (good)
        return;
    dprintf(2, "moving: %s: %s\n", what, strerror(errno));
    _exit(1);
}

static void jump(int signal) { siglongjmp(back, signal); }

/* Returns whether the word could be written. */
static int put(long *word, long value)
{
    if (sigsetjmp(back, 1))
        return 0;
    *(volatile long *)word = value;
    return 1;
}

/* Returns the word there, or 0 if there is none. */
static long get(long *word)
{
    if (sigsetjmp(back, 1))
        return 0;
    return *(volatile long *)word;
}

static long *word(char *place, long page, long index) { return (long *)(place + page * PAGE) + index; }

/* Writes to the mapping wherever it is. */
static void *writer(void *number)
{
    long me = (long)number, value = 0;
    for (unsigned long turn = me; !over; turn++) {
        long page = (turn * 7919) % PAGES;
        value++;
        if (put(word(places[turn % 2], page, 1 + me), value) || put(word(places[1 - turn % 2], page, 1 + me), value))
            written[me][page] = value;
    }
    return NULL;
}

/* Checks memory of its own, wherever that is mapped. */
static void *mapper(void *unused)
{
    while (!over) {
        char *mine = mmap(NULL, 20 * PAGE, RW, ANONYMOUS, -1, 0);
        must(mine != MAP_FAILED, "mmap");
        for (long page = 0; page < 20; page++) {
            must(mine[page * PAGE] == 0, "memory that is not new");
            mine[page * PAGE] = 1;
        }
        must(munmap(mine, 20 * PAGE) == 0, "munmap");
    }
    return unused;
}

static int is_mapped(char *at, long pages) { return msync(at, pages * PAGE, MS_ASYNC) == 0; }

/* Returns whether one of the places has the whole mapping and the other none of it. */
static int is_whole(void)
{
    int first = is_mapped(places[0], PAGES);
    if (first == is_mapped(places[1], PAGES))
        return 0;
    for (long page = 0; page < PAGES; page++)
        if (*word(places[!first], page, 0) != page + 1 || is_mapped(places[first] + page * PAGE, 1))
            return 0;
    return 1;
}

static void *parent(void *unused)
{
    while (!over) {
        int status;
        pid_t child = fork();
        must(child >= 0, "fork");
        if (child == 0)
            _exit(is_whole() ? 0 : 3);
        must(waitpid(child, &status, 0) == child && status == 0, "a child with half of the mapping");
    }
    return unused;
}

static void fill(char *place)
{
    must(mmap(place, LENGTH, RW, ANONYMOUS | MAP_FIXED, -1, 0) == place, "no place");
    /* The thread that unmaps pages may have been there. */
    must(madvise(place, LENGTH, MADV_NOHUGEPAGE) == 0 || errno == ENOMEM, "no small pages");
    for (long page = 0; page < PAGES; page++)
        put(word(place, page, 0), page + 1);
}

/* Moves it from place `from` to the other one. */
static int move(int from)
{
    char *to = places[1 - from];
    void *moved = mremap(places[from], LENGTH, LENGTH, MREMAP_MAYMOVE | MREMAP_FIXED, to);
    must(moved == to || (moved == MAP_FAILED && errno == EFAULT), "mremap");
    return moved == to;
}

/* Unmaps a page of the mapping now and then, and maps something else there. */
static void *thief(void *unused)
{
    for (long turn = 0; !over; turn++) {
        char *at = places[turn % 2] + turn * 7919 % PAGES * PAGE;
        if (turn % 1024 == 0)
            must(munmap(at, PAGE) == 0, "munmap of a page");
        else
            is_mapped(at, 1);
    }
    return unused;
}

/* Counts the pages of the mapping at a place. Each page that is there must hold its number. */
static long count(char *place)
{
    long pages = 0;
    for (long page = 0; page < PAGES; page++) {
        int was_there = is_mapped(place + page * PAGE, 1);
        long found = get(word(place, page, 0));
        must(found == page + 1 || (found == 0 && !(was_there && is_mapped(place + page * PAGE, 1))), "contents that were lost");
        pages += found != 0;
    }
    return pages;
}

static void begin(pthread_t *thread, void *(*what)(void *), long number)
{
    must(pthread_create(thread, NULL, what, (void *)number) == 0, "no thread");
}

static void to_and_fro(long rounds)
{
    pthread_t threads[WRITERS + 2];
    fill(places[0]);
    for (long me = 0; me < WRITERS; me++)
        begin(&threads[me], writer, me);
    begin(&threads[WRITERS], mapper, 0);
    begin(&threads[WRITERS + 1], parent, 0);
    for (long round = 0; round < rounds; round++)
        must(move(round % 2), "nothing moved");
    over = 1;
    for (int i = 0; i < WRITERS + 2; i++)
        pthread_join(threads[i], NULL);
    must(is_whole(), "the mapping is not whole");
    for (long me = 0; me < WRITERS; me++)
        for (long page = 0; page < PAGES; page++)
            must(*word(places[rounds % 2], page, 1 + me) == written[me][page], "a write that was lost");
    must(munmap(places[rounds % 2], LENGTH) == 0, "munmap");
}

static void with_a_thief(long rounds)
{
    pthread_t thread;
    long done = 0;
    over = 0;
    begin(&thread, thief, 0);
    for (long round = 0; round < rounds; round++) {
        fill(places[0]);
        int moved = move(0);
        done += moved;
        must(count(places[moved]) > 0 && count(places[1 - moved]) == 0, "half a move");
        munmap(places[0], LENGTH);
        munmap(places[1], LENGTH);
    }
    over = 1;
    pthread_join(thread, NULL);
    dprintf(2, "moving: %ld of %ld moves beside a thief\n", done, rounds);
}

int main(int count, char **words)
{
    struct sigaction action = { .sa_handler = jump };
    long rounds = count > 1 ? atol(words[1]) : 40;
    sigaction(SIGSEGV, &action, NULL);
    to_and_fro(rounds);
    with_a_thief(rounds);
    puts("moving: done");
    return 0;
}

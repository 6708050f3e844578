/* Two threads change the length of one file at the same time, round by round.
 *
 * One truncates the file. As soon as the other sees that, it extends the file, and what it then writes, by a
 * call, by a shared and by a private mapping, must stay. Then one reserves room, and the other writes behind
 * the end: afterwards all of both is there.
 *
 * (Linux does not count room as there before it is touched, so the last part is for RadixVM only.)
 *
 * truncate_race ROUNDS */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "page_counts.h"

#define PAGES 1500L

static int fd;
static volatile char *shared, *private;
static pthread_barrier_t both;
static long rounds;

static void must(int good, const char *what)
{
    if (!good) {
        dprintf(1, "truncate_race: %s\n", what);
        _exit(1);
    }
}

static long length(void)
{
    struct stat now;
    must(fstat(fd, &now) == 0, "fstat");
    return now.st_size;
}

/* Gives every page a frame, and a private one too. */
static void fill(void)
{
    must(ftruncate(fd, PAGES * PAGE) == 0, "fills");
    for (long page = 0; page < PAGES; page++)
        shared[page * PAGE] = private[page * PAGE + 1] = 1;
}

static void *cutter(void *unused)
{
    for (long round = 0; round < rounds; round++) {
        fill();
        pthread_barrier_wait(&both);
        must(ftruncate(fd, 0) == 0, "truncates");
        pthread_barrier_wait(&both);
        pthread_barrier_wait(&both);
        must(ftruncate(fd, 0) == 0, "empties");
        pthread_barrier_wait(&both);
        must(fallocate(fd, 0, 0, PAGES * PAGE) == 0, "reserves");
        pthread_barrier_wait(&both);
        pthread_barrier_wait(&both);
    }
    return unused;
}

static void extend_and_write(char mark)
{
    while (length() != 0)
        ;
    must(ftruncate(fd, PAGES * PAGE) == 0, "extends");
    for (long page = 0; page < PAGES; page++) {
        must(pwrite(fd, &mark, 1, page * PAGE + 2) == 1, "writes");
        shared[page * PAGE + 3] = mark;
        private[page * PAGE + 4] = mark;
    }
}

static void check(char mark)
{
    char there[4];
    for (long page = 0; page < PAGES; page++) {
        volatile char *at = shared + page * PAGE;
        must(pread(fd, there, 4, page * PAGE) == 4, "reads");
        must(there[0] == 0 && at[0] == 0, "nothing is left from before the cut");
        must(there[2] == mark && there[3] == mark, "what was written after the cut stays");
        must(at[2] == mark && at[3] == mark, "mappings show it");
        must(private[page * PAGE + 4] == mark, "private pages stay");
    }
}

static void check_room(void)
{
    static unsigned char there[PAGES];
    must(mincore((void *)shared, PAGES * PAGE, there) == 0, "mincore");
    for (long page = 0; page < PAGES; page++)
        must(there[page] & 1, "has all the room");
}

static void *extender(void *unused)
{
    for (long round = 0; round < rounds; round++) {
        char mark = (char)(round % 100 + 1);
        pthread_barrier_wait(&both);
        extend_and_write(mark);
        pthread_barrier_wait(&both);
        check(mark);
        pthread_barrier_wait(&both);
        pthread_barrier_wait(&both);
        must(pwrite(fd, &mark, 1, PAGES * PAGE) == 1, "writes behind the end");
        pthread_barrier_wait(&both);
        must(length() == PAGES * PAGE + 1, "reaches the end");
        check_room();
        pthread_barrier_wait(&both);
    }
    return unused;
}

int main(int count, char **words)
{
    pthread_t other;
    rounds = count > 1 ? atol(words[1]) : 1;
    fd = (int)memfd_create("truncate_race", 0);
    must(fd >= 0 && pthread_barrier_init(&both, NULL, 2) == 0, "begins");
    shared = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    private = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    must(shared != MAP_FAILED && private != MAP_FAILED, "maps");
    must(pthread_create(&other, NULL, cutter, NULL) == 0, "starts");
    extender(NULL);
    must(pthread_join(other, NULL) == 0, "ends");
    compare_all();
    puts("truncate_race: done");
    return 0;
}

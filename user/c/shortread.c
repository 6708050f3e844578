/* A thread truncates a file of one letter while another reads it into memory that it has not touched yet. The
 * read is as long as the file was, or shorter: it returns no byte that was never in the file.
 *
 * shortread ROUNDS */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#define LENGTH (64 * 4096L)

static char letters[LENGTH];
static int fd;
/* The round that the reader is about to read, and the last one in which the file was truncated. */
static atomic_int begun, cut;
static int rounds;

static void must(int good, const char *what)
{
    if (!good) {
        dprintf(1, "shortread: %s\n", what);
        _exit(1);
    }
}

/* Truncates once in each round, sooner or later in the read. */
static void *truncate_all(void *unused)
{
    for (int round = 1; round <= rounds; round++) {
        while (atomic_load(&begun) < round)
            sched_yield();
        for (volatile int wait = 0; wait < round * 37 % 20000; wait++)
            ;
        must(ftruncate(fd, 0) == 0, "ftruncate");
        atomic_store(&cut, round);
    }
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    rounds = argc == 2 ? atoi(argv[1]) : 0;
    must(rounds > 0, "shortread ROUNDS");
    memset(letters, 'A', LENGTH);
    fd = memfd_create("letters", 0);
    must(fd >= 0 && pthread_create(&thread, NULL, truncate_all, NULL) == 0, "begin");
    int partial = 0;
    for (int round = 1; round <= rounds; round++) {
        must(pwrite(fd, letters, LENGTH, 0) == LENGTH, "pwrite");
        char *fresh = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        must(fresh != MAP_FAILED, "mmap");
        atomic_store(&begun, round);
        long got = pread(fd, fresh, LENGTH, 0);
        must(got >= 0 && memcmp(fresh, letters, got) == 0, "a byte that was never in the file");
        partial += got > 0 && got < LENGTH;
        while (atomic_load(&cut) < round)
            sched_yield();
        must(munmap(fresh, LENGTH) == 0, "munmap");
    }
    must(pthread_join(thread, NULL) == 0, "join");
    printf("shortread: done, %s\n", partial ? "some reads were short" : "no read was short");
    return 0;
}

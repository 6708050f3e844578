/* Files that were removed leave their room to others at once: to a writer and to a shared mapping that need
 * it, and statfs counts it. A writer finds it also if the machine sleeps in between, or if the file was
 * mapped. Threads that write and remove files, which never have more than nine tenths of the room together,
 * always find it.
 *
 * room ROUNDS [THREADS] */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <unistd.h>

#define PAGE 4096
#define PIECE (64 * 1024)
#define SLACK (4 * 1024 * 1024L)

static char piece[PIECE];

static void must(int good, const char *what)
{
    if (!good) {
        dprintf(1, "room: %s: %s\n", what, strerror(errno));
        _exit(1);
    }
}

/* Writes a new file of at most `most` bytes, as far as there is room. Returns its length. */
static long fill(const char *name, long most)
{
    int fd = open(name, O_CREAT | O_EXCL | O_WRONLY, 0600);
    long length = 0;
    must(fd >= 0, "open");
    while (length < most) {
        ssize_t wrote = write(fd, piece, PIECE);
        if (wrote < 0) {
            must(errno == ENOSPC, "write");
            break;
        }
        length += wrote;
    }
    must(close(fd) == 0, "close");
    return length;
}

static long free_room(void)
{
    struct statfs volume;
    must(statfs("/tmp", &volume) == 0, "statfs");
    return volume.f_bavail * volume.f_bsize;
}

/* Writes to a page of a mapped file when a removed one has all the room. Without room, SIGBUS would end the
 * program. */
static void touch_mapped(void)
{
    int fd = open("/tmp/mapped", O_CREAT | O_EXCL | O_RDWR, 0600);
    must(fd >= 0 && ftruncate(fd, PAGE) == 0, "a file to map");
    char *at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    must(at != MAP_FAILED, "mmap");
    must(fill("/tmp/all", 1L << 40) > 0, "room");
    must(unlink("/tmp/all") == 0, "unlink");
    *at = 1;
    must(munmap(at, PAGE) == 0 && close(fd) == 0 && unlink("/tmp/mapped") == 0, "munmap");
}

/* Maps a file that has all the room, and removes it before or after it is unmapped. */
static void remove_mapped(long room, int unmap_first)
{
    must(fill("/tmp/all", room - SLACK) >= room - SLACK, "as much room as before a mapping");
    int fd = open("/tmp/all", O_RDWR);
    char *at = mmap(NULL, room - SLACK, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    must(fd >= 0 && at != MAP_FAILED && close(fd) == 0, "mmap");
    for (long byte = 0; byte < room - SLACK; byte += PAGE)
        at[byte] = 1;
    if (!unmap_first)
        must(unlink("/tmp/all") == 0, "unlink");
    must(munmap(at, room - SLACK) == 0, "munmap");
    if (unmap_first)
        must(unlink("/tmp/all") == 0, "unlink");
}

static long crowd_rounds, share;

/* Writes files of the thread's share, and removes each before or after it is closed. The next one is written
 * at once. */
static void *write_and_remove(void *number)
{
    char name[32];
    snprintf(name, sizeof name, "/tmp/%ld", (long)number);
    for (long round = 0; round < crowd_rounds; round++) {
        int fd = open(name, O_CREAT | O_EXCL | O_WRONLY, 0600);
        must(fd >= 0, "open");
        for (long length = 0; length < share; length += PIECE)
            must(write(fd, piece, PIECE) == PIECE, "room for a file of one of several threads");
        if (round % 3 == 0)
            must(close(fd) == 0 && unlink(name) == 0, "unlink");
        else
            must(unlink(name) == 0 && close(fd) == 0, "close");
    }
    return NULL;
}

/* Threads that together use nine tenths of the room. */
static void crowd(long threads)
{
    pthread_t thread[64];
    must(threads <= 64, "at most 64 threads");
    share = free_room() / 10 * 9 / threads / PIECE * PIECE;
    for (long number = 0; number < threads; number++)
        must(pthread_create(&thread[number], NULL, write_and_remove, (void *)number) == 0, "a thread");
    for (long number = 0; number < threads; number++)
        must(pthread_join(thread[number], NULL) == 0, "join");
    puts("room: done");
}

int main(int argc, char **argv)
{
    long rounds = argc >= 2 ? atol(argv[1]) : 0;
    must(rounds > 0, "room ROUNDS [THREADS]");
    memset(piece, 'x', PIECE);
    if (argc == 3) {
        crowd_rounds = rounds;
        crowd(atol(argv[2]));
        return 0;
    }
    long room = fill("/tmp/all", 1L << 40);
    must(room > 4 * SLACK, "much room");
    for (long round = 0; round < rounds; round++) {
        must(unlink("/tmp/all") == 0, "unlink");
        must(fill("/tmp/all", room - SLACK) >= room - SLACK, "as much room as before");
        must(unlink("/tmp/all") == 0, "unlink");
        must(free_room() >= room - SLACK, "as much room as before for statfs");
        must(fill("/tmp/all", room - SLACK) >= room - SLACK, "as much room as before");
    }
    must(unlink("/tmp/all") == 0, "unlink");
    /* Twice as much as there is, in files that replace one another. The machine sleeps in between. */
    for (long written = 0; written < 2 * room; written += SLACK / 2) {
        must(fill("/tmp/new", SLACK / 2) == SLACK / 2, "room for a file");
        must(rename("/tmp/new", "/tmp/old") == 0, "rename");
        usleep(20000);
    }
    must(unlink("/tmp/old") == 0, "unlink");
    for (long round = 0; round < rounds; round++)
        touch_mapped();
    for (long round = 0; round < 2 * rounds; round++)
        remove_mapped(room, round % 2);
    puts("room: done");
    return 0;
}

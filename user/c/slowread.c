/* One process reads a page of a file into a page that a file in /tmp has no room for. So the copy sleeps in
 * the middle, with the page in hand, until another process makes room. Meanwhile a third one takes the page
 * out of its file, again and again, and fills memory with other bytes: a frame that is freed too early shows
 * them. Enough processes have named the region of the page that a read is counted in its process's page table
 * where the kernel counts there. Before each such read two processes read the page many times, so that each
 * gets a counter where the kernel has those.
 *
 * slowread ROUNDS [FILE [stays]]: FILE is a page of bytes 0x11 on this machine, which is dropped and read
 * again. Without it the page is one of a file in memory, which is punched out and written anew. Prints
 * "slowread: done". An eighth of the reads at least must have been there while the page changed. With `stays`
 * the kernel must leave a page in its file that is being read: so it is there after it was to be dropped, in
 * an eighth of the reads at least. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "page_counts.h"

#define BYTE 0x11
#define OTHER 0xee
/* Pages of /tmp that are free in turns, and pages of memory that are filled. */
#define ROOM 1000L
#define FILLED 200L
#define SHARERS 3

/* The rounds in which /tmp is full, the read has begun, and it is over. The changes since it has begun, and
 * the reads of the other process before. */
static volatile struct {
    long full, begun, over, changed, beside, stayed;
} *rounds;
static int fd, is_fixed, stays;
static volatile unsigned char *shown;

static void must(int good, const char *what)
{
    if (!good) {
        dprintf(1, "slowread: %s\n", what);
        _exit(1);
    }
}

static void *map(long len, int flags, int file)
{
    void *at = mmap(NULL, len, PROT_READ | PROT_WRITE, flags, file, 0);
    must(at != MAP_FAILED, "mmap");
    return at;
}

static int create(const char *path)
{
    int file = open(path, O_CREAT | O_RDWR, 0600);
    must(file >= 0, path);
    return file;
}

/* Writes until there is no room, and returns the pages. */
static long fill(int file)
{
    static char bytes[64 * PAGE];
    long done = 0, len;
    while ((len = write(file, bytes, sizeof bytes)) > 0)
        done += len;
    must(errno == ENOSPC, "write");
    return done / PAGE;
}

static void empty(int file)
{
    must(ftruncate(file, 0) == 0 && lseek(file, 0, SEEK_SET) == 0, "ftruncate");
}

static int is_right(const unsigned char *bytes, long len)
{
    for (long i = 0; i < len; i++)
        if (bytes[i] != BYTE && (bytes[i] != 0 || is_fixed))
            return 0;
    return 1;
}

static void until(volatile long *round, long reached)
{
    while (*round < reached)
        sched_yield();
}

/* Takes the room of /tmp before each read, and gives it back when the page has changed a few times. */
static void make_room(long unused)
{
    (void)unused;
    int file = create("/tmp/room");
    for (long round = 1;; round++) {
        fill(file);
        rounds->full = round;
        until(&rounds->begun, round);
        while (rounds->changed < round % 3 && rounds->over < round)
            sched_yield();
        empty(file);
        until(&rounds->over, round);
    }
}

/* Reads the start of the page, and checks it. */
static void read_often(int times)
{
    unsigned char bytes[64];
    while (times-- > 0)
        must(pread(fd, bytes, sizeof bytes, 0) == sizeof bytes && is_right(bytes, sizeof bytes), "a short read");
}

static void read_beside(long unused)
{
    (void)unused;
    for (;;)
        if (rounds->begun == rounds->over && rounds->full > rounds->over)
            read_often(16), rounds->beside++;
        else
            sched_yield();
}

static void read_slowly(long last)
{
    int buffer = create("/tmp/buffer"), rest = create("/tmp/rest");
    long met = 0, stayed = 0;
    unsigned char *into = map(PAGE, MAP_SHARED, buffer);
    for (long round = 1; round <= last; round++) {
        long got, changed;
        until(&rounds->full, round);
        must(ftruncate(buffer, 0) == 0 && ftruncate(buffer, PAGE) == 0, "ftruncate");
        /* The page that the buffer had, and what this core has in reserve. */
        fill(rest);
        /* The entry shows the page of now. */
        (void)shown[0];
        rounds->beside = 0;
        for (int i = 0; i < 30 && rounds->beside < 30; i++)
            read_often(50);
        rounds->changed = rounds->stayed = 0;
        rounds->begun = round;
        do
            changed = rounds->changed;
        while ((got = pread(fd, into, PAGE, 0)) == -1 && errno == EFAULT);
        met += changed != rounds->changed;
        stayed += rounds->stayed > 0;
        must(got == PAGE, "pread");
        must(is_right(into, PAGE), "a read returned bytes of another page");
        empty(rest);
        rounds->over = round;
    }
    must(met >= last / 8, "the page changed during too few reads");
    must(!stays || stayed >= last / 8, "the page was dropped while it was read");
    _exit(0);
}

static void change(void)
{
    static unsigned char page[PAGE];
    struct statfs room;
    memset(page, BYTE, PAGE);
    /* Often so long that the read has found the page. */
    for (volatile long i = rounds->changed == 0 ? rounds->begun % 4 * 10000 : 0; i > 0; i--)
        ;
    if (is_fixed) {
        unsigned char is_there;
        must(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0, "posix_fadvise");
        must(mincore((void *)shown, PAGE, &is_there) == 0, "mincore");
        rounds->stayed += is_there & 1;
    } else
        must(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE) == 0, "punch");
    /* Frees what was removed first, to tell the room. */
    must(statfs("/tmp", &room) == 0, "statfs");
    unsigned char *other = map(FILLED * PAGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    memset(other, OTHER, FILLED * PAGE);
    must(munmap(other, FILLED * PAGE) == 0, "munmap");
    must(is_fixed || pwrite(fd, page, PAGE, 0) == PAGE, "pwrite");
}

static pid_t start(void (*run)(long), long argument)
{
    pid_t pid = fork();
    must(pid >= 0, "fork");
    if (pid == 0)
        run(argument);
    return pid;
}

static void wait_for_end(long unused)
{
    (void)unused;
    for (;;)
        pause();
}

int main(int argc, char **argv)
{
    pid_t others[SHARERS + 1];
    int status, full = create("/tmp/full");
    must(argc > 1, "give rounds");
    is_fixed = argc > 2;
    stays = argc > 3;
    fd = is_fixed ? open(argv[2], O_RDONLY) : memfd_create("slowread", 0);
    must(fd >= 0 && (is_fixed || ftruncate(fd, PAGE) == 0), "the file");
    rounds = map(PAGE, MAP_SHARED | MAP_ANONYMOUS, -1);
    /* A file without a name, for which `statfs` waits. */
    must(unlink("/tmp/full") == 0 && ftruncate(full, (fill(full) - ROOM) * PAGE) == 0, "filling /tmp");
    shown = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
    must(shown != MAP_FAILED, "mmap");
    madvise((void *)shown, PAGE, MADV_COUNT_READS);
    others[0] = start(make_room, 0);
    for (int i = 1; i <= SHARERS; i++)
        others[i] = start(i == 1 ? read_beside : wait_for_end, 0);
    pid_t reader = start(read_slowly, atol(argv[1])), ended;
    while ((ended = waitpid(-1, &status, WNOHANG)) == 0) {
        long round = rounds->begun;
        if (round == rounds->over) {
            sched_yield();
            continue;
        }
        change();
        if (rounds->begun == round)
            rounds->changed++;
    }
    must(ended == reader && status == 0, "a process failed");
    for (int i = 0; i <= SHARERS; i++)
        must(kill(others[i], SIGKILL) == 0 && waitpid(others[i], NULL, 0) == others[i], "a process");
    compare_all();
    puts("slowread: done");
    return 0;
}

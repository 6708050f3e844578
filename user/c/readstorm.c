/* Processes read one file into memory that they have not touched yet, so that faults interrupt the copies,
 * while others truncate, punch, extend and write it and drop its pages from their mappings. Every byte that a
 * read or a mapping shows is 0 or the number of its page: a frame that was freed too early would show the
 * bytes of its next owner.
 *
 * readstorm PROCESSES ROUNDS SEED [BIG [FILE]]: process 0 changes the file, the others read it. With BIG,
 * one more process goes over that file's mapping until the others are done. If it does not fit into memory,
 * each fault has to reclaim. With FILE they read that one, which has 48 pages of bytes as above. None changes
 * it, so its pages can be dropped and read again: process 0 asks for that, and reclaim does. In the end the
 * counts of all pages are compared. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "page_counts.h"

#define PAGES 48L
/* The buffer begins here in its page, so that most of its pages get bytes of two pages of the file. */
#define OFF 1000L

static int fd;
/* Whether the file cannot be changed, and has all its pages. */
static int is_fixed;
static sigjmp_buf back;
/* Whether the processes may end. */
static volatile sig_atomic_t is_over;

/* A process that ends too early has said why. */
static void on_child(int signal)
{
    (void)signal;
    if (!is_over)
        _exit(1);
}

static void on_bus(int signal)
{
    (void)signal;
    siglongjmp(back, 1);
}

static void must(int good, const char *what)
{
    if (!good) {
        dprintf(1, "readstorm: %s\n", what);
        _exit(1);
    }
}

static unsigned char number(long page)
{
    return (unsigned char)(page + 1);
}

/* Checks bytes that were read from byte `at` of the file on. */
static void check(const unsigned char *bytes, long at, long len, const char *what)
{
    for (long i = 0; i < len; i++)
        must((bytes[i] == 0 && !is_fixed) || bytes[i] == number((at + i) / PAGE), what);
}

/* Reads into fresh memory, at once or in two buffers of which one ends in the middle of a page. */
static void by_calls(unsigned dice)
{
    long at = dice % (PAGES * PAGE), most = 1 + dice / 7 % (PAGES * PAGE), room = most + 2 * PAGE;
    unsigned char *fresh = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(fresh != MAP_FAILED, "mmap");
    struct iovec two[2] = {{fresh + OFF, most / 3}, {fresh + OFF + most / 3, most - most / 3}};
    long got = dice & 1 ? pread(fd, fresh + OFF, most, at) : preadv(fd, two, 2, at);
    must(got >= 0 && got <= most, "pread");
    check(fresh + OFF, at, got, "a read returned bytes of another page");
    for (long i = OFF + got; i < room; i++)
        must(fresh[i] == 0, "a read wrote beyond its bytes");
    must(munmap(fresh, room) == 0, "munmap");
}

/* A buffer that ends at a page which is not there: the read stops exactly in front of it. */
static void into_the_end(unsigned dice)
{
    long pages = 1 + dice % 3, at = dice / 3 % (8 * PAGE);
    unsigned char *fresh = mmap(NULL, (pages + 1) * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(fresh != MAP_FAILED && munmap(fresh + pages * PAGE, PAGE) == 0, "a gap");
    long room = pages * PAGE - OFF, got = pread(fd, fresh + OFF, room + PAGE, at);
    must(got >= 0 && got <= room, "a read went over a gap");
    check(fresh + OFF, at, got, "a short read returned bytes of another page");
    long none = pread(fd, fresh + pages * PAGE, 1, 0);
    must(none == 0 || (none == -1 && errno == EFAULT), "a read into a gap");
    must(munmap(fresh, pages * PAGE) == 0, "munmap");
}

static void by_mapping(unsigned char *shown, unsigned dice)
{
    long page = dice % PAGES;
    if (sigsetjmp(back, 1) == 0)
        check(shown + page * PAGE, page * PAGE, PAGE, "a mapping shows another page");
    if (dice / 64 % 8 == 0)
        must(madvise(shown, PAGES * PAGE, MADV_DONTNEED) == 0, "madvise");
}

static void change(unsigned dice)
{
    static unsigned char page[PAGE];
    long at = dice / 8 % PAGES, other = dice / 512 % PAGES;
    switch (is_fixed ? 2 : dice % 8) {
    case 0:
        must(ftruncate(fd, at * PAGE + other) == 0, "ftruncate");
        break;
    case 1:
        must(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at * PAGE + other, (other + 1) * PAGE) == 0, "punch");
        break;
    case 2:
        must(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0, "fadvise");
        break;
    case 3:
        must(ftruncate(fd, PAGES * PAGE) == 0, "ftruncate");
        break;
    default:
        memset(page, number(at), PAGE);
        must(pwrite(fd, page, PAGE, at * PAGE) == PAGE, "pwrite");
    }
}

static void storm(int changes, long rounds, unsigned state)
{
    unsigned char *shown = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_SHARED, fd, 0);
    must(shown != MAP_FAILED, "mmap");
    /* An error on kernels that do not count reads there. */
    madvise(shown, PAGES * PAGE, MADV_COUNT_READS);
    for (long i = 0; i < rounds; i++) {
        unsigned dice = (unsigned)rand_r(&state) * 31 ^ (unsigned)rand_r(&state);
        if (changes)
            change(dice >> 3);
        else if (i % 16 == 15)
            into_the_end(dice >> 3);
        else if (i % 4 == 3)
            by_mapping(shown, dice >> 3);
        else
            by_calls(dice >> 3);
    }
}

/* Goes over a mapping of the large file, whose pages take the memory of all others. */
static void press(const char *path)
{
    struct stat stat;
    int big = open(path, O_RDONLY);
    must(big >= 0 && fstat(big, &stat) == 0, "the large file");
    volatile unsigned char *all = mmap(NULL, stat.st_size, PROT_READ, MAP_SHARED, big, 0);
    must(all != MAP_FAILED, "mmap of the large file");
    for (;;)
        for (long at = 0; at < stat.st_size; at += PAGE)
            (void)all[at];
}

int main(int argc, char **argv)
{
    long processes = argc > 1 ? atol(argv[1]) : 3, rounds = argc > 2 ? atol(argv[2]) : 1000;
    unsigned seed = argc > 3 ? (unsigned)atol(argv[3]) : 1;
    struct sigaction action = {.sa_handler = on_bus};
    pid_t pid[64], presser = 0;
    int done[2], go[2];
    char word = 0;
    is_fixed = argc > 5;
    fd = is_fixed ? open(argv[5], O_RDONLY) : memfd_create("readstorm", 0);
    must(processes <= 64 && fd >= 0 && sigaction(SIGBUS, &action, NULL) == 0, "setting up");
    must(pipe(done) == 0 && pipe(go) == 0, "pipe");
    signal(SIGCHLD, on_child);
    if (argc > 4 && (presser = fork()) == 0)
        press(argv[4]);
    for (long i = 0; i < processes; i++) {
        pid[i] = fork();
        must(pid[i] >= 0, "fork");
        if (pid[i] == 0) {
            storm(i == 0, rounds, seed + (unsigned)i * 7919);
            must(write(done[1], &word, 1) == 1 && read(go[0], &word, 1) == 1, "waiting");
            _exit(0);
        }
    }
    for (long i = 0; i < processes; i++)
        must(read(done[0], &word, 1) == 1, "a process that is done");
    is_over = 1;
    if (presser > 0)
        must(kill(presser, SIGKILL) == 0 && waitpid(presser, NULL, 0) == presser, "the process with the large file");
    compare_all();
    for (long i = 0; i < processes; i++)
        must(write(go[1], &word, 1) == 1, "going on");
    for (long i = 0; i < processes; i++) {
        int status = 1;
        must(waitpid(pid[i], &status, 0) == pid[i] && status == 0, "a process failed");
    }
    puts("readstorm: done");
    return 0;
}

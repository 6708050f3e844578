/* One process reads a page of a file into pages of another file, which this machine has to read first: so the
 * copy sleeps in the middle, with the page in hand. Another one punches the page out of the file and writes
 * it anew meanwhile, and fills memory with other bytes. Enough processes have named the region of the page
 * that a read is counted in its process's page table where the kernel counts there.
 *
 * slowread FILE ROUNDS: FILE has 64 pages. Prints "slowread: done". */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "page_counts.h"

#define SLOW 64L
#define MADV_COUNT_READS 0x52560001

static int fd, slow;
static volatile unsigned char *shown;

static void must(int good, const char *what)
{
    if (!good) {
        dprintf(1, "slowread: %s\n", what);
        _exit(1);
    }
}

static void read_slowly(long rounds)
{
    for (long round = 0; round < rounds; round++) {
        long at = round % SLOW * PAGE;
        if (at == 0)
            must(posix_fadvise(slow, 0, 0, POSIX_FADV_DONTNEED) == 0, "posix_fadvise");
        unsigned char *into = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, slow, at);
        must(into != MAP_FAILED, "mmap");
        /* The entry shows the page of now. */
        (void)shown[0];
        must(pread(fd, into, PAGE, 0) == PAGE, "pread");
        for (long i = 0; i < PAGE; i++)
            must(into[i] == 0 || into[i] == 0x11, "a read returned bytes of another page");
        must(munmap(into, PAGE) == 0, "munmap");
    }
    _exit(0);
}

static void change(void)
{
    static unsigned char page[PAGE];
    memset(page, 0x11, PAGE);
    must(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE) == 0, "punch");
    unsigned char *other = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(other != MAP_FAILED, "mmap");
    memset(other, 0xee, 16 * PAGE);
    must(munmap(other, 16 * PAGE) == 0 && pwrite(fd, page, PAGE, 0) == PAGE, "pwrite");
}

int main(int argc, char **argv)
{
    pid_t sharers[3], reader;
    int status;
    must(argc == 3, "give a file and rounds");
    fd = memfd_create("slowread", 0), slow = open(argv[1], O_RDONLY);
    must(fd >= 0 && slow >= 0 && ftruncate(fd, PAGE) == 0, "two files");
    shown = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
    must(shown != MAP_FAILED, "mmap");
    madvise((void *)shown, PAGE, MADV_COUNT_READS);
    for (int i = 0; i < 3; i++)
        if ((sharers[i] = fork()) == 0)
            for (;;)
                pause();
    if ((reader = fork()) == 0)
        read_slowly(atol(argv[2]));
    while (waitpid(reader, &status, WNOHANG) == 0)
        change();
    must(status == 0, "the reader failed");
    compare_all();
    for (int i = 0; i < 3; i++)
        must(kill(sharers[i], SIGKILL) == 0 && waitpid(sharers[i], NULL, 0) == sharers[i], "a sharer");
    puts("slowread: done");
    return 0;
}

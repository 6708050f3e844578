/* A process reads a page of a file that it has mapped and named, over and over, and touches it between.
 * Another one takes the page out of the file and writes it anew all the time. So translations of the page are
 * often invalidated while a read is in the middle of its copy, where the read is counted in the entry of a
 * page table. A count that goes with the entry keeps the frame for ever, which the kernel reports at the end.
 *
 * midcopy ROUNDS prints "midcopy: done". */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "must.h"
#include "page_counts.h"

#define BYTE 0x11
/* Processes that have named the region and wait. One more changes the page. */
#define SHARERS 2

static int fd;

static void change(void)
{
    static unsigned char page[PAGE];
    memset(page, BYTE, PAGE);
    for (;;) {
        must("punch", fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE) == 0);
        must("pwrite", pwrite(fd, page, PAGE, 0) == PAGE);
    }
}

int main(int argc, char **argv)
{
    static unsigned char bytes[PAGE];
    pid_t others[SHARERS + 1];
    must("give rounds", argc == 2);
    fd = memfd_create("midcopy", 0);
    must("the file", fd >= 0 && ftruncate(fd, PAGE) == 0);
    volatile unsigned char *shown = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
    must("mmap", shown != MAP_FAILED);
    madvise((void *)shown, PAGE, MADV_COUNT_READS);
    for (int i = 0; i <= SHARERS; i++) {
        others[i] = fork();
        must("fork", others[i] >= 0);
        if (others[i] == 0) {
            if (i == 0)
                change();
            for (;;)
                pause();
        }
    }
    for (long round = atol(argv[1]); round > 0; round--) {
        (void)shown[0];
        for (int i = 0; i < 4; i++) {
            must("pread", pread(fd, bytes, PAGE, 0) == PAGE);
            for (int at = 0; at < PAGE; at++)
                must("other bytes", bytes[at] == BYTE || bytes[at] == 0);
        }
    }
    for (int i = 0; i <= SHARERS; i++)
        must("a process", kill(others[i], SIGKILL) == 0 && waitpid(others[i], NULL, 0) == others[i]);
    compare_all();
    puts("midcopy: done");
    return 0;
}

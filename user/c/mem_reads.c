/* Processes read the memory and the mappings of another one through shared open files, while that forks.
 *
 * mem_reads ROUNDS: prints "mem_reads: done". If a reader lets others run with the position of its file
 * locked, the next reader waits for ever. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "must.h"

enum { READERS = 4 };
#define BYTES (128L << 20)
#define PAGE 4096L

static struct {
    atomic_int ready, over;
} *shared;

static void read_on(int memory, int maps, char *at)
{
    static char text[PAGE];
    long reads = 0;
    while (!atomic_load(&shared->over)) {
        /* Another reader may move the position in between. */
        lseek(memory, (off_t)at, SEEK_SET);
        if (read(memory, text, 8) == 8 && reads++ == 0)
            atomic_fetch_add(&shared->ready, 1);
        lseek(maps, 0, SEEK_SET);
        if (read(maps, text, sizeof text) < 0) {
            atomic_fetch_add(&shared->ready, READERS);
            _exit(2);
        }
    }
    _exit(0);
}

int main(int argc, char **argv)
{
    long rounds = argc > 1 ? atol(argv[1]) : 100;
    pid_t readers[READERS];
    int status;
    shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *pages = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int memory = open("/proc/self/mem", O_RDONLY), maps = open("/proc/self/maps", O_RDONLY);
    must("room", shared != MAP_FAILED && pages != MAP_FAILED && memory >= 0 && maps >= 0);
    for (int i = 0; i < READERS; i++) {
        readers[i] = fork();
        must("a reader", readers[i] >= 0);
        if (readers[i] == 0)
            read_on(memory, maps, pages);
    }
    while (atomic_load(&shared->ready) < READERS)
        sched_yield();
    /* No huge pages, which would be few. */
    madvise(pages, BYTES, MADV_NOHUGEPAGE);
    for (long at = 0; at < BYTES; at += PAGE)
        pages[at] = 1;
    for (long round = 0; round < rounds; round++) {
        pid_t pid = fork();
        must("a child", pid >= 0);
        if (pid == 0)
            _exit(0);
        must("its end", waitpid(pid, &status, 0) == pid && status == 0);
    }
    atomic_store(&shared->over, 1);
    for (int i = 0; i < READERS; i++)
        must("a reader's end", waitpid(readers[i], &status, 0) == readers[i] && status == 0);
    printf("mem_reads: done\n");
    return 0;
}

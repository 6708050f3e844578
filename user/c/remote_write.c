/* A process touches a block on one CPU, goes to another, unmaps the block there, and maps it again. Then
 * another process writes to it, by a call, on the first CPU, whose tables still have stale translations of
 * the block.
 *
 * remote_write ROUNDS */
#define _GNU_SOURCE
#include "check.h"

#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096L
#define BLOCK (512 * PAGE)
/* Epochs after which an unused node has been freed, summed over two CPUs. */
#define ENOUGH 20

static void must(int good, const char *what)
{
    if (!good) {
        printf("remote_write: %s: %s\n", what, strerror(errno));
        exit(1);
    }
}

static void go_to(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    must(sched_setaffinity(0, sizeof set, &set) == 0, "sched_setaffinity");
}

static void map(unsigned char *place, long bytes)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    must(mmap(place, bytes, PROT_READ | PROT_WRITE, flags, -1, 0) == place, "mmap");
    must(madvise(place, bytes, MADV_NOHUGEPAGE) == 0, "madvise");
}

/* Returns the sum of the epochs that the CPUs have seen. Where the system does not count them, the result
 * grows by ENOUGH with each call. */
static long epochs(void)
{
    static long looks;
    char line[4096];
    long seen = looks += ENOUGH;
    FILE *counters = fopen("/proc/radixvm/counters", "r");
    while (counters && fgets(line, sizeof line, counters) && sscanf(line, "epochs %ld", &seen) != 1)
        ;
    if (counters)
        fclose(counters);
    return seen;
}

/* Works until the memory that was unmapped before has been freed and reused. */
static void work(unsigned char *place)
{
    for (long before = epochs(); epochs() < before + ENOUGH;) {
        map(place, BLOCK);
        for (long page = 0; page < 512; page += 8)
            place[page * PAGE] = 1;
    }
}

/* Writes to each page that it is told of, on the second CPU. */
static void write_for(pid_t parent, int asked, int done)
{
    unsigned char *at, word = 7;
    go_to(1);
    while (read(asked, &at, sizeof at) == sizeof at) {
        struct iovec here = {&word, 1}, there = {at, 1};
        must(process_vm_writev(parent, &here, 1, &there, 1, 0) == 1, "process_vm_writev");
        must(write(done, &word, 1) == 1, "write");
    }
    exit(0);
}

int main(int argc, char **argv)
{
    int asked[2], done[2];
    unsigned char *room = mmap(NULL, 3 * BLOCK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), answer;
    must(argc == 2 && room != MAP_FAILED && pipe(asked) == 0 && pipe(done) == 0, "no room");
    unsigned char *block = (unsigned char *)(((uintptr_t)room + BLOCK - 1) & -(uintptr_t)BLOCK);
    if (fork() == 0) {
        close(asked[1]);
        write_for(getppid(), asked[0], done[1]);
    }
    close(asked[0]);
    for (int round = 0; round < atoi(argv[1]); round++) {
        unsigned char *page = block + (round % 512) * PAGE;
        go_to(1);
        map(block, BLOCK);
        memset(block, 1, BLOCK);
        go_to(0);
        must(munmap(block, BLOCK) == 0, "munmap");
        work(block + BLOCK);
        map(block, BLOCK);
        must(write(asked[1], &page, sizeof page) == sizeof page && read(done[0], &answer, 1) == 1, "no answer");
        must(*page == 7, "not what was written");
    }
    close(asked[1]);
    int status;
    must(wait(&status) > 0 && status == 0, "the other");
    printf("remote_write: done\n");
}

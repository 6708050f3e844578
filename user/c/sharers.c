/* Processes that map one large file and read all of it, again and again, when memory is short. So the kernel
 * drops pages that all of them have mapped.
 *
 * sharers FILE PROCESSES ROUNDS [press]: with `press` they then compute, while one more process takes memory
 * of the file's size, for which the kernel has to drop the pages. Then the counts of all pages are compared,
 * if the file is not large. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "page_counts.h"


static void must(int good, const char *what)
{
    if (!good) {
        printf("sharers: %s\n", what);
        exit(1);
    }
}

/* Each byte of a page of the file is the same, and never 0. */
static void go_over(const unsigned char *file, long bytes)
{
    for (long at = 0; at < bytes; at += PAGE) {
        unsigned char first = file[at];
        must(first != 0 && file[at + PAGE - 1] == first, "a page is not the file's");
    }
}

/* The processes that have gone over the file, and whether the one that takes memory is done. */
static struct {
    _Atomic int ready, over;
} *shared;

static void *map_memory(long bytes, int how)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, how | MAP_ANONYMOUS, -1, 0);
    must(at != MAP_FAILED, "mmap of memory");
    return at;
}

/* Takes memory when all processes have the file's pages. */
static void press(int processes, long bytes)
{
    char *memory = map_memory(bytes, MAP_PRIVATE);
    while (atomic_load(&shared->ready) < processes)
        sched_yield();
    for (long at = 0; at < bytes; at += PAGE)
        memory[at] = 1;
    if (bytes < SLOTS / 4 * PAGE)
        compare_all();
    atomic_store(&shared->over, 1);
}

int main(int argc, char **argv)
{
    struct stat stat;
    must(argc >= 4, "FILE PROCESSES ROUNDS");
    int presses = argc > 4;
    shared = map_memory(PAGE, MAP_SHARED);
    int fd = open(argv[1], O_RDONLY);
    must(fd >= 0 && fstat(fd, &stat) == 0, "no file");
    for (long number = atol(argv[2]); number > 0; number--) {
        pid_t child = fork();
        must(child >= 0, "fork");
        if (child == 0) {
            unsigned char *file = mmap(NULL, stat.st_size, PROT_READ, MAP_SHARED, fd, 0);
            must(file != MAP_FAILED, "mmap");
            for (long round = atol(argv[3]); round > 0; round--)
                go_over(file, stat.st_size);
            atomic_fetch_add(&shared->ready, 1);
            while (presses && !atomic_load(&shared->over))
                ;
            exit(0);
        }
    }
    if (presses)
        press(atoi(argv[2]), stat.st_size);
    for (int status; wait(&status) > 0;)
        must(status == 0, "a process failed");
    puts("sharers: done");
    return 0;
}

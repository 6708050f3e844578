/* A storm on one file: threads read and write it by calls, by shared and by private mappings, while it is
 * truncated, extended, punched, mapped and unmapped. Whatever happens, page p begins with 0 or with its own
 * number, and private writes are seen nowhere else. Now and then all threads rest. Then every mapping, also
 * those of children made in the storm, shows what read does, and nothing beyond the end. At the last rest the
 * counts of all pages are compared.
 *
 * mapstorm THREADS ROUNDS SEED */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "page_counts.h"

#define PAGES 40
#define PHASE 100
#define FILE_MARK 0x1000000u
#define OWN_MARK 0x2000000u

struct mapping {
    volatile unsigned char *at;
    int private;
};

struct child {
    pid_t pid;
    int pipe[2];
};

static int fd;
static pthread_barrier_t resting;
static long rounds;
static unsigned seed;
static __thread sigjmp_buf back;

static void on_bus(int signal)
{
    (void)signal;
    siglongjmp(back, 1);
}

static void must(int good, const char *what)
{
    if (!good) {
        dprintf(1, "mapstorm: %s\n", what);
        _exit(1);
    }
}

static void open_mapping(struct mapping *mapping, int private)
{
    mapping->private = private;
    mapping->at = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, private ? MAP_PRIVATE : MAP_SHARED, fd, 0);
    must(mapping->at != MAP_FAILED, "mmap");
}

static void close_mapping(struct mapping *mapping)
{
    must(munmap((void *)mapping->at, PAGES * PAGE) == 0, "munmap");
}

/* Reads or writes the page's first word through the mapping, unless there is no page. */
static void touch(struct mapping *mapping, unsigned page, int write)
{
    volatile unsigned *word = (volatile unsigned *)(mapping->at + page * PAGE);
    unsigned mark = mapping->private ? OWN_MARK : FILE_MARK;
    if (sigsetjmp(back, 1))
        return;
    if (write)
        *word = mark + page;
    unsigned seen = *word;
    must(seen == 0 || seen == FILE_MARK + page || (mapping->private && seen == OWN_MARK + page), "a page is wrong");
}

/* No thread changes the file now: the mapping shows the whole of it and no more. */
static void at_rest(struct mapping *mapping)
{
    struct stat stat;
    must(fstat(fd, &stat) == 0, "fstat");
    for (volatile unsigned page = 0; page < PAGES; page++) {
        unsigned read = 0;
        if (sigsetjmp(back, 1)) {
            must(page * PAGE >= stat.st_size, "a page is missing");
            continue;
        }
        unsigned seen = *(volatile unsigned *)(mapping->at + page * PAGE);
        must(page * PAGE < stat.st_size, "a page is left beyond the end");
        must(pread(fd, &read, sizeof read, page * PAGE) >= 0 && read == seen, "a mapping does not show the file");
    }
}

/* Starts a child that checks its copy of the mapping when it is told to. */
static void start_child(struct child *child, struct mapping *mapping)
{
    char word;
    must(pipe(child->pipe) == 0, "pipe");
    child->pid = fork();
    must(child->pid >= 0, "fork");
    if (child->pid > 0)
        return;
    must(read(child->pipe[0], &word, 1) == 1, "a word for the child");
    at_rest(mapping);
    _exit(0);
}

static void ask_child(struct child *child)
{
    int status = 1;
    if (child->pid == 0)
        return;
    must(write(child->pipe[1], "?", 1) == 1 && waitpid(child->pid, &status, 0) == child->pid && status == 0, "a child");
    close(child->pipe[0]), close(child->pipe[1]);
    child->pid = 0;
}

/* All threads stop. The part that is truncated at the end of the rest does not come back. */
static void rest(struct mapping *shared, struct child *child, int is_last)
{
    pthread_barrier_wait(&resting);
    at_rest(shared);
    ask_child(child);
    if (pthread_barrier_wait(&resting) == PTHREAD_BARRIER_SERIAL_THREAD) {
        if (is_last)
            compare_all();
        must(ftruncate(fd, 4) == 0 && ftruncate(fd, PAGES * PAGE) == 0, "ftruncate");
    }
    pthread_barrier_wait(&resting);
    for (unsigned page = 1; page < PAGES; page++)
        must(*(volatile unsigned *)(shared->at + page * PAGE) == 0, "what was cut off came back");
    pthread_barrier_wait(&resting);
}

static void by_calls(unsigned page, int write)
{
    unsigned word = FILE_MARK + page;
    if (write)
        must(pwrite(fd, &word, sizeof word, page * PAGE) == sizeof word, "pwrite");
    else if (pread(fd, &word, sizeof word, page * PAGE) == sizeof word)
        must(word == 0 || word == FILE_MARK + page, "read");
}

static void *storm(void *argument)
{
    unsigned state = seed + (unsigned)(uintptr_t)argument * 7919;
    struct mapping mappings[2];
    struct child child = {0};
    open_mapping(&mappings[0], 0), open_mapping(&mappings[1], 1);
    for (long i = 0; i < rounds; i++) {
        unsigned dice = rand_r(&state) >> 4, page = dice / 64 % PAGES, other = dice / 4096 % PAGES;
        struct mapping *mapping = &mappings[dice & 1];
        if (i % PHASE == PHASE - 1)
            rest(&mappings[0], &child, 0);
        switch (dice / 2 % 32) {
        case 0:
            must(ftruncate(fd, page * PAGE + 4 * other) == 0, "ftruncate");
            break;
        case 1:
            must(ftruncate(fd, PAGES * PAGE) == 0, "ftruncate");
            break;
        case 2:
            must(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, page * PAGE, (other + 1) * PAGE) == 0, "punch");
            break;
        case 3:
            close_mapping(mapping), open_mapping(mapping, mapping->private);
            break;
        case 4:
            must(madvise((void *)mapping->at, PAGES * PAGE, MADV_DONTNEED) == 0, "madvise");
            break;
        case 5:
            if (child.pid == 0)
                start_child(&child, &mappings[0]);
            break;
        case 6 ... 9:
            by_calls(page, 1);
            break;
        case 10 ... 14:
            by_calls(page, 0);
            break;
        default:
            touch(mapping, page, dice & 2048);
        }
    }
    rest(&mappings[0], &child, 1);
    close_mapping(&mappings[0]), close_mapping(&mappings[1]);
    return NULL;
}

int main(int argc, char **argv)
{
    long threads = argc > 1 ? atol(argv[1]) : 4;
    pthread_t thread[64];
    rounds = argc > 2 ? atol(argv[2]) : 1000;
    seed = argc > 3 ? (unsigned)atol(argv[3]) : 1;
    fd = memfd_create("storm", 0);
    struct sigaction action = {.sa_handler = on_bus};
    pthread_barrier_init(&resting, NULL, (unsigned)threads);
    must(threads <= 64 && fd >= 0 && sigaction(SIGBUS, &action, NULL) == 0, "setting up");
    for (long i = 0; i < threads; i++)
        must(pthread_create(&thread[i], NULL, storm, (void *)i) == 0, "pthread_create");
    for (long i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    puts("mapstorm: done");
    return 0;
}

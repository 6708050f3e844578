/* Uses more memory than there is, with contents that can be compressed. Threads fill it and read each
 * other's. It is read and changed in all possible ways, and children inherit it.
 *
 * compress MEGABYTES: the size of that memory. Exits with 0 if everything is as it should be. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "page_counts.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#define THREADS 4
#define WORDS (PAGE / sizeof(long))
/* One page in KINDS is zeroes, and one in KINDS cannot be compressed. */
#define KINDS 64

static char *memory;
static long pages;

/* Returns the contents of word `at` of page `page`. */
static unsigned long word(long page, long at)
{
    switch (page % KINDS) {
    case 0:
        return 0;
    case 1: {
        unsigned long mixed = (page * WORDS + at) * 0x9e3779b97f4a7c15;
        mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
        return mixed ^ mixed >> 27;
    }
    default:
        return page * 16 + at % (page % KINDS);
    }
}

static void fill(char *to, long page)
{
    for (unsigned long at = 0; at < WORDS; at++)
        ((unsigned long *)to)[at] = word(page, at);
}

static int holds(const char *from, long page)
{
    for (unsigned long at = 0; at < WORDS; at++)
        if (((const unsigned long *)from)[at] != word(page, at))
            return 0;
    return 1;
}

static void *fill_part(void *part)
{
    long first = (long)part * pages / THREADS, end = ((long)part + 1) * pages / THREADS;
    for (long page = first; page < end; page++)
        fill(memory + page * PAGE, page);
    return NULL;
}

static void *check_part(void *part)
{
    long first = (long)part * pages / THREADS, end = ((long)part + 1) * pages / THREADS, wrong = 0;
    for (long page = first; page < end; page++)
        wrong += !holds(memory + page * PAGE, page);
    return (void *)wrong;
}

/* Runs each part in a thread of its own and returns the sum of their results. */
static long in_threads(void *(*work)(void *))
{
    pthread_t threads[THREADS];
    void *said;
    long sum = 0;
    for (long part = 0; part < THREADS; part++)
        if (pthread_create(&threads[part], NULL, work, (void *)part) != 0)
            check("a thread", 0), exit(1);
    for (int part = 0; part < THREADS; part++) {
        pthread_join(threads[part], &said);
        sum += (long)said;
    }
    return sum;
}

/* Returns a number from a file of /proc, in kB. */
static long number(const char *file, const char *name)
{
    static char text[65536];
    int from = open(file, O_RDONLY);
    long length = read(from, text, sizeof text - 1);
    close(from);
    text[length > 0 ? length : 0] = 0;
    char *line = strstr(text, name);
    return line ? atol(line + strlen(name)) : -1;
}

static int is_resident(const char *at)
{
    unsigned char there = 0;
    mincore((void *)at, PAGE, &there);
    return there & 1;
}

/* Returns the first compressible page from `page` on that is not resident any more. */
static long next_gone(long page)
{
    while (page < pages && (is_resident(memory + page * PAGE) || page % KINDS < 2))
        page++;
    if (page == pages)
        check("some have left", 0), exit(1);
    return page;
}

static void check_numbers(void)
{
    long swapped = number("/proc/self/status", "VmSwap:"), all = number("/proc/meminfo", "Zswapped:");
    long total = number("/proc/meminfo", "SwapTotal:"), left = number("/proc/meminfo", "SwapFree:");
    check("pages have left", swapped > 0 && swapped <= all);
    check("what is left", total - left == all);
    check("compressed", number("/proc/meminfo", "Zswap:") * 2 < all);
    check("smaps_rollup", number("/proc/self/smaps_rollup", "Swap:") > 0);
}

/* Writes and reads `count` pages of a file by one call each, into memory that has no page yet. The calls must
 * not be short, though memory is full. */
static void check_file(long first, long count)
{
    int file = open("/tmp/compress", O_RDWR | O_CREAT | O_TRUNC, 0600);
    char *copy = mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    long wrong = 0;
    check("a large write", write(file, memory + first * PAGE, count * PAGE) == count * PAGE);
    check("a large read", lseek(file, 0, SEEK_SET) == 0 && read(file, copy, count * PAGE) == count * PAGE);
    for (long page = 0; page < count; page++)
        wrong += !holds(copy + page * PAGE, first + page);
    check("what was written", wrong == 0);
    munmap(copy, count * PAGE);
    /* Other pages first take the memory that the file had. */
    check("cut", ftruncate(file, 0) == 0 && in_threads(check_part) == 0);
    check("room for a large one", posix_fallocate(file, 0, count * PAGE) == 0);
    close(file);
    unlink("/tmp/compress");
}

/* Makes calls on pages that are not resident. */
static void check_calls(void)
{
    static char copy[PAGE];
    long page = next_gone(0);
    struct iovec from = {memory + page * PAGE, PAGE}, to = {copy, PAGE};
    check("process_vm_readv", process_vm_readv(getpid(), &to, 1, &from, 1, 0) == PAGE && holds(copy, page));

    int ends[2];
    page = next_gone(page + 1);
    check("pipe", pipe(ends) == 0);
    check("write", write(ends[1], memory + page * PAGE, PAGE) == PAGE);
    check("read", read(ends[0], copy, PAGE) == PAGE && holds(copy, page));

    page = next_gone(page + 1);
    char *at = memory + page * PAGE;
    check("mprotect", mprotect(at, PAGE, PROT_NONE) == 0 && mprotect(at, PAGE, PROT_READ) == 0 && holds(at, page));
    mprotect(at, PAGE, PROT_READ | PROT_WRITE);

    page = next_gone(page + 1);
    at = memory + page * PAGE;
    char *moved = mremap(at, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
    check("mremap", moved != MAP_FAILED && !is_resident(moved) && holds(moved, page) && at[0] == 0);
    munmap(moved, PAGE);
    fill(at, page);

    page = next_gone(page + 1);
    at = memory + page * PAGE;
    check("mlock", mlock(at, PAGE) == 0 && is_resident(at) && holds(at, page));
    munlock(at, PAGE);

    page = next_gone(page + 1);
    at = memory + page * PAGE;
    check("populate", madvise(at, PAGE, MADV_POPULATE_READ) == 0 && is_resident(at) && holds(at, page));

    page = next_gone(page + 1);
    at = memory + page * PAGE;
    check("dontneed", madvise(at, PAGE, MADV_DONTNEED) == 0 && at[0] == 0);
    fill(at, page);
}

static int is_kept(long page)
{
    return page / KINDS % 8 == 0;
}

/* Checks all pages that are kept. The first word of each must be greater by `added`. */
static long count_wrong(unsigned long added)
{
    long wrong = 0;
    for (long page = 0; page < pages; page++)
        if (is_kept(page)) {
            unsigned long *at = (unsigned long *)(memory + page * PAGE);
            wrong += at[0] != word(page, 0) + added || at[WORDS - 1] != word(page, WORDS - 1);
        }
    return wrong;
}

static void be_child(unsigned long added)
{
    if (count_wrong(0) != 0)
        _exit(1);
    for (long page = 0; page < pages; page++)
        if (is_kept(page))
            *(unsigned long *)(memory + page * PAGE) += added;
    _exit(count_wrong(added) == 0 ? 0 : 2);
}

/* Checks that parent and children together have as much as there is room for. */
static void check_children(void)
{
    int status, good = 1;
    for (long page = 0; page < pages; page++)
        if (!is_kept(page))
            madvise(memory + page * PAGE, PAGE, MADV_DONTNEED);
    for (unsigned long child = 1; child <= 2; child++)
        if (fork() == 0)
            be_child(child);
    while (wait(&status) > 0)
        good &= status == 0;
    check("children", good);
    check("their parent", count_wrong(0) == 0);
}

int main(int count, char **arguments)
{
    pages = (count > 1 ? atol(arguments[1]) : 32) * (1 << 20) / PAGE;
    memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check("mmap", memory != MAP_FAILED);
    in_threads(fill_part);
    check("filled", in_threads(check_part) == 0);
    check_numbers();
    check_calls();
    check_file(pages / 4, pages / 4);
    check("again", in_threads(check_part) == 0);
    check_children();
    compare_all();
    munmap(memory, pages * PAGE);
    check("all is forgotten", number("/proc/self/status", "VmSwap:") < 1024);
    return failures != 0;
}

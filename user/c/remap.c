/* Moves, grows and shrinks mappings, and checks their attributes (madvise, mlock, mincore) and what a child
 * inherits.
 *
 * remap: exits with 0 if everything is as it should be. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "page_counts.h"

#define RW (PROT_READ | PROT_WRITE)

static char *map(long pages, int prot, int flags, int fd)
{
    char *at = mmap(NULL, pages * PAGE, prot, flags, fd, 0);
    if (at == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return at;
}

static char *anonymous(long pages)
{
    return map(pages, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

/* Maps `pages` pages, each with its number in it, and nothing behind them. */
static char *numbered(long pages)
{
    char *at = anonymous(2 * pages);
    munmap(at + pages * PAGE, pages * PAGE);
    for (long page = 0; page < pages; page++)
        at[page * PAGE] = (char)(page + 1);
    return at;
}

static int has_numbers(const char *at, long pages)
{
    for (long page = 0; page < pages; page++)
        if (at[page * PAGE] != (char)(page + 1))
            return 0;
    return 1;
}

/* Returns whether the pages are mapped at all. */
static int mapped(void *at, long pages)
{
    return msync(at, pages * PAGE, MS_ASYNC) == 0;
}

static int no_map(void *result, int error)
{
    return fails((long)result, error);
}

static void sizes(void)
{
    char *at = numbered(4);
    check("grows in place", mremap(at, 4 * PAGE, 6 * PAGE, 0) == at && has_numbers(at, 4) && at[5 * PAGE] == 0);
    check("shrinks", mremap(at, 6 * PAGE, 2 * PAGE, 0) == at && mapped(at, 2) && !mapped(at + 2 * PAGE, 1));
    char *wall = mmap(at + 2 * PAGE, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    check("has no room to grow", no_map(mremap(at, 2 * PAGE, 3 * PAGE, 0), ENOMEM));
    char *moved = mremap(at, 2 * PAGE, 300 * PAGE, MREMAP_MAYMOVE);
    check("moves to grow", moved != at && has_numbers(moved, 2) && moved[299 * PAGE] == 0 && !mapped(at, 1));
    munmap(moved, 300 * PAGE);
    munmap(wall, PAGE);
}

static void places(void)
{
    char *at = numbered(5), *room = anonymous(8);
    room[3 * PAGE] = 99;
    char *to = mremap(at, 5 * PAGE, 5 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, room + 2 * PAGE);
    check("moves over another", to == room + 2 * PAGE && has_numbers(to, 5) && !mapped(at, 1));
    check("may not meet itself",
          no_map(mremap(to, 5 * PAGE, 5 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to + PAGE), EINVAL));
    char *other = mremap(to, 5 * PAGE, 5 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    check("leaves empty pages behind", other != MAP_FAILED && other != to && has_numbers(other, 5) && to[PAGE] == 0);
    check("leaves as many as it takes",
          no_map(mremap(to, PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL), EINVAL));
    munmap(other, 5 * PAGE);
    munmap(room, 8 * PAGE);
}

static void refusals(void)
{
    char *at = anonymous(4);
    mprotect(at + PAGE, PAGE, PROT_READ);
    check("one mapping at a time", no_map(mremap(at, 2 * PAGE, 9 * PAGE, MREMAP_MAYMOVE), EFAULT));
    munmap(at + 3 * PAGE, PAGE);
    check("no holes", no_map(mremap(at + 2 * PAGE, 2 * PAGE, 9 * PAGE, MREMAP_MAYMOVE), EFAULT));
    check("not mapped", no_map(mremap(at + 3 * PAGE, PAGE, 2 * PAGE, MREMAP_MAYMOVE), EFAULT));
    check("not aligned", no_map(mremap(at + 1, PAGE, 2 * PAGE, MREMAP_MAYMOVE), EINVAL));
    check("fixed must may move", no_map(mremap(at, PAGE, PAGE, MREMAP_FIXED, at + 2 * PAGE), EINVAL));
    check("to nothing", no_map(mremap(at, PAGE, 0, MREMAP_MAYMOVE), EINVAL));
    munmap(at, 3 * PAGE);
}

static void files(void)
{
    int fd = memfd_create("remap", 0);
    check("a file", fd >= 0 && ftruncate(fd, 8 * PAGE) == 0);
    char *at = map(4, RW, MAP_SHARED, fd), *view = map(8, RW, MAP_SHARED, fd);
    view[5 * PAGE] = 55;
    view[PAGE] = 11;
    char *moved = mremap(at + PAGE, PAGE, 6 * PAGE, MREMAP_MAYMOVE);
    check("moves with its file", moved != MAP_FAILED && moved[0] == 11 && moved[4 * PAGE] == 55);
    moved[0] = 12;
    check("writes to its file", view[PAGE] == 12);
    check("punches a hole", madvise(view + PAGE, PAGE, MADV_REMOVE) == 0 && moved[0] == 0);
    char *private = map(2, RW, MAP_PRIVATE, fd);
    check("not into what is private", madvise(private, PAGE, MADV_REMOVE) == -1 && errno == EACCES);
    check("wipes only memory", madvise(private, PAGE, MADV_WIPEONFORK) == -1 && errno == EINVAL);
}

static void residence(void)
{
    unsigned char found[4];
    char *at = anonymous(4);
    at[PAGE] = 1;
    mincore(at, 4 * PAGE, found);
    check("what was touched is there", !(found[0] & 1) && (found[1] & 1) && !(found[2] & 1));
    check("locks", mlock(at, 3 * PAGE) == 0 && mincore(at, 4 * PAGE, found) == 0 && (found[0] & found[2] & 1));
    check("unlocks", munlock(at, 4 * PAGE) == 0);
    munmap(at + PAGE, PAGE);
    check("locks no hole", mlock(at, 4 * PAGE) == -1 && errno == ENOMEM);
    check("nothing is there in a hole", mincore(at, 4 * PAGE, found) == -1 && errno == ENOMEM);
}

/* Returns the child's view of the mappings, with a bit for each that is as it should be. */
static int child_sees(const char *at, const char *shared)
{
    int right = has_numbers(at, 2) ? 1 : 0;
    right |= mapped((void *)(uintptr_t)(at + 2 * PAGE), 1) ? 0 : 2;
    right |= at[3 * PAGE] == 0 ? 4 : 0;
    right |= shared[0] == 7 ? 8 : 0;
    return right;
}

static void children(void)
{
    char *at = numbered(4), *shared = map(1, RW, MAP_SHARED | MAP_ANONYMOUS, -1);
    madvise(at + 2 * PAGE, PAGE, MADV_DONTFORK);
    madvise(at + 3 * PAGE, PAGE, MADV_WIPEONFORK);
    shared[0] = 7;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int right = child_sees(at, shared);
        at[0] = 100;
        shared[0] = 8;
        _exit(right | (at[0] == 100 ? 16 : 0));
    }
    int status = 0;
    waitpid(child, &status, 0);
    check("a child sees what it should", WIFEXITED(status) && WEXITSTATUS(status) == 31);
    check("its writes are its own", has_numbers(at, 4) && shared[0] == 8);
    at[0] = 50;
    check("the parent writes on", at[0] == 50);
}

/* Large mappings at a fixed place that go beyond a limit: what was there is still there. */
static void beyond_limits(void)
{
    enum { MANY = 4096 };
    struct rlimit old, tight;
    unsigned long use = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    if (!statm || fscanf(statm, "%lu", &use) != 1 || getrlimit(RLIMIT_AS, &old))
        exit(1);
    fclose(statm);
    char *at = numbered(MANY);
    int file = memfd_create("file", 0);
    check("a file for the limits", file >= 0 && ftruncate(file, 2 * MANY * PAGE) == 0);
    tight = old;
    tight.rlim_cur = (use + MANY + 512) * PAGE;
    check("a limit", setrlimit(RLIMIT_AS, &tight) == 0);
    void *anonymous = mmap(at, 2 * MANY * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    check("mmap beyond the limit", no_map(anonymous, ENOMEM) && has_numbers(at, MANY));
    void *mapped_file = mmap(at, 2 * MANY * PAGE, RW, MAP_PRIVATE | MAP_FIXED, file, 0);
    check("mmap of a file beyond the limit", no_map(mapped_file, ENOMEM) && has_numbers(at, MANY));
    check("no limit", setrlimit(RLIMIT_AS, &old) == 0);
    void *high = mmap(at, (1L << 47) - PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    check("mmap beyond user space", no_map(high, ENOMEM) && has_numbers(at, MANY));
    char *last = (char *)((1L << 47) - 4 * PAGE);
    if (mmap(last, 2 * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != last)
        exit(1);
    *last = 1;
    check("madvise beyond user space", fails(madvise(last, 1L << 46, MADV_DONTNEED), ENOMEM) && *last == 0);
    int read_only = open("/proc/self/exe", O_RDONLY);
    mmap(last, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, read_only, 0);
    check("a right that is not to be had, and user space ends", fails(mprotect(last, 1L << 46, RW), EACCES));
}

int main(void)
{
    sizes();
    places();
    refusals();
    files();
    residence();
    children();
    beyond_limits();
    compare_all();
    return failures != 0;
}

/* The files of /proc about a process's memory: maps, smaps, status, statm, pagemap, also while threads map
 * and unmap.
 *
 * maps FILE: exits with 0 if everything is as it should be. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

#define PAGE 4096L
#define RW (PROT_READ | PROT_WRITE)
#define READINGS 200
#define THREADS 3

static char text[1 << 21];

static void read_text(const char *name)
{
    int fd = open(name, O_RDONLY);
    size_t done = 0;
    ssize_t now;
    while ((now = read(fd, text + done, sizeof text - 1 - done)) > 0)
        done += now;
    text[done] = 0;
    close(fd);
}

/* A line of maps. */
struct line {
    unsigned long start, end, offset;
    char rights[5], name[256];
};

/* Parses the line at `at`. Returns where the next one is, or NULL if this is none. */
static char *parse(char *at, struct line *line)
{
    int bytes = 0;
    line->name[0] = 0;
    int found = sscanf(at, "%lx-%lx %4s %lx %*x:%*x %*u%n", &line->start, &line->end, line->rights, &line->offset, &bytes);
    if (found != 4)
        return NULL;
    at += bytes + strspn(at + bytes, " ");
    size_t length = strcspn(at, "\n");
    snprintf(line->name, sizeof line->name, "%.*s", (int)length, at);
    return at + length + (at[length] == '\n');
}

/* Finds the line of `address` in `file`. Returns what follows it, or NULL. */
static char *find(const char *file, void *address, struct line *line)
{
    read_text(file);
    for (char *at = text; *at; at = strchr(at, '\n') + 1) {
        char *next = parse(at, line);
        if (next && line->start <= (uintptr_t)address && (uintptr_t)address < line->end)
            return next;
    }
    return NULL;
}

static int says(void *address, long pages, const char *rights, unsigned long offset, const char *name)
{
    struct line line;
    if (!find("/proc/self/maps", address, &line))
        return 0;
    int place = !pages || (line.start == (uintptr_t)address && line.end == line.start + pages * PAGE);
    return place && !strcmp(line.rights, rights) && line.offset == offset && !strcmp(line.name, name);
}

/* Returns the number behind `key` in smaps of `address`, in kB, or -1 if there is none. */
static long sum(void *address, const char *key)
{
    struct line line;
    char *at = find("/proc/self/smaps", address, &line);
    char *end = at ? strstr(at, "VmFlags:") : NULL;
    char *found = end ? strstr(at, key) : NULL;
    return found && found < end ? atol(found + strlen(key)) : -1;
}

static int has_flag(void *address, const char *flag)
{
    struct line line;
    char *at = find("/proc/self/smaps", address, &line), *flags = at ? strstr(at, "VmFlags:") : NULL;
    char *end = flags ? strchr(flags, '\n') : NULL;
    char *found = flags ? strstr(flags, flag) : NULL;
    return found && found < end;
}

static long status(const char *key)
{
    read_text("/proc/self/status");
    char *found = strstr(text, key);
    return found ? atol(found + strlen(key)) : -1;
}

/* Maps `pages` pages with rights, between two without. */
static char *fenced(long pages, int rights)
{
    char *at = mmap(NULL, (pages + 2) * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(at + PAGE, pages * PAGE, rights);
    return at + PAGE;
}

static void memory(void)
{
    char *at = fenced(8, RW);
    check("memory", says(at, 8, "rw-p", 0, ""));
    check("no rights", says(at - PAGE, 0, "---p", 0, ""));
    check("size", sum(at, "Size:") == 32 && sum(at, "Rss:") == 0);
    at[0] = at[2 * PAGE] = at[3 * PAGE] = 1;
    check("in memory", sum(at, "Rss:") == 12 && sum(at, "Anonymous:") == 12 && sum(at, "Private_Dirty:") == 12);
    mprotect(at + PAGE, PAGE, PROT_READ);
    check("one is three", says(at, 1, "rw-p", 0, "") && says(at + PAGE, 1, "r--p", 0, "") && says(at + 2 * PAGE, 6, "rw-p", 0, ""));
    munmap(at, 8 * PAGE);
    check("gone", !says(at, 8, "rw-p", 0, ""));
}

static void advice(void)
{
    char *at = fenced(4, RW);
    long before = status("VmLck:");
    mlock(at, 2 * PAGE);
    check("locked", sum(at, "Locked:") == 8 && has_flag(at, " lo") && status("VmLck:") == before + 8);
    check("not locked", sum(at + 2 * PAGE, "Locked:") == 0 && !has_flag(at + 2 * PAGE, " lo"));
    munlock(at, 2 * PAGE);
    check("unlocked", sum(at, "Locked:") == 0 && status("VmLck:") == before);
    madvise(at, 4 * PAGE, MADV_DONTFORK);
    check("not for children", has_flag(at, " dc") && !has_flag(at, " wf"));
}

static void names(const char *path)
{
    int fd = open(path, O_RDONLY), memory = memfd_create("maps", 0);
    char *file = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
    check("a file", says(file, 1, "r--p", 0, path));
    ftruncate(memory, 8 * PAGE);
    char *shared = mmap(NULL, 4 * PAGE, RW, MAP_SHARED, memory, 2 * PAGE);
    check("a file without a name", says(shared, 4, "rw-s", 2 * PAGE, "/memfd:maps (deleted)"));
    mprotect(shared + PAGE, PAGE, PROT_NONE);
    check("the rest of it", says(shared + 2 * PAGE, 2, "rw-s", 4 * PAGE, "/memfd:maps (deleted)"));
    shared[0] = 1;
    check("shared pages", sum(shared, "Rss:") == 4 && sum(shared, "Anonymous:") == 0);
    char *anonymous = mmap(NULL, PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check("shared memory", says(anonymous, 1, "rw-s", 0, "/dev/zero (deleted)"));
    char link[64], target[256] = { 0 };
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    check("the open file", readlink(link, target, sizeof target - 1) > 0 && !strcmp(target, path));
    char *heap = (char *)syscall(SYS_brk, 0);
    syscall(SYS_brk, heap + PAGE);
    check("the heap", says(heap, 0, "rw-p", 0, "[heap]"));
    check("the stack", says(&heap, 0, "rw-p", 0, "[stack]"));
}

/* Maps two files by turns. */
static void neighbours(const char *path)
{
    int files[] = { open(path, O_RDONLY), memfd_create("other", 0) };
    const char *names[] = { path, "/memfd:other (deleted)" };
    int good = !ftruncate(files[1], 4 * PAGE);
    char *at = fenced(4, PROT_NONE);
    for (int i = 0; i < 4; i++)
        mmap(at + i * PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, files[i % 2], 0);
    for (int i = 0; i < 4; i++)
        good &= says(at + i * PAGE, 1, "r--p", 0, names[i % 2]);
    check("two files by turns", good);
}

/* The text is the same in whatever pieces it is read. */
static void in_pieces(void)
{
    static char whole[sizeof text], again[PAGE];
    char *at = fenced(1, RW);
    read_text("/proc/self/maps");
    strcpy(whole, text);
    size_t length = strlen(whole), done = 0;
    int fd = open("/proc/self/maps", O_RDONLY);
    ssize_t now = read(fd, at + PAGE - 10, 500);
    check("to a page that is not there", now == 10 && !memcmp(at + PAGE - 10, whole, 10));
    for (done = now; (now = read(fd, text + done, 7)) > 0; done += now)
        ;
    check("in pieces", now == 0 && done == length && !memcmp(text + 10, whole + 10, length - 10));
    check("at the end", read(fd, again, sizeof again) == 0);
    now = pread(fd, again, sizeof again, 0);
    check("again", now > 0 && !memcmp(again, whole, now));
    check("from the middle", pread(fd, again, 20, length / 2) == 20 && !memcmp(again, whole + length / 2, 20));
    close(fd);
}

static void totals(void)
{
    read_text("/proc/self/maps");
    unsigned long bytes = 0;
    struct line line;
    for (char *at = text; at && (at = parse(at, &line));)
        bytes += strcmp(line.name, "[vsyscall]") ? line.end - line.start : 0;
    check("all of it", status("VmSize:") == (long)bytes / 1024);
    long parts = status("RssAnon:") + status("RssFile:") + status("RssShmem:");
    check("parts of what is in memory", status("VmRSS:") == parts && parts > 0);
    check("other sums", status("VmData:") > 0 && status("VmStk:") > 0 && status("VmExe:") > 0 && status("VmPTE:") > 0);
    check("one thread", status("Threads:") == 1);
    read_text("/proc/self/statm");
    check("pages", atol(text) == (long)bytes / PAGE);
    struct line rollup;
    read_text("/proc/self/smaps_rollup");
    check("rolled up", parse(text, &rollup) && !strcmp(rollup.name, "[rollup]") && strstr(text, "Rss:"));
}

static void page_map(void)
{
    char *at = fenced(3, RW);
    at[PAGE] = 1;
    uint64_t words[3] = { 0 };
    int fd = open("/proc/self/pagemap", O_RDONLY);
    check("words", pread(fd, words, sizeof words, (uintptr_t)at / PAGE * 8) == sizeof words);
    check("present", !(words[0] >> 63) && words[1] >> 63 && !(words[2] >> 63));
    check("crooked", pread(fd, words, 8, 4) < 0 && pread(fd, words, 4, 0) < 0);
    close(fd);
}

static volatile int stop;

/* Maps, changes and unmaps, in each thread separately. */
static void *work(void *unused)
{
    while (!stop) {
        char *at = mmap(NULL, 9 * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        at[4 * PAGE] = 1;
        mprotect(at + 3 * PAGE, PAGE, PROT_READ);
        munmap(at + 5 * PAGE, PAGE);
        munmap(at, 9 * PAGE);
    }
    return unused;
}

/* Returns whether the lines are in order, do not overlap, and always describe the mapping at `at`, which does
 * not change. */
static int in_order(const char *at, long pages)
{
    struct line line;
    unsigned long before = 0, covered = 0, start = (uintptr_t)at, end = start + pages * PAGE;
    for (char *next = text; (next = parse(next, &line));) {
        if (line.start < before || line.end <= line.start)
            return 0;
        if (line.start >= start && line.end <= end)
            covered += strcmp(line.rights, "rw-p") ? 0 : line.end - line.start;
        before = line.end;
    }
    return covered == end - start;
}

static void while_others_work(void)
{
    char *at = fenced(50, RW);
    pthread_t threads[THREADS];
    int good = 1;
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < READINGS; i++) {
        read_text("/proc/self/maps");
        good &= in_order(at, 50);
        good &= sum(at, "Size:") == 200;
    }
    stop = 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    check("while others work", good);
}

int main(int count, char **arguments)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    memory();
    advice();
    names(arguments[1]);
    neighbours(arguments[1]);
    in_pieces();
    totals();
    page_map();
    /* Newer Linux lists each line at a moment of its own, and promises no more. */
    if (count > 2)
        while_others_work();
    return failures != 0;
}

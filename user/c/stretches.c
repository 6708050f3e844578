/* Measures how long a call keeps its CPU from other processes, and a signal waiting. One process makes long
 * calls. Another on the same CPU sleeps for a moment again and again, and checks how late it wakes.
 *
 * stretches [NAME]: for every call, or that one, prints how long the other process waited at most (including
 * a slice of the CPU), how often the CPU looked up too late, and how long a SIGKILL took to end the call
 * half-way. The unit is nanoseconds, which under `--accel count` are instructions. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096L
#define MIB (1L << 20)
#define RW (PROT_READ | PROT_WRITE)
#define ANONYMOUS (MAP_PRIVATE | MAP_ANONYMOUS)
#define SIZE (24 * MIB)
#define NAP 20000L
/* Number of mappings of one page, far from one another. */
#define APART 500L
#define GAP (1L << 31)
#define REGIONS 5000L
#define SPARSE 450L
#define BLOCK (2 * MIB)

/* State that the two processes share. */
static volatile struct {
    long begin, end, longest, last;
} *shared;

/* A range without other mappings, for the scattered pages: APART * GAP bytes. */
static char *far;

/* Pipes between the process that makes a call and the one that tells it to. */
static int ready[2], go[2];

static long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

static void nap(long ns)
{
    struct timespec time = { ns / 1000000000, ns % 1000000000 };
    nanosleep(&time, NULL);
}

/* Measures which part of the time since the last nap was in the call. */
static void watch(void)
{
    for (;;) {
        long before = now();
        shared->last = before;
        nap(NAP);
        long after = now(), begin = shared->begin, end = shared->end;
        if (begin == 0)
            continue;
        long from = begin > before + NAP ? begin : before + NAP, to = end != 0 && end < after ? end : after;
        if (to - from > shared->longest)
            shared->longest = to - from;
    }
}

/* ---- preparations ---- */

static char *at;
static int file;
static char page[PAGE];

static char *map(long size)
{
    return mmap(NULL, size, RW, ANONYMOUS, -1, 0);
}

static void nothing(void) {}

static void untouched(void) { at = map(SIZE); }

static void touched(void)
{
    at = map(SIZE);
    madvise(at, SIZE, MADV_NOHUGEPAGE);
    for (long byte = 0; byte < SIZE; byte += PAGE)
        at[byte] = 1;
}

static void *sleep_on(void *unused)
{
    for (;;)
        pause();
    return unused;
}

static void touched_beside_a_thread(void)
{
    pthread_t thread;
    touched();
    pthread_create(&thread, NULL, sleep_on, NULL);
}

static void huge(void)
{
    at = map(SIZE);
    memset(at, 1, SIZE);
}

static void scattered(void)
{
    for (long i = 0; i < APART; i++)
        *(char *)mmap(far + i * GAP, PAGE, RW, ANONYMOUS | MAP_FIXED, -1, 0) = 1;
}

/* Maps pages of one mapping, each in a block of its own. */
static void sparse(void)
{
    at = mmap(NULL, SPARSE * BLOCK, RW, ANONYMOUS | MAP_NORESERVE, -1, 0);
    madvise(at, SPARSE * BLOCK, MADV_NOHUGEPAGE);
    for (long i = 0; i < SPARSE; i++)
        at[i * BLOCK] = 1;
}

static void regions(void)
{
    at = map(2 * REGIONS * PAGE);
    for (long i = 0; i < REGIONS; i++)
        mprotect(at + 2 * i * PAGE, PAGE, PROT_READ);
}

static void small(void)
{
    at = map(MIB);
    memset(at, 1, MIB);
}

static void whole_file(void)
{
    file = open("/tmp/stretches", O_CREAT | O_RDWR | O_TRUNC, 0600);
    fallocate(file, 0, 0, SIZE);
}

static void mapped_file(void)
{
    whole_file();
    at = mmap(NULL, SIZE, RW, MAP_SHARED, file, 0);
    for (long byte = 0; byte < SIZE; byte += PAGE)
        at[byte] = 1;
}

static void touched_and_file(void)
{
    touched();
    file = open("/tmp/stretches", O_CREAT | O_RDWR | O_TRUNC, 0600);
}

/* Has no name any more: the last process to close it frees it. */
static void dying_file(void)
{
    file = open("/tmp/dying", O_CREAT | O_RDWR | O_TRUNC, 0600);
    fallocate(file, 0, 0, 2 * SIZE);
    unlink("/tmp/dying");
}

/* Touches all memory but this. */
#define LEFT (20 * MIB)
static char *most;
static long touched_of_most;

/* Pages that a child had too are freed some epochs after they are unmapped. */
static void little_memory(void)
{
    struct sysinfo info;
    touched_and_file();
    most = mmap(NULL, 1024 * MIB, RW, ANONYMOUS | MAP_NORESERVE, -1, 0);
    madvise(most, 1024 * MIB, MADV_NOHUGEPAGE);
    while (sysinfo(&info) == 0 && (long)info.freeram > LEFT)
        for (long end = touched_of_most + MIB; touched_of_most < end; touched_of_most += PAGE)
            most[touched_of_most] = 1;
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
}

/* The most that a terminal keeps of a line, which it shows. */
static void line_of_tabs(void)
{
    static char tabs[4095], shown[1 << 16];
    memset(tabs, '\t', sizeof tabs);
    file = open("/dev/ptmx", O_RDWR | O_NONBLOCK);
    for (int i = 0; i < 4095; i += 45) {
        write(file, tabs, 45);
        while (read(file, shown, sizeof shown) > 0) {}
    }
}

static void empty_file(void) { file = open("/tmp/stretches", O_CREAT | O_RDWR | O_TRUNC, 0600); }

/* Another file has most of the room. With all of it in one call, memory would be short, too. */
static void little_room(void)
{
    fallocate(open("/tmp/dying", O_CREAT | O_RDWR | O_TRUNC, 0600), 0, 0, 80 * MIB);
    unlink("/tmp/dying");
    empty_file();
}

static void sparse_file(void)
{
    file = memfd_create("sparse", 0);
    if (ftruncate(file, 1L << 47) == 0)
        at = mmap(NULL, 1L << 34, RW, MAP_SHARED, file, 1L << 46);
}

/* ---- the calls ---- */

static long many(long (*call)(int, const struct iovec *, int), const char *path, int flags)
{
    struct iovec buffers[64];
    for (int i = 0; i < 64; i++)
        buffers[i] = (struct iovec){ at, MIB };
    return call(open(path, flags), buffers, 64);
}

static void read_zeroes(void) { many(readv, "/dev/zero", O_RDONLY); }
static void write_nowhere(void) { many(writev, "/dev/null", O_WRONLY); }
static void read_into_new(void) { read(open("/dev/zero", O_RDONLY), at, SIZE); }
static void random_bytes(void) { syscall(SYS_getrandom, at, SIZE, 0); }
static void unmap(void) { munmap(at, SIZE); }
static void unmap_scattered(void) { munmap(far, APART * GAP); }
static void protect(void) { mprotect(at, SIZE, PROT_READ); }
static void protect_regions(void) { mprotect(at, 2 * REGIONS * PAGE, PROT_NONE); }
static void unmap_regions(void) { munmap(at, 2 * REGIONS * PAGE); }
static void dont_need(void) { madvise(at, SIZE, MADV_DONTNEED); }
static void dont_fork(void) { madvise(at, SIZE, MADV_DONTFORK); }
static void map_over(void) { mmap(at, SIZE, RW, ANONYMOUS | MAP_FIXED, -1, 0); }
static void populate(void) { mmap(NULL, SIZE, RW, ANONYMOUS | MAP_POPULATE, -1, 0); }
static void populate_later(void) { madvise(at, SIZE, 23); }
static void lock(void) { mlock(at, SIZE); }
static void sync_all(void) { msync(at, SIZE, MS_SYNC); }
static void move(void) { mremap(at, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, far); }
static void move_sparse(void)
{
    mremap(at, SPARSE * BLOCK, SPARSE * BLOCK, MREMAP_MAYMOVE | MREMAP_FIXED, far + PAGE);
}
static void residence(void)
{
    static unsigned char found[1L << 22];
    mincore(at, 1L << 34, found);
}
static void read_other(void)
{
    struct iovec here = { at, SIZE / 2 }, there = { at + SIZE / 2, SIZE / 2 };
    process_vm_readv(getpid(), &here, 1, &there, 1, 0);
}
static void reserve(void) { fallocate(file, 0, 0, SIZE); }
/* More than all files may have: the pages that were reserved go back. */
static void reserve_too_much(void) { fallocate(file, 0, 0, 1024 * MIB); }
static void cut(void) { ftruncate(file, 0); }
static void punch(void) { fallocate(file, 3, 0, SIZE); }
static void last_close(void) { close(file); }
static void read_file(void) { pread(file, at, SIZE, 0); }
static void write_file(void) { write(file, at, SIZE); }
/* The write finds no memory before the pages are freed, which were unmapped a moment ago. */
static void write_into_dead_pages(void)
{
    munmap(most, touched_of_most);
    if (write(file, at, SIZE) != SIZE)
        _exit(1);
}
/* VKILL wipes the line. */
static void wipe_line(void) { write(file, "\x15", 1); }
static void read_sparse(void)
{
    for (int i = 0; i < 8; i++)
        pread(file, page, PAGE, 0);
    lseek(file, 0, SEEK_DATA);
}
static void read_maps(void)
{
    int maps = open("/proc/self/maps", O_RDONLY);
    while (read(maps, page, PAGE) > 0) {}
}
static void make_child(void)
{
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
}
static void leave(void) { _exit(0); }
static void other_program(void)
{
    execl("/proc/self/exe", "stretches", "leave", "now", NULL);
    _exit(1);
}

/* `kill`: the call takes long enough to be killed in the middle. */
static const struct {
    const char *name;
    void (*prepare)(void), (*call)(void);
    int kill;
} calls[] = {
    { "nothing", nothing, nothing, 0 },
    { "read zeroes", small, read_zeroes, 1 },
    { "write nowhere", small, write_nowhere, 1 },
    { "read into new pages", untouched, read_into_new, 1 },
    { "random bytes", untouched, random_bytes, 1 },
    { "munmap", touched, unmap, 0 },
    { "munmap of scattered pages", scattered, unmap_scattered, 0 },
    { "munmap of regions", regions, unmap_regions, 0 },
    { "mprotect", touched, protect, 0 },
    { "mprotect of regions", regions, protect_regions, 0 },
    { "madvise DONTNEED", touched, dont_need, 0 },
    { "madvise DONTFORK", touched, dont_fork, 0 },
    { "mmap over pages", touched, map_over, 0 },
    { "mmap POPULATE", nothing, populate, 1 },
    { "madvise POPULATE", untouched, populate_later, 1 },
    { "mlock", untouched, lock, 1 },
    { "msync", touched, sync_all, 0 },
    { "mremap", touched, move, 0 },
    { "mremap of huge pages", huge, move, 0 },
    { "mremap of scattered pages", sparse, move_sparse, 1 },
    { "mincore", sparse_file, residence, 1 },
    { "process_vm_readv", touched, read_other, 0 },
    { "fallocate", empty_file, reserve, 0 },
    { "fallocate without room", little_room, reserve_too_much, 1 },
    { "ftruncate", mapped_file, cut, 0 },
    { "punch", mapped_file, punch, 0 },
    { "last close", dying_file, last_close, 0 },
    { "pread", mapped_file, read_file, 0 },
    { "write", touched_and_file, write_file, 0 },
    { "write into dead pages", little_memory, write_into_dead_pages, 0 },
    { "wiping tabs", line_of_tabs, wipe_line, 0 },
    { "lseek", sparse_file, read_sparse, 0 },
    { "/proc/self/maps", regions, read_maps, 0 },
    { "fork", touched, make_child, 0 },
    { "fork beside a thread", touched_beside_a_thread, make_child, 0 },
    { "exit", touched, leave, 0 },
    { "exit with scattered pages", scattered, leave, 0 },
    { "exec", touched, other_program, 0 },
};

/* Says when it is ready, and begins the call when it is told to. */
static void attack(unsigned which)
{
    char word;
    calls[which].prepare();
    /* The slice begins anew, and the other process sleeps. */
    nap(1000000);
    nap(1000000);
    write(ready[1], "", 1);
    read(go[0], &word, 1);
    shared->begin = now();
    calls[which].call();
    shared->end = now();
    _exit(0);
}

/* Returns how often a CPU has looked up more than a millisecond late, or -1 on a system that does not count
 * that. */
static long late(void)
{
    static char text[1 << 16];
    int counters = open("/proc/radixvm/counters", O_RDONLY);
    long length = counters < 0 ? 0 : read(counters, text, sizeof text - 1);
    close(counters);
    text[length < 0 ? 0 : length] = 0;
    char *line = strstr(text, "\nlate_timers ");
    return line == NULL ? -1 : atol(line + strlen("\nlate_timers "));
}

static pid_t start(unsigned which)
{
    shared->begin = shared->end = shared->longest = 0;
    pid_t child = fork();
    if (child == 0)
        attack(which);
    char word;
    read(ready[0], &word, 1);
    write(go[1], "", 1);
    return child;
}

/* Kills the process well inside of its call, and returns how long that takes. */
static long kill_one(unsigned which)
{
    pid_t child = start(which);
    int status;
    nap(1000000);
    if (shared->end != 0)
        printf("%s: over before the kill\n", calls[which].name);
    long before = now();
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return now() - before;
}

int main(int count, char **words)
{
    if (count > 2)
        return 0;
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    sched_setaffinity(0, sizeof first, &first);
    shared = mmap(NULL, PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    /* The kernel chooses addresses at random, the next ones near this one. */
    far = (char *)(labs((long)shared - (1L << 44)) < 1L << 42 ? 1L << 45 : 1L << 44);
    if (pipe(ready) != 0 || pipe(go) != 0)
        return 1;
    pid_t watcher = fork();
    if (watcher == 0)
        watch();
    for (unsigned which = 0; which < sizeof calls / sizeof *calls; which++) {
        if (count > 1 && strcmp(words[1], calls[which].name) != 0)
            continue;
        int status;
        long before = late();
        pid_t child = start(which);
        waitpid(child, &status, 0);
        nap(NAP);
        printf("%s: longest %ld, late %ld, status %x\n", calls[which].name, shared->longest, late() - before, status);
        if (calls[which].kill)
            printf("%s: killed in %ld\n", calls[which].name, kill_one(which));
        fflush(stdout);
        unlink("/tmp/stretches");
    }
    kill(watcher, SIGKILL);
    return 0;
}

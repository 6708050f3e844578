/* Processes map, touch, unmap and move pages of one file and of memory that they share since a fork,
 * while one of them truncates, punches and writes the file. Then they wait, and the first process looks at
 * all of them: the sums of what /proc/PID/pagemap shows, frame by frame, are the words of /proc/kpagecount,
 * and the pages of each process are those that statm, status and smaps report.
 *
 * pagecounts PROCESSES ROUNDS STEPS SEED [BIG]: steps of each process between two looks. With BIG, the
 * process that changes the file also goes over that mapping, so that memory is short. On Linux only the
 * pages that the processes have mapped here are compared. Without the right to see frames, none are. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "must.h"
#include "page_counts.h"

#define PAGES 64L
#define RW (PROT_READ | PROT_WRITE)
#define MIB (1L << 20)
/* All that the processes map here lies in these 16 MiB, an area in each, and a huge page in two. */
#define BASE 0x200000000000L
#define END (BASE + 16 * MIB)
#define AREA(number) ((char *)BASE + (number) * MIB)
#define SHARED AREA(0)
#define PRIVATE AREA(1)
#define COPIED AREA(2)
#define MEMORY AREA(3)
#define HUGE AREA(4)
#define FRESH 8
#define OF_FILE (1UL << 61)
#define PROCESSES 64

static int fd;
static char *big;
static long big_pages;
static sigjmp_buf back;
/* Whether the processes may end. */
static volatile sig_atomic_t is_over;

static void on_bus(int signal)
{
    (void)signal;
    siglongjmp(back, 1);
}

static char *map(char *at, long pages, int prot, int flags, int file)
{
    char *mapped = mmap(at, pages * PAGE, prot, flags | MAP_FIXED, file, 0);
    must("mmap", mapped == at);
    return at;
}

/* Returns the word of a page in the running process's pagemap. */
static uint64_t shown(int pagemap, const char *page)
{
    uint64_t word = 0;
    must("pagemap", pread(pagemap, &word, 8, (uintptr_t)page / PAGE * 8) == 8);
    return word;
}

/* No other process shows a page that was mapped after the last fork, whatever the others do meanwhile. */
static void count_my_own(void)
{
    static char *page = AREA(15);
    int pagemap = open("/proc/self/pagemap", O_RDONLY), counts = open("/proc/kpagecount", O_RDONLY);
    must("open", pagemap >= 0 && counts >= 0);
    map(page, 1, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1)[0] = 1;
    uint64_t before = shown(pagemap, page), count = count_of(counts, FRAME(before));
    must("one of this process", shown(pagemap, page) != before || !(before & PRESENT) || count == 1);
    must("munmap", munmap(page, PAGE) == 0 && close(pagemap) == 0 && close(counts) == 0);
}

/* Changes the file, whose pages then leave the mappings of all processes. */
static void change(unsigned dice)
{
    static char bytes[PAGE];
    long at = dice % PAGES, other = dice / PAGES % PAGES;
    switch (dice / 8192 % 5) {
    case 0:
        must("ftruncate", ftruncate(fd, at * PAGE + 1) == 0 && ftruncate(fd, PAGES * PAGE) == 0);
        break;
    case 1:
        must("punch", fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at * PAGE, (1 + other) * PAGE) == 0);
        break;
    case 2:
        must("fadvise", posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
        break;
    case 3:
        must("pwrite", pwrite(fd, bytes, PAGE, at * PAGE) == PAGE);
        break;
    default:
        for (long page = 0; page < big_pages; page++)
            (void)*(volatile char *)(big + page * PAGE);
    }
}

static void touch(unsigned dice)
{
    long at = dice % PAGES * PAGE;
    if (sigsetjmp(back, 1) == 0)
        switch (dice / PAGES % 5) {
        case 0:
            (void)*(volatile char *)(SHARED + at);
            break;
        case 1:
            SHARED[at] = 1;
            break;
        case 2:
            (void)*(volatile char *)(PRIVATE + at);
            break;
        case 3:
            PRIVATE[at] = 1;
            break;
        default:
            COPIED[at] = MEMORY[at] = 1;
        }
}

/* A child that copies some of the pages, and goes. */
static void child(unsigned dice)
{
    pid_t pid = fork();
    must("fork", pid >= 0);
    if (pid == 0) {
        for (int i = 0; i < 8; i++)
            touch(dice * (unsigned)(i + 3));
        _exit(0);
    }
    int status = 1;
    must("a child", waitpid(pid, &status, 0) == pid && status == 0);
}

/* Maps, moves or unmaps an area of pages that no other process has. */
static void remap(unsigned dice)
{
    char *at = AREA(FRESH + dice % 3), *other = AREA(FRESH + 3 + dice / 3 % 3);
    int is_file = dice & 64;
    map(at, 16, RW, is_file ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, is_file ? fd : -1);
    if (sigsetjmp(back, 1) == 0)
        for (long page = dice / 8 % 4; page < 16; page += 2)
            at[page * PAGE] = 1;
    if (dice & 128)
        must("mremap", mremap(at, 16 * PAGE, 16 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, other) == other);
    else if (dice & 256)
        must("munmap", munmap(at + 4 * PAGE, 8 * PAGE) == 0);
}

static void step(int changes, unsigned dice)
{
    static char *const kept[] = {SHARED, PRIVATE, COPIED, MEMORY};
    unsigned more = dice / 16;
    switch (dice % 16) {
    case 0:
        must("madvise", madvise(kept[more % 4] + more / 4 % 32 * PAGE, 16 * PAGE, MADV_DONTNEED) == 0);
        break;
    case 1:
        child(more);
        break;
    case 2:
    case 3:
        remap(more);
        break;
    case 4:
        count_my_own();
        break;
    case 5:
        HUGE[more % 1024 * PAGE] = 1;
        break;
    case 6:
        if (more % 4 == 0)
            must("munmap", munmap(HUGE + more / 4 % 1024 * PAGE, PAGE) == 0);
        map(HUGE, 1024, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1);
        break;
    case 7:
        if (changes) {
            change(more);
            break;
        } /* fall through */
    default:
        touch(more);
    }
}

/* A process that ends too early has said why. */
static void on_child(int signal)
{
    (void)signal;
    if (!is_over)
        _exit(1);
}

static void work(int number, long rounds, long steps, unsigned state, int done, int go)
{
    char word = 0;
    signal(SIGCHLD, SIG_DFL);
    map(PRIVATE, PAGES, RW, MAP_PRIVATE, fd);
    for (long round = 0; round < rounds; round++) {
        for (long i = 0; i < steps; i++) {
            unsigned dice = (unsigned)rand_r(&state) * 31 ^ (unsigned)rand_r(&state);
            step(number == 0, dice >> 3);
        }
        must("waiting", write(done, &word, 1) == 1 && read(go, &word, 1) == 1);
    }
    _exit(0);
}

static int waits(void *nothing)
{
    (void)nothing;
    for (;;)
        pause();
    return 0;
}

/* The words are those of frames, and the end is the end of memory. */
static void check_file(int counts)
{
    uint64_t word;
    must("an address that is crooked", pread(counts, &word, 8, 4) == -1 && errno == EINVAL);
    must("a length that is", pread(counts, &word, 4, 0) == -1 && errno == EINVAL);
    must("beyond the end", pread(counts, &word, 8, 1L << 50) == 0);
    must("no buffer", pread(counts, (void *)8, 8, 0) == -1 && errno == EFAULT);
    must("lseek", lseek(counts, 16, SEEK_SET) == 16);
    must("the next position", read(counts, &word, 8) == 8 && lseek(counts, 0, SEEK_CUR) == 24);
}

int main(int argc, char **argv)
{
    must("arguments", argc >= 5);
    long count = atol(argv[1]), rounds = atol(argv[2]), steps = atol(argv[3]);
    static pid_t pids[MOST_COUNTED];
    static char stack[4 * PAGE];
    int done[2], go[PROCESSES][2], counts = open("/proc/kpagecount", O_RDONLY), pagemap = open("/proc/self/pagemap", O_RDONLY);
    struct sigaction action = {.sa_handler = on_bus};
    on_linux = access("/proc/radixvm", F_OK) != 0;
    linux_start = BASE, linux_end = END;
    map((char *)BASE, (END - BASE) / PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    map(COPIED, PAGES, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    memset(COPIED, 1, PAGES * PAGE);
    if (on_linux && (counts < 0 || pagemap < 0 || FRAME(shown(pagemap, COPIED)) == 0)) {
        puts("pagecounts: no frames are shown");
        return 0;
    }
    must("setting up", count < PROCESSES && counts >= 0 && pipe(done) == 0);
    check_file(counts);
    fd = memfd_create("pagecounts", 0);
    must("a file", fd >= 0 && ftruncate(fd, PAGES * PAGE) == 0 && sigaction(SIGBUS, &action, NULL) == 0);
    map(SHARED, PAGES, RW, MAP_SHARED, fd);
    map(MEMORY, PAGES, RW, MAP_SHARED | MAP_ANONYMOUS, -1);
    map(HUGE, 1024, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    SHARED[0] = 1;
    must("a file's page", (shown(pagemap, SHARED) & OF_FILE) && (shown(pagemap, MEMORY) == 0 || on_linux));
    must("no file's page", !(shown(pagemap, COPIED) & OF_FILE));
    if (argc > 5) {
        struct stat stat;
        int file = open(argv[5], O_RDONLY);
        must("the large file", file >= 0 && fstat(file, &stat) == 0);
        big_pages = stat.st_size / PAGE;
        big = mmap(NULL, stat.st_size, PROT_READ, MAP_SHARED, file, 0);
        must("mmap of it", big != MAP_FAILED);
    }
    signal(SIGCHLD, on_child);
    for (long i = 0; i < count; i++) {
        must("pipe", pipe(go[i]) == 0);
        pids[i] = fork();
        must("fork", pids[i] >= 0);
        if (pids[i] == 0)
            work(i, rounds, steps, (unsigned)(atol(argv[4]) + i * 7919), done[1], go[i][0]);
    }
    pids[count] = getpid();
    pid_t twin = clone(waits, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
    must("clone", twin > 0);
    for (long round = 1; round <= rounds; round++) {
        char word = 0;
        for (long i = 0; i < count; i++)
            must("a process", read(done[0], &word, 1) == 1);
        compare(pids, count + 1, twin);
        is_over = round == rounds;
        for (long i = 0; i < count; i++)
            must("going on", write(go[i][1], &word, 1) == 1);
    }
    must("the twin", kill(twin, SIGKILL) == 0 && waitpid(twin, NULL, 0) == twin);
    for (int i = 0, status; i < count; i++)
        must("the end of a process", wait(&status) > 0 && status == 0);
    pids[0] = getpid();
    compare(pids, 1, 0);
    puts("pagecounts: done");
    return 0;
}

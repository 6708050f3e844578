/* Every allocation of the kernel fails once, while a child makes all kinds of calls. Each call succeeds or
 * returns an error, and the contents of memory stay right. The child ends well or is killed, and no other
 * process is.
 *
 * fail_alloc FAILURES STEP: FAILURES allocations fail in a row, beginning with the first, then with the
 * STEP-th after it, and so on until none is left to fail. Exits with 0 if everything is as it should be.
 * Needs /dev/fail-alloc. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#define PAGE 4096L
#define RW (PROT_READ | PROT_WRITE)
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)
#define WRONG 1
#define UNTOUCHED 42

static int device;
static char ballast[64 * PAGE];

/* Checks that a failed call has returned an error that fits. */
static void refused(const char *what)
{
    int scarce = errno == ENOMEM || errno == EAGAIN || errno == EFAULT || errno == ENOSPC || errno == ENFILE;
    if (scarce)
        return;
    dprintf(2, "%s: %s\n", what, strerror(errno));
    _exit(WRONG);
}

static void must(const char *what, int good)
{
    if (good)
        return;
    dprintf(2, "%s: WRONG\n", what);
    _exit(WRONG);
}

static void plan(long first, long failures)
{
    char text[40];
    int bytes = snprintf(text, sizeof text, "%ld %ld\n", first, failures);
    must("the device", write(device, text, bytes) == bytes);
}

static void fill(char *at, long pages, int with)
{
    for (long page = 0; page < pages; page++)
        at[page * PAGE] = (char)(with + page);
}

static int is_filled(const char *at, long pages, int with)
{
    for (long page = 0; page < pages; page++)
        if (at[page * PAGE] != (char)(with + page))
            return 0;
    return 1;
}

static char *map(const char *what, long pages, int flags, int fd)
{
    char *at = mmap(NULL, pages * PAGE, RW, flags, fd, 0);
    if (at == MAP_FAILED)
        refused(what);
    return at == MAP_FAILED ? NULL : at;
}

/* Waits for a child, which may have been killed for its memory. */
static void reap(const char *what, pid_t child)
{
    int status = 0;
    must(what, waitpid(child, &status, 0) == child);
    int killed = WIFSIGNALED(status) && (WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGBUS);
    must(what, killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

/* Moves enough pages that they move in pieces. All of them must move, or none. */
static void move_many(int flags)
{
    char *at = map("mmap to move", 1100, flags, -1), *to = map("mmap to move to", 1100, PRIVATE, -1);
    if (!at || !to)
        return;
    fill(at, 1100, 7);
    char *moved = mremap(at, 1100 * PAGE, 1100 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
    if (moved == MAP_FAILED)
        refused("long mremap");
    must("all moved, or none", is_filled(moved == MAP_FAILED ? at : moved, 1100, 7));
    if (munmap(moved == MAP_FAILED ? at : moved, 1100 * PAGE))
        refused("munmap of what moved");
}

static void memory(void)
{
    move_many(PRIVATE);
    move_many(MAP_SHARED | MAP_ANONYMOUS);
    char *at = map("mmap", 600, PRIVATE, -1);
    if (!at)
        return;
    must("zeroes", at[5 * PAGE] == 0);
    fill(at, 600, 3);
    if (mprotect(at + 10 * PAGE, PAGE, PROT_READ))
        refused("mprotect");
    if (munmap(at + 20 * PAGE, PAGE))
        refused("munmap");
    must("contents", is_filled(at, 20, 3) && is_filled(at + 21 * PAGE, 579, 24));
    char *moved = mremap(at, 8 * PAGE, 700 * PAGE, MREMAP_MAYMOVE);
    if (moved == MAP_FAILED)
        refused("mremap");
    must("moved", is_filled(moved == MAP_FAILED ? at : moved, 8, 3));
    if (madvise(at + 300 * PAGE, 10 * PAGE, MADV_DONTNEED))
        refused("madvise");
    else
        must("dropped", at[305 * PAGE] == 0);
    if (mlock(at + 100 * PAGE, 2 * PAGE))
        refused("mlock");
    if (munmap(at + 8 * PAGE, 592 * PAGE))
        refused("munmap of the rest");
}

/* Collapses a few small pages of an aligned block into a huge one, or leaves them as they are. */
static void collapse(void)
{
    long bytes = 512 * PAGE;
    char *all = map("mmap", 3 * 512, PRIVATE, -1);
    if (!all)
        return;
    char *block = (char *)(((uintptr_t)all + bytes - 1) & -bytes);
    if (madvise(block, bytes, MADV_NOHUGEPAGE))
        refused("no huge pages");
    fill(block + 100 * PAGE, 3, 5);
    if (madvise(block, bytes, MADV_HUGEPAGE))
        refused("huge pages");
    else if (madvise(block, bytes, MADV_COLLAPSE))
        refused("a huge page");
    must("contents of a block", block[0] == 0 && is_filled(block + 100 * PAGE, 3, 5));
    munmap(all, 3 * bytes);
}

static void children(void)
{
    char *at = map("mmap", 40, PRIVATE, -1);
    if (!at)
        return;
    fill(at, 40, 1);
    pid_t child = fork();
    if (child < 0)
        refused("fork");
    if (child == 0) {
        must("inherited", is_filled(at, 40, 1));
        fill(at, 40, 9);
        must("changed", is_filled(at, 40, 9));
        char *words[] = { "fail_alloc", NULL }, *none[] = { NULL };
        execve("/proc/self/exe", words, none);
        refused("execve");
        _exit(0);
    }
    fill(at + 20 * PAGE, 20, 7);
    must("the parent's own", is_filled(at, 20, 1) && is_filled(at + 20 * PAGE, 20, 7));
    if (child > 0)
        reap("a child", child);
    must("the parent's own still", is_filled(at, 20, 1) && is_filled(at + 20 * PAGE, 20, 7));
    munmap(at, 40 * PAGE);
}

static void *thread(void *value)
{
    char *at = map("mmap in a thread", 2, PRIVATE, -1);
    if (at)
        fill(at, 2, 1);
    return value;
}

static void threads(void)
{
    pthread_t made;
    void *result = NULL;
    int error = pthread_create(&made, NULL, thread, &made);
    must("pthread_create", error == 0 || error == EAGAIN || error == ENOMEM);
    if (error == 0)
        must("pthread_join", pthread_join(made, &result) == 0 && result == &made);
}

static void files(void)
{
    int fd = memfd_create("fail_alloc", 0);
    if (fd < 0)
        return refused("memfd_create");
    must("ftruncate", ftruncate(fd, 30 * PAGE) == 0);
    char *shared = map("a file", 30, MAP_SHARED, fd), *private = map("a file", 30, MAP_PRIVATE, fd);
    if (pwrite(fd, "x", 1, 3 * PAGE) < 0)
        refused("pwrite");
    else if (shared && private) {
        must("one file", shared[3 * PAGE] == 'x' && private[3 * PAGE] == 'x');
        private[3 * PAGE] = 'y';
        must("a copy", shared[3 * PAGE] == 'x' && private[3 * PAGE] == 'y');
    }
    if (ftruncate(fd, PAGE))
        refused("ftruncate");
    if (shared)
        munmap(shared, 30 * PAGE);
    if (private)
        munmap(private, 30 * PAGE);
    close(fd);
}

static void names(void)
{
    char text[4096];
    int fd = open("/tmp/fail_alloc", O_CREAT | O_RDWR, 0600);
    if (fd < 0)
        return refused("open");
    if (write(fd, text, sizeof text) < 0)
        refused("write");
    close(fd);
    must("unlink", unlink("/tmp/fail_alloc") == 0 || errno == ENOMEM);
    int maps = open("/proc/self/smaps", O_RDONLY);
    if (maps < 0)
        return refused("maps");
    must("reads", read(maps, text, sizeof text) > 0 || errno == ENOMEM);
    close(maps);
}

static void pipes(void)
{
    int ends[2];
    char word[6] = "";
    if (pipe(ends))
        return refused("pipe");
    if (write(ends[1], "hello", 6) == 6) {
        while (read(ends[0], word, 6) < 0)
            refused("read");
        must("what was written", !strcmp(word, "hello"));
    } else
        refused("write");
    close(ends[0]);
    close(ends[1]);
}

static volatile sig_atomic_t seen;

static void handle(int signal)
{
    seen = signal;
}

static void signals(void)
{
    signal(SIGUSR1, handle);
    if (raise(SIGUSR1) == 0)
        must("a signal", seen == SIGUSR1);
}

/* Runs in the child: makes all calls with allocations failing. */
static void script(long first, long failures)
{
    memset(ballast, 1, sizeof ballast);
    plan(first, failures);
    memory();
    collapse();
    children();
    threads();
    files();
    names();
    pipes();
    signals();
    char text[32] = "";
    while (pread(device, text, sizeof text - 1, 0) <= 0)
        refused("the device");
    must("the ballast", memchr(ballast, 0, sizeof ballast) == NULL);
    _exit(atol(text) == 0 ? UNTOUCHED : 0);
}

/* Returns whether the kernel counts no thread but this one, once it has freed those that ended. Waits a
 * minute at most, for a host that starves the guest. */
static int is_alone(void)
{
    struct sysinfo info;
    for (int turn = 0; turn < 60000; turn++) {
        if (sysinfo(&info) == 0 && info.procs == 1)
            return 1;
        usleep(1000);
    }
    fprintf(stderr, "fail_alloc: %d threads are counted\n", info.procs);
    return 0;
}

int main(int count, char **arguments)
{
    if (count < 3)
        return 0; /* what the children run */
    long failures = atol(arguments[1]), step = atol(arguments[2]), killed = 0, first = 1;
    device = open("/dev/fail-alloc", O_RDWR);
    for (;; first += step) {
        int status = 0;
        pid_t child = fork();
        if (child == 0)
            script(first, failures);
        must("waitpid", child > 0 && waitpid(child, &status, 0) == child);
        plan(0, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == UNTOUCHED)
            break;
        int shot = WIFSIGNALED(status) && (WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGBUS);
        if (!shot && !(WIFEXITED(status) && WEXITSTATUS(status) == 0)) {
            printf("fail_alloc: allocation %ld: WRONG: status %#x\n", first, status);
            return 1;
        }
        killed += shot;
    }
    fprintf(stderr, "fail_alloc: %ld allocations, %ld children killed\n", first - 1, killed);
    if (!is_alone())
        return 1;
    printf("fail_alloc: done\n");
    return 0;
}

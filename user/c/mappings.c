/* Mapped files: mappings, read and write show the same contents of one file at any time, up to its end.
 *
 * mappings [FILE]: exits with 0 if everything is as it should be. FILE is mapped and compared with the result
 * of read. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define PAGE 4096L
#define TURNS 200

static sigjmp_buf back;
static siginfo_t last;

static void on_bus(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    last = *info;
    siglongjmp(back, 1);
}

/* Returns whether touching `at` causes a SIGBUS for lack of a page there. */
static int beyond(volatile char *at, int write)
{
    if (sigsetjmp(back, 1))
        return last.si_code == BUS_ADRERR && last.si_addr == (void *)at;
    if (write)
        *at = 1;
    else
        (void)*at;
    return 0;
}

static char *map(int fd, long pages, int prot, int flags, long from)
{
    char *at = mmap(NULL, pages * PAGE, prot, flags, fd, from * PAGE);
    if (at == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return at;
}

#define RW (PROT_READ | PROT_WRITE)

/* Checks one file that is open twice and mapped twice. */
static void coherence(int one, int two)
{
    char *a = map(one, 4, RW, MAP_SHARED, 0), *b = map(two, 2, RW, MAP_SHARED, 1), byte = 0;
    a[PAGE] = 'x';
    check("a store is seen by the other mapping", b[0] == 'x');
    check("and by read", pread(two, &byte, 1, PAGE) == 1 && byte == 'x');
    check("a write is seen by both", pwrite(one, "y", 1, PAGE + 7) == 1 && a[PAGE + 7] == 'y' && b[7] == 'y');
    check("a page first touched by reading", a[3 * PAGE] == 0 && pwrite(two, "z", 1, 3 * PAGE) == 1 && a[3 * PAGE] == 'z');
    check("one mapping goes, the other stays", munmap(a, 4 * PAGE) == 0 && b[7] == 'y');
    munmap(b, 2 * PAGE);
}

static void private_copies(int fd)
{
    char *shared = map(fd, 2, RW, MAP_SHARED, 0), *own = map(fd, 2, RW, MAP_PRIVATE, 0), byte = 0;
    shared[0] = 1, shared[PAGE] = 1;
    check("a private mapping shows the file", own[0] == 1 && own[PAGE] == 1);
    own[0] = 2;
    check("a private store stays private", shared[0] == 1 && own[0] == 2 && pread(fd, &byte, 1, 0) == 1 && byte == 1);
    shared[0] = 3, shared[PAGE] = 3;
    check("what was not copied follows the file", own[0] == 2 && own[PAGE] == 3);
    check("a dropped copy is the file again", madvise(own, PAGE, MADV_DONTNEED) == 0 && own[0] == 3);
    munmap(shared, 2 * PAGE), munmap(own, 2 * PAGE);
}

static void ends(int fd)
{
    check("four pages", ftruncate(fd, 0) == 0 && ftruncate(fd, 4 * PAGE) == 0);
    char *shared = map(fd, 6, RW, MAP_SHARED, 0), *own = map(fd, 4, RW, MAP_PRIVATE, 0), byte = 1;
    memset(shared, 'a', 4 * PAGE);
    own[2 * PAGE] = 'b', own[PAGE + 9] = 'b';
    check("beyond the end", beyond(shared + 4 * PAGE, 0) && beyond(shared + 5 * PAGE + 3, 1));
    check("cut", ftruncate(fd, PAGE + 10) == 0);
    check("what is cut off is gone", beyond(shared + 2 * PAGE, 0) && beyond(shared + 3 * PAGE, 1));
    check("private copies too", beyond(own + 2 * PAGE, 0) && beyond(own + 2 * PAGE, 1) && own[PAGE + 9] == 'b');
    check("the rest of the last page is zero", shared[PAGE + 9] == 'a' && shared[PAGE + 10] == 0 && shared[2 * PAGE - 1] == 0);
    check("no page for a system call", pread(fd, shared + 2 * PAGE, 1, 0) == -1 && errno == EFAULT);
    check("longer again", ftruncate(fd, 4 * PAGE) == 0 && shared[2 * PAGE] == 0 && own[2 * PAGE] == 0);
    check("a write extends", pwrite(fd, "c", 1, 5 * PAGE) == 1 && shared[5 * PAGE] == 'c' && shared[4 * PAGE] == 0);
    shared[5 * PAGE + 100] = 'd';
    check("what lay beyond the end is not seen", ftruncate(fd, 5 * PAGE + 200) == 0 && pread(fd, &byte, 1, 5 * PAGE + 101) == 1 && byte == 0);
    munmap(shared, 6 * PAGE), munmap(own, 4 * PAGE);
}

static void holes(int fd)
{
    check("a long file", ftruncate(fd, 0) == 0 && ftruncate(fd, 3L << 30) == 0);
    check("data far away", pwrite(fd, "x", 1, 2L << 30) == 1);
    check("is found", lseek(fd, 0, SEEK_DATA) == 2L << 30 && lseek(fd, 2L << 30, SEEK_HOLE) == (2L << 30) + PAGE);
    check("and nothing after it", lseek(fd, (2L << 30) + PAGE, SEEK_DATA) == -1 && errno == ENXIO);
    check("a hole at the start", lseek(fd, 5, SEEK_HOLE) == 5);
    char *at = map(fd, 4, RW, MAP_SHARED, (2L << 30) / PAGE), *own = map(fd, 4, RW, MAP_PRIVATE, (2L << 30) / PAGE);
    memset(at, 'a', 4 * PAGE);
    own[PAGE] = 'p';
    check("punch", fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (2L << 30) + 100, 2 * PAGE) == 0);
    check("punched", at[99] == 'a' && at[100] == 0 && at[PAGE] == 0 && at[2 * PAGE + 99] == 0 && at[2 * PAGE + 100] == 'a');
    check("a private copy stays", own[PAGE] == 'p' && own[0] == 'a' && own[100] == 0);
    check("the length too", lseek(fd, 0, SEEK_END) == 3L << 30);
    check("allocate", fallocate(fd, 0, 3L << 30, PAGE) == 0 && lseek(fd, 0, SEEK_END) == (3L << 30) + PAGE);
    check("not without KEEP_SIZE", fallocate(fd, FALLOC_FL_PUNCH_HOLE, 0, PAGE) == -1 && errno == EOPNOTSUPP);
    check("nothing", fallocate(fd, 0, 0, 0) == -1 && errno == EINVAL);
    munmap(at, 4 * PAGE), munmap(own, 4 * PAGE);
}

static void rights(const char *path)
{
    int fd = open(path, O_RDONLY), blind = open(path, O_WRONLY);
    check("no shared writing of what is open for reading", mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EACCES);
    check("nor by way of mprotect", mprotect(map(fd, 1, PROT_READ, MAP_SHARED, 0), PAGE, RW) == -1 && errno == EACCES);
    check("private writing is fine", (map(fd, 1, RW, MAP_PRIVATE, 0)[0] = 1));
    check("no mapping of what is open for writing", mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, blind, 0) == MAP_FAILED && errno == EACCES);
    close(fd), close(blind);
}

/* A mapping that moves and grows keeps its file. The part that was not mapped before is truncated like the
 * rest. */
static void moving(int fd)
{
    check("six pages", ftruncate(fd, 0) == 0 && ftruncate(fd, 6 * PAGE) == 0);
    char *old = map(fd, 2, RW, MAP_SHARED, 1), *place = map(-1, 8, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, 0);
    old[0] = 1;
    char *at = mremap(old, 2 * PAGE, 5 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place), byte = 0;
    check("moved", at == place && at[0] == 1);
    at[4 * PAGE] = 2;
    check("grown", pread(fd, &byte, 1, 5 * PAGE) == 1 && byte == 2);
    check("cut", ftruncate(fd, 3 * PAGE) == 0 && beyond(at + 4 * PAGE, 0) && beyond(at + 2 * PAGE, 1) && at[PAGE] == 0);
    munmap(place, 8 * PAGE);
}

/* A child has the same files mapped, and its own private copies. */
static void children(int fd)
{
    check("for a child", ftruncate(fd, 0) == 0 && ftruncate(fd, 3 * PAGE) == 0);
    char *shared = map(fd, 3, RW, MAP_SHARED, 0), *own = map(fd, 3, RW, MAP_PRIVATE, 0);
    char *memory = map(-1, 1, RW, MAP_SHARED | MAP_ANONYMOUS, 0);
    shared[0] = 1, own[PAGE] = 2, memory[0] = 3;
    pid_t child = fork();
    if (child == 0) {
        int good = shared[0] == 1 && own[0] == 1 && own[PAGE] == 2 && memory[0] == 3;
        shared[1] = 4, own[1] = 5, own[PAGE] = 6, memory[0] = 7;
        good = good && ftruncate(fd, 2 * PAGE) == 0 && beyond(shared + 2 * PAGE, 0);
        _exit(!good);
    }
    int status = 1;
    check("a child shares", waitpid(child, &status, 0) == child && status == 0);
    check("and is seen", shared[1] == 4 && memory[0] == 7 && own[PAGE] == 2 && own[1] == 4);
    check("what it cut off is gone here too", beyond(shared + 2 * PAGE, 0) && beyond(own + 2 * PAGE, 0));
    munmap(shared, 3 * PAGE), munmap(own, 3 * PAGE), munmap(memory, PAGE);
}

/* Two processes take turns by semaphores in a file. Each maps it at other addresses. */
static void turns(int fd)
{
    check("for turns", ftruncate(fd, 0) == 0 && ftruncate(fd, PAGE) == 0);
    sem_t *mine = (sem_t *)map(fd, 1, RW, MAP_SHARED, 0), *elsewhere = (sem_t *)map(fd, 1, RW, MAP_SHARED, 0);
    check("semaphores", sem_init(&mine[0], 1, 0) == 0 && sem_init(&mine[1], 1, 0) == 0);
    int *count = (int *)&mine[2];
    pid_t child = fork();
    for (int i = 0; i < TURNS; i++) {
        if (child == 0)
            sem_wait(&elsewhere[0]), ++*count, sem_post(&elsewhere[1]);
        else
            sem_post(&mine[0]), sem_wait(&mine[1]), ++*count;
    }
    if (child == 0)
        _exit(0);
    int status = 1;
    check("took turns", waitpid(child, &status, 0) == child && status == 0 && *count == 2 * TURNS);
    munmap(mine, PAGE), munmap(elsewhere, PAGE);
}

static void memory_files(void)
{
    int fd = memfd_create("name", MFD_CLOEXEC);
    check("memfd", fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC && lseek(fd, 0, SEEK_END) == 0);
    check("bad flags", memfd_create("name", 1u << 20) == -1 && errno == EINVAL);
    check("a name that is too long", memfd_create((char[300]){[0 ... 298] = 'n'}, 0) == -1 && errno == EINVAL);
    check("no name", memfd_create((char *)8, 0) == -1 && errno == EFAULT);
    check("empty: beyond the end", beyond(map(fd, 1, RW, MAP_SHARED, 0), 1));
    ends(fd);
    holes(fd);
    moving(fd);
    children(fd);
    turns(fd);
    close(fd);
    char *shared = map(-1, 2, RW, MAP_SHARED | MAP_ANONYMOUS, 0);
    shared[PAGE] = 1;
    check("shared memory is kept", madvise(shared, 2 * PAGE, MADV_DONTNEED) == 0 && shared[PAGE] == 1 && shared[0] == 0);
}

/* Compares the bytes of a mapping with those of read. */
static void compare(const char *path)
{
    int fd = open(path, O_RDONLY);
    struct stat stat;
    fstat(fd, &stat);
    long pages = (stat.st_size + PAGE - 1) / PAGE, same = 0;
    char *at = map(fd, pages, PROT_READ, MAP_SHARED, 0), page[PAGE];
    char *own = map(fd, pages, RW, MAP_PRIVATE, 0);
    for (long i = 0; i < pages; i++) {
        memset(page, 0, PAGE);
        own[i * PAGE] ^= 1;
        same += pread(fd, page, PAGE, i * PAGE) > 0 && memcmp(page, at + i * PAGE, PAGE) == 0
            && memcmp(page + 1, own + i * PAGE + 1, PAGE - 1) == 0 && own[i * PAGE] == (page[0] ^ 1);
    }
    check("a file that was there", pages > 0 && same == pages);
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &action, NULL);
    char path[] = "/tmp/mappings-XXXXXX";
    int one = mkstemp(path), two = open(path, O_RDWR);
    check("a file", one >= 0 && two >= 0 && ftruncate(one, 4 * PAGE) == 0);
    coherence(one, two);
    private_copies(one);
    rights(path);
    ends(one);
    check("no name any more", unlink(path) == 0 && ftruncate(one, PAGE) == 0);
    char *kept = map(one, 1, RW, MAP_SHARED, 0);
    close(one), close(two);
    check("a mapping keeps the file", (kept[5] = 7) && kept[5] == 7);
    memory_files();
    if (argc > 1)
        compare(argv[1]);
    return failures != 0;
}

/* Seals of files without a name: what each forbids, for which descriptors, and when it may be set.
 *
 * seals: exits with 0 if everything is as it should be. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#ifndef F_ADD_SEALS
#define F_ADD_SEALS 1033
#define F_GET_SEALS 1034
#define F_SEAL_SEAL 1
#define F_SEAL_SHRINK 2
#define F_SEAL_GROW 4
#define F_SEAL_WRITE 8
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 16
#endif
#ifndef MFD_ALLOW_SEALING
#define MFD_ALLOW_SEALING 2
#endif

#define PAGE 4096L
#define RW (PROT_READ | PROT_WRITE)

/* Makes a file of `pages` pages that may be sealed. */
static int file_of(long pages)
{
    int file = (int)syscall(SYS_memfd_create, "sealed", MFD_ALLOW_SEALING);
    return ftruncate(file, pages * PAGE) == 0 ? file : -1;
}

static int seal(int file, int seals)
{
    return fcntl(file, F_ADD_SEALS, seals);
}

static char *map(int file, int prot, int flags)
{
    return mmap(NULL, PAGE, prot, flags, file, 0);
}

static int no_map(int file, int prot, int flags, int error)
{
    return fails((long)map(file, prot, flags), error);
}

static int same_seals(int file, int seals)
{
    return fcntl(file, F_GET_SEALS) == seals;
}

static void who(void)
{
    char path[64];
    int ends[2], plain = (int)syscall(SYS_memfd_create, "plain", 0), file = file_of(1);
    check("none at first", same_seals(file, 0));
    check("not asked for", same_seals(plain, F_SEAL_SEAL) && fails(seal(plain, F_SEAL_GROW), EPERM));
    check("a pipe", pipe(ends) == 0 && fails(fcntl(ends[1], F_GET_SEALS), EINVAL) && fails(seal(ends[1], F_SEAL_GROW), EINVAL));
    check("no such seal", fails(seal(file, 1 << 20), EINVAL));
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    int reader = open(path, O_RDONLY);
    check("by a reader", reader >= 0 && fails(seal(reader, F_SEAL_GROW), EPERM) && same_seals(reader, 0));
    check("more and more", seal(file, F_SEAL_GROW) == 0 && seal(file, F_SEAL_SHRINK) == 0);
    check("are all there", same_seals(reader, F_SEAL_GROW | F_SEAL_SHRINK));
    check("until that is sealed", seal(file, F_SEAL_SEAL) == 0 && fails(seal(file, F_SEAL_WRITE), EPERM));
    check("what is sealed stays", same_seals(file, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL));
    close(reader), close(file), close(plain), close(ends[0]), close(ends[1]);
}

static void lengths(void)
{
    static char bytes[2 * PAGE];
    int shrink = file_of(2), grow = file_of(2);
    check("against shrinking", seal(shrink, F_SEAL_SHRINK) == 0 && fails(ftruncate(shrink, PAGE), EPERM));
    check("the same length is no other", ftruncate(shrink, 2 * PAGE) == 0);
    check("it may grow", ftruncate(shrink, 3 * PAGE) == 0 && pwrite(shrink, bytes, 10, 5 * PAGE) == 10);
    check("against growing", seal(grow, F_SEAL_GROW) == 0 && fails(ftruncate(grow, 3 * PAGE), EPERM));
    check("nor by a write", fails(pwrite(grow, bytes, 1, 2 * PAGE), EPERM) && pwrite(grow, bytes, 2, 2 * PAGE - 1) == 1);
    check("whole pages are written", pwrite(grow, bytes, 2 * PAGE, PAGE) == PAGE);
    check("nor by fallocate", fails(fallocate(grow, 0, PAGE, 2 * PAGE), EPERM) && fallocate(grow, 0, 0, 2 * PAGE) == 0);
    check("it may shrink", ftruncate(grow, PAGE) == 0 && lseek(grow, 0, SEEK_END) == PAGE);
    close(shrink), close(grow);
}

static void writing(void)
{
    int file = file_of(1), status;
    char *shared = map(file, RW, MAP_SHARED), byte = 1;
    check("who may write is in the way", fails(seal(file, F_SEAL_WRITE), EBUSY) && same_seals(file, 0));
    check("though not now", mprotect(shared, PAGE, PROT_READ) == 0 && fails(seal(file, F_SEAL_WRITE), EBUSY));
    pid_t child = fork();
    if (child == 0) {
        raise(SIGSTOP);
        _exit(0);
    }
    waitpid(child, &status, WUNTRACED);
    munmap(shared, PAGE);
    check("nor in a child", fails(seal(file, F_SEAL_WRITE), EBUSY));
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    char *own = map(file, RW, MAP_PRIVATE);
    /* The mapping's memory may take a moment to go. */
    while (fails(seal(file, F_SEAL_WRITE), EBUSY))
        sched_yield();
    check("against writing", same_seals(file, F_SEAL_WRITE) && fails(pwrite(file, &byte, 1, 0), EPERM));
    check("nor holes", fails(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE), EPERM));
    check("nor mappings", no_map(file, RW, MAP_SHARED, EPERM));
    char *reader = map(file, PROT_READ, MAP_SHARED);
    /* Linux before 6.7 refuses that too. */
    check("readers stay so", reader == MAP_FAILED ? errno == EPERM : fails(mprotect(reader, PAGE, RW), EACCES));
    own[0] = 7;
    check("one's own is not the file", pread(file, &byte, 1, 0) == 1 && byte == 0 && map(file, RW, MAP_PRIVATE) != MAP_FAILED);
    check("but the length may change", ftruncate(file, 3 * PAGE) == 0 && ftruncate(file, PAGE) == 0);
    close(file);
}

static void later_writing(void)
{
    int file = file_of(1);
    char *shared = map(file, RW, MAP_SHARED), byte = 1;
    check("against later writing", seal(file, F_SEAL_FUTURE_WRITE) == 0);
    check("who wrote may", (shared[0] = 5) && pread(file, &byte, 1, 0) == 1 && byte == 5);
    check("nobody else", fails(pwrite(file, &byte, 1, 0), EPERM) && no_map(file, RW, MAP_SHARED, EPERM));
    check("nor make holes", fails(madvise(shared, PAGE, MADV_REMOVE), EPERM) && shared[0] == 5);
    check("and is still in the way", fails(seal(file, F_SEAL_WRITE), EBUSY));
    munmap(shared, PAGE);
    check("and then not", seal(file, F_SEAL_WRITE) == 0);
    close(file);
}

/* Writes by call and by mapping, until neither succeeds. */
static void *scribble(void *arg)
{
    int file = *(int *)arg, calls = 1, maps = 1;
    for (long value = 1; calls || maps; value++) {
        calls = pwrite(file, &value, sizeof value, 0) == sizeof value;
        char *at = map(file, RW, MAP_SHARED);
        maps = at != MAP_FAILED;
        if (maps) {
            memcpy(at + sizeof value, &value, sizeof value);
            munmap(at, PAGE);
        }
    }
    return NULL;
}

static void meanwhile(void)
{
    int good = 1;
    for (int round = 0; round < 50; round++) {
        int file = file_of(1);
        long then[2], later[2];
        pthread_t id;
        good &= pthread_create(&id, NULL, scribble, &file) == 0;
        while (fails(seal(file, F_SEAL_WRITE), EBUSY))
            ;
        good &= pread(file, then, sizeof then, 0) == sizeof then;
        pthread_join(id, NULL);
        good &= pread(file, later, sizeof later, 0) == sizeof later && memcmp(then, later, sizeof then) == 0;
        close(file);
    }
    check("what is sealed does not change", good);
}

int main(void)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    who();
    lengths();
    writing();
    later_writing();
    meanwhile();
    return failures != 0;
}

/* Calls about memory, one by one, with the errors of each: mmap's flags, mremap, the mlock family, limits,
 * brk, and the memory of other processes.
 *
 * memory: exits with 0 if everything is as it should be. */
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
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
#ifndef MAP_SHARED_VALIDATE
#define MAP_SHARED_VALIDATE 3
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#ifndef MCL_ONFAULT
#define MCL_ONFAULT 4
#endif
#ifndef MLOCK_ONFAULT
#define MLOCK_ONFAULT 1
#endif
#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

#define PAGE 4096L
#define RW (PROT_READ | PROT_WRITE)
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)
#define SHARED (MAP_SHARED | MAP_ANONYMOUS)

static int no_map(void *at, long pages, int prot, int flags, int fd, int error)
{
    return fails((long)mmap(at, pages * PAGE, prot, flags, fd, 0), error);
}

static char *map(long pages, int prot, int flags)
{
    char *at = mmap(NULL, pages * PAGE, prot, flags, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

static int mapped(void *at, long pages)
{
    return msync(at, pages * PAGE, MS_ASYNC) == 0;
}

static int resident(void *at)
{
    unsigned char is = 0;
    return mincore(at, PAGE, &is) == 0 && (is & 1);
}

/* Moves the end of the data segment, if possible, and returns where it is. The wrappers of C libraries
 * differ. */
static char *set_break(char *end)
{
    return (char *)syscall(SYS_brk, end);
}

static void flags(void)
{
    char *at = map(4, RW, PRIVATE | MAP_NORESERVE | MAP_STACK);
    check("plain", at && at[0] == 0);
    check("no length", no_map(NULL, 0, RW, PRIVATE, -1, EINVAL));
    check("no type", no_map(NULL, 1, RW, MAP_ANONYMOUS, -1, EINVAL));
    check("no file", no_map(NULL, 1, RW, MAP_PRIVATE, -1, EBADF));
    check("too much", fails((long)mmap(NULL, -PAGE, RW, PRIVATE, -1, 0), ENOMEM));
    check("fixed and crooked", no_map(at + 1, 1, RW, PRIVATE | MAP_FIXED, -1, EINVAL));
    check("fixed over it", mmap(at + PAGE, PAGE, PROT_READ, PRIVATE | MAP_FIXED, -1, 0) == at + PAGE);
    check("fixed but not over it", no_map(at + 3 * PAGE, 2, RW, PRIVATE | MAP_FIXED_NOREPLACE, -1, EEXIST));
    munmap(at + 2 * PAGE, PAGE);
    check("fixed in the hole", mmap(at + 2 * PAGE, PAGE, RW, PRIVATE | MAP_FIXED_NOREPLACE, -1, 0) == at + 2 * PAGE);
    char *hinted = mmap(at, PAGE, RW, PRIVATE, -1, 0);
    check("a hint costs nobody", hinted != MAP_FAILED && hinted != at && at[0] == 0);
    munmap(at + 2 * PAGE, PAGE);
    check("a hint is taken", mmap(at + 2 * PAGE, PAGE, RW, PRIVATE, -1, 0) == at + 2 * PAGE);
    char *low = map(2, RW, PRIVATE | MAP_32BIT);
    check("below 2 GiB", low && (uintptr_t)low < 1UL << 31);
    char *ready = map(3, RW, PRIVATE | MAP_POPULATE);
    check("brought in", resident(ready) && resident(ready + 2 * PAGE));
    char *locked = map(1, RW, PRIVATE | MAP_LOCKED);
    check("locked", resident(locked));
    check("validated needs a file", no_map(NULL, 1, RW, MAP_SHARED_VALIDATE | MAP_ANONYMOUS, -1, EINVAL));
    check("nothing at 0", no_map(NULL, 1, RW, PRIVATE | MAP_FIXED, -1, EPERM) || geteuid() == 0);
    munmap(at, 4 * PAGE);
    munmap(hinted, PAGE);
}

static void code(void)
{
    static const unsigned char answer[] = { 0xb8, 42, 0, 0, 0, 0xc3 }; /* mov $42, %eax; ret */
    char *at = map(1, RW, PRIVATE);
    memcpy(at, answer, sizeof answer);
    check("rights are given", mprotect(at, PAGE, PROT_READ | PROT_EXEC) == 0);
    check("code runs", ((int (*)(void))(uintptr_t)at)() == 42);
    check("no such right", fails(mprotect(at, PAGE, 0x40), EINVAL));
    munmap(at, PAGE);
    check("no rights in a hole", fails(mprotect(at, PAGE, RW), ENOMEM));
}

static void again(void)
{
    char *at = map(6, RW, SHARED), *own = map(1, RW, PRIVATE);
    at[2 * PAGE] = 5;
    char *second = mremap(at + 2 * PAGE, 0, 3 * PAGE, MREMAP_MAYMOVE);
    check("mapped again", second != MAP_FAILED && second[0] == 5);
    second[PAGE] = 6;
    check("the same memory", at[3 * PAGE] == 6 && mapped(at, 6));
    check("private is not", fails((long)mremap(own, 0, PAGE, MREMAP_MAYMOVE), EINVAL));
    check("nor without a move", fails((long)mremap(at, 0, PAGE, 0), ENOMEM));
    munmap(at, 6 * PAGE);
    check("it lives on", second[0] == 5 && second[PAGE] == 6);
}

static void holes(void)
{
    char *at = map(2048, RW, SHARED), *middle = at + 700 * PAGE;
    check("holes where nothing was", madvise(middle, 10 * PAGE, MADV_REMOVE) == 0);
    middle[0] = middle[PAGE] = 1;
    check("holes where something was", madvise(middle, PAGE, MADV_REMOVE) == 0 && !middle[0] && middle[PAGE] == 1);
    munmap(at, 2048 * PAGE);
    check("no holes in a hole", fails(madvise(middle, PAGE, MADV_REMOVE), ENOMEM));
    check("no such advice", fails(madvise(at, PAGE, 77), EINVAL));
}

static void locks(void)
{
    char *at = map(4, RW, PRIVATE);
    check("locks on a fault", syscall(SYS_mlock2, at, PAGE, MLOCK_ONFAULT) == 0 && !resident(at));
    check("no other way", fails(syscall(SYS_mlock2, at, PAGE, 8), EINVAL));
    check("crooked is rounded", mlock(at + PAGE + 5, 10) == 0 && resident(at + PAGE) && !resident(at + 2 * PAGE));
    check("all of nothing", fails(mlockall(0), EINVAL) && fails(mlockall(MCL_ONFAULT), EINVAL) && fails(mlockall(16), EINVAL));
    check("what will be mapped", mlockall(MCL_FUTURE) == 0);
    char *later = map(2, RW, PRIVATE), *heap = set_break(NULL), *end = set_break(heap + 2 * PAGE);
    check("is there at once", resident(later) && resident(later + PAGE) && end == heap + 2 * PAGE);
    check("so is the heap", resident((char *)(((uintptr_t)end - 1) & -PAGE)));
    check("once it is touched", mlockall(MCL_FUTURE | MCL_ONFAULT) == 0);
    char *last = map(1, RW, PRIVATE);
    check("not before", !resident(last));
    check("no more", munlockall() == 0);
    char *free = map(1, RW, PRIVATE);
    check("none of it", !resident(free));
    check("what is mapped", mlockall(MCL_CURRENT) == 0 && resident(free) && resident(last) && munlockall() == 0);
}

static void limit(int what, long bytes)
{
    struct rlimit limit;
    getrlimit(what, &limit);
    limit.rlim_cur = bytes < 0 ? limit.rlim_max : (rlim_t)bytes;
    setrlimit(what, &limit);
}

/* Returns the number behind `key` in status, in bytes. */
static long status(const char *key)
{
    static char text[8192];
    int fd = open("/proc/self/status", O_RDONLY);
    ssize_t bytes = read(fd, text, sizeof text - 1);
    close(fd);
    text[bytes > 0 ? bytes : 0] = 0;
    char *found = strstr(text, key);
    return found ? atol(found + strlen(key)) * 1024 : -1;
}

static void limits(void)
{
    char *at = map(8, RW, PRIVATE);
    limit(RLIMIT_AS, status("VmSize:") + 10 * PAGE);
    check("too much for the limit", no_map(NULL, 11, PROT_NONE, PRIVATE, -1, ENOMEM));
    char *most = map(10, PROT_NONE, PRIVATE);
    check("just enough", most != NULL);
    check("not a page more", no_map(NULL, 1, RW, PRIVATE, -1, ENOMEM));
    check("in its place", mmap(most, 10 * PAGE, RW, PRIVATE | MAP_FIXED, -1, 0) == most);
    check("no growing", fails((long)mremap(at, 8 * PAGE, 9 * PAGE, MREMAP_MAYMOVE), ENOMEM));
    check("but moving", (at = mremap(at, 8 * PAGE, 8 * PAGE, MREMAP_MAYMOVE)) != MAP_FAILED);
    check("no heap", set_break(set_break(NULL) + PAGE) == set_break(NULL));
    munmap(most, 4 * PAGE);
    check("what was given back", map(4, RW, PRIVATE) != NULL);
    limit(RLIMIT_AS, -1);
    check("no limit", map(1000, RW, PRIVATE) != NULL);

    char *read_only = map(20, PROT_READ, PRIVATE);
    limit(RLIMIT_DATA, status("VmData:") + 5 * PAGE);
    check("too much data", no_map(NULL, 6, RW, PRIVATE, -1, ENOMEM));
    check("shared is none", map(50, RW, SHARED) != NULL);
    check("nor what is only read", map(50, PROT_READ, PRIVATE) != NULL);
    check("until it is written", fails(mprotect(read_only, 6 * PAGE, RW), ENOMEM) && mprotect(read_only, 5 * PAGE, RW) == 0);
    check("no more data", no_map(NULL, 1, RW, PRIVATE, -1, ENOMEM));
    limit(RLIMIT_DATA, -1);
}

static void heap(void)
{
    char *start = set_break(NULL), *last = (char *)(((uintptr_t)start + 4 * PAGE) & -PAGE);
    check("up", set_break(start + 5 * PAGE) == start + 5 * PAGE && last[0] == 0);
    memset(start, 7, 5 * PAGE);
    check("down", set_break(start + PAGE) == start + PAGE && start[0] == 7 && !mapped(last, 1));
    check("up again", set_break(start + 5 * PAGE) == start + 5 * PAGE && last[0] == 0);
    check("not below its start", set_break((char *)PAGE) == start + 5 * PAGE);
    set_break(start);
}

static void others(void)
{
    static char word[] = "there";
    char *shared = map(1, RW, SHARED), *theirs = map(3, RW, PRIVATE), here[3 * PAGE];
    strcpy(theirs + PAGE - 3, word);
    int ends[2];
    check("a pipe", pipe(ends) == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        theirs[0] = 'c';
        mprotect(theirs + 2 * PAGE, PAGE, PROT_READ);
        shared[0] = 1;
        char end;
        _exit(read(ends[0], &end, 1) == 1 && !strcmp(theirs + 1, "written") ? 0 : 1);
    }
    while (!*(volatile char *)shared)
        usleep(1000);
    struct iovec ours = { here, sizeof here }, at = { theirs, 3 * PAGE };
    check("reads them all", process_vm_readv(child, &ours, 1, &at, 1, 0) == 3 * PAGE);
    check("as they are there", here[0] == 'c' && theirs[0] == 0 && !strcmp(here + PAGE - 3, word));
    strcpy(here, "written");
    struct iovec parts[2] = { { here, 4 }, { here + 4, 4 } };
    at = (struct iovec){ theirs + 1, 8 };
    check("writes", process_vm_writev(child, parts, 2, &at, 1, 0) == 8 && theirs[1] == 0);
    at = (struct iovec){ theirs + 2 * PAGE, 1 };
    check("not what they may not", fails(process_vm_writev(child, &ours, 1, &at, 1, 0), EFAULT));
    struct iovec cut[2] = { { theirs + PAGE, PAGE }, { theirs + 2 * PAGE, PAGE } };
    check("up to there", process_vm_writev(child, &ours, 1, cut, 2, 0) == PAGE);
    at = (struct iovec){ (void *)PAGE, 1 };
    check("nothing there", fails(process_vm_readv(child, &ours, 1, &at, 1, 0), EFAULT));
    check("no flags", fails(process_vm_readv(child, &ours, 1, &at, 1, 1), EINVAL));
    check("too many", fails(process_vm_readv(child, &ours, 1, &at, 1025, 0), EINVAL));
    check("none of it", process_vm_readv(child, NULL, 0, &at, 1, 0) == 0 && process_vm_readv(child, &ours, 1, NULL, 0, 0) == 0);
    int fd = syscall(SYS_pidfd_open, child, 0);
    at = (struct iovec){ theirs, 2 * PAGE };
    check("advises", syscall(SYS_process_madvise, fd, &at, 1, MADV_WILLNEED, 0) == 2 * PAGE);
    check("not everything", fails(syscall(SYS_process_madvise, fd, &at, 1, MADV_DONTNEED, 0), EINVAL));
    check("no flags", fails(syscall(SYS_process_madvise, fd, &at, 1, MADV_WILLNEED, 1), EINVAL));
    check("no process", fails(syscall(SYS_process_madvise, ends[0], &at, 1, MADV_WILLNEED, 0), EBADF));
    int status = 1;
    check("wakes it", write(ends[1], "", 1) == 1 && waitpid(child, &status, 0) == child && status == 0);
    check("nobody", fails(process_vm_readv(child, &ours, 1, &at, 1, 0), ESRCH));
}

static pthread_barrier_t together;

static void *take_all(void *unused)
{
    pthread_barrier_wait(&together);
    while (mmap(NULL, PAGE, PROT_NONE, PRIVATE, -1, 0) != MAP_FAILED)
        ;
    pthread_barrier_wait(&together);
    /* The stack stays until it was counted. */
    pthread_barrier_wait(&together);
    return unused;
}

/* Threads that map at once reach the limit, and do not pass it. */
static void limit_together(void)
{
    pthread_t ids[4];
    pthread_barrier_init(&together, NULL, 5);
    for (int i = 0; i < 4; i++)
        pthread_create(&ids[i], NULL, take_all, NULL);
    long most = status("VmSize:") + 500 * PAGE;
    limit(RLIMIT_AS, most);
    pthread_barrier_wait(&together);
    pthread_barrier_wait(&together);
    check("as much as the limit, together", status("VmSize:") == most);
    limit(RLIMIT_AS, -1);
    pthread_barrier_wait(&together);
    for (int i = 0; i < 4; i++)
        pthread_join(ids[i], NULL);
}

static void refusals(void)
{
    char *own = map(8, RW, PRIVATE), *shared = map(8, RW, SHARED);
    int fd = (int)syscall(SYS_memfd_create, "file", 0);
    check("no huge pages are set aside", no_map(NULL, 512, RW, PRIVATE | MAP_HUGETLB, -1, ENOMEM) &&
          no_map(NULL, 512, RW, SHARED | MAP_HUGETLB | 21 << 26, -1, ENOMEM));
    check("nor of sizes that are not", no_map(NULL, 512, RW, PRIVATE | MAP_HUGETLB | 13 << 26, -1, EINVAL));
    check("nor none of them", no_map(NULL, 0, RW, PRIVATE | MAP_HUGETLB, -1, EINVAL));
    check("nor of files", fd >= 0 && ftruncate(fd, PAGE) == 0 && no_map(NULL, 1, RW, MAP_SHARED | MAP_HUGETLB, fd, EINVAL));
    check("validated flags are known", no_map(NULL, 1, RW, MAP_SHARED_VALIDATE | 1 << 22, fd, EOPNOTSUPP));
    check("others are not looked at", mmap(NULL, PAGE, RW, MAP_SHARED | 1 << 22, fd, 0) != MAP_FAILED);
    check("a right for semaphores is none", mprotect(own, PAGE, RW | 8) == 0 && (own[0] = 1));
    check("only one's own is free to go", madvise(own, PAGE, MADV_FREE) == 0 && fails(madvise(shared, PAGE, MADV_FREE), EINVAL));
    check("locked", mlock(own, PAGE) == 0 && mlock(shared, PAGE) == 0);
    check("stays", fails(madvise(own, 2 * PAGE, MADV_DONTNEED), EINVAL) && fails(madvise(own, PAGE, MADV_FREE), EINVAL) &&
          fails(madvise(own, PAGE, 20), EINVAL) && fails(madvise(own, PAGE, 21), EINVAL) && fails(madvise(shared, PAGE, MADV_REMOVE), EINVAL));
    own[0] = 1;
    check("but if it must", madvise(own, PAGE, 24) == 0 && own[0] == 0);
    check("a length that wraps", mlock(own, -1) == 0 && fails(mlock((void *)-PAGE, 2 * PAGE), EINVAL));
}

int main(void)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    flags();
    code();
    again();
    holes();
    locks();
    limits();
    limit_together();
    heap();
    others();
    refusals();
    return failures != 0;
}

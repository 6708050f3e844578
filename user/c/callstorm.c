/* Random calls about memory, with addresses and lengths from good to hostile, by children that may well ruin
 * themselves: they may map over or unmap their own code. Each child gets a seed, and one that crashes is
 * followed by the next. The results of the calls do not matter. The machine must survive and get all memory
 * back.
 *
 * callstorm CHILDREN CALLS SEED: prints a line when all is over. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096UL
#include "page_counts.h"
#define ARENA (64UL << 30)
#define ARENA_PAGES 3000

enum { THREADS = 3, AT_ONCE = 4, PROCESSES = 120, WAIT_MS = 4000 };

static long calls;
static int files[4];
static __thread uint64_t state;
static __thread sigjmp_buf back;
static __thread int touching;

static uint64_t below(uint64_t limit)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 24) % limit;
}

static uint64_t one_of(const uint64_t *list, unsigned count)
{
    return list[below(count)];
}

#define ONE_OF(...) one_of((const uint64_t[]){ __VA_ARGS__ }, sizeof(uint64_t[]){ __VA_ARGS__ } / sizeof(uint64_t))

/* Returns an address, mostly in the arena and aligned. */
static uint64_t address(void)
{
    uint64_t at = ARENA + below(ARENA_PAGES) * PAGE;
    switch (below(40)) {
    case 0:
        return at + below(PAGE);
    case 1:
        return ONE_OF(0, 1, PAGE, 0x10000, 0x400000, (1UL << 47) - PAGE, (1UL << 47) - 2 * PAGE, 1UL << 47, 1UL << 63, -PAGE, -1);
    case 2:
        return (uint64_t)&at & -PAGE;
    case 3:
        return (uint64_t)&calls & -PAGE;
    case 4:
        return (ARENA + below(8) * (2UL << 20)) & -(2UL << 20);
    default:
        return at;
    }
}

static uint64_t length(void)
{
    switch (below(30)) {
    case 0:
        return ONE_OF(0, 1, PAGE - 1, 1UL << 31, 1UL << 40, 1UL << 47, 1UL << 63, -PAGE, -1);
    case 1:
        return below(ARENA_PAGES) * PAGE;
    case 2:
        return 2UL << 20;
    default:
        return (1 + below(40)) * PAGE;
    }
}

static uint64_t rights(void)
{
    return below(20) ? ONE_OF(0, 1, 3, 3, 3, 5, 7) : ONE_OF(8, 0x01000000, -1);
}

/* Returns a buffer to read or write, in the arena or hostile. */
static uint64_t buffer(void)
{
    return address() + ONE_OF(0, 0, 8, 4090);
}

static long file(void)
{
    return below(10) ? files[below(4)] : (long)ONE_OF(-1, 0, 99, 3);
}

static void map(void)
{
    static const uint64_t extra[] = { 0, 0, 0, MAP_NORESERVE, MAP_POPULATE, MAP_LOCKED, MAP_32BIT, MAP_GROWSDOWN, MAP_HUGETLB, MAP_STACK };
    uint64_t kind = ONE_OF(MAP_PRIVATE, MAP_PRIVATE, MAP_SHARED, 3, 0);
    uint64_t place = ONE_OF(0, MAP_FIXED, MAP_FIXED, 0x100000), of = ONE_OF(MAP_ANONYMOUS, MAP_ANONYMOUS, 0);
    uint64_t more = one_of(extra, sizeof extra / sizeof *extra), size = more == MAP_POPULATE || more == MAP_LOCKED ? PAGE * below(64) : length();
    syscall(SYS_mmap, address(), size, rights(), kind | place | of | more, file(), below(10) ? below(20) * PAGE : below(-1UL));
}

static void change(void)
{
    static const int advice[] = { MADV_DONTNEED, MADV_DONTNEED, MADV_FREE, MADV_REMOVE, MADV_DONTFORK, MADV_DOFORK, 14, 15, 18, 19, 20, 21, 3, 25, 99 };
    switch (below(8)) {
    case 0:
        syscall(SYS_munmap, address(), length());
        break;
    case 1:
    case 2:
        syscall(SYS_mprotect, address(), length(), rights());
        break;
    case 3:
        syscall(SYS_mremap, address(), length(), length(), ONE_OF(0, 1, 1, 3, 5, 7, 9), address());
        break;
    case 4:
        syscall(SYS_madvise, address(), length(), advice[below(sizeof advice / sizeof *advice)]);
        break;
    case 5:
        syscall(SYS_madvise, address(), below(64) * PAGE, ONE_OF(22, 23));
        break;
    case 6:
        syscall(SYS_brk, below(4) ? (uint64_t)syscall(SYS_brk, 0) + below(40) * PAGE - 20 * PAGE : address());
        break;
    default:
        syscall(SYS_msync, address(), length(), below(8));
    }
}

static void lock(void)
{
    switch (below(6)) {
    case 0:
        syscall(SYS_mlock, address(), below(64) * PAGE);
        break;
    case 1:
        syscall(SYS_mlock2, address(), below(64) * PAGE, below(3));
        break;
    case 2:
        syscall(SYS_munlock, address(), length());
        break;
    case 3:
        /* Never all at once: terabytes may be mapped here. */
        syscall(SYS_mlockall, ONE_OF(0, 4, 6, 7, 8));
        break;
    case 4:
        syscall(SYS_munlockall);
        break;
    default:
        syscall(SYS_mincore, address(), length(), buffer());
    }
}

static void touch_files(void)
{
    switch (below(8)) {
    case 0:
        syscall(SYS_ftruncate, file(), below(10) ? below(60) * PAGE : below(-1UL));
        break;
    case 1:
        syscall(SYS_fallocate, file(), ONE_OF(0, 1, 3, 3, 16), below(40) * PAGE, below(20) * PAGE + below(3));
        break;
    case 2:
    case 3:
        syscall(SYS_pread64, file(), buffer(), length(), below(30) * PAGE);
        break;
    case 4:
        syscall(SYS_pwrite64, file(), buffer(), below(20) * PAGE, below(30) * PAGE);
        break;
    case 5:
        syscall(SYS_readv, file(), buffer(), below(5));
        break;
    case 6:
        syscall(SYS_fcntl, file(), ONE_OF(F_GET_SEALS, F_ADD_SEALS), below(40) ? 0 : 1 << below(6));
        break;
    default:
        syscall(SYS_memfd_create, buffer(), below(4));
        for (int old = 20; old < 40; old++)
            close(old);
    }
}

/* Reads the memory of this process and of others, and their files in /proc. */
static void look(void)
{
    static const char *const names[] = { "maps", "smaps", "smaps_rollup", "pagemap", "status", "statm", "stat" };
    uint64_t number = ONE_OF(getpid(), getppid(), 1, 70, -1);
    char name[64];
    switch (below(4)) {
    case 0:
        syscall(SYS_process_vm_readv, number, buffer(), below(4), buffer(), below(4), 0);
        break;
    case 1: {
        struct { uint64_t at, bytes; } here = { buffer(), length() }, there = { address(), length() };
        syscall(below(2) && number != 1 ? SYS_process_vm_writev : SYS_process_vm_readv, number, &here, 1, &there, 1, 0);
        break;
    }
    default:
        snprintf(name, sizeof name, "/proc/%ld/%s", (long)number, names[below(7)]);
        int fd = open(name, O_RDONLY);
        syscall(SYS_pread64, fd, buffer(), below(5 * PAGE), below(2) * ARENA / PAGE * 8);
        close(fd);
    }
}

/* Makes calls whose arguments are pointers. */
static void point(void)
{
    switch (below(10)) {
    case 0:
        syscall(SYS_execve, buffer(), buffer(), buffer());
        break;
    case 1:
        syscall(SYS_wait4, -1, buffer(), WNOHANG, buffer());
        break;
    case 2:
        syscall(SYS_waitid, 0, -1, buffer(), WNOHANG | WEXITED, buffer());
        break;
    case 3:
        syscall(SYS_prlimit64, 0, below(17), 0, buffer());
        break;
    case 4: {
        struct rlimit limit = { ONE_OF(RLIM_INFINITY, 8UL << 20, 64UL << 20), RLIM_INFINITY };
        syscall(SYS_setrlimit, ONE_OF(RLIMIT_AS, RLIMIT_DATA), &limit);
        break;
    }
    case 5:
        syscall(SYS_set_tid_address, buffer());
        break;
    case 6:
        syscall(SYS_clone3, buffer(), ONE_OF(64, 88, 8, 4096));
        break;
    case 7:
        syscall(SYS_futex, buffer(), ONE_OF(1, 129, 3, 4), 1, 1, buffer(), 0);
        break;
    case 8:
        syscall(SYS_rt_sigaction, 1 + below(64), buffer(), buffer(), 8);
        break;
    default:
        syscall(SYS_pipe2, buffer(), 0);
    }
}

/* Changes semaphores and sends messages, of few sets and queues, and waits for none. */
static void talk(void)
{
    long set = syscall(SYS_semget, 1 + below(3), below(20) ? 1 + below(9) : below(40000), 01600), queue = syscall(SYS_msgget, 1 + below(3), 01600);
    struct { uint16_t number, change, flags; } some[4];
    for (int i = 0; i < 4; i++)
        some[i].number = below(10), some[i].change = below(5) - 2, some[i].flags = ONE_OF(04000, 014000);
    switch (below(8)) {
    case 0:
        syscall(SYS_semctl, ONE_OF(set, below(64), -1), below(10), below(21), below(2) ? buffer() : below(9));
        break;
    case 1:
        syscall(SYS_msgctl, ONE_OF(queue, below(64), -1), ONE_OF(0, 1, 2, 3, 11, 12, 13, 99), buffer());
        break;
    case 2:
        syscall(SYS_semop, set, buffer(), below(600));
        break;
    case 3:
    case 4:
        syscall(SYS_msgsnd, queue, buffer(), below(9000), 04000);
        break;
    case 5:
        syscall(SYS_msgrcv, queue, buffer(), below(9000), below(3) - 1, 04000 | ONE_OF(0, 010000, 020000, 040000));
        break;
    default:
        syscall(SYS_semop, set, some, below(5));
    }
}

/* Shares segments of memory with the other children. Those without a key are removed at once. */
static void share(void)
{
    if (below(3) == 0)
        return talk();
    long key = below(5), id = syscall(SYS_shmget, key, below(20) ? PAGE * below(20) : below(-1UL), 01600 | ONE_OF(0, 0, 02000, 04000));
    switch (below(6)) {
    case 0:
        syscall(SYS_shmdt, address());
        break;
    case 1:
        syscall(SYS_shmctl, ONE_OF(id, below(64), -1), ONE_OF(0, 1, 2, 3, 11, 12, 13, 14, 15, 99), buffer());
        break;
    default:
        syscall(SYS_shmat, id, below(4) ? address() : 0, ONE_OF(0, 010000, 020000, 040000, 060000, 0100000));
    }
    if (key == 0)
        syscall(SYS_shmctl, id, 0, 0);
}

/* Reads or writes a word, which may fail. The handler returns here. */
static void touch(void)
{
    volatile uint64_t *at = (volatile uint64_t *)(ARENA + below(ARENA_PAGES) * PAGE);
    if (sigsetjmp(back, 1))
        return;
    touching = 1;
    below(2) ? *at = below(-1UL) : *at;
    touching = 0;
}

static void handle(int signal)
{
    if (!touching)
        _exit(128 + signal);
    touching = 0;
    siglongjmp(back, 1);
}

static void act(void);

static void have_child(void)
{
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 20; i++)
            act();
        _exit(0);
    }
    if (child > 0)
        syscall(SYS_wait4, child, 0, ONE_OF(WNOHANG, 0), 0);
}

static void act(void)
{
    static void (*const acts[])(void) = { map, map, map, change, change, change, lock, touch_files, look, share, touch, touch, touch };
    switch (below(60)) {
    case 0:
        return have_child();
    case 1:
        return point();
    default:
        return acts[below(sizeof acts / sizeof *acts)]();
    }
}

static void *storm(void *seed)
{
    state = (uint64_t)seed * 0x9e3779b97f4a7c15u;
    for (long i = 0; i < calls; i++)
        act();
    return NULL;
}

static void child(uint64_t seed)
{
    pthread_t threads[THREADS];
    struct rlimit limit = { PROCESSES, PROCESSES };
    setrlimit(RLIMIT_NPROC, &limit);
    setpgid(0, 0);
    signal(SIGSEGV, handle);
    signal(SIGBUS, handle);
    for (int i = 0; i < 4; i++)
        files[i] = i < 3 ? memfd_create("storm", i < 2 ? MFD_ALLOW_SEALING : 0) : open("/dev/zero", O_RDWR);
    for (int i = 0; i < 3; i++)
        ftruncate(files[i], 20 * PAGE);
    for (uint64_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, storm, (void *)(seed * THREADS + i));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    _exit(0);
}

/* Ends a process group that does not end by itself. */
static void end_group(pid_t leader)
{
    kill(-leader, SIGKILL);
    kill(leader, SIGKILL);
}

static void reap(pid_t leader)
{
    for (int waited = 0; waitpid(leader, NULL, WNOHANG) == 0; waited++) {
        struct timespec moment = { 0, 1000000 };
        if (waited >= WAIT_MS)
            end_group(leader);
        nanosleep(&moment, NULL);
    }
    end_group(leader);
}

/* Waits for orphans. */
static void reap_others(void)
{
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
}

int main(int count, char **arguments)
{
    long children = count > 1 ? atol(arguments[1]) : 40, seed = count > 3 ? atol(arguments[3]) : 1;
    calls = count > 2 ? atol(arguments[2]) : 400;
    for (long done = 0; done < children; done += AT_ONCE) {
        pid_t running[AT_ONCE];
        for (int i = 0; i < AT_ONCE; i++)
            if ((running[i] = fork()) == 0)
                child((uint64_t)(1000 * seed + done + i));
        for (int i = 0; i < AT_ONCE; i++)
            reap(running[i]);
        reap_others();
    }
    /* Orphans of the last children, which are killed. */
    while (waitpid(-1, NULL, 0) > 0)
        ;
    compare_all();
    printf("callstorm: done\n");
    return 0;
}

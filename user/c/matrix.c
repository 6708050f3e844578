/* Every kind of mapping under every call that takes one, each pair in a child of its own. Prints the result
 * of the call, one line a pair. The lines are the same on Linux, except where `different` lists the pair and
 * the reason.
 *
 * matrix: exits with 0 when all pairs were tried. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define FUTEX_WAIT 0
#define FUTEX_WAKE 1
#define FUTEX_CMP_REQUEUE 4
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 16
#endif
#define PAGE 4096L
#define PAGES 16
#define LENGTH (PAGES * PAGE)
#define RW (PROT_READ | PROT_WRITE)
#define ANONYMOUS (MAP_PRIVATE | MAP_ANONYMOUS)
#define ELSEWHERE ((char *)0x410000000000)
#define LONGEST 0x7fffffffffffffffL

/* The mapping under test, its length, and its file. */
static char *at;
static long length = LENGTH;
static int file = -1;

static char buffer[LENGTH];
static unsigned char residence[LENGTH];

/* ---- kinds of mappings ---- */

static char *anonymous(int prot, int flags)
{
    return mmap(NULL, LENGTH, prot, flags | MAP_ANONYMOUS, -1, 0);
}

/* Maps a file of `bytes` bytes from `offset` on. */
static char *of_file(long bytes, long offset, int flags)
{
    file = memfd_create("matrix", MFD_ALLOW_SEALING);
    return ftruncate(file, bytes) ? MAP_FAILED : mmap(NULL, LENGTH, RW, flags, file, offset);
}

static char *own(void) { return anonymous(RW, MAP_PRIVATE); }
static char *shared(void) { return anonymous(RW, MAP_SHARED); }
static char *without_rights(void) { return anonymous(PROT_NONE, MAP_PRIVATE); }
static char *read_only(void) { return anonymous(PROT_READ, MAP_PRIVATE); }
static char *locked(void) { return anonymous(RW, MAP_PRIVATE | MAP_LOCKED); }
static char *low(void) { return anonymous(RW, MAP_PRIVATE | MAP_32BIT); }
static char *whole_file(void) { return of_file(LENGTH, 0, MAP_SHARED); }
static char *own_file(void) { return of_file(LENGTH, 0, MAP_PRIVATE); }
static char *past_the_end(void) { return of_file(3000, 0, MAP_SHARED); }
static char *at_2_47(void) { return of_file(LENGTH, 1L << 47, MAP_SHARED); }
static char *at_2_48(void) { return of_file(LENGTH, 1L << 48, MAP_SHARED); }
static char *own_at_2_48(void) { return of_file(LENGTH, 1L << 48, MAP_PRIVATE); }
static char *at_2_62(void) { return of_file(LENGTH, 1L << 62, MAP_SHARED); }
static char *at_the_last_offset(void) { return of_file(LENGTH, (LONGEST & -PAGE) - LENGTH, MAP_SHARED); }
static char *end_of_a_long_file(void) { return of_file(1L << 47, (1L << 47) - LENGTH, MAP_SHARED); }
static char *over_2_47(void) { return of_file((1L << 47) + LENGTH, (1L << 47) - PAGE, MAP_SHARED); }

static char *touched(void)
{
    char *start = own();
    return memset(start, 1, LENGTH);
}

static char *apart(void)
{
    char *start = touched();
    mprotect(start + 3 * PAGE, PAGE, PROT_READ);
    munmap(start + 7 * PAGE, PAGE);
    return start;
}

static char *not_for_children(void)
{
    char *start = touched();
    madvise(start, LENGTH, MADV_DONTFORK);
    return start;
}

static char *cut_file(void)
{
    char *start = whole_file();
    memset(start, 1, LENGTH);
    return ftruncate(file, PAGE) ? MAP_FAILED : start;
}

static char *sealed_file(void)
{
    char *start = whole_file();
    fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE);
    return start;
}

static char *moved_at_2_48(void)
{
    return mremap(at_2_48(), LENGTH, LENGTH, MREMAP_MAYMOVE | MREMAP_FIXED, ELSEWHERE);
}

static char *copied_file(void)
{
    char *start = own_file();
    start[5 * PAGE] = 1;
    return start;
}

static char *huge(void)
{
    char *start = mmap(NULL, 4 << 20, RW, ANONYMOUS, -1, 0);
    start += -(unsigned long)start % (2 << 20);
    madvise(start, 2 << 20, MADV_HUGEPAGE);
    memset(start, 1, 2 << 20);
    return start + PAGE;
}

static char *top(void)
{
    return mmap((char *)0x7ffffffff000 - LENGTH, LENGTH, RW, ANONYMOUS | MAP_FIXED, -1, 0);
}

static char *bottom(void) { return mmap((char *)0x10000, LENGTH, RW, ANONYMOUS | MAP_FIXED, -1, 0); }

static char *long_mapping(void)
{
    length = 1L << 40;
    file = memfd_create("matrix", 0);
    char *start = ftruncate(file, 1L << 47) ? MAP_FAILED : mmap(NULL, length, RW, MAP_SHARED, file, 1L << 46);
    start[0] = start[length - 1] = 1;
    return start;
}

static char *nothing(void) { return ELSEWHERE; }

#define KIND(make) { #make, make }
static const struct {
    const char *name;
    char *(*make)(void);
} kinds[] = {
    KIND(own), KIND(shared), KIND(without_rights), KIND(read_only), KIND(locked), KIND(low), KIND(touched), KIND(apart),
    KIND(not_for_children), KIND(whole_file), KIND(own_file), KIND(copied_file), KIND(cut_file), KIND(sealed_file),
    KIND(past_the_end), KIND(at_2_47), KIND(at_2_48), KIND(own_at_2_48), KIND(moved_at_2_48), KIND(at_2_62),
    KIND(at_the_last_offset), KIND(end_of_a_long_file), KIND(over_2_47), KIND(long_mapping), KIND(huge), KIND(top),
    KIND(bottom), KIND(nothing),
};

/* ---- calls ---- */

/* Reduces an address to 0: only its presence counts. */
static long placed(void *result) { return result == MAP_FAILED ? -1 : 0; }

static long few(void) { return length < LENGTH ? length : LENGTH; }

static long mincore_all(void) { return mincore(at, few(), residence); }
static long mincore_last(void) { return mincore(at + length - PAGE, PAGE, residence); }
static long mincore_itself(void) { return mincore(at, few(), (unsigned char *)at); }
static long msync_all(void) { return msync(at, length, MS_SYNC); }
static long msync_away(void) { return msync(at, length, MS_ASYNC | MS_INVALIDATE); }
static long protect_none(void) { return mprotect(at, length, PROT_NONE); }
static long protect_all(void) { return mprotect(at, length, RW | PROT_EXEC); }
static long protect_parts(void) { return mprotect(at + PAGE, PAGE, PROT_READ) + mprotect(at, length, RW); }
static long dont_need(void) { return madvise(at, length, MADV_DONTNEED); }
static long will_need(void) { return madvise(at, few(), MADV_WILLNEED); }
static long free_lazily(void) { return madvise(at, length, MADV_FREE); }
static long punch_by_mapping(void) { return madvise(at, length, MADV_REMOVE); }
static long dont_fork(void) { return madvise(at, length, MADV_DONTFORK); }
static long wipe_on_fork(void) { return madvise(at, length, MADV_WIPEONFORK); }
static long no_advice(void) { return madvise(at, length, 1234); }
static long populate_read(void) { return madvise(at, few(), 22); }
static long populate_write(void) { return madvise(at, few(), 23); }
static long lock(void) { return mlock(at, few()); }
static long unlock(void) { return munlock(at, length); }
static long unmap_part(void) { return munmap(at + PAGE, PAGE) + munmap(at, length); }
static long unmap_too_much(void) { return munmap(at, LONGEST & -PAGE); }
static long shrink(void) { return placed(mremap(at, few(), PAGE, 0)); }
static long grow(void) { return placed(mremap(at, few(), 2 * few(), MREMAP_MAYMOVE)); }
static long grow_very_much(void) { return placed(mremap(at, few(), 1L << 46, MREMAP_MAYMOVE)); }
static long grow_too_much(void) { return placed(mremap(at, few(), 1L << 62, MREMAP_MAYMOVE)); }
static long move_part(void)
{
    return placed(mremap(at + PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, ELSEWHERE + (1L << 30)));
}
static long map_again(void) { return placed(mremap(at, 0, few(), MREMAP_MAYMOVE)); }
static long map_over(void) { return placed(mmap(at + PAGE, PAGE, RW, ANONYMOUS | MAP_FIXED, -1, 0)); }
static long map_beside(void) { return placed(mmap(at, PAGE, RW, ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0)); }

static long vm_read(void)
{
    struct iovec here = { buffer, few() }, there = { at, few() };
    return process_vm_readv(getpid(), &here, 1, &there, 1, 0);
}

static long vm_write(void)
{
    struct iovec here = { buffer, few() }, there = { at, few() };
    return process_vm_writev(getpid(), &here, 1, &there, 1, 0);
}

static long read_into(void)
{
    int zero = open("/dev/zero", O_RDONLY);
    return read(zero, at, few());
}

static long read_over_an_edge(void)
{
    int ends[2];
    return pipe(ends) + write(ends[1], buffer, 2 * PAGE) + read(ends[0], at + few() - PAGE, 2 * PAGE);
}

static long write_from(void)
{
    int into = memfd_create("out", 0);
    return write(into, at, few());
}

static long list_of_buffers(void)
{
    int zero = open("/dev/zero", O_RDONLY);
    return readv(zero, (struct iovec *)at, 3);
}

static long path_there(void) { return open(at, O_RDONLY); }
static long arguments_there(void) { return syscall(SYS_execve, "/none", at, at); }
static long action_there(void) { return syscall(SYS_rt_sigaction, SIGUSR1, at, at, 8); }
static long limit_there(void) { return syscall(SYS_prlimit64, 0, RLIMIT_CORE, NULL, at); }
static long wake(void) { return syscall(SYS_futex, at, FUTEX_WAKE, 1, NULL, NULL, 0); }
static long wait_for_another(void) { return syscall(SYS_futex, at, FUTEX_WAIT, 12345, NULL, NULL, 0); }
static long requeue(void) { return syscall(SYS_futex, at, FUTEX_CMP_REQUEUE, 1, 1L, at + PAGE, 12345); }

static long robust_list_there(void)
{
    syscall(SYS_set_robust_list, at, 24L);
    syscall(SYS_set_tid_address, at + PAGE);
    return 0;
}

static long child_touches(void)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        at[0]++;
        _exit(at[few() - 1] & 0);
    }
    return waitpid(child, &status, 0) == child ? status : -1;
}

static long touch_last(void) { return at[length - 1]++ & 0; }

static long cut_below(void) { return ftruncate(file, PAGE) + mincore(at, PAGE, residence); }
static long cut_to_nothing(void) { return ftruncate(file, 0) + madvise(at, length, MADV_DONTNEED); }
static long reserve(void) { return fallocate(file, 0, 0, 4 * LENGTH); }
static long reserve_too_much(void) { return fallocate(file, 0, LONGEST - PAGE, 2 * PAGE); }
static long punch(void) { return fallocate(file, 3, PAGE, 4 * PAGE); }
static long punch_far(void) { return fallocate(file, 3, 1L << 46, 1L << 46); }
static long punch_to_the_end(void) { return fallocate(file, 3, PAGE, LONGEST - PAGE); }
static long read_file(void) { return pread(file, at, few(), PAGE); }
static long read_far(void) { return pread(file, buffer, PAGE, 1L << 62); }
static long read_at_the_end(void) { return pread(file, buffer, PAGE, LONGEST - 1); }
static long write_file(void) { return pwrite(file, at, PAGE, PAGE); }
static long write_at_the_end(void) { return pwrite(file, buffer, PAGE, LONGEST); }
static long seek_data(void) { return lseek(file, LONGEST, SEEK_DATA); }
static long seek_end(void) { return lseek(file, 1L << 62, SEEK_SET) >> 62; }
static long close_it(void) { return close(file) + mincore(at, few(), residence); }

static long read_all(const char *path)
{
    int from = open(path, O_RDONLY);
    while (read(from, buffer, sizeof buffer) > 0) {}
    return close(from);
}

static long maps(void) { return read_all("/proc/self/maps") + read_all("/proc/self/smaps") + read_all("/proc/self/stat"); }
static long pagemap(void) { return pread(open("/proc/self/pagemap", O_RDONLY), buffer, 128, (long)at / PAGE * 8); }
static long pagemap_far(void) { return pread(open("/proc/self/pagemap", O_RDONLY), buffer, 128, LONGEST & -8L); }

#define CALL(call) { #call, call, 0 }
#define FILE_CALL(call) { #call, call, 1 }
static const struct {
    const char *name;
    long (*call)(void);
    int needs_file;
} calls[] = {
    CALL(mincore_all), CALL(mincore_last), CALL(mincore_itself), CALL(msync_all), CALL(msync_away), CALL(protect_none),
    CALL(protect_all), CALL(protect_parts), CALL(dont_need), CALL(will_need), CALL(free_lazily), CALL(punch_by_mapping),
    CALL(dont_fork), CALL(wipe_on_fork), CALL(no_advice), CALL(populate_read), CALL(populate_write), CALL(lock),
    CALL(unlock), CALL(unmap_part), CALL(unmap_too_much), CALL(shrink), CALL(grow), CALL(grow_very_much),
    CALL(grow_too_much), CALL(move_part), CALL(map_again), CALL(map_over), CALL(map_beside), CALL(vm_read), CALL(vm_write),
    CALL(read_into), CALL(read_over_an_edge), CALL(write_from), CALL(list_of_buffers), CALL(path_there),
    CALL(arguments_there), CALL(action_there), CALL(limit_there), CALL(wake), CALL(wait_for_another), CALL(requeue),
    CALL(robust_list_there), CALL(child_touches), CALL(touch_last), CALL(maps), CALL(pagemap), CALL(pagemap_far),
    FILE_CALL(cut_below), FILE_CALL(cut_to_nothing), FILE_CALL(reserve), FILE_CALL(reserve_too_much), FILE_CALL(punch), FILE_CALL(punch_far),
    FILE_CALL(punch_to_the_end), FILE_CALL(read_file), FILE_CALL(read_far), FILE_CALL(read_at_the_end), FILE_CALL(write_file), FILE_CALL(write_at_the_end),
    FILE_CALL(seek_data), FILE_CALL(seek_end), FILE_CALL(close_it),
};

/* Pairs whose answers are not the same, and the reason. "*" stands for every kind. */
static const struct {
    const char *call, *kind, *why;
} different[] = {
    { "grow_very_much", "*", "Linux weighs it against memory" },
    { "wake", "read_only", "Linux wants a word that may be written, or a file's" },
    { "wait_for_another", "read_only", "Linux wants a word that may be written, or a file's" },
    { "requeue", "read_only", "Linux wants a word that may be written, or a file's" },
    { "msync_away", "locked", "Linux does not invalidate what is locked, and here there is nothing to invalidate" },
    { "map_again", "sealed_file", "Linux looks at seals when a file is mapped, and not again" },
};

static const char *why_different(const char *call, const char *kind)
{
    for (unsigned i = 0; i < sizeof different / sizeof *different; i++)
        if (!strcmp(different[i].call, call) && (!strcmp(different[i].kind, kind) || *different[i].kind == '*'))
            return different[i].why;
    return NULL;
}

/* ---- pairs ---- */

/* Runs in the child: tries the pair and prints the result. */
static void try_pair(unsigned k, unsigned c)
{
    at = kinds[k].make();
    if (calls[c].needs_file && file < 0)
        return;
    printf("%s %s: ", kinds[k].name, calls[c].name);
    const char *why = why_different(calls[c].name, kinds[k].name);
    if (at == MAP_FAILED) {
        printf("no mapping, error %d\n", errno);
        return;
    }
    if (why)
        printf("%s\n", why);
    fflush(stdout);
    errno = 0;
    long result = calls[c].call();
    if (!why)
        printf("%ld, error %d\n", result, result < 0 ? errno : 0);
}

static void pair(unsigned k, unsigned c)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        try_pair(k, c);
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status) && !why_different(calls[c].name, kinds[k].name))
        printf("signal %d\n", WTERMSIG(status));
    fflush(stdout);
}

int main(void)
{
    static const struct rlimit no_core = { 0, 0 };
    setrlimit(RLIMIT_CORE, &no_core);
    for (unsigned k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (unsigned c = 0; c < sizeof calls / sizeof *calls; c++)
            pair(k, c);
    printf("matrix: done\n");
    return 0;
}

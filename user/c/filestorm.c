/* A storm of file calls: threads make calls with arguments from bad to plausible, on few names and few
 * descriptors, so that they meet. The results do not matter. The kernel must be well afterwards.
 *
 * filestorm THREADS CALLS SEED: exits with 0, and leaves standard streams alone. For guests only: it renames
 * and removes whatever it can. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "page_counts.h"

enum { MAX_THREADS = 64 };
#define COUNT(array) (sizeof(array) / sizeof *(array))

static const char *const paths[] = {
    "/tmp/storm/a", "/tmp/storm/b", "/tmp/storm/d", "/tmp/storm/d/e", "/tmp/storm/d/e/f", "/tmp/storm/l", "/tmp/storm/d/..",
    "/tmp/storm/d/.", "/tmp/storm/", "/tmp/storm/a/", "/tmp/storm/d/../b", "a", "", "/", "/dev/null", "/dev/zero", "/proc/self/fd/9",
    "/proc/self/fd", "/proc/self/exe", "/dev/fd/9/x",
};

/* Kinds of the arguments of a call: d descriptor, p path, o flags of open, n O_NONBLOCK, 0 zero, ?
 * anything. */
static const struct { long number; const char *arguments; } calls[] = {
    {SYS_read, "d??"}, {SYS_write, "d??"}, {SYS_pread64, "d???"}, {SYS_pwrite64, "d??d"}, {SYS_readv, "d??"}, {SYS_writev, "d??"},
    {SYS_open, "po?"}, {SYS_openat, "?po?"}, {SYS_close, "d"}, {SYS_stat, "p?"}, {SYS_lstat, "p?"}, {SYS_fstat, "d?"},
    {SYS_newfstatat, "dp??"}, {SYS_statx, "dp???"}, {SYS_lseek, "d??"}, {SYS_ioctl, "d??"}, {SYS_access, "p?"}, {SYS_dup, "d"},
    {SYS_dup2, "dd"}, {SYS_dup3, "dd?"}, {SYS_ftruncate, "dd"}, {SYS_truncate, "pd"}, {SYS_getdents64, "d??"}, {SYS_getcwd, "??"},
    {SYS_rename, "pp"}, {SYS_renameat2, "?p?p?"}, {SYS_mkdir, "p?"}, {SYS_rmdir, "p"}, {SYS_link, "pp"}, {SYS_linkat, "?p?p?"},
    {SYS_unlink, "p"}, {SYS_unlinkat, "?p?"}, {SYS_symlink, "pp"}, {SYS_readlink, "p??"}, {SYS_chmod, "p?"}, {SYS_fchmod, "d?"},
    {SYS_fsync, "d"}, {SYS_statfs, "p?"}, {SYS_sendfile, "dd??"}, {SYS_copy_file_range, "d?d???"}, {SYS_utimensat, "dp??"},
    {SYS_poll, "?d0"}, {SYS_pipe2, "?n"}, {SYS_chdir, "p"}, {SYS_fchdir, "d"}, {SYS_umask, "?"}, {SYS_fadvise64, "d???"},
};

static long count;
static uint64_t first_seed;
/* A page. Nothing is mapped behind it. */
static char *memory;

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

static long anything(uint64_t *state)
{
    const uint64_t odd[] = {0, 1, 8, 64, 4096, 70000, -1, AT_FDCWD, INT64_MAX, INT64_MIN, 0xffff800000000000, next(state)};
    uint64_t choice = next(state) % (COUNT(odd) + 8);
    return choice < COUNT(odd) ? (long)odd[choice] : (long)(memory + next(state) % PAGE);
}

/* Returns an argument. Descriptors below 8 are not touched, and no open would wait. */
static long argument(char kind, uint64_t *state)
{
    const int opening = O_ACCMODE | O_CREAT | O_EXCL | O_TRUNC | O_APPEND | O_DIRECTORY;
    int wild = next(state) % 32 == 0;
    switch (kind) {
    case 'd': return wild ? anything(state) : (long)(8 + next(state) % 16);
    case 'p': return wild ? anything(state) : (long)paths[next(state) % COUNT(paths)];
    case 'o': return (next(state) & opening) | O_NONBLOCK;
    case 'n': return O_NONBLOCK;
    case '0': return 0;
    default: return anything(state);
    }
}

static int is_standard(long fd)
{
    return (uint32_t)fd < 8;
}

static void *storm(void *thread)
{
    uint64_t state = first_seed * 7919 + (uintptr_t)thread + 1;
    for (long i = 0; i < count; i++) {
        const long call = next(&state) % COUNT(calls);
        const char *kinds = calls[call].arguments;
        long words[6] = {0};
        for (int at = 0; kinds[at]; at++)
            words[at] = argument(kinds[at], &state);
        if ((kinds[0] == 'd' && is_standard(words[0])) || (kinds[1] == 'd' && is_standard(words[1])))
            continue;
        syscall(calls[call].number, words[0], words[1], words[2], words[3], words[4], words[5]);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    static pthread_t threads[MAX_THREADS];
    long number = argc == 4 ? atol(argv[1]) : 0;
    if (number < 1 || number > MAX_THREADS || (count = atol(argv[2])) < 1) {
        fprintf(stderr, "usage: filestorm THREADS CALLS SEED, up to %d threads\n", MAX_THREADS);
        return 2;
    }
    first_seed = strtoull(argv[3], NULL, 10);
    memory = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(memory + PAGE, PAGE);
    signal(SIGPIPE, SIG_IGN);
    mkdir("/tmp/storm", 0755);
    for (int fd = 3; fd < 8; fd++)
        dup2(open("/dev/null", O_RDWR), fd);
    for (long i = 0; i < number; i++)
        pthread_create(&threads[i], NULL, storm, (void *)i);
    for (long i = 0; i < number; i++)
        pthread_join(threads[i], NULL);
    /* The storm may have left no free descriptor. */
    syscall(SYS_close_range, 3, ~0U, 0);
    compare_all();
    puts("filestorm: done");
    return 0;
}

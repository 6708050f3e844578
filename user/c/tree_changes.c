/* Random changes of the current directory and of all below it, by one process: files are made, written in
 * every way, truncated, mapped, moved, linked and removed, and so are directories. The result depends on the
 * seed only, and on a file system that does as POSIX says.
 *
 * tree_changes CHANGES SEED: prints what the calls returned. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NAMES = 4, OPEN = 3, PAGE = 4096 };

static uint64_t state;
static int files[OPEN] = {-1, -1, -1};
static char bytes[70000];
static int kind;

static uint64_t below(uint64_t limit)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 24) % limit;
}

/* A path of up to three names. */
static const char *path(char to[64])
{
    int depth = below(2) ? 0 : below(3);
    *to = 0;
    for (int i = 0; i <= depth; i++)
        sprintf(to + strlen(to), "%s%c", i ? "/" : "", (char)('a' + below(NAMES)));
    return to;
}

/* Lengths near the ends of pages, and others. */
static size_t length(void)
{
    return below(3) ? below(6) * PAGE + below(5) : below(sizeof bytes);
}

static void fill(void)
{
    uint64_t word = below(-1UL);
    for (size_t i = 0; i < sizeof bytes; i += sizeof word)
        memcpy(bytes + i, &word, sizeof word), word = word * 3 + 1;
}

static long change(void)
{
    char first[64], second[64];
    int *file = &files[below(OPEN)];
    path(first), path(second);
    switch (kind = below(20)) {
    case 0 ... 3:
        if (*file >= 0)
            close(*file);
        *file = open(first, O_RDWR | (below(8) ? O_CREAT : 0) | (below(4) ? 0 : O_TRUNC) | (below(4) ? 0 : O_APPEND) |
                                (below(6) ? 0 : O_EXCL),
                     0600 + below(0100));
        return *file < 0 ? -1 : 0;
    case 4 ... 6:
        fill();
        return pwrite(*file, bytes, length(), length());
    case 7:
        fill();
        return write(*file, bytes, length());
    case 8:
        return ftruncate(*file, length());
    case 9: {
        size_t at = below(4) * PAGE;
        struct stat status;
        if (fstat(*file, &status) < 0)
            return -1;
        char *mapped = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, *file, at);
        if (mapped == MAP_FAILED)
            return -1;
        /* Beyond the end there is no page. */
        for (size_t i = below(50); i < PAGE && (off_t)(at + i) < status.st_size; i += 97)
            mapped[i] += 7;
        if (below(2))
            msync(mapped, PAGE, MS_SYNC);
        return munmap(mapped, PAGE);
    }
    case 10:
        return mkdir(first, 0700 + below(0100));
    case 11:
        return rmdir(first);
    case 12:
    case 13:
        return unlink(first);
    case 14:
    case 15:
        return rename(first, second);
    case 16:
        return link(first, second);
    case 17:
        return below(2) ? symlink(second, first) : truncate(first, length());
    case 18:
        return below(2) ? fsync(*file) : fallocate(*file, 0, length(), 1 + length());
    default: {
        int status;
        /* A child shares what is open, and closes it by its end. */
        pid_t child = fork();
        if (child == 0) {
            fill();
            int failed = pwrite(*file, bytes, length(), length()) < 0;
            _exit(failed || chmod(first, 0400 + below(0400)) < 0);
        }
        return waitpid(child, &status, 0) == child ? status : -1;
    }
    }
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    umask(0);
    state = strtoull(argv[2], NULL, 0) * 1000003;
    below(2);
    for (long i = 0; i < atol(argv[1]); i++) {
        errno = 0;
        long result = change();
        printf("%ld: %d %ld %d\n", i, kind, result, result < 0 ? errno : 0);
    }
    return 0;
}

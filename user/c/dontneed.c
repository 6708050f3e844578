/* posix_fadvise(POSIX_FADV_DONTNEED): a file of the boot image loses its pages and shows the same bytes, and
 * files in memory keep theirs. dontneed FILE, which has 600 pages and 100 bytes. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

#define PAGE 4096L
#define PAGES 601L
#define BYTES (600 * PAGE + 100)

static unsigned char in[PAGES];
static unsigned char expected[PAGES * PAGE];

/* Returns how many pages of a file are in memory, and notes which. */
static long resident(unsigned char *shown)
{
    long count = 0;
    if (mincore(shown, PAGES * PAGE, in))
        return -1;
    for (long page = 0; page < PAGES; page++)
        count += in[page] & 1;
    return count;
}

/* Touches each page and compares it with what `read` has returned. */
static int shows_the_file(unsigned char *shown)
{
    return memcmp(shown, expected, PAGES * PAGE) == 0;
}

static void of_the_image(const char *path)
{
    int fd = open(path, O_RDONLY);
    check("read", read(fd, expected, PAGES * PAGE) == BYTES);
    unsigned char *shown = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_SHARED, fd, 0);
    check("none at first", shown != MAP_FAILED && resident(shown) == 0);
    check("all after touches", shows_the_file(shown) && resident(shown) == PAGES);
    /* From byte 4097 up to 12289, only page 2 lies whole. */
    check("a whole page", posix_fadvise(fd, PAGE + 1, 2 * PAGE, POSIX_FADV_DONTNEED) == 0 && resident(shown) == PAGES - 1 && !in[2]);
    check("no whole page", posix_fadvise(fd, 5 * PAGE + 1, PAGE, POSIX_FADV_DONTNEED) == 0 && resident(shown) == PAGES - 1);
    check("the last page", posix_fadvise(fd, 600 * PAGE, 100, POSIX_FADV_DONTNEED) == 0 && resident(shown) == PAGES - 2 && !in[600]);
    check("another advice", posix_fadvise(fd, 0, 0, POSIX_FADV_NOREUSE) == 0 && resident(shown) == PAGES - 2);
    check("from there on", posix_fadvise(fd, 20 * PAGE, 0, POSIX_FADV_DONTNEED) == 0 && resident(shown) == 19);
    check("the bytes come back", shows_the_file(shown) && resident(shown) == PAGES);
    unsigned char *own = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    own[7 * PAGE] = 1 + expected[7 * PAGE];
    check("all of them", posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0 && munmap(shown, PAGES * PAGE) == 0 && resident(own) == 1);
    check("a private copy stays", own[7 * PAGE] == (unsigned char)(1 + expected[7 * PAGE]) && own[8 * PAGE] == expected[8 * PAGE]);
    check("beyond the end", posix_fadvise(fd, 1L << 62, 1L << 62, POSIX_FADV_DONTNEED) == 0);
}

static void in_memory(void)
{
    int fd = memfd_create("dontneed", 0);
    check("write", write(fd, expected, BYTES) == BYTES);
    unsigned char *shown = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_SHARED, fd, 0);
    check("a file in memory", posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0 && resident(shown) == PAGES);
    check("keeps its bytes", shows_the_file(shown));
}

static void wrong(void)
{
    int ends[2], fd = memfd_create("wrong", 0);
    check("a pipe", pipe(ends) == 0 && posix_fadvise(ends[0], 0, 0, POSIX_FADV_DONTNEED) == ESPIPE);
    check("no descriptor", posix_fadvise(999, 0, 0, POSIX_FADV_DONTNEED) == EBADF);
    check("a negative length", posix_fadvise(fd, 0, -1, POSIX_FADV_DONTNEED) == EINVAL);
    check("no such advice", posix_fadvise(fd, 0, 0, 6) == EINVAL);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    of_the_image(argv[1]);
    in_memory();
    wrong();
    return failures != 0;
}

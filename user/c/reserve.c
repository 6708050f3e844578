/* Requests more room in files than there is. No room may be taken.
 *
 * reserve: exits with 0 if there is as much room, and memory, as before. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { PAGE = 4096, NEEDED = 1024 };

static unsigned long room(void)
{
    struct statvfs all;
    return statvfs("/tmp", &all) == 0 ? all.f_bfree : 0;
}

/* The first page stays, with its contents. */
static int refuses(int fd)
{
    struct stat file;
    char byte = 0;
    return pwrite(fd, "x", 1, 0) == 1 && fallocate(fd, 0, 0, 1L << 40) == -1 && fstat(fd, &file) == 0 && file.st_size == 1 &&
           pread(fd, &byte, 1, 0) == 1 && byte == 'x';
}

int main(void)
{
    int file = open("/tmp/file", O_RDWR | O_CREAT, 0600), memory = memfd_create("memory", 0);
    int refused = refuses(file), another = open("/tmp/another", O_RDWR | O_CREAT, 0600);
    unsigned long before = room();
    int good = refused && before > NEEDED && pwrite(another, "y", 1, NEEDED * PAGE) == 1;
    printf("file: %s\n", good ? "ok" : "WRONG");
    fflush(stdout);
    good &= refuses(memory);
    volatile char *pages = mmap(NULL, NEEDED * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int page = 0; page < NEEDED; page++)
        pages[page * PAGE] = 1;
    printf("reserve: %s\n", good ? "done" : "FAILED");
    return !good;
}

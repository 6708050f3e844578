/* Reads a large file by mapping. Every page must hold what read returns, whatever happens to its memory
 * meanwhile.
 *
 * bigfile FILE THREADS: each thread goes over the whole file, the first from start to end, the others from
 * other places. One page in 64 is written privately and must stay so, and one in 64 is copied to another
 * file. Prints the sum of all bytes. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096L
#define OWN 64L

static int fd;
static long pages;
static char *shown, *own;
static unsigned long sums[64];

static void die(const char *what)
{
    printf("bigfile: %s\n", what);
    exit(1);
}

static void *go_over(void *argument)
{
    long number = (long)argument, start = number * 7919 % pages;
    char page[PAGE], path[] = "/tmp/bigfile-XXXXXX";
    int notes = mkstemp(path);
    unlink(path);
    for (long i = 0; i < pages; i++) {
        long at = (start + i) % pages;
        memset(page, 0, PAGE);
        if (pread(fd, page, PAGE, at * PAGE) <= 0 || memcmp(page, shown + at * PAGE, PAGE) != 0)
            die("a page is not the file's");
        for (long byte = 0; byte < PAGE; byte++)
            sums[number] += (unsigned char)page[byte];
        if (i % OWN == 0 && write(notes, page, PAGE) != PAGE)
            die("a write found no memory");
    }
    return NULL;
}

int main(int argc, char **argv)
{
    long threads = argc > 2 ? atol(argv[2]) : 1;
    struct stat stat;
    pthread_t thread[64];
    fd = open(argv[1], O_RDONLY);
    if (fd < 0 || threads > 64 || fstat(fd, &stat) < 0)
        die("no file");
    pages = (stat.st_size + PAGE - 1) / PAGE;
    shown = mmap(NULL, pages * PAGE, PROT_READ, MAP_SHARED, fd, 0);
    own = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    if (shown == MAP_FAILED || own == MAP_FAILED)
        die("no mapping");
    for (long at = 0; at < pages; at += OWN)
        own[at * PAGE] ^= 1;
    for (long i = 0; i < threads; i++)
        pthread_create(&thread[i], NULL, go_over, (void *)i);
    for (long i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    for (long at = 0; at < pages; at++)
        if (own[at * PAGE] != (shown[at * PAGE] ^ (at % OWN == 0)))
            die("a private copy is lost");
    for (long i = 1; i < threads; i++)
        if (sums[i] != sums[0])
            die("the sums differ");
    printf("bigfile: %ld pages, sum %lu\n", pages, sums[0]);
    return 0;
}

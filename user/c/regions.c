/* /proc/self/maps with many mappings, read in pieces of any size, has the same lines in the same order, also
 * after a seek. While mappings come and go, it never has one twice. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

enum { PAGE = 4096, REGIONS = 3000, ROOM = 1 << 20 };
static char *area, whole[ROOM], pieces[ROOM];
static volatile int over;

static long read_all(char *into, size_t piece, off_t from)
{
    long done = 0, length;
    int file = open("/proc/self/maps", O_RDONLY);
    lseek(file, from, SEEK_SET);
    while ((length = read(file, into + done, piece)) > 0)
        done += length;
    close(file);
    into[done] = 0;
    return length < 0 ? -1 : done;
}

/* Returns the number of lines in the area, or -1 if they are not in order or overlap. */
static long regions_in(const char *text)
{
    unsigned long start, end, last = 0;
    long regions = 0;
    for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
        if (sscanf(line, "%lx-%lx ", &start, &end) != 2 || start < last || end <= start)
            return -1;
        last = end;
        regions += start >= (unsigned long)area && end <= (unsigned long)area + 2L * REGIONS * PAGE;
    }
    return regions;
}

static void *change(void *nothing)
{
    while (!over)
        for (long region = 0; region < REGIONS; region += 100)
            mprotect(area + 2 * region * PAGE, PAGE, region % 200 ? PROT_READ : PROT_NONE);
    return nothing;
}

int main(void)
{
    pthread_t changer;
    area = mmap(NULL, 2L * REGIONS * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (long region = 0; region < REGIONS; region++)
        if (mprotect(area + 2 * region * PAGE, PAGE, PROT_READ) != 0)
            return 2;
    long length = read_all(whole, ROOM, 0);
    check("as many regions as were made", regions_in(whole) == 2 * REGIONS);
    check("small pieces", read_all(pieces, 97, 0) == length && memcmp(whole, pieces, length) == 0);
    check("large pieces", read_all(pieces, 10000, 0) == length && memcmp(whole, pieces, length) == 0);
    check("after a seek", read_all(pieces, 4096, 12345) == length - 12345 &&
                              memcmp(whole + 12345, pieces, length - 12345) == 0);
    int file = open("/proc/self/maps", O_RDONLY), good = 1;
    for (long at = length - 100; at > 0; at -= length / 7)
        good &= pread(file, pieces, 100, at) == 100 && memcmp(whole + at, pieces, 100) == 0;
    check("backwards", good && pread(file, pieces, 100, length) == 0);
    mprotect(area, 2L * REGIONS * PAGE, PROT_READ);
    good = lseek(file, 0, SEEK_SET) == 0 && read(file, pieces, 4096) > 0;
    check("read again it is new", good && regions_in(whole) != 1 && read_all(pieces, ROOM, 0) < length / 10);
    close(file);
    if (pthread_create(&changer, NULL, change, NULL) != 0)
        return 2;
    good = 1;
    for (int round = 0; round < 20; round++)
        good &= read_all(pieces, 500, 0) > 0 && regions_in(pieces) > 0;
    over = 1;
    pthread_join(changer, NULL);
    check("in order while they change", good);
    return failures;
}

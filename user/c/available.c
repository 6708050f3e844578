/* Checks that /proc/meminfo counts what programs gave up as available at once: pages of files, everything
 * that still waits for its epochs, and the kernel's stacks of threads. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "sleepers.h"

/* Sizes are in KiB, except for PAGE. */
enum { PAGE = 4096, LENGTH = 24576, THREADS = 600, PART = 32 };

static long available(void)
{
    char text[1024];
    int file = open("/proc/meminfo", O_RDONLY);
    long got = read(file, text, sizeof text - 1);
    close(file);
    text[got > 0 ? got : 0] = 0;
    char *line = strstr(text, "MemAvailable:");
    return line ? atol(line + strlen("MemAvailable:")) : 0;
}

/* Returns whether all is available again except for 1/PART of it. */
static int is_back(long before)
{
    long now = available();
    if (now < before - before / PART)
        fprintf(stderr, "%ld KiB of %ld\n", now, before);
    return now >= before - before / PART;
}

static void fill(int file)
{
    static char bytes[64 * 1024];
    memset(bytes, 7, sizeof bytes);
    for (long done = 0; done < LENGTH; done += sizeof bytes / 1024)
        if (write(file, bytes, sizeof bytes) != sizeof bytes)
            check("a write", 0);
}

static void crowd(void)
{
    for (long made = 0; made < THREADS; made++)
        if (start_sleeper() < 0)
            _exit(1);
    _exit(0);
}

int main(int count, char **arguments)
{
    (void)arguments;
    long before = available();
    int file = open("/tmp/garbage", O_CREAT | O_RDWR, 0600);
    fill(file);
    check("a file's pages are not available", !is_back(before));
    close(file);
    unlink("/tmp/garbage");
    check("those of an unlinked one are", is_back(before));
    file = memfd_create("garbage", 0);
    fill(file);
    check("it can be cut", ftruncate(file, 0) == 0);
    check("those of a truncated one are", is_back(before));
    if (count > 1) {
        int status = -1;
        pid_t child = fork();
        if (child == 0)
            crowd();
        check("many threads end", waitpid(child, &status, 0) == child && status == 0);
        check("their stacks are available", is_back(before));
    }
    return failures;
}

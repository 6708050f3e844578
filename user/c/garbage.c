/* Pages of files that no process can reach any more are soon free again when the machine idles. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "check.h"

enum { KIB = 1024, LENGTH = 32768 * KIB, NAPS = 20, SLACK = 4096 * KIB };
static char bytes[64 * KIB];

static unsigned long available(void)
{
    struct sysinfo info;
    sysinfo(&info);
    return info.freeram;
}

static void fill(int file)
{
    for (long done = 0; done < LENGTH; done += sizeof bytes)
        if (write(file, bytes, sizeof bytes) != sizeof bytes)
            check("a write", 0);
}

/* Checks that the memory comes back within NAPS naps. Ticks alone would need a hundred naps and more: a tick
 * reviews some dead pages, and a nap has few ticks. */
static void comes_back(const char *what, unsigned long before)
{
    int naps = 0;
    while (available() + SLACK < before && naps < NAPS) {
        usleep(100000);
        naps++;
    }
    check(what, naps < NAPS);
}

int main(void)
{
    memset(bytes, 7, sizeof bytes);
    unsigned long before = available();
    int file = open("/tmp/garbage", O_CREAT | O_RDWR, 0600);
    fill(file);
    close(file);
    unlink("/tmp/garbage");
    comes_back("an unlinked file", before);
    file = memfd_create("garbage", 0);
    fill(file);
    check("it can be cut", ftruncate(file, 0) == 0);
    comes_back("a truncated one", before);
    fill(file);
    close(file);
    comes_back("a closed one without a name", before);
    return failures;
}

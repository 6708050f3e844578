/* Processes read one page of a file at the same time, so that a kernel which counts readers in the page gives
 * each of them a counter of its own (`read_refs=lodic`). Then they wait, and the counters have to go although
 * the processes stay. Then they read again while the page is punched out and written anew: every byte that
 * they get is 0 or the page's. While they wait, the counts of all pages are compared.
 *
 * hotpage READERS ROUNDS [cut]: the readers, and the pages that they see. With `cut`, the page goes by
 * truncations and by advice too, so a read may be short. Kernels without such counters are not waited for. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "page_counts.h"

#define BYTE 0x5a

enum { REST, READ, END };

#define MOST 1024
/* More readers than this let others run after each read, or the one that changes the page waits for long. */
#define FEW 64

static int fd, is_cut, readers;
static _Atomic int *work;

static void must(int good, const char *what)
{
    if (!good) {
        dprintf(1, "hotpage: %s\n", what);
        _exit(1);
    }
}

/* Returns the number of processes that have counters, or `otherwise` on a system that does not say that. */
static long with_counters(long otherwise)
{
    static char text[1 << 16];
    int counters = open("/proc/radixvm/counters", O_RDONLY);
    long length = counters < 0 ? 0 : read(counters, text, sizeof text - 1);
    close(counters);
    text[length < 0 ? 0 : length] = 0;
    char *line = strstr(text, "\nread_counter_pages ");
    return line == NULL ? otherwise : atol(line + strlen("\nread_counter_pages "));
}

static void read_once(void)
{
    static unsigned char page[PAGE];
    long got = pread(fd, page, PAGE, 0);
    must(got == PAGE || (is_cut && got >= 0), "pread");
    if (readers > FEW)
        sched_yield();
    for (long i = 0; i < got; i++)
        must(page[i] == 0 || page[i] == BYTE, "a read returned bytes of another page");
}

/* Reads while it is told to. It sleeps when it is told to rest. */
static void reader(int rested, int go)
{
    char word = 0;
    for (;;) {
        while (atomic_load(work) == READ)
            read_once();
        if (atomic_load(work) == END)
            _exit(0);
        must(write(rested, &word, 1) == 1 && read(go, &word, 1) == 1, "a pipe");
    }
}

static void write_page(void)
{
    static unsigned char page[PAGE];
    memset(page, BYTE, PAGE);
    must(pwrite(fd, page, PAGE, 0) == PAGE, "pwrite");
}

/* Takes the page out of the file. */
static void drop_page(long round)
{
    if (is_cut && round % 3 == 1)
        must(ftruncate(fd, 0) == 0, "truncate");
    else if (is_cut && round % 3 == 2)
        must(ftruncate(fd, 1) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0, "advise");
    else
        must(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE) == 0, "punch");
}

int main(int argc, char **argv)
{
    must(argc >= 3, "give readers and rounds");
    int rested[2], go[2];
    readers = atoi(argv[1]);
    is_cut = argc > 3;
    must(readers <= MOST, "too many readers");
    fd = memfd_create("hotpage", 0);
    must(fd >= 0 && pipe(rested) == 0 && pipe(go) == 0, "a file and two pipes");
    work = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(work != MAP_FAILED, "mmap");
    write_page();
    atomic_store(work, READ);
    for (int i = 0; i < readers; i++)
        if (fork() == 0)
            reader(rested[1], go[0]);
    /* The last reader that counts in the page meets no other there. */
    while (with_counters(2) < 2)
        sched_yield();
    static char word[MOST];
    atomic_store(work, REST);
    for (int i = 0; i < readers; i++)
        must(read(rested[0], word, 1) == 1, "read");
    while (with_counters(0) > 0)
        sched_yield();
    compare_all();
    atomic_store(work, READ);
    must(write(go[1], word, readers) == readers, "write");
    while (with_counters(2) < 2)
        sched_yield();
    for (long i = 0; i < atol(argv[2]); i++) {
        drop_page(i);
        write_page();
        sched_yield();
    }
    atomic_store(work, END);
    for (int i = 0, status; i < readers; i++)
        must(wait(&status) > 0 && status == 0, "a reader");
    puts("hotpage: done");
    return 0;
}

/* Threads that sleep, each on a CPU of its own, after they have touched memory and given it back. The memory
 * that their CPUs keep ready is there for the thread that needs it. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "check.h"

enum { PAGE = 4096, MOST = 64, TOUCHED = 700 };
static pthread_barrier_t slept;
static pthread_mutex_t shut = PTHREAD_MUTEX_INITIALIZER;

/* Maps small pages. */
static char *map(size_t pages)
{
    char *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED)
        madvise(memory, pages * PAGE, MADV_NOHUGEPAGE);
    return memory;
}

static void touch(char *memory, size_t pages)
{
    for (size_t page = 0; page < pages; page++)
        memory[page * PAGE] = 1;
}

static void *sleeper(void *number)
{
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET((long)number, &cpus);
    sched_setaffinity(0, sizeof cpus, &cpus);
    char *memory = map(TOUCHED);
    touch(memory, TOUCHED);
    munmap(memory, TOUCHED * PAGE);
    pthread_barrier_wait(&slept);
    pthread_mutex_lock(&shut);
    pthread_mutex_unlock(&shut);
    return NULL;
}

int main(void)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    pthread_t threads[MOST];
    struct sysinfo info;
    if (cpus > MOST)
        return 2;
    pthread_barrier_init(&slept, NULL, cpus);
    pthread_mutex_lock(&shut);
    for (long cpu = 1; cpu < cpus; cpu++)
        check("a thread for a CPU", pthread_create(&threads[cpu], NULL, sleeper, (void *)cpu) == 0);
    pthread_barrier_wait(&slept);
    usleep(100000);
    sysinfo(&info);
    /* All but a sixteenth of the free memory. The kernel needs that to keep account. */
    size_t pages = info.freeram / PAGE / 16 * 15;
    char *memory = map(pages);
    touch(memory, pages);
    check("all free memory is there for one", memory[(pages - 1) * PAGE] == 1);
    munmap(memory, pages * PAGE);
    pthread_mutex_unlock(&shut);
    for (long cpu = 1; cpu < cpus; cpu++)
        pthread_join(threads[cpu], NULL);
    check("and back", failures == 0);
    return failures;
}

/* Threads that map, touch and unmap pages in functions with known names, for `radixvm why`. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { THREADS = 2, ROUNDS = 150, BYTES = 16384 };

static pthread_barrier_t start;

static __attribute__((noinline)) char *grow_arena(void) {
    char *arena = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (arena == MAP_FAILED)
        exit(1);
    return arena;
}

static __attribute__((noinline)) void touch_arena(char *arena) {
    arena[0] = 1;
}

static __attribute__((noinline)) void drop_arena(char *arena) {
    if (munmap(arena, BYTES) != 0)
        exit(1);
}

/* Threads on CPUs of their own work at the same time. */
static void *work(void *number) {
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET((size_t)number, &own);
    if (pthread_setaffinity_np(pthread_self(), sizeof(own), &own) != 0)
        exit(1);
    pthread_barrier_wait(&start);
    for (int round = 0; round < ROUNDS; round++) {
        char *arena = grow_arena();
        touch_arena(arena);
        drop_arena(arena);
    }
    return number;
}

int main(void) {
    pthread_t threads[THREADS];
    pthread_barrier_init(&start, NULL, THREADS);
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)i) != 0)
            return 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    puts("done");
    return 0;
}

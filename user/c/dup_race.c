/* Threads write to a descriptor onto which another one duplicates a new pipe again and again.
 *
 * dup_race ROUNDS: exits with 0 if the number was always open, each pipe ended, and no byte was lost. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "must.h"

enum { TARGET = 100, WRITERS = 3 };

static atomic_bool done;
static atomic_long written;

static void *writer(void *unused)
{
    (void)unused;
    while (!atomic_load(&done)) {
        ssize_t bytes = write(TARGET, "x", 1);
        if (bytes == 1)
            atomic_fetch_add(&written, 1);
        else
            must("the number is open", errno == EAGAIN);
    }
    return NULL;
}

/* Reads to the end, which comes when the last write that has begun is over. */
static long drain(int from)
{
    static char bytes[65536];
    long all = 0;
    for (;;) {
        ssize_t some = read(from, bytes, sizeof bytes);
        if (some == 0)
            break;
        if (some > 0)
            all += some;
        else
            must("nothing yet", errno == EAGAIN && sched_yield() == 0);
    }
    must("the end stays", read(from, bytes, 1) == 0 && close(from) == 0);
    return all;
}

int main(int argc, char **argv)
{
    long rounds = argc > 1 ? atol(argv[1]) : 1000, read = 0;
    pthread_t threads[WRITERS];
    int ends[2], last;
    must("pipe2", pipe2(ends, O_NONBLOCK) == 0 && dup2(ends[1], TARGET) == TARGET && close(ends[1]) == 0);
    last = ends[0];
    for (int i = 0; i < WRITERS; i++)
        must("pthread_create", pthread_create(&threads[i], NULL, writer, NULL) == 0);
    for (long round = 0; round < rounds; round++) {
        must("pipe2", pipe2(ends, O_NONBLOCK) == 0);
        must("dup2", dup2(ends[1], TARGET) == TARGET && close(ends[1]) == 0);
        read += drain(last);
        last = ends[0];
    }
    atomic_store(&done, 1);
    for (int i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
    must("close", close(TARGET) == 0);
    read += drain(last);
    must("each byte arrives", read == atomic_load(&written));
    printf("dup_race: done\n");
    return 0;
}

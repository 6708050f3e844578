/* A process forks while its threads close, replace and open descriptors.
 *
 * table_race ROUNDS: exits with 0 if each child found its descriptors as they were at one moment, and found
 * them so to its end. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "must.h"

enum { ONE = 40, OTHER = 41, REPLACED = 60, LOOKS = 300 };

static atomic_bool done;
static int files[2];

/* Moves a file between two numbers, of which one is open at each moment. */
static void *mover(void *unused)
{
    (void)unused;
    while (!atomic_load(&done)) {
        must("there", dup2(ONE, OTHER) == OTHER && close(ONE) == 0);
        must("and back", dup2(OTHER, ONE) == ONE && close(OTHER) == 0);
    }
    return NULL;
}

/* Replaces the file of a number that is always open. */
static void *replacer(void *unused)
{
    (void)unused;
    for (int turn = 0; !atomic_load(&done); turn ^= 1)
        must("replace", dup2(files[turn], REPLACED) == REPLACED);
    return NULL;
}

static int is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

/* The child has one thread, so its descriptors stay as they are. */
static int look(void)
{
    struct stat first, now;
    int one = is_open(ONE), other = is_open(OTHER);
    if (!one && !other)
        return 2;
    if (fstat(REPLACED, &first) != 0)
        return 3;
    for (int i = 0; i < LOOKS; i++) {
        if (is_open(ONE) != one || is_open(OTHER) != other)
            return 4;
        if (fstat(REPLACED, &now) != 0 || now.st_ino != first.st_ino)
            return 5;
    }
    return 0;
}

int main(int argc, char **argv)
{
    long rounds = argc > 1 ? atol(argv[1]) : 200;
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        files[i] = memfd_create("file", 0);
    must("files", files[0] >= 0 && files[1] >= 0);
    must("numbers", dup2(files[0], ONE) == ONE && dup2(files[1], REPLACED) == REPLACED);
    must("mover", pthread_create(&threads[0], NULL, mover, NULL) == 0);
    must("replacer", pthread_create(&threads[1], NULL, replacer, NULL) == 0);
    for (long round = 0; round < rounds; round++) {
        pid_t child = fork();
        int status;
        if (child == 0)
            _exit(look());
        must("fork", child > 0 && waitpid(child, &status, 0) == child);
        if (status != 0) {
            printf("child of round %ld: WRONG, status %#x\n", round, status);
            return 1;
        }
    }
    atomic_store(&done, 1);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    printf("table_race: done\n");
    return 0;
}

/* Locks of open files end at once with the last descriptor and mapping of the file. Processes take a lock,
 * share it with threads and children, duplicate, map and close the descriptor in random ways, and end. After
 * that nothing is locked. In some rounds another process waits for the lock from the beginning.
 *
 * lock_ends ROUNDS SEED: prints a line when all is over. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEPS = 14, CHILDREN = 3, NUMBERS = 4 };

static char name[40];
static uint64_t state;

static uint64_t below(uint64_t limit)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 24) % limit;
}

/* A descriptor that may be the locked file: the first one, and places that it is duplicated to. */
static int number(void)
{
    static const int all[NUMBERS] = {3, 40, 200, 900};
    return all[below(NUMBERS)];
}

static void *sleeper(void *unused)
{
    (void)unused;
    for (;;)
        pause();
    return NULL;
}

/* Locks and unlocks, while the other threads close. */
static void *locker(void *unused)
{
    (void)unused;
    for (int i = 0; i < 50; i++)
        flock(40, LOCK_EX | LOCK_NB);
    return NULL;
}

static int lock(int fd)
{
    struct flock range = {.l_type = F_WRLCK, .l_start = below(3), .l_len = 5};
    return below(2) ? flock(fd, LOCK_EX | LOCK_NB) : fcntl(fd, F_OFD_SETLK, &range);
}

/* Takes random steps, and returns when its children have ended. */
static void life(int depth)
{
    pthread_t thread;
    char *mapped = MAP_FAILED;
    int children = 0;
    for (int i = 0; i < STEPS; i++)
        switch (below(10)) {
        case 0:
            open(name, O_RDWR);
            break;
        case 1:
        case 2:
            lock(number());
            break;
        case 3:
            dup2(number(), number());
            break;
        case 4:
            close(number());
            break;
        case 5:
            pthread_create(&thread, NULL, below(2) ? sleeper : locker, NULL);
            break;
        case 6:
            if (mapped != MAP_FAILED)
                munmap(mapped, 4096);
            mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, number(), 0);
            if (mapped != MAP_FAILED && below(2))
                mapped[0]++;
            break;
        case 7:
            fcntl(number(), F_SETFD, below(2) ? FD_CLOEXEC : 0);
            break;
        default:
            if (depth < 2 && children < CHILDREN && ++children) {
                uint64_t seed = below(-1UL);
                if (fork() == 0) {
                    state = seed;
                    life(depth + 1);
                    if (below(4) == 0)
                        execl("/proc/self/exe", "lock_ends", (char *)NULL);
                    _exit(0);
                }
            }
        }
    while (wait(NULL) > 0 || errno == EINTR)
        ;
}

static int fail(const char *what, long round)
{
    printf("lock_ends: round %ld: %s: %s\n", round, what, strerror(errno));
    return 1;
}

/* Takes both kinds of locks, if nothing excludes them. */
static int check(long round)
{
    struct flock range = {.l_type = F_WRLCK};
    int file = open(name, O_RDWR);
    if (file < 0 || flock(file, LOCK_EX | LOCK_NB) < 0)
        return fail("flock", round);
    if (fcntl(file, F_OFD_SETLK, &range) < 0)
        return fail("F_OFD_SETLK", round);
    close(file);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 0;
    snprintf(name, sizeof name, "/tmp/lock_ends%d", (int)getpid());
    close(open(name, O_RDWR | O_CREAT, 0600));
    if (truncate(name, 4096) < 0)
        return fail("truncate", 0);
    for (long round = 0; round < atol(argv[1]); round++) {
        pid_t child = fork();
        if (child == 0) {
            state = strtoull(argv[2], NULL, 0) * 1000003 + round;
            below(2);
            open(name, O_RDWR);
            lock(3);
            life(0);
            _exit(0);
        }
        pid_t waiter = round % 4 ? 0 : fork();
        if (waiter == 0 && round % 4 == 0)
            _exit(flock(open(name, O_RDWR), LOCK_EX) < 0);
        int status = 0;
        if (waitpid(child, NULL, 0) != child || (waiter && waitpid(waiter, &status, 0) != waiter) || status)
            return fail("waitpid", round);
        if (check(round))
            return 1;
    }
    unlink(name);
    printf("lock_ends: done\n");
    return 0;
}

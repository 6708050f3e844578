/* Features that pthread programs rely on: create, join, detach, mutex, condition variable with timeout,
 * barrier, rwlock, thread-local storage, keys with destructors, cancellation-free exit, and many threads one
 * after another.
 *
 * pthreads [THREADS]: prints a line per part and exits with 0 if every part added up. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MOST = 64, ROUNDS = 1000 };
static int threads = 8;
static int failures;

static void check(const char *part, long found, long expected)
{
    printf("%s: %ld%s\n", part, found, found == expected ? "" : " WRONG");
    failures += found != expected;
}

static void run(void *(*body)(void *))
{
    pthread_t ids[MOST];
    for (intptr_t i = 0; i < threads; i++)
        if (pthread_create(&ids[i], NULL, body, (void *)i)) {
            perror("pthread_create");
            exit(1);
        }
    for (int i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
}

/* Mutex: increments are not lost. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long sum;

static void *add(void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&lock);
        sum++;
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

/* Condition variable: a token goes round, one turn per thread and lap. */
static pthread_cond_t turn_changed = PTHREAD_COND_INITIALIZER;
static long turn;

static void *pass(void *arg)
{
    intptr_t me = (intptr_t)arg;
    for (int lap = 0; lap < 20; lap++) {
        pthread_mutex_lock(&lock);
        while (turn % threads != me)
            pthread_cond_wait(&turn_changed, &lock);
        turn++;
        pthread_cond_broadcast(&turn_changed);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

/* Barrier: exactly one thread per round is the serial one, and no thread is ahead by a round. */
static pthread_barrier_t barrier;
static long serial, early;
static int rounds_of[MOST];

static void *meet(void *arg)
{
    intptr_t me = (intptr_t)arg;
    for (int round = 1; round <= 50; round++) {
        __atomic_store_n(&rounds_of[me], round, __ATOMIC_RELAXED);
        if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
            __atomic_fetch_add(&serial, 1, __ATOMIC_RELAXED);
        for (int i = 0; i < threads; i++)
            if (__atomic_load_n(&rounds_of[i], __ATOMIC_RELAXED) < round)
                __atomic_fetch_add(&early, 1, __ATOMIC_RELAXED);
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

/* Thread-local storage and keys: every thread has its own, and destructors run. */
static __thread long mine = 7;
static pthread_key_t key;
static long destroyed, own;

static void destroy(void *value)
{
    __atomic_fetch_add(&destroyed, (intptr_t)value, __ATOMIC_RELAXED);
}

static void *keep(void *arg)
{
    intptr_t me = (intptr_t)arg;
    mine += me;
    pthread_setspecific(key, (void *)(me + 1));
    pthread_barrier_wait(&barrier);
    __atomic_fetch_add(&own, mine == 7 + me, __ATOMIC_RELAXED);
    return NULL;
}

/* Read-write lock: readers see both halves of a write. */
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static long left, right, torn;

static void *read_and_write(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        if (i % 8 == (intptr_t)arg % 8) {
            pthread_rwlock_wrlock(&rwlock);
            left++, right++;
        } else {
            pthread_rwlock_rdlock(&rwlock);
            if (left != right)
                __atomic_fetch_add(&torn, 1, __ATOMIC_RELAXED);
        }
        pthread_rwlock_unlock(&rwlock);
    }
    return NULL;
}

static long wait_in_vain(void)
{
    struct timespec soon;
    clock_gettime(CLOCK_REALTIME, &soon);
    soon.tv_nsec += 20 * 1000 * 1000;
    soon.tv_sec += soon.tv_nsec / 1000000000;
    soon.tv_nsec %= 1000000000;
    pthread_mutex_lock(&lock);
    int result;
    do
        result = pthread_cond_timedwait(&turn_changed, &lock, &soon);
    while (result == 0);
    pthread_mutex_unlock(&lock);
    return result;
}

/* Many short lives: stacks and thread ids are reused. Returns its argument plus one. */
static void *live_shortly(void *arg)
{
    return (void *)((intptr_t)arg + 1);
}

static long many_lives(void)
{
    long total = 0;
    for (intptr_t i = 0; i < 200; i++) {
        pthread_t id;
        void *result = NULL;
        if (pthread_create(&id, NULL, live_shortly, (void *)i) == 0)
            pthread_join(id, &result);
        total += (intptr_t)result;
    }
    return total;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        threads = atoi(argv[1]);
    if (threads < 1 || threads > MOST) {
        fprintf(stderr, "usage: pthreads [THREADS], from 1 to %d\n", MOST);
        return 2;
    }
    pthread_barrier_init(&barrier, NULL, threads);
    pthread_key_create(&key, destroy);
    run(add), check("mutex", sum, (long)threads * ROUNDS);
    run(pass), check("condition", turn, (long)threads * 20);
    run(meet), check("barrier", serial, 50), check("nobody early", early, 0);
    run(keep), check("thread-local", own, threads);
    check("destructors", destroyed, (long)threads * (threads + 1) / 2);
    run(read_and_write), check("read-write lock", left, (long)threads * ROUNDS / 8), check("torn reads", torn, 0);
    check("timed wait", wait_in_vain(), ETIMEDOUT);
    check("many lives", many_lives(), 200L * 201 / 2);
    printf("pthreads: %s\n", failures ? "FAILED" : "done");
    return failures != 0;
}

/* Costs of threads themselves: prints how often a second something was done.
 *
 * threads create|at-once|turns --size N: makes and joins N threads one after the other, or 50 at a time; or
 * two threads hand a turn on N times, by a mutex and a condition variable. */
#include "workload.h"
#include <time.h>

enum { AT_ONCE = 50 };

static void *end(void *with)
{
    return with;
}

static pthread_t make(void *(*run)(void *), void *with)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, with))
        die("pthread_create");
    return thread;
}

static void create(int at_once)
{
    pthread_t made[AT_ONCE];
    for (long done = 0; done < size; done += at_once) {
        for (int i = 0; i < at_once; i++)
            made[i] = make(end, NULL);
        for (int i = 0; i < at_once; i++)
            pthread_join(made[i], NULL);
    }
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long turn;

static void *take_turns(void *parity)
{
    pthread_mutex_lock(&lock);
    while (turn < size) {
        if (turn % 2 == (intptr_t)parity) {
            turn++;
            pthread_cond_signal(&changed);
        } else {
            pthread_cond_wait(&changed, &lock);
        }
    }
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void hand_turns_on(void)
{
    pthread_t other = make(take_turns, (void *)1);
    take_turns((void *)0);
    pthread_join(other, NULL);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int count, char **words)
{
    if (count < 2) {
        fprintf(stderr, "usage: threads create|at-once|turns [--size N]\n");
        return 2;
    }
    read_arguments(words + 1, 2000, 0);
    double start = now();
    if (!strcmp(words[1], "turns"))
        hand_turns_on();
    else
        create(strcmp(words[1], "create") ? AT_ONCE : 1);
    printf("%f\n", size / (now() - start));
    return 0;
}

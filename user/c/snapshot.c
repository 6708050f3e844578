/* Forks beside threads, with enough memory that it takes a while. Every child has the contents of one moment.
 *
 * snapshot FORKS: each writer writes the number of its turn to one word after the other, far apart and from
 * the left. So at any moment the words are of one turn up to some place, and of the turn before from there
 * on. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "page_counts.h"

#define SIZE (24L << 20)
#define WORDS 48L
#define WRITERS 4
/* The last two writers: threads that come and go, and a process of its own in the same memory. */
#define BRIEF 2L
#define APART 3L

static char *area;
static volatile int over;

/* Returns the address of word `at` of a writer. */
static volatile long *word(long writer, long at)
{
    return (volatile long *)(area + at * (SIZE / WORDS) + writer * sizeof(long));
}

static void write_turn(long writer)
{
    long turn = *word(writer, 0) + 1;
    for (long at = 0; at < WORDS; at++)
        *word(writer, at) = turn;
}

static int write_turns(void *writer)
{
    while (!over)
        write_turn((long)writer);
    return 0;
}

static void *write_as_thread(void *writer)
{
    write_turns(writer);
    return NULL;
}

static void *write_briefly(void *unused)
{
    for (int i = 0; i < 4; i++)
        write_turn(BRIEF);
    return unused;
}

/* Makes threads and mappings that come and go. */
static void *disturb(void *unused)
{
    while (!over) {
        pthread_t other;
        if (pthread_create(&other, NULL, write_briefly, NULL) == 0)
            pthread_join(other, NULL);
        char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        *page = 1;
        munmap(page, PAGE);
    }
    return unused;
}

static void *sleep_on(void *unused)
{
    while (!over)
        usleep(1000);
    return unused;
}

static void ignore(int unused) { (void)unused; }

/* Returns whether the words of a writer are those of one moment. */
static int is_one_moment(long writer)
{
    long turn = *word(writer, 0), falls = 0;
    for (long at = 1; at < WORDS; at++) {
        long next = *word(writer, at);
        if (next != turn && (next != turn - 1 || ++falls > 1))
            return 0;
        turn = next;
    }
    return 1;
}

/* Returns whether a new child has the words of one moment, and keeps them a little later. */
static int child_is_right(void)
{
    pid_t child = fork();
    if (child == 0) {
        long turn = *word(0, 0);
        for (long writer = 0; writer < WRITERS; writer++)
            if (!is_one_moment(writer))
                _exit(1);
        for (int i = 0; i < 20; i++)
            sched_yield();
        _exit(*word(0, 0) != turn);
    }
    int status = -1;
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

/* Returns once every writer has gone on. */
static int all_go_on(void)
{
    for (long writer = 0; writer < WRITERS; writer++) {
        long turn = *word(writer, 0);
        while (*word(writer, 0) == turn)
            sched_yield();
    }
    return 1;
}

int main(int count, char **words)
{
    long forks = count > 1 ? atol(words[1]) : 10, right = 0;
    pthread_t threads[WRITERS + 1];
    area = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(area, SIZE, MADV_NOHUGEPAGE);
    for (long byte = 0; byte < SIZE; byte += PAGE)
        area[byte] = 0;
    signal(SIGUSR1, ignore);
    char *stack = malloc(1 << 16);
    pid_t other = clone(write_turns, stack + (1 << 16), CLONE_VM | SIGCHLD, (void *)APART);
    for (long writer = 0; writer < BRIEF; writer++)
        pthread_create(&threads[writer], NULL, write_as_thread, (void *)writer);
    pthread_create(&threads[BRIEF], NULL, disturb, NULL);
    pthread_create(&threads[APART], NULL, sleep_on, NULL);
    for (long turn = 0; turn < forks; turn++) {
        pthread_kill(threads[turn % BRIEF], SIGUSR1);
        right += child_is_right();
    }
    check("every child has what was there at one moment", right == forks);
    check("the writers go on", all_go_on());
    /* A fork that is killed halfway leaves no thread frozen. */
    pid_t forker = fork();
    if (forker == 0) {
        pthread_create(&threads[WRITERS], NULL, write_as_thread, (void *)0L);
        for (;;)
            if (fork() == 0)
                _exit(0);
    }
    usleep(20000);
    kill(forker, SIGKILL);
    check("a process that forks is killed", waitpid(forker, NULL, 0) == forker);
    over = 1;
    for (int i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
    check("the other process ends", waitpid(other, NULL, 0) == other);
    /* The children of the process that was killed. */
    while (waitpid(-1, NULL, 0) > 0)
        ;
    compare_all();
    return failures;
}

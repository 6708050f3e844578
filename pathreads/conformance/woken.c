// A thread sleeps at a word, and its memory goes. It is woken by the address before it sleeps again: `held` holds
// it back there, after any instruction.
#include "rule.h"

#include <linux/futex.h>

enum { TRACER = 3 };

static int *word;
static sem_t go, done;
static volatile pid_t sleeper;
static long result;

static void *sleep_again_and_again(void *unused) {
    sleeper = gettid();
    sem_post(&done);
    for (;;) {
        sem_wait(&go);
        if (!word) return unused;
        result = syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 5, NULL) == 0 ? 0 : errno;
        sem_post(&done);
    }
}

// Returns whether the thread was held where it sleeps again.
static char wake_without_memory(unsigned round) {
    unsigned char *pages = map_pages(5);
    word = (int *)(pages + 8);
    *word = 5;
    sem_post(&go);
    until_asleep(sleeper);
    char is_over;
    NEED(write(TRACER, "", 1) == 1 && munmap(pages, 5 * page) == 0);
    NEED(read(TRACER, &is_over, 1) == 1);
    NEED(syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1) >= 0);
    if (round % 2) NEED(mmap(pages, 5 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == pages);
    if (round % 2) *word = 5;
    NEED(write(TRACER, "", 1) == 1 && read(TRACER, &is_over, 1) == 1);
    sem_wait(&done);
    if (result != 0) SAY("round %u: error %ld\n", round, result);
    return is_over;
}

int main(void) {
    NEED(sem_init(&go, 0, 0) == 0 && sem_init(&done, 0, 0) == 0);
    pthread_t thread = start(sleep_again_and_again, NULL);
    sem_wait(&done);
    char unused;
    NEED(write(TRACER, (const void *)&sleeper, sizeof sleeper) == sizeof sleeper && read(TRACER, &unused, 1) == 1);
    unsigned round = 0;
    while (!wake_without_memory(round)) round++;
    word = NULL;
    sem_post(&go);
    finish(thread);
    SAY("woken everywhere\n");
    return 0;
}

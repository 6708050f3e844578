// Maps and unmaps plain memory beside another thread, while one signal comes, and a second one after any
// instruction of the first one's handler in the runtime (`step`): `nested FIRST_SIGNAL FLAGS`.
#include "marks.h"
#include "rule.h"

static int come[65];

static void handle(int signal) {
    come[signal]++;
}

static void *sleep_on(void *unused) {
    for (;;) pause();
    return unused;
}

static void use_plain(void) {
    unsigned char *at = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    NEED(at != MAP_FAILED && *at == 0);
    *at = 1;
    NEED(munmap(at, page) == 0);
}

// Returns the signals that are blocked, and has none blocked.
static uint64_t take_mask(void) {
    uint64_t mask = 0;
    sigset_t all, none;
    sigemptyset(&none);
    NEED(sigprocmask(SIG_SETMASK, &none, &all) == 0);
    for (int signal = 1; signal < 65; signal++) mask |= (uint64_t)(sigismember(&all, signal) == 1) << (signal - 1);
    return mask;
}

int main(int count, char **words) {
    NEED(count == 3);
    int first = atoi(words[1]);
    struct sigaction action = {.sa_handler = handle, .sa_flags = atoi(words[2])};
    sigaddset(&action.sa_mask, SIGTERM);
    NEED(sigaction(first, &action, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
    start(sleep_on, NULL);
    for (int i = 0; i < 1000; i++) getppid();
    long wrong = 0, rounds = 0;
    for (long is_over = 0; !is_over; rounds++) {
        for (int i = 0; i < 3; i++) use_plain();
        memset(come, 0, sizeof come);
        begin_part();
        use_plain();
        is_over = end_part();
        uint64_t mask = take_mask();
        // The second one does not come in the last round. Two of one number may be one.
        int expected = !is_over && first != SIGUSR1, is_wrong = come[first] < 1 || come[first] > 2 - expected;
        is_wrong |= first != SIGUSR1 && come[SIGUSR1] != expected;
        if (is_wrong || mask) {
            SAY("round %ld: %d and %d came, %#lx is blocked\n", rounds, come[first], come[SIGUSR1], (unsigned long)mask);
            wrong++;
        }
    }
    SAY("%ld of %ld rounds are wrong\n", wrong, rounds);
    return 0;
}

// Maps, touches and unmaps memory between the marks, beside another thread, with a handler for a signal:
// `round SIGNAL`, 0 for none.
#include "marks.h"
#include "rule.h"

static void handle(int signal) {
    (void)signal;
}

static void *sleep_on(void *unused) {
    for (;;) pause();
    return unused;
}

static void make_round(void) {
    unsigned char *at = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    NEED(at != MAP_FAILED);
    *at = 1;
    NEED(munmap(at, page) == 0);
}

int main(int count, char **words) {
    NEED(count == 2);
    struct sigaction action = {.sa_handler = handle};
    int signal = atoi(words[1]);
    NEED(signal == 0 || sigaction(signal, &action, NULL) == 0);
    start(sleep_on, NULL);
    // For a runtime that rewrites code after some calls.
    for (int i = 0; i < 1000; i++) getppid();
    for (int i = 0; i < 10; i++) make_round();
    begin_part();
    make_round();
    end_part();
    return 0;
}

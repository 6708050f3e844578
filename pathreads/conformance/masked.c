// Blocks a signal in the first thread, interrupted after any instruction by a handler of another signal
// (`step`). From then on the signal is the other thread's, which waits for it.
#include "marks.h"
#include "rule.h"

static sem_t taken;

static void *take_all(void *unused) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    NEED(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    NEED(sem_post(&taken) == 0);
    for (int signal;;) {
        NEED(sigwait(&set, &signal) == 0 && signal == SIGUSR2);
        NEED(sem_post(&taken) == 0);
    }
    return unused;
}

static void wait_for_thread(void) {
    while (sem_wait(&taken) != 0) NEED(errno == EINTR);
}

static void do_nothing(int signal) {
    (void)signal;
}

int main(void) {
    struct sigaction action = {.sa_handler = do_nothing, .sa_flags = SA_RESTART};
    NEED(sigaction(SIGUSR1, &action, NULL) == 0 && sem_init(&taken, 0, 0) == 0);
    for (int i = 0; i < 1000; i++) getppid();
    start(take_all, NULL);
    wait_for_thread();
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    for (long is_over = 0; !is_over;) {
        begin_part();
        int failed = pthread_sigmask(SIG_BLOCK, &set, NULL);
        is_over = end_part();
        NEED(failed == 0 && kill(getpid(), SIGUSR2) == 0);
        wait_for_thread();
        NEED(pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0);
    }
    SAY("the part has been interrupted everywhere\n");
    exit(0);
}

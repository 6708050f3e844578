/* Actions that are reset when a signal is delivered (SA_RESETHAND). */
#define _GNU_SOURCE
#include <signal.h>
#include <unistd.h>

#include "check.h"

static volatile sig_atomic_t caught;

static void catch(int signal)
{
    (void)signal;
    caught++;
}

static void handle(int signal, int flags)
{
    struct sigaction action = { .sa_handler = catch, .sa_flags = flags };
    sigaddset(&action.sa_mask, SIGUSR2);
    sigaction(signal, &action, NULL);
}

int main(void)
{
    const int flags = SA_RESETHAND | SA_RESTART;
    struct sigaction after;
    sigset_t set;
    handle(SIGURG, flags);
    raise(SIGURG);
    sigaction(SIGURG, NULL, &after);
    check("the handler is reset", caught == 1 && after.sa_handler == SIG_DFL);
    check("its flags and mask stay", (after.sa_flags & flags) == flags && sigismember(&after.sa_mask, SIGUSR2));
    /* One waits for the process, and one for the thread. */
    sigemptyset(&set), sigaddset(&set, SIGURG);
    sigprocmask(SIG_BLOCK, &set, NULL);
    handle(SIGURG, SA_RESETHAND | SA_NODEFER);
    kill(getpid(), SIGURG), raise(SIGURG);
    caught = 0;
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    check("one of two is handled", caught == 1);
    return failures;
}

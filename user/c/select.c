/* select and pselect6: sets, counts, time that is left, signals, errors. Prints what every Linux prints. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tell.h"

static int both[2], more[2];

static void on_signal(int signal) {
    (void)signal;
    if (write(more[1], "s", 1) != 1)
        _exit(1);
}

int main(void) {
    if (pipe(both) < 0 || pipe(more) < 0)
        return 1;
    struct timeval none = {0, 0};
    fd_set read_set, write_set, other;
    FD_ZERO(&read_set); FD_ZERO(&write_set); FD_ZERO(&other);
    FD_SET(both[0], &read_set), FD_SET(more[0], &read_set), FD_SET(both[1], &write_set);
    FD_SET(both[0], &other);
    tell("writable", select(32, &read_set, &write_set, &other, &none));
    printf("sets %d %d %d %d\n", !!FD_ISSET(both[0], &read_set), !!FD_ISSET(more[0], &read_set),
           !!FD_ISSET(both[1], &write_set), !!FD_ISSET(both[0], &other));

    if (write(both[1], "x", 1) != 1)
        return 1;
    FD_ZERO(&read_set); FD_ZERO(&write_set);
    FD_SET(both[0], &read_set), FD_SET(more[0], &read_set), FD_SET(both[1], &write_set);
    tell("both", select(32, &read_set, &write_set, NULL, NULL));
    printf("sets %d %d %d\n", !!FD_ISSET(both[0], &read_set), !!FD_ISSET(more[0], &read_set),
           !!FD_ISSET(both[1], &write_set));

    /* The set ends before the descriptor. */
    FD_ZERO(&read_set); FD_SET(both[0], &read_set);
    tell("below the descriptor", select(both[0], &read_set, NULL, NULL, &none));
    printf("left in the set: %d\n", !!FD_ISSET(both[0], &read_set));

    FD_ZERO(&read_set); FD_SET(more[0], &read_set);
    struct timeval some = {0, 20000};
    tell("time passes", syscall(SYS_select, 32, &read_set, NULL, NULL, &some));
    printf("left %ld %ld, set %d\n", (long)some.tv_sec, (long)some.tv_usec, !!FD_ISSET(more[0], &read_set));
    some.tv_sec = 3600;
    FD_SET(both[0], &read_set);
    tell("ready at once", syscall(SYS_select, 32, &read_set, NULL, NULL, &some));
    printf("some is left: %d\n", some.tv_sec > 3000 && some.tv_sec <= 3600);

    FD_ZERO(&read_set); FD_SET(30, &read_set);
    tell("not open", select(32, &read_set, NULL, NULL, &none));
    tell("a count below zero", select(-1, NULL, NULL, NULL, &none));
    some = (struct timeval){-1, 0};
    tell("a time below zero", syscall(SYS_select, 0, NULL, NULL, NULL, &some));
    tell("an address that is none", syscall(SYS_select, 64, 8, NULL, NULL, &none));

    /* A signal that is blocked except while it waits. */
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, NULL);
    sigset_t blocked, open_mask;
    sigemptyset(&open_mask);
    sigemptyset(&blocked), sigaddset(&blocked, SIGUSR1);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    kill(getpid(), SIGUSR1);
    FD_ZERO(&read_set); FD_SET(more[0], &read_set);
    struct timespec hour = {3600, 0};
    tell("a signal", pselect(32, &read_set, NULL, NULL, &hour, &open_mask));
    FD_ZERO(&read_set); FD_SET(more[0], &read_set);
    tell("what its handler wrote", pselect(32, &read_set, NULL, NULL, &hour, NULL));
    sigprocmask(SIG_SETMASK, NULL, &open_mask);
    printf("still blocked: %d\n", sigismember(&open_mask, SIGUSR1));

    /* Another process makes it ready, and its end of a pipe closes. */
    pid_t child = fork();
    if (child == 0) {
        close(both[0]), close(both[1]), close(more[0]);
        _exit(write(more[1], "c", 1) == 1 ? 0 : 1);
    }
    close(more[1]);
    char bytes[2];
    long got = 0;
    do {
        FD_ZERO(&read_set); FD_SET(more[0], &read_set);
        if (select(32, &read_set, NULL, NULL, NULL) != 1)
            return 1;
        long now = read(more[0], bytes, 1);
        got += now;
        if (now == 0)
            break;
    } while (1);
    waitpid(child, NULL, 0);
    printf("bytes before the end: %ld\n", got);
    tell("same users", setresuid(-1, geteuid(), -1) | setresgid(-1, getegid(), -1));
    tell("attributes of what is not there", syscall(SYS_listxattr, "/no/such", NULL, 0));
    tell("attributes of what is not open", syscall(SYS_fgetxattr, 99, "user.x", NULL, 0));
    return 0;
}

/* RLIMIT_NOFILE, and the names of files without a path in /proc/self/fd. Prints what every Linux prints. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tell.h"

/* Prints where a name in /proc/self/fd leads, without its number, and whether that is the inode's. */
static void name(int fd)
{
    char path[64], target[128];
    struct stat status;
    unsigned long number = 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (fd < 0 || length < 0 || fstat(fd, &status) < 0) {
        tell("a name", -1);
        return;
    }
    target[length] = 0;
    char *digits = strpbrk(target, "0123456789");
    if (digits && sscanf(digits, "%lu", &number) == 1)
        *digits = 0;
    printf("%s %d\n", target, number == status.st_ino);
    close(fd);
}

static void limit(void)
{
    struct rlimit old, few = {10, 10};
    struct pollfd pollers[11];
    int pipes[2], last = -1, fd;
    getrlimit(RLIMIT_NOFILE, &old);
    few.rlim_max = old.rlim_max;
    int high = fcntl(0, F_DUPFD, 20);
    tell("setrlimit", setrlimit(RLIMIT_NOFILE, &few));
    while ((fd = dup(0)) >= 0)
        last = fd;
    tell("dup", fd);
    tell("the last", last);
    tell("open", open("/dev/null", O_RDONLY));
    tell("pipe", pipe(pipes));
    tell("dup2", dup2(0, 10));
    tell("F_DUPFD", fcntl(0, F_DUPFD, 10));
    tell("F_DUPFD, none left", fcntl(0, F_DUPFD, 9));
    tell("an old one", fcntl(high, F_GETFD));
    memset(pollers, -1, sizeof pollers);
    tell("poll", poll(pollers, 11, 0));
    close(last);
    tell("open", open("/dev/null", O_RDONLY) == last);
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(dup(0) < 0 && errno == EMFILE);
    waitpid(child, &status, 0);
    tell("a child has the limit", WEXITSTATUS(status));
    tell("setrlimit", setrlimit(RLIMIT_NOFILE, &old));
    tell("dup", dup(0) == 10);
}

int main(void)
{
    int pipes[2], pair[2];
    sigset_t none;
    sigemptyset(&none);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (pipe(pipes) < 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
        return 1;
    name(pipes[0]), name(pipes[1]), name(pair[0]), name(pair[1]);
    name(socket(AF_INET, SOCK_DGRAM, 0));
    name(eventfd(0, 0)), name(epoll_create1(0)), name(inotify_init()), name(signalfd(-1, &none, 0));
    name(timerfd_create(CLOCK_MONOTONIC, 0));
    for (int fd = 3; fd < 64; fd++)
        close(fd);
    limit();
    return 0;
}

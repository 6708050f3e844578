/* Pseudo-terminals: names, locks, lines, echo, raw bytes, sizes, sessions, signals, the end of each side.
 * Prints what every Linux prints. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "tell.h"

#ifndef TIOCGPTLCK
#define TIOCGPTLCK 0x80045439
#endif
#ifndef TIOCGPTPEER
#define TIOCGPTPEER 0x5441
#endif

static char path[64];

/* Reads and prints bytes as far as they are there, at least `least`. */
static void show(const char *what, int fd, size_t least)
{
    char bytes[512];
    size_t got = 0;
    while (got < least) {
        ssize_t more = read(fd, bytes + got, sizeof bytes - got);
        if (more <= 0) {
            tell(what, more);
            break;
        }
        got += more;
    }
    printf("%s: ", what);
    for (size_t at = 0; at < got; at++)
        if (bytes[at] < ' ' || bytes[at] > '~')
            printf("\\%03o", bytes[at] & 0xff);
        else
            putchar(bytes[at]);
    printf("\n");
    fflush(stdout);
}

static void put(int fd, const char *text)
{
    if (write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        tell("write", -1);
}

static int master(void)
{
    int fd = posix_openpt(O_RDWR | O_NOCTTY);
    if (fd < 0 || grantpt(fd) < 0 || ptsname_r(fd, path, sizeof path) != 0) {
        tell("a master", -1);
        exit(1);
    }
    return fd;
}

static int terminal(void)
{
    int fd = open(path, O_RDWR | O_NOCTTY);
    if (fd < 0)
        tell("a terminal", fd);
    return fd;
}

static void names(void)
{
    int fd = master(), locked = -1, number = -1;
    struct stat of_fd, of_path;
    tell("locked", open(path, O_RDWR | O_NOCTTY));
    tell("TIOCGPTLCK", ioctl(fd, TIOCGPTLCK, &locked));
    tell("is locked", locked);
    tell("unlockpt", unlockpt(fd));
    tell("TIOCGPTLCK", ioctl(fd, TIOCGPTLCK, &locked));
    tell("is locked", locked);
    tell("TIOCGPTN", ioctl(fd, TIOCGPTN, &number));
    char name[64];
    snprintf(name, sizeof name, "/dev/pts/%d", number);
    tell("the name has the number", strcmp(name, path) == 0);
    int slave = terminal();
    tell("fstat", fstat(slave, &of_fd));
    tell("stat", stat(path, &of_path));
    printf("%d %d %d %d %o\n", major(of_fd.st_rdev), (int)minor(of_fd.st_rdev) == number,
           of_fd.st_ino == of_path.st_ino && of_fd.st_dev == of_path.st_dev, of_fd.st_rdev == of_path.st_rdev,
           of_path.st_mode & S_IFMT);
    tell("isatty", isatty(slave) && isatty(fd));
    tell("ttyname", ttyname(slave) && strcmp(ttyname(slave), path) == 0);
    tell("fstat", fstat(fd, &of_fd));
    printf("%d %d\n", major(of_fd.st_rdev), minor(of_fd.st_rdev));
    int peer = ioctl(fd, TIOCGPTPEER, O_RDWR | O_NOCTTY);
    tell("TIOCGPTPEER", peer >= 0 && ttyname(peer) && strcmp(ttyname(peer), path) == 0);
    tell("of the terminal", ioctl(slave, TIOCGPTN, &number));
    tell("of no terminal", ioctl(0, TIOCSPTLCK, &number) < 0);
    tell("seek", lseek(slave, 0, SEEK_SET));
    close(peer), close(slave), close(fd);
    tell("the name is gone", open(path, O_RDWR | O_NOCTTY));
    int all[8];
    char first[64];
    for (int index = 0; index < 8; index++) {
        all[index] = master();
        if (index == 0)
            strcpy(first, path);
        else if (strcmp(first, path) == 0)
            printf("the same name twice\n");
    }
    for (int index = 0; index < 8; index++)
        close(all[index]);
}

static void lines(void)
{
    int fd = master(), waiting;
    struct termios attributes, raw;
    unlockpt(fd);
    int slave = terminal();
    put(slave, "hello\n");
    show("output", fd, 7);
    put(fd, "abc\177d\n");
    show("echo", fd, 9);
    tell("FIONREAD", ioctl(slave, FIONREAD, &waiting));
    tell("waiting", waiting);
    show("a line", slave, 4);
    put(fd, "no end");
    struct pollfd poller = {slave, POLLIN | POLLOUT, 0};
    tell("poll", poll(&poller, 1, 0));
    printf("%x\n", poller.revents);
    put(fd, "\004");
    show("an end without a line", slave, 6);
    put(fd, "\004");
    show("the end", slave, 1);
    show("echo", fd, 6);
    tell("tcgetattr", tcgetattr(slave, &attributes));
    printf("%o %o %o\n", attributes.c_iflag, attributes.c_oflag, attributes.c_lflag);
    raw = attributes;
    cfmakeraw(&raw);
    tell("tcsetattr by the master", tcsetattr(fd, TCSANOW, &raw));
    put(fd, "\003x\r");
    show("raw", slave, 3);
    put(slave, "a\nb");
    show("raw output", fd, 3);
    tell("tcsetattr", tcsetattr(slave, TCSAFLUSH, &attributes));
    tell("packets", ioctl(slave, TIOCPKT, &waiting) < 0);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    tell("nothing", read(fd, &waiting, 1));
    close(slave), close(fd);
}

/* As much as there is room for, and then all of it. */
static void full(void)
{
    char bytes[1000];
    long put_in = 0, taken = 0, more;
    int fd = master();
    struct termios raw;
    unlockpt(fd);
    int slave = terminal();
    tcgetattr(slave, &raw);
    cfmakeraw(&raw);
    tcsetattr(slave, TCSANOW, &raw);
    memset(bytes, 'x', sizeof bytes);
    for (int side = 0; side < 2; side++) {
        int from = side ? fd : slave, to = side ? slave : fd;
        fcntl(from, F_SETFL, O_NONBLOCK), fcntl(to, F_SETFL, O_NONBLOCK);
        struct pollfd poller = {from, POLLOUT, 0};
        while ((more = write(from, bytes, sizeof bytes)) > 0)
            put_in += more;
        tell("full", more);
        printf("much: %d\n", put_in > 2000);
        /* Linux moves some of it later. */
        struct pollfd reader = {to, POLLIN, 0};
        do
            while ((more = read(to, bytes, sizeof bytes)) > 0)
                taken += more;
        while (taken < put_in && poll(&reader, 1, 60000) == 1);
        tell("empty", more);
        tell("poll", poll(&poller, 1, 0));
        printf("all: %d\n", put_in == taken);
    }
    close(slave), close(fd);
}

static void ends(void)
{
    char byte;
    int fd = master();
    struct termios attributes;
    struct pollfd poller = {fd, POLLIN | POLLOUT, 0};
    unlockpt(fd);
    tell("poll, never open", poll(&poller, 1, 0));
    printf("%x\n", poller.revents);
    int slave = terminal();
    put(slave, "last");
    close(slave);
    tell("poll, closed", poll(&poller, 1, 0));
    printf("%x\n", poller.revents);
    show("what is left", fd, 4);
    tell("closed", read(fd, &byte, 1));
    slave = terminal();
    put(slave, "more");
    show("open again", fd, 4);
    put(fd, "unread\n");
    close(fd);
    poller.fd = slave;
    tell("poll, hung up", poll(&poller, 1, 0));
    printf("%x\n", poller.revents);
    tell("read", read(slave, &byte, 1));
    tell("write", write(slave, "x", 1));
    tell("tcgetattr", tcgetattr(slave, &attributes));
    close(slave);
}

static volatile sig_atomic_t resized, hung_up;

static void on_signal(int signal)
{
    if (signal == SIGWINCH)
        resized = 1;
    else
        hung_up = 1;
}

/* The leader of a session on the terminal, which says what it finds by a pipe. */
static void lead(int to)
{
    FILE *out = fdopen(to, "w");
    struct winsize size;
    char byte;
    signal(SIGWINCH, on_signal);
    setsid();
    fprintf(out, "no terminal: %d\n", open("/dev/tty", O_RDWR));
    int slave = open(path, O_RDWR);
    int again = open("/dev/tty", O_RDWR);
    fprintf(out, "group: %d, session: %d, %d\n", tcgetpgrp(slave) == getpid(), tcgetsid(slave) == getpid(),
            again >= 0);
    fprintf(out, "TIOCSCTTY: %d\n", ioctl(slave, TIOCSCTTY, 0));
    write(again, "ready", 5);
    while (!resized)
        if (read(slave, &byte, 1) > 0)
            break;
    ioctl(slave, TIOCGWINSZ, &size);
    fprintf(out, "size: %d %d\n", size.ws_row, size.ws_col);
    fflush(out);
    write(slave, "go", 2);
    for (;;)
        pause();
}

static void sessions(void)
{
    int fd = master(), pipes[2], status;
    struct winsize size = {11, 22, 0, 0};
    char bytes[512];
    unlockpt(fd);
    if (pipe(pipes) < 0)
        return;
    pid_t child = fork();
    if (child == 0) {
        close(fd);
        lead(pipes[1]);
    }
    close(pipes[1]);
    show("the child", fd, 5);
    pid_t group = 0;
    tell("TIOCGPGRP of the master", ioctl(fd, TIOCGPGRP, &group));
    printf("%d\n", group == child);
    tell("TIOCSWINSZ", ioctl(fd, TIOCSWINSZ, &size));
    tell("TIOCSIG of another signal", ioctl(fd, TIOCSIG, SIGUSR1));
    tell("TIOCSIG of none", ioctl(fd, TIOCSIG, 0));
    /* If the signal came before the read. */
    put(fd, "\n");
    for (char seen[2] = {0, 0}; !(seen[0] == 'g' && seen[1] == 'o');) {
        seen[0] = seen[1];
        if (read(fd, &seen[1], 1) != 1)
            break;
    }
    put(fd, "\003");
    waitpid(child, &status, 0);
    printf("ended by signal %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    ssize_t got = read(pipes[0], bytes, sizeof bytes);
    printf("%.*s", (int)(got > 0 ? got : 0), bytes);
    close(pipes[0]), close(fd);
}

/* The master is closed, and the leader gets SIGHUP. Its own end tells the group in the foreground. */
static void hang_up(void)
{
    int fd = master(), pipes[2], status;
    char byte = 0;
    unlockpt(fd);
    if (pipe(pipes) < 0)
        return;
    pid_t child = fork();
    if (child == 0) {
        sigset_t blocked, none;
        sigemptyset(&none), sigemptyset(&blocked), sigaddset(&blocked, SIGHUP);
        close(fd);
        signal(SIGHUP, on_signal);
        sigprocmask(SIG_BLOCK, &blocked, NULL);
        setsid();
        int slave = open(path, O_RDWR);
        write(slave, "r", 1);
        /* It waits, and ends with or without an error. */
        ssize_t got = read(slave, &byte, 1);
        while (!hung_up)
            sigsuspend(&none);
        _exit(got <= 0 ? 5 : 6);
    }
    show("the child", fd, 1);
    close(fd);
    waitpid(child, &status, 0);
    printf("hung up: %d\n", WEXITSTATUS(status));

    fd = master();
    unlockpt(fd);
    child = fork();
    if (child == 0) {
        close(fd);
        setsid();
        int slave = open(path, O_RDWR);
        if (fork() == 0) {
            signal(SIGTTOU, SIG_IGN);
            setpgid(0, 0);
            tcsetpgrp(slave, getpid());
            write(pipes[1], "f", 1);
            for (;;)
                pause();
        }
        close(pipes[1]);
        read(pipes[0], &byte, 1);
        _exit(byte);
    }
    close(pipes[1]);
    waitpid(child, &status, 0);
    printf("the leader: %d\n", WEXITSTATUS(status) == 'f');
    /* The end of the pipe says that the foreground is gone. */
    tell("the foreground", read(pipes[0], &byte, 1));
    close(pipes[0]), close(fd);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    names();
    lines();
    full();
    ends();
    sessions();
    hang_up();
    return 0;
}

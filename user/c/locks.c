/* Locks of files: POSIX's, those of open files, flock's. Processes exclude each other, wait, and leave their
 * locks. Prints what every Linux prints. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tell.h"

static int file;
static const char *path = "/tmp/locks-test";

static int set(int fd, int command, short type, long start, long len) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len};
    return fcntl(fd, command, &lock);
}

static void show(const char *what, int fd, int command, short type, long start, long len) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len};
    int result = fcntl(fd, command, &lock);
    if (result < 0)
        tell(what, result);
    else if (lock.l_type == F_UNLCK)
        printf("%s: free\n", what);
    else
        printf("%s: type %d, from %ld, %ld bytes, %s\n", what, lock.l_type, (long)lock.l_start, (long)lock.l_len,
               lock.l_pid == getppid() ? "the parent" : lock.l_pid == -1 ? "an open file" : "another");
}

/* Calls a function in a child, and waits for it. */
static void child(void (*call)(void)) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        call();
        fflush(stdout);
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    if (status != 0)
        printf("status %x\n", status);
}

static void try_all(void) {
    show("bytes 0 to 9", file, F_GETLK, F_WRLCK, 0, 10);
    show("bytes 10 to 19", file, F_GETLK, F_RDLCK, 10, 10);
    show("bytes 10 to 19, alone", file, F_GETLK, F_WRLCK, 10, 10);
    show("from 35 on", file, F_GETLK, F_WRLCK, 35, 0);
    tell("take 0", set(file, F_SETLK, F_WRLCK, 0, 1));
    tell("share 12", set(file, F_SETLK, F_RDLCK, 12, 1));
    tell("take 25", set(file, F_SETLK, F_WRLCK, 25, 1));
    tell("another's locks stay", set(file, F_SETLK, F_UNLCK, 0, 0));
}

static void is_free(void) {
    show("all", file, F_GETLK, F_WRLCK, 0, 0);
}

static void posix(void) {
    tell("take 0 to 9", set(file, F_SETLK, F_WRLCK, 0, 10));
    tell("share 10 to 19", set(file, F_SETLK, F_RDLCK, 10, 10));
    tell("take 30 to 49", set(file, F_SETLK, F_WRLCK, 30, 20));
    child(try_all);
    tell("share 35 to 39", set(file, F_SETLK, F_RDLCK, 35, 5));
    tell("give 45 back", set(file, F_SETLK, F_UNLCK, 45, 1));
    tell("join 0 to 29", set(file, F_SETLK, F_WRLCK, 5, 25));
    child(try_all);
    int other = open(path, O_RDWR);
    show("mine do not exclude me", other, F_GETLK, F_WRLCK, 0, 0);
    close(other);
    child(is_free);
    tell("negative", set(file, F_SETLK, F_WRLCK, -1, 1));
    tell("backwards", set(file, F_SETLK, F_WRLCK, 10, -5));
    tell("too far back", set(file, F_SETLK, F_WRLCK, 4, -5));
    tell("too far", set(file, F_SETLK, F_WRLCK, 0x7fffffffffffffff, 2));
    tell("no type", set(file, F_SETLK, 9, 0, 1));
    tell("is there an unlock", set(file, F_GETLK, F_UNLCK, 0, 1));
    int reader = open(path, O_RDONLY);
    tell("alone without the right to write", set(reader, F_SETLK, F_WRLCK, 100, 1));
    tell("shared", set(reader, F_SETLK, F_RDLCK, 100, 1));
    close(reader);
    child(is_free);
}

static void try_open_file(void) {
    int own = open(path, O_RDWR);
    show("POSIX", own, F_GETLK, F_WRLCK, 0, 0);
    tell("flock is something else", flock(own, LOCK_EX | LOCK_NB));
    tell("inherited", set(file, F_OFD_SETLK, F_WRLCK, 5, 1));
    tell("own", set(own, F_OFD_SETLK, F_WRLCK, 5, 1));
}

static void open_files(void) {
    int other = open(path, O_RDWR);
    tell("take 0 to 9", set(file, F_OFD_SETLK, F_WRLCK, 0, 10));
    tell("another open file", set(other, F_OFD_SETLK, F_WRLCK, 0, 1));
    show("is", other, F_OFD_GETLK, F_RDLCK, 0, 1);
    tell("a POSIX lock", set(file, F_SETLK, F_WRLCK, 0, 1));
    child(try_open_file);
    struct flock lock = {.l_type = F_WRLCK, .l_pid = 1};
    tell("with a process", fcntl(other, F_OFD_SETLK, &lock));
    int copy = dup(file);
    close(file);
    tell("a copy keeps it", set(other, F_OFD_SETLK, F_WRLCK, 0, 1));
    close(copy);
    tell("closed", set(other, F_OFD_SETLK, F_WRLCK, 0, 1));
    close(other);
    file = open(path, O_RDWR);
}

static void try_flock(void) {
    int own = open(path, O_RDONLY);
    tell("inherited", flock(file, LOCK_SH | LOCK_NB));
    tell("share", flock(own, LOCK_SH | LOCK_NB));
    tell("alone", flock(own, LOCK_EX | LOCK_NB));
    tell("nothing", flock(own, LOCK_NB));
}

static void flocks(void) {
    tell("alone", flock(file, LOCK_EX));
    int other = open(path, O_RDWR);
    tell("another open file", flock(other, LOCK_EX | LOCK_NB));
    tell("a range", set(other, F_SETLK, F_WRLCK, 0, 0));
    child(try_flock);
    tell("alone again", flock(file, LOCK_EX | LOCK_NB));
    tell("unlock", flock(file, LOCK_UN));
    tell("the other", flock(other, LOCK_EX | LOCK_NB));
    close(other);
    tell("closed", flock(file, LOCK_EX | LOCK_NB));
    tell("not open", flock(900, LOCK_EX));
    flock(file, LOCK_UN);
}

/* A lock that is held already is not given away, though another process waits for it. */
static void want(void) {
    int own = open(path, O_RDWR);
    for (;;) {
        flock(own, LOCK_EX);
        flock(own, LOCK_UN);
    }
}

static void held(void) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        want();
    long lost = 0;
    flock(file, LOCK_EX);
    for (int i = 0; i < 2000; i++)
        lost += flock(file, LOCK_EX | LOCK_NB) != 0;
    printf("lost while held: %ld\n", lost);
    flock(file, LOCK_UN);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void *sleep_for_ever(void *unused) {
    for (;;)
        pause();
    return unused;
}

/* The last descriptor takes a lock along, whatever other threads and children did with the table. */
static void last_descriptors(void) {
    /* The thread is not to take signals that the process waits for. */
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    pthread_t thread;
    pthread_create(&thread, NULL, sleep_for_ever, NULL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    long failed = 0;
    for (int i = 0; i < 20; i++) {
        int fd = open(path, O_RDWR);
        if (flock(fd, LOCK_EX | LOCK_NB) < 0)
            failed++;
        dup2(0, 100 + i * 16);
        pid_t pid = fork();
        if (pid == 0)
            _exit(0);
        close(fd);
        waitpid(pid, NULL, 0);
    }
    printf("after threads, forks and larger tables: %ld\n", failed);
}

static void look(void) {
    show("its lock", file, F_GETLK, F_WRLCK, 0, 1);
    show("that of the closed one", file, F_GETLK, F_WRLCK, 1, 1);
}

/* An exec keeps POSIX locks, also one by a process with threads, except those of files that it closes. */
static void executed(void) {
    int ready[2];
    char byte;
    if (pipe(ready) < 0)
        exit(1);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        char number[8];
        pthread_t thread;
        pthread_create(&thread, NULL, sleep_for_ever, NULL);
        set(file, F_SETLK, F_WRLCK, 0, 1);
        snprintf(number, sizeof number, "%d", ready[1]);
        execl("/proc/self/exe", "again", number, (char *)NULL);
        _exit(9);
    }
    if (read(ready[0], &byte, 1) != 1)
        exit(1);
    look();
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    pid = fork();
    if (pid == 0) {
        char number[8];
        fcntl(file, F_SETFD, FD_CLOEXEC);
        set(file, F_SETLK, F_WRLCK, 0, 1);
        signal(SIGTERM, SIG_DFL);
        pid_t child = fork();
        if (child == 0)
            sleep_for_ever(NULL);
        snprintf(number, sizeof number, "%d", ready[1]);
        execl("/proc/self/exe", "again", number, (char *)NULL);
        _exit(9);
    }
    if (read(ready[0], &byte, 1) != 1)
        exit(1);
    look();
    kill(0, SIGTERM);
    waitpid(pid, NULL, 0);
}

static volatile int *shared;

/* Each adds to a number that only the lock protects. */
static void add(void) {
    for (int i = 0; i < 300; i++) {
        int own = open(path, O_RDWR);
        int failed = i % 3 == 0   ? set(own, F_SETLKW, F_WRLCK, 7, 1)
                     : i % 3 == 1 ? set(own, F_OFD_SETLKW, F_WRLCK, 7, 1)
                                  : set(own, F_SETLKW, F_WRLCK, 0, 0);
        if (failed)
            _exit(2);
        int now = *shared;
        for (volatile int spin = 0; spin < 50; spin++)
            ;
        *shared = now + 1;
        close(own);
    }
    _exit(0);
}

static void waits(void) {
    pid_t all[4];
    fflush(stdout);
    for (int i = 0; i < 4; i++)
        if ((all[i] = fork()) == 0)
            add();
    for (int i = 0; i < 4; i++) {
        int status;
        waitpid(all[i], &status, 0);
        if (status != 0)
            printf("status %x\n", status);
    }
    printf("added: %d\n", *shared);
}

/* The first has 0 and wants 1, the second has 1 and wants 0. */
static void circle(void) {
    int ready[2];
    char byte = 'x';
    if (pipe(ready) < 0)
        exit(1);
    set(file, F_SETLK, F_WRLCK, 0, 1);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        int failed = set(file, F_SETLK, F_WRLCK, 1, 1) || write(ready[1], &byte, 1) != 1;
        _exit(failed || set(file, F_SETLKW, F_WRLCK, 0, 1) != 0 ? 2 : 0);
    }
    if (read(ready[0], &byte, 1) != 1)
        exit(1);
    /* One of both finds the circle: this one, unless the child comes later. */
    int result = set(file, F_SETLKW, F_WRLCK, 1, 1), found = result < 0 && errno == EDEADLK;
    set(file, F_SETLK, F_UNLCK, 0, 1);
    int status;
    waitpid(pid, &status, 0);
    printf("a circle is found: %d\n", found != (status != 0));
    set(file, F_SETLK, F_UNLCK, 0, 0);
}

static void on_signal(int signal) {
    (void)signal;
}

static void hold(void) {
    set(file, F_SETLK, F_WRLCK, 0, 0);
    kill(getppid(), SIGUSR2);
    pause();
}

static void killed(void) {
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGALRM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGUSR2);
    sigprocmask(SIG_BLOCK, &wanted, NULL);
    fflush(stdout);
    pid_t holder = fork();
    if (holder == 0)
        hold();
    int signal;
    sigwait(&wanted, &signal);
    pid_t me = getpid(), waker = fork();
    if (waker == 0) {
        /* Until it is killed: the other may begin to wait late. */
        while (getppid() == me) {
            usleep(20000);
            kill(me, SIGUSR1);
        }
        _exit(0);
    }
    tell("interrupted", set(file, F_SETLKW, F_WRLCK, 0, 1));
    kill(waker, SIGKILL);
    waitpid(waker, NULL, 0);
    kill(holder, SIGKILL);
    tell("its owner is killed", set(file, F_SETLKW, F_WRLCK, 0, 1));
    waitpid(holder, NULL, 0);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        /* Executed: tells that, and keeps what it has. */
        char byte = 'x';
        if (write(atoi(argv[1]), &byte, 1) != 1)
            return 1;
        sleep_for_ever(NULL);
    }
    setpgid(0, 0);
    signal(SIGTERM, SIG_IGN);
    unlink(path);
    file = open(path, O_RDWR | O_CREAT, 0600);
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (file < 0 || shared == MAP_FAILED)
        return 1;
    posix();
    open_files();
    flocks();
    held();
    executed();
    last_descriptors();
    waits();
    circle();
    killed();
    unlink(path);
    printf("done\n");
    return 0;
}

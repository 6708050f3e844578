/* Pipes and descriptors: bytes between threads, ends that close, calls that would block, readiness.
 *
 * pipes PAIRS ROUNDS: exits with 0 if everything was as it must be. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { CAPACITY = 65536, RECORD = 1000, RECORDS = 100, WRITERS = 3, MAX_PAIRS = 64 };

static int rounds;
/* Volatile, since the compiler would otherwise see that the address is invalid. */
static void *volatile nowhere = (void *)8;
static volatile sig_atomic_t broken;

static void on_broken_pipe(int signal)
{
    (void)signal;
    broken = 1;
}

static void limits(void)
{
    static char bytes[CAPACITY + 1];
    int ends[2], waiting = 0;
    struct stat status[2];
    struct pollfd polled[3] = {{-1, POLLIN, 0}, {999, POLLIN, 0}, {0, POLLIN, 0}};
    check("pipe2", pipe2(ends, O_NONBLOCK | O_CLOEXEC) == 0 && fails(pipe2(ends, 0x1234), EINVAL));
    check("empty", fails(read(ends[0], bytes, 1), EAGAIN) && fails(lseek(ends[0], 0, SEEK_CUR), ESPIPE));
    polled[2].fd = ends[0];
    check("whence before the kind", fails(lseek(ends[0], 0, 99), EINVAL) && fails(lseek(ends[0], 0, SEEK_HOLE), ESPIPE));
    check("the kind before the mode", fails(pread(ends[1], bytes, 1, 0), ESPIPE) && fails(pwrite(ends[0], bytes, 1, 0), ESPIPE));
    check("one inode", fstat(ends[0], &status[0]) == 0 && fstat(ends[1], &status[1]) == 0 && status[0].st_ino == status[1].st_ino);
    check("poll", poll(polled, 3, 0) == 1 && polled[1].revents == POLLNVAL && polled[2].revents == 0);
    check("filled", write(ends[1], bytes, CAPACITY + 1) == CAPACITY && fails(write(ends[1], bytes, 1), EAGAIN));
    check("full before the bytes are looked at", fails(write(ends[1], nowhere, 1), EAGAIN));
    check("not smaller than what is in it", fails(fcntl(ends[0], F_SETPIPE_SZ, 4096), EBUSY));
    check("waiting", ioctl(ends[0], FIONREAD, &waiting) == 0 && waiting == CAPACITY);
    check("ready", poll(polled, 3, -1) == 2 && polled[2].revents == POLLIN);
    check("wrong end", fails(read(ends[1], bytes, 1), EBADF) && fails(write(ends[0], bytes, 1), EBADF));
    check("end of file", close(ends[1]) == 0 && read(ends[0], bytes, sizeof bytes) == CAPACITY && read(ends[0], bytes, 1) == 0);
    check("hung up", poll(polled + 2, 1, -1) == 1 && polled[2].revents == POLLHUP && close(ends[0]) == 0);
    signal(SIGPIPE, on_broken_pipe);
    check("no reader", pipe(ends) == 0 && close(ends[0]) == 0 && fails(write(ends[1], "x", 1), EPIPE) && broken);
    broken = 0;
    check("no reader of bad bytes", fails(write(ends[1], nowhere, 1), EPIPE) && broken);
    close(ends[1]);
}

static void descriptors(void)
{
    int fd = dup(0), last = fd, count = 0;
    check("dup2", dup2(fd, 77) == 77 && dup2(fd, fd) == fd && fails(dup2(999, 5), EBADF) && fails(dup3(fd, fd, 0), EINVAL));
    check("flags", fcntl(77, F_GETFD) == 0 && fcntl(77, F_SETFD, FD_CLOEXEC) == 0 && fcntl(77, F_GETFD) == FD_CLOEXEC);
    check("lowest", fcntl(fd, F_DUPFD, 70) == 70 && fails(fcntl(fd, F_DUPFD, -1), EINVAL));
    check("closed", close(77) == 0 && fails(close(77), EBADF) && close(70) == 0);
    for (int next; (next = dup(0)) >= 0; last = next)
        count++;
    check("all in use", errno == EMFILE && count > 100 && fails(open("/tmp", O_RDONLY), EMFILE));
    while (last >= fd)
        close(last--);
}

struct pair {
    int there[2], back[2];
};

static void *ping(void *argument)
{
    struct pair *pair = argument;
    char byte = 0;
    for (int i = 0; i < rounds; i++)
        if (write(pair->there[1], &byte, 1) != 1 || read(pair->back[0], &byte, 1) != 1 || byte != (char)(i + 1))
            abort();
    close(pair->there[1]);
    return NULL;
}

/* Waits by poll where its partner waits by read. */
static void *pong(void *argument)
{
    struct pair *pair = argument;
    struct pollfd polled = {pair->there[0], POLLIN, 0};
    char byte;
    while (poll(&polled, 1, -1) == 1 && read(pair->there[0], &byte, 1) == 1)
        if (byte++, write(pair->back[1], &byte, 1) != 1)
            abort();
    return NULL;
}

static void conversations(int pairs)
{
    static struct pair pair[MAX_PAIRS];
    static pthread_t threads[MAX_PAIRS][2];
    for (int i = 0; i < pairs; i++)
        if (pipe(pair[i].there) || pipe(pair[i].back) || pthread_create(&threads[i][0], NULL, ping, &pair[i])
            || pthread_create(&threads[i][1], NULL, pong, &pair[i]))
            abort();
    for (int i = 0; i < pairs; i++)
        pthread_join(threads[i][0], NULL), pthread_join(threads[i][1], NULL);
    check("conversations", 1);
}

static int quiet[2];
static volatile sig_atomic_t interruptions, polled_once;

static void on_interruption(int signal)
{
    (void)signal;
    interruptions++;
}

/* Reads are restarted after such a handler, polls are not. */
static void *interrupted(void *unused)
{
    struct pollfd polled = {quiet[0], POLLIN, 0};
    char byte;
    (void)unused;
    check("poll is interrupted", fails(poll(&polled, 1, -1), EINTR) && interruptions > 0);
    polled_once = 1;
    check("read goes on", read(quiet[0], &byte, 1) == 1);
    return NULL;
}

static void interruption(void)
{
    struct sigaction action = {.sa_handler = on_interruption, .sa_flags = SA_RESTART};
    pthread_t thread;
    sigaction(SIGUSR1, &action, NULL);
    check("quiet", pipe(quiet) == 0 && pthread_create(&thread, NULL, interrupted, NULL) == 0);
    /* Sends signals until the poll is over, and then some for the read. */
    for (int more = 100; more > 0; more -= polled_once)
        pthread_kill(thread, SIGUSR1), sched_yield();
    check("something to read", write(quiet[1], "x", 1) == 1 && pthread_join(thread, NULL) == 0);
}

static int shared[2];

static void *write_records(void *letter)
{
    char record[RECORD];
    memset(record, *(char *)letter, sizeof record);
    for (int i = 0; i < RECORDS; i++)
        if (write(shared[1], record, sizeof record) != sizeof record)
            abort();
    return NULL;
}

/* Writes of up to PIPE_BUF bytes are not torn, whichever threads write meanwhile. */
static void records(void)
{
    pthread_t threads[WRITERS];
    char record[RECORD], letters[WRITERS + 1] = "abc";
    int whole = pipe(shared) == 0;
    for (int i = 0; i < WRITERS; i++)
        pthread_create(&threads[i], NULL, write_records, &letters[i]);
    FILE *reader = fdopen(shared[0], "r");
    for (int i = 0; i < WRITERS * RECORDS; i++) {
        whole &= fread(record, 1, RECORD, reader) == RECORD;
        for (int at = 1; at < RECORD; at++)
            whole &= record[at] == record[0];
    }
    for (int i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
    check("whole records", whole);
}

static int parked[2];

static void *park(void *unused)
{
    char byte;
    (void)unused;
    return read(parked[0], &byte, 1) == 0 ? NULL : &parked;
}

/* Another thread uses the descriptors, asleep. Ends close at once all the same, also those of a child that
 * shared the descriptors with the threads. */
static void ends_beside_a_thread(void)
{
    int ends[2], go[2];
    char byte;
    void *wrong;
    pthread_t thread;
    check("parked", pipe(parked) == 0 && pthread_create(&thread, NULL, park, NULL) == 0);
    check("no writer", pipe2(ends, O_NONBLOCK) == 0 && close(ends[1]) == 0 && read(ends[0], &byte, 1) == 0 && close(ends[0]) == 0);
    check("no reader left", pipe2(ends, O_NONBLOCK) == 0 && close(ends[0]) == 0 && fails(write(ends[1], "x", 1), EPIPE) && close(ends[1]) == 0);
    check("replaced", pipe2(ends, O_NONBLOCK) == 0 && dup2(ends[0], ends[1]) == ends[1] && read(ends[0], &byte, 1) == 0);
    close(ends[0]), close(ends[1]);
    check("before the child", pipe2(ends, O_NONBLOCK) == 0 && pipe(go) == 0);
    pid_t child = fork();
    if (child == 0)
        _exit(read(go[0], &byte, 1) != 1);
    check("the child writes on", close(ends[1]) == 0 && fails(read(ends[0], &byte, 1), EAGAIN));
    check("the child is gone", write(go[1], "g", 1) == 1 && waitpid(child, NULL, 0) == child && read(ends[0], &byte, 1) == 0);
    close(ends[0]), close(go[0]), close(go[1]);
    check("parked until the last writer goes", close(parked[1]) == 0 && pthread_join(thread, &wrong) == 0 && wrong == NULL);
    close(parked[0]);
}

int main(int argc, char **argv)
{
    int pairs = argc == 3 ? atoi(argv[1]) : 0;
    if (pairs < 1 || pairs > MAX_PAIRS || (rounds = atoi(argv[2])) < 1) {
        fprintf(stderr, "usage: pipes PAIRS ROUNDS, up to %d pairs\n", MAX_PAIRS);
        return 2;
    }
    limits();
    descriptors();
    conversations(pairs);
    records();
    interruption();
    ends_beside_a_thread();
    printf("pipes: %s\n", failures ? "FAILED" : "done");
    return failures != 0;
}

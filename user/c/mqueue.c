/* POSIX message queues: names, attributes, priorities, waiting, signals, notices, poll, limits. Prints what
 * every Linux prints. With the argument `limits`: how many queues there can be, for a machine of its own. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ipc.h"

static char name[48], other_name[64];
/* Where the handler says that it has run, if it is to. */
static int told[2];
static volatile sig_atomic_t handled;
static siginfo_t last;

static long raw_open(const void *path, int flags, int mode, const void *attr)
{
    return syscall(SYS_mq_open, path, flags, mode, attr);
}

static mqd_t make(const char *which, int flags, long messages, long bytes)
{
    struct mq_attr attr = { .mq_maxmsg = messages, .mq_msgsize = bytes };
    return mq_open(which, O_CREAT | O_RDWR | flags, 0640, &attr);
}

static void show(const char *what, mqd_t queue)
{
    struct mq_attr now;
    if (mq_getattr(queue, &now) < 0)
        tell(what, -1);
    else
        printf("%s: flags %lx, %ld of %ld messages of %ld bytes\n", what, now.mq_flags, now.mq_curmsgs, now.mq_maxmsg,
               now.mq_msgsize);
}

static void receive(const char *what, mqd_t queue)
{
    char text[9000];
    unsigned priority = 77;
    long got = mq_receive(queue, text, sizeof text, &priority);
    if (got < 0)
        tell(what, got);
    else
        printf("%s: %ld, priority %u, %.*s\n", what, got, priority, (int)got, text);
    fflush(stdout);
}

static int put(mqd_t queue, const char *text, unsigned priority)
{
    return mq_send(queue, text, strlen(text), priority);
}

static void names(void)
{
    char longest[300] = "";
    memset(longest, 'x', 256);
    tell("no name", raw_open("", O_RDWR, 0, 0));
    tell("no string", raw_open((void *)8, O_RDWR, 0, 0));
    tell("a slash", raw_open("a/b", O_CREAT | O_RDWR, 0600, 0));
    tell("a dot", raw_open(".", O_CREAT | O_RDWR, 0600, 0));
    tell("a long name", raw_open(longest, O_CREAT | O_RDWR, 0600, 0));
    tell("unlink a long name", syscall(SYS_mq_unlink, longest));
    tell("unlink no name", syscall(SYS_mq_unlink, ""));
    tell("unlink no string", syscall(SYS_mq_unlink, 8));
    tell("unlink a slash", syscall(SYS_mq_unlink, "a/b"));
    longest[255] = 0;
    tell("unlink what is not there", syscall(SYS_mq_unlink, longest));
    tell("open what is not there", mq_open(name, O_RDWR));
    tell("bad attributes", raw_open(name + 1, O_CREAT | O_RDWR, 0600, (void *)8));
    tell("bad attributes of what is not there", raw_open(name + 1, O_RDWR, 0600, (void *)8));
    tell("no messages", make(name, 0, 0, 10));
    tell("fewer messages", make(name, 0, -1, 10));
    tell("no bytes", make(name, 0, 1, 0));
    tell("very many messages", make(name, 0, 1 << 20, 10));
    tell("very long messages", make(name, 0, 1, 1L << 40));
    mqd_t queue = mq_open(name, O_CREAT | O_RDWR, 0640, NULL);
    say("made", queue >= 0);
    show("as usual", queue);
    printf("close on exec %d, flags %x\n", fcntl(queue, F_GETFD), fcntl(queue, F_GETFL) & ~0100000);
    struct stat stat;
    fstat(queue, &stat);
    printf("mode %o, %ld bytes, %ld names\n", stat.st_mode, (long)stat.st_size, (long)stat.st_nlink);
    tell("exclusive", make(name, O_EXCL, 1, 1));
    tell("both ways", mq_open(name, O_ACCMODE));
    mqd_t again = make(name, 0, 3, 3);
    show("another descriptor", again);
    tell("send", put(again, "by one", 0));
    receive("receive", queue);
    tell("unlink", mq_unlink(name));
    tell("unlink again", mq_unlink(name));
    tell("send", put(again, "still there", 1));
    mqd_t second = make(name, O_EXCL, 3, 3);
    show("another of that name", second);
    receive("receive", queue);
    close(again);
    close(queue);
    close(second);
    second = mq_open(name, O_RDONLY);
    show("it stays without descriptors", second);
    close(second);
    mq_unlink(name);
}

static void sending(void)
{
    char text[16] = "";
    mqd_t queue = make(name, O_NONBLOCK, 4, 8);
    mqd_t in = mq_open(name, O_RDONLY | O_NONBLOCK), out = mq_open(name, O_WRONLY);
    show("non-blocking", queue);
    receive("empty", queue);
    put(queue, "low", 1), put(queue, "high", 9), put(queue, "low 2", 1), put(queue, "high 2", 9);
    tell("full", put(queue, "more", 31));
    show("full", queue);
    for (int i = 0; i < 4; i++)
        receive("in order", queue);
    tell("a long message", mq_send(queue, "123456789", 9, 0));
    tell("an empty message", mq_send(queue, "", 0, 32767));
    receive("empty", in);
    tell("a high priority", mq_send(queue, "", 0, 32768));
    tell("little room", mq_receive(queue, text, 7, NULL));
    tell("send for reading", put(in, "x", 0));
    tell("receive for writing", mq_receive(out, text, 16, NULL));
    tell("a bad address", syscall(SYS_mq_timedsend, queue, 8, 4, 0, 0));
    show("nothing came", queue);
    put(queue, "lost", 0);
    tell("a bad address", syscall(SYS_mq_timedreceive, queue, 8, 16, 0, 0));
    show("it is lost", queue);
    put(queue, "lost", 0);
    tell("a bad priority", syscall(SYS_mq_timedreceive, queue, text, 16, 8, 0));
    show("it is lost", queue);
    tell("no queue", put(0, "x", 0));
    tell("no queue", mq_receive(1, text, 16, NULL));
    tell("no file", put(999, "x", 0));
    tell("attributes of no queue", syscall(SYS_mq_getsetattr, 1, 0, 0));
    tell("attributes of a bad address", syscall(SYS_mq_getsetattr, queue, 8, 0));
    tell("attributes to a bad address", syscall(SYS_mq_getsetattr, queue, 0, 8));
    struct mq_attr attr = { .mq_flags = O_APPEND }, old;
    tell("bad flags", mq_setattr(queue, &attr, NULL));
    attr = (struct mq_attr){ .mq_flags = O_NONBLOCK, .mq_maxmsg = 9 };
    tell("set", mq_setattr(out, &attr, &old));
    printf("before: %lx\n", old.mq_flags);
    show("non-blocking", out);
    attr.mq_flags = 0;
    mq_setattr(out, &attr, NULL);
    show("blocking", out);
    put(queue, "abc", 3), put(queue, "de", 3);
    char line[100] = "";
    tell("read", pread(queue, line, sizeof line, 0));
    printf("%s", line);
    tell("write", write(queue, line, 5));
    say("no map", mmap(0, 4096, PROT_READ, MAP_SHARED, queue, 0) == MAP_FAILED);
    close(queue), close(in), close(out), mq_unlink(name);
}

static void polling(void)
{
    mqd_t queue = make(name, O_NONBLOCK, 2, 8);
    struct pollfd poll_fd = { queue, POLLIN | POLLOUT, 0 };
    for (int i = 0; i < 3; i++) {
        poll(&poll_fd, 1, 0);
        printf("poll: %x\n", poll_fd.revents);
        put(queue, "x", 0);
    }
    int epoll = epoll_create1(0);
    struct epoll_event event = { .events = EPOLLIN | EPOLLET };
    epoll_ctl(epoll, EPOLL_CTL_ADD, queue, &event);
    tell("epoll", epoll_wait(epoll, &event, 1, 0));
    tell("no edge", epoll_wait(epoll, &event, 1, 0));
    receive("receive", queue);
    receive("receive", queue);
    pid_t pid = fork();
    if (pid == 0) {
        put(queue, "edge", 0);
        _exit(0);
    }
    tell("an edge", epoll_wait(epoll, &event, 1, -1));
    finish(pid);
    receive("receive", queue);
    /* The list forgets a file that is closed, not the queue. */
    mqd_t other = mq_open(name, O_RDWR);
    close(queue);
    put(other, "x", 0);
    tell("no file", epoll_wait(epoll, &event, 1, 0));
    close(epoll), close(other), mq_unlink(name);
}

static struct timespec after(long ns)
{
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_nsec += ns;
    at.tv_sec += at.tv_nsec / 1000000000;
    at.tv_nsec %= 1000000000;
    return at;
}

static void time_limits(void)
{
    char text[8];
    mqd_t queue = make(name, 0, 1, 8);
    struct timespec past = { 0, 0 }, bad = { 0, 1000000000 }, negative = { -1, 0 };
    struct timespec soon = after(3000000);
    tell("past", mq_timedreceive(queue, text, 8, NULL, &past));
    tell("soon", mq_timedreceive(queue, text, 8, NULL, &soon));
    tell("bad", mq_timedreceive(queue, text, 8, NULL, &bad));
    tell("negative", mq_timedreceive(queue, text, 8, NULL, &negative));
    tell("no time", syscall(SYS_mq_timedreceive, queue, text, 8, NULL, 8));
    tell("bad, and it would not wait", mq_timedsend(queue, "x", 1, 0, &bad));
    tell("past, and it would not wait", mq_timedsend(queue, "x", 1, 0, &past));
    tell("past", mq_timedsend(queue, "y", 1, 0, &past));
    soon = after(3000000);
    tell("soon", mq_timedsend(queue, "y", 1, 0, &soon));
    receive("only one came", queue);
    tell("the other did not", mq_timedreceive(queue, text, 8, NULL, &past));
    close(queue), mq_unlink(name);
}

static mqd_t shared;

static void receive_one(int number)
{
    char what[30];
    snprintf(what, sizeof what, "receiver %d", number);
    receive(what, shared);
}

static void send_one(int number)
{
    char text[8];
    snprintf(text, sizeof text, "from %d", number);
    put(shared, text, number);
}

static void waiting(void)
{
    pid_t pid[3];
    shared = make(name, 0, 1, 8);
    for (int i = 0; i < 3; i++)
        await(pid[i] = start_child(receive_one, i));
    kill(pid[1], SIGKILL);
    waitpid(pid[1], NULL, 0);
    for (int i = 0; i < 3; i += 2) {
        put(shared, i ? "two" : "one", 5);
        finish(pid[i]);
    }
    show("nothing is left", shared);
    put(shared, "full", 0);
    for (int i = 0; i < 3; i++)
        await(pid[i] = start_child(send_one, i));
    kill(pid[0], SIGKILL);
    waitpid(pid[0], NULL, 0);
    for (int i = 0; i < 3; i++)
        receive("receive", shared);
    finish(pid[1]), finish(pid[2]);
    show("nothing is left", shared);
    /* The descriptor that a child waits by is closed elsewhere, and the name goes. */
    await(pid[0] = start_child(receive_one, 0));
    mq_unlink(name);
    put(shared, "end", 0);
    finish(pid[0]);
    close(shared);
}

static void on_signal(int signal, siginfo_t *info, void *context)
{
    (void)context;
    handled = signal;
    last = *info;
    if (told[1])
        (void)!write(told[1], "", 1);
}

static void handle(int signal, int flags)
{
    struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | flags };
    sigaction(signal, &action, NULL);
}

static void interrupted_receive(int flags)
{
    char text[8];
    struct timespec limit = after(60L * 1000000000);
    handle(SIGUSR1, flags);
    tell("receive", mq_timedreceive(shared, text, 8, NULL, &limit));
    tell("receive", mq_receive(shared, text, 8, NULL));
    printf("handled %d\n", handled == SIGUSR1);
}

static void interruptions(void)
{
    shared = make(name, 0, 1, 8);
    (void)!pipe(told);
    for (int restarts = 0; restarts < 2; restarts++) {
        pid_t pid = start_child(interrupted_receive, restarts ? SA_RESTART : 0);
        for (int i = 0; i < 2; i++) {
            char byte;
            await(pid);
            kill(pid, SIGUSR1);
            (void)!read(told[0], &byte, 1);
            /* A call that is made again sleeps again before there is a message. */
            if (restarts) {
                await(pid);
                put(shared, "x", 0);
            }
        }
        finish(pid);
    }
    close(told[0]), close(told[1]);
    told[1] = 0;
    close(shared), mq_unlink(name);
}

static struct sigevent event(int notify, int signal, int value)
{
    return (struct sigevent){ .sigev_notify = notify, .sigev_signo = signal, .sigev_value.sival_int = value };
}

static void tell_notice(const char *what)
{
    printf("%s: ", what);
    if (handled)
        printf("signal %d, code %d, value %d, sender %d\n", (int)handled, last.si_code, last.si_value.sival_int,
               last.si_pid == getpid());
    else
        printf("no signal\n");
    handled = 0;
}

static void ask_in_child(int number)
{
    struct sigevent wish = event(SIGEV_SIGNAL, SIGUSR2, 9);
    tell("end another's wish", mq_notify(shared, NULL));
    if (number == 0)
        tell("while another has asked", mq_notify(shared, &wish));
    else
        tell("when none has asked", mq_notify(shared, &wish));
}

static void notices(void)
{
    handle(SIGUSR2, 0);
    handle(SIGRTMIN, 0);
    shared = make(name, 0, 4, 8);
    struct sigevent bad = event(SIGEV_SIGNAL, 65, 0), bad_kind = event(77, SIGUSR2, 0);
    struct sigevent wish = event(SIGEV_SIGNAL, SIGUSR2, 7), silent = event(SIGEV_NONE, 0, 0);
    struct sigevent later = event(SIGEV_SIGNAL, SIGRTMIN, 8);
    tell("a bad signal", syscall(SYS_mq_notify, shared, &bad));
    tell("a bad kind", syscall(SYS_mq_notify, shared, &bad_kind));
    tell("a bad address", syscall(SYS_mq_notify, shared, 8));
    tell("no queue", syscall(SYS_mq_notify, 1, &wish));
    tell("no wish", mq_notify(shared, NULL));
    tell("ask", mq_notify(shared, &wish));
    tell("ask again", mq_notify(shared, &wish));
    finish(start_child(ask_in_child, 0));
    char line[100] = "";
    pread(shared, line, sizeof line - 1, 0);
    int size, kind, signal, pid;
    sscanf(line, "QSIZE:%d NOTIFY:%d SIGNO:%d NOTIFY_PID:%d", &size, &kind, &signal, &pid);
    printf("%d bytes, kind %d, signal %d, %d\n", size, kind, signal, pid == getpid());
    put(shared, "first", 0);
    tell_notice("the first message");
    put(shared, "second", 0);
    tell_notice("the second");
    tell("ask when there are messages", mq_notify(shared, &later));
    put(shared, "third", 0);
    tell_notice("the third");
    for (int i = 0; i < 3; i++)
        receive("receive", shared);
    put(shared, "fourth", 0);
    tell_notice("the queue was empty");
    receive("receive", shared);
    tell("ask for silence", mq_notify(shared, &silent));
    tell("ask again", mq_notify(shared, &wish));
    put(shared, "fifth", 0);
    tell_notice("silence");
    receive("receive", shared);
    tell("ask", mq_notify(shared, &wish));
    pid_t child = start_child(receive_one, 0);
    await(child);
    put(shared, "sixth", 0);
    finish(child);
    tell_notice("another waited for it");
    close(dup(shared));
    tell("close ends the wish", mq_notify(shared, &wish));
    tell("end the wish", mq_notify(shared, NULL));
    finish(start_child(ask_in_child, 1));
    tell("the child's end ends its wish", mq_notify(shared, &wish));
    child = fork();
    if (child == 0) {
        mq_notify(shared, NULL);
        close(shared);
        _exit(0);
    }
    finish(child);
    tell("another's close does not", mq_notify(shared, &wish));
    put(shared, "seventh", 0);
    tell_notice("the seventh");
    close(shared), mq_unlink(name);
}

static void inheritance(void)
{
    shared = make(name, 0, 4, 8);
    pid_t pid = fork();
    if (pid == 0) {
        put(shared, "child", 0);
        char number[12];
        snprintf(number, sizeof number, "%d", (int)shared);
        execl("/proc/self/exe", "mqueue", "descriptor", number, (char *)NULL);
        _exit(1);
    }
    finish(pid);
    receive("from a child", shared);
    close(shared), mq_unlink(name);
}

static void limits(void)
{
    shared = make(other_name, 0, 2, 8);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit none = { 0, 0 }, few = { shared + 1, shared + 1 };
        setrlimit(RLIMIT_MSGQUEUE, &none);
        tell("no bytes", make(name, 0, 1, 1));
        tell("an old one", mq_open(other_name, O_RDWR) >= 0 ? 0 : -1);
        setrlimit(RLIMIT_NOFILE, &few);
        tell("no descriptor", mq_open(other_name, O_RDWR));
        tell("no descriptor, and no queue", mq_open(name, O_RDWR));
        fflush(stdout);
        _exit(0);
    }
    finish(pid);
    close(shared), mq_unlink(other_name);
    int made = 0;
    for (; made < 200; made++) {
        mqd_t queue = make(name, O_EXCL, 5, 8192);
        if (queue < 0)
            break;
        put(queue, "x", 0);
        /* The last of name and descriptor gives the bytes back, whichever that is. */
        made % 2 ? mq_unlink(name), close(queue) : (close(queue), mq_unlink(name));
    }
    tell("one after the other", made);
    char path[] = "/proc/sys/fs/mqueue/msgsize_default";
    FILE *file = fopen(path, "r");
    int value = 0;
    say("the usual size", file && fscanf(file, "%d", &value) == 1 && value > 0);
    if (file)
        fclose(file);
}

/* Makes queues until that fails, and removes them. */
static void fill(long messages, long bytes)
{
    enum { MOST = 400 };
    char each[80];
    int made = 0;
    for (; made < MOST; made++) {
        snprintf(each, sizeof each, "/full%d", made);
        mqd_t queue = make(each, O_EXCL, messages, bytes);
        if (queue < 0)
            break;
        close(queue);
    }
    printf("%d queues: %s\n", made, strerror(errno));
    while (made-- > 0) {
        snprintf(each, sizeof each, "/full%d", made);
        mq_unlink(each);
    }
}

/* Looks for the limits of all queues of a machine on which no other program has any. */
static void fill_all(void)
{
    for (int i = 0; i < 2; i++)
        fill(10, 8192);
    fill(1, 1);
    struct rlimit more = { 1L << 40, 1L << 40 };
    tell("more", setrlimit(RLIMIT_MSGQUEUE, &more));
    tell("more than the memory", make(name, 0, 16384, 16 << 20));
    mqd_t queue = make(name, 0, 2, 1 << 20);
    say("long messages", queue >= 0);
    char *text = calloc(1, 1 << 20);
    memset(text, 'a', 1 << 20);
    tell("send", mq_send(queue, text, 1 << 20, 3));
    memset(text, 0, 1 << 20);
    tell("receive", mq_receive(queue, text, 1 << 20, NULL));
    say("the same", text[0] == 'a' && text[(1 << 20) - 1] == 'a' && text[300000] == 'a');
    mq_unlink(name);
}

int main(int count, char **words)
{
    if (count > 2 && !strcmp(words[1], "descriptor")) {
        tell("after an exec", fcntl(atoi(words[2]), F_GETFD));
        return 0;
    }
    snprintf(name, sizeof name, "/radixvm-%d-%lx", getpid(), (long)time(NULL));
    snprintf(other_name, sizeof other_name, "%s-other", name);
    if (count > 1 && !strcmp(words[1], "limits")) {
        fill_all();
        return 0;
    }
    names();
    sending();
    polling();
    time_limits();
    waiting();
    interruptions();
    notices();
    inheritance();
    limits();
    return 0;
}

/* inotify: events of files and directories, moves, the end of watches, equal events, lost events, waits, and
 * errors. Prints what every Linux prints.
 *
 * inotify DIRECTORY, in which it makes and removes files */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tell.h"

static int events;
static uint32_t last_cookie;

static const struct { uint32_t bit; const char *name; } BITS[] = {
    {IN_ACCESS, "access"}, {IN_MODIFY, "modify"}, {IN_ATTRIB, "attrib"}, {IN_CLOSE_WRITE, "close_write"},
    {IN_CLOSE_NOWRITE, "close_nowrite"}, {IN_OPEN, "open"}, {IN_MOVED_FROM, "moved_from"},
    {IN_MOVED_TO, "moved_to"}, {IN_CREATE, "create"}, {IN_DELETE, "delete"}, {IN_DELETE_SELF, "delete_self"},
    {IN_MOVE_SELF, "move_self"}, {IN_Q_OVERFLOW, "overflow"}, {IN_IGNORED, "ignored"}, {IN_ISDIR, "isdir"},
};

static void show_event(const struct inotify_event *event)
{
    printf("  %d", event->wd);
    for (size_t bit = 0; bit < sizeof BITS / sizeof *BITS; bit++)
        if (event->mask & BITS[bit].bit)
            printf(" %s", BITS[bit].name);
    if (event->mask & IN_MOVED_FROM)
        last_cookie = event->cookie;
    if (event->mask & IN_MOVED_TO)
        printf(event->cookie && event->cookie == last_cookie ? " same cookie" : " another cookie");
    else if (event->cookie && !(event->mask & IN_MOVED_FROM))
        printf(" a cookie");
    if (event->len)
        printf(" '%s' in %u", event->name, event->len);
    printf("\n");
}

/* Reads and prints all events that are there. */
static void show(const char *what)
{
    char buffer[4096] __attribute__((aligned(8)));
    ssize_t got;
    printf("%s\n", what);
    while ((got = read(events, buffer, sizeof buffer)) > 0)
        for (char *at = buffer; at < buffer + got;) {
            struct inotify_event *event = (struct inotify_event *)at;
            show_event(event);
            at += sizeof *event + event->len;
        }
    if (got == 0 || errno != EAGAIN)
        tell("a read that ends it", got);
    fflush(stdout);
}

static int watch(const char *path, uint32_t mask)
{
    int number = inotify_add_watch(events, path, mask);
    tell("watch", number);
    return number;
}

static void make(const char *name)
{
    int fd = open(name, O_CREAT | O_EXCL | O_WRONLY, 0600);
    if (fd < 0 || close(fd) < 0)
        tell("make", -1);
}

static void errors(void)
{
    int other = open(".", O_RDONLY);
    tell("flags", inotify_init1(1));
    tell("no descriptor", inotify_add_watch(-1, ".", IN_CREATE));
    tell("another file", inotify_add_watch(other, ".", IN_CREATE));
    tell("no events", inotify_add_watch(events, ".", 0));
    tell("both", inotify_add_watch(events, ".", IN_CREATE | IN_MASK_ADD | IN_MASK_CREATE));
    tell("no file", inotify_add_watch(events, "missing", IN_CREATE));
    tell("no directory", inotify_add_watch(events, "/proc/self/exe", IN_CREATE | IN_ONLYDIR));
    tell("a bad path", inotify_add_watch(events, (char *)8, IN_CREATE));
    tell("no watch", inotify_rm_watch(events, 77));
    tell("no watch of another file", inotify_rm_watch(other, 1));
    tell("nothing to read", read(events, &other, 4));
    tell("write", write(events, "x", 1));
    tell("seek", lseek(events, 0, SEEK_SET));
    close(other);
}

static void of_a_directory(void)
{
    char byte;
    int directory = watch(".", IN_ALL_EVENTS);
    make("file");
    show("a file is made");
    int fd = open("file", O_RDWR);
    if (write(fd, "bytes", 5) != 5 || write(fd, "bytes", 5) != 5)
        tell("write", -1);
    show("written twice, the second is equal");
    if (pread(fd, &byte, 1, 0) != 1 || ftruncate(fd, 3) < 0 || fchmod(fd, 0640) < 0)
        tell("read", -1);
    show("read, truncated, another mode");
    close(fd);
    tell("chmod", chmod("file", 0600));
    tell("truncate", truncate("file", 1));
    tell("utimensat", utimensat(AT_FDCWD, "file", NULL, 0));
    tell("chown", chown("file", -1, -1));
    show("by name");
    tell("link", link("file", "other"));
    tell("symlink", symlink("file", "symbolic"));
    tell("mkdir", mkdir("below", 0700));
    show("more names");
    tell("rename", rename("other", "renamed"));
    tell("rename over", rename("renamed", "symbolic"));
    tell("rename into", rename("symbolic", "below/moved"));
    tell("unlink there", unlink("below/moved"));
    show("moved");
    tell("rmdir", rmdir("below"));
    tell("unlink", unlink("file"));
    show("removed");
    tell("remove", inotify_rm_watch(events, directory));
    make("file");
    unlink("file");
    show("the watch has ended");
}

static void of_a_file(void)
{
    make("file");
    int file = watch("file", IN_ALL_EVENTS);
    tell("the same", inotify_add_watch(events, "file", IN_ALL_EVENTS) == file);
    tell("only a new one", inotify_add_watch(events, "file", IN_OPEN | IN_MASK_CREATE));
    int fd = open("file", O_RDONLY);
    tell("link", link("file", "other"));
    tell("rename", rename("file", "moved"));
    tell("unlink", unlink("other"));
    show("opened, linked, moved, a name removed");
    tell("unlink", unlink("moved"));
    show("no name, and open");
    close(fd);
    show("closed");
    tell("has ended", inotify_rm_watch(events, file));
    make("file");
    make("victim");
    watch("victim", IN_ALL_EVENTS);
    watch("file", IN_DELETE_SELF);
    inotify_add_watch(events, "file", IN_MOVE_SELF | IN_MASK_ADD);
    tell("rename", rename("file", "victim"));
    show("replaced");
    unlink("victim");
    show("removed");
    mkdir("below", 0700);
    watch("below", IN_ALL_EVENTS);
    tell("rename", rename("below", "moved"));
    tell("rmdir", rmdir("moved"));
    show("a directory of its own");
}

static void both(void)
{
    mkdir("below", 0700);
    make("below/file");
    make("below/other");
    watch("below", IN_OPEN | IN_CLOSE | IN_MODIFY | IN_EXCL_UNLINK);
    watch("below/file", IN_OPEN | IN_MODIFY);
    int fd = open("below/file", O_WRONLY), other = open("below/other", O_WRONLY);
    if (write(fd, "x", 1) != 1)
        tell("write", -1);
    show("a file and its directory");
    tell("unlink", unlink("below/other"));
    if (write(other, "x", 1) != 1)
        tell("write", -1);
    close(other);
    show("a file without a name is left out");
    close(fd);
    inotify_add_watch(events, "below", IN_MODIFY | IN_ISDIR | IN_ONESHOT);
    for (int round = 0; round < 2; round++) {
        fd = open("below/file", O_WRONLY | O_APPEND);
        if (write(fd, "x", 1) != 1)
            tell("write", -1);
        close(fd);
    }
    show("one event only");
    unlink("below/file");
    rmdir("below");
    show("removed");
}

static void directories(void)
{
    mkdir("one", 0700);
    mkdir("two", 0700);
    watch("one", IN_MOVE | IN_CREATE | IN_DELETE | IN_OPEN);
    watch("two", IN_MOVE | IN_CREATE | IN_DELETE | IN_OPEN);
    make("one/file");
    tell("rename", rename("one/file", "two/longer name of a file"));
    mkdir("one/deep", 0700);
    tell("rename", rename("one/deep", "two/deep"));
    close(open("two/deep", O_RDONLY | O_DIRECTORY));
    close(open("two/longer name of a file", O_RDONLY));
    close(open("two/longer name of a file", O_PATH));
    rmdir("two/deep");
    unlink("two/longer name of a file");
    show("from one to the other");
    rmdir("one");
    rmdir("two");
    show("both removed");
}

static void waits(void)
{
    struct pollfd poller = {events, POLLIN | POLLOUT, 0};
    struct epoll_event wanted = {EPOLLIN | EPOLLET, {0}}, ready;
    char buffer[64];
    int bytes, list = epoll_create1(0);
    int directory = watch(".", IN_CREATE | IN_DELETE);
    tell("epoll_ctl", epoll_ctl(list, EPOLL_CTL_ADD, events, &wanted));
    tell("poll", poll(&poller, 1, 0));
    make("file");
    tell("poll", poll(&poller, 1, 0));
    printf("%d\n", poller.revents);
    tell("epoll_wait", epoll_wait(list, &ready, 1, 0));
    tell("epoll_wait again", epoll_wait(list, &ready, 1, 0));
    unlink("file");
    tell("epoll_wait", epoll_wait(list, &ready, 1, 0));
    tell("FIONREAD", ioctl(events, FIONREAD, &bytes));
    tell("bytes", bytes);
    tell("too short", read(events, buffer, 16));
    tell("one event", read(events, buffer, 40));
    tell("FIONREAD", ioctl(events, FIONREAD, &bytes));
    tell("bytes", bytes);
    show("the other");
    if (fork() == 0) {
        struct inotify_event *event = (void *)buffer;
        fcntl(events, F_SETFL, 0);
        ssize_t got = read(events, buffer, sizeof buffer);
        _exit(got == 32 && event->mask == IN_CREATE ? 7 : 8);
    }
    int status;
    make("file");
    wait(&status);
    fcntl(events, F_SETFL, O_NONBLOCK);
    tell("a child has read", WEXITSTATUS(status));
    unlink("file");
    show("the rest");
    inotify_rm_watch(events, directory);
    show("ended");
    close(list);
}

static void lost(void)
{
    char name[2][16] = {"first", "second"};
    int bytes, count = 0;
    make(name[0]);
    make(name[1]);
    int directory = watch(".", IN_ATTRIB);
    for (int round = 0; round < 20000; round++)
        chmod(name[round % 2], 0600);
    ioctl(events, FIONREAD, &bytes);
    tell("bytes", bytes);
    char buffer[8192] __attribute__((aligned(8)));
    ssize_t got;
    while ((got = read(events, buffer, sizeof buffer)) > 0)
        for (char *at = buffer; at < buffer + got;) {
            struct inotify_event *event = (struct inotify_event *)at;
            if (event->mask & IN_Q_OVERFLOW)
                printf("lost after %d: %d %u\n", count, event->wd, event->len);
            count++;
            at += sizeof *event + event->len;
        }
    tell("events", count);
    unlink(name[0]);
    unlink(name[1]);
    inotify_rm_watch(events, directory);
    show("ended");
}

/* A thread shares the table of descriptors, so the files are closed where others may use them. */
static void *nothing(void *argument)
{
    char byte;
    if (read(*(int *)argument, &byte, 1) != 0)
        tell("end", -1);
    return NULL;
}

static void with_threads(void)
{
    pthread_t thread;
    int ends[2];
    if (pipe(ends) < 0)
        return;
    pthread_create(&thread, NULL, nothing, &ends[0]);
    int directory = watch(".", IN_OPEN | IN_CLOSE | IN_CREATE);
    make("file");
    show("made by one of two threads");
    close(ends[1]);
    pthread_join(thread, NULL);
    close(ends[0]);
    unlink("file");
    inotify_rm_watch(events, directory);
    show("ended");
}

/* A watch is told of nothing that came before it, also when threads share the table of descriptors. */
static void of_what_comes_later(void)
{
    enum { ROUNDS = 300 };
    pthread_t thread;
    int ends[2], bytes;
    char name[16];
    if (pipe(ends) < 0)
        return;
    pthread_create(&thread, NULL, nothing, &ends[0]);
    int own = inotify_init1(IN_NONBLOCK);
    for (int round = 0; round < ROUNDS; round++) {
        snprintf(name, sizeof name, "file%d", round);
        make(name);
        if (inotify_add_watch(own, name, IN_CLOSE) < 0)
            tell("watch", -1);
    }
    ioctl(own, FIONREAD, &bytes);
    tell("bytes of events of before", bytes);
    close(own);
    for (int round = 0; round < ROUNDS; round++) {
        snprintf(name, sizeof name, "file%d", round);
        unlink(name);
    }
    close(ends[1]);
    pthread_join(thread, NULL);
    close(ends[0]);
}

/* A file that is only mapped is not closed yet. */
static void mapped(void)
{
    make("file");
    int fd = open("file", O_RDWR);
    if (ftruncate(fd, 4096) < 0)
        tell("ftruncate", -1);
    watch("file", IN_CLOSE | IN_DELETE_SELF);
    char *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    at[0] = 1;
    show("mapped");
    munmap(at, 4096);
    inotify_rm_watch(events, 0);
    unlink("file");
    events = (close(events), inotify_init1(IN_NONBLOCK));
}

int main(int argc, char **argv)
{
    char directory[] = "inotify-XXXXXX";
    if (argc != 2 || chdir(argv[1]) < 0 || mkdtemp(directory) == NULL || chdir(directory) < 0)
        return 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    events = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    errors();
    of_a_directory();
    of_a_file();
    both();
    directories();
    waits();
    lost();
    with_threads();
    of_what_comes_later();
    mapped();
    close(events);
    return chdir("..") < 0 || rmdir(directory) < 0;
}

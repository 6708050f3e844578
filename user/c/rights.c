/* Descriptors in messages: of pairs for bytes and for messages, where reads stop, room that is missing,
 * sockets within sockets, limits. Prints what every Linux prints. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tell.h"

enum { MOST = 253 };
static union {
    char bytes[CMSG_SPACE(sizeof(int) * (MOST + 1))];
    struct cmsghdr align;
} room;

static long send_files(int to, const char *text, size_t len, const int *files, int count) {
    struct iovec part = {(void *)text, len};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &room};
    message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    *head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int) * count), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(head), files, sizeof(int) * count);
    /* That of musl allows 1 KiB of control messages. */
    return syscall(SYS_sendmsg, to, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static long send_file(int to, const char *text, int file) {
    return send_files(to, text, strlen(text), &file, 1);
}

/* Receives at most `len` bytes, with room for `most` descriptors, and says what came. Returns the first. */
static int receive(const char *what, int from, size_t len, int most, int flags) {
    static char bytes[4096];
    memset(bytes, 0, sizeof bytes);
    struct iovec part = {bytes, len};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (most >= 0) {
        message.msg_control = &room;
        message.msg_controllen = CMSG_LEN(sizeof(int) * most);
    }
    memset(&room, 0, sizeof room);
    long got = recvmsg(from, &message, flags | MSG_DONTWAIT);
    if (got < 0) {
        tell(what, got);
        return -1;
    }
    int files[MOST] = {-1}, count = 0;
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (head && message.msg_controllen >= sizeof *head && head->cmsg_type == SCM_RIGHTS) {
        count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(files, CMSG_DATA(head), count * sizeof(int));
    }
    printf("%s: %ld bytes %.40s, %d descriptors, flags %x, control %zu\n", what, got, bytes, count,
           message.msg_flags, (size_t)message.msg_controllen);
    for (int i = 1; i < count; i++)
        close(files[i]);
    return files[0];
}

static int open_files(void) {
    int count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static int pipe_end(int *other) {
    int ends[2];
    if (pipe(ends) < 0)
        abort();
    *other = ends[0];
    return ends[1];
}

/* Whether the other end of a pipe is closed. */
static int is_closed(int reader) {
    struct pollfd polled = {.fd = reader, .events = POLLIN};
    poll(&polled, 1, 0);
    return (polled.revents & POLLHUP) != 0;
}

/* Waits until it is. Linux closes descriptors of messages some time later, so a failure takes a minute. */
static int gets_closed(int reader) {
    struct pollfd polled = {.fd = reader, .events = POLLIN};
    poll(&polled, 1, 60000);
    return is_closed(reader);
}

static void passes(int type) {
    int pair[2], reader, writer = pipe_end(&reader), before = open_files();
    tell("pair", socketpair(AF_UNIX, type, 0, pair));
    tell("sent", send_file(pair[0], "a pipe", writer));
    close(writer);
    printf("closed while on its way: %d\n", is_closed(reader));
    writer = receive("received", pair[1], 100, 1, MSG_CMSG_CLOEXEC);
    printf("close on exec %d\n", fcntl(writer, F_GETFD));
    tell("it works", write(writer, "x", 1));
    tell("twice", send_files(pair[0], "two", 3, (int[]){writer, writer}, 2));
    receive("room for one", pair[1], 100, 1, 0);
    tell("again", send_file(pair[0], "b", writer));
    receive("no room", pair[1], 100, -1, 0);
    tell("again", send_file(pair[0], "c", writer));
    receive("no room for it", pair[1], 100, 0, 0);
    tell("again", send_file(pair[0], "d", writer));
    char byte;
    tell("a plain read", read(pair[1], &byte, 1));
    tell("never read", send_file(pair[0], "e", writer));
    close(writer);
    printf("not yet: %d\n", is_closed(reader));
    tell("bad descriptor", send_file(pair[0], "f", 999));
    tell("a bad place", send_files(pair[0], (char *)8, 1, &reader, 1));
    close(pair[1]);
    tell("none there", send_file(pair[0], "g", reader));
    /* A descriptor without room was closed at once. */
    close(pair[0]);
    printf("open files: %d more\n", open_files() - before + 1);
    close(reader);
}

static void bounds(void) {
    int pair[2], null = open("/dev/null", O_RDWR);
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    send(pair[0], "plain ", 6, 0);
    send_file(pair[0], "first", null);
    send(pair[0], " between ", 9, 0);
    send_file(pair[0], "second", null);
    send_file(pair[0], "third", null);
    send(pair[0], " rest", 5, 0);
    close(receive("up to the first", pair[1], 100, 4, 0));
    close(receive("three bytes", pair[1], 3, 4, 0));
    close(receive("up to the second", pair[1], 100, 4, 0));
    close(receive("one of the third", pair[1], 1, 4, 0));
    close(receive("the rest", pair[1], 100, 4, 0));
    close(receive("nothing", pair[1], 100, 4, 0));
    send_file(pair[0], "waits for more", null);
    close(receive("wait for all", pair[1], 100, 4, MSG_WAITALL));
    tell("no bytes", send_files(pair[0], "", 0, &null, 1));
    close(receive("so nothing", pair[1], 100, 4, 0));
    int many[MOST + 1];
    for (int i = 0; i <= MOST; i++)
        many[i] = null;
    tell("too many", send_files(pair[0], "m", 1, many, MOST + 1));
    tell("many", send_files(pair[0], "m", 1, many, MOST));
    close(receive("many", pair[1], 100, MOST, 0));
    close(pair[0]), close(pair[1]), close(null);
}

static void heads(void) {
    int pair[2], one = 1;
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    struct iovec part = {"x", 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &room};
    struct cmsghdr *head = &room.align;
    struct { size_t len, of; int level, type; } wrong[] = {
        {CMSG_SPACE(4), 8, SOL_SOCKET, SCM_RIGHTS}, {CMSG_SPACE(4), 100, SOL_SOCKET, SCM_RIGHTS},
        {CMSG_SPACE(4), CMSG_LEN(4), SOL_SOCKET, 77}, {CMSG_SPACE(4), CMSG_LEN(4), 99, 1},
        {8, CMSG_LEN(4), SOL_SOCKET, SCM_RIGHTS}, {CMSG_SPACE(0), CMSG_LEN(0), SOL_SOCKET, SCM_RIGHTS},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        message.msg_controllen = wrong[i].len;
        *head = (struct cmsghdr){.cmsg_len = wrong[i].of, .cmsg_level = wrong[i].level, .cmsg_type = wrong[i].type};
        memcpy(CMSG_DATA(head), &one, 4);
        tell("wrong", sendmsg(pair[0], &message, 0));
    }
    message.msg_control = NULL;
    tell("none", syscall(SYS_sendmsg, pair[0], &message, 0));
    message.msg_control = &room;
    struct ucred own = {getpid(), getuid(), getgid()};
    for (int i = 0; i < 2; i++, own.pid = 1 + (own.pid == 1)) {
        message.msg_controllen = CMSG_SPACE(sizeof own);
        *head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof own), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_CREDENTIALS};
        memcpy(CMSG_DATA(head), &own, sizeof own);
        if (i == 0)
            tell("credentials", sendmsg(pair[0], &message, 0));
    }
    close(pair[0]), close(pair[1]);
}

/* Says which process made the other side of a socket: none, this one or a child. */
static void made_by(const char *what, int fd, pid_t child) {
    struct ucred made = {-2, -2, -2};
    socklen_t size = sizeof made;
    tell(what, getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &made, &size));
    printf("made by %s, user known: %d, %d bytes\n",
           made.pid == 0 ? "none" : made.pid == getpid() ? "itself" : made.pid == child ? "the child" : "another",
           made.uid == getuid(), (int)size);
}

static void peers(void) {
    int pair[2], server = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "\0rights-peers"};
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    made_by("of a pair", pair[0], 0);
    close(pair[0]), close(pair[1]);
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    made_by("of one for messages", pair[0], 0);
    close(pair[0]), close(pair[1]);
    made_by("new", server, 0);
    bind(server, (struct sockaddr *)&name, sizeof name), listen(server, 1);
    made_by("that listens", server, 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int client = socket(AF_UNIX, SOCK_STREAM, 0);
        tell("connect", connect(client, (struct sockaddr *)&name, sizeof name));
        made_by("of the client", client, getppid());
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    int accepted = accept(server, NULL, NULL);
    made_by("of the server", accepted, child);
    close(accepted), close(server);
}

/* A child that gets its descriptors by a message, as servers hand them to their workers. */
static void between_processes(void) {
    int pair[2], reader, writer = pipe_end(&reader);
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close(pair[0]), close(writer), close(reader);
        struct pollfd polled = {.fd = pair[1], .events = POLLIN};
        poll(&polled, 1, -1);
        int file = receive("in the child", pair[1], 10, 1, 0);
        fflush(stdout);
        _exit(write(file, "from the child", 14) != 14);
    }
    close(pair[1]);
    send_file(pair[0], "work", writer);
    close(writer);
    char bytes[20] = "";
    int status;
    waitpid(child, &status, 0);
    tell("status", status);
    tell("read", read(reader, bytes, sizeof bytes));
    tell("then the end", read(reader, bytes, sizeof bytes));
    close(reader), close(pair[0]);
}

/* Sockets that are in messages of themselves and of one another: their files must be closed some time. */
static void cycles(int type, int rounds) {
    int reader, writer = pipe_end(&reader), failed = 0;
    for (int i = 0; i < rounds; i++) {
        int one[2], two[2];
        if (socketpair(AF_UNIX, type, 0, one) < 0 || socketpair(AF_UNIX, type, 0, two) < 0)
            abort();
        failed |= send_file(one[0], "itself", one[1]) != 6;
        failed |= send_file(one[0], "the other", two[1]) != 9;
        failed |= send_file(two[0], "and back", one[1]) != 8;
        failed |= send_file(two[0], "a pipe", writer) != 6;
        close(one[0]), close(one[1]), close(two[0]), close(two[1]);
    }
    close(writer);
    /* Linux collects them as sockets close, we as sockets are sent. */
    for (int i = 0; i < 100 && !is_closed(reader); i++) {
        int pair[2], other[2];
        socketpair(AF_UNIX, type, 0, pair), socketpair(AF_UNIX, type, 0, other);
        for (int j = 0; j < 40; j++)
            failed |= send_file(pair[0], "x", other[0]) != 1;
        close(pair[0]), close(pair[1]), close(other[0]), close(other[1]);
    }
    printf("cycles: failed %d, collected %d\n", failed, gets_closed(reader));
    close(reader);
}

/* Sockets that go in more and more messages, then with many other files: room for others comes back. */
static void crowds(void) {
    int pair[2], sent[2], many[MOST], failed = 0;
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), socketpair(AF_UNIX, SOCK_DGRAM, 0, sent);
    for (int i = 0; i < MOST; i++)
        many[i] = sent[0];
    for (int i = 0; i < 4; i++)
        failed += send_files(pair[0], "m", 1, many, MOST) != 1;
    send_files(pair[0], "m", 1, many, MOST);
    close(pair[0]), close(pair[1]), close(sent[0]), close(sent[1]);
    for (int i = 0; i < 1200; i++) {
        socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
        failed += send_file(pair[0], "itself", pair[1]) != 6;
        close(pair[0]), close(pair[1]);
    }
    printf("after a crowd of sockets: failed %d\n", failed);
    int null = open("/dev/null", O_RDWR);
    for (int i = 0; i < MOST; i++)
        many[i] = null;
    for (int i = 0; i < 12; i++) {
        socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
        failed += send_files(pair[0], "m", 1, many, MOST) != 1;
        failed += send_file(pair[0], "itself", pair[1]) != 6;
        close(pair[0]), close(pair[1]);
    }
    close(null);
    printf("after a crowd of files: failed %d\n", failed);
}

static int named(const char *name, int kind, int (*use)(int, const struct sockaddr *, socklen_t)) {
    int fd = socket(AF_UNIX, kind, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path + 1, name);
    if (use(fd, (struct sockaddr *)&address, sizeof address) < 0)
        abort();
    return fd;
}

/* Sockets that listen, in a message of a connection that waits there. */
static void listeners(void) {
    int reader, writer = pipe_end(&reader), failed = 0;
    for (int i = 0; i < 1200; i++) {
        char name[30];
        sprintf(name, "rights-listener-%d", i);
        int server = named(name, SOCK_STREAM, bind);
        listen(server, 1);
        int client = named(name, SOCK_STREAM, connect);
        failed += send_files(client, "m", 1, (int[]){server, writer}, i == 0 ? 2 : 1) != 1;
        close(server), close(client);
    }
    close(writer);
    printf("listeners: failed %d, collected %d\n", failed, gets_closed(reader));
    close(reader);
}

/* Sockets that are connected while they are in messages. */
static void connected_later(void) {
    int reader, writer = pipe_end(&reader), failed = 0, server = named("rights-later", SOCK_STREAM, bind);
    listen(server, 1);
    struct sockaddr_un address;
    socklen_t size = sizeof address;
    getsockname(server, (struct sockaddr *)&address, &size);
    for (int i = 0; i < 600; i++) {
        int client = socket(AF_UNIX, SOCK_STREAM, 0), pair[2];
        socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
        failed += send_file(pair[0], "m", client) != 1;
        failed += connect(client, (struct sockaddr *)&address, size) != 0;
        int accepted = accept(server, NULL, NULL);
        failed += send_files(accepted, "m", 1, (int[]){pair[1], writer}, i == 0 ? 2 : 1) != 1;
        close(accepted), close(client), close(pair[0]), close(pair[1]);
    }
    close(writer), close(server);
    printf("connected later: failed %d, collected %d\n", failed, gets_closed(reader));
    close(reader);
}

/* A socket in a message to a socket in a message, and so on. Closing the first closes all. */
static void chain(int length) {
    int reader, writer = pipe_end(&reader), failed = 0, first[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, first);
    failed |= send_file(first[0], "end", writer) != 3;
    close(writer), close(first[0]);
    int last = first[1];
    for (int i = 0; i < length; i++) {
        int pair[2];
        socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
        failed |= send_file(pair[0], "link", last) != 4;
        close(pair[0]), close(last);
        last = pair[1];
    }
    int before = is_closed(reader);
    close(last);
    printf("chain: failed %d, closed %d, then %d\n", failed, before, gets_closed(reader));
    close(reader);
}

int main(void) {
    int before = open_files();
    passes(SOCK_STREAM);
    passes(SOCK_DGRAM);
    bounds();
    heads();
    between_processes();
    peers();
    cycles(SOCK_STREAM, 300);
    cycles(SOCK_DGRAM, 300);
    crowds();
    listeners();
    connected_later();
    chain(500);
    printf("open files: %d more\n", open_files() - before);
}

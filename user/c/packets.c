/* Messages in order on a connection (SOCK_SEQPACKET), and messages that name their senders (SO_PASSCRED,
 * SCM_CREDENTIALS). Prints what every Linux prints. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tell.h"

static char bytes[70000];

static void look(const char *what, int file) {
    struct pollfd polled = {.fd = file, .events = POLLIN | POLLOUT | POLLRDHUP};
    poll(&polled, 1, 0);
    printf("%s: %x\n", what, polled.revents);
}

static void option(const char *what, int file, int name) {
    int value = -1;
    socklen_t size = sizeof value;
    tell(what, getsockopt(file, SOL_SOCKET, name, &value, &size));
    printf("value %d of %u bytes\n", value, size);
}

static void bounds(void) {
    int pair[2], value;
    tell("pair", socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
    option("type", pair[0], SO_TYPE);
    look("new", pair[0]);
    tell("one", write(pair[0], "first", 5));
    tell("two", send(pair[0], "the second", 10, MSG_EOR));
    tell("none", send(pair[0], "", 0, 0));
    tell("three", send(pair[0], "third", 5, 0));
    look("with messages", pair[1]);
    ioctl(pair[1], FIONREAD, &value);
    printf("waiting %d\n", value);
    tell("peek", recv(pair[1], bytes, 3, MSG_PEEK));
    tell("its length", recv(pair[1], bytes, 3, MSG_PEEK | MSG_TRUNC));
    tell("first", read(pair[1], bytes, 100));
    struct iovec parts[2] = {{bytes, 2}, {bytes + 100, 3}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    tell("cut", recvmsg(pair[1], &message, 0));
    printf("flags %x, %.2s %.3s, name %u\n", message.msg_flags, bytes, bytes + 100, message.msg_namelen);
    tell("empty", recv(pair[1], bytes, 100, 0));
    tell("third", recv(pair[1], bytes, 100, MSG_WAITALL));
    tell("no more", recv(pair[1], bytes, 100, MSG_DONTWAIT));
    memset(bytes, 'x', sizeof bytes);
    tell("large", send(pair[1], bytes, 65536, 0));
    tell("whole", recv(pair[0], bytes, sizeof bytes, 0));
    tell("a bad source", send(pair[1], (void *)8, 1, 0));
    int count = 0;
    while (send(pair[1], "m", 1, MSG_DONTWAIT) == 1)
        count++;
    printf("room for some: %d, then %d\n", count > 10, errno == EAGAIN);
    while (recv(pair[0], bytes, 1, MSG_DONTWAIT) == 1)
        ;
    tell("the last", send(pair[1], "last", 4, 0));
    tell("ended", shutdown(pair[1], SHUT_WR));
    look("ended one way", pair[0]);
    tell("after it", send(pair[1], "m", 1, 0));
    tell("the rest", recv(pair[0], bytes, 100, 0));
    tell("at the end", recv(pair[0], bytes, 100, 0));
    tell("at the end, without waiting", recv(pair[0], bytes, 100, MSG_DONTWAIT));
    tell("the other way", send(pair[0], "m", 1, 0));
    tell("arrives", read(pair[1], bytes, 100));
    close(pair[1]);
    look("closed", pair[0]);
    tell("to a closed one", send(pair[0], "m", 1, 0));
    tell("by write", write(pair[0], "m", 1));
    tell("from a closed one", recv(pair[0], bytes, 100, 0));
    close(pair[0]);
}

static struct sockaddr_un named(const char *name, socklen_t *size) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path + (*name == '@'), name + (*name == '@'), strlen(name) - (*name == '@'));
    *size = offsetof(struct sockaddr_un, sun_path) + strlen(name) + (*name != '@');
    return address;
}

static int at(int kind, const char *name) {
    socklen_t size;
    struct sockaddr_un address = named(name, &size);
    int fd = socket(AF_UNIX, kind, 0);
    tell("bound", bind(fd, (struct sockaddr *)&address, size));
    return fd;
}

static int joined(int fd, const char *name) {
    socklen_t size;
    struct sockaddr_un address = named(name, &size);
    return connect(fd, (struct sockaddr *)&address, size);
}

static void connections(const char *name, const char *other) {
    unlink(name);
    unlink(other);
    int listener = at(SOCK_SEQPACKET, name), client = at(SOCK_SEQPACKET, other);
    tell("not listening", joined(client, name));
    tell("listens", listen(listener, 2));
    option("accepts", listener, SO_ACCEPTCONN);
    look("nobody came", listener);
    int stream = socket(AF_UNIX, SOCK_STREAM, 0), single = socket(AF_UNIX, SOCK_DGRAM, 0);
    tell("a stream", joined(stream, name));
    tell("a socket for messages", joined(single, name));
    tell("unconnected", send(client, "m", 1, 0));
    tell("nothing to read", recv(client, bytes, 1, 0));
    look("unconnected", client);
    tell("connects", joined(client, name));
    tell("again", joined(client, name));
    tell("early", send(client, "early", 5, 0));
    look("a connection", listener);
    struct sockaddr_un peer = {0};
    socklen_t size = sizeof peer;
    int server = accept(listener, (struct sockaddr *)&peer, &size);
    printf("accepted %d, from %s\n", server >= 0, peer.sun_path + (*name == '@'));
    struct iovec part = {bytes, 100};
    struct msghdr message = {.msg_name = &peer, .msg_namelen = sizeof peer, .msg_iov = &part, .msg_iovlen = 1};
    memset(&peer, 0, sizeof peer);
    tell("early message", recvmsg(server, &message, 0));
    printf("from %s\n", peer.sun_path + (*name == '@'));
    struct sockaddr_un nowhere = named("@nowhere", &size);
    tell("an address is ignored", sendto(server, "back", 4, 0, (struct sockaddr *)&nowhere, size));
    tell("back", recv(client, bytes, 100, 0));
    close(client);
    tell("closed", recv(server, bytes, 100, 0));
    close(server), close(listener), close(stream), close(single);
    unlink(name);
    unlink(other);
}

static void other_domains(void) {
    tell("of the Internet", socket(AF_INET, SOCK_SEQPACKET, 0));
    int fd[2];
    tell("pair of the Internet", socketpair(AF_INET, SOCK_SEQPACKET, 0, fd));
}

/* Receives a message with room for control messages, and says who sent it. */
static void receive(const char *what, int fd, pid_t known, size_t room) {
    char control[256] = {0};
    struct iovec part = {bytes, 100};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = room};
    long got = recvmsg(fd, &message, MSG_DONTWAIT);
    tell(what, got);
    if (got < 0)
        return;
    printf("flags %x, control %zu\n", message.msg_flags, (size_t)message.msg_controllen);
    for (struct cmsghdr *head = CMSG_FIRSTHDR(&message); head; head = CMSG_NXTHDR(&message, head)) {
        printf("kind %d, length %zu\n", head->cmsg_type, (size_t)head->cmsg_len);
        struct ucred *sender = (void *)CMSG_DATA(head);
        if (head->cmsg_type == SCM_CREDENTIALS && head->cmsg_len == CMSG_LEN(sizeof *sender))
            printf("pid %s, user %s\n", sender->pid == known ? "known" : sender->pid == 0 ? "none" : "another",
                   sender->uid == getuid() ? "own" : sender->uid == 65534 ? "none" : "another");
        if (head->cmsg_type == SCM_RIGHTS)
            close(*(int *)CMSG_DATA(head));
    }
}

static void ask(int fd, int yes) {
    tell("ask", setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes));
}

/* Sends a message with the credentials of a process, and with a descriptor if there is one. */
static void send_as(const char *what, int fd, pid_t pid, int with) {
    char control[256] = {0};
    struct iovec part = {"named", 5};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    *head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(struct ucred)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_CREDENTIALS};
    struct ucred sender = {pid, getuid(), getgid()};
    memcpy(CMSG_DATA(head), &sender, sizeof sender);
    message.msg_controllen = CMSG_SPACE(sizeof sender);
    if (with >= 0) {
        head = (void *)(control + message.msg_controllen);
        *head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof with), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(head), &with, sizeof with);
        message.msg_controllen += CMSG_SPACE(sizeof with);
    }
    tell(what, sendmsg(fd, &message, 0));
}

/* Bytes of one sender come together, and not with those of another one. */
static void long_ones(int *pair) {
    pid_t me = getpid();
    send(pair[0], bytes, 10000, 0);
    send(pair[0], bytes, 10000, 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(write(pair[0], "child", 5) != 5);
    waitpid(child, NULL, 0);
    char control[64];
    struct iovec part = {bytes, sizeof bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    tell("long", recvmsg(pair[1], &message, 0));
    struct ucred *sender = (void *)CMSG_DATA(CMSG_FIRSTHDR(&message));
    printf("its pid is known: %d\n", sender->pid == me);
    receive("of the child", pair[1], child, 256);
}

static void senders(int kind) {
    int pair[2];
    pid_t me = getpid();
    printf("kind %d\n", kind);
    socketpair(AF_UNIX, kind, 0, pair);
    option("not asked", pair[0], SO_PASSCRED);
    send(pair[0], "before", 6, 0);
    receive("not named", pair[1], me, 256);
    send_as("named, not asked", pair[0], me, -1);
    receive("not told", pair[1], me, 256);
    send_as("named by itself", pair[0], me, -1);
    ask(pair[1], 1);
    option("asked", pair[1], SO_PASSCRED);
    receive("told", pair[1], me, 256);
    send(pair[0], "plain", 5, 0);
    receive("told", pair[1], me, 256);
    tell("by write", write(pair[0], "plain", 5));
    receive("told", pair[1], me, 256);
    send_as("with a descriptor", pair[0], me, 1);
    receive("told", pair[1], me, 256);
    send(pair[0], "plain", 5, 0);
    receive("too little room", pair[1], me, sizeof(struct cmsghdr) + 4);
    send(pair[0], "plain", 5, 0);
    receive("no room", pair[1], me, 0);
    send_as("with a descriptor", pair[0], me, 1);
    receive("room for one", pair[1], me, CMSG_SPACE(sizeof(struct ucred)));
    send_as("a process that does not exist", pair[0], 0x3fffffff, -1);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(write(pair[0], "child", 5) != 5);
    waitpid(child, NULL, 0);
    write(pair[0], "parent", 6);
    receive("of a child", pair[1], child, 256);
    receive("of the parent", pair[1], me, 256);
    if (kind == SOCK_STREAM)
        long_ones(pair);
    ask(pair[1], 0);
    send(pair[0], "after", 5, 0);
    receive("not asked any more", pair[1], me, 256);
    ask(pair[0], 1);
    send(pair[0], "asks itself", 11, 0);
    receive("told the sender only", pair[1], me, 256);
    close(pair[0]), close(pair[1]);
}

/* A message that was sent before a connection was accepted names its sender. */
static void accepted(int kind) {
    int listener = at(kind, "@accepted"), client = socket(AF_UNIX, kind, 0);
    listen(listener, 1);
    ask(listener, 1);
    tell("connects", joined(client, "@accepted"));
    tell("early", send(client, "early", 5, 0));
    int server = accept(listener, NULL, NULL);
    option("inherited", server, SO_PASSCRED);
    receive("told", server, getpid(), 256);
    tell("late", send(client, "late", 4, 0));
    receive("told", server, getpid(), 256);
    close(client), close(server), close(listener);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    bounds();
    connections("/tmp/packets", "/tmp/packets2");
    connections("@packets", "@packets2");
    other_domains();
    senders(SOCK_STREAM);
    senders(SOCK_DGRAM);
    senders(SOCK_SEQPACKET);
    accepted(SOCK_STREAM);
    accepted(SOCK_SEQPACKET);
    return 0;
}

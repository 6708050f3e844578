/* Sockets for messages: pairs, Unix names of both kinds, UDP of both versions, peers, bounds of messages,
 * ends, what is ready, errors. Prints what every Linux prints. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tell.h"

static char bytes[300000];

static void look(const char *what, int file) {
    struct pollfd polled = {.fd = file, .events = POLLIN | POLLOUT | POLLRDHUP};
    poll(&polled, 1, 0);
    printf("%s: %x\n", what, polled.revents);
}

static void pairs(void) {
    int pair[2], value;
    socklen_t size = sizeof value;
    tell("pair", socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    getsockopt(pair[0], SOL_SOCKET, SO_TYPE, &value, &size);
    printf("type %d\n", value);
    look("new", pair[0]);
    tell("one", write(pair[0], "first", 5));
    tell("two", send(pair[0], "the second", 10, 0));
    tell("none", send(pair[0], "", 0, 0));
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
    tell("no more", recv(pair[1], bytes, 100, MSG_DONTWAIT));
    memset(bytes, 'x', sizeof bytes);
    bytes[65535] = 'y';
    tell("large", send(pair[1], bytes, 65536, 0));
    memset(bytes, 0, sizeof bytes);
    tell("whole", recv(pair[0], bytes, sizeof bytes, 0));
    printf("ends %c%c\n", bytes[65534], bytes[65535]);
    tell("too large", send(pair[1], bytes, sizeof bytes, 0));
    int count = 0;
    while (send(pair[1], "m", 1, MSG_DONTWAIT) == 1)
        count++;
    printf("room for some: %d, then %d\n", count > 10, errno == EAGAIN);
    look("full", pair[1]);
    tell("a bad place", recv(pair[0], (void *)8, 1, 0));
    tell("listen", listen(pair[0], 1));
    tell("accept", accept(pair[0], NULL, NULL));
    tell("a bad source", send(pair[1], (void *)8, 1, 0));
    tell("ended", shutdown(pair[0], SHUT_RD));
    tell("to the end", send(pair[1], "m", 1, MSG_DONTWAIT));
    tell("the rest", recv(pair[0], bytes, 1, 0));
    while (recv(pair[0], bytes, 1, MSG_DONTWAIT) == 1)
        ;
    tell("at the end", recv(pair[0], bytes, 1, 0));
    look("ended one way", pair[0]);
    tell("the other way", shutdown(pair[0], SHUT_WR));
    signal(SIGPIPE, SIG_IGN);
    tell("after it", send(pair[0], "m", 1, 0));
    look("ended both ways", pair[0]);
    close(pair[0]);
    tell("to a closed one", send(pair[1], "m", 1, 0));
    close(pair[1]);
}

static struct sockaddr_un named(const char *name, socklen_t *size) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path + (*name == '@'), name + (*name == '@'), strlen(name) - (*name == '@'));
    *size = offsetof(struct sockaddr_un, sun_path) + strlen(name) + (*name != '@');
    return address;
}

static int at(const char *name) {
    socklen_t size;
    struct sockaddr_un address = named(name, &size);
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    tell("bound", bind(fd, (struct sockaddr *)&address, size));
    return fd;
}

static long to(int fd, const char *name, const char *text) {
    socklen_t size;
    struct sockaddr_un address = named(name, &size);
    return sendto(fd, text, strlen(text), 0, (struct sockaddr *)&address, size);
}

static int joined(int fd, const char *name) {
    socklen_t size;
    struct sockaddr_un address = named(name, &size);
    return connect(fd, (struct sockaddr *)&address, size);
}

static void from(int fd) {
    struct sockaddr_un address = {0};
    socklen_t size = sizeof address;
    memset(bytes, 0, 64);
    long len = recvfrom(fd, bytes, 64, MSG_DONTWAIT, (struct sockaddr *)&address, &size);
    if (len < 0)
        tell("from", len);
    else
        printf("from %d bytes of address %s%s: %s\n", (int)size, address.sun_path[0] ? "" : "@",
               size > 2 ? address.sun_path + !address.sun_path[0] : "-", bytes);
}

static void names(void) {
    unlink("/tmp/datagrams-1");
    unlink("/tmp/datagrams-2");
    int one = at("/tmp/datagrams-1"), two = at("@datagrams-two"), free = socket(AF_UNIX, SOCK_DGRAM, 0);
    tell("without an address", send(free, "m", 1, 0));
    tell("unnamed to a path", to(free, "/tmp/datagrams-1", "hello"));
    from(one);
    tell("abstract to a path", to(two, "/tmp/datagrams-1", "from two"));
    from(one);
    tell("path to abstract", to(one, "@datagrams-two", "from one"));
    from(two);
    tell("no file", to(free, "/tmp/datagrams-none", "m"));
    tell("no name", to(free, "@datagrams-none", "m"));
    tell("a stream there", (close(at("/tmp/datagrams-2")), to(free, "/tmp/datagrams-2", "m")));
    int stream = socket(AF_UNIX, SOCK_STREAM, 0);
    tell("by a stream", joined(stream, "/tmp/datagrams-1"));
    close(stream);
    tell("connect", joined(free, "/tmp/datagrams-1"));
    tell("to the peer", send(free, "by connect", 10, 0));
    from(one);
    tell("to another", to(free, "@datagrams-two", "not the peer"));
    from(two);
    tell("connected to two", joined(one, "@datagrams-two"));
    tell("refused by one", send(free, "m", 1, 0));
    tell("and at its name", to(free, "/tmp/datagrams-1", "m"));
    tell("taken from two", to(two, "/tmp/datagrams-1", "ok"));
    from(one);
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    tell("disconnected", connect(one, &none, sizeof none));
    tell("again", send(free, "again", 5, 0));
    from(one);
    struct sockaddr_un address;
    socklen_t size = sizeof address;
    tell("its peer", getpeername(one, (struct sockaddr *)&address, &size));
    size = sizeof address;
    tell("free's peer", getpeername(free, (struct sockaddr *)&address, &size));
    printf("%s\n", address.sun_path);
    close(one);
    tell("closed", send(free, "m", 1, 0));
    close(two), close(free);
    two = at("@datagrams-two");
    close(two);
    unlink("/tmp/datagrams-1");
    unlink("/tmp/datagrams-2");
}

static int port_of(int fd) {
    struct sockaddr_in6 address;
    socklen_t size = sizeof address;
    getsockname(fd, (struct sockaddr *)&address, &size);
    return ntohs(address.sin6_port); /* where it is in both versions */
}

static struct sockaddr_in v4(const char *ip, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, ip, &address.sin_addr);
    return address;
}

static void udp(void) {
    int server = socket(AF_INET, SOCK_DGRAM, IPPROTO_UDP), client = socket(AF_INET, SOCK_DGRAM, 0), value;
    socklen_t size = sizeof value;
    struct sockaddr_in here = v4("127.0.0.1", 0), sender;
    getsockopt(server, SOL_SOCKET, SO_PROTOCOL, &value, &size);
    printf("protocol %d\n", value);
    tell("bind", bind(server, (struct sockaddr *)&here, sizeof here));
    int other = socket(AF_INET, SOCK_DGRAM, 0), tcp = socket(AF_INET, SOCK_STREAM, 0), port, by_tcp;
    /* Another program may have the port by TCP. */
    for (int tries = 0;; tries++) {
        port = port_of(server);
        here = v4("127.0.0.1", port);
        by_tcp = bind(tcp, (struct sockaddr *)&here, sizeof here);
        if (by_tcp == 0 || errno != EADDRINUSE || tries == 100)
            break;
        close(server);
        server = socket(AF_INET, SOCK_DGRAM, 0);
        here = v4("127.0.0.1", 0);
        bind(server, (struct sockaddr *)&here, sizeof here);
    }
    tell("not by TCP", by_tcp);
    tell("taken", bind(other, (struct sockaddr *)&here, sizeof here));
    close(tcp);
    tell("without an address", send(client, "m", 1, 0));
    printf("a port already: %d\n", port_of(client) != 0);
    tell("request", sendto(client, "request", 7, 0, (struct sockaddr *)&here, sizeof here));
    printf("a port: %d\n", port_of(client) != 0);
    size = sizeof sender;
    tell("arrived", recvfrom(server, bytes, 100, 0, (struct sockaddr *)&sender, &size));
    printf("from %s, %d bytes, its port: %d\n", inet_ntoa(sender.sin_addr), (int)size,
           ntohs(sender.sin_port) == port_of(client));
    tell("answer", sendto(server, "answer", 6, 0, (struct sockaddr *)&sender, size));
    tell("back", recv(client, bytes, 100, 0));
    tell("connect", connect(client, (struct sockaddr *)&here, sizeof here));
    size = sizeof sender;
    getsockname(client, (struct sockaddr *)&sender, &size);
    printf("its own address is %s now\n", inet_ntoa(sender.sin_addr));
    tell("to the peer", write(client, "two", 3));
    tell("there", read(server, bytes, 100));
    tell("of others", sendto(other, "x", 1, 0, (struct sockaddr *)&sender, sizeof sender));
    tell("is not taken", recv(client, bytes, 100, MSG_DONTWAIT));
    tell("too large", sendto(client, bytes, 65508, 0, NULL, 0));
    tell("the largest", send(client, bytes, 65507, 0));
    tell("is whole", recv(server, bytes, sizeof bytes, 0));
    for (int i = 0; i < 100; i++)
        send(client, bytes, 60000, 0);
    /* Linux may deliver some time after the call if it is busy. */
    poll(&(struct pollfd){.fd = server, .events = POLLIN}, 1, 10000);
    tell("lost, not waited for", recv(server, bytes, 100, MSG_DONTWAIT));
    close(server);
    tell("to a closed port", send(client, "m", 1, 0));
    poll(&(struct pollfd){.fd = client}, 1, 10000);
    look("an error", client);
    tell("is said", recv(client, bytes, 1, MSG_DONTWAIT));
    tell("once", recv(client, bytes, 1, MSG_DONTWAIT));
    tell("sent once more", send(client, "m", 1, 0));
    size = sizeof value;
    getsockopt(client, SOL_SOCKET, SO_ERROR, &value, &size);
    printf("pending %d\n", value == ECONNREFUSED);
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    tell("disconnect", connect(client, &none, sizeof none));
    tell("shutdown", shutdown(client, SHUT_RDWR));
    tell("a raw one", socket(AF_INET, SOCK_DGRAM, IPPROTO_TCP));
    close(client), close(other);
}

static void version6(void) {
    int server = socket(AF_INET6, SOCK_DGRAM, 0), client = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any}, sender;
    if (server < 0 || bind(server, (struct sockaddr *)&any, sizeof any) < 0) {
        /* A machine without version 6. */
        printf("version 4 to 6: 5\nfrom ::ffff:127.0.0.1\nback: 4\nfrom 127.0.0.1\n");
        return;
    }
    struct sockaddr_in here = v4("127.0.0.1", port_of(server)), back;
    tell("version 4 to 6", sendto(client, "hello", 5, 0, (struct sockaddr *)&here, sizeof here));
    socklen_t size = sizeof sender;
    recvfrom(server, bytes, 100, 0, (struct sockaddr *)&sender, &size);
    char text[64];
    printf("from %s\n", inet_ntop(AF_INET6, &sender.sin6_addr, text, sizeof text));
    tell("back", sendto(server, "back", 4, 0, (struct sockaddr *)&sender, size));
    size = sizeof back;
    recvfrom(client, bytes, 100, 0, (struct sockaddr *)&back, &size);
    printf("from %s\n", inet_ntoa(back.sin_addr));
    close(server), close(client);
}

enum { MESSAGES = 2000 };
static int shared[2];

static void *sends(void *first) {
    for (unsigned n = 0; n < MESSAGES; n++) {
        unsigned message[2] = {(unsigned)(unsigned long)first, n};
        if (send(shared[0], message, sizeof message, 0) != sizeof message)
            abort();
    }
    return NULL;
}

static int signals;

static void count(int signal) {
    signals += signal == SIGPIPE;
}

static void *sends_on(void *fd) {
    while (send(*(int *)fd, bytes, 10000, 0) > 0)
        ;
    return (void *)(long)errno;
}

/* Ends and peers that are gone: whether a signal comes, and what who waits or does not is told. */
static void ends(void) {
    signal(SIGPIPE, count);
    socketpair(AF_UNIX, SOCK_DGRAM, 0, shared);
    struct iovec part = {"m", 1};
    shutdown(shared[0], SHUT_WR);
    tell("written after the end", write(shared[0], "m", 1));
    tell("and from a list", writev(shared[0], &part, 1));
    tell("and sent", send(shared[0], "m", 1, 0));
    printf("signals %d\n", signals);
    shutdown(shared[0], SHUT_RD);
    tell("at the end, without waiting", recv(shared[0], bytes, 1, MSG_DONTWAIT));
    tell("with waiting", recv(shared[0], bytes, 1, 0));
    close(shared[0]);
    tell("to a peer that is gone", send(shared[1], "m", 1, 0));
    tell("that is known", send(shared[1], "m", 1, 0));
    close(shared[1]);

    socketpair(AF_UNIX, SOCK_DGRAM, 0, shared);
    while (send(shared[0], bytes, 10000, MSG_DONTWAIT) > 0)
        ;
    look("full of large ones", shared[0]);
    pthread_t thread;
    void *error;
    pthread_create(&thread, NULL, sends_on, &shared[0]);
    for (int i = 0; i < 100; i++)
        sched_yield();
    shutdown(shared[0], SHUT_WR);
    pthread_join(thread, &error);
    printf("a sender that waits: %s\n", strerror((long)error));
    close(shared[0]), close(shared[1]);

    int server = socket(AF_INET, SOCK_DGRAM, 0), client = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in here = v4("127.0.0.1", 0);
    bind(server, (struct sockaddr *)&here, sizeof here);
    here = v4("127.0.0.1", port_of(server));
    connect(client, (struct sockaddr *)&here, sizeof here);
    tell("UDP", shutdown(client, SHUT_WR));
    tell("at its end", send(client, "m", 1, 0));
    here.sin_port = 0;
    tell("to port 0", sendto(server, "m", 1, 0, (struct sockaddr *)&here, sizeof here));
    close(server), close(client);
}

static void *receives(void *fd) {
    long len = recv(*(int *)fd, bytes, 1, 0);
    return (void *)(len < 0 ? (long)errno : 0);
}

/* A connected UDP socket with nothing at the other side: an edge, and a reader that waits. */
static void refused(void) {
    int server = socket(AF_INET, SOCK_DGRAM, 0), client = socket(AF_INET, SOCK_DGRAM, 0), list = epoll_create1(0);
    struct sockaddr_in there = v4("127.0.0.1", 0), own;
    bind(server, (struct sockaddr *)&there, sizeof there);
    there = v4("127.0.0.1", port_of(server));
    close(server);
    connect(client, (struct sockaddr *)&there, sizeof there);
    own = v4("127.0.0.1", port_of(client));
    struct epoll_event event = {.events = EPOLLIN | EPOLLET}, got;
    epoll_ctl(list, EPOLL_CTL_ADD, client, &event);
    send(client, "m", 1, 0);
    tell("an edge of the error", epoll_wait(list, &got, 1, 1000));
    tell("which is", recv(client, bytes, 1, MSG_DONTWAIT));
    server = socket(AF_INET, SOCK_DGRAM, 0);
    bind(server, (struct sockaddr *)&there, sizeof there);
    sendto(server, "m", 1, 0, (struct sockaddr *)&own, sizeof own);
    tell("an edge of the message after it", epoll_wait(list, &got, 1, 1000));
    recv(client, bytes, 1, MSG_DONTWAIT);
    close(server), close(list);
    int told = 0;
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        void *error;
        pthread_create(&thread, NULL, receives, &client);
        for (int j = 0; j < 100; j++)
            sched_yield();
        send(client, "m", 1, 0);
        pthread_join(thread, &error);
        told += (long)error == ECONNREFUSED;
    }
    printf("readers told: %d\n", told);
    close(client);
}

/* Heads of messages that are wrong do not cost the message. */
static void heads(void) {
    socketpair(AF_UNIX, SOCK_DGRAM, 0, shared);
    struct sockaddr_un name;
    struct iovec part = {bytes, 4};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_name = &name, .msg_namelen = (socklen_t)-1};
    tell("a negative length", sendmsg(shared[0], &message, 0));
    send(shared[0], "kept", 4, 0);
    tell("also to receive", recvmsg(shared[1], &message, MSG_DONTWAIT));
    message = (struct msghdr){.msg_iov = &part, .msg_iovlen = 1, .msg_namelen = 77};
    tell("kept", recvmsg(shared[1], &message, MSG_DONTWAIT));
    printf("length of no name %d\n", (int)message.msg_namelen);
    close(shared[0]), close(shared[1]);
}

/* Several senders wait for one reader: each one's messages come in order, and none is lost. */
static void senders_that_wait(void) {
    socketpair(AF_UNIX, SOCK_DGRAM, 0, shared);
    pthread_t threads[3];
    for (unsigned long i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, sends, (void *)i);
    unsigned next[3] = {0}, wrong = 0;
    for (int i = 0; i < 3 * MESSAGES; i++) {
        unsigned message[2];
        if (recv(shared[1], message, sizeof message, 0) != sizeof message || message[1] != next[message[0] % 3]++)
            wrong++;
    }
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    printf("wrong %u, left %ld\n", wrong, (long)recv(shared[1], bytes, 1, MSG_DONTWAIT));
    close(shared[0]), close(shared[1]);
}

/* A reader that waits by epoll, edge by edge. */
static void edges(void) {
    int list = epoll_create1(0);
    socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, shared);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET}, got;
    epoll_ctl(list, EPOLL_CTL_ADD, shared[1], &event);
    tell("nothing", epoll_wait(list, &got, 1, 0));
    send(shared[0], "a", 1, 0);
    tell("an edge", epoll_wait(list, &got, 1, 1000));
    tell("none", epoll_wait(list, &got, 1, 0));
    send(shared[0], "b", 1, 0);
    tell("another", epoll_wait(list, &got, 1, 1000));
    pid_t child = fork();
    if (child == 0) {
        close(shared[1]);
        _exit(send(shared[0], "c", 1, 0) != 1);
    }
    int status;
    waitpid(child, &status, 0);
    tell("from a child", status);
    tell("its edge", epoll_wait(list, &got, 1, 1000));
    tell("in order", (recv(shared[1], bytes, 1, 0), recv(shared[1], bytes + 1, 1, 0), recv(shared[1], bytes + 2, 1, 0)));
    printf("%.3s\n", bytes);
    close(shared[0]), close(shared[1]), close(list);
}

int main(void) {
    pairs();
    names();
    udp();
    version6();
    senders_that_wait();
    ends();
    refused();
    heads();
    edges();
}

/* Sockets that listen and connect: Internet loopback of both versions, Unix paths and abstract names. Prints
 * what every Linux prints. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tell.h"

/* Says whether a call that returns a descriptor worked. */
static int opened(const char *what, int fd) {
    if (fd < 0)
        tell(what, fd);
    else
        printf("%s: open\n", what);
    return fd;
}

static struct sockaddr_in v4(const char *ip, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, ip, &address.sin_addr);
    return address;
}

static int port_of(int fd) {
    struct sockaddr_in6 address;
    socklen_t size = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &size) < 0)
        return -1;
    return ntohs(address.sin6_port); /* where it is in both versions */
}

static int listener(const char *ip, int port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    struct sockaddr_in address = v4(ip, port);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, 8) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static int connected(const char *ip, int port, int flags) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    fcntl(fd, F_SETFL, flags);
    struct sockaddr_in address = v4(ip, port);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0 && errno != EINPROGRESS) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

static void both_ways(void) {
    int server = listener("127.0.0.1", 0), port = port_of(server);
    fcntl(server, F_SETFL, O_NONBLOCK);
    opened("nothing to accept", accept(server, NULL, NULL));
    opened("the address is taken", listener("127.0.0.1", port));
    opened("by any address too", listener("0.0.0.0", port));
    int client = opened("client", connected("127.0.0.1", port, 0));
    struct pollfd polled = {.fd = server, .events = POLLIN};
    tell("to accept", poll(&polled, 1, 1000));
    struct sockaddr_in from, to;
    socklen_t size = sizeof from;
    int accepted = opened("accepted", accept4(server, (struct sockaddr *)&from, &size, SOCK_CLOEXEC | SOCK_NONBLOCK));
    printf("flags %d %d, %d bytes, from %s, its port %d\n", fcntl(accepted, F_GETFD),
           !!(fcntl(accepted, F_GETFL) & O_NONBLOCK), size, inet_ntoa(from.sin_addr),
           ntohs(from.sin_port) == port_of(client));
    size = sizeof to;
    getpeername(client, (struct sockaddr *)&to, &size);
    printf("to %s, its port %d, the server's %d\n", inet_ntoa(to.sin_addr), ntohs(to.sin_port) == port,
           port_of(accepted) == port);
    char bytes[16];
    tell("no bytes yet", read(accepted, bytes, sizeof bytes));
    tell("sent", send(client, "question", 8, 0));
    polled.fd = accepted;
    tell("arrived", poll(&polled, 1, 1000));
    tell("received", recv(accepted, bytes, sizeof bytes, 0));
    tell("answered", write(accepted, "answer", 6));
    tell("answer", read(client, bytes, sizeof bytes));
    int one = 1;
    tell("no delay", setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one));
    size = sizeof one;
    tell("listens", getsockopt(server, SOL_SOCKET, SO_ACCEPTCONN, &one, &size));
    printf("value %d\n", one);
    getsockopt(client, SOL_SOCKET, SO_DOMAIN, &one, &size);
    printf("domain %d\n", one);
    struct sockaddr_in again = v4("127.0.0.1", port);
    tell("connected twice", connect(client, (struct sockaddr *)&again, sizeof again));
    tell("accept of what does not listen", accept(client, NULL, NULL));
    tell("bound twice", bind(server, (struct sockaddr *)&again, sizeof again));
    shutdown(client, SHUT_WR);
    tell("end", (poll(&polled, 1, 1000), read(accepted, bytes, sizeof bytes)));
    tell("still the other way", write(accepted, "more", 4));
    tell("more", read(client, bytes, sizeof bytes));
    close(accepted), close(client), close(server);
    int free_again = listener("127.0.0.1", port);
    opened("free again", free_again);
    close(free_again);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    tell("not connected", recv(fd, bytes, 1, 0));
    tell("its peer", getpeername(fd, (struct sockaddr *)&to, &size));
    tell("shutdown", shutdown(fd, SHUT_RDWR));
    struct sockaddr_un wrong = {.sun_family = AF_UNIX, .sun_path = "/tmp/x"};
    tell("another domain", bind(fd, (struct sockaddr *)&wrong, sizeof wrong));
    tell("too short", bind(fd, (struct sockaddr *)&to, 1));
    tell("a domain", socket(99, SOCK_STREAM, 0));
    tell("no socket", listen(0, 1));
    close(fd);
}

static void version6(void) {
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
    int server = socket(AF_INET6, SOCK_STREAM, 0);
    if (server < 0 || bind(server, (struct sockaddr *)&any, sizeof any) < 0 || listen(server, 1) < 0) {
        /* A machine without version 6. */
        printf("version 4 reaches it: open\nfrom ::ffff:127.0.0.1\n");
        return;
    }
    int client = opened("version 4 reaches it", connected("127.0.0.1", port_of(server), 0));
    struct sockaddr_in6 from;
    socklen_t size = sizeof from;
    int accepted = accept(server, (struct sockaddr *)&from, &size);
    char text[64];
    printf("from %s\n", inet_ntop(AF_INET6, &from.sin6_addr, text, sizeof text));
    close(accepted), close(client), close(server);
}

static void names(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "/tmp/sockets-test"};
    unlink(address.sun_path);
    int server = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
    tell("no such file", connect(client, (struct sockaddr *)&address, sizeof address));
    tell("bound", bind(server, (struct sockaddr *)&address, sizeof address));
    tell("does not listen", connect(client, (struct sockaddr *)&address, sizeof address));
    struct stat stat_;
    stat(address.sun_path, &stat_);
    printf("a socket: %d\n", S_ISSOCK(stat_.st_mode));
    tell("cannot be opened", open(address.sun_path, O_RDWR));
    int other = socket(AF_UNIX, SOCK_STREAM, 0);
    tell("taken", bind(other, (struct sockaddr *)&address, sizeof address));
    tell("listens", listen(server, 2));
    tell("connected", connect(client, (struct sockaddr *)&address, sizeof address));
    struct sockaddr_un from;
    socklen_t size = sizeof from;
    int accepted = opened("accepted", accept(server, (struct sockaddr *)&from, &size));
    printf("from domain %d, %d bytes\n", from.sun_family, size);
    size = sizeof from;
    getpeername(client, (struct sockaddr *)&from, &size);
    printf("to %s, %d bytes\n", from.sun_path, size);
    tell("there", write(client, "there", 5));
    char bytes[8];
    tell("arrived", read(accepted, bytes, sizeof bytes));
    tell("and back", write(accepted, "back", 4));
    tell("arrived", read(client, bytes, sizeof bytes));
    int waiting = socket(AF_UNIX, SOCK_STREAM, 0);
    tell("one that is not accepted", connect(waiting, (struct sockaddr *)&address, sizeof address));
    close(server);
    tell("its end", read(waiting, bytes, sizeof bytes) == 0 || errno == ECONNRESET ? 0 : -1);
    close(client), close(other), close(accepted), close(waiting);
    client = socket(AF_UNIX, SOCK_STREAM, 0);
    tell("the name is left", connect(client, (struct sockaddr *)&address, sizeof address));
    unlink(address.sun_path);
    close(client);

    struct sockaddr_un abstract = {.sun_family = AF_UNIX, .sun_path = "\0sockets-test"};
    socklen_t abstract_size = offsetof(struct sockaddr_un, sun_path) + 13;
    server = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
    tell("abstract", bind(server, (struct sockaddr *)&abstract, abstract_size) + listen(server, 1));
    tell("a longer name", connect(client, (struct sockaddr *)&abstract, abstract_size + 1));
    tell("connected", connect(client, (struct sockaddr *)&abstract, abstract_size));
    close(server), close(client);
}

/* Connections that cannot be accepted yet are not lost, and a thread that accepts can be stopped. */
static void *accept_one(void *fd) {
    return (void *)(long)(accept(*(int *)fd, NULL, NULL) < 0 ? errno : 0);
}

static void limits(void) {
    static int all[1100];
    int fd = listener("127.0.0.1", 0), port = port_of(fd), count = 0;
    int client = connected("127.0.0.1", port, 0);
    struct rlimit few = {40, 0}, old;
    getrlimit(RLIMIT_NOFILE, &old);
    few.rlim_max = old.rlim_max;
    setrlimit(RLIMIT_NOFILE, &few);
    while (count < 1100 && (all[count] = dup(0)) >= 0)
        count++;
    opened("no descriptor", accept(fd, NULL, NULL));
    close(all[--count]);
    int accepted = opened("one", accept(fd, NULL, NULL));
    close(accepted);
    while (count > 0)
        close(all[--count]);
    setrlimit(RLIMIT_NOFILE, &old);
    close(client);
    pthread_t thread;
    void *error;
    pthread_create(&thread, NULL, accept_one, &fd);
    usleep(20000);
    tell("stopped", shutdown(fd, SHUT_RDWR));
    pthread_join(thread, &error);
    printf("the thread: %s\n", strerror((int)(long)error));
    opened("nothing listens", connected("127.0.0.1", port, 0));
    close(fd);
    int both[2];
    char bytes[8];
    socketpair(AF_UNIX, SOCK_STREAM, 0, both);
    tell("before the end", write(both[0], "hello", 5));
    tell("no more", shutdown(both[1], SHUT_RD));
    tell("is there", read(both[1], bytes, sizeof bytes));
    tell("and then", read(both[1], bytes, sizeof bytes));
    close(both[0]), close(both[1]);
}

static int server, rounds;

static void *serve(void *unused) {
    int list = epoll_create1(0), left = 0, begun = 0;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = server};
    epoll_ctl(list, EPOLL_CTL_ADD, server, &event);
    while (begun < 8 || left > 0) {
        if (epoll_wait(list, &event, 1, -1) != 1)
            exit(1);
        int fd = event.data.fd;
        char bytes[4096];
        if (fd == server) {
            fd = accept4(server, NULL, NULL, SOCK_NONBLOCK);
            event = (struct epoll_event){.events = EPOLLIN | EPOLLRDHUP, .data.fd = fd};
            epoll_ctl(list, EPOLL_CTL_ADD, fd, &event);
            begun++, left++;
            continue;
        }
        long got = read(fd, bytes, sizeof bytes);
        if (got == 0) {
            close(fd);
            left--;
        } else if (got > 0 && write(fd, bytes, got) == got) {
            __atomic_fetch_add(&rounds, 1, __ATOMIC_RELAXED);
        }
    }
    close(list);
    return unused;
}

/* Processes ask a server, which answers all of them in one thread. */
static void processes(void) {
    server = listener("127.0.0.1", 0);
    int port = port_of(server);
    pid_t all[8];
    fflush(stdout);
    for (int i = 0; i < 8; i++) {
        if ((all[i] = fork()) == 0) {
            int fd = connected("127.0.0.1", port, 0), wrong = 0;
            for (int round = 0; round < 100; round++) {
                int there = round * 8 + i, back = 0;
                if (write(fd, &there, sizeof there) != sizeof there || recv(fd, &back, sizeof back, MSG_WAITALL) != sizeof back)
                    _exit(2);
                wrong += there != back;
            }
            _exit(wrong != 0);
        }
    }
    pthread_t thread;
    pthread_create(&thread, NULL, serve, NULL);
    int failed = 0;
    for (int i = 0; i < 8; i++) {
        int status;
        waitpid(all[i], &status, 0);
        failed += status != 0;
    }
    pthread_join(thread, NULL);
    printf("failed: %d, answers %d\n", failed, rounds);
    close(server);
}

int main(void) {
    both_ways();
    version6();
    names();
    limits();
    processes();
    printf("done\n");
    return 0;
}

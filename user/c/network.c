/* Servers and clients by a network:
 *
 *   echo PORT CONNECTIONS     send ADDRESS PORT BYTES     states ADDRESS OPEN_PORT CLOSED_PORT
 *   messages PORT COUNT       ask ADDRESS PORT            both PORT
 *   brief PORT CONNECTIONS    ends PORT BYTES
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHUNK 10000

static int failed(const char *what) {
    printf("%s: %s\n", what, strerror(errno));
    exit(1);
}

static struct sockaddr_in address(const char *ip, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, ip, &address.sin_addr);
    return address;
}

static int listener(int port) {
    struct sockaddr_in any = address("0.0.0.0", port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (void *)&any, sizeof any) || listen(fd, 4)) failed("listen");
    return fd;
}

static int connected(const char *ip, int port) {
    struct sockaddr_in to = address(ip, port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0) failed("socket");
    if (connect(fd, (void *)&to, sizeof to)) failed("connect");
    return fd;
}

static void *echo_one(void *argument) {
    int fd = (int)(long)argument;
    char bytes[CHUNK];
    ssize_t got;
    while ((got = read(fd, bytes, sizeof bytes)) > 0)
        for (ssize_t done = 0, put; done < got; done += put)
            if ((put = write(fd, bytes + done, got - done)) < 0) failed("write");
    if (got < 0) failed("read");
    // The peer has said all. It gets one more word after the echo.
    if (write(fd, "end\n", 4) != 4) failed("write of the end");
    close(fd);
    return 0;
}

static int echo(int port, int connections) {
    int from = listener(port);
    printf("listening\n");
    fflush(stdout);
    pthread_t threads[connections];
    for (int i = 0; i < connections; i++) {
        struct sockaddr_in peer, own;
        socklen_t len = sizeof peer;
        int fd = accept(from, (void *)&peer, &len);
        if (fd < 0) failed("accept");
        len = sizeof own;
        if (getsockname(fd, (void *)&own, &len)) failed("getsockname");
        if (i == 0) {
            char mine[32], others[32];
            inet_ntop(AF_INET, &own.sin_addr, mine, sizeof mine);
            inet_ntop(AF_INET, &peer.sin_addr, others, sizeof others);
            printf("%s:%d from %s\n", mine, ntohs(own.sin_port), others);
        }
        if (pthread_create(&threads[i], 0, echo_one, (void *)(long)fd)) failed("pthread_create");
    }
    for (int i = 0; i < connections; i++) pthread_join(threads[i], 0);
    printf("served %d\n", connections);
    return 0;
}

// Ends each connection first.
static int brief(int port, int connections) {
    int from = listener(port);
    printf("listening\n");
    fflush(stdout);
    for (int i = 0; i < connections; i++) {
        int fd = accept(from, 0, 0);
        if (fd < 0 || write(fd, "end\n", 4) != 4 || close(fd)) failed("serve");
    }
    printf("served %d\n", connections);
    return 0;
}

static char expected(long at) { return (char)(at * 31 + at / 251); }

struct sending {
    int fd;
    long bytes;
};

static void *send_all(void *argument) {
    struct sending *sending = argument;
    char bytes[CHUNK];
    for (long at = 0; at < sending->bytes;) {
        long len = sending->bytes - at < CHUNK ? sending->bytes - at : CHUNK;
        for (long i = 0; i < len; i++) bytes[i] = expected(at + i);
        for (ssize_t done = 0, put; done < len; done += put)
            if ((put = write(sending->fd, bytes + done, len - done)) < 0) failed("write");
        at += len;
    }
    if (shutdown(sending->fd, SHUT_WR)) failed("shutdown");
    return 0;
}

// Sends bytes to an echo, ends that direction, and compares what comes back.
static int send_bytes(const char *ip, int port, long bytes) {
    struct sending sending = {connected(ip, port), bytes};
    pthread_t thread;
    if (pthread_create(&thread, 0, send_all, &sending)) failed("pthread_create");
    char got[CHUNK];
    long at = 0;
    ssize_t len;
    while ((len = read(sending.fd, got, sizeof got)) > 0)
        for (ssize_t i = 0; i < len; i++, at++)
            if (at < bytes && got[i] != expected(at)) return printf("byte %ld differs\n", at), 1;
    if (len < 0) failed("read");
    pthread_join(thread, 0);
    close(sending.fd);
    printf("%ld bytes came back and %ld more\n", bytes, at - bytes);
    return 0;
}

// Sends messages back to where they came from.
static int messages(int port, int count) {
    struct sockaddr_in any = address("0.0.0.0", port);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd < 0 || bind(fd, (void *)&any, sizeof any)) failed("bind");
    // The network asks for this machine's address, and loses messages until it is told. So it is told before.
    struct sockaddr_in none = address("10.0.2.2", 1);
    int first = socket(AF_INET, SOCK_STREAM, 0);
    connect(first, (void *)&none, sizeof none);
    close(first);
    printf("listening\n");
    fflush(stdout);
    for (int i = 0; i < count; i++) {
        char bytes[2000];
        struct sockaddr_in from;
        socklen_t len = sizeof from;
        ssize_t got = recvfrom(fd, bytes, sizeof bytes, 0, (void *)&from, &len);
        if (got < 0) failed("recvfrom");
        if (sendto(fd, bytes, got, 0, (void *)&from, len) != got) failed("sendto");
    }
    printf("answered %d\n", count);
    return 0;
}

// Sends a message and reads the answer, connected.
static int ask(const char *ip, int port) {
    struct sockaddr_in to = address(ip, port), own;
    socklen_t len = sizeof own;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    char answer[64] = {0};
    if (fd < 0 || connect(fd, (void *)&to, sizeof to)) failed("connect");
    if (getsockname(fd, (void *)&own, &len)) failed("getsockname");
    if (send(fd, "question", 8, 0) != 8) failed("send");
    if (recv(fd, answer, sizeof answer, 0) < 0) failed("recv");
    char mine[32];
    inet_ntop(AF_INET, &own.sin_addr, mine, sizeof mine);
    static char large[3000];
    ssize_t sent = send(fd, large, sizeof large, 0);
    printf("%s asked: %s, %s\n", mine, answer, sent < 0 ? strerror(errno) : "sent");
    return 0;
}

// Says the outcome of a call.
static void tell(const char *what, long result) {
    const char *why = result < 0 ? strerror(errno) : "Success";
    printf("%s: %s\n", what, why);
}

static const char *error_of(int fd) {
    int error = -1;
    socklen_t len = sizeof error;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len)) failed("getsockopt");
    return error ? strerror(error) : "none";
}

static void made(int fd, const struct sockaddr_in *to) {
    struct sockaddr_in peer;
    socklen_t len = sizeof peer;
    struct pollfd poll_fd = {fd, POLLIN, 0};
    char bytes[16] = {0};
    tell("again", connect(fd, (const void *)to, sizeof *to));
    tell("peer", getpeername(fd, (void *)&peer, &len));
    shutdown(fd, SHUT_WR);
    int ready = poll(&poll_fd, 1, -1);
    printf("poll: %d\n", ready);
    if (read(fd, bytes, 3) != 3) failed("read");
    printf("read: %s\n", bytes);
    tell("write after shutdown", send(fd, "x", 1, MSG_NOSIGNAL));
}

// Connects without waiting, to a port with an echo and to one without.
static int states(const char *ip, int open_port, int closed_port) {
    for (int is_closed = 0; is_closed < 2; is_closed++) {
        struct sockaddr_in to = address(ip, is_closed ? closed_port : open_port);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), list = epoll_create1(0);
        struct epoll_event wanted = {.events = EPOLLOUT | EPOLLET}, event = {0};
        tell("connect", connect(fd, (void *)&to, sizeof to));
        if (epoll_ctl(list, EPOLL_CTL_ADD, fd, &wanted)) failed("epoll_ctl");
        int events = epoll_wait(list, &event, 1, -1);
        printf("events: %d, out %d, err %d, hup %d\n", events, !!(event.events & EPOLLOUT),
               !!(event.events & EPOLLERR), !!(event.events & EPOLLHUP));
        const char *first = error_of(fd), *second = error_of(fd);
        printf("error: %s, then %s\n", first, second);
        if (!is_closed) made(fd, &to);
        close(fd);
        close(list);
    }
    return 0;
}

static const char *sides(int fd) {
    static char text[100];
    struct sockaddr_in own, peer;
    socklen_t own_len = sizeof own, peer_len = sizeof peer;
    char mine[32], others[32];
    if (getsockname(fd, (void *)&own, &own_len) || getpeername(fd, (void *)&peer, &peer_len)) failed("names");
    inet_ntop(AF_INET, &own.sin_addr, mine, sizeof mine);
    inet_ntop(AF_INET, &peer.sin_addr, others, sizeof others);
    snprintf(text, sizeof text, "to %s from %s\n", mine, others);
    return text;
}

// Serves itself by three addresses, and then one client by the network. Each is told both addresses.
static int both(int port) {
    const char *own[] = {"127.0.0.1", "10.0.2.15", "0.0.0.0"};
    int from = listener(port);
    char all[300] = "";
    for (int i = 0; i < 3; i++) {
        int to = connected(own[i], port), fd = accept(from, 0, 0);
        if (fd < 0) failed("accept");
        strcat(all, sides(fd));
        close(fd);
        close(to);
    }
    printf("listening\n%s", all);
    fflush(stdout);
    int fd = accept(from, 0, 0);
    if (fd < 0) failed("accept");
    const char *text = sides(fd);
    if (write(fd, text, strlen(text)) < 0) failed("write");
    return close(fd);
}

static void answer(int fd, int count) {
    char byte;
    for (int i = 0; i < count; i++)
        if (read(fd, &byte, 1) != 1 || write(fd, "a", 1) != 1) failed("answer");
}

// Reads what has arrived after both sides have ended, and after a reset. The client tells by a connection of
// its own how far it is.
static int ends(int port, long bytes) {
    int from = listener(port);
    printf("listening\n");
    fflush(stdout);
    int told = accept(from, 0, 0), whole = accept(from, 0, 0);
    answer(told, 20);
    if (shutdown(whole, SHUT_WR)) failed("shutdown");
    answer(told, 20);
    static char got[CHUNK];
    long at = 0;
    ssize_t len;
    while ((len = read(whole, got, sizeof got)) > 0) at += len;
    printf("%s%s\n", at == bytes ? "all bytes, then " : "some bytes, then ", len ? strerror(errno) : "the end");
    int reset = accept(from, 0, 0);
    if (write(reset, "unread", 6) != 6 || shutdown(reset, SHUT_WR)) failed("end");
    answer(told, 20);
    len = read(reset, got, sizeof got);
    printf("after a reset: %s\n", len < 0 ? strerror(errno) : "no error");
    return 0;
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    if (!strcmp(mode, "echo") && argc == 4) return echo(atoi(argv[2]), atoi(argv[3]));
    if (!strcmp(mode, "send") && argc == 5) return send_bytes(argv[2], atoi(argv[3]), atol(argv[4]));
    if (!strcmp(mode, "messages") && argc == 4) return messages(atoi(argv[2]), atoi(argv[3]));
    if (!strcmp(mode, "ask") && argc == 4) return ask(argv[2], atoi(argv[3]));
    if (!strcmp(mode, "brief") && argc == 4) return brief(atoi(argv[2]), atoi(argv[3]));
    if (!strcmp(mode, "ends") && argc == 4) return ends(atoi(argv[2]), atol(argv[3]));
    if (!strcmp(mode, "both") && argc == 3) return both(atoi(argv[2]));
    if (!strcmp(mode, "states") && argc == 5) return states(argv[2], atoi(argv[3]), atoi(argv[4]));
    return 2;
}

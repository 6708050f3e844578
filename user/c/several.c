/* Calls of sockets that wait for a limited time (SO_RCVTIMEO, SO_SNDTIMEO), several messages in one call
 * (sendmmsg, recvmmsg), messages of UDP in parts (MSG_MORE), and addresses of UDP of other domains. Prints
 * what every Linux prints. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "tell.h"

static char bytes[70000];

static long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void limit(const char *what, int fd, int option, long seconds, long microseconds) {
    struct timeval time = {seconds, microseconds};
    tell(what, setsockopt(fd, SOL_SOCKET, option, &time, sizeof time));
    socklen_t size = sizeof time;
    tell("is", getsockopt(fd, SOL_SOCKET, option, &time, &size));
    printf("%ld.%06ld, %u bytes\n", (long)time.tv_sec, (long)time.tv_usec, size);
}

/* Says whether the time since `start` is no shorter than asked for. */
static void took(long long start, long long least) {
    printf("%s\n", now() - start >= least ? "waited" : "did not wait");
}

static volatile int rings;

static void on_alarm(int signal) {
    (void)signal;
    rings++;
}

static void limits(int kind) {
    int pair[2], none = 0;
    printf("kind %d\n", kind);
    socketpair(AF_UNIX, kind, 0, pair);
    limit("no limit", pair[0], SO_RCVTIMEO, 0, 0);
    limit("receive", pair[0], SO_RCVTIMEO, 0, 40000);
    limit("send", pair[0], SO_SNDTIMEO, 0, 20000);
    limit("long", pair[1], SO_SNDTIMEO, 3600, 0);
    limit("negative", pair[1], SO_SNDTIMEO, -1, 0);
    limit("bad", pair[1], SO_RCVTIMEO, 0, 1000000);
    tell("short", setsockopt(pair[1], SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none));
    long long start = now();
    tell("recv", recv(pair[0], bytes, 10, 0));
    took(start, 40000000);
    start = now();
    tell("read", read(pair[0], bytes, 10));
    took(start, 40000000);
    write(pair[1], "there", 5);
    tell("without waiting", recv(pair[0], bytes, 10, 0));
    long sent;
    int count = 0;
    start = now();
    while ((sent = send(pair[0], bytes, 1000, 0)) == 1000)
        count++;
    printf("some: %d, ", count > 10);
    tell("then", sent < 0 ? -1 : 0);
    took(start, 20000000);
    /* A signal ends the wait, and the call is not restarted. */
    limit("receive", pair[0], SO_RCVTIMEO, 3600, 0);
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {.it_value = {0, 10000}, .it_interval = {0, 10000}};
    setitimer(ITIMER_REAL, &often, NULL);
    tell("signal", recv(pair[0], bytes, 10, 0));
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    printf("it rang: %d\n", rings > 0);
    close(pair[0]), close(pair[1]);
}

static void accepts(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "\0limits"};
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    bind(listener, (struct sockaddr *)&address, 20);
    listen(listener, 0);
    limit("accept", listener, SO_RCVTIMEO, 0, 20000);
    long long start = now();
    tell("accept", accept(listener, NULL, NULL));
    took(start, 20000000);
    int first = socket(AF_UNIX, SOCK_STREAM, 0), second = socket(AF_UNIX, SOCK_STREAM, 0);
    limit("connect", second, SO_SNDTIMEO, 0, 20000);
    tell("first", connect(first, (struct sockaddr *)&address, 20));
    start = now();
    tell("second", connect(second, (struct sockaddr *)&address, 20));
    took(start, 20000000);
    close(first), close(second), close(listener);
}

static void several(int kind) {
    int pair[2];
    char texts[4][8] = {"one", "three", "", "seven"}, places[6][8];
    struct iovec out[4], in[6];
    struct mmsghdr sent[4] = {0}, got[6] = {0};
    printf("kind %d\n", kind);
    socketpair(AF_UNIX, kind, 0, pair);
    for (int i = 0; i < 4; i++) {
        out[i] = (struct iovec){texts[i], strlen(texts[i])};
        sent[i].msg_hdr = (struct msghdr){.msg_iov = &out[i], .msg_iovlen = 1};
    }
    for (int i = 0; i < 6; i++) {
        in[i] = (struct iovec){places[i], 4};
        got[i].msg_hdr = (struct msghdr){.msg_iov = &in[i], .msg_iovlen = 1};
    }
    tell("none", sendmmsg(pair[0], sent, 0, 0));
    tell("four", sendmmsg(pair[0], sent, 4, 0));
    printf("%u %u %u %u\n", sent[0].msg_len, sent[1].msg_len, sent[2].msg_len, sent[3].msg_len);
    tell("all", recvmmsg(pair[1], got, 6, MSG_DONTWAIT, NULL));
    for (int i = 0; i < 4; i++)
        printf("%.*s: %u, flags %x\n", (int)got[i].msg_len, places[i], got[i].msg_len, got[i].msg_hdr.msg_flags);
    tell("none there", recvmmsg(pair[1], got, 6, MSG_DONTWAIT, NULL));
    sendmmsg(pair[0], sent, 2, 0);
    tell("wait for one", recvmmsg(pair[1], got, 6, MSG_WAITFORONE, NULL));
    sendmmsg(pair[0], sent, 2, 0);
    tell("two of them", recvmmsg(pair[1], got, 2, 0, NULL));
    struct timespec time = {0, 0}, bad = {0, 1000000000}, hour = {3600, 0};
    sendmmsg(pair[0], sent, 2, 0);
    tell("no time", recvmmsg(pair[1], got, 2, 0, &time));
    printf("left %ld\n", (long)time.tv_sec);
    tell("an hour", recvmmsg(pair[1], got, 1, 0, &hour));
    printf("left %d\n", hour.tv_sec > 3000 && hour.tv_sec < 3600);
    tell("bad time", recvmmsg(pair[1], got, 2, 0, &bad));
    sent[2].msg_hdr.msg_iov = (void *)8;
    tell("the third is bad", sendmmsg(pair[0], sent, 4, 0));
    tell("the first is bad", sendmmsg(pair[0], sent + 2, 2, 0));
    tell("a bad list", sendmmsg(pair[0], (void *)8, 2, 0));
    tell("a bad list", recvmmsg(pair[1], (void *)8, 2, 0, NULL));
    tell("a bad time", recvmmsg(pair[1], got, 2, 0, (void *)8));
    tell("no socket", sendmmsg(1000, sent, 1, 0));
    int file = open("/dev/null", O_RDWR);
    tell("no socket", recvmmsg(file, got, 1, 0, NULL));
    close(file), close(pair[0]), close(pair[1]);
}

static struct sockaddr_in v4(int port) {
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
}

static int udp(int domain, int *port) {
    int fd = socket(domain, SOCK_DGRAM, 0);
    if (port) {
        struct sockaddr_in6 six = {.sin6_family = AF_INET6};
        struct sockaddr_in four = v4(0);
        tell("bound", domain == AF_INET ? bind(fd, (void *)&four, sizeof four) : bind(fd, (void *)&six, sizeof six));
        socklen_t size = sizeof six;
        getsockname(fd, (void *)&six, &size);
        *port = ntohs(six.sin6_port);
    }
    return fd;
}

static int port_of(int fd) {
    struct sockaddr_in6 address;
    socklen_t size = sizeof address;
    getsockname(fd, (void *)&address, &size);
    return ntohs(address.sin6_port);
}

/* Tells what is there now. */
static void there(const char *what, int fd) {
    memset(bytes, 0, 64);
    tell(what, recv(fd, bytes, sizeof bytes, MSG_DONTWAIT));
    printf("it says %.20s\n", bytes);
}

/* Waits for a message first: Linux may deliver one of UDP some time after the call if it is busy. */
static void arrived(const char *what, int fd) {
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    poll(&polled, 1, 10000);
    there(what, fd);
}

static void parts(void) {
    int port, other;
    int to = udp(AF_INET, &port), also = udp(AF_INET, &other), from = udp(AF_INET, NULL);
    struct sockaddr_in address = v4(port), elsewhere = v4(other);
    tell("begun without an address", send(from, "x", 1, MSG_MORE));
    tell("begun", sendto(from, "one ", 4, MSG_MORE, (void *)&address, sizeof address));
    there("not yet", to);
    tell("more, elsewhere", sendto(from, "two ", 4, MSG_MORE, (void *)&elsewhere, sizeof elsewhere));
    tell("the end", send(from, "three", 5, 0));
    arrived("whole", to);
    there("not there", also);
    tell("whole by itself", sendto(from, "four", 4, 0, (void *)&elsewhere, sizeof elsewhere));
    arrived("there", also);
    tell("begun", sendto(from, bytes, 65000, MSG_MORE, (void *)&address, sizeof address));
    tell("too much", sendto(from, bytes, 1000, MSG_MORE, (void *)&address, sizeof address));
    tell("a new one", sendto(from, "five", 4, 0, (void *)&address, sizeof address));
    arrived("the new one", to);
    tell("to the net", sendto(from, "six", 3, MSG_DONTROUTE, (void *)&address, sizeof address));
    arrived("it", to);
    int pair[2];
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    tell("of a pair", send(pair[0], "seven", 5, MSG_MORE | MSG_DONTROUTE));
    arrived("at once", pair[1]);
    close(to), close(also), close(from), close(pair[0]), close(pair[1]);
}

static void domains(void) {
    int port, port6;
    int four = udp(AF_INET, &port), six = udp(AF_INET6, &port6), from = udp(AF_INET6, NULL);
    struct sockaddr_in address = v4(port), old = v4(port6);
    tell("version 4 by version 6", sendto(from, "one", 3, 0, (void *)&address, sizeof address));
    arrived("one", four);
    tell("mapped", sendto(from, "two", 3, 0, (void *)&old, sizeof old));
    arrived("two", six);
    tell("connected", connect(from, (void *)&address, sizeof address));
    struct sockaddr_in6 peer;
    socklen_t size = sizeof peer;
    tell("peer", getpeername(from, (void *)&peer, &size));
    char text[64];
    printf("%s, port %d\n", inet_ntop(AF_INET6, &peer.sin6_addr, text, sizeof text), ntohs(peer.sin6_port) == port);
    tell("three", send(from, "three", 5, 0));
    arrived("three", four);
    struct sockaddr_in6 new = {.sin6_family = AF_INET6, .sin6_port = htons(port6), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int from6 = udp(AF_INET6, NULL);
    tell("connected", connect(from6, (void *)&new, sizeof new));
    new.sin6_family = AF_UNSPEC;
    tell("no domain is the peer", sendto(from6, "four", 4, 0, (void *)&new, sizeof new));
    arrived("four", six);
    new.sin6_family = AF_UNIX;
    tell("another domain", sendto(from6, "m", 1, 0, (void *)&new, sizeof new));
    tell("another peer", connect(from6, (void *)&new, sizeof new));
    close(from6);
    int from4 = udp(AF_INET, NULL), yes = 1;
    address.sin_family = AF_UNSPEC;
    tell("no domain is version 4", sendto(from4, "five", 4, 0, (void *)&address, sizeof address));
    arrived("five", four);
    tell("too short", sendto(from4, "m", 1, 0, (void *)&address, 8));
    struct sockaddr_in any = {.sin_family = AF_UNSPEC};
    int bound = udp(AF_INET, NULL);
    tell("bound without a domain", bind(bound, (void *)&any, sizeof any));
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int other = udp(AF_INET, NULL);
    tell("to an address", bind(other, (void *)&any, sizeof any));
    int only = udp(AF_INET6, NULL);
    setsockopt(only, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
    address.sin_family = AF_INET;
    tell("version 6 only", sendto(only, "m", 1, 0, (void *)&address, sizeof address));
    tell("version 6 only", connect(only, (void *)&address, sizeof address));
    struct sockaddr_in6 mapped = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    inet_pton(AF_INET6, "::ffff:127.0.0.1", &mapped.sin6_addr);
    tell("mapped, version 6 only", sendto(only, "m", 1, 0, (void *)&mapped, sizeof mapped));
    tell("mapped, version 6 only", connect(only, (void *)&mapped, sizeof mapped));
    close(four), close(six), close(from), close(from4), close(bound), close(other), close(only);
}

/* A port that the kernel chose goes when the socket disconnects, and one that the program chose stays. */
static void disconnected(void) {
    int port, chosen;
    int to = udp(AF_INET, &port), from = udp(AF_INET, NULL), bound = udp(AF_INET, &chosen);
    struct sockaddr_in address = v4(port), none = {.sin_family = AF_UNSPEC};
    tell("connected", connect(from, (void *)&address, sizeof address));
    printf("port %d\n", port_of(from) != 0);
    tell("disconnected", connect(from, (void *)&none, sizeof none));
    printf("port %d\n", port_of(from) != 0);
    tell("sent", sendto(from, "one", 3, 0, (void *)&address, sizeof address));
    printf("port %d\n", port_of(from) != 0);
    arrived("one", to);
    connect(bound, (void *)&address, sizeof address);
    tell("disconnected", connect(bound, (void *)&none, sizeof none));
    struct sockaddr_in own;
    socklen_t size = sizeof own;
    getsockname(bound, (void *)&own, &size);
    printf("address %s, port %d\n", inet_ntoa(own.sin_addr), own.sin_port != 0);
    tell("sent", sendto(bound, "two", 3, 0, (void *)&address, sizeof address));
    arrived("two", to);
    close(bound);
    bound = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in again = v4(chosen);
    tell("bound to a port", bind(bound, (void *)&again, sizeof again));
    connect(bound, (void *)&address, sizeof address);
    tell("disconnected", connect(bound, (void *)&none, sizeof none));
    printf("the port stays: %d\n", port_of(bound) == chosen);
    close(to), close(from), close(bound);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    limits(SOCK_STREAM);
    limits(SOCK_DGRAM);
    limits(SOCK_SEQPACKET);
    accepts();
    several(SOCK_DGRAM);
    several(SOCK_SEQPACKET);
    parts();
    domains();
    disconnected();
    return 0;
}

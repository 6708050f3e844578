/* Pairs of sockets: bytes both ways, ends, flags, several buffers, options, errors. Prints what every Linux
 * prints. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tell.h"

static void look(const char *what, int file) {
    struct pollfd polled = {.fd = file, .events = POLLIN | POLLOUT | POLLRDHUP};
    poll(&polled, 1, 0);
    printf("%s: %x\n", what, polled.revents);
}

static int signals;

static void on_signal(int signal) {
    (void)signal;
    signals++;
}

static void bytes_and_ends(void) {
    int pair[2];
    char bytes[64];
    tell("pair", socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
    printf("closed by exec: %d\n", fcntl(pair[0], F_GETFD));
    look("new", pair[0]);
    tell("there", write(pair[0], "to the other", 12));
    tell("and back", send(pair[1], "and back", 8, MSG_NOSIGNAL));
    look("with bytes", pair[0]);
    tell("peek", recv(pair[0], bytes, 4, MSG_PEEK));
    tell("peek at all", recv(pair[0], bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT));
    printf("peeked %.8s\n", bytes);
    tell("read", read(pair[0], bytes, 3));
    tell("peek at the rest", recv(pair[0], bytes, sizeof bytes, MSG_PEEK));
    printf("peeked %.5s\n", bytes);
    tell("receive", recv(pair[0], bytes, sizeof bytes, 0));
    tell("nothing now", recv(pair[0], bytes, sizeof bytes, MSG_DONTWAIT));
    tell("nor to peek at", recv(pair[0], bytes, sizeof bytes, MSG_DONTWAIT | MSG_PEEK));
    tell("a bad place", (write(pair[1], "x", 1), recv(pair[0], (void *)8, 1, MSG_PEEK)));
    tell("it is there", recv(pair[0], bytes, 1, 0));
    tell("receive there", recv(pair[1], bytes, sizeof bytes, 0));
    printf("bytes %.12s\n", bytes);
    tell("at an offset", pread(pair[0], bytes, 1, 0));
    tell("seek", lseek(pair[0], 0, SEEK_SET));
    struct stat stat;
    fstat(pair[0], &stat);
    printf("a socket: %d\n", S_ISSOCK(stat.st_mode));
    tell("ended one way", shutdown(pair[0], SHUT_WR));
    look("the end arrives", pair[1]);
    tell("a peek at the end", recv(pair[1], bytes, sizeof bytes, MSG_PEEK));
    tell("end", read(pair[1], bytes, sizeof bytes));
    tell("the other way", write(pair[1], "still", 5));
    tell("no more", send(pair[0], "x", 1, MSG_NOSIGNAL));
    tell("signals", signals);
    tell("and with a signal", send(pair[0], "x", 1, 0));
    tell("signals", signals);
    close(pair[1]);
    look("closed", pair[0]);
    tell("rest", read(pair[0], bytes, sizeof bytes));
    tell("end", read(pair[0], bytes, sizeof bytes));
    tell("how", shutdown(pair[0], 7));
    close(pair[0]);
}

static void buffers_and_options(void) {
    int pair[2], value = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) < 0)
        exit(1);
    printf("does not wait: %d\n", !!(fcntl(pair[1], F_GETFL) & O_NONBLOCK));
    char a[4] = "abc", b[8] = "defgh", into[2][6] = {{0}};
    struct iovec out[2] = {{a, 3}, {b, 5}}, in[2] = {{into[0], 5}, {into[1], 5}};
    struct msghdr message = {.msg_iov = out, .msg_iovlen = 2};
    tell("sendmsg", sendmsg(pair[0], &message, 0));
    message = (struct msghdr){.msg_iov = in, .msg_iovlen = 2, .msg_flags = 77};
    tell("recvmsg", recvmsg(pair[1], &message, 0));
    printf("bytes %s %s, flags %d\n", into[0], into[1], message.msg_flags);
    tell("recvmsg of nothing", recvmsg(pair[1], &message, 0));
    socklen_t size = sizeof value;
    tell("type", getsockopt(pair[0], SOL_SOCKET, SO_TYPE, &value, &size));
    printf("value %d, %d bytes\n", value, size);
    tell("error", getsockopt(pair[0], SOL_SOCKET, SO_ERROR, &value, &size));
    printf("value %d, %d bytes\n", value, size);
    value = 1 << 16;
    tell("size", setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &value, sizeof value));
    struct sockaddr_storage address;
    size = sizeof address;
    tell("name", getsockname(pair[0], (struct sockaddr *)&address, &size));
    printf("domain %d, %d bytes\n", address.ss_family, size);
    size = sizeof address;
    tell("peer", getpeername(pair[1], (struct sockaddr *)&address, &size));
    printf("domain %d, %d bytes\n", address.ss_family, size);
    int file = open("/proc/self/stat", O_RDONLY);
    tell("no socket", getsockname(file, (struct sockaddr *)&address, &size));
    tell("no socket to send", send(file, "x", 1, 0));
    tell("an address", sendto(pair[0], "x", 1, 0, (struct sockaddr *)&address, sizeof address));
    tell("a domain", socketpair(99, SOCK_STREAM, 0, pair));
    tell("a protocol", socketpair(AF_UNIX, SOCK_STREAM, 5, pair));
    close(file), close(pair[0]), close(pair[1]);
}

/* A peek of more than a page. */
static void long_peek(void) {
    int pair[2];
    static unsigned char bytes[20000];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
        exit(1);
    for (long i = 0; i < (long)sizeof bytes; i++)
        bytes[i] = i * 7 + i / 256;
    tell("sent", send(pair[1], bytes, sizeof bytes, 0));
    memset(bytes, 0, sizeof bytes);
    tell("taken", recv(pair[0], bytes, 5, 0));
    tell("peeked", recv(pair[0], bytes + 5, sizeof bytes - 5, MSG_PEEK));
    long wrong = 0;
    for (long i = 0; i < (long)sizeof bytes; i++)
        wrong += bytes[i] != (unsigned char)(i * 7 + i / 256);
    printf("wrong: %ld\n", wrong);
    close(pair[0]), close(pair[1]);
}

/* Another process answers more than fits at once. */
static void much(void) {
    int pair[2];
    static unsigned char bytes[300000];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
        exit(1);
    pid_t child = fork();
    if (child == 0) {
        close(pair[0]);
        for (long i = 0; i < (long)sizeof bytes; i++)
            bytes[i] = i * 7 + i / 256;
        long sent = send(pair[1], bytes, sizeof bytes, 0);
        _exit(sent == sizeof bytes && recv(pair[1], bytes, 4, MSG_WAITALL) == 4 ? 0 : 1);
    }
    close(pair[1]);
    tell("much", recv(pair[0], bytes, sizeof bytes, MSG_WAITALL));
    long wrong = 0;
    for (long i = 0; i < (long)sizeof bytes; i++)
        wrong += bytes[i] != (unsigned char)(i * 7 + i / 256);
    printf("wrong: %ld\n", wrong);
    for (int i = 0; i < 4; i++)
        tell("a byte", write(pair[0], "x", 1));
    int status;
    waitpid(child, &status, 0);
    printf("status %d\n", status);
}

int main(void) {
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGPIPE, &action, NULL);
    bytes_and_ends();
    buffers_and_options();
    long_peek();
    much();
    printf("done\n");
    return 0;
}

/* Random calls on descriptors by several processes of several threads: files, pipes, sockets, lists of epoll,
 * counters, timers and locks, with arguments from good to hostile. Each process gets a seed, and is killed if
 * it does not end in time. The results of the calls do not matter. Afterwards every address is free again, no
 * lock is left, and the machine has its memory back.
 *
 * socketstorm PROCESSES CALLS SEED: prints a line when all is over. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "page_counts.h"

enum { THREADS = 3, AT_ONCE = 4, DESCRIPTORS = 48, PORTS = 12, FIRST_PORT = 5000, WAIT_MS = 4000 };
enum { GOOD = 18 * 4096 };

/* Tries, of 10 ms, to take an address or lock at the end: enough for a busy machine. */
enum { TRIES = 6000 };

static long calls;
static __thread uint64_t state;
static __thread char *good;
static char *wild[3];

static uint64_t below(uint64_t limit)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 24) % limit;
}

/* A descriptor, mostly one that may be open. */
static int fd(void)
{
    return below(50) ? 3 + (int)below(DESCRIPTORS) : (int)below(3000) - 100;
}

/* Memory for a call, mostly good. The page after the good memory cannot be accessed, so long calls harm
 * nothing. */
static void *memory(void)
{
    return below(30) ? good + below(64) : wild[below(3)] + below(4096);
}

static size_t length(void)
{
    return below(20) ? below(5000) : below(3) ? below(70000) : (size_t)-1;
}

static socklen_t address(struct sockaddr_storage *to)
{
    memset(to, 0, sizeof *to);
    struct sockaddr_in *v4 = (void *)to;
    struct sockaddr_in6 *v6 = (void *)to;
    struct sockaddr_un *un = (void *)to;
    in_port_t port = htons(FIRST_PORT + below(PORTS));
    switch (below(5)) {
    case 0:
        *v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = port, .sin6_addr = in6addr_loopback};
        return sizeof *v6;
    case 1:
        un->sun_family = AF_UNIX;
        snprintf(un->sun_path, sizeof un->sun_path, "/tmp/storm%d", (int)below(6));
        return sizeof *un;
    case 2:
        un->sun_family = AF_UNIX;
        snprintf(un->sun_path + 1, sizeof un->sun_path - 1, "storm%d", (int)below(6));
        return offsetof(struct sockaddr_un, sun_path) + 8;
    case 3:
        for (size_t i = 0; i < sizeof *to; i++)
            ((char *)to)[i] = below(256);
        to->ss_family = below(3) ? AF_INET : below(12);
        return below(sizeof *to + 4);
    default:
        *v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = below(8) ? port : 0};
        v4->sin_addr.s_addr = htonl(below(3) ? INADDR_LOOPBACK : INADDR_ANY);
        return sizeof *v4;
    }
}

static struct itimerspec moment(void)
{
    struct itimerspec time = {.it_value = {0, below(2000000)}};
    if (below(2))
        time.it_interval.tv_nsec = below(3) ? below(500000) : below(3);
    if (below(20) == 0)
        time.it_value.tv_sec = (int64_t)below(-1UL);
    return time;
}

static void open_one(void)
{
    int pair[2] = {-1, -1}, kind = below(4) ? AF_INET : below(2) ? AF_INET6 : AF_UNIX;
    char path[32];
    snprintf(path, sizeof path, "/tmp/stormfile%d", (int)below(4));
    switch (below(10)) {
    case 0:
        open(path, O_RDWR | O_CREAT | O_NONBLOCK | (below(4) ? 0 : O_TRUNC), 0600);
        break;
    case 1:
        if (pipe2(pair, O_NONBLOCK | (below(2) ? O_CLOEXEC : 0)) == 0)
            fcntl(pair[below(2)], F_SETFD, below(2));
        break;
    case 2:
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair);
        break;
    case 3:
        epoll_create1(below(2) ? EPOLL_CLOEXEC : 0);
        break;
    case 4:
        eventfd(below(4), EFD_NONBLOCK | (below(2) ? EFD_SEMAPHORE : 0));
        break;
    case 5:
        timerfd_create(below(2) ? CLOCK_MONOTONIC : CLOCK_REALTIME, TFD_NONBLOCK);
        break;
    case 6:
        syscall(SYS_socket, below(12), below(8), below(8));
        break;
    default:
        socket(kind, SOCK_STREAM | SOCK_NONBLOCK, 0);
    }
}

static void on_socket(void)
{
    struct sockaddr_storage at;
    socklen_t size = address(&at);
    struct iovec list[3] = {{memory(), below(9000)}, {memory(), below(10)}, {memory(), length()}};
    struct msghdr message = {.msg_iov = list, .msg_iovlen = below(4)};
    switch (below(14)) {
    case 0:
        bind(fd(), (void *)&at, size);
        break;
    case 1:
        listen(fd(), (int)below(20) - 2);
        break;
    case 2:
    case 3:
        connect(fd(), (void *)&at, size);
        break;
    case 4:
    case 5:
        size = below(140);
        accept4(fd(), below(2) ? memory() : NULL, below(20) ? &size : memory(), SOCK_NONBLOCK);
        break;
    case 6:
        send(fd(), memory(), length(), MSG_DONTWAIT | (below(2) ? MSG_NOSIGNAL : (int)below(1 << 16)));
        break;
    case 7:
        recv(fd(), memory(), length(), MSG_DONTWAIT | (below(2) ? 0 : (int)below(1 << 16)));
        break;
    case 8:
        sendmsg(fd(), below(20) ? &message : memory(), MSG_DONTWAIT);
        break;
    case 9:
        recvmsg(fd(), below(20) ? &message : memory(), MSG_DONTWAIT);
        break;
    case 10:
        shutdown(fd(), below(4));
        break;
    case 11:
        getsockname(fd(), memory(), memory());
        getpeername(fd(), memory(), &size);
        break;
    case 12:
        setsockopt(fd(), below(2) ? SOL_SOCKET : (int)below(50), below(45), memory(), below(12));
        break;
    default:
        getsockopt(fd(), below(2) ? SOL_SOCKET : (int)below(50), below(45), memory(), memory());
    }
}

static void wait_for_some(void)
{
    struct epoll_event events[8], event = {.events = (uint32_t)below(-1UL), .data.u64 = below(-1UL)};
    struct pollfd polled[6];
    fd_set sets[3];
    struct timeval soon = {0, below(1500)};
    switch (below(6)) {
    case 0:
    case 1:
        if (below(3))
            event.events &= EPOLLIN | EPOLLOUT | EPOLLET | EPOLLONESHOT | EPOLLRDHUP;
        epoll_ctl(fd(), below(30) ? 1 + below(3) : below(9), fd(), below(30) ? &event : memory());
        break;
    case 2:
    case 3:
        epoll_wait(fd(), below(30) ? events : memory(), below(30) ? 8 : (int)below(5000) - 10, below(2));
        break;
    case 4:
        for (int i = 0; i < 6; i++)
            polled[i] = (struct pollfd){.fd = fd(), .events = below(1 << 16)};
        poll(polled, 6, below(2));
        break;
    default:
        for (int i = 0; i < 3; i++)
            for (size_t at = 0; at < sizeof sets[i]; at++)
                ((char *)&sets[i])[at] = at < 8 ? below(256) & below(256) : 0;
        select(below(70), &sets[0], below(2) ? &sets[1] : NULL, &sets[2], &soon);
    }
}

static void lock_some(void)
{
    struct flock lock = {.l_type = below(4), .l_whence = below(4), .l_start = (int64_t)below(200) - 20,
                         .l_len = (int64_t)below(100) - 20};
    if (below(20) == 0)
        lock.l_len = (int64_t)below(-1UL);
    if (below(3) == 0)
        flock(fd(), below(12) | (below(20) ? LOCK_NB : 0));
    else
        fcntl(fd(), below(2) ? (int)(below(8) ? F_SETLK : F_SETLKW) : (int)(F_OFD_GETLK + below(2)),
              below(30) ? &lock : memory());
}

static void set_timer(void)
{
    static timer_t timers[8];
    struct itimerspec time = moment(), old;
    struct sigevent event = {.sigev_notify = below(3), .sigev_signo = SIGUSR1, .sigev_value.sival_int = 7};
    struct itimerval real = {.it_value = {0, below(3000)}, .it_interval = {0, below(2) ? below(1000) : 0}};
    switch (below(6)) {
    case 0:
        timerfd_settime(fd(), below(3), below(30) ? &time : memory(), below(2) ? &old : NULL);
        break;
    case 1:
        timer_create(below(30) ? CLOCK_MONOTONIC : (clockid_t)below(20), below(9) ? &event : NULL, &timers[below(8)]);
        break;
    case 2:
    case 3:
        syscall(SYS_timer_settime, below(10), below(2), below(30) ? &time : memory(), &old);
        break;
    case 4:
        syscall(below(2) ? SYS_timer_delete : SYS_timer_getoverrun, below(10));
        break;
    default:
        setitimer(ITIMER_REAL, below(30) ? &real : memory(), NULL);
    }
}

static void on_descriptor(void)
{
    off_t offset = below(9000);
    switch (below(12)) {
    case 0:
    case 1:
        close(fd());
        break;
    case 2:
        dup2(fd(), 3 + below(DESCRIPTORS));
        break;
    case 3:
        dup(fd());
        break;
    case 4:
        read(fd(), memory(), length());
        break;
    case 5:
        write(fd(), memory(), length());
        break;
    case 6:
        fcntl(fd(), F_SETFL, O_NONBLOCK | (below(2) ? O_APPEND : 0));
        break;
    case 7:
        sendfile(fd(), fd(), below(2) ? &offset : NULL, below(70000));
        break;
    case 8:
        ftruncate(fd(), below(20) ? (off_t)below(30000) : (off_t)below(-1UL));
        break;
    case 9: {
        void *mapped = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd(), 0);
        if (mapped != MAP_FAILED)
            munmap(mapped, 8192);
        break;
    }
    case 10: {
        char path[32];
        snprintf(path, sizeof path, below(2) ? "/tmp/storm%d" : "/tmp/stormfile%d", (int)below(6));
        unlink(path);
        break;
    }
    default:
        syscall(SYS_close_range, 3 + below(DESCRIPTORS), 3 + below(DESCRIPTORS), below(3) ? 0 : 4);
    }
}

static void *storm(void *seed)
{
    state = (uint64_t)seed;
    good = mmap(NULL, GOOD + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(good, GOOD, PROT_READ | PROT_WRITE);
    for (long i = 0; i < calls; i++) {
        /* Another descriptor that waits would keep the thread. */
        fcntl(3 + below(DESCRIPTORS), F_SETFL, O_NONBLOCK);
        switch (below(24)) {
        case 0 ... 3:
            open_one();
            break;
        case 4 ... 11:
            on_socket();
            break;
        case 12 ... 15:
            wait_for_some();
            break;
        case 16 ... 17:
            lock_some();
            break;
        case 18 ... 19:
            set_timer();
            break;
        case 20:
            if (below(10) == 0 && fork() == 0) {
                on_socket();
                wait_for_some();
                _exit(0);
            }
            while (waitpid(-1, NULL, WNOHANG) > 0)
                ;
            break;
        default:
            on_descriptor();
        }
    }
    return NULL;
}

static void nothing(int signal)
{
    (void)signal;
}

static void process(uint64_t seed)
{
    struct sigaction action = {.sa_handler = nothing};
    sigaction(SIGALRM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    /* Locks that wait are for ever only if this process is. */
    pthread_t all[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&all[i], NULL, storm, (void *)(seed * 31 + i));
    for (int i = 0; i < THREADS; i++)
        pthread_join(all[i], NULL);
    if (below(2))
        _exit(0);
    execl("/proc/self/exe", "socketstorm", (char *)NULL);
    _exit(0);
}

/* Waits for a child, and kills its group if that takes long. */
static void finish(pid_t child)
{
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (;;) {
        if (waitpid(child, NULL, WNOHANG) == child)
            break;
        struct timespec nap = {0, 5000000};
        nanosleep(&nap, NULL);
        clock_gettime(CLOCK_MONOTONIC, &now);
        if ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 > WAIT_MS) {
            kill(child, SIGKILL);
            waitpid(child, NULL, 0);
            break;
        }
    }
    kill(-child, SIGKILL);
}

static int fail(const char *what, int number)
{
    printf("socketstorm: %s %d: %s\n", what, number, strerror(errno));
    return 1;
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 0;
    long processes = atol(argv[1]);
    uint64_t seed = strtoull(argv[3], NULL, 0);
    calls = atol(argv[2]);
    wild[0] = NULL;
    wild[1] = (char *)(1UL << 47) - 4096;
    wild[2] = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pid_t all[AT_ONCE];
    for (long done = 0; done < processes; done += AT_ONCE) {
        for (int i = 0; i < AT_ONCE; i++) {
            all[i] = fork();
            if (all[i] == 0) {
                setpgid(0, 0);
                state = seed + done + i;
                process(seed + (done + i) * 1000003);
            }
            setpgid(all[i], all[i]);
        }
        for (int i = 0; i < AT_ONCE; i++)
            finish(all[i]);
    }
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
    /* Members of killed groups may take a moment to end. */
    for (int port = FIRST_PORT; port < FIRST_PORT + PORTS; port++) {
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
        int tries = 0, server = socket(AF_INET, SOCK_STREAM, 0);
        while (bind(server, (void *)&at, sizeof at) < 0)
            if (tries++ > TRIES || usleep(10000) < 0)
                return fail("port", port);
        if (listen(server, 1) < 0)
            return fail("listen", port);
        close(server);
    }
    for (int i = 0; i < 4; i++) {
        char path[32];
        snprintf(path, sizeof path, "/tmp/stormfile%d", i);
        int file = open(path, O_RDWR | O_CREAT, 0600);
        struct flock lock = {.l_type = F_WRLCK};
        int tries = 0;
        while (flock(file, LOCK_EX | LOCK_NB) < 0 || fcntl(file, F_SETLK, &lock) < 0)
            if (tries++ > TRIES || usleep(10000) < 0)
                return fail("lock", i);
        close(file);
        unlink(path);
    }
    for (int i = 0; i < 6; i++) {
        char path[32];
        snprintf(path, sizeof path, "/tmp/storm%d", i);
        unlink(path);
    }
    compare_all();
    printf("socketstorm: done\n");
    return 0;
}

// Random system calls with all their memory in pages that another thread has just mapped and filled. The
// calling thread has never touched them. Under a runtime with address spaces of their own the kernel finds
// nothing there, unless the runtime maps it before the call. A third thread reads all pages afterwards. A
// digest of results, errors and memory is compared with a plain run. Results that differ from run to run are
// left out of it.
//
// SEED is a number for other calls. With EACH the digest is printed after each call.
#include "rule.h"

#include <linux/futex.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/sysinfo.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/xattr.h>

enum { PAGES = 64, CALLS = 400, VARYING = 40 };

// For each call: memory is mapped, the call is made, and the memory is read, each by another thread.
static unsigned char *memory;
static size_t used;
static sem_t mapped, wanted, done, seen;
static uint64_t state, digest;
static volatile int is_over;
static int file, ends[2], pair[2], list, folder, event, timer, notify;
static char place[] = "/tmp/buffersXXXXXX";
static const char *path = "file", *other = "another";

static uint64_t below(uint64_t limit) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 24) % limit;
}

static void mix(const void *bytes, size_t length) {
    uint64_t word = 0;
    for (size_t i = 0; i < length; i += sizeof word) {
        memcpy(&word, (const char *)bytes + i, length - i < sizeof word ? length - i : sizeof word);
        digest = (digest ^ word) * 1099511628211u;
        digest ^= digest >> 29;
    }
}

static void *map_memory(void *unused) {
    for (int round = 0; sem_wait(&wanted), !is_over; round++) {
        memory = map_pages(PAGES);
        for (size_t i = 0; i < PAGES * page / sizeof(int); i++) ((int *)memory)[i] = i * 77777 + round;
        // Neighbours of different kinds are regions of their own: the runtime maps a whole region.
        for (size_t i = round % 2; i < PAGES; i += 2) NEED(mprotect(memory + i * page, page, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
        sem_post(&mapped);
    }
    return unused;
}

static void *read_memory(void *unused) {
    while (sem_wait(&done), !is_over) {
        mix(memory, PAGES * page);
        NEED(munmap(memory, PAGES * page) == 0);
        sem_post(&seen);
    }
    return unused;
}

// Returns room for `length` bytes, mostly across the end of a page. The caller does not touch it.
static void *room(size_t length) {
    size_t start = used + below(2) * below(page);
    if (length < page && below(3)) {
        size_t across = (start + 2 * page) / page * page - 1 - below(length ? length : 1);
        start = across - page < start ? across : across - page;
    }
    if (below(2)) start = (start + 7) & ~(size_t)7;
    used = start + length;
    NEED(used <= PAGES * page);
    return memory + start;
}

// Writes something into the memory by another thread's hand: the caller's own stores would have it mapped.
static struct {
    void *to;
    const void *from;
    size_t length;
} order;
static sem_t ordered, obeyed;

static void *obey(void *unused) {
    while (sem_wait(&ordered), !is_over) {
        memcpy(order.to, order.from, order.length);
        sem_post(&obeyed);
    }
    return unused;
}

static void *put(const void *from, size_t length) {
    void *to = room(length);
    order.to = to, order.from = from, order.length = length;
    sem_post(&ordered);
    sem_wait(&obeyed);
    return to;
}

// Memory with addresses, which vary from run to run. It is cleared after the step.
static struct {
    void *at;
    size_t length;
} varying[VARYING];
static int varies;

static void *put_varying(const void *from, size_t length) {
    void *to = put(from, length);
    NEED(varies < VARYING);
    varying[varies].at = to, varying[varies++].length = length;
    return to;
}

static char *text(const char *from) {
    return put(from, strlen(from) + 1);
}

// Result and error of a call belong to the digest.
static void note(long result) {
    int error = result < 0 ? errno : 0;
    mix(&result, sizeof result);
    mix(&error, sizeof error);
}

// Only whether the call succeeds does. The memory is cleared, as its contents vary.
static void note_varying(long result, void *at, size_t length) {
    note(result < 0 ? -1 : 0);
    if (at) memset(at, 0, length);
}

static struct iovec *vectors(int count) {
    struct iovec all[8];
    for (int i = 0; i < count; i++) {
        size_t length = below(900);
        all[i] = (struct iovec){room(length), length};
    }
    return put_varying(all, count * sizeof *all);
}

static struct msghdr *message(int count) {
    struct {
        struct cmsghdr head;
        int number, unused;
    } rights = {{CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}, ends[0], 0};
    struct msghdr all = {.msg_iov = vectors(count), .msg_iovlen = count};
    if (below(2)) all.msg_control = put(&rights, sizeof rights), all.msg_controllen = sizeof rights;
    return put_varying(&all, sizeof all);
}

static void drain(int fd) {
    static char sink[70000];
    while (read(fd, sink, sizeof sink) > 0) {}
}

static void on_files(void) {
    size_t length = below(9000);
    off_t at = below(20000);
    struct stat *status;
    switch (below(16)) {
    case 0: note(syscall(SYS_pread64, file, room(length), length, at)); break;
    case 1: note(syscall(SYS_pwrite64, file, room(length), length, at)); break;
    case 2: note(syscall(SYS_readv, file, vectors(5), 5)); break;
    case 3: note(syscall(SYS_writev, file, vectors(4), 4)); break;
    case 4: note(syscall(SYS_preadv, file, vectors(7), 7, at, 0)); break;
    case 5: note(syscall(SYS_pwritev2, file, vectors(3), 3, at, 0, 0)); break;
    case 6: note(syscall(SYS_lseek, file, at, SEEK_SET)); break;
    case 7:
        status = room(sizeof *status);
        note(syscall(SYS_fstat, file, status));
        note(status->st_size);
        memset(status, 0, sizeof *status);
        break;
    case 8:
        status = room(sizeof *status);
        note(syscall(SYS_newfstatat, AT_FDCWD, text(path), status, 0));
        note(status->st_size);
        memset(status, 0, sizeof *status);
        break;
    case 9: {
        unsigned char *all = room(256);
        note_varying(syscall(SYS_statx, AT_FDCWD, text(path), 0, 0x7ff, all), all, 256);
        break;
    }
    case 10: {
        long opened = syscall(SYS_openat, AT_FDCWD, text(below(2) ? path : other), O_RDWR);
        note_varying(opened, NULL, 0);
        if (opened >= 0) close(opened);
        break;
    }
    case 11: note(syscall(SYS_symlinkat, text(path), AT_FDCWD, text(other))); break;
    case 12: {
        char *read = room(200);
        long got = syscall(SYS_readlink, text(other), read, 200);
        note(got > 0);
        memset(read, 0, 200);
        note(syscall(SYS_unlink, text(other)));
        break;
    }
    case 13: note(syscall(SYS_mkdirat, AT_FDCWD, text(other), 0700)), note(syscall(SYS_rmdir, text(other))); break;
    case 14: {
        off_t *from = put(&at, sizeof at);
        note(syscall(SYS_sendfile, ends[1], file, from, length));
        drain(ends[0]);
        break;
    }
    default: {
        struct timespec times[2] = {{1000 + at, 0}, {2000 + at, 0}};
        note(syscall(SYS_utimensat, AT_FDCWD, text(path), put(times, sizeof times), 0));
    }
    }
}

static void on_streams(void) {
    size_t length = below(6000);
    switch (below(12)) {
    case 0: note(syscall(SYS_write, ends[1], room(length), length)), note(syscall(SYS_read, ends[0], room(length), length)); break;
    case 1: note(syscall(SYS_writev, ends[1], vectors(6), 6)), note(syscall(SYS_readv, ends[0], vectors(8), 8)); break;
    case 2: note(syscall(SYS_sendmsg, pair[0], message(3), 0)); break;
    case 3: {
        struct msghdr *got = message(4);
        long read = syscall(SYS_recvmsg, pair[1], got, MSG_DONTWAIT);
        note(read);
        // A descriptor that came with it has any number.
        if (read >= 0 && got->msg_controllen > sizeof(struct cmsghdr)) {
            int *number = (int *)CMSG_DATA((struct cmsghdr *)got->msg_control);
            close(*number);
            *number = 0;
        }
        break;
    }
    case 4: note(syscall(SYS_sendto, pair[0], room(length), length, MSG_DONTWAIT, NULL, 0)); break;
    case 5: {
        socklen_t size = 110;
        note(syscall(SYS_recvfrom, pair[1], room(length), length, MSG_DONTWAIT, room(110), put(&size, sizeof size)));
        break;
    }
    case 6: {
        int value = 5000;
        socklen_t size = sizeof value;
        note(syscall(SYS_setsockopt, pair[0], SOL_SOCKET, SO_SNDTIMEO, room(16), 3));
        note(syscall(SYS_setsockopt, pair[0], SOL_SOCKET, SO_KEEPALIVE, put(&value, sizeof value), sizeof value));
        note(syscall(SYS_getsockopt, pair[0], SOL_SOCKET, SO_KEEPALIVE, room(4), put(&size, sizeof size)));
        break;
    }
    case 7: {
        socklen_t size = 64;
        note(syscall(SYS_getsockname, pair[0], room(64), put(&size, sizeof size)));
        note(syscall(SYS_getpeername, pair[1], room(64), put(&size, sizeof size)));
        break;
    }
    case 8: {
        int *two = room(8);
        note(syscall(below(2) ? SYS_pipe : SYS_pipe2, two, below(2) ? O_CLOEXEC : 0));
        close(two[0]), close(two[1]);
        memset(two, 0, 8);
        break;
    }
    case 9: {
        int *two = room(8);
        note(syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, two));
        close(two[0]), close(two[1]);
        memset(two, 0, 8);
        break;
    }
    case 10: note(syscall(SYS_ioctl, ends[0], FIONREAD, room(4))); break;
    default: {
        struct mmsghdr two[2] = {0};
        for (int i = 0; i < 2; i++) two[i].msg_hdr.msg_iov = vectors(2), two[i].msg_hdr.msg_iovlen = 2;
        struct mmsghdr *all = put_varying(two, sizeof two);
        note(syscall(SYS_sendmmsg, pair[0], all, 2, MSG_DONTWAIT));
    }
    }
}

static void on_events(void) {
    struct timespec none = {0, 0};
    uint64_t one = 1 + below(9), no_signals = 0;
    switch (below(13)) {
    case 0: {
        struct pollfd all[3] = {{ends[0], POLLIN, 0}, {ends[1], POLLOUT, 0}, {file, POLLIN | POLLOUT, 0}};
        if (below(2)) note(syscall(SYS_poll, put(all, sizeof all), 3, 0));
        else note(syscall(SYS_ppoll, put(all, sizeof all), 3, put(&none, sizeof none), put(&no_signals, sizeof no_signals), 8));
        break;
    }
    case 1: {
        fd_set set;
        FD_ZERO(&set);
        FD_SET(ends[1], &set);
        FD_SET(ends[0], &set);
        struct timeval soon = {0, 0};
        note(syscall(SYS_select, 64, put(&set, sizeof set), put(&set, sizeof set), NULL, put(&soon, sizeof soon)));
        break;
    }
    case 2: {
        fd_set set;
        FD_ZERO(&set);
        FD_SET(ends[1], &set);
        struct {
            const void *mask;
            size_t bytes;
        } mask = {put(&no_signals, sizeof no_signals), 8};
        note(syscall(SYS_pselect6, 64, NULL, put(&set, sizeof set), NULL, put(&none, sizeof none), put_varying(&mask, sizeof mask)));
        break;
    }
    case 3: {
        struct epoll_event wish = {EPOLLOUT, {.u64 = one}};
        note(syscall(SYS_epoll_ctl, list, EPOLL_CTL_ADD, ends[1], put(&wish, sizeof wish)));
        note(syscall(SYS_epoll_wait, list, room(5 * sizeof wish), 5, 0));
        note(syscall(SYS_epoll_pwait, list, room(5 * sizeof wish), 5, 0, put(&no_signals, sizeof no_signals), 8));
        note(syscall(SYS_epoll_ctl, list, EPOLL_CTL_DEL, ends[1], NULL));
        break;
    }
    case 4: note(syscall(SYS_write, event, put(&one, 8), 8)), note(syscall(SYS_read, event, room(8), 8)); break;
    case 5: {
        struct itimerspec time = {{0, 0}, {1000, 0}};
        note(syscall(SYS_timerfd_settime, timer, 0, put(&time, sizeof time), NULL));
        unsigned char *got = room(32);
        note_varying(syscall(SYS_timerfd_gettime, timer, got), got, 32);
        break;
    }
    case 6: note(syscall(SYS_nanosleep, put(&none, sizeof none), room(16))); break;
    case 7: {
        unsigned char *at = room(16);
        note_varying(syscall(SYS_clock_gettime, below(2), at), at, 16);
        note(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, put(&none, sizeof none), room(16)));
        break;
    }
    case 8: {
        unsigned char *at = room(16);
        note_varying(syscall(SYS_gettimeofday, at, NULL), at, 16);
        break;
    }
    case 9: {
        sigset_t set;
        sigemptyset(&set), sigaddset(&set, SIGUSR2);
        note(syscall(SYS_rt_sigprocmask, SIG_BLOCK, put(&set, 8), room(8), 8));
        note(syscall(SYS_rt_sigpending, room(8), 8));
        note(syscall(SYS_rt_sigtimedwait, put(&set, 8), room(128), put(&none, sizeof none), 8));
        note(syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, put(&set, 8), NULL, 8));
        break;
    }
    case 10: {
        long number = syscall(SYS_inotify_add_watch, notify, text(path), IN_ATTRIB);
        note(number < 0);
        note(syscall(SYS_fchmod, file, 0600));
        struct inotify_event *got = room(sizeof *got + 64);
        note(syscall(SYS_read, notify, got, sizeof *got + 64));
        memset(got, 0, sizeof *got);
        note(syscall(SYS_inotify_rm_watch, notify, number));
        drain(notify);
        break;
    }
    case 11: {
        sigset_t set;
        sigemptyset(&set), sigaddset(&set, SIGUSR2);
        long fd = syscall(SYS_signalfd4, -1, put(&set, 8), 8, SFD_NONBLOCK);
        note_varying(fd, NULL, 0);
        note(syscall(SYS_read, fd, room(128), 128));
        close(fd);
        break;
    }
    default: {
        unsigned *word = put(&(unsigned){7}, 4);
        note(syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 8, put(&none, sizeof none)));
        note(syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 7, put(&none, sizeof none)));
        note(syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1));
    }
    }
}

static void on_process(void) {
    unsigned char *at;
    switch (below(17)) {
    case 0: at = room(390), note_varying(syscall(SYS_uname, at), at, 390); break;
    case 1: at = room(112), note_varying(syscall(SYS_sysinfo, at), at, 112); break;
    case 2: at = room(144), note_varying(syscall(SYS_getrusage, RUSAGE_SELF, at), at, 144); break;
    case 3: at = room(32), note_varying(syscall(SYS_times, at), at, 32); break;
    case 4: at = room(300), note_varying(syscall(SYS_getrandom, at, 300, 0), at, 300); break;
    case 5: at = room(4096), note_varying(syscall(SYS_getcwd, at, 4096), at, 4096); break;
    case 6: at = room(16), note(syscall(SYS_getrlimit, RLIMIT_CORE, at)); break;
    case 7: at = room(16), note(syscall(SYS_prlimit64, 0, RLIMIT_STACK, NULL, at)); break;
    case 8: note(syscall(SYS_getresuid, room(4), room(4), room(4))); break;
    case 9: note(syscall(SYS_getresgid, room(4), room(4), room(4))); break;
    case 10: note(syscall(SYS_getgroups, 60, room(240))); break;
    case 11: note(syscall(SYS_sched_getaffinity, 0, 128, room(128))); break;
    case 12: note(syscall(SYS_prctl, PR_SET_NAME, text("buffers"))), note(syscall(SYS_prctl, PR_GET_NAME, room(16))); break;
    case 13: at = room(120), note_varying(syscall(SYS_statfs, text("/"), at), at, 120); break;
    case 14: note(syscall(SYS_sched_getparam, 0, room(4))); break;
    case 15: {
        at = room(2000);
        lseek(folder, 0, SEEK_SET);
        note_varying(syscall(SYS_getdents64, folder, at, 2000), at, 2000);
        break;
    }
    default: {
        pid_t child = fork();
        if (child == 0) _exit(5);
        int *status = room(4);
        note(syscall(SYS_wait4, child, status, 0, at = room(144)) == child);
        note(*status);
        memset(at, 0, 144);
    }
    }
}

static void set_up(void) {
    NEED(mkdtemp(place) && chdir(place) == 0);
    file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    NEED(file >= 0 && pipe2(ends, O_NONBLOCK) == 0 && socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair) == 0);
    list = epoll_create1(0), event = eventfd(0, EFD_NONBLOCK), timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    notify = inotify_init1(IN_NONBLOCK), folder = open("/proc/self", O_RDONLY | O_DIRECTORY);
    NEED(list >= 0 && event >= 0 && timer >= 0 && notify >= 0 && folder >= 0);
}

static void calls_use(uint64_t seed, void (*const *kinds)(void), int count) {
    sem_t *all[] = {&mapped, &wanted, &done, &seen, &ordered, &obeyed};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) NEED(sem_init(all[i], 0, 0) == 0);
    set_up();
    pthread_t threads[] = {start(map_memory, NULL), start(read_memory, NULL), start(obey, NULL)};
    state = seed + 100 * (getenv("SEED") ? atol(getenv("SEED")) : 0);
    for (int i = 0; i < CALLS; i++) {
        sem_post(&wanted), sem_wait(&mapped);
        used = 0;
        errno = 0;
        kinds[i % count]();
        for (; varies > 0; varies--) memset(varying[varies - 1].at, 0, varying[varies - 1].length);
        sem_post(&done), sem_wait(&seen);
        if (i % 20 == 19 || getenv("EACH")) SAY("%d %016lx\n", i, (unsigned long)digest);
    }
    is_over = 1;
    sem_post(&wanted), sem_post(&done), sem_post(&ordered);
    for (int i = 0; i < 3; i++) finish(threads[i]);
    unlink(other);
    NEED(unlink(path) == 0 && rmdir(place) == 0);
}

#define USE(name, seed, ...)                                    \
    static void name(void) {                                    \
        static void (*const kinds[])(void) = {__VA_ARGS__};     \
        calls_use(seed, kinds, sizeof kinds / sizeof *kinds);   \
    }

USE(calls_on_files_use_others_memory, 1, on_files)
USE(calls_on_streams_use_others_memory, 2, on_streams)
USE(calls_that_wait_use_others_memory, 3, on_events)
USE(calls_about_the_process_use_others_memory, 4, on_process)
#define ANY(name, seed) USE(name, seed, on_files, on_streams, on_events, on_process)
ANY(any_calls_use_others_memory, 5)
ANY(a_second_row_of_calls, 6)
ANY(a_third_row_of_calls, 7)
ANY(a_fourth_row_of_calls, 8)
ANY(a_fifth_row_of_calls, 9)
ANY(a_sixth_row_of_calls, 10)
ANY(a_seventh_row_of_calls, 11)

RULES(RULE(calls_on_files_use_others_memory), RULE(calls_on_streams_use_others_memory), RULE(calls_that_wait_use_others_memory),
      RULE(calls_about_the_process_use_others_memory), RULE(any_calls_use_others_memory), RULE(a_second_row_of_calls),
      RULE(a_third_row_of_calls), RULE(a_fourth_row_of_calls), RULE(a_fifth_row_of_calls), RULE(a_sixth_row_of_calls),
      RULE(a_seventh_row_of_calls))

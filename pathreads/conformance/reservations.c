// Rules of mappings without rights, of which a part is made accessible later. A runtime may serve those that
// a program makes again and again, so most rules begin with some rounds ("warm up").
#include "rule.h"
#include <sys/uio.h>

enum { SOME = 64, MANY = 1 << 18 };

static unsigned char *reserve_with(size_t pages, int flags) {
    void *at = mmap(NULL, pages * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    NEED(at != MAP_FAILED);
    return at;
}

static unsigned char *reserve(size_t pages) {
    return reserve_with(pages, MAP_NORESERVE);
}

static void open_part(unsigned char *at, size_t from, size_t to) {
    NEED(mprotect(at + from * page, (to - from) * page, PROT_READ | PROT_WRITE) == 0);
}

static void unmap(unsigned char *at, size_t pages) {
    NEED(munmap(at, pages * page) == 0);
}

// Returns the number of bytes that are not zero, of some of each page.
static long wrong_in(const unsigned char *at, size_t from, size_t to) {
    long wrong = 0;
    for (size_t i = from * page; i < to * page; i += 256) wrong += at[i] != 0;
    return wrong;
}

// Maps and unmaps a part some times, and leaves bytes in it.
static void warm_up(size_t pages, size_t from, size_t to) {
    for (int round = 0; round < 6; round++) {
        unsigned char *at = reserve(pages);
        open_part(at, from, to);
        NEED(wrong_in(at, from, to) == 0);
        memset(at + from * page, 0xaa, (to - from) * page);
        unmap(at, pages);
    }
}

static void a_part_is_zero_each_time(void) {
    const size_t lengths[] = {1, 2, 16, 17, SOME, 100, 1000, MANY, MANY + 8192 + 1};
    long wrong = 0;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        for (int round = 0; round < 40; round++) {
            size_t pages = lengths[i], from = pages / 4, to = from + (pages > 600 ? 300 : (pages + 1) / 2);
            unsigned char *at = reserve_with(pages, round % 2 ? MAP_NORESERVE : MAP_STACK);
            open_part(at, from, to);
            wrong += wrong_in(at, from, to);
            for (size_t k = from * page; k < to * page; k += 512 * (1 + round % 20)) at[k] = 1;
            unmap(at, pages);
        }
    }
    SAY("%ld\n", wrong);
}

static void only_the_part_is_accessible(void) {
    warm_up(SOME, 8, 40);
    const size_t parts[][2] = {{8, 40}, {8, 20}, {12, 40}, {0, 8}, {40, 64}, {0, 64}, {20, 21}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        size_t from = parts[i][0], to = parts[i][1];
        unsigned char *at = reserve(SOME);
        open_part(at, from, to);
        long wrong = wrong_in(at, from, to);
        for (size_t k = 0; k < SOME; k++) wrong += (faults(at + k * page) == 0) != (from <= k && k < to);
        SAY("%ld ", wrong);
        unmap(at, SOME);
    }
    SAY("\n");
}

static void a_part_grows(void) {
    warm_up(SOME, 0, 10);
    for (int round = 0; round < 5; round++) {
        unsigned char *at = reserve(SOME);
        open_part(at, 0, 10);
        memset(at, 1, 10 * page);
        open_part(at, 10, 20);
        open_part(at, 15, 30);
        NEED(at[10 * page - 1] == 1);
        SAY("%ld %d ", wrong_in(at, 10, 30), faults(at + 30 * page));
        memset(at, 2, 30 * page);
        unmap(at, SOME);
    }
    SAY("\n");
}

static void rights_may_be_changed(void) {
    warm_up(SOME, 0, SOME);
    for (int round = 0; round < 3; round++) {
        unsigned char *at = reserve(SOME);
        open_part(at, 0, SOME);
        memset(at, 3, SOME * page);
        NEED(mprotect(at + 4 * page, 4 * page, PROT_NONE) == 0 && mprotect(at + 8 * page, 4 * page, PROT_READ) == 0);
        SAY("%d %d %d %d ", is_readable(at + 4 * page), faults(at + 8 * page), at[8 * page], faults(at + 12 * page));
        open_part(at, 4, 12);
        SAY("%d %d ", at[4 * page], at[11 * page]);
        unmap(at, SOME);
    }
    unsigned char *at = reserve(SOME);
    NEED(mprotect(at, page, PROT_READ) == 0);
    SAY("%d %d\n", at[0], faults(at));
    SAY_CALL(mprotect(at + 1, page, PROT_READ | PROT_WRITE));
    SAY_CALL(mprotect(at, 0, PROT_READ | PROT_WRITE));
    SAY_CALL(mprotect(at, page, 64));
}

static void there_may_be_several_parts(void) {
    warm_up(SOME, 2, 4);
    for (int round = 0; round < 3; round++) {
        unsigned char *at = reserve(SOME);
        for (size_t k = 1; k < SOME; k += 3) {
            open_part(at, k, k + 1);
            at[k * page] += 1;
        }
        long sum = 0;
        for (size_t k = 0; k < SOME; k++) sum += is_readable(at + k * page) ? at[k * page] : 100;
        SAY("%ld ", sum);
        unmap(at, SOME);
    }
    SAY("\n");
}

static void a_reservation_may_be_unmapped_in_parts(void) {
    warm_up(SOME, 8, 40);
    for (int part = 0; part < 4; part++) {
        unsigned char *at = reserve(SOME);
        if (part != 3) open_part(at, 8, 40);
        if (part != 3) at[20 * page] = 5;
        NEED(munmap(at + part * 16 * page, 16 * page) == 0);
        for (size_t k = 0; k < SOME; k += 4) SAY("%d", is_readable(at + k * page));
        NEED(munmap(at, SOME * page) == 0);
        SAY(" %d\n", is_readable(at + 20 * page));
    }
    warm_up(SOME, 8, 40);
}

static void other_mappings_may_take_the_place(void) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    for (int open = 0; open < 2; open++) {
        warm_up(SOME, 8, 40);
        unsigned char *at = reserve(SOME);
        if (open) open_part(at, 8, 40);
        NEED(mmap(at + 4 * page, 8 * page, PROT_READ | PROT_WRITE, flags | MAP_FIXED, -1, 0) == at + 4 * page);
        memset(at + 4 * page, 9, 8 * page);
        warm_up(SOME, 8, 40);
        NEED(at[4 * page] == 9 && at[12 * page - 1] == 9);
        SAY("%d %d %d\n", is_readable(at), is_readable(at + 12 * page), is_readable(at + 40 * page));
        unmap(at, SOME);
        void *again = mmap(at, SOME * page, PROT_READ | PROT_WRITE, flags | MAP_FIXED_NOREPLACE, -1, 0);
        NEED(again == at);
        SAY("%ld\n", wrong_in(at, 0, SOME));
        memset(at, 4, SOME * page);
        warm_up(SOME, 8, 40);
        NEED(at[0] == 4 && at[SOME * page - 1] == 4);
    }
}

static void the_list_of_mappings_is_right(void) {
    warm_up(SOME, 8, 40);
    unsigned char *at = reserve(SOME);
    SAY("%d ", is_listed(at + 8 * page));
    SAY("%d ", faults(at + 8 * page));
    open_part(at, 8, 40);
    SAY("%d %d %ld ", is_listed(at + 8 * page), is_listed(at + 40 * page), wrong_in(at, 8, 40));
    at[8 * page] = 1;
    unmap(at, SOME);
    SAY("%d\n", is_listed(at + 8 * page));
    warm_up(SOME, 8, 40);
}

static void other_calls_see_what_was_promised(void) {
    unsigned char seen[SOME];
    warm_up(SOME, 0, SOME);
    unsigned char *at = reserve(SOME);
    SAY_CALL(mincore(at, SOME * page, seen));
    unmap(at, SOME);
    SAY_CALL(mincore(at, SOME * page, seen));
    warm_up(SOME, 0, SOME);
    at = reserve(SOME);
    open_part(at, 0, SOME);
    memset(at, 1, SOME * page);
    NEED(madvise(at + page, 2 * page, MADV_DONTNEED) == 0);
    SAY("%d %d %d %d\n", at[0], at[page], at[3 * page - 1], at[3 * page]);
    unmap(at, SOME);
    at = reserve(SOME);
    SAY_CALL(madvise(at, SOME * page, MADV_DONTNEED));
    open_part(at, 0, SOME);
    at[5] = 6;
    unsigned char *moved = mremap(at, SOME * page, 2 * SOME * page, MREMAP_MAYMOVE);
    NEED(moved != MAP_FAILED);
    SAY("%d %ld\n", moved[5], wrong_in(moved, 1, 2 * SOME));
    unmap(moved, 2 * SOME);
    warm_up(SOME, 0, SOME);
}

static int make_file(size_t bytes, unsigned char first) {
    static unsigned char content[40 * 4096];
    for (size_t i = 0; i < sizeof content; i++) content[i] = first + i / 256;
    int file = memfd_create("file", 0);
    NEED(file >= 0 && write(file, content, bytes) == (ssize_t)bytes);
    return file;
}

static unsigned char *map_file_over(unsigned char *at, size_t pages, int file, size_t first) {
    int flags = MAP_PRIVATE | MAP_FIXED;
    return mmap(at, pages * page, PROT_READ | PROT_WRITE, flags, file, first * page);
}

static void say_bytes(const unsigned char *at) {
    for (size_t i = 0; i < 20; i++) SAY("%d ", is_readable(at + i * page) ? at[i * page] * 1000 + at[i * page + 4000] : -1);
    SAY("\n");
}

static void a_file_may_be_mapped_over_a_part(void) {
    int small = make_file(3 * page + 100, 1), large = make_file(40 * page, 50);
    for (int round = 0; round < 24; round++) {
        warm_up(SOME, 0, 20);
        unsigned char *at = reserve(SOME);
        open_part(at, 0, 20);
        memset(at + 10 * page, 7, page);
        size_t from = round / 3 % 2, pages = round % 5 == 4 ? 19 : 4 - from;
        NEED(map_file_over(at + 2 * page, pages, round % 3 ? small : large, from) == at + 2 * page);
        at[4 * page] = 99;
        if (round % 4 == 1) NEED(map_file_over(at + 2 * page, 4, small, 0) == at + 2 * page);
        if (round % 4 == 2) NEED(map_file_over(at + 8 * page, 2, large, 3) == at + 8 * page);
        if (round % 4 == 3) open_part(at, 15, 30);
        if (pages == 4) say_bytes(at);
        unmap(at, SOME);
    }
    unsigned char bytes[2];
    NEED(pread(small, bytes, 2, 2 * page) == 2);
    SAY("%d %d\n", bytes[0], bytes[1]);
}

static void a_file_over_a_part_is_the_programs_copy(void) {
    int file = make_file(4 * page, 1);
    for (int round = 0; round < 6; round++) {
        unsigned char byte = 100 + round;
        warm_up(SOME, 0, 20);
        NEED(pwrite(file, &byte, 1, page) == 1);
        unsigned char *at = reserve(SOME);
        open_part(at, 0, 20);
        NEED(map_file_over(at + page, 4, file, 0) == at + page);
        SAY("%d ", at[2 * page]);
        memset(at, 77, 20 * page);
        if (round % 2) NEED(madvise(at, 3 * page, MADV_DONTNEED) == 0);
        say_bytes(at);
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            if (round % 3 == 0) NEED(madvise(at + page, 2 * page, MADV_DONTNEED) == 0);
            say_bytes(at);
            exit(at[0]);
        }
        say_end("the child", child);
        SAY_CALL(madvise(at + page, page, MADV_FREE));
        unmap(at, SOME);
    }
}

static void a_file_over_a_part_must_be_one_that_can_be_mapped(void) {
    warm_up(SOME, 0, 20);
    int file = make_file(4 * page, 1), directory = open("/", O_RDONLY);
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    int written = open(path, O_WRONLY);
    for (int round = 0; round < 3; round++) {
        unsigned char *at = reserve(SOME);
        open_part(at, 0, 20);
        NEED(map_file_over(at, 2, file, 0) == at);
        unmap(at, SOME);
        at = reserve(SOME);
        open_part(at, 0, 20);
        errno = 0;
        SAY("%d ", map_file_over(at, 2, written, 0) == MAP_FAILED ? errno : 0);
        SAY("%d ", map_file_over(at, 2, directory, 0) == MAP_FAILED ? errno : 0);
        SAY("%d ", map_file_over(at, 2, 999, 0) == MAP_FAILED ? errno : 0);
        unmap(at, SOME);
    }
    SAY("\n");
}

static void a_limit_counts_what_is_mapped(void) {
    warm_up(MANY, 8, 40);
    unsigned char *at = reserve(MANY);
    open_part(at, 8, 40);
    at[8 * page] = 7;
    struct rlimit limit = {3ul << 30, 3ul << 30};
    NEED(setrlimit(RLIMIT_AS, &limit) == 0);
    unsigned char *large = reserve(MANY);
    SAY("%d %d\n", large != MAP_FAILED, at[8 * page]);
    open_part(large, 0, 8);
    SAY("%ld\n", wrong_in(large, 0, 8));
    unmap(at, MANY);
    unmap(large, MANY);
    SAY("%d %d\n", is_readable(at + 8 * page), is_readable(large));
}

static void many_live_at_once(void) {
    enum { LIVE = 700 };
    static unsigned char *at[LIVE];
    warm_up(SOME, 8, 16);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < LIVE; i++) {
            at[i] = reserve(SOME);
            open_part(at[i], 8, 16);
            NEED(at[i][8 * page] == 0);
            at[i][8 * page] = i % 200;
        }
        for (int i = 0; i < LIVE; i++) {
            NEED(at[i][8 * page] == i % 200);
            unmap(at[i], SOME);
        }
    }
    SAY("all had their own\n");
}

static volatile int stop;
static void *churn(void *unused) {
    unsigned seed = 3;
    while (!stop) {
        size_t pages = next_random(&seed) % 2 ? SOME : 3 * SOME, to = 1 + next_random(&seed) % 30;
        unsigned char *at = reserve(pages);
        open_part(at, 0, to);
        NEED(wrong_in(at, 0, to) == 0);
        memset(at, 1, to * page);
        unmap(at, pages);
    }
    return unused;
}

static void children_of_busy_threads_go_on(void) {
    pthread_t one = start(churn, NULL), other = start(churn, NULL);
    int good = 0;
    for (int i = 0; i < 40; i++) {
        unsigned char *at = reserve(SOME);
        open_part(at, 0, 20);
        memset(at, 8, 20 * page);
        pid_t child = fork();
        if (child == 0) {
            NEED(at[20 * page - 1] == 8);
            for (int k = 0; k < 20; k++) warm_up(k % 2 ? SOME : 3 * SOME, 0, 1 + k);
            unmap(at, SOME);
            NEED(!is_listed(at));
            _exit(0);
        }
        int status;
        NEED(waitpid(child, &status, 0) == child);
        good += status == 0 && at[0] == 8;
        unmap(at, SOME);
    }
    stop = 1;
    finish(one);
    finish(other);
    SAY("%d\n", good);
}

static unsigned char *pass_on[2];
static void *unmap_others(void *mine) {
    pthread_barrier_t *barrier = mine;
    int me = pthread_barrier_wait(barrier) == PTHREAD_BARRIER_SERIAL_THREAD;
    for (int i = 0; i < 300; i++) {
        unsigned char *at = reserve(SOME);
        if (i % 3) open_part(at, 4, 12);
        pass_on[me] = at;
        pthread_barrier_wait(barrier);
        unsigned char *others = pass_on[1 - me];
        if (i % 3 == 0) open_part(others, 4, 12);
        NEED(wrong_in(others, 4, 12) == 0);
        memset(others + 4 * page, 1, 8 * page);
        unmap(others, SOME);
        pthread_barrier_wait(barrier);
    }
    return NULL;
}

static void any_thread_may_unmap(void) {
    warm_up(SOME, 4, 12);
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_t one = start(unmap_others, &barrier), other = start(unmap_others, &barrier);
    finish(one);
    finish(other);
    SAY("all unmapped\n");
}

static volatile int handled;
static void map_in_handler(int signal) {
    unsigned char *at = reserve(SOME);
    open_part(at, 0, 8);
    NEED(wrong_in(at, 0, 8) == 0);
    memset(at, signal, 8 * page);
    unmap(at, SOME);
    handled++;
}

static void a_handler_may_map(void) {
    struct sigaction action = {.sa_handler = map_in_handler, .sa_flags = SA_RESTART};
    NEED(sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    NEED(setitimer(ITIMER_REAL, &often, NULL) == 0);
    while (handled < 500) warm_up(SOME, 0, 8);
    NEED(setitimer(ITIMER_REAL, &never, NULL) == 0);
    SAY("well\n");
}

// Opens another part than the last one, and leaves bytes in memory that has no rights any more.
static void what_was_closed_is_zero_again(void) {
    long wrong = 0;
    for (size_t round = 0; round < 60; round++) {
        unsigned char *at = reserve(SOME);
        size_t from = round % 5, to = from + 4 + round % 3;
        open_part(at, from, to);
        wrong += wrong_in(at, from, to);
        memset(at + from * page, 9, (to - from) * page);
        if (round % 2) NEED(mprotect(at + from * page, 2 * page, PROT_NONE) == 0);
        if (round % 4 > 1) open_part(at, 40, 44);
        unmap(at, SOME);
    }
    SAY("%ld\n", wrong);
}

static void a_limit_of_addresses_does_not_count_what_is_unmapped(void) {
    struct rlimit limit = {12UL << 30, 12UL << 30};
    NEED(setrlimit(RLIMIT_AS, &limit) == 0);
    for (size_t i = 0; i < 10; i++) {
        unsigned char *at = reserve((1 << 20) + i * 256);
        open_part(at, 0, 4);
        at[0] = 1;
        unmap(at, (1 << 20) + i * 256);
    }
    SAY("none\n");
}

// In the middle of `munmap`: a child, and then a mapping, which keeps what is written to it.
enum { LARGE = 256 };
static volatile int in_unmap;
static unsigned char *volatile from_handler;
static void map_while_unmapping(int signal) {
    if (!in_unmap || from_handler) return;
    pid_t child = vfork();
    if (child == 0) _exit(0);
    NEED(waitpid(child, NULL, 0) == child);
    unsigned char *at = reserve(4 * LARGE);
    open_part(at, 0, LARGE);
    memset(at, signal, LARGE * page);
    from_handler = at;
}

static void *wait_with_signals_blocked(void *barrier) {
    pthread_barrier_wait(barrier);
    return NULL;
}

static void a_handler_keeps_what_it_maps_during_munmap(void) {
    sigset_t alarm_only, before;
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    NEED(pthread_sigmask(SIG_BLOCK, &alarm_only, &before) == 0);
    static pthread_barrier_t never;
    pthread_barrier_init(&never, NULL, 2);
    pthread_t other = start(wait_with_signals_blocked, &never);
    NEED(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    struct sigaction action = {.sa_handler = map_while_unmapping, .sa_flags = SA_RESTART};
    NEED(sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval often = {{0, 500}, {0, 500}}, off = {{0, 0}, {0, 0}};
    NEED(setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (int i = 0; i < 400; i++) {
        unsigned char *at = reserve(4 * LARGE);
        open_part(at, 0, LARGE);
        memset(at, 1, LARGE * page);
        in_unmap = 1;
        unmap(at, 4 * LARGE);
        in_unmap = 0;
        if (!from_handler) continue;
        for (size_t k = 0; k < LARGE; k++) NEED(from_handler[k * page] == SIGALRM);
        unmap(from_handler, 4 * LARGE);
        from_handler = NULL;
    }
    NEED(setitimer(ITIMER_REAL, &off, NULL) == 0);
    pthread_barrier_wait(&never);
    finish(other);
    SAY("all\n");
}

// A thread that has unmapped its stack for signals goes on, while others take memory from it.
static volatile unsigned char *taken;
static void *go_on_without_signal_stack(void *unused) {
    unsigned char *at = reserve(SOME);
    open_part(at, 1, SOME);
    stack_t stack = {.ss_sp = at + page, .ss_size = (SOME - 1) * page};
    NEED(sigaltstack(&stack, NULL) == 0);
    unmap(at, SOME);
    while (!stop) taken[0]++;
    return unused;
}

static void a_stack_for_signals_may_be_unmapped(void) {
    taken = map_pages(40);
    pthread_t one = start(go_on_without_signal_stack, NULL);
    while (taken[0] == 0) sched_yield();
    for (int i = 0; i < 200; i++) {
        NEED(mprotect((void *)taken, 40 * page, PROT_READ | PROT_WRITE | (i % 2 ? PROT_EXEC : 0)) == 0);
        unsigned char *over = mmap((void *)(taken + 20 * page), page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        NEED(over == taken + 20 * page);
    }
    stop = 1;
    finish(one);
    SAY("it goes on\n");
}

// Reads the list of mappings, which makes a runtime revoke what it has kept.
static void *look(void *unused) {
    while (!stop) is_listed(pass_on);
    return unused;
}

static void a_look_at_the_mappings_disturbs_no_thread(void) {
    pthread_t one = start(churn, NULL), other = start(churn, NULL), looking = start(look, NULL);
    for (int i = 0; i < 300; i++) warm_up(SOME, 0, 12);
    stop = 1;
    finish(one);
    finish(other);
    finish(looking);
    SAY("none\n");
}

// Random calls on reservations of a thread, with a copy of what each page should hold: CLOSED, or its bytes.
enum { RESERVATIONS = 24, MOST = 96, CLOSED = 255 };
struct reservation {
    unsigned char *at;
    size_t pages;
    unsigned char holds[MOST];
};

static void check(const struct reservation *one) {
    for (size_t i = 0; i < one->pages; i++) {
        const unsigned char *at = one->at + i * page;
        if (one->holds[i] != CLOSED) NEED(at[0] == one->holds[i] && at[page - 1] == one->holds[i]);
    }
}

// Before a first part is open, a runtime may have left the last one accessible.
static void check_closed(const struct reservation *one) {
    if (memchr(one->holds, CLOSED, one->pages) && !memcmp(one->holds, one->holds + 1, one->pages - 1)) return;
    for (size_t i = 0; i < one->pages; i++) NEED(is_readable(one->at + i * page) == (one->holds[i] != CLOSED));
}

static void set(struct reservation *one, size_t from, size_t to, unsigned char value) {
    for (size_t i = from; i < to; i++) one->holds[i] = value;
}

static void open_pages(struct reservation *one, size_t from, size_t to) {
    open_part(one->at, from, to);
    for (size_t i = from; i < to; i++) {
        if (one->holds[i] == CLOSED) one->holds[i] = 0;
    }
}

// Has the kernel write the first and the last byte of a page. Returns the byte.
static unsigned char let_kernel_write(unsigned char *at) {
    struct iovec ends[] = {{at, 1}, {at + page - 1, 1}};
    int ways[2];
    NEED(pipe(ways) == 0 && write(ways[1], "77", 2) == 2 && readv(ways[0], ends, 2) == 2);
    NEED(close(ways[0]) == 0 && close(ways[1]) == 0);
    return '7';
}

static void change(struct reservation *one, unsigned *seed) {
    size_t from = next_random(seed) % one->pages, to = from + 1 + next_random(seed) % (one->pages - from);
    unsigned char *at = one->at + from * page;
    size_t length = (to - from) * page;
    switch (next_random(seed) % 24) {
    case 0:
        open_pages(one, from, to);
        break;
    case 1:
        NEED(madvise(at, length, MADV_DONTNEED) == 0);
        for (size_t i = from; i < to; i++) one->holds[i] = one->holds[i] == CLOSED ? CLOSED : 0;
        break;
    case 2:
        NEED(mmap(at, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
        set(one, from, to, CLOSED);
        break;
    case 3:
        NEED(mmap(at, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
        set(one, from, to, 0);
        break;
    case 4:
        unmap(one->at + from * page, one->pages - from);
        one->pages = from;
        break;
    case 5:
        check_closed(one);
        break;
    case 6:
        if (one->holds[from] != CLOSED) one->holds[from] = let_kernel_write(at);
        break;
    case 7:
        NEED(mprotect(at, length, next_random(seed) % 2 ? PROT_NONE : PROT_READ) == 0);
        open_pages(one, from, to);
        break;
    default:
        for (size_t i = from; i < to; i++) {
            if (one->holds[i] == CLOSED) continue;
            one->holds[i] = 1 + next_random(seed) % 200;
            one->at[i * page] = one->at[i * page + page - 1] = one->holds[i];
        }
    }
}

static void call_once(struct reservation *one, unsigned *seed) {
    static const size_t lengths[] = {16, 32, MOST};
    if (one->pages == 0) {
        one->pages = lengths[next_random(seed) % 3];
        one->at = reserve(one->pages);
        set(one, 0, one->pages, CLOSED);
        size_t from = one->pages / 8;
        if (next_random(seed) % 8) open_pages(one, from, from + one->pages / (next_random(seed) % 4 ? 2 : 4));
    } else if (next_random(seed) % 3) {
        check(one);
        unmap(one->at, one->pages);
        one->pages = 0;
    } else {
        change(one, seed);
    }
    check(one);
}

static void *call_at_random(void *number) {
    struct reservation *all = calloc(RESERVATIONS, sizeof *all);
    unsigned seed = 91 * (unsigned)(uintptr_t)number;
    for (int round = 0; round < 12000; round++) call_once(&all[next_random(&seed) % RESERVATIONS], &seed);
    for (int i = 0; i < RESERVATIONS; i++) check(&all[i]);
    free(all);
    return NULL;
}

// The same on reservations of all threads, of which each is one thread's at a time.
static struct {
    pthread_mutex_t lock;
    struct reservation one;
} shared[RESERVATIONS];
static void *call_on_shared(void *number) {
    unsigned seed = 57 * (unsigned)(uintptr_t)number;
    for (int round = 0; round < 6000; round++) {
        int i = next_random(&seed) % RESERVATIONS;
        pthread_mutex_lock(&shared[i].lock);
        for (int calls = 1 + next_random(&seed) % 6; calls > 0; calls--) call_once(&shared[i].one, &seed);
        pthread_mutex_unlock(&shared[i].lock);
    }
    return NULL;
}

static void reservations_of_others_survive_random_calls(void) {
    for (int i = 0; i < RESERVATIONS; i++) pthread_mutex_init(&shared[i].lock, NULL);
    pthread_t threads[3];
    for (uintptr_t i = 0; i < 3; i++) threads[i] = start(call_on_shared, (void *)(i + 1));
    for (int i = 0; i < 3; i++) finish(threads[i]);
    for (int i = 0; i < RESERVATIONS; i++) check(&shared[i].one);
    SAY("three threads\n");
}

static void reservations_survive_random_calls(void) {
    call_at_random((void *)1);
    SAY("one thread\n");
}

static void reservations_survive_random_calls_of_threads(void) {
    run_in_threads_and_children(call_at_random);
}

RULES(RULE(a_part_is_zero_each_time), RULE(only_the_part_is_accessible), RULE(a_part_grows), RULE(rights_may_be_changed),
      RULE(there_may_be_several_parts), RULE(a_reservation_may_be_unmapped_in_parts),
      RULE(other_mappings_may_take_the_place), RULE(the_list_of_mappings_is_right),
      RULE(other_calls_see_what_was_promised), RULE(a_file_may_be_mapped_over_a_part),
      RULE(a_file_over_a_part_is_the_programs_copy), RULE(a_file_over_a_part_must_be_one_that_can_be_mapped),
      RULE(a_limit_counts_what_is_mapped), RULE(many_live_at_once),
      RULE(children_of_busy_threads_go_on), RULE(any_thread_may_unmap), RULE(a_handler_may_map),
      RULE(what_was_closed_is_zero_again),
      RULE(a_limit_of_addresses_does_not_count_what_is_unmapped), RULE(a_handler_keeps_what_it_maps_during_munmap),
      RULE(a_stack_for_signals_may_be_unmapped), RULE(a_look_at_the_mappings_disturbs_no_thread), RULE(reservations_survive_random_calls),
      RULE(reservations_survive_random_calls_of_threads), RULE(reservations_of_others_survive_random_calls))

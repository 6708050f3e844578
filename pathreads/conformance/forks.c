// Rules of memory that is large when a process is made. If it is not copied at once, no program may notice.
#include "rule.h"

#include <dirent.h>
#include <linux/futex.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define MIB ((size_t)1 << 20)
#define LARGE (64 * MIB)
#define PAGES (LARGE / 4096)

static sem_t ready, go;
static volatile int is_over;

static unsigned char *map_large(size_t length) {
    unsigned char *at = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(at != MAP_FAILED);
    return at;
}

// Writes a number to each page.
static void number_pages(unsigned char *at, size_t pages, size_t by) {
    for (size_t i = 0; i < pages; i++) *(size_t *)(at + i * page) = i * by;
}

static size_t wrong_pages(unsigned char *at, size_t pages, size_t by) {
    size_t wrong = 0;
    for (size_t i = 0; i < pages; i++) wrong += *(size_t *)(at + i * page) != i * by;
    return wrong;
}

static void *idle(void *with) {
    sem_wait(&go);
    return with;
}

static pthread_t begin_with_a_thread(void) {
    NEED(sem_init(&ready, 0, 0) == 0 && sem_init(&go, 0, 0) == 0);
    return start(idle, NULL);
}

static void end_with_a_thread(pthread_t thread) {
    sem_post(&go);
    finish(thread);
}

static void both_write_to_what_was_one(void) {
    pthread_t thread = begin_with_a_thread();
    unsigned char *at = map_large(LARGE);
    number_pages(at, PAGES, 3);
    int to_child[2], to_parent[2];
    char byte;
    NEED(pipe(to_child) == 0 && pipe(to_parent) == 0);
    pid_t child = fork();
    if (child == 0) {
        // The parent has written to all.
        NEED(read(to_child[0], &byte, 1) == 1);
        size_t wrong = wrong_pages(at, PAGES, 3);
        number_pages(at, PAGES, 5);
        NEED(write(to_parent[1], "x", 1) == 1 && read(to_child[0], &byte, 1) == 1);
        _exit(wrong + wrong_pages(at, PAGES, 5) != 0);
    }
    number_pages(at, PAGES, 7);
    NEED(write(to_child[1], "x", 1) == 1 && read(to_parent[0], &byte, 1) == 1);
    SAY("%zu\n", wrong_pages(at, PAGES, 7));
    number_pages(at, PAGES, 11);
    NEED(write(to_child[1], "x", 1) == 1);
    say_end("the child", child);
    SAY("%zu\n", wrong_pages(at, PAGES, 11));
    end_with_a_thread(thread);
}

static volatile long *numbers;
static const long last_number = LARGE / sizeof(long);
static void *count_in_order(void *with) {
    for (long i = 1; !is_over; i++) {
        numbers[0] = i;
        numbers[last_number / 2] = i;
        numbers[last_number - 1] = i;
        if (i == 1) sem_post(&ready);
    }
    return with;
}

static void what_was_written_first_is_there(void) {
    NEED(sem_init(&ready, 0, 0) == 0);
    numbers = (long *)map_large(LARGE);
    for (long i = 0; i < last_number; i += 512) numbers[i] = 1;
    pthread_t thread = start(count_in_order, NULL);
    sem_wait(&ready);
    int wrong = 0, status;
    for (int i = 0; i < 30; i++) {
        pid_t child = fork();
        if (child == 0) {
            long middle = numbers[0] - numbers[last_number / 2], last = numbers[last_number / 2] - numbers[last_number - 1];
            _exit(middle < 0 || last < 0 || middle + last > 1);
        }
        NEED(waitpid(child, &status, 0) == child);
        wrong += status != 0;
    }
    is_over = 1;
    finish(thread);
    SAY("%d\n", wrong);
}

// Two threads hand a turn on, by words in memory of which a process is made meanwhile.
struct turns {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    long turn;
};

static struct turns *turns;
static void *take_turns(void *own) {
    for (;;) {
        pthread_mutex_lock(&turns->mutex);
        while (turns->turn % 2 != (long)own && !is_over) pthread_cond_wait(&turns->changed, &turns->mutex);
        turns->turn += !is_over;
        int ends = is_over;
        pthread_cond_signal(&turns->changed);
        pthread_mutex_unlock(&turns->mutex);
        if (ends) return NULL;
    }
}

static void threads_wake_each_other_beside_forks(void) {
    unsigned char *at = map_large(LARGE);
    number_pages(at, PAGES, 1);
    turns = (struct turns *)(at + LARGE / 2 + 64);
    NEED(pthread_mutex_init(&turns->mutex, NULL) == 0 && pthread_cond_init(&turns->changed, NULL) == 0);
    turns->turn = 0;
    pthread_t threads[] = {start(take_turns, (void *)0), start(take_turns, (void *)1)};
    long seen = 0;
    for (int i = 0; i < 30; i++) {
        pid_t child = fork();
        if (child == 0) _exit(0);
        int status;
        // Half of the children live while there are turns.
        if (i % 2) NEED(waitpid(child, &status, 0) == child);
        for (;;) {
            pthread_mutex_lock(&turns->mutex);
            long turn = turns->turn;
            pthread_mutex_unlock(&turns->mutex);
            if (turn > seen + 20) {
                seen = turn;
                break;
            }
            sched_yield();
        }
        if (i % 2 == 0) NEED(waitpid(child, &status, 0) == child);
    }
    pthread_mutex_lock(&turns->mutex);
    is_over = 1;
    pthread_cond_broadcast(&turns->changed);
    pthread_mutex_unlock(&turns->mutex);
    finish(threads[0]);
    finish(threads[1]);
    SAY("%d\n", seen > 600);
}

// A thread sleeps at a word, a process is made, and the thread is woken.
static unsigned *word;
static volatile pid_t sleeper;
static void *sleep_at_word(void *with) {
    sleeper = gettid();
    sem_post(&ready);
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == 0) syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 0, NULL);
    return with;
}

static void a_thread_that_sleeps_is_woken_after_a_fork(void) {
    NEED(sem_init(&ready, 0, 0) == 0);
    unsigned char *at = map_large(LARGE);
    number_pages(at, PAGES, 1);
    for (int i = 0; i < 10; i++) {
        word = (unsigned *)(at + (size_t)i * 5 * MIB + 128);
        *word = 0;
        pthread_t thread = start(sleep_at_word, NULL);
        sem_wait(&ready);
        until_asleep(sleeper);
        int ends[2];
        char byte;
        NEED(pipe(ends) == 0);
        pid_t child = fork();
        if (child == 0) {
            close(ends[1]);
            _exit(read(ends[0], &byte, 1) != 0 || *word != 0);
        }
        __atomic_store_n(word, 1, __ATOMIC_RELEASE);
        syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1);
        finish(thread);
        close(ends[0]);
        close(ends[1]);
        int status;
        NEED(waitpid(child, &status, 0) == child && status == 0);
    }
    SAY("woken\n");
}

static void children_of_children_have_their_own(void) {
    pthread_t thread = begin_with_a_thread();
    unsigned char *at = map_large(LARGE);
    number_pages(at, PAGES, 1);
    size_t wrong = 0;
    // Each process changes a sixteenth and makes the next one.
    int depth = 0;
    pid_t child = 0;
    for (; depth < 16 && child == 0; depth++) {
        number_pages(at + depth * LARGE / 16, PAGES / 16, depth + 2);
        child = fork();
        if (child != 0) break;
    }
    int status = 0;
    if (child != 0) {
        // What the children wrote is theirs.
        for (int i = 0; i < 16; i++)
            for (size_t j = 0; j < PAGES / 16; j++) {
                size_t by = i <= depth ? (size_t)i + 2 : 1, number = i <= depth ? j : j + i * PAGES / 16;
                wrong += *(size_t *)(at + i * (LARGE / 16) + j * page) != number * by;
            }
        NEED(waitpid(child, &status, 0) == child);
    }
    if (depth > 0) _exit(wrong != 0 || status != 0);
    SAY("%zu %d\n", wrong, status);
    end_with_a_thread(thread);
}

static size_t not_zero(const unsigned char *at, size_t length) {
    size_t count = 0;
    for (size_t i = 0; i < length; i += 512) count += at[i] != 0;
    return count;
}

static void memory_that_goes_is_zero_again(void) {
    pthread_t thread = begin_with_a_thread();
    unsigned char *at = map_large(LARGE);
    memset(at, 1, LARGE);
    unsigned char *heap = sbrk(LARGE);
    memset(heap, 1, LARGE);
    int ends[2];
    char byte;
    NEED(pipe(ends) == 0);
    pid_t child = fork();
    // Both do this.
    NEED(madvise(at + page, page, MADV_DONTNEED) == 0);
    NEED(madvise(at + 8 * MIB, 9 * MIB, MADV_DONTNEED) == 0);
    NEED(mprotect(at + 20 * MIB, 2 * MIB, PROT_READ) == 0);
    NEED(madvise(at + 20 * MIB, page, MADV_DONTNEED) == 0);
    size_t first = not_zero(at, 24 * MIB);
    NEED(munmap(at + 32 * MIB, MIB) == 0);
    void *again = mmap(at + 32 * MIB, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    NEED(again == at + 32 * MIB);
    size_t second = not_zero(at + 31 * MIB, 3 * MIB);
    unsigned char *half = at + LARGE / 2 + 2 * MIB, *moved = mremap(half, 8 * MIB, 24 * MIB, MREMAP_MAYMOVE);
    NEED(moved != MAP_FAILED);
    size_t third = not_zero(moved, 24 * MIB);
    NEED(sbrk(-(intptr_t)(48 * MIB)) != (void *)-1 && sbrk(48 * MIB) != (void *)-1);
    size_t fourth = not_zero(heap, LARGE);
    at[page] = at[9 * MIB] = moved[16 * MIB] = heap[LARGE / 2] = 7;
    size_t fifth = not_zero(at, 16 * MIB) + not_zero(moved, 24 * MIB) + not_zero(heap, LARGE);
    SAY("%zu %zu %zu %zu %zu\n", first, second, third, fourth, fifth);
    fflush(stdout);
    if (child == 0) {
        NEED(read(ends[0], &byte, 1) == 1);
        _exit(at[page] != 7 || at[0] != 1 || at[30 * MIB] != 1 || heap[1] != 1);
    }
    memset(at, 2, 16 * MIB);
    memset(heap, 2, 15 * MIB);
    NEED(write(ends[1], "x", 1) == 1);
    say_end("the child", child);
    end_with_a_thread(thread);
}

static int descriptors(void) {
    int count = 0;
    DIR *list = opendir("/proc/self/fd");
    NEED(list);
    while (readdir(list)) count++;
    closedir(list);
    return count;
}

static int mappings(void) {
    FILE *list = fopen("/proc/self/maps", "r");
    NEED(list);
    int count = 0;
    for (int byte; (byte = getc(list)) != EOF;) count += byte == '\n';
    fclose(list);
    return count;
}

static void many_forks_leave_nothing(void) {
    pthread_t thread = begin_with_a_thread();
    unsigned char *at = map_large(LARGE);
    number_pages(at, PAGES, 1);
    int before = descriptors(), mapped = mappings(), most = 0;
    unsigned random = 1;
    for (int i = 0; i < 100; i++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            at[(size_t)i * page] = 1;
            _exit(0);
        }
        for (int j = 0; j < 4; j++) {
            random = random * 1103515245 + 12345;
            at[random / 4096 % PAGES * page + 9] = 1;
        }
        NEED(waitpid(child, &status, 0) == child && status == 0);
        if (mappings() > most) most = mappings();
    }
    SAY("%d more descriptors, %s mappings\n", descriptors() - before, most > mapped + 900 ? "too many" : "few");
    SAY("%zu\n", wrong_pages(at, PAGES, 1));
    end_with_a_thread(thread);
}

// One thread writes here and there while children live, and another one all the time.
static void *count_everywhere(void *at) {
    long rounds = 0;
    for (; !is_over; rounds++)
        for (size_t i = 0; i < 3 * PAGES; i += 500) ++*(volatile long *)((unsigned char *)at + i * page + 2048);
    return (void *)rounds;
}

static void writes_here_and_there_leave_few_mappings(void) {
    unsigned char *at = map_large(3 * LARGE);
    number_pages(at, 3 * PAGES, 1);
    pthread_t thread = start(count_everywhere, at);
    unsigned random = 1;
    int most = 0;
    for (int i = 0; i < 7; i++) {
        int ends[2], status;
        char byte;
        NEED(pipe(ends) == 0);
        pid_t child = fork();
        if (child == 0) {
            close(ends[1]);
            _exit(read(ends[0], &byte, 1) != 0 || wrong_pages(at, 3 * PAGES, 1) != 0);
        }
        for (int j = 0; j < 1500; j++) {
            random = random * 1103515245 + 12345;
            at[random / 4096 % (3 * PAGES) * page + 9]++;
        }
        close(ends[0]);
        close(ends[1]);
        NEED(waitpid(child, &status, 0) == child && status == 0);
        if (mappings() > most) most = mappings();
    }
    is_over = 1;
    long rounds = (long)finish(thread), wrong = 0, sum = 0;
    for (size_t i = 0; i < 3 * PAGES; i++) {
        if (i % 500 == 0) wrong += *(long *)(at + i * page + 2048) != rounds;
        sum += at[i * page + 9];
    }
    random = 1;
    for (int j = 0; j < 7 * 1500; j++) {
        random = random * 1103515245 + 12345;
        sum -= at[random / 4096 % (3 * PAGES) * page + 9] != 0;
    }
    SAY("%zu %ld %ld %s\n", wrong_pages(at, 3 * PAGES, 1), wrong, sum, most > 5500 ? "too many" : "few");
}

static int ends[2];
static unsigned char *buffer;
static void *read_there(void *with) {
    sleeper = gettid();
    sem_post(&ready);
    SAY_CALL(read(ends[0], buffer, 10));
    return with;
}

static void calls_write_there(void) {
    NEED(sem_init(&ready, 0, 0) == 0 && pipe(ends) == 0);
    unsigned char *at = map_large(LARGE);
    number_pages(at, PAGES, 1);
    buffer = at + LARGE / 2 - 5;
    pthread_t thread = start(read_there, NULL);
    sem_wait(&ready);
    until_asleep(sleeper);
    int held[2];
    char byte;
    NEED(pipe(held) == 0);
    pid_t child = fork();
    if (child == 0) {
        close(held[1]);
        NEED(read(held[0], at + 3 * MIB, 1) == 0 && pipe(ends) == 0);
        NEED(write(ends[1], "987654321", 10) == 10 && read(ends[0], buffer, 10) == 10);
        struct rlimit limit = {0};
        NEED(syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, at + 5 * MIB) == 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0);
        _exit(memcmp(buffer, "987654321", 10) != 0 || memcmp(at + 5 * MIB, &limit, sizeof limit) != 0);
    }
    NEED(write(ends[1], "123456789", 10) == 10);
    finish(thread);
    SAY("%.9s\n", buffer);
    NEED(write(ends[1], at + 7 * MIB, 100) == 100 && read(ends[0], at + 9 * MIB + 3, 100) == 100);
    // A call that few programs make.
    struct timespec *time = (void *)(at + 11 * MIB);
    NEED(syscall(SYS_clock_getres, CLOCK_MONOTONIC, time) == 0);
    SAY("%ld\n", (long)time->tv_sec);
    close(held[0]);
    close(held[1]);
    say_end("the child", child);
    (void)byte;
}

struct child {
    pid_t number;
    int ends[2];
};

static struct child begin_child(unsigned char *at, size_t by) {
    struct child child;
    NEED(pipe(child.ends) == 0 && (child.number = fork()) >= 0);
    if (child.number == 0) {
        char byte;
        close(child.ends[1]);
        NEED(read(child.ends[0], &byte, 1) == 0);
        _exit(wrong_pages(at, PAGES, by) != 0);
    }
    close(child.ends[0]);
    return child;
}

static int end_child(struct child child) {
    int status;
    close(child.ends[1]);
    NEED(waitpid(child.number, &status, 0) == child.number);
    return status;
}

// Calls that find their memory in lists, which lie there, too.
static void *use_lists(void *with) {
    unsigned char *at = with;
    for (int way = 0; way < 2; way++) {
        number_pages(at, PAGES, 1);
        struct child child = begin_child(at, 1);
        struct mmsghdr *messages = (void *)(at + 2 * MIB + way);
        struct iovec *vectors = (void *)(at + 4 * MIB + way);
        int sockets[2];
        NEED(socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets) == 0);
        for (int is_read = 0; is_read < 2; is_read++) {
            for (int i = 0; i < 2; i++) {
                vectors[i] = (struct iovec){at + (8 + 2 * i + is_read) * 2 * MIB, 1000};
                messages[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = vectors + i, .msg_iovlen = 1}};
            }
            // The lists are in memory of another process once more.
            struct child other = begin_child(at + 2 * LARGE, 0);
            if (is_read) SAY_CALL(recvmmsg(sockets[1], messages, 2, 0, NULL));
            else SAY_CALL(sendmmsg(sockets[0], messages, 2, 0));
            SAY("%u %u %d ", messages[0].msg_len, messages[1].msg_len, end_child(other));
        }
        struct iovec *to = (void *)(at + 40 * MIB + way), *from = (void *)(at + 42 * MIB + way);
        for (int i = 0; i < 2; i++) {
            to[i] = (struct iovec){at + (44 + 2 * i) * MIB, 2 * page};
            from[i] = (struct iovec){at + (50 + 2 * i) * MIB, 2 * page};
        }
        struct child other = begin_child(at + 2 * LARGE, 0);
        SAY_CALL(process_vm_readv(getpid(), to, 2, from, 2, 0));
        SAY_CALL(process_vm_writev(gettid(), from, 2, to, 1, 0));
        SAY("%d ", end_child(other));
        close(sockets[0]);
        close(sockets[1]);
        SAY("%d %d\n", memcmp(at + 44 * MIB, at + 50 * MIB, 2 * page), end_child(child));
    }
    return NULL;
}

static void lists_lie_there_too(void) {
    pthread_t thread = begin_with_a_thread();
    unsigned char *at = map_large(3 * LARGE);
    use_lists(at);
    finish(start(use_lists, at));
    end_with_a_thread(thread);
}

// Stacks in large memory: one that a thread has, and one for signals.
static volatile int handled;
static void handle(int signal) {
    volatile unsigned char room[3000];
    memset((void *)room, signal, sizeof room);
    handled++;
}

static int deep(int depth) {
    volatile unsigned char room[4000];
    memset((void *)room, depth, sizeof room);
    if (depth % 50 == 0) raise(SIGUSR1);
    return depth == 0 ? 0 : deep(depth - 1) + room[depth];
}

static void *use_stack(void *with) {
    sleeper = gettid();
    for (int i = 0; i < 20; i++) {
        sem_post(&ready);
        // Handlers come while it waits, too.
        while (sem_wait(&go) != 0) {
        }
        deep(100 + i * 10);
    }
    return with;
}

static void stacks_are_large(void) {
    NEED(sem_init(&ready, 0, 0) == 0 && sem_init(&go, 0, 0) == 0);
    unsigned char *at = map_large(4 * LARGE);
    number_pages(at, 4 * PAGES, 1);
    struct sigaction action = {.sa_handler = handle};
    NEED(sigaction(SIGUSR1, &action, NULL) == 0);
    stack_t own = {.ss_sp = at + 200 * MIB, .ss_size = 64 << 10};
    NEED(sigaltstack(&own, NULL) == 0);
    action.sa_flags = SA_ONSTACK;
    NEED(sigaction(SIGUSR2, &action, NULL) == 0);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    NEED(pthread_attr_setstack(&attributes, at, 2 * LARGE) == 0);
    pthread_t thread;
    NEED(pthread_create(&thread, &attributes, use_stack, NULL) == 0);
    int status;
    for (int i = 0; i < 20; i++) {
        sem_wait(&ready);
        if (i % 2) until_asleep(sleeper);
        pid_t child = fork();
        if (child == 0) {
            raise(SIGUSR2);
            raise(SIGUSR1);
            _exit(0);
        }
        NEED(pthread_kill(thread, SIGUSR1) == 0);
        raise(SIGUSR2);
        sem_post(&go);
        NEED(waitpid(child, &status, 0) == child && status == 0);
    }
    finish(thread);
    SAY("%d\n", handled > 40);
}

// All that may happen to memory, by chance that is the same each time.
static unsigned chance = 1;
static unsigned below(unsigned bound) {
    chance = chance * 1103515245 + 12345;
    return chance / 65536 % bound;
}

#define PART (64 * 4096)
#define PARTS (40 * MIB / PART)

static size_t sum_of(const unsigned char *at, const unsigned char *hidden) {
    size_t sum = 0;
    for (size_t i = 0; i < PARTS; i++)
        for (size_t j = 0; j < PART && !hidden[i]; j += 1024) sum = sum * 31 + at[i * PART + j];
    return sum;
}

static void *write_for_another(void *at) {
    memset(at, below(256), PART);
    return NULL;
}

static void step(unsigned char *at, unsigned char *hidden) {
    size_t part = below(PARTS), length = (1 + below(3)) * PART / 2;
    if (part * PART + length > PARTS * PART) length = PART;
    for (size_t i = part; i * PART < part * PART + length; i++)
        if (hidden[i]) return;
    unsigned char *from = at + part * PART;
    switch (below(8)) {
    case 0: NEED(madvise(from, length, MADV_DONTNEED) == 0); break;
    case 1: NEED(mprotect(from, PART, PROT_NONE) == 0 && mprotect(from, PART, PROT_READ | PROT_WRITE) == 0); break;
    case 2: NEED(mmap(from, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == from); break;
    case 3:
        NEED(munmap(from, PART) == 0);
        hidden[part] = 1;
        break;
    case 4: finish(start(write_for_another, from)); break;
    case 5: {
        unsigned char *other = mremap(from, PART, PART, MREMAP_MAYMOVE | MREMAP_FIXED, at + (PARTS + 1) * PART);
        if (other != MAP_FAILED) {
            other[5]++;
            NEED(mremap(other, PART, PART, MREMAP_MAYMOVE | MREMAP_FIXED, from) == from);
        }
        break;
    }
    default: memset(from + below(4096), below(256), below(PART / 2));
    }
}

static void chances_are_the_same(void) {
    pthread_t thread = begin_with_a_thread();
    for (unsigned round = 1; round < 5; round++) {
        chance = round;
        unsigned char *at = map_large((PARTS + 2) * PART), hidden[PARTS] = {0};
        NEED(munmap(at + PARTS * PART, 2 * PART) == 0);
        for (size_t i = 0; i < PARTS; i++) memset(at + i * PART, i + round, i % 3 ? PART : PART / 2);
        pid_t children[6] = {0};
        int all[6][2];
        for (int i = 0; i < 120; i++) {
            step(at, hidden);
            if (i % 20 != 10) continue;
            int number = i / 20, status;
            NEED(pipe(all[number]) == 0);
            fflush(stdout);
            children[number] = fork();
            if (children[number] == 0) {
                chance += 1;
                char byte;
                for (int j = 0; j < 15; j++) step(at, hidden);
                if (number % 3 == 1) {
                    pid_t child = fork();
                    if (child == 0) {
                        for (int j = 0; j < 15; j++) step(at, hidden);
                        _exit(sum_of(at, hidden) % 200);
                    }
                    for (int j = 0; j < 15; j++) step(at, hidden);
                    NEED(waitpid(child, &status, 0) == child && WIFEXITED(status));
                    at[0] = hidden[0] ? 0 : WEXITSTATUS(status);
                }
                NEED(read(all[number][0], &byte, 1) == 1);
                _exit(sum_of(at, hidden) % 200);
            }
            // One that lives for long, and one that ends at once.
            int ends = number % 2 ? number : number - 2;
            if (ends < 0) continue;
            NEED(write(all[ends][1], "x", 1) == 1);
            NEED(waitpid(children[ends], &status, 0) == children[ends]);
            SAY("%d %d\n", ends, WIFEXITED(status) ? WEXITSTATUS(status) : -status);
            children[ends] = 0;
        }
        SAY("%zu\n", sum_of(at, hidden));
        for (int i = 0; i < 6; i++)
            if (children[i]) {
                NEED(write(all[i][1], "x", 1) == 1);
                say_end("a child", children[i]);
            }
        NEED(munmap(at, PARTS * PART) == 0);
    }
    end_with_a_thread(thread);
}

static void a_killed_process_leaves_the_other(void) {
    pthread_t thread = begin_with_a_thread();
    unsigned char *at = map_large(LARGE);
    number_pages(at, PAGES, 1);
    for (int i = 0; i < 10; i++) {
        pid_t child = fork();
        if (child == 0)
            for (size_t by = 2;; by++) number_pages(at, PAGES, by);
        number_pages(at, PAGES, i);
        NEED(kill(child, SIGKILL) == 0);
        say_end("a child", child);
        SAY("%zu\n", wrong_pages(at, PAGES, i));
    }
    // And the other way: its child tells the parent of the one that is killed.
    int ends[2], result = -1;
    NEED(pipe(ends) == 0);
    pid_t middle = fork();
    if (middle == 0) {
        number_pages(at, PAGES, 20);
        pid_t child = fork();
        if (child == 0) {
            number_pages(at, PAGES / 4, 30);
            NEED(write(ends[1], &result, sizeof result) == sizeof result);
            while (getppid() == middle) sched_yield();
            number_pages(at, PAGES / 2, 30);
            result = wrong_pages(at, PAGES / 2, 30) == 0;
            for (size_t i = PAGES / 2; i < PAGES; i++) result += *(size_t *)(at + i * page) != i * 20;
            _exit(write(ends[1], &result, sizeof result) < 0);
        }
        for (size_t by = 2;; by++) number_pages(at, PAGES, by);
    }
    NEED(read(ends[0], &result, sizeof result) == sizeof result && kill(middle, SIGKILL) == 0);
    say_end("the child", middle);
    NEED(read(ends[0], &result, sizeof result) == sizeof result);
    SAY("%d\n", result);
    end_with_a_thread(thread);
}

// What two threads wait with lies in memory of which snapshots are made meanwhile.
struct wait {
    sigset_t set;
    siginfo_t information;
    struct pollfd none;
};
static unsigned char *waits;
static sem_t taken;
static volatile sig_atomic_t handled;
enum { SENT = 100 };

static struct wait *wait_at(int place) {
    struct wait *wait = (struct wait *)(waits + (size_t)place % PAGES * page);
    sigemptyset(&wait->set);
    return wait;
}

static void *take_queued(void *unused) {
    for (int i = 0; i < SENT; i++) {
        struct wait *wait = wait_at(i * 77);
        sigaddset(&wait->set, SIGRTMIN);
        NEED(sigwaitinfo(&wait->set, &wait->information) == SIGRTMIN);
        NEED(wait->information.si_value.sival_int == i && wait->information.si_pid == getpid());
        sem_post(&taken);
    }
    return unused;
}

static void note_handled(int signal) {
    (void)signal;
    handled++;
}

static void *handle_in_calls(void *unused) {
    for (int i = 0; i < SENT; i++) {
        struct wait *wait = wait_at(i * 77 + 5000);
        sigfillset(&wait->set);
        sigdelset(&wait->set, SIGUSR2);
        wait->none.fd = -1;
        int before = handled;
        int result = i % 2 ? sigsuspend(&wait->set) : ppoll(&wait->none, 1, NULL, &wait->set);
        NEED(result == -1 && errno == EINTR && handled == before + 1);
        sem_post(&taken);
    }
    return unused;
}

static void *fork_on(void *unused) {
    do {
        pid_t child = fork();
        NEED(child >= 0);
        if (child == 0) _exit(0);
        int status;
        NEED(waitpid(child, &status, 0) == child && status == 0);
    } while (!is_over);
    return unused;
}

static void signals_come_beside_forks(void) {
    sigset_t all;
    struct sigaction action = {.sa_handler = note_handled};
    sigfillset(&all);
    NEED(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0 && sigaction(SIGUSR2, &action, NULL) == 0);
    NEED(sem_init(&taken, 0, 0) == 0);
    waits = map_large(LARGE);
    number_pages(waits, PAGES, 3);
    pthread_t taker = start(take_queued, NULL), handler = start(handle_in_calls, NULL), forker = start(fork_on, NULL);
    for (int i = 0; i < SENT; i++) {
        NEED(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i}) == 0);
        NEED(kill(getpid(), SIGUSR2) == 0);
        NEED(sem_wait(&taken) == 0 && sem_wait(&taken) == 0);
    }
    finish(taker);
    finish(handler);
    is_over = 1;
    finish(forker);
    SAY("%d\n", handled);
}

// A child that waits until it is told, and says whether the numbers are those that it was made with.
// Each time all of the memory is written anew.
static void a_child_keeps_what_it_has_over_more_forks(void) {
    pthread_t thread = begin_with_a_thread();
    unsigned char *at = map_large(LARGE);
    for (size_t by = 1; by < 3; by++) {
        number_pages(at, PAGES, by);
        struct child short_lived = begin_child(at, by);
        number_pages(at, PAGES, by + 1);
        SAY("%d ", end_child(short_lived));
    }
    for (int way = 0; way < 2; way++) {
        number_pages(at, PAGES, 5);
        struct child kept = begin_child(at, 5);
        number_pages(at, PAGES, 6);
        struct child other = begin_child(at, 6);
        if (way == 1) {
            NEED(munmap(at, LARGE) == 0);
            at = map_large(LARGE);
            SAY("%zu ", wrong_pages(at, PAGES, 0));
        }
        number_pages(at, PAGES, 7);
        struct child last = begin_child(at, 7);
        number_pages(at, PAGES, 8);
        SAY("%d %d %d %zu ", end_child(kept), end_child(other), end_child(last), wrong_pages(at, PAGES, 8));
    }
    sem_post(&go);
    finish(thread);
    SAY("\n");
}

static unsigned char *shared_with_reader;
static void *read_then_protect(void *unused) {
    sem_wait(&go);
    size_t wrong = wrong_pages(shared_with_reader, PAGES, 3);
    sem_post(&ready);
    sem_wait(&go);
    NEED(mprotect(shared_with_reader, LARGE, PROT_READ) == 0);
    NEED(mprotect(shared_with_reader, LARGE, PROT_READ | PROT_WRITE) == 0);
    number_pages(shared_with_reader, PAGES, 9);
    sem_post(&ready);
    return wrong ? unused : NULL;
}

static void a_thread_that_only_read_then_writes(void) {
    NEED(sem_init(&ready, 0, 0) == 0 && sem_init(&go, 0, 0) == 0);
    pthread_t reader = start(read_then_protect, NULL);
    shared_with_reader = map_large(LARGE);
    number_pages(shared_with_reader, PAGES, 3);
    struct child child = begin_child(shared_with_reader, 3);
    sem_post(&go);
    sem_wait(&ready);
    SAY("%d ", end_child(child));
    *(size_t *)shared_with_reader = 1;
    sem_post(&go);
    sem_wait(&ready);
    SAY("%zu %d\n", wrong_pages(shared_with_reader, PAGES, 9), finish(reader) != NULL);
}

RULES(RULE(both_write_to_what_was_one), RULE(what_was_written_first_is_there), RULE(threads_wake_each_other_beside_forks),
      RULE(a_thread_that_sleeps_is_woken_after_a_fork), RULE(children_of_children_have_their_own),
      RULE(memory_that_goes_is_zero_again), RULE(many_forks_leave_nothing), RULE(writes_here_and_there_leave_few_mappings), RULE(calls_write_there), RULE(lists_lie_there_too),
      RULE(stacks_are_large), RULE(chances_are_the_same), RULE(a_killed_process_leaves_the_other),
      RULE(signals_come_beside_forks), RULE(a_child_keeps_what_it_has_over_more_forks),
      RULE(a_thread_that_only_read_then_writes))

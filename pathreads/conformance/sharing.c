// Rules of what threads share and what each has for itself. Threads with address spaces of their own could be
// told from others in these cases.
#include "rule.h"

#include <linux/futex.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/utsname.h>

#define REGIONS 200

static unsigned char *regions[REGIONS];
static sem_t ready, go;
static volatile int is_over;
static volatile sig_atomic_t count;

static void begin(void) {
    NEED(sem_init(&ready, 0, 0) == 0 && sem_init(&go, 0, 0) == 0);
}

// Maps regions that are no neighbours.
static void map_regions(void) {
    for (int i = 0; i < REGIONS; i++) {
        unsigned char *pages = map_pages(2);
        NEED(munmap(pages + page, page) == 0);
        regions[i] = pages;
    }
}

static void touch_regions(void) {
    for (int i = 0; i < REGIONS; i++) regions[i][0]++;
}

static void unmap_regions(void) {
    for (int i = 0; i < REGIONS; i++) NEED(munmap(regions[i], page) == 0);
}

static void count_one(int signal) {
    (void)signal;
    count++;
}

static void *touch_and_wait(void *with) {
    touch_regions();
    sem_post(&ready);
    sem_wait(&go);
    return with;
}

static void any_action_may_be_set(void) {
    begin();
    map_regions();
    pthread_t thread = start(touch_and_wait, NULL);
    sem_wait(&ready);
    for (int signal = 1; signal <= 64; signal++) sigaction(signal, &(struct sigaction){.sa_handler = count_one}, NULL);
    unmap_regions();
    sem_post(&go);
    finish(thread);
    SAY("unmapped\n");
}

static void *unmap_and_say(void *with) {
    touch_regions();
    sem_post(&ready);
    sem_wait(&go);
    unmap_regions();
    is_over = 1;
    return with;
}

static unsigned char *refused;
static void map_on_its_stack(int signal) {
    volatile unsigned char room[20000];
    for (size_t i = 0; i < sizeof room; i++) room[i] = signal;
    sem_post(&go);
    while (!is_over) {
        NEED(munmap(map_pages(3), 3 * page) == 0);
        pid_t child = vfork();
        if (child == 0) _exit(0);
        NEED(waitpid(child, NULL, 0) == child);
    }
    int wrong = 0;
    for (size_t i = 0; i < sizeof room; i++) wrong += room[i] != signal;
    SAY("%d\n", wrong);
    if (wrong) exit(1);
    NEED(mprotect(refused, page, PROT_READ | PROT_WRITE) == 0);
}

// A handler of a fault maps memory and makes children while another thread unmaps memory that both have used.
static void a_handler_keeps_its_stack(void) {
    static char room[64 << 10];
    begin();
    for (int i = 0; i < 2; i++) {
        map_regions();
        touch_regions();
        is_over = 0;
        refused = map_pages(1);
        NEED(mprotect(refused, page, PROT_NONE) == 0);
        stack_t other = {.ss_sp = room, .ss_size = sizeof room};
        if (i == 1) NEED(sigaltstack(&other, NULL) == 0);
        struct sigaction action = {.sa_handler = map_on_its_stack, .sa_flags = i ? SA_ONSTACK : 0};
        NEED(sigaction(SIGSEGV, &action, NULL) == 0);
        pthread_t thread = start(unmap_and_say, NULL);
        sem_wait(&ready);
        *(volatile unsigned char *)refused = 1;
        finish(thread);
    }
}

static void block_all_afterwards(int signal, siginfo_t *information, void *context) {
    (void)signal, (void)information;
    sigfillset(&((ucontext_t *)context)->uc_sigmask);
}

static void *block_all_and_wait(void *with) {
    touch_regions();
    NEED(raise(SIGUSR1) == 0);
    sem_post(&ready);
    sem_wait(&go);
    return with;
}

static void a_thread_that_blocks_all_gives_memory_up(void) {
    begin();
    map_regions();
    NEED(sigaction(SIGUSR1, &(struct sigaction){.sa_sigaction = block_all_afterwards, .sa_flags = SA_SIGINFO}, NULL) == 0);
    pthread_t thread = start(block_all_and_wait, NULL);
    sem_wait(&ready);
    unmap_regions();
    sem_post(&go);
    finish(thread);
    SAY("unmapped\n");
}

static int ends[2];
static unsigned char *given;
static void *give_rights(void *with) {
    sem_post(&ready);
    sem_wait(&go);
    // A call that names no memory.
    getuid();
    NEED(mprotect(given, 4 * page, PROT_READ | PROT_WRITE) == 0);
    SAY_CALL(read(ends[0], given, 1));
    return with;
}

static void the_kernel_may_write_where_any_thread_gave_the_right(void) {
    begin();
    NEED(pipe(ends) == 0 && write(ends[1], "x", 1) == 1);
    pthread_t thread = start(give_rights, NULL);
    sem_wait(&ready);
    given = mmap(NULL, 64 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(given != MAP_FAILED);
    sem_post(&go);
    finish(thread);
    SAY("%c\n", given[0]);
}

static void map_and_count(int signal) {
    (void)signal;
    NEED(munmap(map_pages(2), 2 * page) == 0);
    count++;
}

static void *map_for_long(void *with) {
    sem_post(&ready);
    while (!is_over) NEED(munmap(map_pages(3), 3 * page) == 0);
    return with;
}

static void a_sent_fault_meets_any_call(void) {
    begin();
    NEED(sigaction(SIGSEGV, &(struct sigaction){.sa_handler = map_and_count}, NULL) == 0);
    pthread_t thread = start(map_for_long, NULL);
    sem_wait(&ready);
    for (int i = 0; i < 200; i++) {
        int before = count;
        NEED(pthread_kill(thread, SIGSEGV) == 0);
        while (count == before) sched_yield();
    }
    is_over = 1;
    finish(thread);
    SAY("%d\n", (int)count);
}

static pthread_barrier_t barrier;
static void other_handler(int signal) {
    (void)signal;
}

static void *set_actions(void *handler) {
    long differences = 0;
    for (int i = 0; i < 500; i++) {
        struct sigaction action = {.sa_handler = (void (*)(int))handler}, seen;
        pthread_barrier_wait(&barrier);
        NEED(sigaction(SIGUSR1, &action, NULL) == 0);
        pthread_barrier_wait(&barrier);
        NEED(sigaction(SIGUSR1, NULL, &seen) == 0);
        static void (*handlers[2])(int);
        handlers[action.sa_handler == count_one] = seen.sa_handler;
        pthread_barrier_wait(&barrier);
        differences += handlers[0] != handlers[1];
    }
    return (void *)differences;
}

static void threads_agree_on_an_action(void) {
    NEED(pthread_barrier_init(&barrier, NULL, 2) == 0);
    pthread_t one = start(set_actions, count_one), other = start(set_actions, other_handler);
    long differences = (long)finish(one);
    differences += (long)finish(other);
    SAY("%ld\n", differences);
}

static unsigned char *shared;
static void *use_shared(void *with) {
    sem_post(&ready);
    sem_wait(&go);
    shared[page]++;
    return with;
}

static void shared_memory_outlives_all_descriptors(void) {
    begin();
    pthread_t thread = start(use_shared, NULL);
    sem_wait(&ready);
    shared = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    NEED(shared != MAP_FAILED);
    shared[page] = 41;
    for (int file = 3; file < 70000; file++) close(file);
    int null = open("/dev/null", O_RDWR);
    for (int file = 500; file < 40000; file++) dup2(null, file);
    SAY_CALL(close_range(3, 100000, 0));
    SAY_CALL(close_range(40000, 100000, 0));
    sem_post(&go);
    finish(thread);
    SAY("%d\n", shared[page]);
}

static void advice_keeps_what_a_file_has(void) {
    char path[] = "/tmp/sharing-XXXXXX";
    int file = mkstemp(path);
    NEED(file >= 0 && unlink(path) == 0 && ftruncate(file, 2 * page) == 0 && pwrite(file, "kept", 4, page) == 4);
    char *at = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    NEED(at != MAP_FAILED && madvise(at, 2 * page, MADV_DONTNEED) == 0);
    SAY("%s\n", at + page);
}

static int in_clone(void *value) {
    return *(int *)value + 1;
}

static void a_process_has_the_stack_that_it_is_given(void) {
    static char stack[64 << 10] __attribute__((aligned(16)));
    int value = 4;
    pid_t child = clone(in_clone, stack + sizeof stack, SIGCHLD, &value);
    NEED(child > 0);
    say_end("the clone", child);
}

static pthread_t first;
static void *join_first(void *status) {
    void *result;
    NEED(pthread_join(first, &result) == 0);
    exit((int)(intptr_t)status + (int)(intptr_t)result);
}

static void the_first_thread_of_a_child_is_joined(void) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        first = pthread_self();
        start(join_first, (void *)3);
        pthread_exit((void *)4);
    }
    say_end("the child", child);
}

static char **arguments;
static void *execute(void *is_last) {
    if (is_last) pthread_join(first, NULL);
    execv("/bin/sh", arguments);
    return NULL;
}

static void say_execution(int is_last) {
    char *words[] = {"sh", "-c", "echo executed; exit 4", NULL};
    unsigned char *pages = map_pages(2);
    NEED(munmap(pages + page, page) == 0);
    arguments = memcpy(pages + page - sizeof words, words, sizeof words);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        first = pthread_self();
        start(execute, is_last ? &first : NULL);
        while (!is_last) pause();
        pthread_exit(NULL);
    }
    say_end("the child", child);
}

static void the_list_of_arguments_may_end_with_a_page(void) {
    say_execution(0);
}

static void the_last_thread_may_execute(void) {
    say_execution(1);
}

static void *execute_file(void *words) {
    fexecve(open("/bin/sh", O_RDONLY), words, environ);
    return NULL;
}

static void any_thread_may_execute_a_file(void) {
    char *words[] = {"sh", "-c", "echo executed; exit 5", NULL};
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        start(execute_file, words);
        for (;;) pause();
    }
    say_end("the child", child);
}

static volatile pid_t other;
static void *say_own(void *with) {
    other = gettid();
    return touch_and_wait(with);
}

static void paths_of_threads_may_be_long(void) {
    begin();
    map_regions();
    pthread_t thread = start(say_own, NULL);
    sem_wait(&ready);
    for (int length = 30; length < 63; length++) {
        char path[200], slashes[200];
        memset(slashes, '/', sizeof slashes);
        int written = snprintf(path, sizeof path, "/proc/self/task/%d", other);
        snprintf(path + written, sizeof path - written, "%.*scomm", length - written - 4 < 1 ? 1 : length - written - 4, slashes);
        int file = open(path, O_RDONLY);
        NEED(file >= 0 && close(file) == 0);
    }
    sem_post(&go);
    finish(thread);
    SAY("opened\n");
}

// Reads that are interrupted by a handler, while another thread unmaps memory that this one has used.
static void *read_for_long(void *with) {
    long interrupted = 0;
    touch_regions();
    // A call that names no memory. Later ones find all of it.
    getuid();
    other = gettid();
    for (int i = 0; i < REGIONS; i++) {
        char byte;
        sem_post(&ready);
        interrupted += read(ends[0], &byte, 1) == -1 && errno == EINTR;
    }
    return with ? with : (void *)interrupted;
}

static void *unmap_one_by_one(void *with) {
    for (int i = 0; i < REGIONS; i++) {
        sem_wait(&go);
        NEED(munmap(regions[i], page) == 0);
    }
    return with;
}

static void an_interruption_is_not_lost(void) {
    begin();
    NEED(pipe(ends) == 0 && sigaction(SIGUSR1, &(struct sigaction){.sa_handler = count_one}, NULL) == 0);
    map_regions();
    touch_regions();
    pthread_t unmapper = start(unmap_one_by_one, NULL), reader = start(read_for_long, NULL);
    for (int i = 0; i < REGIONS; i++) {
        sem_wait(&ready);
        until_in_call(other, SYS_read);
        sem_post(&go);
        NEED(pthread_kill(reader, SIGUSR1) == 0);
    }
    SAY("%ld\n", (long)finish(reader));
    finish(unmapper);
}

static void *say_parent(void *with) {
    pid_t own = getpid(), child = fork();
    if (child == 0) _exit(getppid() == own);
    say_end("the forked", child);
    child = vfork();
    if (child == 0) _exit(getppid() == own);
    say_end("the vforked", child);
    return with;
}

static void the_parent_is_the_process(void) {
    finish(start(say_parent, NULL));
    say_parent(NULL);
}

static pid_t first_parent;
static void *say_next_parent(void *unused) {
    (void)unused;
    while (getppid() == first_parent) sched_yield();
    return (void *)(intptr_t)getppid();
}

// A process whose parent ends has another one, whichever thread asks.
static void the_parent_may_end(void) {
    NEED(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    pid_t own = getpid(), child = fork();
    if (child == 0) {
        first_parent = getpid();
        if (fork() != 0) _exit(0);
        pid_t next = (intptr_t)finish(start(say_next_parent, NULL));
        _exit(next == own ? 3 : 4);
    }
    say_end("the first", child);
    say_end("its child", -1);
}

// A thread sleeps at a word, and another one takes the memory away.
static int *word;
static volatile pid_t sleeper;
static void *sleep_at_word(void *way) {
    struct timespec time = {.tv_sec = 1};
    sleeper = gettid();
    sem_post(&ready);
    if (way == NULL) SAY_CALL(syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 5, NULL));
    if (way == (void *)1) SAY_CALL(syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 5, &time));
    NEED(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
    time.tv_sec++;
    if (way == (void *)2) SAY_CALL(syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, 5, &time, NULL, -1));
    return NULL;
}

static void a_thread_sleeps_on_when_its_word_is_gone(void) {
    begin();
    NEED(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = count_one}, NULL) == 0);
    for (int rights = -1; rights <= PROT_READ; rights++) {
        for (intptr_t way = 0; way < (rights < 0 ? 3 : 1); way++) {
            unsigned char *pages = map_pages(5);
            word = (int *)(pages + 8);
            *word = 5;
            pthread_t thread = start(sleep_at_word, (void *)way);
            sem_wait(&ready);
            until_asleep(sleeper);
            NEED((rights < 0 ? munmap(pages, 5 * page) : mprotect(pages, 5 * page, rights)) == 0);
            if (way == 0) {
                until_asleep(sleeper);
                NEED(pthread_kill(thread, SIGUSR1) == 0);
            }
            finish(thread);
        }
    }
    SAY("%d\n", (int)count);
}

// It is woken by the address alone.
static void *sleep_till_woken(void *unused) {
    (void)unused;
    sleeper = gettid();
    sem_post(&ready);
    return (void *)(intptr_t)(syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 5, NULL) != 0);
}

static void a_thread_is_woken_where_memory_is_gone(void) {
    begin();
    for (int i = 0; i < 40; i++) {
        unsigned char *pages = map_pages(5);
        word = (int *)(pages + 8 + i * 4);
        *word = 5;
        pthread_t thread = start(sleep_till_woken, NULL);
        sem_wait(&ready);
        until_asleep(sleeper);
        NEED((i % 2 == 0 ? munmap(pages, 5 * page) : mprotect(pages, 5 * page, PROT_NONE)) == 0);
        if (i % 4 < 2) until_asleep(sleeper);
        if (i % 3 == 0) NEED(syscall(SYS_futex, word, FUTEX_WAKE_BITSET_PRIVATE, 1, NULL, NULL, -1) >= 0);
        if (i % 3 != 0) NEED(syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1) >= 0);
        SAY("%d", finish(thread) != NULL);
    }
    SAY_CALL(syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1));
    SAY_CALL(syscall(SYS_futex, word, FUTEX_WAKE, 1));
    SAY_CALL(syscall(SYS_futex, (char *)word + 1, FUTEX_WAKE_PRIVATE, 1));
    SAY_CALL(syscall(SYS_futex, -4096, FUTEX_WAKE_PRIVATE, 1));
    SAY_CALL(syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 5, NULL));
}

// A thread is moved to another word while it sleeps. It wakes there, or before, whatever happens meanwhile. It blocks
// the signal of a child's end: that may be any thread's, and Linux begins the wait again with the first word then.
static void *sleep_once(void *unused) {
    (void)unused;
    sigset_t ends_of_children;
    sigemptyset(&ends_of_children);
    sigaddset(&ends_of_children, SIGCHLD);
    NEED(pthread_sigmask(SIG_BLOCK, &ends_of_children, NULL) == 0);
    sleeper = gettid();
    sem_post(&ready);
    return (void *)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 5, NULL);
}

static void a_thread_wakes_where_it_was_moved_to(void) {
    begin();
    for (int is_gone = 0; is_gone < 2; is_gone++) {
        unsigned char *pages = map_pages(5), *others = map_pages(5);
        int *to = (int *)(others + 8);
        word = (int *)(pages + 8);
        *word = *to = 5;
        pthread_t thread = start(sleep_once, NULL);
        sem_wait(&ready);
        until_asleep(sleeper);
        NEED(syscall(SYS_futex, word, FUTEX_REQUEUE_PRIVATE, 0, 1, to) >= 0);
        if (is_gone) NEED(munmap(pages, 5 * page) == 0);
        say_end("a child", fork() ?: (_exit(0), 0));
        syscall(SYS_futex, to, FUTEX_WAKE_PRIVATE, 1);
        SAY("%ld\n", (long)finish(thread));
    }
}

// Linux reads the time when a thread goes to sleep, and no more.
static void *sleep_for_a_time(void *with) {
    struct timespec *time = with;
    sleeper = gettid();
    sem_post(&ready);
    SAY_CALL(syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 5, time));
    return NULL;
}

static void a_thread_sleeps_on_when_its_time_is_gone(void) {
    begin();
    for (int is_word = 0; is_word < 2; is_word++) {
        unsigned char *pages = map_pages(5), *others = map_pages(5);
        word = (int *)((is_word ? pages : others) + 8);
        *word = 5;
        struct timespec *time = (struct timespec *)(pages + 64);
        time->tv_sec = 1;
        pthread_t thread = start(sleep_for_a_time, time);
        sem_wait(&ready);
        until_asleep(sleeper);
        NEED(munmap(pages, 5 * page) == 0);
        finish(thread);
    }
}

// Linux has no limit of the messages that one call receives.
#define MESSAGES 3000

static unsigned char *bytes;
static struct mmsghdr *messages;
static void *make_messages(void *unused) {
    bytes = map_pages(2 * MESSAGES);
    messages = (void *)map_pages(100);
    struct iovec *vectors = (void *)map_pages(100);
    for (size_t i = 0; i < MESSAGES; i++) {
        NEED(mprotect(bytes + 2 * i * page, page, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
        bytes[2 * i * page] = 1;
        vectors[i] = (struct iovec){bytes + 2 * i * page, 1};
        messages[i].msg_hdr = (struct msghdr){.msg_iov = vectors + i, .msg_iovlen = 1};
    }
    return unused;
}

static void thousands_of_messages_are_received(void) {
    static char sent[MESSAGES];
    int sockets[2], sum = 0;
    NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    finish(start(make_messages, NULL));
    memset(sent, 7, MESSAGES);
    NEED(write(sockets[0], sent, MESSAGES) == MESSAGES);
    SAY_CALL(recvmmsg(sockets[1], messages, MESSAGES, MSG_DONTWAIT, NULL));
    for (size_t i = 0; i < MESSAGES; i++) sum += bytes[2 * i * page];
    SAY_CALL(recvmmsg(sockets[1], messages, -1U, MSG_DONTWAIT, NULL));
    SAY("%d\n", sum);
}

// Signals that were set while it waited are its parent's.
static void *wait_in_vfork(void *with) {
    touch_regions();
    sem_post(&ready);
    pid_t child = vfork();
    if (child == 0) {
        char byte;
        _exit(read(ends[0], &byte, 1) == 1 ? byte : 0);
    }
    say_end("the child", child);
    NEED(raise(SIGUSR1) == 0);
    SAY("%d\n", (int)count);
    return with;
}

static void a_child_of_vfork_may_wait(void) {
    begin();
    NEED(pipe(ends) == 0);
    map_regions();
    pthread_t thread = start(wait_in_vfork, NULL);
    sem_wait(&ready);
    unmap_regions();
    NEED(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = count_one}, NULL) == 0);
    NEED(write(ends[1], "a", 1) == 1);
    finish(thread);
}

static void *spawn_many(void *with) {
    char *words[] = {"true", NULL};
    long wrong = 0;
    for (int i = 0; i < 60; i++) {
        pid_t child;
        int status = 1;
        NEED(posix_spawnp(&child, i % 2 ? "true" : "/no/such/program", NULL, NULL, words, environ) == (i % 2 ? 0 : ENOENT));
        if (i % 2) NEED(waitpid(child, &status, 0) == child);
        wrong += i % 2 && status != 0;
    }
    is_over = 1;
    return with ? with : (void *)wrong;
}

static void *set_for_long(void *with) {
    while (!is_over) NEED(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = count_one}, NULL) == 0);
    return with;
}

static void children_are_spawned_while_memory_goes(void) {
    begin();
    pthread_t mapper = start(map_for_long, NULL), setter = start(set_for_long, NULL);
    SAY("%ld\n", (long)finish(start(spawn_many, NULL)));
    finish(mapper);
    finish(setter);
}

static volatile long *numbers;
static const long last_number = 2000 * 512;
static void *count_in_order(void *with) {
    for (long i = 1; !is_over; i++) {
        numbers[0] = i;
        numbers[last_number - 1] = i;
        if (i == 1) sem_post(&ready);
    }
    return with;
}

static void a_child_has_a_copy_of_one_moment(void) {
    begin();
    numbers = (long *)map_pages(2000);
    for (long i = 0; i < last_number; i += 512) numbers[i] = 1;
    pthread_t thread = start(count_in_order, NULL);
    sem_wait(&ready);
    int wrong = 0, status;
    for (int i = 0; i < 30; i++) {
        pid_t child = fork();
        if (child == 0) {
            long ahead = numbers[0] - numbers[last_number - 1];
            _exit(ahead != 0 && ahead != 1);
        }
        NEED(waitpid(child, &status, 0) == child);
        wrong += status != 0;
    }
    is_over = 1;
    finish(thread);
    SAY("%d\n", wrong);
}

// What follows is about memory that one thread alone has used: who else may touch it, and when.

static unsigned char *passed;

static void *map_and_pass(void *with) {
    passed = map_pages(3);
    memset(passed, 5, 3 * page);
    return with;
}

static void memory_outlives_its_thread(void) {
    for (int i = 0; i < 20; i++) {
        finish(start(map_and_pass, NULL));
        NEED(passed[0] == 5 && passed[2 * page] == 5);
        passed[page] = 6;
        NEED(munmap(passed, 3 * page) == 0 && !is_readable(passed));
    }
    SAY("used\n");
}

// Maps and unmaps by turns with the first thread.
static void *map_by_turns(void *with) {
    for (;;) {
        passed = map_pages(1);
        NEED(passed[0] == 0 && passed[page - 1] == 0);
        memset(passed, 7, page);
        sem_post(&ready);
        sem_wait(&go);
        if (is_over) return with;
        NEED(munmap(passed, page) == 0);
        sem_post(&ready);
        sem_wait(&go);
    }
}

static void next_turn(void) {
    sem_post(&go);
    sem_wait(&ready);
}

static int reads(const volatile unsigned char *at) {
    signal(SIGSEGV, jump_back);
    int caught = sigsetjmp(back, 1);
    if (caught == 0) (void)*at;
    signal(SIGSEGV, SIG_DFL);
    return caught == 0;
}

// The first thread looks in each way at what the other has mapped, and at what it has unmapped.
static void no_thread_reads_what_is_unmapped(void) {
    begin();
    pthread_t thread = start(map_by_turns, NULL);
    sem_wait(&ready);
    for (int i = 0; i < 60; i++) {
        if (i % 3 == 1) NEED(is_readable(passed));
        if (i % 3 == 2) NEED(reads(passed) && passed[page - 1] == 7);
        next_turn();
        NEED(!is_readable(passed) && !reads(passed));
        next_turn();
    }
    is_over = 1;
    sem_post(&go);
    finish(thread);
    SAY("%d\n", passed[0]);
}

static void a_place_that_was_unmapped_may_be_taken(void) {
    begin();
    pthread_t thread = start(map_by_turns, NULL);
    sem_wait(&ready);
    unsigned char *taken[20];
    for (int i = 0; i < 20; i++) {
        next_turn();
        unsigned char *at = taken[i] = passed;
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | (i % 2 ? MAP_FIXED_NOREPLACE : MAP_FIXED);
        NEED(mmap(at, page, PROT_READ | PROT_WRITE, flags, -1, 0) == at);
        NEED(at[0] == 0);
        memset(at, 9, page);
        next_turn();
        NEED(passed != at);
    }
    for (int i = 0; i < 20; i++) NEED(taken[i][0] == 9 && taken[i][page - 1] == 9);
    is_over = 1;
    sem_post(&go);
    finish(thread);
    SAY("taken\n");
}

// Each change is by the first thread, to memory that the other alone has used, and the other unmaps it.
static void any_thread_may_change_what_another_has(void) {
    begin();
    pthread_t thread = start(map_by_turns, NULL);
    sem_wait(&ready);
    unsigned char present;
    for (int i = 0; i < 50; i++) {
        unsigned char *at = passed;
        switch (i % 5) {
        case 0: NEED(mprotect(at, page, PROT_NONE) == 0 && !is_readable(at)); break;
        case 1: NEED(mprotect(at, page, PROT_READ) == 0 && is_readable(at)); break;
        case 2: NEED(madvise(at, page, MADV_DONTNEED) == 0 && at[0] == 0); break;
        case 3: NEED(mincore(at, page, &present) == 0); break;
        case 4: NEED(mmap(at, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at && at[0] == 0); break;
        }
        next_turn();
        NEED(mincore(at, page, &present) == -1 && errno == ENOMEM && !is_readable(at));
        next_turn();
    }
    is_over = 1;
    sem_post(&go);
    finish(thread);
    SAY("changed\n");
}

// A child has what another thread than its parent alone has used, and not what that has unmapped.
static void a_child_has_what_any_thread_mapped(void) {
    begin();
    pthread_t thread = start(map_by_turns, NULL);
    sem_wait(&ready);
    for (int i = 0; i < 6; i++) {
        fflush(stdout);
        pid_t child = fork();
        NEED(child >= 0);
        if (child == 0) {
            int is_mapped = is_readable(passed);
            if (is_mapped) NEED(passed[0] == 7 && munmap(passed, page) == 0 && !is_readable(passed));
            for (int k = 0; k < 200; k++) {
                unsigned char *at = map_pages(1);
                NEED(at[0] == 0);
                at[0] = 1;
                NEED(munmap(at, page) == 0 && !is_readable(at));
            }
            _exit(is_mapped);
        }
        say_end("child", child);
        next_turn();
    }
    is_over = 1;
    sem_post(&go);
    finish(thread);
}

static void *read_kept(void *with) {
    unsigned char **at = with;
    NEED(!is_readable(at[0]) && is_readable(at[1]) && at[1][0] == 8);
    NEED(munmap(at[1], page) == 0);
    return NULL;
}

static void a_new_thread_has_what_its_maker_has(void) {
    for (int i = 0; i < 30; i++) {
        unsigned char *at[2] = {map_pages(1), map_pages(1)};
        at[0][0] = at[1][0] = 8;
        NEED(munmap(at[0], page) == 0);
        finish(start(read_kept, at));
        NEED(!is_readable(at[1]) && !is_readable(at[0]));
        unsigned char *again = map_pages(1);
        NEED(again[0] == 0 && munmap(again, page) == 0);
    }
    SAY("had\n");
}

static void *map_for_ever(void *with) {
    for (size_t pages = 1;; pages = pages % 70 + 1) {
        unsigned char *at = map_pages(pages);
        at[0] = 1;
        sem_post(&ready);
        NEED(munmap(at, pages * page) == 0);
    }
    return with;
}

static void threads_that_map_may_be_killed(void) {
    for (int i = 0; i < 10; i++) {
        fflush(stdout);
        pid_t child = fork();
        NEED(child >= 0);
        if (child == 0) {
            begin();
            for (int k = 0; k < 3; k++) start(map_for_ever, NULL);
            for (int k = 0; k < 300; k++) sem_wait(&ready);
            kill(getpid(), i % 2 ? SIGKILL : SIGTERM);
            for (;;) pause();
        }
        say_end("child", child);
    }
}

// Threads unmap what others have mapped, used or not, while those map more.
static unsigned char *_Atomic handed[64];
static void *hand_on(void *seed) {
    unsigned random = (unsigned)(uintptr_t)seed;
    for (int i = 0; i < 3000; i++) {
        random = random * 1103515245 + 12345;
        size_t pages = 1 + (random >> 16) % 6 * 3;
        unsigned char *at = map_pages(pages);
        for (size_t k = 0; k < pages; k++) NEED(at[k * page] == 0);
        if (random >> 30) at[0] = at[(pages - 1) * page] = (unsigned char)pages;
        at[1] = (unsigned char)pages;
        unsigned char *old = __atomic_exchange_n((unsigned char **)&handed[(random >> 8) % 64], at, __ATOMIC_ACQ_REL);
        if (!old) continue;
        size_t length = old[1] * page;
        NEED(length > 0 && munmap(old, length) == 0);
    }
    return NULL;
}

static void memory_goes_from_hand_to_hand(void) {
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++) threads[i] = start(hand_on, (void *)(i + 1));
    for (int i = 0; i < 4; i++) finish(threads[i]);
    SAY("handed on\n");
}

// A thread that has all memory mapped passes a call what another one has mapped
// and a third has used since.
static unsigned char *handed_on;
static sem_t turn_to_map, turn_to_use;

static void *return_it(void *with) {
    return with;
}

static void *map_and_hand_on(void *with) {
    for (int i = 0; i < 20; i++) {
        NEED(munmap(map_pages(50), 50 * page) == 0);
        sem_post(&ready);
        sem_wait(&turn_to_map);
        handed_on = map_pages(50);
        handed_on[0] = (unsigned char)i;
        if (i % 2) finish(start(return_it, NULL));
        sem_post(i % 2 ? &ready : &turn_to_use);
        sem_wait(&turn_to_map);
        NEED(munmap(handed_on, 50 * page) == 0);
    }
    return with;
}

static void *use_by_turns(void *with) {
    for (int i = 0; i < 10; i++) {
        sem_wait(&turn_to_use);
        handed_on[1] = 9;
        sem_post(&ready);
    }
    return with;
}

static void a_call_takes_what_others_have_handed_on(void) {
    int ends[2];
    struct utsname name;
    unsigned char seen[2];
    begin();
    NEED(pipe(ends) == 0 && sem_init(&turn_to_map, 0, 0) == 0 && sem_init(&turn_to_use, 0, 0) == 0);
    pthread_t threads[2] = {start(use_by_turns, NULL), start(map_and_hand_on, NULL)};
    for (int i = 0; i < 20; i++) {
        sem_wait(&ready);
        NEED(uname(&name) == 0);
        sem_post(&turn_to_map);
        sem_wait(&ready);
        NEED(write(ends[1], handed_on, 2) == 2 && read(ends[0], seen, 2) == 2);
        NEED(seen[0] == i && seen[1] == (i % 2 ? 0 : 9));
        sem_post(&turn_to_map);
    }
    for (int i = 0; i < 2; i++) finish(threads[i]);
    SAY("handed on\n");
}

// Mappings that the program places beside others, if that is free, which are unmapped one by one.
static void *see_unmapped(void *at) {
    NEED(!is_readable(at));
    return NULL;
}

static unsigned char *place(unsigned char *wanted, int flags) {
    unsigned char *at = mmap(wanted, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (at == MAP_FAILED) at = map_pages(1);
    memset(at, 5, page);
    return at;
}

static void neighbours_are_unmapped_one_by_one(void) {
    unsigned char present;
    finish(start(return_it, NULL));
    for (int i = 0; i < 16; i++) {
        unsigned char *at = map_pages(1);
        at[0] = 4;
        unsigned char *other = place(i % 2 ? at + page : at - page, i < 8 ? 0 : MAP_FIXED_NOREPLACE);
        NEED(munmap(at, page) == 0 && !is_readable(at));
        if (i & 2) NEED(mprotect(other, page, PROT_READ) == 0 && mincore(other, page, &present) == 0);
        if (i & 4) finish(start(see_unmapped, at));
        NEED(other[0] == 5 && other[page - 1] == 5 && !is_readable(at));
        fflush(stdout);
        pid_t child = fork();
        NEED(child >= 0);
        if (child == 0) _exit(other[0] + other[page - 1] + is_readable(at));
        say_end("child", child);
        NEED(munmap(other, page) == 0 && !is_readable(other));
    }
}

// A set of descriptors is as long as the call says. The end of this one lies in memory of another kind.
static void *map_set(void *unused) {
    (void)unused;
    unsigned char *at = map_pages(2);
    NEED(mmap(at + page, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at + page);
    memset(at, 0, 2 * page);
    return at;
}

static void a_set_is_as_long_as_the_call_says(void) {
    enum { LAST = 2000 };
    struct rlimit limit;
    NEED(getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_max > LAST);
    limit.rlim_cur = limit.rlim_max;
    NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    int ends[2];
    NEED(pipe(ends) == 0 && dup2(ends[1], LAST) == LAST);
    unsigned char *set = (unsigned char *)finish(start(map_set, NULL)) + page - 128;
    struct timeval none = {0, 0};
    SAY_CALL(syscall(SYS_select, LAST + 1, set, NULL, NULL, &none));
    set[LAST / 8] = 1 << LAST % 8;
    SAY_CALL(syscall(SYS_select, LAST + 1, NULL, set, NULL, &none));
}

// What happens to memory while a thread waits in a call that names it.

static unsigned char *named;
static void take_rights(void) {
    NEED(mprotect(named, page, PROT_READ) == 0);
    NEED(mprotect(named, page, PROT_READ | PROT_WRITE) == 0);
}

static void map_over(void) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    NEED(mmap(named, page, PROT_READ | PROT_WRITE, flags, -1, 0) == named);
}

static void map_anew(void) {
    NEED(munmap(named, page) == 0);
    map_over();
}

static void *read_one(void *with) {
    other = gettid();
    named[0] = 1;
    sem_post(&ready);
    SAY_CALL(read(ends[0], named, 10));
    SAY("%.9s\n", named);
    return with;
}

static void *receive_one(void *with) {
    other = gettid();
    named[0] = 1;
    struct iovec parts[] = {{named, 4}, {named + 100, 6}};
    sem_post(&ready);
    SAY_CALL(readv(ends[0], parts, 2));
    SAY("%.4s%.5s\n", named, named + 100);
    return with;
}

static void *poll_one(void *with) {
    other = gettid();
    struct pollfd *set = (void *)named;
    *set = (struct pollfd){.fd = ends[0], .events = POLLIN};
    sem_post(&ready);
    SAY_CALL(poll(set, 1, -1));
    SAY("%d\n", set->revents);
    return with;
}

// A futex word that has a value for a while. Waking without a change of it may be missed.
static void *wait_for_one(void *with) {
    other = gettid();
    unsigned *word = (unsigned *)named;
    *word = 7;
    sem_post(&ready);
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != 8)
        if (syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 7, NULL) != 0) NEED(errno == EAGAIN || errno == EINTR);
    return with;
}

static void with_change(void *(*wait)(void *), void (*change)(void), int is_futex) {
    NEED(pipe(ends) == 0);
    named = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(named != MAP_FAILED);
    named += page;
    pthread_t thread = start(wait, NULL);
    sem_wait(&ready);
    until_asleep(other);
    change();
    if (is_futex) {
        __atomic_store_n((unsigned *)named, 8, __ATOMIC_RELEASE);
        syscall(SYS_futex, named, FUTEX_WAKE_PRIVATE, 1);
    } else {
        NEED(write(ends[1], "123456789", 10) == 10);
    }
    finish(thread);
}

static void a_call_that_waits_has_what_is_there_then(void) {
    begin();
    void (*changes[])(void) = {take_rights, map_over, map_anew};
    for (int i = 0; i < 3; i++) {
        with_change(read_one, changes[i], 0);
        with_change(receive_one, changes[i], 0);
    }
    with_change(poll_one, take_rights, 0);
    with_change(wait_for_one, take_rights, 1);
    with_change(wait_for_one, map_over, 1);
}

// A handler that comes when a request has interrupted the call.
static void *read_rights(void *with) {
    long interrupted = 0;
    other = gettid();
    for (int i = 0; i < REGIONS; i++) {
        sem_post(&ready);
        interrupted += read(ends[0], named, 1) == -1 && errno == EINTR;
    }
    return with ? with : (void *)interrupted;
}

static void *take_rights_often(void *with) {
    while (!is_over) take_rights();
    return with;
}

static void an_interruption_is_not_lost_with_a_right(void) {
    begin();
    NEED(pipe(ends) == 0 && sigaction(SIGUSR1, &(struct sigaction){.sa_handler = count_one}, NULL) == 0);
    named = map_pages(1);
    pthread_t taker = start(take_rights_often, NULL);
    pthread_t reader = start(read_rights, NULL);
    for (int i = 0; i < REGIONS; i++) {
        sem_wait(&ready);
        until_in_call(other, SYS_read);
        NEED(pthread_kill(reader, SIGUSR1) == 0);
    }
    SAY("%ld\n", (long)finish(reader));
    is_over = 1;
    finish(taker);
}

// Each thread has memory of its own, which no other one has mapped, while others change all of it. It is longer than what
// a runtime may serve from what was mapped before.
static sigjmp_buf places[3];
static __thread int number;

static void map_and_leap(int signal) {
    (void)signal;
    NEED(munmap(map_pages(300), 300 * page) == 0);
    if (count++ % 4 == 0) siglongjmp(places[number], 1);
}

static void use_own(unsigned round) {
    size_t pages = 300 + round % 7;
    unsigned char *at = map_pages(pages), *next = map_pages(pages);
    for (size_t i = 0; i < pages; i += 50) {
        NEED(at[i * page] == 0 && next[i * page] == 0);
        at[i * page] = next[i * page] = (unsigned char)(number + 1);
    }
    NEED(munmap(at + page, 98 * page) == 0);
    NEED(at[0] == number + 1 && at[100 * page] == number + 1);
    NEED(mprotect(next, page, PROT_READ) == 0 && next[0] == number + 1 && next[50 * page] == number + 1);
    NEED(mprotect(next, 60 * page, PROT_NONE) == 0 && mprotect(next, 2 * page, PROT_READ | PROT_WRITE) == 0);
    NEED(next[0] == number + 1 && next[100 * page] == number + 1);
    NEED(madvise(next + 90 * page, 20 * page, MADV_DONTNEED) == 0 && next[100 * page] == 0);
    NEED(next[150 * page] == number + 1 && next[1] == 0);
    NEED(munmap(at, pages * page) == 0 && munmap(next, pages * page) == 0);
}

static void *use_own_for_long(void *which) {
    static volatile unsigned rounds[3];
    number = (int)(intptr_t)which;
    sigsetjmp(places[number], 1);
    // A leap leaves two mappings at most.
    for (sem_post(&ready); !is_over; rounds[number]++) use_own(rounds[number]);
    return NULL;
}

static void *map_and_end(void *at) {
    unsigned char *own = map_pages(400);
    own[399 * page] = 7;
    *(unsigned char **)at = own;
    return NULL;
}

static void parts_change_while_all_does(void) {
    begin();
    NEED(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = map_and_leap}, NULL) == 0);
    pthread_t threads[3];
    for (intptr_t i = 0; i < 3; i++) threads[i] = start(use_own_for_long, (void *)i);
    for (int i = 0; i < 3; i++) sem_wait(&ready);
    long ends = 0, sum = 0;
    for (int round = 0; round < 30; round++) {
        NEED(pthread_kill(threads[round % 3], SIGUSR1) == 0);
        unsigned char *volatile left;
        finish(start(map_and_end, (void *)&left));
        sum += left[399 * page];
        // Another thread may map memory there at once.
        NEED(munmap(left + 10 * page, 390 * page) == 0);
        int status;
        pid_t child = round % 2 ? vfork() : fork();
        if (child == 0) {
            if (munmap(map_pages(300), 300 * page) != 0) _exit(1);
            kill(getpid(), SIGKILL);
        }
        NEED(waitpid(child, &status, 0) == child);
        ends += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    }
    is_over = 1;
    for (int i = 0; i < 3; i++) finish(threads[i]);
    SAY("%ld %ld\n", ends, sum);
}

// Most of many mappings are unmapped and mapped again, beside some that stay: they find the same places. Each
// processor may have places of its own, so the thread stays on one.
static void places_are_used_again(void) {
    enum { MANY = 128, STAY = 8 };
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(sched_getcpu(), &here);
    NEED(sched_setaffinity(0, sizeof here, &here) == 0);
    unsigned char *before[MANY], *after[MANY];
    for (int i = 0; i < MANY; i++) before[i] = map_pages(24);
    int again = 0;
    for (int round = 0; round < 3; round++) {
        for (int i = STAY; i < MANY; i++) NEED(munmap(round ? after[i] : before[i], 24 * page) == 0);
        again = 0;
        for (int i = STAY; i < MANY; i++) {
            after[i] = map_pages(24);
            for (int k = STAY; k < MANY; k++) again += after[i] == before[k];
        }
    }
    SAY("%d\n", again > MANY * 3 / 4);
}

// A thread reads to the same page again and again, while another one has it go and come in all ways. That one also maps
// memory each time which the first does not have.
static unsigned char *in_use;
static int is_written_from, gives_up, maps, reserves;

// Maps addresses without rights, where there was memory with rights before.
static unsigned char *reserve_again(unsigned char *at) {
    enum { LENGTH = 4 << 20 };
    if (at) NEED(munmap(at, LENGTH) == 0);
    at = mmap(NULL, LENGTH, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(at != MAP_FAILED);
    return at;
}

static void *use_in_calls(void *with) {
    unsigned char *reserved = NULL;
    for (int i = 0; i < 4; i++) reserved = reserve_again(reserved);
    for (;;) {
        sem_wait(&go);
        if (!in_use) return with;
        if (maps) in_use = map_pages(600);
        if (reserves == 1) NEED(mprotect(in_use = reserved, page, PROT_READ | PROT_WRITE) == 0);
        errno = 0;
        long result = is_written_from ? write(ends[1], in_use, 1) : read(ends[0], in_use, 1);
        SAY("%ld %d ", result, errno);
        if (gives_up) NEED(mprotect(in_use, page, PROT_NONE) == 0);
        if (reserves) in_use = reserve_again(in_use);
        sem_post(&ready);
    }
}

static void use_it(const char *how) {
    map_pages(24);
    if (!is_written_from) NEED(write(ends[1], how, 1) == 1);
    sem_post(&go);
    sem_wait(&ready);
    char drained;
    if (is_written_from) NEED(read(ends[0], &drained, 1) == 1);
    if (gives_up || reserves) NEED(mprotect(in_use, page, PROT_READ | PROT_WRITE) == 0);
    SAY("%s %d\n", how, reserves || *in_use == (is_written_from ? 0 : *how));
}

static void memory_of_calls_goes_and_comes(void) {
    enum { LARGE = 32 << 20 };
    const int both = PROT_READ | PROT_WRITE, plain = MAP_PRIVATE | MAP_ANONYMOUS;
    begin();
    NEED(pipe(ends) == 0);
    unsigned char *large = mmap(NULL, LARGE, both, plain, -1, 0);
    NEED(large != MAP_FAILED);
    memset(large, 1, LARGE);
    unsigned char *given_up = map_pages(24), *at = large + LARGE / 2;
    pthread_t thread = start(use_in_calls, NULL);
    in_use = at;
    use_it("first");
    use_it("again");
    NEED(munmap(at, page) == 0 && mmap(at, page, both, plain | MAP_FIXED, -1, 0) == at);
    use_it("unmapped");
    NEED(mmap(at, page, both, plain | MAP_FIXED, -1, 0) == at);
    use_it("mapped over");
    NEED(mprotect(at, page, PROT_NONE) == 0 && mprotect(at, page, both) == 0);
    use_it("protected");
    NEED(mremap(given_up, page, page, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at);
    use_it("moved here");
    NEED(madvise(at, page, MADV_DONTNEED) == 0);
    use_it("dropped");
    int hold[2];
    NEED(pipe(hold) == 0);
    pid_t child = fork();
    if (child == 0) {
        char unused;
        NEED(close(hold[1]) == 0 && read(hold[0], &unused, 1) == 0);
        _exit(*at == 'd' ? 3 : 4);
    }
    use_it("forked");
    use_it("copied");
    NEED(close(hold[1]) == 0);
    say_end("child", child);
    is_written_from = 1;
    in_use = mmap(NULL, 24 * page, PROT_READ, plain, -1, 0);
    NEED(in_use != MAP_FAILED);
    use_it("to read");
    NEED(mprotect(in_use, 24 * page, both) == 0);
    is_written_from = 0;
    use_it("to write");
    // The thread takes its right away, and another one gives it.
    gives_up = 1;
    for (int i = 0; i < 3; i++) use_it("given again");
    maps = 1;
    use_it("its own");
    maps = 0;
    for (int i = 0; i < 3; i++) use_it("given once more");
    gives_up = 0;
    reserves = 1;
    use_it("reserved");
    reserves = 2;
    use_it("reserved again");
    in_use = NULL;
    sem_post(&go);
    finish(thread);
}

// A thread has as many mappings as Linux allows for a process: those of pages whose rights alternated when it had
// them mapped. Others have joined them since then. A page inside of one of its mappings goes only if that is
// divided: the page is not accessible then, or the call has failed and all is as before.
enum { PAIRS = 29000, MORE_PAIRS = 8000 };
static unsigned char *volatile crowd, *volatile more, *volatile whole;
static volatile int has_unmapped, has_protected;

static unsigned char *map_alternating(size_t pairs) {
    unsigned char *pages = mmap(NULL, 2 * pairs * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    NEED(pages != MAP_FAILED);
    for (size_t i = 0; i < pairs; i++) NEED(mprotect(pages + 2 * i * page, page, PROT_READ | PROT_WRITE) == 0);
    return pages;
}

static void *have_a_crowd(void *unused) {
    int ends[2];
    char byte = 9;
    NEED(pipe(ends) == 0);
    for (int i = 0; i < 6; i++) NEED(whole[i * page] == 7);
    // A call of which the memory is not known.
    NEED(ioctl(-1, 0x777, 0) == -1);
    sem_post(&ready);
    while (sem_wait(&go) != 0) NEED(errno == EINTR);
    // As long as there is room for more.
    for (size_t i = 0; i < 2 * MORE_PAIRS && write(ends[1], more + i * page, 1) == 1; i++) NEED(read(ends[0], &byte, 1) == 1);
    sem_post(&ready);
    while (sem_wait(&go) != 0) NEED(errno == EINTR);
    SAY("%d ", is_readable(whole + page) != has_unmapped);
    NEED(write(ends[1], &byte, 1) == 1);
    SAY("%d\n", (read(ends[0], whole + 4 * page, 1) == 1) != has_protected);
    return unused;
}

static void a_thread_with_many_mappings_gives_memory_up(void) {
    NEED(sem_init(&ready, 0, 0) == 0 && sem_init(&go, 0, 0) == 0);
    whole = map_pages(600);
    memset(whole, 7, 600 * page);
    crowd = map_alternating(PAIRS);
    pthread_t thread = start(have_a_crowd, NULL);
    while (sem_wait(&ready) != 0) NEED(errno == EINTR);
    // A right that is new everywhere.
    NEED(mprotect(crowd, 2 * PAIRS * page, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
    more = map_alternating(MORE_PAIRS);
    sem_post(&go);
    while (sem_wait(&ready) != 0) NEED(errno == EINTR);
    has_unmapped = munmap(whole + page, page) == 0;
    has_protected = mprotect(whole + 4 * page, page, PROT_READ) == 0;
    sem_post(&go);
    finish(thread);
    SAY("%d %d\n", is_readable(whole + page) != has_unmapped, whole[2 * page] == 7 && whole[3 * page] == 7);
    if (!has_unmapped) NEED(whole[page] == 7);
    if (!has_protected) whole[4 * page] = 8;
}

RULES(RULE(a_thread_with_many_mappings_gives_memory_up), RULE(memory_of_calls_goes_and_comes), RULE(parts_change_while_all_does), RULE(a_call_that_waits_has_what_is_there_then), RULE(an_interruption_is_not_lost_with_a_right),
      RULE(a_set_is_as_long_as_the_call_says), RULE(neighbours_are_unmapped_one_by_one), RULE(a_call_takes_what_others_have_handed_on), RULE(memory_outlives_its_thread), RULE(no_thread_reads_what_is_unmapped), RULE(a_place_that_was_unmapped_may_be_taken),
      RULE(any_thread_may_change_what_another_has), RULE(a_child_has_what_any_thread_mapped),
      RULE(a_new_thread_has_what_its_maker_has), RULE(threads_that_map_may_be_killed), RULE(memory_goes_from_hand_to_hand),
      RULE(any_action_may_be_set), RULE(a_handler_keeps_its_stack), RULE(a_thread_that_blocks_all_gives_memory_up),
      RULE(the_kernel_may_write_where_any_thread_gave_the_right), RULE(a_sent_fault_meets_any_call),
      RULE(threads_agree_on_an_action), RULE(shared_memory_outlives_all_descriptors), RULE(advice_keeps_what_a_file_has),
      RULE(a_process_has_the_stack_that_it_is_given), RULE(the_first_thread_of_a_child_is_joined),
      RULE(the_list_of_arguments_may_end_with_a_page), RULE(the_last_thread_may_execute), RULE(paths_of_threads_may_be_long),
      RULE(an_interruption_is_not_lost), RULE(a_child_has_a_copy_of_one_moment),
      RULE(the_parent_is_the_process), RULE(the_parent_may_end), RULE(a_thread_sleeps_on_when_its_word_is_gone), RULE(a_thread_is_woken_where_memory_is_gone), RULE(a_thread_sleeps_on_when_its_time_is_gone), RULE(a_thread_wakes_where_it_was_moved_to),
      RULE(thousands_of_messages_are_received), RULE(a_child_of_vfork_may_wait), RULE(children_are_spawned_while_memory_goes), RULE(any_thread_may_execute_a_file), RULE(places_are_used_again))

// Rules of threads: what they share, what each has of its own, and every object to synchronise with.
#include "rule.h"

#include <sys/times.h>

static int global;
static __thread int local = 5;

static void *add_to_global(void *by) {
    global += (int)(intptr_t)by;
    return (void *)(intptr_t)(global * 2);
}

static void a_thread_returns_a_value(void) {
    SAY("%ld\n", (long)finish(start(add_to_global, (void *)21)));
    SAY("%d\n", global);
}

static void *exit_early(void *value) {
    pthread_exit(value);
}

static void pthread_exit_gives_the_value(void) {
    SAY("%ld\n", (long)finish(start(exit_early, (void *)77)));
}

static void *set_local(void *unused) {
    local = 9;
    errno = 33;
    return unused;
}

static void thread_local_variables_and_errno_are_each_ones_own(void) {
    errno = 11;
    finish(start(set_local, NULL));
    SAY("%d %d\n", local, errno);
}

static pthread_key_t key;
static void destroy(void *value) {
    SAY("destroyed %s\n", (char *)value);
}
static void *use_key(void *value) {
    pthread_setspecific(key, value);
    return pthread_getspecific(key);
}

static void keys_are_destroyed_at_exit(void) {
    NEED(pthread_key_create(&key, destroy) == 0);
    SAY("%s\n", (char *)finish(start(use_key, "a value")));
    SAY("%d\n", pthread_getspecific(key) == NULL);
}

static void *write_stack(void *at) {
    *(int *)at = 4;
    return NULL;
}

static void stacks_are_shared(void) {
    int on_stack = 3;
    finish(start(write_stack, &on_stack));
    SAY("%d\n", on_stack);
}

static void *allocate(void *unused) {
    (void)unused;
    char *text = malloc(300000);
    strcpy(text, "from another thread");
    return text;
}

static void the_heap_is_shared(void) {
    char *text = finish(start(allocate, NULL));
    SAY("%s\n", text);
    free(text);
}

static void *map_one(void *unused) {
    (void)unused;
    unsigned char *at = map_pages(3);
    at[page] = 42;
    return at;
}
static void *unmap_one(void *at) {
    NEED(munmap(at, 3 * page) == 0);
    return NULL;
}

static void mappings_are_shared(void) {
    unsigned char *at = finish(start(map_one, NULL));
    SAY("%d\n", at[page]);
    finish(start(unmap_one, at));
    SAY_CALL(mincore(at, page, (unsigned char *)&global));
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void *count_up(void *rounds) {
    for (long i = 0; i < (long)rounds; i++) {
        pthread_mutex_lock(&mutex);
        global++;
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

static void a_mutex_excludes(void) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) threads[i] = start(count_up, (void *)5000);
    for (int i = 0; i < 4; i++) finish(threads[i]);
    SAY("%d\n", global);
}

static void mutexes_have_kinds(void) {
    int kinds[] = {PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK};
    for (int i = 0; i < 2; i++) {
        pthread_mutexattr_t attributes;
        pthread_mutex_t one;
        pthread_mutexattr_init(&attributes);
        pthread_mutexattr_settype(&attributes, kinds[i]);
        pthread_mutex_init(&one, &attributes);
        int first = pthread_mutex_lock(&one), second = pthread_mutex_lock(&one);
        SAY("%d %d ", first, second);
        int third = pthread_mutex_unlock(&one), fourth = pthread_mutex_unlock(&one), fifth = pthread_mutex_unlock(&one);
        SAY("%d %d %d\n", third, fourth, fifth);
    }
}

static pthread_mutex_t special;
static void *lock_and_die(void *unused) {
    pthread_mutex_lock(&special);
    return unused;
}

static void a_robust_mutex_tells_that_its_owner_died(void) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&special, &attributes);
    finish(start(lock_and_die, NULL));
    SAY_CALL(pthread_mutex_lock(&special) == EOWNERDEAD);
    SAY_CALL(pthread_mutex_consistent(&special));
    SAY_CALL(pthread_mutex_unlock(&special));
    SAY_CALL(pthread_mutex_lock(&special));
}

static void a_mutex_inherits_priority(void) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    NEED(pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT) == 0);
    pthread_mutex_init(&special, &attributes);
    SAY_CALL(pthread_mutex_lock(&special));
    SAY_CALL(pthread_mutex_unlock(&special));
}

static void a_timed_lock_gives_up(void) {
    pthread_mutex_lock(&mutex);
    struct timespec past = {1, 0};
    SAY_CALL(pthread_mutex_timedlock(&mutex, &past) == ETIMEDOUT);
    SAY_CALL(pthread_mutex_trylock(&mutex) == EBUSY);
}

static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static void *take_turns(void *parity) {
    for (int i = 0; i < 500; i++) {
        pthread_mutex_lock(&mutex);
        while (global % 2 != (int)(intptr_t)parity) pthread_cond_wait(&changed, &mutex);
        global++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

static void a_condition_wakes(void) {
    pthread_t one = start(take_turns, (void *)0), other = start(take_turns, (void *)1);
    finish(one);
    finish(other);
    SAY("%d\n", global);
}

static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static void *read_locked(void *unused) {
    (void)unused;
    int reading = pthread_rwlock_tryrdlock(&rwlock), writing = pthread_rwlock_trywrlock(&rwlock);
    if (reading == 0) pthread_rwlock_unlock(&rwlock);
    return (void *)(intptr_t)(reading * 1000 + writing);
}

static void readers_share_and_writers_do_not(void) {
    pthread_rwlock_rdlock(&rwlock);
    SAY("%ld\n", (long)finish(start(read_locked, NULL)));
    pthread_rwlock_unlock(&rwlock);
    pthread_rwlock_wrlock(&rwlock);
    SAY("%ld\n", (long)finish(start(read_locked, NULL)));
}

static pthread_barrier_t barrier;
static void *meet(void *unused) {
    (void)unused;
    long serial = 0;
    for (int i = 0; i < 50; i++) serial += pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD;
    return (void *)serial;
}

static void a_barrier_has_one_serial_thread(void) {
    pthread_t threads[3];
    long serial = 0;
    pthread_barrier_init(&barrier, NULL, 3);
    for (int i = 0; i < 3; i++) threads[i] = start(meet, NULL);
    for (int i = 0; i < 3; i++) serial += (long)finish(threads[i]);
    SAY("%ld\n", serial);
}

static pthread_spinlock_t spin;
static void *spin_up(void *unused) {
    for (int i = 0; i < 2000; i++) {
        pthread_spin_lock(&spin);
        global++;
        pthread_spin_unlock(&spin);
        if (i % 100 == 0) sched_yield();
    }
    return unused;
}

static void a_spin_lock_excludes(void) {
    pthread_spin_init(&spin, 0);
    pthread_t one = start(spin_up, NULL), other = start(spin_up, NULL);
    finish(one);
    finish(other);
    SAY("%d\n", global);
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void initialise(void) {
    global++;
}
static void *call_once(void *unused) {
    pthread_once(&once, initialise);
    return unused;
}

static void once_is_once(void) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) threads[i] = start(call_once, NULL);
    for (int i = 0; i < 4; i++) finish(threads[i]);
    SAY("%d\n", global);
}

static sem_t semaphore;
static void *post(void *unused) {
    for (int i = 0; i < 3; i++) sem_post(&semaphore);
    return unused;
}

static void a_semaphore_counts(void) {
    sem_init(&semaphore, 0, 0);
    pthread_t thread = start(post, NULL);
    for (int i = 0; i < 3; i++) sem_wait(&semaphore);
    finish(thread);
    int value;
    sem_getvalue(&semaphore, &value);
    SAY("%d\n", value);
    SAY_CALL(sem_trywait(&semaphore));
}

static int ends[2];
static void say_cleanup(const char **what) {
    SAY("cleaned up %s\n", *what);
}
static void *read_for_ever(void *unused) {
    __attribute__((cleanup(say_cleanup))) const char *what = "after read";
    char byte;
    sem_post(&semaphore);
    NEED(read(ends[0], &byte, 1) < 0);
    return unused;
}
static void *poll_for_ever(void *unused) {
    __attribute__((cleanup(say_cleanup))) const char *what = "after ppoll";
    struct pollfd file = {ends[0], POLLIN, 0};
    sigset_t all;
    sigfillset(&all);
    sigdelset(&all, 32);
    sem_post(&semaphore);
    ppoll(&file, 1, NULL, &all);
    return unused;
}

static void cancel_waiting(void *(*run)(void *)) {
    NEED(pipe(ends) == 0);
    sem_init(&semaphore, 0, 0);
    pthread_t thread = start(run, NULL);
    sem_wait(&semaphore);
    NEED(pthread_cancel(thread) == 0);
    SAY("%d\n", finish(thread) == PTHREAD_CANCELED);
}

static void a_thread_that_reads_is_cancelled(void) {
    cancel_waiting(read_for_ever);
}

static void a_thread_that_polls_is_cancelled(void) {
    cancel_waiting(poll_for_ever);
}

static void *loop(void *unused) {
    __attribute__((cleanup(say_cleanup))) const char *what = "a loop";
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    sem_post(&semaphore);
    for (;;) global++;
    return unused;
}

static void a_loop_is_cancelled_asynchronously(void) {
    cancel_waiting(loop);
}

static void *refuse(void *unused) {
    (void)unused;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    sem_post(&semaphore);
    char byte;
    NEED(read(ends[0], &byte, 1) == 1);
    return (void *)6;
}

static void a_thread_may_refuse_to_be_cancelled(void) {
    NEED(pipe(ends) == 0);
    sem_init(&semaphore, 0, 0);
    pthread_t thread = start(refuse, NULL);
    sem_wait(&semaphore);
    NEED(pthread_cancel(thread) == 0 && write(ends[1], "x", 1) == 1);
    SAY("%ld\n", (long)finish(thread));
}

static void *nothing(void *with) {
    return with;
}

static void a_thousand_threads_come_and_go(void) {
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    long sum = 0;
    for (int i = 0; i < 20; i++) {
        pthread_t threads[50];
        for (long k = 0; k < 50; k++) NEED(pthread_create(&threads[k], &small, nothing, (void *)k) == 0);
        for (int k = 0; k < 50; k++) sum += (long)finish(threads[k]);
    }
    SAY("%ld\n", sum);
}

static void *detached(void *unused) {
    sem_post(&semaphore);
    return unused;
}

static void a_detached_thread_ends_by_itself(void) {
    sem_init(&semaphore, 0, 0);
    for (int i = 0; i < 20; i++) {
        pthread_t thread = start(detached, NULL);
        NEED(pthread_detach(thread) == 0);
        sem_wait(&semaphore);
    }
    SAY("all ended\n");
}

static void *on_own_stack(void *unused) {
    int here;
    global = (char *)&here >= (char *)unused && (char *)&here < (char *)unused + (256 << 10);
    return NULL;
}

static void a_thread_may_have_a_stack_from_mmap(void) {
    for (int i = 0; i < 3; i++) {
        void *stack = mmap(NULL, 256 << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        NEED(pthread_attr_setstack(&attributes, stack, 256 << 10) == 0);
        pthread_t thread;
        NEED(pthread_create(&thread, &attributes, on_own_stack, stack) == 0);
        finish(thread);
        NEED(munmap(stack, 256 << 10) == 0);
        SAY("%d\n", global);
    }
}

// munmap(its arguments); exit(0): by instructions that nobody has seen before.
static const unsigned char code_of_leaving[] = {0xb8, 11, 0, 0, 0, 0x0f, 5, 0x31, 0xff, 0xb8, 60, 0, 0, 0, 0x0f, 5};
static void (*leave)(void *, size_t);
static int unmap_own_stack(void *stack) {
    leave(stack, 16 * page);
    return 0;
}

static void a_thread_may_unmap_its_stack(void) {
    int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
    void *code = mmap(NULL, page, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(code != MAP_FAILED);
    memcpy(code, code_of_leaving, sizeof code_of_leaving);
    leave = (void (*)(void *, size_t))code;
    for (int i = 0; i < 20; i++) {
        static int thread, lives;
        unsigned char *stack = map_pages(16);
        NEED(clone(unmap_own_stack, stack + 16 * page, flags, stack, &thread, NULL, &thread) > 0);
        while ((lives = __atomic_load_n(&thread, __ATOMIC_ACQUIRE)) != 0) syscall(SYS_futex, &thread, 0, lives, NULL, NULL, 0);
        NEED(!is_readable(stack));
    }
    SAY("all left\n");
}

static void *leave_process(void *unused) {
    (void)unused;
    exit(17);
}

static void exit_of_any_thread_ends_the_process(void) {
    start(leave_process, NULL);
    for (;;) pause();
}

static void *go_on(void *main_thread) {
    pthread_join(*(pthread_t *)main_thread, NULL);
    SAY("went on\n");
    exit(0);
}

static void the_first_thread_may_exit_first(void) {
    static pthread_t self;
    self = pthread_self();
    start(go_on, &self);
    pthread_exit(NULL);
}

static void *ids(void *unused) {
    (void)unused;
    return (void *)(intptr_t)(getpid() * 2 + (gettid() == getpid()));
}

static void threads_have_one_process_and_ids_of_their_own(void) {
    SAY("%d %d\n", (int)(intptr_t)finish(start(ids, NULL)) == getpid() * 2, gettid() == getpid());
}

static void *crash(void *unused) {
    *(volatile int *)unused = 1;
    return NULL;
}

static void a_crash_of_one_is_a_crash_of_all(void) {
    pid_t child = fork();
    if (child == 0) {
        start(crash, NULL);
        for (;;) pause();
    }
    say_end("the crash", child);
    child = fork();
    if (child == 0) abort();
    say_end("the abort", child);
}

static void *fork_here(void *unused) {
    pid_t child = fork();
    if (child == 0) {
        global++;
        local++;
        _exit(global * 10 + local);
    }
    say_end("the fork", child);
    return unused;
}

static void any_thread_may_fork(void) {
    finish(start(fork_here, NULL));
    SAY("%d\n", global);
}

static void *run_command(void *command) {
    return (void *)(intptr_t)system(command);
}

static void any_thread_may_run_commands(void) {
    fflush(stdout);
    SAY("%ld\n", (long)finish(start(run_command, "echo out; exit 3")) >> 8);
    SAY("%ld\n", (long)finish(start(run_command, "kill -9 $$")));
    FILE *out = popen("echo piped", "r");
    char line[20];
    SAY("%s", fgets(line, sizeof line, out));
    SAY("%d\n", pclose(out));
}

static void *execute(void *unused) {
    execl("/bin/sh", "sh", "-c", "echo executed; exit 4", NULL);
    return unused;
}

static void any_thread_may_execute(void) {
    fflush(stdout);
    start(execute, NULL);
    for (;;) pause();
}

static void *wait_for(void *child) {
    say_end("another thread's child", *(pid_t *)child);
    return NULL;
}

static void any_thread_may_wait(void) {
    pid_t child = fork();
    if (child == 0) _exit(8);
    finish(start(wait_for, &child));
}

static pthread_mutex_t timed_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t timed_condition = PTHREAD_COND_INITIALIZER;
static struct timespec soon(void) {
    struct timespec time;
    NEED(clock_gettime(CLOCK_REALTIME, &time) == 0);
    time.tv_nsec += 20000000;
    if (time.tv_nsec >= 1000000000) time.tv_sec++, time.tv_nsec -= 1000000000;
    return time;
}

static void *wait_in_vain(void *never) {
    struct timespec until = soon();
    NEED(pthread_mutex_lock(&timed_lock) == 0);
    SAY("%d\n", pthread_cond_timedwait(&timed_condition, &timed_lock, &until) == ETIMEDOUT);
    NEED(pthread_mutex_unlock(&timed_lock) == 0);
    until = soon();
    int result = sem_timedwait(never, &until);
    SAY("%d %d\n", result, errno == ETIMEDOUT);
    return never;
}

static void waits_end_by_their_time(void) {
    sem_t never;
    NEED(sem_init(&never, 0, 0) == 0);
    for (int i = 0; i < 3; i++) finish(start(wait_in_vain, &never));
    wait_in_vain(&never);
}

static sem_t is_inside, may_leave;
static void say_cleaning(void *what) {
    SAY("cleans up: %s\n", (char *)what);
}

static void *clean_up(void *how) {
    pthread_cleanup_push(say_cleaning, "first");
    pthread_cleanup_push(say_cleaning, "second");
    sem_post(&is_inside);
    if (how) pthread_exit(how);
    for (;;) sem_wait(&may_leave);
    pthread_cleanup_pop(0);
    pthread_cleanup_pop(0);
    return NULL;
}

static void handlers_clean_up(void) {
    NEED(sem_init(&is_inside, 0, 0) == 0 && sem_init(&may_leave, 0, 0) == 0);
    SAY("%d\n", finish(start(clean_up, &is_inside)) == &is_inside);
    pthread_t thread = start(clean_up, NULL);
    for (int i = 0; i < 2; i++) NEED(sem_wait(&is_inside) == 0);
    void *result;
    SAY("%d\n", pthread_tryjoin_np(thread, &result) == EBUSY);
    struct timespec until = soon();
    SAY("%d\n", pthread_timedjoin_np(thread, &result, &until) == ETIMEDOUT);
    NEED(pthread_cancel(thread) == 0);
    SAY("%d\n", finish(thread) == PTHREAD_CANCELED);
}

struct common {
    pthread_mutex_t lock;
    pthread_cond_t condition;
    int turn, sum;
};

static void *take_even_turns(void *with) {
    struct common *common = with;
    for (int i = 0; i < 300; i++) {
        NEED(pthread_mutex_lock(&common->lock) == 0);
        while (common->turn % 2 != 0) NEED(pthread_cond_wait(&common->condition, &common->lock) == 0);
        common->turn++;
        common->sum += i;
        NEED(pthread_cond_broadcast(&common->condition) == 0 && pthread_mutex_unlock(&common->lock) == 0);
    }
    return with;
}

// Threads of one process and of another one share a lock.
static void processes_take_even_turns_by_a_lock(void) {
    struct common *common = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t of_lock;
    pthread_condattr_t of_condition;
    NEED(pthread_mutexattr_init(&of_lock) == 0 && pthread_mutexattr_setpshared(&of_lock, PTHREAD_PROCESS_SHARED) == 0);
    NEED(pthread_condattr_init(&of_condition) == 0 && pthread_condattr_setpshared(&of_condition, PTHREAD_PROCESS_SHARED) == 0);
    NEED(pthread_mutex_init(&common->lock, &of_lock) == 0 && pthread_cond_init(&common->condition, &of_condition) == 0);
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 600; i++) {
            NEED(pthread_mutex_lock(&common->lock) == 0);
            while (common->turn % 2 != 1) NEED(pthread_cond_wait(&common->condition, &common->lock) == 0);
            common->turn++;
            NEED(pthread_cond_broadcast(&common->condition) == 0 && pthread_mutex_unlock(&common->lock) == 0);
        }
        _exit(0);
    }
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) threads[i] = start(take_even_turns, common);
    for (int i = 0; i < 2; i++) finish(threads[i]);
    say_end("the other process", child);
    SAY("%d %d\n", common->turn, common->sum);
}

static double seconds_of(clockid_t clock) {
    struct timespec time;
    NEED(clock_gettime(clock, &time) == 0);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static sem_t have_computed, may_end;
static void *compute_a_little(void *with) {
    while (seconds_of(CLOCK_THREAD_CPUTIME_ID) < 0.2) continue;
    if (with) {
        sem_post(&have_computed);
        sem_wait(&may_end);
    }
    return with;
}

static double in_seconds(struct timeval time) {
    return time.tv_sec + time.tv_usec / 1e6;
}

// The first thread itself uses next to nothing.
static void say_times(double least) {
    struct rusage usage;
    struct tms ticks;
    clockid_t number;
    double own = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    NEED(getrusage(RUSAGE_SELF, &usage) == 0 && times(&ticks) != -1 && clock_getcpuclockid(0, &number) == 0);
    double all[] = {seconds_of(CLOCK_PROCESS_CPUTIME_ID), seconds_of(number), clock() / (double)CLOCKS_PER_SEC,
                    in_seconds(usage.ru_utime) + in_seconds(usage.ru_stime),
                    (ticks.tms_utime + ticks.tms_stime) / (double)sysconf(_SC_CLK_TCK)};
    // The last two are counted by ticks.
    for (int i = 0; i < 5; i++) SAY("%d ", all[i] - own > least - (i < 3 ? 0 : 0.1));
    SAY("\n");
}

static void cpu_time_is_the_processs(void) {
    NEED(sem_init(&have_computed, 0, 0) == 0 && sem_init(&may_end, 0, 0) == 0);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) threads[i] = start(compute_a_little, &may_end);
    for (int i = 0; i < 2; i++) NEED(sem_wait(&have_computed) == 0);
    // While they live, by one of them, and when they have ended.
    say_times(0.35);
    clockid_t number;
    struct timespec unit;
    NEED(pthread_getcpuclockid(threads[0], &number) == 0 && clock_getres(number, &unit) == 0);
    SAY("%d\n", seconds_of(number) > 0.19 && seconds_of(number) < 0.4);
    for (int i = 0; i < 2; i++) sem_post(&may_end);
    for (int i = 0; i < 2; i++) finish(threads[i]);
    say_times(0.35);
    finish(start(compute_a_little, NULL));
    say_times(0.55);
}

static void *name_self(void *unused) {
    char name[16];
    prctl(PR_SET_NAME, "renamed");
    pthread_getname_np(pthread_self(), name, sizeof name);
    SAY("%s\n", name);
    return unused;
}

static void threads_have_names(void) {
    char name[16];
    finish(start(name_self, NULL));
    pthread_getname_np(pthread_self(), name, sizeof name);
    SAY("%s\n", name);
}

static void child_handler(void) {
    SAY("in the child\n");
}

static void fork_calls_handlers(void) {
    NEED(pthread_atfork(NULL, NULL, child_handler) == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) exit(0);
    say_end("the child", child);
}

static unsigned char *shared_pages;
static sem_t asked, answered;

// Answers whether the shared pages can be read and written, each time that it is asked. It has touched them.
static void *say_access(void *with) {
    int zeroes = open("/dev/zero", O_RDONLY);
    shared_pages[0] = 1;
    for (int i = 0; i < 5; i++) {
        sem_post(&answered);
        sem_wait(&asked);
        int readable = is_readable(shared_pages), writable = read(zeroes, shared_pages, 1) == 1;
        SAY("%d %d\n", readable, writable);
    }
    sem_post(&answered);
    close(zeroes);
    return with;
}

static void ask_for_access(void) {
    sem_post(&asked);
    sem_wait(&answered);
}

static void rights_are_those_of_all_threads(void) {
    size_t length = 128 * page;
    shared_pages = map_pages(128);
    pthread_t thread = start(say_access, NULL);
    sem_wait(&answered);
    ask_for_access();
    NEED(mprotect(shared_pages, length, PROT_READ) == 0);
    ask_for_access();
    NEED(mprotect(shared_pages, length, PROT_NONE) == 0);
    ask_for_access();
    NEED(mprotect(shared_pages, length, PROT_READ | PROT_WRITE) == 0);
    ask_for_access();
    NEED(munmap(shared_pages, length) == 0);
    ask_for_access();
    finish(thread);
}

static void *wait_for_ever(void *with) {
    for (;;) pause();
    return with;
}

static void *say_number(void *pipe) {
    pid_t number = gettid();
    NEED(write(*(int *)pipe, &number, sizeof number) == sizeof number);
    return wait_for_ever(NULL);
}

// Waits until the last of the processes that hold the pipe has gone.
static void say_rest(int *ends) {
    char byte;
    close(ends[1]);
    SAY("the rest: %ld\n", (long)read(ends[0], &byte, 1));
}

static void a_crash_leaves_nothing_running(void) {
    int ends[2];
    NEED(pipe(ends) == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 3; i++) start(wait_for_ever, NULL);
        start(crash, NULL);
        wait_for_ever(NULL);
    }
    say_end("the child", child);
    say_rest(ends);
}

// Kills a process by the number of its first thread, or of another.
static void kill_one(int is_first) {
    int ends[2], rest[2];
    NEED(pipe(ends) == 0 && pipe(rest) == 0);
    fflush(stdout);
    pid_t child = fork(), other;
    if (child == 0) {
        for (int i = 0; i < 3; i++) start(wait_for_ever, NULL);
        start(say_number, &ends[1]);
        wait_for_ever(NULL);
    }
    NEED(read(ends[0], &other, sizeof other) == sizeof other);
    NEED(kill(is_first ? child : other, SIGKILL) == 0);
    say_end("the child", child);
    say_rest(rest);
}

static void killing_any_thread_ends_all(void) {
    kill_one(1);
    kill_one(0);
}

static void *return_at_once(void *with) {
    return with;
}

static void many_threads_come_and_go(void) {
    long sum = 0;
    for (long i = 0; i < 1000; i++) sum += (long)finish(start(return_at_once, (void *)i));
    SAY("%ld\n", sum);
}

// Each thread begins with what its maker passes on, whatever the one before it has left.
static unsigned rounding(void) {
    unsigned word;
    __asm__ volatile("stmxcsr %0" : "=m"(word));
    return word >> 13 & 3;
}

static void *leave_state(void *kind) {
    sigset_t all;
    sigfillset(&all);
    unsigned word = 0x1f80 | 1 << 13;
    switch ((intptr_t)kind % 5) {
    case 0: NEED(prctl(PR_SET_NAME, "another") == 0); break;
    case 1:
        NEED(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0);
        NEED(pthread_kill(pthread_self(), SIGUSR2) == 0);
        break;
    case 2: __asm__ volatile("ldmxcsr %0" : : "m"(word)); break;
    case 3: NEED(setpriority(PRIO_PROCESS, gettid(), 5) == 0); break;
    case 4: NEED(sigaltstack(&(stack_t){.ss_sp = malloc(1 << 16), .ss_size = 1 << 16}, NULL) == 0); break;
    }
    return NULL;
}

static void *say_state(void *with) {
    char name[16];
    sigset_t blocked, waiting;
    stack_t stack;
    NEED(prctl(PR_GET_NAME, name) == 0 && sigaltstack(NULL, &stack) == 0);
    NEED(pthread_sigmask(SIG_SETMASK, NULL, &blocked) == 0 && sigpending(&waiting) == 0);
    SAY("%s %u %d%d %d%d %d %d %d\n", name, rounding(), sigismember(&blocked, SIGUSR1), sigismember(&blocked, SIGHUP),
        sigismember(&waiting, SIGUSR1), sigismember(&waiting, SIGUSR2), getpriority(PRIO_PROCESS, gettid()),
        stack.ss_flags, errno);
    cpu_set_t cpus;
    NEED(sched_getaffinity(0, sizeof cpus, &cpus) == 0);
    if (with) SAY("%d\n", CPU_EQUAL(&cpus, (cpu_set_t *)with));
    return with;
}

static void a_thread_begins_with_what_its_maker_passes_on(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    for (intptr_t i = 0; i < 10; i++) {
        finish(start(leave_state, (void *)i));
        finish(start(say_state, NULL));
    }
    unsigned word = 0x1f80 | 2 << 13;
    __asm__ volatile("ldmxcsr %0" : : "m"(word));
    NEED(pthread_sigmask(SIG_SETMASK, &set, NULL) == 0);
    finish(start(say_state, NULL));
}

// Threads come and go by turns, and each writes to its own and to common memory.
static void *add_one(void *sum) {
    long *own = malloc(sizeof *own);
    *own = __atomic_add_fetch((long *)sum, 1, __ATOMIC_RELAXED);
    return own;
}

static void threads_follow_each_other_at_once(void) {
    long sum = 0, returned = 0;
    for (int round = 0; round < 200; round++) {
        pthread_t threads[6];
        int count = 1 + round % 6;
        for (int i = 0; i < count; i++) threads[i] = start(add_one, &sum);
        for (int i = 0; i < count; i++) {
            long *own = finish(threads[i]);
            returned += *own;
            free(own);
        }
    }
    SAY("%ld %ld\n", sum, returned);
}

// A thread leaves its stack for signals behind, which is memory of the next one then.
static void *leave_stack(void *at) {
    NEED(sigaltstack(&(stack_t){.ss_sp = at, .ss_size = 70 * page}, NULL) == 0);
    memset(at, 7, 70 * page);
    return NULL;
}

static void a_stack_for_signals_goes_after_its_thread(void) {
    for (int i = 0; i < 100; i++) {
        unsigned char *at = map_pages(70);
        finish(start(leave_stack, at));
        if (i % 2) memset(at, 8, 70 * page);
        for (size_t k = 0; i % 2 && k < 70 * page; k++) NEED(at[k] == 8);
        NEED(munmap(at, 70 * page) == 0);
    }
    SAY("gone\n");
}

// Each thread is sent a signal before it waits for one.
static void *wait_for_signal(void *sum) {
    sigset_t set;
    int signal;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    NEED(sigwait(&set, &signal) == 0);
    *(long *)sum += signal;
    return NULL;
}

static void a_new_thread_gets_its_signals(void) {
    sigset_t set;
    long sum = 0;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    NEED(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    for (int i = 0; i < 100; i++) {
        pthread_t thread = start(wait_for_signal, &sum);
        NEED(pthread_kill(thread, SIGUSR1) == 0);
        finish(thread);
    }
    SAY("%ld\n", sum);
}

// Memory goes at the moment at which the thread that has used it ends, and another begins.
static void *use_memory(void *at) {
    memset(at, 1, 70 * page);
    return NULL;
}

static void memory_goes_as_its_thread_ends(void) {
    for (int i = 0; i < 500; i++) {
        unsigned char *at = map_pages(70);
        finish(start(use_memory, at));
        pthread_t next = i % 2 ? start(return_at_once, NULL) : 0;
        NEED(munmap(at, 70 * page) == 0);
        if (next) finish(next);
    }
    SAY("gone\n");
}

// A thread is changed by another one, and ends. The next one has what its own maker has.
static sem_t is_there, is_changed;
static volatile pid_t changed_thread;

static void *be_changed(void *with) {
    changed_thread = gettid();
    sem_post(&is_there);
    sem_wait(&is_changed);
    return with;
}

static void *change_it(void *is_cpus) {
    cpu_set_t cpus;
    NEED(sched_getaffinity(0, sizeof cpus, &cpus) == 0);
    for (int cpu = 0, left = CPU_COUNT(&cpus); left > 1; cpu++) {
        if (CPU_ISSET(cpu, &cpus)) CPU_CLR(cpu, &cpus), left--;
    }
    if (is_cpus) {
        NEED(sched_setaffinity(changed_thread, sizeof cpus, &cpus) == 0);
    } else {
        NEED(setpriority(PRIO_PROCESS, changed_thread, 19) == 0);
    }
    return NULL;
}

static void a_change_of_one_thread_is_not_the_next_ones(void) {
    cpu_set_t all;
    NEED(sched_getaffinity(0, sizeof all, &all) == 0);
    for (intptr_t is_cpus = 0; is_cpus < 2; is_cpus++) {
        fflush(stdout);
        pid_t child = fork();
        NEED(child >= 0);
        if (child == 0) {
            NEED(sem_init(&is_there, 0, 0) == 0 && sem_init(&is_changed, 0, 0) == 0);
            pthread_t thread = start(be_changed, NULL);
            sem_wait(&is_there);
            finish(start(change_it, (void *)is_cpus));
            sem_post(&is_changed);
            finish(thread);
            finish(start(say_state, &all));
            fflush(stdout);
            _exit(0);
        }
        say_end("child", child);
    }
}

// The number of a thread that has ended names none.
static void *give_number(void *at) {
    *(pid_t *)at = gettid();
    return NULL;
}

static void an_ended_thread_has_no_number(void) {
    pid_t thread;
    char path[60];
    finish(start(give_number, &thread));
    // It may be seen for a moment after it has been joined.
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
    for (int file; (file = open(path, O_RDONLY)) >= 0; close(file)) sched_yield();
    SAY_CALL(syscall(SYS_tkill, thread, 0));
    SAY_CALL(syscall(SYS_tgkill, getpid(), thread, 0));
    SAY_CALL(kill(thread, 0));
}

// As many threads as `--isolate` has: those that have just ended are in no place that a new one needs.
static pthread_barrier_t all_are_there;
static void *meet_all(void *with) {
    pthread_barrier_wait(&all_are_there);
    return with;
}

static void ended_threads_leave_room(void) {
    enum { MOST = 127, LAST = 4 };
    pthread_t threads[MOST];
    pthread_attr_t small;
    NEED(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, 64 << 10) == 0);
    NEED(pthread_barrier_init(&all_are_there, NULL, MOST + 1) == 0);
    for (int i = 0; i < MOST - LAST; i++) NEED(pthread_create(&threads[i], &small, meet_all, NULL) == 0);
    for (int i = 0; i < LAST; i++) NEED(pthread_create(&threads[MOST - LAST + i], &small, nothing, NULL) == 0);
    for (int i = 0; i < LAST; i++) finish(threads[MOST - LAST + i]);
    // New threads have this name, so none of those that have ended can serve.
    NEED(prctl(PR_SET_NAME, "another") == 0);
    for (int i = 0; i < LAST; i++) NEED(pthread_create(&threads[MOST - LAST + i], &small, meet_all, NULL) == 0);
    pthread_barrier_wait(&all_are_there);
    for (int i = 0; i < MOST; i++) finish(threads[i]);
    SAY("all were there\n");
}

// A list of mutexes that cannot be read is not the next thread's.
static void *leave_list(void *unused) {
    NEED(syscall(SYS_set_robust_list, 64, 24) == 0);
    return unused;
}

static void *head_of_list = (void *)1;
static int get_list(void *unused) {
    (void)unused;
    size_t length;
    syscall(SYS_get_robust_list, 0, &head_of_list, &length);
    return 0;
}

static void a_thread_begins_with_no_mutexes(void) {
    int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS |
                CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
    static int thread, lives;
    static char own[8192] __attribute__((aligned(64)));
    unsigned char *stack = map_pages(16);
    // The thread uses nothing there but the guard of the stack.
    memcpy(own, __builtin_thread_pointer(), 64);
    finish(start(leave_list, NULL));
    NEED(clone(get_list, stack + 16 * page, flags, NULL, &thread, own, &thread) > 0);
    while ((lives = __atomic_load_n(&thread, __ATOMIC_ACQUIRE)) != 0) syscall(SYS_futex, &thread, 0, lives, NULL, NULL, 0);
    SAY("%p\n", head_of_list);
}

RULES(RULE(an_ended_thread_has_no_number), RULE(ended_threads_leave_room), RULE(a_thread_begins_with_no_mutexes),
      RULE(a_change_of_one_thread_is_not_the_next_ones), RULE(a_new_thread_gets_its_signals), RULE(memory_goes_as_its_thread_ends), RULE(a_stack_for_signals_goes_after_its_thread), RULE(a_thread_begins_with_what_its_maker_passes_on), RULE(threads_follow_each_other_at_once),
      RULE(rights_are_those_of_all_threads), RULE(a_crash_leaves_nothing_running), RULE(killing_any_thread_ends_all),
      RULE(many_threads_come_and_go), RULE(a_thread_returns_a_value), RULE(pthread_exit_gives_the_value),
      RULE(thread_local_variables_and_errno_are_each_ones_own), RULE(keys_are_destroyed_at_exit), RULE(stacks_are_shared),
      RULE(the_heap_is_shared), RULE(mappings_are_shared), RULE(a_mutex_excludes), RULE(mutexes_have_kinds),
      RULE(a_robust_mutex_tells_that_its_owner_died), RULE(a_mutex_inherits_priority), RULE(a_timed_lock_gives_up),
      RULE(a_condition_wakes), RULE(readers_share_and_writers_do_not), RULE(a_barrier_has_one_serial_thread),
      RULE(a_spin_lock_excludes), RULE(once_is_once), RULE(a_semaphore_counts), RULE(a_thread_that_reads_is_cancelled),
      RULE(a_thread_that_polls_is_cancelled), RULE(a_loop_is_cancelled_asynchronously),
      RULE(a_thread_may_refuse_to_be_cancelled), RULE(a_thousand_threads_come_and_go),
      RULE(a_detached_thread_ends_by_itself), RULE(a_thread_may_have_a_stack_from_mmap), RULE(a_thread_may_unmap_its_stack),
      RULE(exit_of_any_thread_ends_the_process), RULE(the_first_thread_may_exit_first),
      RULE(threads_have_one_process_and_ids_of_their_own), RULE(a_crash_of_one_is_a_crash_of_all),
      RULE(any_thread_may_fork), RULE(any_thread_may_run_commands), RULE(any_thread_may_execute),
      RULE(any_thread_may_wait), RULE(waits_end_by_their_time), RULE(handlers_clean_up),
      RULE(processes_take_even_turns_by_a_lock), RULE(cpu_time_is_the_processs), RULE(threads_have_names), RULE(fork_calls_handlers))

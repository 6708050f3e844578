// Rules of timers: they belong to the process, so any thread uses one, and it outlives the thread that made it.
#include "rule.h"

static volatile sig_atomic_t count;
static timer_t timer;
static sem_t ready, over;

static const struct itimerspec never, soon = {.it_value = {.tv_nsec = 1000000}},
                                      late = {.it_value = {.tv_sec = 1000}, .it_interval = {.tv_sec = 7}};

static sigset_t set_of(int signal) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    return set;
}

// Blocks all signals in this thread, and so in those that it makes.
static void block_all(void) {
    sigset_t all;
    sigfillset(&all);
    NEED(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0);
    NEED(sem_init(&ready, 0, 0) == 0 && sem_init(&over, 0, 0) == 0);
}

static void until(sem_t *semaphore) {
    while (sem_wait(semaphore) != 0) NEED(errno == EINTR);
}

static struct sigevent event_of(int notify, int signal) {
    return (struct sigevent){.sigev_notify = notify, .sigev_signo = signal, .sigev_value = {.sival_int = 42}};
}

static void *make(void *unused) {
    struct sigevent event = event_of(SIGEV_SIGNAL, SIGUSR1);
    NEED(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    return unused;
}

static void *make_and_set(void *unused) {
    make(unused);
    NEED(timer_settime(timer, 0, &soon, NULL) == 0);
    return unused;
}

static void say_information(const siginfo_t *information) {
    SAY("%d %d %d %d\n", information->si_signo, information->si_code, information->si_value.sival_int,
        information->si_overrun);
}

static void *take(void *number) {
    sigset_t set = set_of(SIGUSR1);
    sem_post(&ready);
    for (intptr_t i = 0; i < (intptr_t)number; i++) {
        siginfo_t information;
        NEED(sigwaitinfo(&set, &information) == SIGUSR1);
        say_information(&information);
        sem_post(&over);
    }
    return NULL;
}

// Uses the timer in all ways, and deletes it.
static void *use(void *unused) {
    struct itimerspec time, old;
    NEED(timer_settime(timer, 0, &late, NULL) == 0);
    NEED(timer_gettime(timer, &time) == 0);
    SAY("%d %ld\n", time.it_value.tv_sec > 900, (long)time.it_interval.tv_sec);
    NEED(timer_settime(timer, 0, &never, &old) == 0);
    SAY("%d %ld %d\n", old.it_value.tv_sec > 900, (long)old.it_interval.tv_sec, timer_getoverrun(timer));
    SAY_CALL(timer_delete(timer));
    SAY_CALL(timer_gettime(timer, &time));
    SAY_CALL(timer_settime(timer, 0, &late, NULL));
    SAY_CALL(timer_getoverrun(timer));
    SAY_CALL(timer_delete(timer));
    return unused;
}

static void any_thread_uses_a_timer(void) {
    block_all();
    finish(start(make, NULL));
    use(NULL);
    make(NULL);
    finish(start(use, NULL));
    finish(start(make, NULL));
    finish(start(use, NULL));
}

static void a_timer_outlives_its_thread(void) {
    block_all();
    finish(start(make_and_set, NULL));
    take((void *)1);
    finish(start(make_and_set, NULL));
    finish(start(take, (void *)1));
}

static void a_timers_signal_is_the_processes(void) {
    block_all();
    pthread_t thread = start(take, (void *)3);
    until(&ready);
    make_and_set(NULL);
    until(&over);
    finish(start(make_and_set, NULL));
    until(&over);
    NEED(timer_settime(timer, 0, &soon, NULL) == 0);
    finish(thread);
}

static void count_signal(int signal) {
    (void)signal;
    count++;
}

static void *have_it_open(void *unused) {
    sigset_t set = set_of(SIGUSR1);
    NEED(pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0);
    while (count < 20) sched_yield();
    return unused;
}

static void the_thread_that_has_it_open_handles_it(void) {
    block_all();
    NEED(signal(SIGUSR1, count_signal) != SIG_ERR);
    pthread_t thread = start(have_it_open, NULL);
    finish(start(make, NULL));
    struct itimerspec often = {.it_value = {.tv_nsec = 1000000}, .it_interval = {.tv_nsec = 1000000}};
    NEED(timer_settime(timer, 0, &often, NULL) == 0);
    finish(thread);
    SAY_CALL(timer_delete(timer));
}

static void expirations_while_blocked_are_counted(void) {
    block_all();
    finish(start(make, NULL));
    struct itimerspec often = {.it_value = {.tv_nsec = 100000}, .it_interval = {.tv_nsec = 100000}}, left;
    NEED(timer_settime(timer, 0, &often, NULL) == 0);
    // Time enough for some of them.
    NEED(usleep(5000) == 0);
    sigset_t set = set_of(SIGUSR1);
    siginfo_t information;
    NEED(sigwaitinfo(&set, &information) == SIGUSR1);
    SAY("%d %d\n", information.si_overrun > 5, timer_getoverrun(timer) > 5);
    NEED(timer_settime(timer, 0, &never, &left) == 0);
}

static void *make_by_default(void *unused) {
    NEED(timer_create(CLOCK_REALTIME, NULL, &timer) == 0);
    NEED(timer_settime(timer, 0, &soon, NULL) == 0);
    return unused;
}

static void a_timer_sends_sigalrm_by_default(void) {
    block_all();
    finish(start(make_by_default, NULL));
    sigset_t set = set_of(SIGALRM);
    siginfo_t information;
    NEED(sigwaitinfo(&set, &information) == SIGALRM);
    SAY("%d %d\n", information.si_code, information.si_value.sival_int == (int)(intptr_t)timer);
}

static pthread_t first;
static void note_call(union sigval value) {
    SAY("%d %d\n", value.sival_int, pthread_equal(pthread_self(), first) != 0);
    count++;
    sem_post(&over);
}

static void *make_with_function(void *unused) {
    struct sigevent event = event_of(SIGEV_THREAD, 0);
    event.sigev_notify_function = note_call;
    NEED(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    return unused;
}

static void a_timer_calls_a_function(void) {
    block_all();
    first = pthread_self();
    make_with_function(NULL);
    struct itimerspec time;
    NEED(timer_gettime(timer, &time) == 0 && timer_settime(timer, 0, &soon, NULL) == 0);
    until(&over);
    SAY_CALL(timer_delete(timer));
    finish(start(make_with_function, NULL));
    for (int i = 0; i < 3; i++) {
        NEED(timer_settime(timer, 0, &soon, NULL) == 0);
        until(&over);
    }
    SAY_CALL(timer_delete(timer));
    SAY("%d\n", count);
}

static void another_thread_sets_a_timer_with_a_function(void) {
    block_all();
    first = pthread_self();
    make_with_function(NULL);
    struct itimerspec time;
    NEED(timer_gettime(timer, &time) == 0);
    for (int i = 0; i < 3; i++) finish(start(make_with_function, NULL));
    for (int i = 0; i < 3; i++) {
        NEED(timer_settime(timer, 0, &soon, NULL) == 0);
        until(&over);
    }
    SAY("%d\n", count);
}

static volatile pid_t target;
static void *take_ones_own(void *number) {
    target = gettid();
    return take(number);
}

static void make_for(pid_t thread) {
    struct sigevent event = event_of(SIGEV_THREAD_ID, SIGUSR1);
    event._sigev_un._tid = thread;
    NEED(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
}

static void *make_for_target(void *unused) {
    make_for(target);
    return unused;
}

static void *set_soon(void *unused) {
    NEED(timer_settime(timer, 0, &soon, NULL) == 0);
    until(&over);
    return unused;
}

// Made and set by the first thread or another one, for another one.
static void a_timer_is_for_one_thread(void) {
    block_all();
    pthread_t thread = start(take_ones_own, (void *)4);
    until(&ready);
    make_for(target);
    set_soon(NULL);
    finish(start(set_soon, NULL));
    SAY_CALL(timer_delete(timer));
    finish(start(make_for_target, NULL));
    set_soon(NULL);
    finish(start(set_soon, NULL));
    finish(thread);
    // It is still there when the thread has ended, and sends nothing.
    NEED(timer_settime(timer, 0, &soon, NULL) == 0);
    use(NULL);
}

static void *make_for_the_first(void *unused) {
    make_for(getpid());
    return unused;
}

static void *set_for_the_first(void *unused) {
    NEED(timer_settime(timer, 0, &soon, NULL) == 0);
    return unused;
}

static void a_timer_is_for_the_first_thread(void) {
    block_all();
    finish(start(make_for_the_first, NULL));
    // Another one that waits for the signal does not get it.
    pthread_t thread = start(take, (void *)1);
    until(&ready);
    finish(start(set_for_the_first, NULL));
    sigset_t set = set_of(SIGUSR1);
    siginfo_t information;
    NEED(sigwaitinfo(&set, &information) == SIGUSR1);
    say_information(&information);
    SAY_CALL(timer_delete(timer));
    NEED(pthread_kill(thread, SIGUSR1) == 0);
    finish(thread);
}

static void *ask_for_what_is_not(void *unused) {
    struct sigevent event = event_of(SIGEV_SIGNAL, SIGUSR1);
    int kernels;
    SAY_CALL(syscall(SYS_timer_create, 77, &event, &kernels));
    SAY_CALL(syscall(SYS_timer_create, CLOCK_MONOTONIC, (void *)8, &kernels));
    SAY_CALL(syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, (void *)8));
    event.sigev_signo = 70;
    SAY_CALL(syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &kernels));
    event = event_of(SIGEV_THREAD_ID, SIGUSR1);
    event._sigev_un._tid = getppid();
    SAY_CALL(syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &kernels));
    event._sigev_un._tid = 0;
    SAY_CALL(syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &kernels));
    event = event_of(9, SIGUSR1);
    SAY_CALL(syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &kernels));
    make(NULL);
    struct itimerspec wrong = {.it_value = {.tv_nsec = 1000000000}};
    SAY_CALL(syscall(SYS_timer_settime, timer, 0, &wrong, NULL));
    SAY_CALL(syscall(SYS_timer_settime, timer, 0, NULL, NULL));
    SAY_CALL(syscall(SYS_timer_settime, timer, 0, (void *)8, NULL));
    SAY_CALL(syscall(SYS_timer_settime, timer, 0, &late, (void *)8));
    SAY_CALL(syscall(SYS_timer_gettime, timer, (void *)8));
    SAY_CALL(syscall(SYS_timer_delete, -1));
    SAY_CALL(syscall(SYS_timer_gettime, 1 << 30, &wrong));
    SAY_CALL(syscall(SYS_timer_delete, timer));
    return unused;
}

static void wrong_calls_get_errors(void) {
    block_all();
    ask_for_what_is_not(NULL);
    finish(start(ask_for_what_is_not, NULL));
}

static void *fork_beside_timers(void *unused) {
    make(NULL);
    timer_t one = timer;
    make_for(target);
    fflush(stdout);
    pid_t child = fork();
    NEED(child >= 0);
    if (child == 0) {
        struct itimerspec time;
        SAY("%d ", timer_gettime(one, &time));
        SAY("%d ", timer_gettime(timer, &time));
        make_and_set(NULL);
        take((void *)1);
        finish(start(make_and_set, NULL));
        finish(start(take, (void *)1));
        fflush(stdout);
        _exit(0);
    }
    say_end("the child", child);
    return unused;
}

static void a_child_has_no_timers(void) {
    block_all();
    pthread_t thread = start(take_ones_own, (void *)1);
    until(&ready);
    fork_beside_timers(NULL);
    NEED(pthread_kill(thread, SIGUSR1) == 0);
    finish(thread);
    pthread_t other = start(take_ones_own, (void *)1);
    until(&ready);
    finish(start(fork_beside_timers, NULL));
    NEED(pthread_kill(other, SIGUSR1) == 0);
    finish(other);
}

// Many timers, of which each thread uses those of others.
static timer_t timers[6][20];
static void *make_many(void *of) {
    for (int i = 0; i < 20; i++) {
        struct sigevent event = event_of(i % 2 ? SIGEV_THREAD_ID : SIGEV_SIGNAL, SIGUSR1);
        event._sigev_un._tid = i % 4 == 1 ? getpid() : target;
        NEED(timer_create(CLOCK_MONOTONIC, &event, &timers[(intptr_t)of][i]) == 0);
    }
    return NULL;
}

static void *use_many(void *of) {
    int wrong = 0;
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 120; i++) {
            struct itimerspec time;
            timer_t one = timers[(i + 7 * (intptr_t)of) % 6][i / 6];
            wrong += timer_gettime(one, &time) != 0 || timer_settime(one, 0, &late, &time) != 0;
        }
    }
    SAY("%d wrong\n", wrong);
    return NULL;
}

static void threads_use_many_timers(void) {
    pthread_t threads[6];
    block_all();
    pthread_t taker = start(take_ones_own, (void *)1);
    until(&ready);
    for (intptr_t i = 0; i < 6; i++) threads[i] = start(make_many, (void *)i);
    for (intptr_t i = 0; i < 6; i++) finish(threads[i]);
    for (intptr_t i = 0; i < 6; i++) threads[i] = start(use_many, (void *)i);
    for (intptr_t i = 0; i < 6; i++) finish(threads[i]);
    NEED(pthread_kill(taker, SIGUSR1) == 0);
    finish(taker);
    int wrong = 0;
    for (int i = 0; i < 120; i++) wrong += timer_delete(timers[i / 20][i % 20]) != 0;
    SAY("%d wrong\n", wrong);
}

// A timer for a thread that ends meanwhile, and two others that delete it.
static pthread_barrier_t all_there;
static volatile int deleted;

static void *make_for_oneself(void *unused) {
    make_for(gettid());
    pthread_barrier_wait(&all_there);
    return unused;
}

static void *delete_once(void *unused) {
    pthread_barrier_wait(&all_there);
    if (timer_delete(timer) == 0) __atomic_add_fetch(&deleted, 1, __ATOMIC_SEQ_CST);
    return unused;
}

static void a_timer_is_deleted_once(void) {
    int wrong = 0;
    NEED(pthread_barrier_init(&all_there, NULL, 3) == 0);
    for (int round = 0; round < 300; round++) {
        deleted = 0;
        pthread_t threads[3] = {start(make_for_oneself, NULL), start(delete_once, NULL), start(delete_once, NULL)};
        for (int i = 0; i < 3; i++) finish(threads[i]);
        wrong += deleted != 1;
    }
    SAY("%d wrong\n", wrong);
}

// ---- Timers of the processor's time.

static volatile sig_atomic_t expired;
static volatile int is_set;

static void expire(int signal) {
    expired += signal;
}

// Uses the processor until a timer has expired so often.
static void *use_until(void *expirations) {
    while (expired < (intptr_t)expirations) continue;
    return expirations;
}

// Uses the processor for longer than `short_time` is.
static void *use_some(void *unused) {
    struct timespec now;
    do NEED(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
    while (now.tv_sec < 2);
    return unused;
}

static const struct itimerval brief = {.it_value = {.tv_usec = 20000}}, short_time = {.it_value = {.tv_sec = 1, .tv_usec = 500000}}, off,
                              often = {{.tv_usec = 5000}, {.tv_usec = 20000}};

static void *set_brief(void *which) {
    NEED(setitimer((intptr_t)which, &brief, NULL) == 0);
    return which;
}

static void *set_short(void *which) {
    NEED(setitimer((intptr_t)which, &short_time, NULL) == 0);
    return which;
}

static void *set_and_sleep(void *which) {
    set_brief(which);
    is_set = 1;
    until(&over);
    return which;
}

// What another thread does makes the timer expire, while the one that set it sleeps, or has ended.
static void a_timer_measures_all_threads(void) {
    NEED(sem_init(&over, 0, 0) == 0);
    int timers[] = {ITIMER_PROF, ITIMER_VIRTUAL}, signals[] = {SIGPROF, SIGVTALRM};
    for (int i = 0; i < 2; i++) {
        NEED(signal(signals[i], expire) != SIG_ERR);
        for (int way = 0; way < 3; way++) {
            expired = is_set = 0;
            pthread_t thread;
            if (way == 0) {
                thread = start(set_and_sleep, (void *)(intptr_t)timers[i]);
                while (!is_set) sched_yield();
            } else {
                if (way == 1) finish(start(set_brief, (void *)(intptr_t)timers[i]));
                if (way == 2) set_brief((void *)(intptr_t)timers[i]);
                thread = start(use_until, (void *)1);
            }
            if (way == 0) use_until((void *)1);
            if (way == 0) sem_post(&over);
            finish(thread);
            struct itimerval left;
            NEED(getitimer(timers[i], &left) == 0);
            SAY("%d %ld %ld\n", expired, (long)left.it_value.tv_sec, (long)left.it_value.tv_usec);
        }
    }
}

// One that was set before there were threads measures those.
static void a_timer_measures_later_threads(void) {
    NEED(signal(SIGPROF, expire) != SIG_ERR && setitimer(ITIMER_PROF, &often, NULL) == 0);
    finish(start(use_until, (void *)(3 * SIGPROF)));
    struct itimerval old;
    NEED(setitimer(ITIMER_PROF, &off, &old) == 0);
    SAY("%d %ld %ld\n", expired >= 3 * SIGPROF, (long)old.it_interval.tv_usec, (long)old.it_value.tv_sec);
}

static void *end_timer(void *which) {
    struct itimerval old;
    NEED(getitimer((intptr_t)which, &old) == 0);
    SAY("%d %ld\n", old.it_value.tv_usec > 0, (long)old.it_interval.tv_usec);
    NEED(setitimer((intptr_t)which, &off, &old) == 0);
    SAY("%d %ld\n", old.it_value.tv_usec > 0, (long)old.it_interval.tv_usec);
    return NULL;
}

static void any_thread_ends_a_timer_of_the_processor(void) {
    NEED(signal(SIGPROF, expire) != SIG_ERR);
    finish(start(set_short, (void *)ITIMER_PROF));
    finish(start(end_timer, (void *)ITIMER_PROF));
    finish(start(use_some, NULL));
    struct itimerval wrong = {.it_value = {.tv_usec = 1000000}};
    SAY("%d ", expired);
    SAY_CALL(setitimer(ITIMER_PROF, &wrong, NULL));
    SAY_CALL(setitimer(ITIMER_VIRTUAL, (void *)8, NULL));
    SAY_CALL(getitimer(ITIMER_VIRTUAL, (void *)8));
    // A child has none.
    NEED(setitimer(ITIMER_PROF, &short_time, NULL) == 0);
    pid_t child = fork();
    if (child == 0) {
        use_some(NULL);
        _exit(expired);
    }
    NEED(setitimer(ITIMER_PROF, &off, NULL) == 0);
    say_end("the child", child);
}

RULES(RULE(a_timer_measures_all_threads), RULE(a_timer_measures_later_threads), RULE(any_thread_ends_a_timer_of_the_processor),
      RULE(a_timer_is_deleted_once), RULE(any_thread_uses_a_timer), RULE(a_timer_outlives_its_thread), RULE(a_timers_signal_is_the_processes),
      RULE(the_thread_that_has_it_open_handles_it), RULE(expirations_while_blocked_are_counted),
      RULE(a_timer_sends_sigalrm_by_default), RULE(a_timer_calls_a_function),
      RULE(another_thread_sets_a_timer_with_a_function), RULE(a_timer_is_for_one_thread),
      RULE(a_timer_is_for_the_first_thread), RULE(wrong_calls_get_errors), RULE(a_child_has_no_timers),
      RULE(threads_use_many_timers))

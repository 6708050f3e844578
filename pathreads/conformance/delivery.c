// Rules of signals to the process: each comes to a thread that has it open, or waits for it.
#include "rule.h"

#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/signalfd.h>

static sem_t ready, taken;
static volatile pid_t waiting;
static volatile sig_atomic_t count;

static sigset_t set_of(int first, int second) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, first);
    if (second) sigaddset(&set, second);
    return set;
}

static void set_mask(int how, int first, int second) {
    sigset_t set = set_of(first, second);
    NEED(pthread_sigmask(how, &set, NULL) == 0);
}

// Blocks all signals in this thread, and so in those that it makes.
static void block_all(void) {
    sigset_t all;
    sigfillset(&all);
    NEED(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0);
    NEED(sem_init(&ready, 0, 0) == 0 && sem_init(&taken, 0, 0) == 0);
}

static void until(sem_t *semaphore) {
    while (sem_wait(semaphore) != 0) NEED(errno == EINTR);
}

static void *take_signals(void *number) {
    sigset_t set = set_of(SIGTERM, SIGUSR1);
    for (intptr_t i = 0; i < (intptr_t)number; i++) {
        int signal;
        NEED(sigwait(&set, &signal) == 0);
        count += signal;
        sem_post(&taken);
    }
    return NULL;
}

static void a_thread_waits_for_the_processes(void) {
    block_all();
    for (int i = 0; i < 10; i++) {
        pthread_t thread = start(take_signals, (void *)2);
        NEED(kill(getpid(), SIGTERM) == 0);
        until(&taken);
        NEED(kill(getpid(), SIGUSR1) == 0);
        finish(thread);
        until(&taken);
    }
    SAY("%d\n", count);
}

static void any_of_several_threads_takes_one(void) {
    pthread_t threads[4];
    block_all();
    for (int i = 0; i < 4; i++) threads[i] = start(take_signals, (void *)3);
    for (int i = 0; i < 12; i++) {
        NEED(kill(getpid(), i % 2 ? SIGTERM : SIGUSR1) == 0);
        until(&taken);
    }
    for (int i = 0; i < 4; i++) finish(threads[i]);
    SAY("%d\n", count);
}

// A thread that waits has another signal open that is ignored.
static void *take_beside_ignored(void *unused) {
    set_mask(SIG_UNBLOCK, SIGCHLD, SIGWINCH);
    return take_signals(unused);
}

static void an_ignored_signal_ends_no_wait(void) {
    block_all();
    pthread_t thread = start(take_beside_ignored, (void *)20);
    for (int i = 0; i < 20; i++) {
        NEED(kill(getpid(), i % 2 ? SIGCHLD : SIGWINCH) == 0);
        // The thread has taken it when it is not pending any more.
        sigset_t pending;
        do NEED(sigpending(&pending) == 0);
        while (sigismember(&pending, SIGCHLD) || sigismember(&pending, SIGWINCH));
        NEED(kill(getpid(), SIGUSR1) == 0);
        until(&taken);
    }
    finish(thread);
    SAY("%d\n", count);
}

// A wait that ends by its time takes no signal, and loses none.
static void *take_with_time(void *number) {
    sigset_t set = set_of(SIGUSR1, 0);
    struct timespec time = {.tv_nsec = 1000};
    for (intptr_t i = 0; i < (intptr_t)number;) {
        int signal = sigtimedwait(&set, NULL, &time);
        time.tv_nsec = (time.tv_nsec * 3 + 1) % 300000;
        NEED(signal == SIGUSR1 || errno == EAGAIN);
        if (signal < 0) continue;
        i++;
        sem_post(&taken);
    }
    SAY("%d ", sigtimedwait(&set, NULL, &time));
    SAY("%d\n", errno == EAGAIN);
    return NULL;
}

static void a_wait_that_ends_loses_no_signal(void) {
    block_all();
    pthread_t thread = start(take_with_time, (void *)50);
    for (int i = 0; i < 50; i++) {
        NEED(kill(getpid(), SIGUSR1) == 0);
        until(&taken);
    }
    finish(thread);
}

// Each thread takes one, at a moment at which it may have given up, and ends.
static void *take_one_and_end(void *unused) {
    sigset_t set = set_of(SIGRTMIN, 0);
    struct timespec time = {.tv_nsec = 1000};
    siginfo_t information;
    while (sigtimedwait(&set, &information, &time) < 0) {
        time.tv_nsec = (time.tv_nsec * 3 + 1) % 200000;
        if (time.tv_nsec % 5 == 0) return unused;
    }
    __atomic_fetch_add((long *)unused, information.si_value.sival_int, __ATOMIC_RELAXED);
    __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);
    return NULL;
}

static void a_thread_that_ends_takes_no_signal_with_it(void) {
    long sum = 0;
    block_all();
    for (int i = 0; i < 40; i++) NEED(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i}) == 0);
    while (count < 40) {
        pthread_t threads[3];
        for (int i = 0; i < 3; i++) threads[i] = start(take_one_and_end, &sum);
        for (int i = 0; i < 3; i++) finish(threads[i]);
    }
    SAY("%d %ld\n", count, sum);
}

static volatile pid_t handled_by;
static void note_thread(int signal) {
    count += signal;
    handled_by = gettid();
    sem_post(&taken);
}

static void *have_it_open(void *end) {
    set_mask(SIG_UNBLOCK, SIGUSR1, 0);
    waiting = gettid();
    sem_post(&ready);
    while (!*(volatile int *)end) sched_yield();
    set_mask(SIG_BLOCK, SIGUSR1, 0);
    return NULL;
}

static void the_only_thread_that_has_it_open_handles_it(void) {
    volatile int end = 0;
    int wrong = 0;
    block_all();
    signal(SIGUSR1, note_thread);
    pthread_t thread = start(have_it_open, (void *)&end);
    until(&ready);
    for (int i = 0; i < 30; i++) {
        NEED(kill(getpid(), SIGUSR1) == 0);
        until(&taken);
        wrong += handled_by != waiting;
    }
    end = 1;
    finish(thread);
    SAY("%d %d\n", count, wrong);
}

// The first thread blocks a signal after the others have begun.
static void the_first_thread_blocks_it_last(void) {
    volatile int end = 0;
    NEED(sem_init(&ready, 0, 0) == 0 && sem_init(&taken, 0, 0) == 0);
    signal(SIGUSR1, note_thread);
    pthread_t thread = start(have_it_open, (void *)&end);
    until(&ready);
    set_mask(SIG_BLOCK, SIGUSR1, 0);
    NEED(kill(getpid(), SIGUSR1) == 0);
    until(&taken);
    SAY("%d %d\n", count, handled_by == waiting);
    end = 1;
    finish(thread);
}

// What is sent to the process comes before the call returns, to a thread that alone has it open.
static void *send_to_own_process(void *unused) {
    for (int i = 0; i < 20; i++) {
        set_mask(SIG_UNBLOCK, SIGUSR1, 0);
        int before = count;
        NEED(kill(getpid(), SIGUSR1) == 0);
        if (count == before) SAY("late ");
        set_mask(SIG_BLOCK, SIGUSR1, 0);
        before = count;
        NEED(kill(getpid(), SIGUSR1) == 0);
        sigset_t pending;
        NEED(sigpending(&pending) == 0 && count == before);
        if (!sigismember(&pending, SIGUSR1)) SAY("not pending ");
        set_mask(SIG_UNBLOCK, SIGUSR1, 0);
        if (count == before) SAY("late after it is open ");
        set_mask(SIG_BLOCK, SIGUSR1, 0);
        NEED(kill(getpid(), SIGUSR1) == 0);
        sigset_t set = set_of(SIGUSR1, 0);
        struct timespec none = {0};
        if (sigtimedwait(&set, NULL, &none) != SIGUSR1) SAY("not there ");
    }
    return unused;
}

static void a_signal_to_oneself_comes_at_once(void) {
    block_all();
    signal(SIGUSR1, note_thread);
    finish(start(send_to_own_process, NULL));
    SAY("%d\n", count);
}

static int ends[2];
static void *wait_with_another_mask(void *kind) {
    sigset_t open;
    sigfillset(&open);
    sigdelset(&open, SIGUSR1);
    struct pollfd file = {.fd = ends[0], .events = POLLIN};
    fd_set files;
    FD_ZERO(&files);
    FD_SET(ends[0], &files);
    struct timespec time = {.tv_nsec = 100000};
    for (int i = 0, before = 0; i < 20; i++, before = count) {
        int result = 0;
        sem_post(&ready);
        // Some waits end before the signal comes.
        while (result == 0) {
            if (kind == NULL) result = sigsuspend(&open);
            if (kind == (void *)1) result = ppoll(&file, 1, &time, &open);
            if (kind == (void *)2) result = pselect(ends[0] + 1, &files, NULL, NULL, NULL, &open);
            if (result == 0) NEED(FD_ISSET(ends[0], &files) && count == before);
        }
        NEED(result == -1 && errno == EINTR && count != before);
    }
    return NULL;
}

static void calls_open_a_signal_while_they_wait(void) {
    block_all();
    NEED(pipe(ends) == 0);
    signal(SIGUSR1, note_thread);
    for (intptr_t kind = 0; kind < 3; kind++) {
        count = 0;
        pthread_t thread = start(wait_with_another_mask, (void *)kind);
        for (int i = 0; i < 20; i++) {
            until(&ready);
            NEED(kill(getpid(), SIGUSR1) == 0);
            until(&taken);
        }
        finish(thread);
        SAY("%d ", count);
    }
    SAY("\n");
}

static void *take_ends(void *number) {
    sigset_t set = set_of(SIGCHLD, 0);
    for (intptr_t i = 0; i < (intptr_t)number; i++) {
        siginfo_t information;
        int status;
        NEED(sigwaitinfo(&set, &information) == SIGCHLD);
        SAY("%d %d ", information.si_code == CLD_EXITED, information.si_status);
        NEED(waitpid(information.si_pid, &status, 0) == information.si_pid);
        SAY("%d\n", WEXITSTATUS(status));
        sem_post(&taken);
    }
    return NULL;
}

static void *fork_some(void *first) {
    for (int i = 0; i < 5; i++) {
        pid_t child = fork();
        NEED(child >= 0);
        if (child == 0) _exit((intptr_t)first + i);
        until(&taken);
    }
    return NULL;
}

static void a_thread_waits_for_ends_of_children(void) {
    block_all();
    pthread_t thread = start(take_ends, (void *)10);
    fork_some((void *)10);
    finish(start(fork_some, (void *)20));
    finish(thread);
}

static void *set_timer(void *unused) {
    struct itimerval timer = {.it_value = {.tv_usec = 2000}, .it_interval = {.tv_usec = 3000}};
    NEED(setitimer(ITIMER_REAL, &timer, NULL) == 0);
    return unused;
}

static void *set_alarm(void *seconds) {
    return (void *)(intptr_t)alarm((intptr_t)seconds);
}

static void *stop_timer(void *unused) {
    struct itimerval timer, old;
    NEED(getitimer(ITIMER_REAL, &timer) == 0);
    SAY("%d ", timer.it_interval.tv_usec == 3000);
    memset(&timer, 0, sizeof timer);
    NEED(setitimer(ITIMER_REAL, &timer, &old) == 0);
    SAY("%d ", old.it_interval.tv_usec == 3000);
    NEED(getitimer(ITIMER_REAL, &timer) == 0 && timer.it_value.tv_sec + timer.it_value.tv_usec == 0);
    SAY_CALL(setitimer(ITIMER_REAL, (struct itimerval *)8, NULL));
    SAY_CALL(getitimer(ITIMER_REAL, (struct itimerval *)8));
    return unused;
}

static void *take_alarms(void *number) {
    sigset_t set = set_of(SIGALRM, 0);
    for (intptr_t i = 0; i < (intptr_t)number; i++) {
        siginfo_t information;
        NEED(sigwaitinfo(&set, &information) == SIGALRM);
        if (information.si_code != SI_KERNEL) SAY("%d ", information.si_code);
    }
    return NULL;
}

// A timer outlives the thread that has set it, and its signal is the process's.
static void a_timer_is_the_processes(void) {
    block_all();
    pthread_t thread = start(take_alarms, (void *)4);
    finish(start(set_timer, NULL));
    finish(thread);
    finish(start(stop_timer, NULL));
    SAY("%d ", finish(start(set_alarm, (void *)1000)) == 0);
    long left = (intptr_t)finish(start(set_alarm, (void *)500));
    SAY("%d ", left > 400 && left <= 1000);
    left = alarm(0);
    SAY("%d %ld\n", left > 400 && left <= 500, (long)(intptr_t)finish(start(set_alarm, 0)));
    // One of the timer may be pending.
    sigset_t set = set_of(SIGALRM, 0);
    struct timespec none = {0};
    sigtimedwait(&set, NULL, &none);
    thread = start(take_alarms, (void *)1);
    finish(start(set_alarm, (void *)1));
    finish(thread);
}

static void say_what_it_says(const siginfo_t *information) {
    SAY("%d %d %d %d %d %d\n", information->si_signo, information->si_code, information->si_errno,
        information->si_pid == getpid(), information->si_uid == getuid(),
        information->si_code == SI_QUEUE ? information->si_value.sival_int : 0);
}

static void *take_and_say(void *number) {
    sigset_t set = set_of(SIGUSR1, SIGRTMIN + 2);
    for (intptr_t i = 0; i < (intptr_t)number; i++) {
        siginfo_t information;
        memset(&information, 7, sizeof information);
        NEED(sigwaitinfo(&set, &information) > 0);
        say_what_it_says(&information);
        sem_post(&taken);
    }
    return NULL;
}

static void *send_each(void *unused) {
    NEED(kill(getpid(), SIGUSR1) == 0);
    until(&taken);
    NEED(sigqueue(getpid(), SIGRTMIN + 2, (union sigval){.sival_int = 42}) == 0);
    until(&taken);
    NEED(sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = -1}) == 0);
    until(&taken);
    return unused;
}

static void say_in_handler(int signal, siginfo_t *information, void *context) {
    (void)signal, (void)context;
    say_what_it_says(information);
    sem_post(&taken);
}

static void signals_say_what_they_said(void) {
    block_all();
    pthread_t thread = start(take_and_say, (void *)6);
    send_each(NULL);
    finish(start(send_each, NULL));
    finish(thread);
    struct sigaction action = {.sa_sigaction = say_in_handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    NEED(sigaction(SIGUSR1, &action, NULL) == 0 && sigaction(SIGRTMIN + 2, &action, NULL) == 0);
    volatile int end = 0;
    set_mask(SIG_UNBLOCK, SIGRTMIN + 2, 0);
    thread = start(have_it_open, (void *)&end);
    until(&ready);
    set_mask(SIG_BLOCK, SIGRTMIN + 2, 0);
    send_each(NULL);
    finish(start(send_each, NULL));
    end = 1;
    finish(thread);
}

static void *take_in_order(void *number) {
    sigset_t set = set_of(SIGRTMIN, SIGRTMIN + 1);
    int wrong = 0;
    sem_post(&ready);
    for (intptr_t i = 0; i < (intptr_t)number; i++) {
        siginfo_t information;
        NEED(sigwaitinfo(&set, &information) == SIGRTMIN);
        wrong += information.si_value.sival_int != i;
    }
    SAY("%d wrong of %ld\n", wrong, (long)(intptr_t)number);
    return NULL;
}

// One thread handles a signal and blocks another one meanwhile, which the other thread has open.
static volatile int is_over;
static volatile sig_atomic_t others_count, late;
static pthread_t handler_of_both;
static void count_other(int signal) {
    (void)signal;
    others_count++;
    sem_post(&taken);
}

static void wait_for_other(int signal) {
    (void)signal;
    struct timespec now, begin;
    int before = count;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    sem_post(&ready);
    // The first thread sends the other signal. It comes to this one before the handler, or to the other one.
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while (others_count == before && now.tv_sec - begin.tv_sec < 20);
    late += others_count == before;
}

static void *have_both_open(void *unused) {
    set_mask(SIG_UNBLOCK, SIGUSR1, SIGUSR2);
    sem_post(&ready);
    while (!is_over) sched_yield();
    set_mask(SIG_BLOCK, SIGUSR1, SIGUSR2);
    return unused;
}

static void *have_other_open(void *unused) {
    set_mask(SIG_UNBLOCK, SIGUSR2, 0);
    sem_post(&ready);
    while (!is_over) sched_yield();
    set_mask(SIG_BLOCK, SIGUSR2, 0);
    return unused;
}

static void a_signal_that_a_handler_blocks_is_anothers(void) {
    block_all();
    struct sigaction action = {.sa_handler = wait_for_other};
    sigaddset(&action.sa_mask, SIGUSR2);
    NEED(sigaction(SIGUSR1, &action, NULL) == 0 && signal(SIGUSR2, count_other) != SIG_ERR);
    handler_of_both = start(have_both_open, NULL);
    pthread_t other = start(have_other_open, NULL);
    until(&ready);
    until(&ready);
    for (int i = 0; i < 300 && !late; i++) {
        count = others_count;
        NEED(pthread_kill(handler_of_both, SIGUSR1) == 0);
        for (volatile int spin = i * 37 % 3000; spin > 0; spin--) {
        }
        NEED(kill(getpid(), SIGUSR2) == 0);
        until(&ready);
        until(&taken);
        // One that came before the handler began.
        if (others_count == count) continue;
    }
    is_over = 1;
    finish(handler_of_both);
    finish(other);
    SAY("%d late\n", late);
}

// The thread that waits may have no signal pending for a while. What was sent before is not lost.
static void *take_sent(void *unused) {
    sigset_t set = set_of(SIGRTMIN, SIGRTMIN + 1);
    waiting = gettid();
    sem_post(&ready);
    until(&taken);
    for (int i = 0; i < 40; i++) {
        siginfo_t information;
        NEED(sigwaitinfo(&set, &information) > 0);
        count += information.si_value.sival_int;
    }
    return unused;
}

static void a_signal_waits_for_room(void) {
    struct rlimit limit, none;
    block_all();
    pthread_t thread = start(take_sent, NULL);
    until(&ready);
    for (int i = 0; i < 40; i++) NEED(sigqueue(getpid(), SIGRTMIN + i % 2, (union sigval){.sival_int = i}) == 0);
    NEED(getrlimit(RLIMIT_SIGPENDING, &limit) == 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = limit.rlim_max};
    NEED(syscall(SYS_prlimit64, waiting, RLIMIT_SIGPENDING, &none, NULL) == 0);
    sem_post(&taken);
    for (int i = 0; i < 2000; i++) sched_yield();
    // It may have ended.
    NEED(syscall(SYS_prlimit64, waiting, RLIMIT_SIGPENDING, &limit, NULL) == 0 || errno == ESRCH);
    finish(thread);
    SAY("%d\n", count);
}

// Others get theirs meanwhile.
static void *get_another(void *unused) {
    set_mask(SIG_UNBLOCK, SIGUSR1, 0);
    while (handled_by != gettid()) sched_yield();
    set_mask(SIG_BLOCK, SIGUSR1, 0);
    return unused;
}

static void a_signal_without_room_holds_up_no_thread(void) {
    struct rlimit none = {0, 0};
    block_all();
    signal(SIGUSR1, note_thread);
    start(take_sent, NULL);
    until(&ready);
    for (int i = 0; i < 40; i++) NEED(sigqueue(getpid(), SIGRTMIN + i % 2, (union sigval){.sival_int = i}) == 0);
    NEED(syscall(SYS_prlimit64, waiting, RLIMIT_SIGPENDING, &none, NULL) == 0);
    sem_post(&taken);
    for (int i = 0; i < 3; i++) {
        pthread_t other = start(get_another, NULL);
        NEED(kill(getpid(), SIGUSR1) == 0);
        finish(other);
    }
    SAY("three got theirs\n");
    fflush(stdout);
    _exit(0);
}

// Linux then keeps of some signals the number alone, and they come all the same.
static volatile sig_atomic_t handled_last;
static void note_last(int signal) {
    handled_last = signal;
}

static void *get_without_room(void *unused) {
    set_mask(SIG_UNBLOCK, SIGUSR1, SIGUSR2);
    sem_post(&ready);
    for (int i = 0; i < 2; i++) {
        while (handled_last == 0) sched_yield();
        SAY("%d\n", (int)handled_last);
        handled_last = 0;
        sem_post(&taken);
    }
    return unused;
}

static void a_signal_to_a_thread_needs_no_room(void) {
    block_all();
    NEED(setrlimit(RLIMIT_SIGPENDING, &(struct rlimit){0, 0}) == 0);
    NEED(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = note_last}, NULL) == 0);
    NEED(sigaction(SIGUSR2, &(struct sigaction){.sa_handler = note_last}, NULL) == 0);
    pthread_t thread = start(get_without_room, NULL);
    until(&ready);
    NEED(pthread_kill(thread, SIGUSR1) == 0);
    until(&taken);
    NEED(sigqueue(getpid(), SIGUSR2, (union sigval){.sival_int = 1}) == 0);
    finish(thread);
}

static void queued_signals_come_in_order(void) {
    block_all();
    for (int is_ready = 0; is_ready < 2; is_ready++) {
        pthread_t thread = start(take_in_order, (void *)200);
        if (is_ready) until(&ready);
        for (int i = 0; i < 200; i++) NEED(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i}) == 0);
        finish(thread);
    }
}

static volatile int handled_in_order;
static void handle_in_order(int signal, siginfo_t *information, void *context) {
    (void)signal, (void)context;
    if (information->si_value.sival_int != handled_in_order++) SAY("not in order ");
}

static void *handle_queued(void *unused) {
    set_mask(SIG_UNBLOCK, SIGRTMIN, 0);
    while (handled_in_order < 200) sched_yield();
    return unused;
}

static void queued_signals_are_handled_in_order(void) {
    block_all();
    struct sigaction action = {.sa_sigaction = handle_in_order, .sa_flags = SA_SIGINFO};
    NEED(sigaction(SIGRTMIN, &action, NULL) == 0);
    pthread_t thread = start(handle_queued, NULL);
    for (int i = 0; i < 200; i++) NEED(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i}) == 0);
    finish(thread);
    SAY("%d\n", handled_in_order);
}

static void another_process_sends_one(void) {
    block_all();
    pthread_t thread = start(take_signals, (void *)10);
    for (int i = 0; i < 10; i++) {
        pid_t child = fork();
        NEED(child >= 0);
        if (child == 0) _exit(kill(getppid(), i % 2 ? SIGTERM : SIGUSR1));
        until(&taken);
        say_end("the sender", child);
    }
    finish(thread);
    SAY("%d\n", count);
}

static void *take_and_exit(void *first) {
    NEED(pthread_join(*(pthread_t *)first, NULL) == 0);
    pid_t child = fork();
    NEED(child >= 0);
    if (child == 0) _exit(kill(getppid(), SIGTERM));
    take_signals((void *)1);
    say_end("the sender", child);
    SAY("%d\n", count);
    exit(3);
}

static void the_first_thread_may_be_gone(void) {
    static pthread_t first;
    block_all();
    first = pthread_self();
    start(take_and_exit, &first);
    pthread_exit(NULL);
}

// A signal to the group is one to each process of it.
static void *take_until_the_other(void *unused) {
    sigset_t set = set_of(SIGUSR1, SIGUSR2);
    for (;;) {
        int signal;
        NEED(sigwait(&set, &signal) == 0);
        if (signal == SIGUSR2) return unused;
        count++;
        sem_post(&taken);
    }
}

static void a_signal_to_the_group_comes_once(void) {
    block_all();
    NEED(setpgid(0, 0) == 0);
    pthread_t thread = start(take_until_the_other, NULL);
    for (int i = 0; i < 10; i++) {
        NEED(kill(i % 2 ? 0 : -getpid(), SIGUSR1) == 0);
        until(&taken);
    }
    NEED(kill(getpid(), SIGUSR2) == 0);
    finish(thread);
    SAY("%d\n", count);
}

// Signals that no thread takes stay pending, also in a program that is executed.
static void *execute_self(void *unused) {
    char path[1000] = "";
    NEED(readlink("/proc/self/exe", path, sizeof path - 1) > 0);
    execl(path, "delivery", "what_is_pending", NULL);
    return unused;
}

static void what_is_pending(void) {
    sigset_t pending;
    NEED(sigpending(&pending) == 0);
    SAY("%d %d\n", sigismember(&pending, SIGUSR1), sigismember(&pending, SIGTERM));
}

static void what_none_takes_stays_pending(void) {
    block_all();
    pthread_t thread = start(take_signals, (void *)1);
    NEED(kill(getpid(), SIGTERM) == 0);
    until(&taken);
    finish(thread);
    NEED(kill(getpid(), SIGUSR1) == 0);
    what_is_pending();
    fflush(stdout);
    finish(start(execute_self, NULL));
}

// A child begins without its parent's signals, and has its own.
static void a_child_gets_its_own(void) {
    block_all();
    pthread_t thread = start(take_signals, (void *)3);
    NEED(kill(getpid(), SIGTERM) == 0);
    until(&taken);
    for (int i = 0; i < 2; i++) {
        fflush(stdout);
        pid_t child = fork();
        NEED(child >= 0);
        if (child == 0) {
            count = 0;
            pthread_t own = start(take_signals, (void *)1);
            NEED(kill(getpid(), SIGTERM) == 0);
            finish(own);
            SAY("%d\n", count);
            fflush(stdout);
            _exit(0);
        }
        say_end("the child", child);
        NEED(kill(getpid(), SIGUSR1) == 0);
        until(&taken);
    }
    finish(thread);
    SAY("%d\n", count);
}

// A thread that reads signals by a descriptor gets those to the process, and so does the next one that reads.
static int file;

static void read_one(void) {
    struct signalfd_siginfo information;
    NEED(read(file, &information, sizeof information) == sizeof information);
    SAY("%u %d %d %d\n", information.ssi_signo, information.ssi_code, information.ssi_pid == (uint32_t)getpid(),
        information.ssi_int);
}

static void until_readable(int way) {
    struct pollfd polled = {.fd = file, .events = POLLIN};
    struct epoll_event event = {.events = EPOLLIN};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(file, &set);
    if (way == 1) NEED(poll(&polled, 1, -1) == 1 && polled.revents == POLLIN);
    if (way == 2) NEED(select(file + 1, &set, NULL, NULL, NULL) == 1 && FD_ISSET(file, &set));
    if (way == 3) {
        int all = epoll_create1(0);
        NEED(all >= 0 && epoll_ctl(all, EPOLL_CTL_ADD, file, &event) == 0);
        NEED(epoll_wait(all, &event, 1, -1) == 1 && event.events == EPOLLIN && close(all) == 0);
    }
}

static void *read_signals(void *unused) {
    for (int i = 0; i < 12; i++) {
        sem_post(&ready);
        until_readable(i % 4);
        read_one();
        sem_post(&taken);
    }
    // One that it sends is there at once.
    NEED(fcntl(file, F_SETFL, O_NONBLOCK) == 0);
    for (int i = 0; i < 10; i++) {
        NEED(kill(getpid(), SIGUSR1) == 0);
        read_one();
    }
    struct signalfd_siginfo none;
    NEED(read(file, &none, sizeof none) == -1 && errno == EAGAIN);
    NEED(fcntl(file, F_SETFL, 0) == 0);
    return unused;
}

static void send_and_read(void) {
    pthread_t thread = start(read_signals, NULL);
    for (int i = 0; i < 12; i++) {
        until(&ready);
        if (i % 2) NEED(kill(getpid(), SIGUSR1) == 0);
        if (i % 2 == 0) NEED(sigqueue(getpid(), SIGRTMIN + 1, (union sigval){.sival_int = i}) == 0);
        until(&taken);
    }
    finish(thread);
}

static void *stay(void *unused) {
    NEED(kill(getpid(), SIGUSR1) == 0);
    read_one();
    sem_post(&taken);
    until(&ready);
    return unused;
}

static void any_thread_reads_signals_by_a_descriptor(void) {
    block_all();
    sigset_t set = set_of(SIGUSR1, SIGRTMIN + 1);
    file = signalfd(-1, &set, 0);
    NEED(file >= 0);
    send_and_read();
    // Others read while the last one that did is still there.
    pthread_t thread = start(stay, NULL);
    until(&taken);
    NEED(kill(getpid(), SIGUSR1) == 0);
    read_one();
    pthread_t next = start(stay, NULL);
    until(&taken);
    sem_post(&ready);
    sem_post(&ready);
    finish(thread);
    finish(next);
    fflush(stdout);
    pid_t child = fork();
    NEED(child >= 0);
    if (child == 0) {
        send_and_read();
        fflush(stdout);
        _exit(0);
    }
    say_end("the child", child);
    // What was sent stays for those that wait in another way.
    NEED(close(file) == 0);
    thread = start(take_signals, (void *)1);
    NEED(kill(getpid(), SIGUSR1) == 0);
    finish(thread);
}

// Two threads wait for a descriptor, and no signal comes: both waits end by their time.
static void *wait_for_none(void *by_epoll) {
    struct pollfd polled = {.fd = file, .events = POLLIN};
    struct epoll_event event = {.events = EPOLLIN};
    int all = epoll_create1(0);
    NEED(all >= 0 && epoll_ctl(all, EPOLL_CTL_ADD, file, &event) == 0);
    long found = by_epoll ? epoll_wait(all, &event, 1, 200) : poll(&polled, 1, 200);
    return (void *)found;
}

static void open_file(void) {
    sigset_t set = set_of(SIGUSR1, 0);
    file = signalfd(-1, &set, 0);
    NEED(file >= 0);
}

static void threads_wait_for_a_descriptor_of_signals(void) {
    block_all();
    open_file();
    pthread_t polls = start(wait_for_none, NULL), waits = start(wait_for_none, (void *)1);
    SAY("%ld\n", (long)finish(polls));
    SAY("%ld\n", (long)finish(waits));
}

// A thread has read signals by a descriptor, and waits for another one while the first thread reads.
static void *wait_after_reading(void *by_poll) {
    sigset_t set = set_of(SIGUSR2, 0), open;
    int signal;
    NEED(kill(getpid(), SIGUSR1) == 0);
    read_one();
    waiting = gettid();
    sem_post(&taken);
    sigfillset(&open);
    sigdelset(&open, SIGUSR2);
    if (by_poll) SAY("%d\n", ppoll(NULL, 0, NULL, &open) == -1 && errno == EINTR);
    else SAY("%d\n", sigwait(&set, &signal) == 0 && signal == SIGUSR2);
    return NULL;
}

static void handle_another(int signal) { count += signal; }

// Sends a waiting thread the signal that it has read by a descriptor, and then the one that it waits for. This
// thread reads the former, between the two or at the end.
static void send_both(int reads_between) {
    block_all();
    open_file();
    signal(SIGUSR2, handle_another);
    for (intptr_t by_poll = 0; by_poll < 2; by_poll++) {
        pthread_t thread = start(wait_after_reading, (void *)by_poll);
        until(&taken);
        until_in_call(waiting, by_poll ? SYS_ppoll : SYS_rt_sigtimedwait);
        NEED(kill(getpid(), SIGUSR1) == 0);
        if (reads_between) read_one();
        NEED(kill(getpid(), SIGUSR2) == 0);
        finish(thread);
        if (!reads_between) read_one();
        SAY("%d\n", count);
    }
}

static void a_wait_keeps_its_set_when_another_reads(void) { send_both(1); }

static void a_signal_to_read_ends_no_wait(void) { send_both(0); }

// A signal that no thread takes yet is there for the next one that waits.
static void *send_and_take(void *unused) {
    struct timespec none = {0};
    sigset_t set = set_of(SIGUSR1, 0);
    NEED(kill(getpid(), SIGUSR1) == 0);
    set_mask(SIG_UNBLOCK, SIGUSR2, 0);
    SAY("%d\n", sigtimedwait(&set, NULL, &none));
    return unused;
}

static void none_reads_by_a_descriptor_that_is_closed(void) {
    block_all();
    open_file();
    // It stays the descriptor that it is.
    NEED(dup2(999, file) == -1 && errno == EBADF);
    NEED(dup3(0, file, O_APPEND) == -1 && errno == EINVAL);
    pthread_t thread = start(stay, NULL);
    until(&taken);
    NEED(close(file) == 0);
    finish(start(send_and_take, NULL));
    // The same where a copy of another one takes its place.
    open_file();
    pthread_t next = start(stay, NULL);
    until(&taken);
    int null = open("/dev/null", O_RDONLY);
    NEED(null >= 0 && dup2(null, file) == file);
    finish(start(send_and_take, NULL));
    sem_post(&ready);
    sem_post(&ready);
    finish(thread);
    finish(next);
}

static void *wait_alone(void *unused) {
    sigset_t set = set_of(SIGUSR1, 0);
    int signal;
    waiting = gettid();
    sem_post(&taken);
    NEED(sigwait(&set, &signal) == 0);
    SAY("%d\n", signal);
    return unused;
}

// One that has read, and does not now, leaves signals to those that wait.
static void a_thread_that_waits_comes_before_one_that_has_read(void) {
    block_all();
    open_file();
    pthread_t thread = start(stay, NULL);
    until(&taken);
    pthread_t waits = start(wait_alone, NULL);
    until(&taken);
    until_in_call(waiting, SYS_rt_sigtimedwait);
    NEED(kill(getpid(), SIGUSR1) == 0);
    finish(waits);
    sem_post(&ready);
    finish(thread);
}

// Reads by a copy in a thread of its own, which closes it.
static void *read_by_copy(void *copy) {
    file = (intptr_t)copy;
    NEED(kill(getpid(), SIGUSR1) == 0);
    until_readable(1);
    read_one();
    NEED(close(file) == 0);
    return NULL;
}

static void copies_of_a_descriptor_read_signals(void) {
    block_all();
    sigset_t set = set_of(SIGUSR1, SIGRTMIN + 1);
    struct rlimit limit;
    NEED(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max;
    NEED(limit.rlim_max > 9000 && setrlimit(RLIMIT_NOFILE, &limit) == 0);
    int first = signalfd(-1, &set, 0);
    NEED(first >= 0);
    int copies[] = {dup(first), fcntl(first, F_DUPFD, 5000), fcntl(first, F_DUPFD_CLOEXEC, 9000), dup2(first, 7000)};
    for (int i = 0; i < 4; i++) {
        // The first one is closed, and a copy stays the same.
        if (i == 2) NEED(close(first) == 0);
        NEED(copies[i] >= 0);
        finish(start(read_by_copy, (void *)(intptr_t)copies[i]));
    }
    SAY_CALL(dup(first));
    SAY_CALL(fcntl(first, F_DUPFD, 0));
}

// A descriptor of all signals leaves those alone by which threads wait for each other.
static void *read_three(void *unused) {
    for (int i = 0; i < 3; i++) {
        sem_post(&ready);
        read_one();
        sem_post(&taken);
    }
    return unused;
}

static void a_descriptor_of_all_signals_reads_them(void) {
    block_all();
    sigset_t all;
    sigfillset(&all);
    file = signalfd(-1, &all, 0);
    NEED(file >= 0);
    pthread_t thread = start(read_three, NULL);
    for (int i = 0; i < 3; i++) {
        until(&ready);
        unsigned char *pages = map_pages(4);
        memset(pages, i, 4 * page);
        NEED(kill(getpid(), i % 2 ? SIGTERM : SIGUSR1) == 0);
        NEED(mprotect(pages, page, PROT_READ) == 0);
        until(&taken);
        NEED(munmap(pages, 4 * page) == 0);
    }
    finish(thread);
}

static void *read_in_turn(void *unused) {
    waiting = gettid();
    NEED(kill(getpid(), SIGUSR1) == 0);
    read_one();
    sem_post(&taken);
    read_one();
    return unused;
}

static void a_descriptor_gets_more_signals_while_a_thread_reads(void) {
    block_all();
    open_file();
    pthread_t thread = start(read_in_turn, NULL);
    until(&taken);
    until_in_call(waiting, SYS_read);
    sigset_t set = set_of(SIGUSR1, SIGUSR2);
    NEED(signalfd(file, &set, 0) == file);
    NEED(kill(getpid(), SIGUSR2) == 0);
    finish(thread);
    // The same where another descriptor has the signal already.
    int other = signalfd(-1, &set, 0);
    set = set_of(SIGUSR1, 0);
    NEED(other >= 0 && signalfd(file, &set, 0) == file);
    thread = start(read_in_turn, NULL);
    until(&taken);
    until_in_call(waiting, SYS_read);
    NEED(kill(getpid(), SIGUSR2) == 0);
    set = set_of(SIGUSR1, SIGUSR2);
    NEED(signalfd(file, &set, 0) == file);
    finish(thread);
}

// A signal that stops the process by default gets a handler while a thread has it open.
static void *pause_open(void *unused) {
    set_mask(SIG_UNBLOCK, SIGTSTP, SIGTTIN);
    waiting = gettid();
    sem_post(&taken);
    pause();
    return unused;
}

static void a_handler_comes_later_for_a_signal_that_stops(void) {
    block_all();
    pthread_t thread = start(pause_open, NULL);
    until(&taken);
    until_in_call(waiting, SYS_pause);
    signal(SIGTSTP, handle_another);
    NEED(kill(getpid(), SIGTSTP) == 0);
    finish(thread);
    SAY("%d\n", count);
}

// The number of a thread stands for its process.
static void *sleep_blocked(void *unused) {
    waiting = gettid();
    sem_post(&taken);
    until(&ready);
    return unused;
}

static void the_number_of_a_thread_is_its_processs(void) {
    block_all();
    pthread_t thread = start(sleep_blocked, NULL);
    until(&taken);
    pthread_t takes = start(take_signals, (void *)1);
    NEED(kill(waiting, SIGTERM) == 0);
    finish(takes);
    takes = start(take_signals, (void *)1);
    NEED(sigqueue(waiting, SIGUSR1, (union sigval){.sival_int = 5}) == 0);
    finish(takes);
    sem_post(&ready);
    finish(thread);
    SAY("%d\n", count);
}

// A real-time signal that was sent to a thread comes first, and the next reader gets the process's behind it.
static void *stay_with_own(void *unused) {
    NEED(sigqueue(getpid(), SIGRTMIN + 1, (union sigval){.sival_int = 1}) == 0);
    read_one();
    NEED(pthread_sigqueue(pthread_self(), SIGRTMIN + 1, (union sigval){.sival_int = 2}) == 0);
    NEED(sigqueue(getpid(), SIGRTMIN + 1, (union sigval){.sival_int = 3}) == 0);
    sem_post(&taken);
    until(&ready);
    read_one();
    return unused;
}

static void *read_beside(void *unused) {
    read_one();
    return unused;
}

static void a_signal_of_a_thread_holds_up_none_of_the_process(void) {
    block_all();
    sigset_t set = set_of(SIGRTMIN + 1, 0);
    file = signalfd(-1, &set, 0);
    NEED(file >= 0);
    pthread_t thread = start(stay_with_own, NULL);
    until(&taken);
    finish(start(read_beside, NULL));
    sem_post(&ready);
    finish(thread);
}

RULES(RULE(a_descriptor_of_all_signals_reads_them), RULE(a_descriptor_gets_more_signals_while_a_thread_reads),
      RULE(a_handler_comes_later_for_a_signal_that_stops), RULE(the_number_of_a_thread_is_its_processs),
      RULE(a_signal_of_a_thread_holds_up_none_of_the_process), RULE(copies_of_a_descriptor_read_signals), RULE(any_thread_reads_signals_by_a_descriptor), RULE(threads_wait_for_a_descriptor_of_signals),
      RULE(a_wait_keeps_its_set_when_another_reads), RULE(a_signal_to_read_ends_no_wait),
      RULE(none_reads_by_a_descriptor_that_is_closed),
      RULE(a_thread_that_waits_comes_before_one_that_has_read), RULE(a_thread_waits_for_the_processes), RULE(any_of_several_threads_takes_one), RULE(an_ignored_signal_ends_no_wait),
       RULE(a_wait_that_ends_loses_no_signal),
      RULE(a_thread_that_ends_takes_no_signal_with_it), RULE(the_only_thread_that_has_it_open_handles_it),
      RULE(the_first_thread_blocks_it_last), RULE(a_signal_to_oneself_comes_at_once), RULE(calls_open_a_signal_while_they_wait),
      RULE(a_thread_waits_for_ends_of_children), RULE(a_timer_is_the_processes), RULE(signals_say_what_they_said),
      RULE(a_signal_that_a_handler_blocks_is_anothers), RULE(a_signal_waits_for_room), RULE(a_signal_without_room_holds_up_no_thread),
      RULE(a_signal_to_a_thread_needs_no_room), RULE(queued_signals_come_in_order), RULE(queued_signals_are_handled_in_order), RULE(another_process_sends_one),
      RULE(the_first_thread_may_be_gone), RULE(a_signal_to_the_group_comes_once), RULE(what_is_pending),
      RULE(what_none_takes_stays_pending), RULE(a_child_gets_its_own))

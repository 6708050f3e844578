// Rules of signals: actions, masks, what a handler sees, and calls that wait.
#include "rule.h"

#include <stdatomic.h>
#include <sys/utsname.h>

static volatile sig_atomic_t count;
static void count_signal(int signal) {
    count += signal;
}
static void count_with_information(int signal, siginfo_t *information, void *context) {
    count += signal + (information->si_pid == getpid()) * 100 + (context != NULL) * 1000;
}

static void say_action(int signal) {
    struct sigaction action;
    NEED(sigaction(signal, NULL, &action) == 0);
    const char *handler = action.sa_handler == SIG_DFL ? "default" : action.sa_handler == SIG_IGN ? "ignored" : "a handler";
    if (action.sa_handler == count_signal) handler = "the counter";
    if (action.sa_sigaction == count_with_information) handler = "the counter with information";
    // The flags of an action without a handler mean nothing.
    int is_handled = action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
    SAY("%s %x %d\n", handler, is_handled ? action.sa_flags & ~0x04000000 : 0, sigismember(&action.sa_mask, SIGUSR2));
}

static void actions_are_read_back(void) {
    int signals[] = {SIGUSR1, SIGSEGV, SIGBUS, SIGSYS, SIGCHLD};
    for (int i = 0; i < 5; i++) {
        struct sigaction action = {.sa_handler = count_signal, .sa_flags = SA_RESTART | SA_ONSTACK};
        sigaddset(&action.sa_mask, SIGUSR2);
        say_action(signals[i]);
        NEED(sigaction(signals[i], &action, NULL) == 0);
        say_action(signals[i]);
        action.sa_sigaction = count_with_information;
        action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESETHAND;
        NEED(sigaction(signals[i], &action, NULL) == 0);
        say_action(signals[i]);
        NEED(signal(signals[i], SIG_IGN) != SIG_ERR);
        say_action(signals[i]);
        NEED(signal(signals[i], SIG_DFL) != SIG_ERR);
        say_action(signals[i]);
    }
    struct sigaction action = {.sa_handler = count_signal};
    SAY_CALL(sigaction(SIGKILL, &action, NULL));
    SAY_CALL(syscall(SYS_rt_sigaction, SIGUSR1, &action, NULL, 4));
}

static void handlers_get_what_they_ask_for(void) {
    signal(SIGUSR1, count_signal);
    raise(SIGUSR1);
    SAY("%d\n", count);
    struct sigaction action = {.sa_sigaction = count_with_information, .sa_flags = SA_SIGINFO};
    NEED(sigaction(SIGUSR1, &action, NULL) == 0);
    raise(SIGUSR1);
    SAY("%d\n", count);
}

static void a_handler_may_be_for_once(void) {
    struct sigaction action = {.sa_handler = count_signal, .sa_flags = SA_RESETHAND};
    NEED(sigaction(SIGURG, &action, NULL) == 0);
    raise(SIGURG);
    raise(SIGURG);
    say_action(SIGURG);
    SAY("%d\n", count);
}

static void blocked_signals_wait(void) {
    sigset_t set, pending;
    signal(SIGUSR1, count_signal);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    raise(SIGUSR1);
    sigpending(&pending);
    SAY("%d %d ", count, sigismember(&pending, SIGUSR1));
    sigprocmask(SIG_UNBLOCK, &set, &pending);
    SAY("%d %d\n", count, sigismember(&pending, SIGUSR1));
}

static void calls_work_while_all_is_blocked(void) {
    sigset_t all;
    sigfillset(&all);
    NEED(sigprocmask(SIG_SETMASK, &all, NULL) == 0);
    struct timespec cpu;
    SAY_CALL(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu));
    SAY_CALL(getppid() > 0);
    SAY("%d\n", syscall(SYS_getpid) == getpid());
}

static sem_t ready;
static int ends[2];
static pid_t waiting;
static void block_all_afterwards(int signal, siginfo_t *information, void *context) {
    (void)signal, (void)information;
    sigfillset(&((ucontext_t *)context)->uc_sigmask);
}

static void a_handler_may_leave_all_blocked(void) {
    struct sigaction action = {.sa_sigaction = block_all_afterwards, .sa_flags = SA_SIGINFO};
    sigset_t blocked;
    NEED(sigaction(SIGUSR1, &action, NULL) == 0 && raise(SIGUSR1) == 0);
    NEED(sigprocmask(SIG_BLOCK, NULL, &blocked) == 0);
    SAY("%d %d\n", sigismember(&blocked, SIGUSR2), sigismember(&blocked, SIGTERM));
}

static void *read_a_byte(void *unused) {
    char byte = 0;
    waiting = gettid();
    sem_post(&ready);
    ssize_t length = read(ends[0], &byte, 1);
    SAY("%zd %d %c\n", length, length < 0 ? errno == EINTR : 0, byte ? byte : '-');
    return unused;
}

// Signals a thread while it sleeps in a call, and waits until the handler has run.
static void interrupt(pthread_t thread, int signal, int call) {
    sem_wait(&ready);
    until_in_call(waiting, call);
    pthread_kill(thread, signal);
    while (count == 0) sched_yield();
}

static void a_call_is_interrupted(int flags) {
    struct sigaction action = {.sa_handler = count_signal, .sa_flags = flags};
    NEED(sigaction(SIGUSR1, &action, NULL) == 0 && pipe(ends) == 0 && sem_init(&ready, 0, 0) == 0);
    pthread_t thread = start(read_a_byte, NULL);
    interrupt(thread, SIGUSR1, SYS_read);
    if (flags & SA_RESTART) NEED(write(ends[1], "b", 1) == 1);
    finish(thread);
}

static void a_read_restarts(void) {
    a_call_is_interrupted(SA_RESTART);
}

static void a_read_is_interrupted(void) {
    a_call_is_interrupted(0);
}

static uintptr_t seen;
static void look_at_place(int signal, siginfo_t *information, void *context) {
    (void)information;
    seen = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    count += signal;
}

static void *wait_in_ppoll(void *unused) {
    sigset_t all;
    sigfillset(&all);
    sigdelset(&all, SIGUSR1);
    waiting = gettid();
    sem_post(&ready);
    SAY_CALL(ppoll(NULL, 0, NULL, &all));
    return unused;
}

// Reads the mappings by calls that need no memory, and says which kind of file an address lies in.
static void say_file(uintptr_t place) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[600];
    unsigned long first, end;
    while (fgets(line, sizeof line, maps)) {
        NEED(sscanf(line, "%lx-%lx", &first, &end) == 2);
        if (first <= place && place < end) {
            const char *kind = strstr(line, "libc") ? "the C library" : strstr(line, "signals") ? "the program" : "elsewhere";
            SAY("%s\n", kind);
        }
    }
    fclose(maps);
}

static void a_handler_sees_the_program(void *(*run)(void *), int call) {
    struct sigaction action = {.sa_sigaction = look_at_place, .sa_flags = SA_SIGINFO};
    NEED(sigaction(SIGUSR1, &action, NULL) == 0 && pipe(ends) == 0 && sem_init(&ready, 0, 0) == 0);
    pthread_t thread = start(run, NULL);
    interrupt(thread, SIGUSR1, call);
    finish(thread);
    say_file(seen);
}

static void a_handler_sees_where_a_read_waits(void) {
    a_handler_sees_the_program(read_a_byte, SYS_read);
}

static void a_handler_sees_where_ppoll_waits(void) {
    a_handler_sees_the_program(wait_in_ppoll, SYS_ppoll);
}

static void sigsuspend_waits_for_one(void) {
    sigset_t block, all;
    signal(SIGALRM, count_signal);
    sigemptyset(&block);
    sigaddset(&block, SIGALRM);
    sigprocmask(SIG_BLOCK, &block, NULL);
    sigfillset(&all);
    sigdelset(&all, SIGALRM);
    struct itimerval soon = {.it_value = {0, 20000}};
    NEED(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    SAY_CALL(sigsuspend(&all));
    SAY("%d\n", count);
}

static void sigwait_takes_one(void) {
    sigset_t set;
    int got;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    kill(getpid(), SIGUSR1);
    NEED(sigwait(&set, &got) == 0);
    SAY("%d\n", got == SIGUSR1);
    struct timespec none = {0, 0};
    SAY_CALL(sigtimedwait(&set, NULL, &none));
}

static sigset_t threads_mask;
static void *get_mask(void *unused) {
    pthread_sigmask(SIG_BLOCK, NULL, &threads_mask);
    return unused;
}

static void a_thread_inherits_the_mask(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    finish(start(get_mask, NULL));
    SAY("%d %d\n", sigismember(&threads_mask, SIGUSR2), sigismember(&threads_mask, SIGUSR1));
}

static int is_on_alternate;
static char alternate[64 << 10];
static void look_at_stack(int signal) {
    char here;
    is_on_alternate = &here >= alternate && &here < alternate + sizeof alternate;
    count += signal;
}

static void handlers_have_a_stack_of_their_own(void) {
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate}, old;
    NEED(sigaltstack(&stack, NULL) == 0);
    struct sigaction action = {.sa_handler = look_at_stack, .sa_flags = SA_ONSTACK};
    NEED(sigaction(SIGUSR1, &action, NULL) == 0);
    raise(SIGUSR1);
    SAY("%d ", is_on_alternate);
    NEED(sigaltstack(NULL, &old) == 0);
    SAY("%d %d\n", old.ss_sp == alternate, old.ss_flags);
}

static void *fault_address;
static void leave_fault(int signal, siginfo_t *information, void *context) {
    (void)context;
    fault_address = information->si_addr;
    siglongjmp(back, signal * 100 + information->si_code);
}

static void a_fault_has_its_address(void) {
    unsigned char *at = mmap(NULL, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct sigaction action = {.sa_sigaction = leave_fault, .sa_flags = SA_SIGINFO};
    NEED(sigaction(SIGSEGV, &action, NULL) == 0);
    for (int i = 0; i < 3; i++) {
        int caught = sigsetjmp(back, 1);
        if (caught == 0) at[i] = 1;
        SAY("%d %d\n", caught, fault_address == at + i);
    }
}

static void a_wrong_pointer_to_a_call_is_an_error(void) {
    for (int handled = 0; handled < 2; handled++) {
        SAY_CALL(syscall(SYS_open, (char *)8, O_RDONLY));
        SAY_CALL(syscall(SYS_rt_sigprocmask, SIG_BLOCK, (void *)8, NULL, 8));
        SAY_CALL(syscall(SYS_readlink, "/proc/self/exe", (char *)8, 100));
        SAY_CALL(syscall(SYS_rt_sigaction, SIGUSR1, (void *)8, NULL, 8));
        SAY_CALL(syscall(SYS_ppoll, NULL, 0, NULL, (void *)8, 8));
        SAY_CALL(syscall(SYS_execve, (char *)8, NULL, NULL));
        signal(SIGSEGV, count_signal);
    }
    SAY("%d\n", count);
}

static void say_death(int signal, int by_fault) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_DUMPABLE, 0);
        if (by_fault) *(volatile int *)8 = 1;
        raise(signal);
        pause();
    }
    say_end("the child", child);
}

static void default_actions_kill(void) {
    say_death(SIGSEGV, 1);
    say_death(SIGSEGV, 0);
    say_death(SIGBUS, 0);
    say_death(SIGSYS, 0);
    say_death(SIGTERM, 0);
    say_death(SIGKILL, 0);
}

static void sigsys_is_the_programs_too(void) {
    signal(SIGSYS, count_signal);
    raise(SIGSYS);
    SAY("%d\n", count);
    signal(SIGSYS, SIG_IGN);
    raise(SIGSYS);
    SAY("%d\n", count);
}

static void change_register(int signal, siginfo_t *information, void *context) {
    (void)signal;
    (void)information;
    // Skips the two bytes of the instruction that faulted.
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RBX] = 1234;
}

static void a_handler_may_change_registers(void) {
    struct sigaction action = {.sa_sigaction = change_register, .sa_flags = SA_SIGINFO};
    NEED(sigaction(SIGILL, &action, NULL) == 0);
    long value = 1;
    __asm__ volatile("mov $1, %%ebx\n ud2\n mov %%rbx, %0" : "=r"(value) : : "rbx");
    SAY("%ld\n", value);
}

static void registers_survive_calls(void) {
    long wrong = 0;
    for (long number = 0; number < 2; number++) {
        // getpid and a mapping of nothing, which fails.
        long call = number ? SYS_mmap : SYS_getpid;
        register long r10 __asm__("r10") = 10, r8 __asm__("r8") = 8, r9 __asm__("r9") = 0, r12 __asm__("r12") = 12;
        register long r13 __asm__("r13") = 13, r14 __asm__("r14") = 14, r15 __asm__("r15") = 15;
        long a = call, di = 1, si = 0, dx = 3, bx = 77;
        __asm__ volatile("syscall"
                         : "+a"(a), "+D"(di), "+S"(si), "+d"(dx), "+b"(bx), "+r"(r10), "+r"(r8), "+r"(r9), "+r"(r12),
                           "+r"(r13), "+r"(r14), "+r"(r15)
                         :
                         : "rcx", "r11", "memory");
        wrong += di != 1 || si != 0 || dx != 3 || bx != 77 || r10 != 10 || r8 != 8 || r9 != 0;
        wrong += r12 != 12 || r13 != 13 || r14 != 14 || r15 != 15;
    }
    SAY("%ld\n", wrong);
}

// Makes a call on a stack that is lowered by some bytes. Returns the number of vector registers that it changes.
__attribute__((target("avx"), noinline)) static int call_with_vectors(long lower) {
    static unsigned char before[16][32], after[16][32];
    for (int i = 0; i < 16 * 32; i++) before[i / 32][i % 32] = 1 + i * 7;
    const unsigned char *from = before[0];
    unsigned char *to = after[0];
#define EACH(one) one(0) one(1) one(2) one(3) one(4) one(5) one(6) one(7) one(8) one(9) one(10) one(11) one(12) one(13) one(14) one(15)
#define LOAD(n) "vmovdqu 32*" #n "(%[from]), %%ymm" #n "\n"
#define STORE(n) "vmovdqu %%ymm" #n ", 32*" #n "(%[to])\n"
    __asm__ volatile(EACH(LOAD) "mov %%rsp, %%rbx\nsub %[lower], %%rsp\nmov $110, %%eax\nsyscall\nmov %%rbx, %%rsp\n" EACH(STORE)
                     : : [from] "r"(from), [to] "r"(to), [lower] "r"(lower)
                     : "rax", "rbx", "rcx", "r11", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
                       "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
    int changed = 0;
    for (int i = 0; i < 16; i++) changed += memcmp(before[i], after[i], 32) != 0;
    return changed;
}

// Does the same with zmm16 to zmm31, which come last in a signal's frame.
__attribute__((target("avx512f"), noinline)) static int call_with_upper_vectors(long lower) {
    static unsigned char before[16][64], after[16][64];
    for (int i = 0; i < 16 * 64; i++) before[i / 64][i % 64] = 1 + i * 7;
    const unsigned char *from = before[0];
    unsigned char *to = after[0];
    __asm__ volatile(
        ".macro each instruction\n.irp n, 16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n\\instruction \\n\n.endr\n.endm\n"
        ".macro load_upper n\nvmovdqu64 64*(\\n-16)(%[from]), %%zmm\\n\n.endm\n"
        ".macro store_upper n\nvmovdqu64 %%zmm\\n, 64*(\\n-16)(%[to])\n.endm\n"
        "each load_upper\nmov %%rsp, %%rbx\nsub %[lower], %%rsp\nmov $110, %%eax\nsyscall\nmov %%rbx, %%rsp\neach store_upper\n"
        ".purgem each\n.purgem load_upper\n.purgem store_upper\n"
        : : [from] "r"(from), [to] "r"(to), [lower] "r"(lower)
        : "rax", "rbx", "rcx", "r11", "memory", "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24",
          "xmm25", "xmm26", "xmm27", "xmm28", "xmm29", "xmm30", "xmm31");
    int changed = 0;
    for (int i = 0; i < 16; i++) changed += memcmp(before[i], after[i], 64) != 0;
    return changed;
}

static void vector_registers_survive_calls(void) {
    int changed = 0;
    for (long lower = 512; lower < 640; lower += 8) {
        if (__builtin_cpu_supports("avx")) changed += call_with_vectors(lower);
        if (__builtin_cpu_supports("avx512f")) changed += call_with_upper_vectors(lower);
    }
    SAY("%d\n", changed);
}

static void the_red_zone_survives_calls(void) {
    long result;
    __asm__ volatile(
        "movq $4242, -8(%%rsp)\n movq $4343, -128(%%rsp)\n"
        "mov $9, %%eax\n xor %%esi, %%esi\n syscall\n"
        "mov -8(%%rsp), %%rax\n add -128(%%rsp), %%rax"
        : "=a"(result)
        : "D"(0)
        : "rsi", "rcx", "r11", "memory");
    SAY("%ld\n", result);
}

static void a_timer_sends_signals(void) {
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    timer_t timer;
    signal(SIGUSR1, count_signal);
    NEED(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    struct itimerspec soon = {.it_value = {0, 1000000}};
    NEED(timer_settime(timer, 0, &soon, NULL) == 0);
    while (count == 0) sched_yield();
    SAY("%d\n", count);
}

static void signals_meet_every_instruction(void) {
    struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    signal(SIGALRM, count_signal);
    NEED(setitimer(ITIMER_REAL, &often, NULL) == 0);
    long wrong = 0;
    for (int i = 0; i < 20000 || count == 0; i++) {
        wrong += getppid() <= 0;
        int file = open("/dev/null", O_RDONLY);
        wrong += file < 0 || close(file) != 0;
        sigset_t set;
        sigemptyset(&set);
        wrong += sigprocmask(SIG_BLOCK, &set, NULL) != 0;
        struct timespec cpu;
        wrong += clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu) != 0;
    }
    NEED(setitimer(ITIMER_REAL, &never, NULL) == 0);
    SAY("%ld %d\n", wrong, count > 0);
}

// Makes a call with the stack pointer at `stack`.
static long call_on(void *stack, long number, long a, long b, long c, long d) {
    long result;
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = -1, r9 __asm__("r9") = 0;
    __asm__ volatile("mov %%rsp, %%rbx\n mov %[stack], %%rsp\n syscall\n mov %%rbx, %%rsp"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9), [stack] "r"(stack)
                     : "rbx", "rcx", "r11", "memory");
    return result;
}

// Go makes calls with little stack, and has its handlers on another one.
static void calls_need_little_stack(void) {
    static char room[64 << 10];
    unsigned char *pages = map_pages(20);
    NEED(mprotect(pages, page, PROT_NONE) == 0);
    unsigned char *stack = pages + page + 800;
    stack_t other = {.ss_sp = room, .ss_size = sizeof room};
    NEED(sigaltstack(&other, NULL) == 0);
    char *arguments[] = {"true", NULL};
    long file = call_on(stack, SYS_openat, AT_FDCWD, (long)"/proc/self/exe", O_RDONLY, 0);
    SAY("%d ", file > 0);
    char text[200];
    SAY("%d ", call_on(stack, SYS_readlinkat, AT_FDCWD, (long)"/proc/self/exe", (long)text, sizeof text) > 0);
    long at = call_on(stack, SYS_mmap, 0, 20 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    SAY("%d ", at > 0);
    SAY("%ld ", call_on(stack, SYS_munmap, at, 20 * page, 0, 0));
    unsigned long action[4] = {(unsigned long)count_signal, 0x04000000, 0, 0}, set = 0;
    SAY("%ld ", call_on(stack, SYS_rt_sigaction, SIGUSR1, (long)action, 0, 8));
    SAY("%ld ", call_on(stack, SYS_rt_sigprocmask, SIG_SETMASK, (long)&set, 0, 8));
    SAY("%ld\n", call_on(stack, SYS_execve, 8, 0, 0, 0));
    fflush(stdout);
    for (int i = 0; i < 20; i++) {
        long child = call_on(stack, SYS_fork, 0, 0, 0, 0);
        if (child == 0) {
            call_on(stack, SYS_execve, (long)"/bin/true", (long)arguments, (long)environ, 0);
            _exit(1);
        }
        say_end("the child", child);
    }
}

// A path may end with the last readable byte.
static void paths_may_end_with_a_page(void) {
    unsigned char *pages = map_pages(2);
    NEED(munmap(pages + page, page) == 0);
    sigset_t all;
    sigfillset(&all);
    NEED(sigprocmask(SIG_SETMASK, &all, NULL) == 0);
    const char *paths[] = {"/", "/tmp", "/proc", "/proc/", "/proc/self/exe", "/no/such"};
    for (int i = 0; i < 6; i++) {
        size_t size = strlen(paths[i]) + 1;
        char *path = memcpy(pages + page - size, paths[i], size);
        SAY_CALL(open(path, O_RDONLY) > 0);
    }
}

// Two signals come at once to a thread whose calls prepare for memory that others have mapped meanwhile.
static volatile sig_atomic_t counts[2], is_at_end;
static void count_each(int signal) {
    counts[signal - SIGRTMIN]++;
}

static void *call_all_the_time(void *with) {
    sigset_t blocked;
    struct utsname name;
    int wrong = 0;
    while (!is_at_end) {
        NEED(uname(&name) == 0 && pthread_sigmask(SIG_BLOCK, NULL, &blocked) == 0);
        wrong += sigismember(&blocked, SIGRTMIN) | sigismember(&blocked, SIGRTMIN + 1) | sigismember(&blocked, SIGUSR1);
    }
    SAY("%d times blocked\n", wrong);
    return with;
}

// Has two timers send a signal each at the same time, again and again.
static void send_two_often(void) {
    struct timespec now;
    NEED(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    now.tv_sec++;
    for (int i = 0; i < 2; i++) {
        struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN + i};
        struct itimerspec time = {.it_value = now, .it_interval = {.tv_nsec = 50000}};
        timer_t timer;
        event._sigev_un._tid = gettid();
        NEED(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
        NEED(timer_settime(timer, TIMER_ABSTIME, &time, NULL) == 0);
    }
}

static void *be_sent_two(void *with) {
    send_two_often();
    return call_all_the_time(with);
}

static void two_signals_come_at_once(void) {
    for (int i = 0; i < 2; i++) NEED(sigaction(SIGRTMIN + i, &(struct sigaction){.sa_handler = count_each}, NULL) == 0);
    pthread_t thread = start(be_sent_two, NULL);
    while (!counts[0] || !counts[1]) sched_yield();
    for (int i = 0; i < 5000; i++) NEED(munmap(map_pages(300), 300 * page) == 0);
    is_at_end = 1;
    finish(thread);
}

// The same on a stack that ends soon, as those of Go. There is no memory for all that the calls would like.
static void *be_sent_two_on_little_stack(void *with) {
    static char room[64 << 10];
    unsigned char *pages = map_pages(3);
    struct utsname name;
    NEED(mprotect(pages, page, PROT_NONE) == 0);
    NEED(sigaltstack(&(stack_t){.ss_sp = room, .ss_size = sizeof room}, NULL) == 0);
    send_two_often();
    while (!is_at_end) NEED(call_on(pages + page + 1600, SYS_uname, (long)&name, 0, 0, 0) == 0);
    return with;
}

static void two_signals_need_little_stack(void) {
    for (int i = 0; i < 2; i++) {
        struct sigaction action = {.sa_handler = count_each, .sa_flags = SA_ONSTACK};
        NEED(sigaction(SIGRTMIN + i, &action, NULL) == 0);
    }
    NEED(sigaction(SIGSEGV, &(struct sigaction){.sa_handler = count_signal, .sa_flags = SA_ONSTACK}, NULL) == 0);
    pthread_t thread = start(be_sent_two_on_little_stack, NULL);
    while (!counts[0] || !counts[1]) sched_yield();
    for (int i = 0; i < 5000; i++) NEED(munmap(map_pages(300), 300 * page) == 0);
    is_at_end = 1;
    finish(thread);
    SAY("%d faults\n", count);
}

// A fault that is sent while its handler runs comes after the handler, and what it says is kept.
static int depth, deepest;
static void send_more(int signal, siginfo_t *information, void *context) {
    (void)context;
    deepest = ++depth > deepest ? depth : deepest;
    SAY("%d of kind %d with %d\n", signal, information->si_code, information->si_code == SI_QUEUE ? information->si_value.sival_int : 0);
    sigset_t one, old;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    if (count++ < 3) {
        NEED(pthread_sigqueue(pthread_self(), signal, (union sigval){.sival_int = count}) == 0);
        // A set that is put back is that of the handler.
        NEED(sigprocmask(SIG_BLOCK, &one, &old) == 0 && sigprocmask(SIG_SETMASK, &old, NULL) == 0);
        SAY("%d is blocked: %d\n", signal, sigismember(&old, signal));
    }
    depth--;
    if (count == 2) siglongjmp(back, 1);
}

static void a_fault_sent_to_its_handler_waits(void) {
    static int i;
    int signals[] = {SIGSEGV, SIGBUS}, flags[] = {SA_SIGINFO, SA_SIGINFO | SA_NODEFER};
    for (i = 0; i < 4; i++) {
        count = deepest = depth = 0;
        struct sigaction action = {.sa_sigaction = send_more, .sa_flags = flags[i / 2]};
        NEED(sigaction(signals[i % 2], &action, NULL) == 0);
        if (sigsetjmp(back, 1) == 0) raise(signals[i % 2]);
        SAY("%d handled, %d at a time\n", count, deepest);
    }
}

// Faults are sent to a thread from all sides while it makes calls that prepare for memory of others.
static volatile sig_atomic_t nested, inside[2], handled[2];
static void count_fault(int signal) {
    int which = signal == SIGBUS;
    nested += inside[which];
    inside[which] = 1;
    // Calls of a handler prepare, too.
    struct utsname name;
    NEED(uname(&name) == 0);
    handled[which]++;
    inside[which] = 0;
}

static void *call_and_map(void *with) {
    sigset_t blocked;
    struct utsname name;
    int wrong = 0;
    while (!is_at_end) {
        NEED(uname(&name) == 0 && munmap(map_pages(2), 2 * page) == 0 && munmap(map_pages(80), 80 * page) == 0);
        NEED(pthread_sigmask(SIG_BLOCK, NULL, &blocked) == 0);
        for (int signal = 1; signal <= SIGRTMAX; signal++) wrong += sigismember(&blocked, signal) == 1;
    }
    SAY("%d times blocked\n", wrong);
    return with;
}

static void *send_faults(void *thread) {
    for (int i = 0; i < 2000; i++) {
        NEED(munmap(map_pages(300), 300 * page) == 0);
        NEED(pthread_kill(*(pthread_t *)thread, i / 9 % 2 ? SIGBUS : SIGSEGV) == 0);
    }
    return NULL;
}

static void sent_faults_leave_a_thread_as_it_is(void) {
    NEED(sigaction(SIGSEGV, &(struct sigaction){.sa_handler = count_fault}, NULL) == 0);
    NEED(sigaction(SIGBUS, &(struct sigaction){.sa_handler = count_fault}, NULL) == 0);
    pthread_t thread = start(call_and_map, NULL), senders[4];
    for (int i = 0; i < 4; i++) senders[i] = start(send_faults, &thread);
    for (int i = 0; i < 4; i++) finish(senders[i]);
    is_at_end = 1;
    finish(thread);
    SAY("%d in one another, %d\n", nested, handled[0] > 0 && handled[1] > 0);
}

// A thread waits for any signal while another unmaps memory that both have used. The signals by which the
// runtime asks for that are not for the program.
static void *wait_for_any(void *at) {
    sigset_t all;
    int signal;
    sigfillset(&all);
    NEED(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0);
    memset(at, 1, 70 * page);
    waiting = gettid();
    sem_post(&ready);
    NEED(sigwait(&all, &signal) == 0);
    SAY("%d\n", signal);
    return NULL;
}

static void a_thread_that_waits_gets_no_others(void) {
    NEED(sem_init(&ready, 0, 0) == 0);
    for (int i = 0; i < 5; i++) {
        unsigned char *at = map_pages(70);
        pthread_t thread = start(wait_for_any, at);
        sem_wait(&ready);
        until_asleep(waiting);
        NEED(munmap(at, 70 * page) == 0);
        NEED(pthread_kill(thread, SIGUSR2) == 0);
        finish(thread);
    }
}

// ---- Signals that come while memory changes.

static atomic_int in_change, is_changing;
static int sent_at_once, has_once;

static void handle_change(int signal, siginfo_t *information, void *context) {
    (void)context;
    // Sent with a value, in order.
    if (information->si_value.sival_int != in_change) SAY("%d in place of %d\n", information->si_value.sival_int, in_change);
    if (information->si_pid != getpid()) SAY("of another\n");
    if (has_once) {
        struct sigaction action = {.sa_sigaction = handle_change, .sa_flags = SA_SIGINFO | SA_RESETHAND};
        NEED(sigaction(signal, &action, NULL) == 0);
    }
    in_change++;
}

static void *change_memory(void *unused) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    while (is_changing) {
        unsigned char *at = mmap(NULL, page, PROT_READ | PROT_WRITE, flags, -1, 0);
        NEED(at != MAP_FAILED && *at == 0);
        *at = 1;
        NEED(mprotect(at, page, PROT_READ) == 0 && munmap(at, page) == 0);
    }
    return unused;
}

// Sends signals to a thread that changes memory, some at once, and waits for their handlers.
static void send_to_changing(int signal, int flags) {
    struct sigaction action = {.sa_sigaction = handle_change, .sa_flags = SA_SIGINFO | flags};
    NEED(sigaction(signal, &action, NULL) == 0);
    has_once = (flags & SA_RESETHAND) != 0;
    in_change = 0;
    is_changing = 1;
    pthread_t thread = start(change_memory, NULL);
    for (int sent = 0; sent < 300;) {
        for (int i = 0; i < sent_at_once; i++, sent++) {
            NEED(pthread_sigqueue(thread, signal, (union sigval){.sival_int = sent}) == 0);
        }
        while (in_change < sent) sched_yield();
    }
    is_changing = 0;
    finish(thread);
    SAY("%d handled\n", in_change);
}

static void signals_come_while_memory_changes(void) {
    sent_at_once = 1;
    send_to_changing(SIGUSR1, 0);
    send_to_changing(SIGUSR2, SA_NODEFER);
}

enum { CHANGING = 2, IN_STORM = 4, STORMS = 1000 };
static const int of_storm[IN_STORM] = {SIGUSR1, SIGUSR2, SIGHUP, SIGWINCH};
static atomic_int come_in_storm[CHANGING][IN_STORM], known;
static __thread int changing_number;

static void handle_storm(int signal) {
    for (int i = 0; i < IN_STORM; i++) come_in_storm[changing_number][i] += of_storm[i] == signal;
}

static void *change_in_storm(void *number) {
    sigset_t blocked;
    changing_number = (int)(intptr_t)number;
    known++;
    change_memory(NULL);
    NEED(pthread_sigmask(SIG_BLOCK, NULL, &blocked) == 0);
    for (int i = 0; i < IN_STORM; i++) {
        if (sigismember(&blocked, of_storm[i])) SAY("%d stays blocked\n", of_storm[i]);
    }
    if (sigismember(&blocked, SIGTERM)) SAY("SIGTERM stays blocked\n");
    return NULL;
}

// Each of several signals comes once to each of the threads that change memory, whichever it finds at work.
static void many_signals_come_while_memory_changes(void) {
    for (int i = 0; i < IN_STORM; i++) {
        struct sigaction action = {.sa_handler = handle_storm};
        sigaddset(&action.sa_mask, SIGTERM);
        // Some nest in each other.
        if (i % 2 == 1) sigaddset(&action.sa_mask, of_storm[i - 1]);
        NEED(sigaction(of_storm[i], &action, NULL) == 0);
    }
    is_changing = 1;
    pthread_t threads[CHANGING];
    for (intptr_t i = 0; i < CHANGING; i++) threads[i] = start(change_in_storm, (void *)i);
    while (known < CHANGING) sched_yield();
    for (int storm = 1; storm <= STORMS; storm++) {
        for (int i = 0; i < CHANGING * IN_STORM; i++) {
            NEED(pthread_kill(threads[i % CHANGING], of_storm[i / CHANGING]) == 0);
        }
        for (int i = 0; i < CHANGING * IN_STORM; i++) {
            while (come_in_storm[i % CHANGING][i / CHANGING] < storm) sched_yield();
        }
    }
    is_changing = 0;
    for (int i = 0; i < CHANGING; i++) finish(threads[i]);
    for (int i = 0; i < CHANGING * IN_STORM; i++) SAY("%d handled\n", come_in_storm[i % CHANGING][i / CHANGING]);
}

static void queued_signals_keep_their_order_while_memory_changes(void) {
    sent_at_once = 30;
    send_to_changing(SIGRTMIN, 0);
}

static void a_handler_for_once_comes_while_memory_changes(void) {
    sent_at_once = 1;
    send_to_changing(SIGUSR1, SA_RESETHAND);
}

RULES(RULE(signals_come_while_memory_changes), RULE(many_signals_come_while_memory_changes),
      RULE(queued_signals_keep_their_order_while_memory_changes),
      RULE(a_handler_for_once_comes_while_memory_changes), RULE(two_signals_come_at_once), RULE(two_signals_need_little_stack), RULE(a_thread_that_waits_gets_no_others), RULE(a_fault_sent_to_its_handler_waits),
      RULE(sent_faults_leave_a_thread_as_it_is), RULE(actions_are_read_back), RULE(handlers_get_what_they_ask_for), RULE(a_handler_may_be_for_once),
      RULE(blocked_signals_wait), RULE(calls_work_while_all_is_blocked), RULE(a_handler_may_leave_all_blocked), RULE(a_read_restarts),
      RULE(a_read_is_interrupted), RULE(a_handler_sees_where_a_read_waits), RULE(a_handler_sees_where_ppoll_waits),
      RULE(sigsuspend_waits_for_one), RULE(sigwait_takes_one), RULE(a_thread_inherits_the_mask),
      RULE(handlers_have_a_stack_of_their_own), RULE(a_fault_has_its_address),
      RULE(a_wrong_pointer_to_a_call_is_an_error), RULE(default_actions_kill), RULE(sigsys_is_the_programs_too),
      RULE(a_handler_may_change_registers), RULE(registers_survive_calls), RULE(vector_registers_survive_calls), RULE(the_red_zone_survives_calls),
      RULE(calls_need_little_stack),
      RULE(paths_may_end_with_a_page), RULE(a_timer_sends_signals), RULE(signals_meet_every_instruction))

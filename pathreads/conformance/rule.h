// A rule is a function that prints what it saw. Each is run by name in a process of its own, plainly and under the
// runtime, and the outputs and exit statuses are compared. So a rule prints nothing that differs from run to run.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

struct rule {
    const char *name;
    void (*run)(void);
};

#define RULE(name) {#name, name}

// What must hold for the rule to make sense.
#define NEED(condition)                                                   \
    do {                                                                  \
        if (!(condition)) {                                               \
            printf("line %d: %s, errno %d\n", __LINE__, #condition, errno); \
            exit(99);                                                     \
        }                                                                 \
    } while (0)

#define SAY(...) printf(__VA_ARGS__)

// Prints a call's result and errno.
#define SAY_CALL(call)                                                 \
    do {                                                               \
        errno = 0;                                                     \
        long result = (long)(call);                                    \
        printf("%ld %d%s", result, errno, errno ? "\n" : " well\n");   \
    } while (0)

static const size_t page = 4096;

static inline unsigned char *map_pages(size_t pages) {
    void *at = mmap(NULL, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(at != MAP_FAILED);
    return at;
}

// Makes more small mappings than a runtime may wait for before it serves them.
static inline void map_early(void) {
    for (int i = 0; i < 40; i++) NEED(munmap(map_pages(1), page) == 0);
}

// Lists the rules, or runs one. CALLS is a number of calls to make before, for a runtime that waits with something until
// there have been some.
static inline int run_rule(const struct rule *rules, size_t count, int argc, char **argv) {
    for (size_t i = 0; i < count; i++) {
        if (argc < 2) {
            puts(rules[i].name);
        } else if (strcmp(argv[1], rules[i].name) == 0) {
            const char *calls = getenv("CALLS");
            map_early();
            for (int call = calls ? atoi(calls) : 0; call > 0; call--) getppid();
            rules[i].run();
            return 0;
        }
    }
    return argc < 2 ? 0 : 98;
}

#define RULES(...)                                                                 \
    int main(int argc, char **argv) {                                              \
        static const struct rule rules[] = {__VA_ARGS__};                          \
        return run_rule(rules, sizeof rules / sizeof *rules, argc, argv);          \
    }

static inline pthread_t start(void *(*run)(void *), void *with) {
    pthread_t thread;
    NEED(pthread_create(&thread, NULL, run, with) == 0);
    return thread;
}

static inline void *finish(pthread_t thread) {
    void *result;
    NEED(pthread_join(thread, &result) == 0);
    return result;
}

// Waits for a child, or for any, and says how it ended.
static inline void say_end(const char *name, pid_t child) {
    int status;
    pid_t ended = waitpid(child, &status, 0);
    NEED(ended > 0 && (child == -1 || ended == child));
    if (WIFEXITED(status)) SAY("%s exited with %d\n", name, WEXITSTATUS(status));
    if (WIFSIGNALED(status)) SAY("%s died of signal %d\n", name, WTERMSIG(status));
}

// Waits until a thread sleeps, or has ended.
static inline void until_asleep(pid_t thread) {
    char path[60], text[300];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
    for (;;) {
        int file = open(path, O_RDONLY);
        if (file < 0 && errno == ENOENT) return;
        ssize_t length = read(file, text, sizeof text - 1);
        NEED(length > 0 && close(file) == 0);
        text[length] = 0;
        if (strrchr(text, ')')[2] == 'S') return;
        sched_yield();
    }
}

// Waits until a thread sleeps in a call, and not in one that the runtime makes before.
static inline void until_in_call(pid_t thread, int number) {
    char path[60];
    int found;
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", thread);
    do {
        FILE *calls = fopen(path, "r");
        NEED(calls);
        if (fscanf(calls, "%d", &found) != 1) found = -1;
        NEED(fclose(calls) == 0);
    } while (found != number && sched_yield() == 0);
}

// Returns whether a byte can be read.
static inline int is_readable(const volatile void *at) {
    int ends[2];
    NEED(pipe(ends) == 0);
    int readable = write(ends[1], (const void *)at, 1) == 1;
    close(ends[0]);
    close(ends[1]);
    return readable;
}

static sigjmp_buf back;
static inline void jump_back(int signal) {
    siglongjmp(back, signal);
}

// Writes to a byte. Returns the signal of the fault, or 0.
static inline int faults(volatile unsigned char *at) {
    signal(SIGSEGV, jump_back);
    int caught = sigsetjmp(back, 1);
    if (caught == 0) *at = 1;
    signal(SIGSEGV, SIG_DFL);
    return caught;
}

// Returns whether the mappings that the kernel lists make an address accessible.
static inline int is_listed(void *at) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[500], rights[8];
    unsigned long first, end, found = 0;
    while (fgets(line, sizeof line, maps)) {
        NEED(sscanf(line, "%lx-%lx %7s", &first, &end, rights) == 3);
        found |= first <= (unsigned long)at && (unsigned long)at < end && rights[0] == 'r';
    }
    fclose(maps);
    return found;
}

static inline unsigned next_random(unsigned *seed) {
    *seed = *seed * 1664525 + 1013904223;
    return *seed >> 8;
}

// Runs something in three threads, and meanwhile in four children, one after another. It is told which it is.
static inline void run_in_threads_and_children(void *(*run)(void *)) {
    pthread_t threads[3];
    for (intptr_t i = 0; i < 3; i++) threads[i] = start(run, (void *)(i + 2));
    for (int i = 0; i < 4; i++) {
        pid_t child = fork();
        if (child == 0) {
            run((void *)9);
            _exit(0);
        }
        say_end("a child", child);
    }
    for (int i = 0; i < 3; i++) finish(threads[i]);
    SAY("three threads\n");
}

/* Random calls that make, signal, stop, move and await processes, by a tree of processes with several threads
 * each, bounded in depth and width. The results of the calls do not matter. The machine must survive and get
 * all memory back.
 *
 * processstorm STEPS SEED: prints a line when all is over. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "page_counts.h"

/* REQUESTS: the descriptor of the pipe to the process that stops others. */
enum { DEEPEST = 3, CHILDREN = 3, TREES = 30, THREADS = 2, REQUESTS = 100 };

static long steps;
static int depth, root;
static volatile int last_child;
static __thread uint64_t state;

static unsigned below(unsigned limit)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % limit;
}

/* Returns the number of a process in the tree (this one, its parent, the last child that a thread made), of
 * the group, or of no process. Never that of the first process of the tree, nor of one outside. */
static int some_process(void)
{
    int pid = (int[]){getpid(), getppid(), last_child, -getpgrp(), 0x3ffff0}[below(5)];
    return pid == root || pid == -root || pid == 0 || getppid() <= 1 ? getpid() : pid;
}

/* Returns a signal, seldom a deadly one. None of them stops: see stop_and_go_on. */
static int some_signal(void)
{
    static const int HARMLESS[] = {0, SIGCONT, SIGUSR1, SIGUSR2, SIGCHLD, SIGTERM, 40, 65}, DEADLY[] = {SIGKILL, SIGSEGV, SIGHUP};
    return below(40) ? HARMLESS[below(8)] : DEADLY[below(3)];
}

static const int OPTIONS[] = {WNOHANG, WNOHANG | WUNTRACED, WNOHANG | WCONTINUED, WNOHANG | __WALL, WNOHANG | __WCLONE, 0x12345678};

static void handler(int signal)
{
    (void)signal;
}

/* Asks for a process to be stopped and continued. The process that does this for all is never killed. If it
 * was killed between the two, or ended there by its other thread, the process would stay stopped for ever. */
static void stop_and_go_on(void)
{
    int pid = some_process();
    if (pid > 0 && pid != getpid() && write(REQUESTS, &pid, sizeof pid) == sizeof pid)
        waitpid(pid, NULL, WNOHANG | WUNTRACED);
}

/* Stops and continues each process that is asked for, until no process is left that asks. */
static void serve_requests(int requests)
{
    for (int pid, turn = 0; read(requests, &pid, sizeof pid) == sizeof pid; turn++) {
        kill(pid, turn % 2 ? SIGSTOP : SIGTSTP);
        for (int i = 0; i < turn % 16; i++)
            sched_yield();
        kill(pid, SIGCONT);
    }
}

static void storm(void);
static int cloned(void *arg)
{
    (void)arg;
    return below(200);
}

static void make(void)
{
    static __thread char stack[16384];
    static const int FLAGS[] = {SIGCHLD, 0, CLONE_FILES | SIGCHLD, CLONE_VM | CLONE_VFORK | SIGCHLD, CLONE_FS | SIGUSR1, CLONE_PARENT | SIGCHLD,
                                CLONE_VFORK | SIGCHLD, CLONE_VM | CLONE_SIGHAND | CLONE_VFORK | SIGCHLD, 0x7fffffff, CLONE_SIGHAND | SIGCHLD};
    if (below(3) == 0 && depth < DEEPEST) {
        int pid = fork();
        if (pid == 0) {
            depth++;
            last_child = 0;
            state += getpid();
            storm();
        }
        last_child = pid > 0 ? pid : 0;
    } else {
        clone(cloned, stack + sizeof stack, FLAGS[below(sizeof FLAGS / sizeof *FLAGS)], NULL, NULL, NULL, NULL);
    }
}

static void run_program(void)
{
    char number[32], level[16], first[16];
    snprintf(number, sizeof number, "%lu", (unsigned long)state);
    snprintf(level, sizeof level, "%d", depth);
    snprintf(first, sizeof first, "%d", root);
    char *words[] = {"processstorm", "20", number, level, first, NULL}, *wild[] = {"x", (char *)64, NULL};
    char **arrays[] = {words, wild, (char **)(uintptr_t)below(4096), NULL};
    const char *paths[] = {"/proc/self/exe", "/proc/self/exe", "/none", "/proc", (char *)(uintptr_t)below(4096), "/proc/self/fd/0"};
    execve(paths[below(6)], arrays[below(4)], below(2) ? environ : NULL);
}

static void step(void)
{
    int pipes[2];
    siginfo_t info;
    struct rlimit limit = {below(300), 300};
    switch (below(24)) {
    case 0: case 1: case 2: make(); break;
    case 3: kill(some_process(), some_signal()); break;
    case 4: below(2) ? (void)syscall(SYS_tgkill, some_process(), some_process(), some_signal()) : stop_and_go_on(); break;
    case 5: case 6: case 7: waitpid(below(2) ? -1 : some_process(), NULL, OPTIONS[below(6)]); break;
    case 8: syscall(SYS_waitid, below(5), some_process(), below(2) ? &info : NULL, WNOHANG | (below(2) ? WEXITED : 0xf), NULL); break;
    case 9: setpgid(below(2) ? 0 : some_process(), below(2) ? 0 : some_process()); break;
    case 10: below(8) == 0 ? (void)setsid() : (void)getsid(some_process()); break;
    case 11: prctl(PR_SET_CHILD_SUBREAPER, below(2)); break;
    case 12: prctl(PR_SET_PDEATHSIG, some_signal()); break;
    case 13: if (pipe(pipes) == 0) { close(pipes[0]); close(pipes[1]); } break;
    case 14: if (below(20) == 0 && depth > 0) run_program(); break;
    case 15: signal((int[]){SIGUSR1, SIGTERM, 40, SIGPIPE}[below(4)], below(2) ? SIG_IGN : handler); break;
    case 16: signal(SIGCHLD, below(2) ? SIG_IGN : SIG_DFL); break;
    case 17: if (depth > 0 && below(30) == 0) _exit(below(256)); break;
    case 18: prlimit(some_process(), RLIMIT_NPROC, below(2) ? &limit : NULL, NULL); break;
    case 19: {
        int fd = syscall(SYS_pidfd_open, some_process(), below(2) * O_NONBLOCK);
        struct pollfd polled = {fd, POLLIN, 0};
        poll(&polled, 1, 0);
        syscall(SYS_pidfd_send_signal, fd, some_signal(), NULL, 0);
        close(fd);
        break;
    }
    case 20: {
        char path[64], text[512];
        const char *names[] = {"stat", "status", "cmdline", "maps", "exe", "fd/1", "task", "environ"};
        snprintf(path, sizeof path, "/proc/%d/%s", some_process(), names[below(8)]);
        int fd = open(path, O_RDONLY | O_NONBLOCK);
        if (fd > 2) {
            if (read(fd, text, sizeof text) < 0)
                syscall(SYS_getdents64, fd, text, sizeof text);
            close(fd);
        }
        break;
    }
    case 21: {
        char *page = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page != MAP_FAILED) {
            memset(page, 1, 8192);
            if (below(2))
                munmap(page, 65536);
        }
        break;
    }
    default: sched_yield();
    }
}

static void *steps_of_a_thread(void *arg)
{
    state += (uint64_t)(uintptr_t)arg;
    for (long i = 0; i < steps; i++)
        step();
    return NULL;
}

static void storm(void)
{
    pthread_t id;
    signal(SIGUSR1, handler), signal(SIGUSR2, handler), signal(SIGTERM, handler), signal(40, handler);
    if (depth < DEEPEST)
        for (uintptr_t i = 1; i < THREADS; i++)
            if (pthread_create(&id, NULL, steps_of_a_thread, (void *)(state + i)) == 0)
                pthread_detach(id);
    steps_of_a_thread(NULL);
    _exit(0);
}

static void plant(int tree)
{
    if (fork() == 0) {
        setpgid(0, 0);
        state += tree;
        depth = 1;
        storm();
    }
}

/* Waits until one of the children ends. Returns whether there was one. */
static int await(void)
{
    siginfo_t info = {0};
    return waitid(P_ALL, 0, &info, WEXITED | __WALL) == 0 && info.si_pid != 0;
}

/* Starts the process that stops others. */
static void start_stopper(void)
{
    int ends[2];
    if (pipe(ends) || dup2(ends[1], REQUESTS) != REQUESTS || close(ends[1]))
        exit(1);
    if (fork() == 0) {
        close(REQUESTS);
        serve_requests(ends[0]);
        _exit(0);
    }
    close(ends[0]);
}

int main(int count, char **words)
{
    if (count < 3)
        return 2;
    steps = atol(words[1]);
    state = strtoul(words[2], NULL, 10);
    if (count > 4) {
        depth = atoi(words[3]);
        root = atoi(words[4]);
        storm();
    }
    root = getpid();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    start_stopper();
    for (int tree = 0; tree < TREES; tree++) {
        plant(tree);
        if (tree >= CHILDREN)
            await();
    }
    /* The stopper ends when no process can ask it any more. */
    close(REQUESTS);
    while (await())
        ;
    compare_all();
    printf("processstorm: done\n");
    return 0;
}

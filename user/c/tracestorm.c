/* Several processes trace each other's children with requests by chance, while they kill some of them.
 *
 * tracestorm ROUNDS SEED: prints "tracestorm: done" when all processes have ended. For a guest only. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "page_counts.h"

enum { TRACERS = 4, VICTIMS = 6, THREADS = 2 };

/* The numbers of all threads that may be traced. */
static volatile pid_t *numbers;
static uint64_t state;

static unsigned dice(unsigned sides)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state >> 20) % sides;
}

static void ignore(int signal)
{
    (void)signal;
}

static void *work(void *at)
{
    *(volatile pid_t *)at = gettid();
    for (volatile unsigned turn = 0;; turn++) {
        syscall(SYS_getppid);
        if (turn % 64 == 0)
            syscall(SYS_tgkill, getpid(), gettid(), SIGUSR1);
        if (turn % 256 == 0) {
            pid_t pid = turn % 512 ? vfork() : fork();
            if (pid == 0)
                _exit(0);
            if (pid > 0)
                waitpid(pid, NULL, 0);
        }
        struct timespec time = {0, 1000};
        if (turn % 32 == 0)
            nanosleep(&time, NULL);
    }
    return NULL;
}

static pid_t victim(int number)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    signal(SIGUSR1, ignore);
    pthread_t thread;
    for (int i = 1; i < THREADS; i++)
        pthread_create(&thread, NULL, work, (void *)&numbers[number * THREADS + i]);
    if (dice(4) == 0)
        ptrace(PTRACE_TRACEME, 0, 0, 0);
    work((void *)&numbers[number * THREADS]);
    _exit(0);
}

static void request(pid_t tid)
{
    static const long requests[] = {PTRACE_ATTACH,     PTRACE_SEIZE,      PTRACE_CONT,       PTRACE_CONT,      PTRACE_SYSCALL,
                                    PTRACE_SYSCALL,    PTRACE_SINGLESTEP, PTRACE_SINGLESTEP, PTRACE_DETACH,    PTRACE_INTERRUPT,
                                    PTRACE_LISTEN,     PTRACE_GETREGS,    PTRACE_SETREGS,    PTRACE_GETFPREGS, PTRACE_SETFPREGS,
                                    PTRACE_GETREGSET,  PTRACE_SETREGSET,  PTRACE_PEEKDATA,   PTRACE_POKEDATA,  PTRACE_PEEKUSER,
                                    PTRACE_POKEUSER,   PTRACE_GETSIGINFO, PTRACE_SETSIGINFO, 0x420a,           0x420b,
                                    PTRACE_SETOPTIONS, 0x420e,            0x7777};
    static _Alignas(64) uint64_t buffer[1024];
    struct iovec vector = {buffer, dice(2) ? sizeof buffer : dice(600) * 8};
    long request = requests[dice(sizeof requests / sizeof *requests)];
    long at = 0, data = (long)buffer;
    switch (request) {
    case PTRACE_SEIZE:
    case PTRACE_SETOPTIONS:
        data = dice(128) | (dice(4) == 0) << 20;
        break;
    case PTRACE_CONT:
    case PTRACE_SYSCALL:
    case PTRACE_SINGLESTEP:
    case PTRACE_DETACH:
        data = dice(3) ? 0 : dice(66);
        if (data == SIGKILL && dice(4))
            data = 0;
        break;
    case PTRACE_GETREGSET:
    case PTRACE_SETREGSET:
        at = (long[]){1, 2, 0x202, 77}[dice(4)];
        data = (long)&vector;
        break;
    case PTRACE_POKEDATA:
        at = (long)buffer + dice(8192);
        data = dice(1000);
        break;
    case PTRACE_PEEKDATA:
        at = dice(2) ? (long)buffer + dice(8192) : (long)dice(1 << 30) << dice(34);
        break;
    case PTRACE_PEEKUSER:
    case PTRACE_POKEUSER:
        at = dice(1000);
        break;
    case PTRACE_ATTACH:
    case PTRACE_INTERRUPT:
    case PTRACE_LISTEN:
        data = 0;
        break;
    default:
        at = dice(2) ? 8 : dice(100);
    }
    syscall(SYS_ptrace, request, tid, at, dice(50) ? data : 8);
}

static void trace(int rounds)
{
    for (int round = 0; round < rounds; round++) {
        pid_t tid = numbers[dice(VICTIMS * THREADS)];
        if (tid <= 1)
            continue;
        int status;
        switch (dice(16)) {
        case 0:
            while (waitpid(-1, &status, __WALL | WNOHANG) > 0)
                ;
            break;
        case 1:
            if (dice(200) == 0)
                kill(tid, SIGKILL);
            break;
        case 2:
            syscall(SYS_tkill, tid, dice(2) ? SIGCONT : SIGSTOP);
            break;
        default:
            request(tid);
        }
    }
    _exit(0);
}

/* Waits for the end of a child, which may stop as a tracee before. */
static void end_of(pid_t pid)
{
    int status = 0x7f;
    while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status))
        ;
}

int main(int count, char **words)
{
    if (count != 3)
        return 2;
    int rounds = atoi(words[1]);
    uint64_t seed = strtoull(words[2], NULL, 0);
    numbers = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t victims[VICTIMS], tracers[TRACERS];
    for (int i = 0; i < VICTIMS; i++) {
        state = seed * 1000 + i + 1;
        if ((victims[i] = victim(i)) <= 0)
            return 1;
    }
    for (int i = 0; i < TRACERS; i++) {
        state = seed * 7777 + i + 1;
        if ((tracers[i] = fork()) < 0)
            return 1;
        if (tracers[i] == 0)
            trace(rounds);
    }
    for (int i = 0; i < TRACERS; i++)
        end_of(tracers[i]);
    for (int i = 0; i < VICTIMS; i++)
        kill(victims[i], SIGKILL);
    for (int i = 0; i < VICTIMS; i++)
        end_of(victims[i]);
    /* The children of those that were killed. One that a tracer has left stopped stays. */
    for (int tries = 0; waitpid(-1, NULL, WNOHANG) >= 0 && tries < 1000; tries++)
        usleep(10000);
    compare_all();
    printf("tracestorm: done\n");
    return 0;
}

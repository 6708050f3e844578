/* Requests to a traced process, for the programs that try them. */

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#ifndef PTRACE_EVENT_STOP
#define PTRACE_EVENT_STOP 128
#endif
#define EVENT(event) (SIGTRAP | (event) << 8)

typedef struct user_regs_struct Registers;

static inline long ask(long request, pid_t pid, long at, long data)
{
    return syscall(SYS_ptrace, request, pid, at, data);
}

/* Returns the wait status of `pid`, a thread of any kind. */
static inline int status_of(pid_t pid)
{
    int status = -1;
    pid_t found;
    do
        found = waitpid(pid, &status, __WALL);
    while (found == -1 && errno == EINTR);
    return found == pid ? status : -1;
}

/* Returns whether it stops for `code`: the signal, and the event in the second byte. */
static inline int stops(pid_t pid, int code)
{
    int status = status_of(pid);
    int good = WIFSTOPPED(status) && status >> 8 == code;
    if (!good)
        fprintf(stderr, "status %x instead of %x\n", status, code << 8 | 0x7f);
    return good;
}

static inline int exits(pid_t pid, int code)
{
    int status = status_of(pid);
    return WIFEXITED(status) && WEXITSTATUS(status) == code;
}

static inline int dies(pid_t pid, int signal)
{
    int status = status_of(pid);
    return WIFSIGNALED(status) && WTERMSIG(status) == signal;
}

static inline long peek(pid_t pid, const volatile void *at)
{
    long value = -1;
    return ask(PTRACE_PEEKDATA, pid, (long)at, (long)&value) == 0 ? value : -1;
}

static inline Registers registers_of(pid_t pid)
{
    Registers registers;
    memset(&registers, 0, sizeof registers);
    ask(PTRACE_GETREGS, pid, 0, (long)&registers);
    return registers;
}

static inline int set_registers(pid_t pid, const Registers *registers)
{
    return ask(PTRACE_SETREGS, pid, 0, (long)registers) == 0;
}

/* Ends the program if there is no child: a signal to -1 would go to every process. */
static inline pid_t must_be_child(pid_t pid)
{
    if (pid <= 0) {
        check("a child", 0);
        exit(1);
    }
    return pid;
}

/* As raise, which blocks signals meanwhile in some libraries. */
static inline void signal_self(int signal)
{
    syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), signal);
}

/* Makes a child that is traced, stops itself, and then calls `body`. Returns when it has stopped. */
static inline pid_t traced(void (*body)(void))
{
    pid_t pid = fork();
    if (pid == 0) {
        if (ask(PTRACE_TRACEME, 0, 0, 0) != 0)
            _exit(99);
        signal_self(SIGSTOP);
        body();
        _exit(7);
    }
    return must_be_child(stops(pid, SIGSTOP) ? pid : -1);
}

static inline int goes_on(pid_t pid, int signal)
{
    return ask(PTRACE_CONT, pid, 0, signal) == 0;
}

/* Lets the child go on to its end. */
static inline int finishes(pid_t pid)
{
    return goes_on(pid, 0) && exits(pid, 7);
}

static inline void nothing(void)
{
}

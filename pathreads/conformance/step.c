// Runs a program (`step PROGRAM ARGUMENTS`), and delivers SIGUSR1 to it after each instruction of a part. The
// program marks the part by two breakpoints, and runs it again and again: the signal comes after no instruction
// of it the first time, and then after one more each time. The second mark says when it would come behind it.
#define _GNU_SOURCE
#include "marks.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

static int status;

static void go(int request, pid_t program, int signal) {
    if (ptrace(request, program, 0, signal) != 0 || waitpid(program, &status, 0) != program) exit(97);
    if (WIFSIGNALED(status)) printf("the program died of signal %d\n", WTERMSIG(status));
    if (!WIFSTOPPED(status)) exit(WIFEXITED(status) ? WEXITSTATUS(status) : 96);
}

// Returns whether the program has stopped at a mark.
static int is_at(pid_t program, long mark, struct user_regs_struct *registers) {
    if (WSTOPSIG(status) != SIGTRAP || ptrace(PTRACE_GETREGS, program, 0, registers) != 0) return 0;
    long before = ptrace(PTRACE_PEEKTEXT, program, registers->rip - 1, 0);
    return (before & 0xff) == 0xcc && (long)registers->r15 == mark;
}

int main(int count, char **words) {
    if (count < 2) return 98;
    pid_t program = fork();
    if (program == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        execv(words[1], words + 1);
        _exit(95);
    }
    waitpid(program, &status, 0);
    struct user_regs_struct registers;
    int signal = 0;
    for (long instructions = 0;;) {
        go(PTRACE_CONT, program, signal);
        signal = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
        if (!is_at(program, BEGIN_MARK, &registers)) continue;
        int is_over = 0;
        for (long i = 0; i < instructions && !is_over && signal == 0; i++) {
            go(PTRACE_SINGLESTEP, program, 0);
            signal = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
            is_over = is_at(program, END_MARK, &registers);
        }
        instructions++;
        if (!is_over && signal == 0) signal = SIGUSR1;
        if (is_over) {
            registers.rbx = 1;
            ptrace(PTRACE_SETREGS, program, 0, &registers);
        }
    }
}

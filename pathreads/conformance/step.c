// Runs a program (`step PROGRAM ARGUMENTS`), and delivers SIGUSR1 to it after each instruction of a part. The
// program marks the part by two breakpoints, and runs it again and again: the signal comes after no instruction
// of it the first time, and then after one more each time, or STRIDE more. The second mark says when it would
// come behind it.
//
// With FIRST and a signal in FIRST_SIGNAL, that one comes after so many instructions each time, and SIGUSR1
// after each instruction of what that has entered. It is over when the part goes on where it was.
#include "stepped.h"

// Returns whether the program has stopped at a mark.
static int is_at(pid_t program, long mark, struct user_regs_struct *registers) {
    if (WSTOPSIG(status) != SIGTRAP || ptrace(PTRACE_GETREGS, program, 0, registers) != 0) return 0;
    long before = ptrace(PTRACE_PEEKTEXT, program, registers->rip - 1, 0);
    return (before & 0xff) == 0xcc && (long)registers->r15 == mark;
}

static long told(const char *name, long otherwise) {
    const char *word = getenv(name);
    return word ? atol(word) : otherwise;
}

// Makes a step, in which a signal comes. Returns the signal that comes then.
static int step(pid_t program, int signal) {
    go(PTRACE_SINGLESTEP, program, signal);
    return WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
}

int main(int count, char **words) {
    if (count < 2) return 98;
    pid_t program = start(words + 1);
    struct user_regs_struct registers;
    long stride = told("STRIDE", 1), before = told("FIRST", 0);
    int signal = 0, first = (int)told("FIRST_SIGNAL", 0);
    // Where a handler is entered, the kernel takes no signal.
    for (long instructions = first != 0;;) {
        go(PTRACE_CONT, program, signal);
        signal = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
        if (!is_at(program, BEGIN_MARK, &registers)) continue;
        int is_over = 0;
        for (long i = 0; i < before; i++) step(program, 0);
        ptrace(PTRACE_GETREGS, program, 0, &registers);
        unsigned long long place = registers.rip, stack = registers.rsp;
        if (first) signal = step(program, first);
        for (long i = 0; i < instructions && !is_over && signal == 0; i++) {
            signal = step(program, 0);
            is_over = is_at(program, END_MARK, &registers);
            if (first && !is_over && ptrace(PTRACE_GETREGS, program, 0, &registers) == 0) {
                is_over = registers.rip == place && registers.rsp == stack;
            }
        }
        instructions += stride;
        if (!is_over && signal == 0) signal = SIGUSR1;
        if (is_over && !is_at(program, END_MARK, &registers)) {
            go(PTRACE_CONT, program, 0);
            while (!is_at(program, END_MARK, &registers)) {
                go(PTRACE_CONT, program, WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status));
            }
        }
        if (is_over) {
            registers.rbx = 1;
            ptrace(PTRACE_SETREGS, program, 0, &registers);
        }
    }
}

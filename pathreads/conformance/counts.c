// Runs a program (`counts PROGRAM ARGUMENTS`), and says which calls its first thread makes between the
// marks: lines of a number and a count. With REFUSE in the environment, two numbers of calls, these fail
// there, as when Linux allows no more mappings.
#include "stepped.h"
#include <errno.h>

enum { MOST = 512 };

// Makes a call fail that is about to be made.
static void refuse(pid_t program, struct user_regs_struct *registers) {
    struct user_regs_struct before = *registers;
    registers->orig_rax = -1;
    if (ptrace(PTRACE_SETREGS, program, 0, registers) != 0) exit(97);
    go(PTRACE_SYSCALL, program, 0);
    before.rax = -ENOMEM;
    if (ptrace(PTRACE_SETREGS, program, 0, &before) != 0) exit(97);
}

int main(int count, char **words) {
    if (count < 2) return 98;
    pid_t program = start(words + 1);
    if (ptrace(PTRACE_SETOPTIONS, program, 0, PTRACE_O_TRACESYSGOOD) != 0) return 97;
    const char *refused = getenv("REFUSE");
    unsigned long numbers[2];
    if (refused && sscanf(refused, "%lu %lu", numbers, numbers + 1) != 2) return 98;
    int made[MOST] = {0}, is_between = 0, is_inside = 0, signal = 0;
    for (;;) {
        go(is_between ? PTRACE_SYSCALL : PTRACE_CONT, program, signal);
        signal = WSTOPSIG(status);
        struct user_regs_struct registers;
        if (ptrace(PTRACE_GETREGS, program, 0, &registers) != 0) return 97;
        if (signal == (SIGTRAP | 0x80)) {
            // Each call stops it twice.
            is_inside = !is_inside;
            made[registers.orig_rax % MOST] += is_inside;
            if (refused && is_inside && (registers.orig_rax == numbers[0] || registers.orig_rax == numbers[1])) {
                refuse(program, &registers);
                is_inside = 0;
            }
            signal = 0;
        } else if (signal == SIGTRAP) {
            is_between = registers.r15 == BEGIN_MARK;
            signal = 0;
            if (registers.r15 != END_MARK) continue;
            for (int number = 0; number < MOST; number++) {
                if (made[number] && !refused) printf("%d: %d\n", number, made[number]);
            }
        }
    }
}

// Runs a program (`stopped PROGRAM ARGUMENTS`), one thread of which is stopped by another one's request: after
// no instruction of a part the first time, and then after one more each time. The thread marks the part by two
// breakpoints, and the second mark says when it would be stopped behind it, or waits for another thread. The
// program writes the thread's number to descriptor 3, reads a byte, and reads one more before each request.
#include "tracer.h"

#include "marks.h"

// Waits until the thread stops. Returns the signal.
static int await_stop(void) {
    int status;
    if (waitpid(thread, &status, __WALL) != thread || !WIFSTOPPED(status)) end();
    if (ptrace(PTRACE_GETREGS, thread, 0, &registers) != 0) end();
    return WSTOPSIG(status);
}

static int go(int request, int signal) {
    if (ptrace(request, thread, 0, signal) != 0) end();
    return await_stop();
}

static int is_at(long mark) {
    long before = ptrace(PTRACE_PEEKTEXT, thread, registers.rip - 1, 0);
    return (before & 0xff) == 0xcc && (long)registers.r15 == mark;
}

// Returns whether the thread is about to wait for another one.
static int is_waiting(void) {
    return registers.rax == SYS_futex && (ptrace(PTRACE_PEEKTEXT, thread, registers.rip, 0) & 0xffff) == 0x050f;
}

// Returns whether the request has come.
static int is_asked(void) {
    char path[60], line[200];
    unsigned long pending = 0;
    snprintf(path, sizeof path, "/proc/%d/status", thread);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) sscanf(line, "SigPnd: %lx", &pending);
    if (file) fclose(file);
    return pending >> (SIGSTKFLT - 1) & 1;
}

// Has the thread, which has stopped with a signal, go on to a mark.
static void go_to(long mark, int signal) {
    while (signal != SIGTRAP || !is_at(mark)) signal = go(PTRACE_CONT, signal == SIGTRAP ? 0 : signal);
}

int main(int count, char **words) {
    int said = begin(words + (count > 0));
    go_to(BEGIN_MARK, await_stop());
    for (long instructions = 0;; instructions++) {
        if (instructions > 0) go_to(BEGIN_MARK, go(PTRACE_CONT, 0));
        if (write(said, "", 1) != 1) end();
        while (!is_asked()) continue;
        int is_at_end = 0, is_over = 0, signal = SIGSTKFLT;
        for (long i = 0; i <= instructions && !is_over; i++) {
            signal = go(PTRACE_SINGLESTEP, signal == SIGSTKFLT || signal == SIGTRAP ? 0 : signal);
            is_at_end = signal == SIGTRAP && is_at(END_MARK);
            is_over = is_at_end || is_waiting();
        }
        if (!is_at_end) go_to(END_MARK, go(PTRACE_CONT, SIGSTKFLT));
        registers.rbx = is_over;
        if (ptrace(PTRACE_SETREGS, thread, 0, &registers) != 0) end();
        if (is_over) break;
    }
    if (ptrace(PTRACE_DETACH, thread, 0, SIGSTKFLT) != 0) return 97;
    end();
}

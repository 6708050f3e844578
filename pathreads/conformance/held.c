// Runs a program (`held PROGRAM ARGUMENTS`), and holds one of its threads where another one's request has
// interrupted it: after no instruction behind the request the first time, and then after one more each time. It
// goes on when the program says so, or waits for it. The program writes the thread's number to descriptor 3. It
// writes a byte there before such a request, reads one when the thread is held, writes one when that may go on,
// and reads whether the thread was about to sleep again.
#include "tracer.h"

#include <poll.h>

enum { END_OF_RUNTIME = 0x7fffffff };

// Has the thread go on until it stops. Returns the signal, 0 for none.
static int go(int request, int signal) {
    int status;
    if (ptrace(request, thread, 0, signal) != 0) end();
    if (waitpid(thread, &status, __WALL) != thread || !WIFSTOPPED(status)) end();
    return WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
}

// Returns whether the thread is about to make a call.
static int is_at_call(long number) {
    if (ptrace(PTRACE_GETREGS, thread, 0, &registers) != 0) end();
    return (long)registers.rax == number && (ptrace(PTRACE_PEEKTEXT, thread, registers.rip, 0) & 0xffff) == 0x050f;
}

// Returns whether the thread is about to sleep at a futex without a time, or has left the runtime.
static int is_at_end(void) {
    return (is_at_call(SYS_futex) && registers.rsi == 0 && registers.r10 == 0) || registers.rip > END_OF_RUNTIME;
}

static int is_program_asleep(void) {
    char path[60], text[300];
    snprintf(path, sizeof path, "/proc/%d/stat", program);
    FILE *file = fopen(path, "r");
    size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) fclose(file);
    text[length] = 0;
    char *name_end = strrchr(text, ')');
    return name_end && name_end[2] == 'S';
}

// Has the thread answer a request and go on for some instructions, and holds it there. Returns whether it is
// about to sleep.
static char hold(long instructions, int said) {
    int signal = go(PTRACE_SINGLESTEP, SIGSTKFLT);
    while (!is_at_call(SYS_rt_sigreturn)) signal = go(PTRACE_SINGLESTEP, signal);
    signal = go(PTRACE_SINGLESTEP, signal);
    char is_over = is_at_end();
    for (; instructions > 0 && signal == 0 && !is_over; instructions--) {
        signal = go(PTRACE_SINGLESTEP, 0);
        is_over = is_at_end();
    }
    struct pollfd socket = {.fd = said, .events = POLLIN};
    if (write(said, "", 1) != 1) end();
    while (poll(&socket, 1, 1) == 0 && !is_program_asleep()) continue;
    if (ptrace(PTRACE_CONT, thread, 0, signal) != 0) end();
    return is_over;
}

// Passes on the signals that the thread gets, until the program says something.
static void pass_on(int said) {
    struct pollfd socket = {.fd = said, .events = POLLIN};
    while (poll(&socket, 1, 1) == 0) {
        int status;
        if (waitpid(thread, &status, __WALL | WNOHANG) != thread) continue;
        if (!WIFSTOPPED(status) || ptrace(PTRACE_CONT, thread, 0, WSTOPSIG(status)) != 0) end();
    }
}

int main(int count, char **words) {
    int status, said = begin(words + (count > 0));
    for (long instructions = 0; waitpid(thread, &status, __WALL) == thread && WIFSTOPPED(status);) {
        struct pollfd socket = {.fd = said, .events = POLLIN};
        if (WSTOPSIG(status) != SIGSTKFLT || poll(&socket, 1, 0) != 1) {
            if (ptrace(PTRACE_CONT, thread, 0, WSTOPSIG(status)) != 0) end();
            continue;
        }
        char unused;
        if (read(said, &unused, 1) != 1) end();
        char is_over = hold(instructions++, said);
        pass_on(said);
        if (read(said, &unused, 1) != 1 || write(said, &is_over, 1) != 1) end();
    }
    end();
}

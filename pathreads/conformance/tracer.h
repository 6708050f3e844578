// A tracer of one thread of a program that says its number at descriptor 3.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t program, thread;
static struct user_regs_struct registers;

// Ends with the program's status, when the thread has ended.
static void end(void) {
    int status;
    waitpid(program, &status, 0);
    if (WIFSIGNALED(status)) printf("the program died of signal %d\n", WTERMSIG(status));
    exit(WIFEXITED(status) ? WEXITSTATUS(status) : 96);
}

// Runs the program with these words, and seizes the thread whose number it says. Returns the other end of its
// descriptor 3.
static int begin(char **words) {
    int ends[2];
    if (!words[0] || socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) exit(98);
    program = fork();
    if (program == 0) {
        dup2(ends[1], 3);
        execv(words[0], words);
        _exit(95);
    }
    close(ends[1]);
    if (read(ends[0], &thread, sizeof thread) != sizeof thread) end();
    if (ptrace(PTRACE_SEIZE, thread, 0, 0) != 0 || write(ends[0], "", 1) != 1) exit(97);
    return ends[0];
}

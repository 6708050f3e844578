// A tracer of the first thread of a program that it runs.
#define _GNU_SOURCE
#include "marks.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

// How the program has stopped.
static int status;

// Makes a request with a signal, and waits for the next stop. Ends as the program does.
static void go(int request, pid_t program, int signal) {
    if (ptrace(request, program, 0, signal) != 0 || waitpid(program, &status, 0) != program) exit(97);
    if (WIFSIGNALED(status)) printf("the program died of signal %d\n", WTERMSIG(status));
    if (!WIFSTOPPED(status)) exit(WIFEXITED(status) ? WEXITSTATUS(status) : 96);
}

// Runs a program with these words. It has stopped before its first instruction.
static pid_t start(char **words) {
    pid_t program = fork();
    if (program == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        execv(words[0], words);
        _exit(95);
    }
    waitpid(program, &status, 0);
    return program;
}

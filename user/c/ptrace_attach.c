/* Tracing of processes that did not ask for it: attach, seize, stops, ends of tracers, threads.
 *
 * ptrace_attach: prints a line per part and exits with 0 if every part was as it must be. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "traced.h"

static int turns[2];

static void wait_for_turn(void)
{
    char byte;
    while (read(turns[0], &byte, 1) != 1)
        ;
    _exit(byte);
}

/* Makes a child that is not traced, and waits for its turn. */
static pid_t waiting(void)
{
    if (pipe(turns) != 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        close(turns[1]);
        wait_for_turn();
    }
    close(turns[0]);
    return must_be_child(pid);
}

/* Waits until a process sleeps. */
static void let_sleep(pid_t pid)
{
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    while (state != 'S') {
        sched_yield();
        FILE *text = fopen(path, "r");
        if (!text || fscanf(text, "%*d (%*[^)]) %c", &state) != 1)
            state = 0;
        if (text)
            fclose(text);
    }
}

static void give_turn(char byte)
{
    if (write(turns[1], &byte, 1) != 1)
        check("a turn", 0);
    close(turns[1]);
}

static void attached(void)
{
    pid_t pid = waiting();
    check("requests of no tracer", fails(ask(PTRACE_CONT, pid, 0, 0), ESRCH) && fails(ask(PTRACE_GETREGS, pid, 0, 0), ESRCH) &&
                                       fails(ask(PTRACE_DETACH, pid, 0, 0), ESRCH) && fails(ask(PTRACE_INTERRUPT, pid, 0, 0), ESRCH) &&
                                       fails(ask(PTRACE_KILL, pid, 0, 0), ESRCH));
    check("no thread", fails(ask(PTRACE_ATTACH, 4000000, 0, 0), ESRCH));
    check("itself", fails(ask(PTRACE_ATTACH, getpid(), 0, 0), EPERM));
    check("attaches", ask(PTRACE_ATTACH, pid, 0, 0) == 0 && stops(pid, SIGSTOP));
    check("once", fails(ask(PTRACE_ATTACH, pid, 0, 0), EPERM) && fails(ask(PTRACE_SEIZE, pid, 0, 0), EPERM));
    char path[64], line[200], tracer[32];
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    snprintf(tracer, sizeof tracer, "TracerPid:\t%d\n", getpid());
    FILE *text = fopen(path, "r");
    int named = 0, stopped = 0;
    while (text && fgets(line, sizeof line, text)) {
        named |= strcmp(line, tracer) == 0;
        stopped |= strcmp(line, "State:\tt (tracing stop)\n") == 0;
    }
    fclose(text);
    check("/proc/PID/status", named && stopped);
    check("requests for seized ones", fails(ask(PTRACE_INTERRUPT, pid, 0, 0), EIO) && fails(ask(PTRACE_LISTEN, pid, 0, 0), EIO));
    check("goes on", goes_on(pid, 0) && fails(ask(PTRACE_GETREGS, pid, 0, 0), ESRCH));
    kill(pid, SIGUSR1);
    check("and stops", stops(pid, SIGUSR1) && ask(PTRACE_DETACH, pid, 0, 0) == 0);
    check("is free", fails(ask(PTRACE_CONT, pid, 0, 0), ESRCH));
    check("again", ask(PTRACE_ATTACH, pid, 0, 0) == 0 && stops(pid, SIGSTOP) && ask(PTRACE_DETACH, pid, 0, 0) == 0);
    give_turn(9);
    check("reads on", exits(pid, 9));
    pid = waiting();
    ask(PTRACE_ATTACH, pid, 0, 0);
    stops(pid, SIGSTOP);
    check("leaves a signal", ask(PTRACE_DETACH, pid, 0, SIGTERM) == 0 && dies(pid, SIGTERM));
    close(turns[1]);
}

static void seized(void)
{
    pid_t pid = waiting();
    let_sleep(pid);
    check("bad options", fails(ask(PTRACE_SEIZE, pid, 0, 0x40000000), EIO) && fails(ask(PTRACE_SEIZE, pid, 1, 0), EIO));
    check("seizes", ask(PTRACE_SEIZE, pid, 0, PTRACE_O_TRACESYSGOOD) == 0 && waitpid(pid, NULL, __WALL | WNOHANG) == 0);
    check("interrupts", ask(PTRACE_INTERRUPT, pid, 0, 0) == 0 && stops(pid, EVENT(PTRACE_EVENT_STOP)));
    Registers registers = registers_of(pid);
    check("in its call", registers.orig_rax == SYS_read && (long)registers.rax == -512);
    check("and goes on", goes_on(pid, 0));
    kill(pid, SIGSTOP);
    check("its SIGSTOP", stops(pid, SIGSTOP));
    check("stops it", goes_on(pid, SIGSTOP) && stops(pid, SIGSTOP | PTRACE_EVENT_STOP << 8));
    check("listens", ask(PTRACE_LISTEN, pid, 0, 0) == 0 && fails(ask(PTRACE_GETREGS, pid, 0, 0), ESRCH));
    kill(pid, SIGCONT);
    check("and hears", stops(pid, EVENT(PTRACE_EVENT_STOP)));
    check("of SIGCONT", goes_on(pid, 0) && stops(pid, SIGCONT) && goes_on(pid, SIGCONT));
    give_turn(6);
    check("reads on", exits(pid, 6));
}

static void group_stop(void)
{
    pid_t pid = traced(nothing);
    siginfo_t info;
    check("a stop of the process", goes_on(pid, SIGSTOP) && stops(pid, SIGSTOP));
    check("has no signal", fails(ask(PTRACE_GETSIGINFO, pid, 0, (long)&info), EINVAL));
    check("is over", finishes(pid));
}

/* The tracer ends. */
static void lost(void)
{
    for (int kills = 0; kills < 2; kills++) {
        pid_t pid = waiting();
        pid_t tracer = fork();
        if (tracer == 0) {
            close(turns[1]);
            int good = ask(PTRACE_ATTACH, pid, 0, 0) == 0 && stops(pid, SIGSTOP) &&
                       ask(PTRACE_SETOPTIONS, pid, 0, kills ? PTRACE_O_EXITKILL : 0) == 0;
            _exit(good ? 7 : 8);
        }
        check("traces one that is no child", exits(tracer, 7));
        if (kills) {
            check("and takes it along", dies(pid, SIGKILL));
            close(turns[1]);
        } else {
            give_turn(3);
            check("and leaves it", exits(pid, 3));
        }
    }
    /* The tracer hears of the end first. */
    pid_t pid = waiting();
    int go[2];
    if (pipe(go) != 0)
        return;
    pid_t tracer = fork();
    if (tracer == 0) {
        close(turns[1]);
        char byte;
        int good = ask(PTRACE_ATTACH, pid, 0, 0) == 0 && stops(pid, SIGSTOP) && goes_on(pid, SIGKILL);
        siginfo_t info;
        good &= waitid(P_PID, pid, &info, WEXITED | WNOWAIT | __WALL) == 0 && info.si_code == CLD_KILLED;
        good &= read(go[0], &byte, 1) == 1;
        _exit(good && dies(pid, SIGKILL) ? 7 : 8);
    }
    siginfo_t info;
    memset(&info, 0, sizeof info);
    int early = waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
    check("its parent waits", early && write(go[1], "", 1) == 1);
    check("for the tracer", exits(tracer, 7));
    check("and hears then", dies(pid, SIGKILL));
    close(turns[1]);
}

static int begun[2];

static void *other_thread(void *unused)
{
    pid_t tid = gettid();
    if (write(begun[1], &tid, sizeof tid) != sizeof tid)
        _exit(9);
    char byte;
    if (read(turns[0], &byte, 1) != 1)
        _exit(9);
    syscall(SYS_exit, 5);
    return unused;
}

static void *request_from_thread(void *pid)
{
    return (void *)(long)fails(ask(PTRACE_GETREGS, (pid_t)(long)pid, 0, 0), ESRCH);
}

static void threads(void)
{
    int ends[2];
    if (pipe(turns) != 0 || pipe(begun) != 0 || pipe(ends) != 0)
        return;
    pid_t pid = fork();
    if (pid == 0) {
        pthread_t thread;
        char byte;
        pthread_create(&thread, NULL, other_thread, NULL);
        _exit(read(ends[0], &byte, 1) == 1 ? 7 : 8);
    }
    pid_t tid = -1;
    if (read(begun[0], &tid, sizeof tid) != sizeof tid)
        return;
    check("seizes a thread", ask(PTRACE_SEIZE, tid, 0, 0) == 0 && ask(PTRACE_INTERRUPT, tid, 0, 0) == 0);
    check("which stops alone", stops(tid, EVENT(PTRACE_EVENT_STOP)));
    check("not the main one", fails(ask(PTRACE_GETREGS, pid, 0, 0), ESRCH));
    pthread_t thread;
    void *refused = NULL;
    pthread_create(&thread, NULL, request_from_thread, (void *)(long)tid);
    pthread_join(thread, &refused);
    check("another thread is not its tracer", refused != NULL);
    goes_on(tid, 0);
    give_turn(1);
    check("its end is told", exits(tid, 5));
    check("once", waitpid(tid, NULL, __WALL | WNOHANG) == -1 && errno == ECHILD);
    check("the process ends later", write(ends[1], "", 1) == 1 && exits(pid, 7));
}

/* Calls that are interrupted by a stop alone go on. */

/* Traces a process and runs this program again. */
static void *run_again(void *pid)
{
    char number[16];
    snprintf(number, sizeof number, "%d", (pid_t)(long)pid);
    char *words[] = {"/proc/self/exe", "trace", number, NULL};
    if (ask(PTRACE_SEIZE, (pid_t)(long)pid, 0, 0) == 0)
        execv(words[0], words);
    _exit(9);
}

/* A thread that traces runs another program, which goes on to trace. */
static void tracer_runs_another(void)
{
    pid_t pid = waiting();
    pid_t tracer = fork();
    if (tracer == 0) {
        pthread_t thread;
        close(turns[1]);
        pthread_create(&thread, NULL, run_again, (void *)(long)pid);
        pthread_join(thread, NULL);
        _exit(8);
    }
    check("another program traces on", exits(tracer, 7));
    give_turn(4);
    check("and lets it go", exits(pid, 4));
}

int main(int count, char **words)
{
    if (count == 3 && strcmp(words[1], "trace") == 0) {
        pid_t pid = atoi(words[2]);
        int good = ask(PTRACE_INTERRUPT, pid, 0, 0) == 0 && stops(pid, EVENT(PTRACE_EVENT_STOP));
        return good && ask(PTRACE_DETACH, pid, 0, 0) == 0 ? 7 : 8;
    }
    attached();
    seized();
    group_stop();
    lost();
    threads();
    tracer_runs_another();
    return failures != 0;
}

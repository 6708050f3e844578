/* Running programs: execve and its variants, arguments, environment, scripts, descriptors that close, state
 * that stays and state that goes, failures after which the caller goes on, /proc of another process.
 *
 * programs: exits with 0 if everything was as it must be. With arguments it is one of the programs it runs.
 * programs run PATH WORDS: becomes that program. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

extern char **environ;
/* Volatile, since the compiler would otherwise see that the address is invalid. */
static char **volatile nowhere = (char **)8;
static const char *me = "/proc/self/exe";

static int exited(pid_t pid, int code)
{
    int status;
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == code;
}

/* Returns the exit status of the program at `path`, run with these words. */
static int runs(const char *path, char *const words[], char *const variables[], int code)
{
    pid_t pid = fork();
    if (pid == 0) {
        execve(path, words, variables);
        _exit(100 + errno);
    }
    return exited(pid, code);
}

/* Returns the error with which exec fails. */
static int refuses(const char *path, int error)
{
    char *words[] = {(char *)path, NULL};
    pid_t pid = fork();
    if (pid == 0) {
        execve(path, words, environ);
        _exit(errno);
    }
    return exited(pid, error);
}

static void put(const char *path, const char *text, int mode)
{
    int file = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0644);
    if (write(file, text, strlen(text)) < 0 || fchmod(file, mode) != 0)
        perror(path);
    close(file);
}

static void arguments(void)
{
    char *words[] = {"zero", "words", "two words", "", NULL}, *variables[] = {"A=b", "C=", NULL};
    check("arguments and environment", runs(me, words, variables, 3));
    char *none[] = {NULL};
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_NAME, "other");
        char *name[] = {"x", "name", NULL};
        execve(me, name, none);
        _exit(99);
    }
    check("the name is the program's", exited(pid, 4));
    static char large[131072 + 1];
    memset(large, 'x', sizeof large - 1);
    char *too_long[] = {"x", large, NULL};
    check("a string that is too long", fails(execve(me, too_long, none), E2BIG));
    large[sizeof large - 2] = 0;
    char *many[64];
    for (int i = 0; i < 63; i++)
        many[i] = large;
    many[63] = NULL;
    check("too many", fails(execve(me, many, none), E2BIG));
    char *longest[] = {"x", "length", large, NULL};
    check("the longest", runs(me, longest, none, 5));
    check("words nowhere", fails(execve(me, nowhere, none), EFAULT));
    char *wild[] = {"x", (char *)16, NULL};
    check("a word nowhere", fails(execve(me, wild, none), EFAULT));
}

static void failing(void)
{
    put("/tmp/plain", "no program\n", 0755);
    put("/tmp/closed", "#!/proc/self/exe\n", 0644);
    check("not there", refuses("/tmp/none", ENOENT));
    check("a directory", refuses("/tmp", EACCES));
    check("through a file", refuses("/tmp/plain/x", ENOTDIR));
    check("no program", refuses("/tmp/plain", ENOEXEC));
    check("not executable", refuses("/tmp/closed", EACCES));
    check("empty name", refuses("", ENOENT));
    char head[256] = "\177ELF\2\1\1";
    int file = open("/tmp/damaged", O_CREAT | O_WRONLY, 0755);
    check("damaged", write(file, head, sizeof head) == sizeof head && close(file) == 0 && refuses("/tmp/damaged", ENOEXEC));
    unlink("/tmp/plain"), unlink("/tmp/closed"), unlink("/tmp/damaged");
}

static void scripts(void)
{
    char line[512], *words[] = {"/tmp/script", "last", NULL}, path[256] = {0};
    if (readlink(me, path, sizeof path - 1) < 0)
        perror("readlink");
    snprintf(line, sizeof line, "#! %s \t script one two \nrest\n", path);
    put("/tmp/script", line, 0755);
    check("a script with an argument", runs("/tmp/script", words, environ, 6));
    snprintf(line, sizeof line, "#!%s", path);
    put("/tmp/script", line, 0755);
    check("one without", runs("/tmp/script", words, environ, 7));
    put("/tmp/nested", "#!/tmp/script\n", 0755);
    char *nested[] = {"/tmp/nested", "x", NULL};
    check("a script's script", runs("/tmp/nested", nested, environ, 8));
    put("/tmp/script", "#!/tmp/none\n", 0755);
    check("without interpreter", refuses("/tmp/script", ENOENT));
    put("/tmp/script", "#!\n", 0755);
    check("without a name", refuses("/tmp/script", ENOEXEC));
    put("/tmp/script", "#!/tmp/script\n", 0755);
    check("for ever", refuses("/tmp/script", ELOOP));
    unlink("/tmp/script"), unlink("/tmp/nested");
}

static void handler(int signal)
{
    (void)signal;
}

static void what_stays(void)
{
    int ends[2], shared[2];
    char fd[16], *words[] = {"x", "stays", fd, NULL};
    if (pipe2(ends, O_CLOEXEC) != 0 || pipe(shared) != 0)
        perror("pipe");
    snprintf(fd, sizeof fd, "%d", ends[0]);
    pid_t pid = fork();
    if (pid == 0) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        sigaddset(&set, SIGUSR2);
        sigprocmask(SIG_SETMASK, &set, NULL);
        signal(SIGUSR1, handler);
        signal(SIGUSR2, SIG_IGN);
        signal(SIGTERM, handler);
        raise(SIGUSR1);
        umask(027);
        if (chdir("/tmp") != 0)
            _exit(98);
        execve(me, words, environ);
        _exit(97);
    }
    check("what stays and what goes", exited(pid, 9));
    char byte;
    close(ends[1]);
    check("closed on exec", read(ends[0], &byte, 1) == 0 && close(ends[0]) == 0 && close(shared[0]) == 0 && close(shared[1]) == 0);
}

static void *sleep_long(void *arg)
{
    for (;;)
        pause();
    return arg;
}

static void *run_other(void *arg)
{
    char *words[] = {"x", "alone", (char *)arg, NULL};
    execve(me, words, environ);
    _exit(96);
}

static void threads(void)
{
    pthread_t id;
    char number[16];
    for (int from_main = 0; from_main < 2; from_main++) {
        pid_t pid = fork();
        if (pid == 0) {
            snprintf(number, sizeof number, "%d", getpid());
            for (int i = 0; i < 4; i++)
                pthread_create(&id, NULL, sleep_long, NULL);
            if (from_main)
                run_other(number);
            pthread_create(&id, NULL, run_other, number);
            sleep_long(NULL);
        }
        check(from_main ? "the main thread runs another program" : "another thread does", exited(pid, 10));
    }
    pid_t pid = fork();
    if (pid == 0) {
        snprintf(number, sizeof number, "%d", getpid());
        for (int i = 0; i < 4; i++)
            pthread_create(&id, NULL, run_other, number);
        sleep_long(NULL);
    }
    check("all at once", exited(pid, 10));
}

/* musl has no wrapper. */
static long execute_at(int directory, const char *path, char **words, char **variables, int flags)
{
    return syscall(SYS_execveat, directory, path, words, variables, flags);
}

static void vforked(void)
{
    char *words[] = {"x", "name", NULL};
    volatile int after = 0;
    pid_t pid = vfork();
    if (pid == 0) {
        execve("/tmp/none", words, environ);
        after = errno;
        execve(me, words, environ);
        _exit(95);
    }
    check("vfork and exec", after == ENOENT && exited(pid, 4));
    int good = posix_spawn(&pid, me, NULL, NULL, words, environ) == 0 && exited(pid, 4);
    check("posix_spawn", good && posix_spawn(&pid, "/tmp/none", NULL, NULL, words, environ) == ENOENT);
    int file = open(me, O_RDONLY), place = open("/proc/self", O_PATH | O_DIRECTORY);
    pid = fork();
    if (pid == 0) {
        execute_at(file, "", words, environ, AT_EMPTY_PATH);
        _exit(94);
    }
    check("execveat of a descriptor", exited(pid, 4));
    pid = fork();
    if (pid == 0) {
        execute_at(place, "exe", words, environ, 0);
        _exit(93);
    }
    check("execveat from a directory", exited(pid, 4) && fails(execute_at(file, "", words, environ, 0), ENOENT));
    close(file), close(place);
}

static int reads(pid_t pid, const char *name, char *text, int size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    int file = open(path, O_RDONLY), length = file < 0 ? -1 : (int)read(file, text, size - 1);
    text[length < 0 ? 0 : length] = 0;
    close(file);
    return length;
}

/* Sends a signal, to the whole child or to its only thread, while the child becomes one program after the
 * other. The last one ends by itself, but only after that. */
static void signals_in_between(const char *what, int to_thread)
{
    int good = 1;
    for (int round = 0; round < 30; round++) {
        int ends[2], status;
        char *words[] = {"x", "again", "20", NULL};
        if (pipe2(ends, O_CLOEXEC) != 0)
            perror("pipe");
        pid_t pid = fork();
        if (pid == 0) {
            dup2(ends[0], 30);
            execve(me, words, environ);
            _exit(96);
        }
        for (volatile int i = 0; i < round * 20000; i++)
            ;
        if (to_thread)
            syscall(SYS_tgkill, pid, pid, SIGTERM);
        else
            kill(pid, SIGTERM);
        close(ends[1]);
        good &= waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM;
        close(ends[0]);
    }
    check(what, good);
}

static void others(void)
{
    int ends[2];
    char text[4096], expected[64], *words[] = {"first word", "wait", NULL};
    if (pipe(ends) != 0)
        perror("pipe");
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], 30);
        execve(me, words, environ);
        _exit(92);
    }
    close(ends[1]);
    if (read(ends[0], text, 1) != 1)
        perror("read");
    check("cmdline", reads(pid, "cmdline", text, sizeof text) == 16 && memcmp(text, "first word\0wait", 16) == 0);
    check("stat", reads(pid, "stat", text, sizeof text) > 0);
    int shown, parent, group, session;
    char state;
    check("its numbers", sscanf(text, "%d (%*[^)]) %c %d %d %d", &shown, &state, &parent, &group, &session) == 5 && shown == pid &&
          (state == 'S' || state == 'R') && parent == getpid() && group == getpgrp() && session == getsid(0));
    snprintf(expected, sizeof expected, "PPid:\t%d\n", getpid());
    check("status", reads(pid, "status", text, sizeof text) > 0 && strstr(text, expected) && strstr(text, "Threads:\t1\n"));
    snprintf(expected, sizeof expected, "/proc/%d/task/%d/comm", pid, pid);
    check("a thread's name", access(expected, R_OK) == 0 && reads(pid, "comm", text, sizeof text) > 0);
    snprintf(expected, sizeof expected, "/proc/%d/exe", pid);
    char own[256] = {0}, its[256] = {0};
    check("exe", readlink(me, own, 255) > 0 && readlink(expected, its, 255) > 0 && strcmp(own, its) == 0);
    snprintf(expected, sizeof expected, "/proc/%d/fd/30", pid);
    check("its descriptors", readlink(expected, text, sizeof text) > 0 && memcmp(text, "pipe:[", 6) == 0);
    kill(pid, SIGKILL);
    siginfo_t info;
    check("a zombie", waitid(P_PID, pid, &info, WEXITED | WNOWAIT) == 0 && reads(pid, "stat", text, sizeof text) > 0 && strstr(text, ") Z "));
    check("has no words", reads(pid, "cmdline", text, sizeof text) == 0 && waitpid(pid, NULL, 0) == pid);
    check("and is gone", reads(pid, "stat", text, sizeof text) == -1);
    close(ends[0]);
}

/* Acts as one of the programs that are run. */
static int other(int count, char **words)
{
    char text[64] = {0};
    if (strcmp(words[1], "words") == 0)
        return count == 4 && strcmp(words[0], "zero") == 0 && strcmp(words[2], "two words") == 0 && *words[3] == 0 &&
               strcmp(getenv("A"), "b") == 0 && *getenv("C") == 0 && environ[2] == NULL && getauxval(AT_RANDOM) != 0 ? 3 : 1;
    if (strcmp(words[1], "name") == 0)
        return prctl(PR_GET_NAME, text) == 0 && strcmp(text, "other") != 0 ? 4 : 1;
    if (strcmp(words[1], "length") == 0)
        return strlen(words[2]) == 131072 - 1 ? 5 : 1;
    if (strcmp(words[1], "script one two") == 0)
        return count == 4 && strcmp(words[2], "/tmp/script") == 0 && strcmp(words[3], "last") == 0 ? 6 : 1;
    if (strcmp(words[1], "/tmp/script") == 0)
        return count == 3 ? 7 : strcmp(words[2], "/tmp/nested") == 0 && count == 4 ? 8 : 1;
    if (strcmp(words[1], "stays") == 0) {
        sigset_t set, waiting;
        struct sigaction one, two, three;
        sigprocmask(SIG_BLOCK, NULL, &set);
        sigpending(&waiting);
        sigaction(SIGUSR1, NULL, &one);
        sigaction(SIGUSR2, NULL, &two);
        sigaction(SIGTERM, NULL, &three);
        return sigismember(&set, SIGUSR1) && sigismember(&set, SIGUSR2) && sigismember(&waiting, SIGUSR1) &&
               one.sa_handler == SIG_DFL && two.sa_handler == SIG_IGN && three.sa_handler == SIG_DFL && umask(0) == 027 &&
               strcmp(getcwd(text, sizeof text), "/tmp") == 0 && fcntl(atoi(words[2]), F_GETFD) == -1 ? 9 : 1;
    }
    if (strcmp(words[1], "again") == 0) {
        snprintf(text, sizeof text, "%d", atoi(words[2]) - 1);
        char *less[] = {"x", "again", text, NULL};
        return *text != '-' ? (execve(me, less, environ), 95) : read(30, text, 1) == 0 ? 11 : 1;
    }
    if (strcmp(words[1], "alone") == 0)
        return atoi(words[2]) == getpid() && syscall(SYS_gettid) == getpid() ? 10 : 1;
    if (strcmp(words[1], "wait") == 0) {
        if (write(30, "w", 1) == 1)
            sleep_long(NULL);
    }
    return 2;
}

int main(int count, char **words)
{
    if (count > 2 && strcmp(words[1], "run") == 0)
        return execv(words[2], words + 2), errno;
    if (count > 1)
        return other(count, words);
    arguments();
    failing();
    scripts();
    what_stays();
    threads();
    vforked();
    signals_in_between("a signal in between", 0);
    signals_in_between("a signal to a thread in between", 1);
    others();
    printf("programs: %s\n", failures ? "FAILED" : "done");
    return failures != 0;
}

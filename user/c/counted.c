/* Runs a program, stops it and its children now and then, and compares the counts of all pages while none of
 * their threads runs.
 *
 * counted TIMES PROGRAM ARGUMENTS: at most TIMES. Ends with the program's status. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAY_SETTLE 1
#include "page_counts.h"

static void must(int good, const char *what)
{
    if (!good) {
        perror(what);
        exit(1);
    }
}

static char state_of(pid_t pid)
{
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *stat = fopen(path, "r");
    if (stat == NULL)
        return 'X';
    must(fscanf(stat, "%*d %*s %c", &state) == 1, path);
    fclose(stat);
    return state;
}

/* Returns whether all processes but this and the first have stopped, or ended. */
static int are_at_rest(void)
{
    static pid_t pids[MOST_COUNTED];
    for (int i = processes(pids, 0, 0); i-- > 0;)
        if (pids[i] != 1 && pids[i] != getpid() && strchr("TZX", state_of(pids[i])) == NULL)
            return 0;
    return 1;
}

/* Returns whether the program was stopped with its children, or else its status. */
static int stop(pid_t pid, int *status)
{
    must(kill(-pid, SIGSTOP) == 0, "kill");
    must(waitpid(pid, status, WUNTRACED) == pid, "waitpid");
    if (!WIFSTOPPED(*status))
        return 0;
    while (!are_at_rest())
        sched_yield();
    return 1;
}

int main(int count, char **words)
{
    int status = 0, times = 0;
    must(count > 2, "usage: counted TIMES PROGRAM ARGUMENTS");
    pid_t pid = fork();
    if (pid == 0) {
        setpgid(0, 0);
        execv(words[2], words + 2);
        perror(words[2]);
        _exit(127);
    }
    must(pid > 0, "fork");
    setpgid(pid, pid);
    /* The program goes on between two stops, ever longer: a short one is stopped several times, and a long
     * one not only at its beginning. */
    while (times < atoi(words[1]) && usleep(500 << times / 2) == 0 && stop(pid, &status)) {
        compare_all();
        times++;
        must(kill(-pid, SIGCONT) == 0, "kill");
    }
    if (times == atoi(words[1]))
        must(waitpid(pid, &status, 0) == pid, "waitpid");
    fprintf(stderr, "counted: %d times\n", times);
    return WIFEXITED(status) && times > 0 ? WEXITSTATUS(status) : 1;
}

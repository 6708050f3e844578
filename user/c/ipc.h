/* The functions that the programs about SysV objects and message queues share. */

#include <sched.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tell.h"

static inline void say(const char *what, int good)
{
    printf("%s: %s\n", what, good ? "yes" : "no");
}

/* Returns the highest index of an object as two commands say it, or -1 if they differ each time. Another
 * program may make an object in between. `ask` makes the call with a command and the place of its result. */
static inline int highest_index(int (*ask)(int, void *), int of_all, void *all, int of_limits, void *limits)
{
    for (int tries = 0; tries < 1000; tries++) {
        int highest = ask(of_all, all);
        if (ask(of_limits, limits) == highest)
            return highest;
    }
    return -1;
}

/* Starts a child that makes a call with an object. */
static inline pid_t start_child(void (*call)(int), int id)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        call(id);
        fflush(stdout);
        _exit(0);
    }
    return pid;
}

static inline void finish(pid_t pid)
{
    int status;
    waitpid(pid, &status, 0);
    if (status != 0)
        printf("status %x\n", status);
}

/* Waits until a child is in a state. */
static inline void await_state(pid_t pid, char wanted)
{
    char path[40], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    while (state != wanted) {
        FILE *file = fopen(path, "r");
        if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
            state = 0;
        fclose(file);
        sched_yield();
    }
}

/* Waits until a child sleeps. */
static inline void await(pid_t pid)
{
    await_state(pid, 'S');
}

/* Returns how often a list of /proc has an object with these two numbers behind its rights. */
static inline int count_listed(const char *path, int id, long first, long second)
{
    char line[512];
    int found = 0;
    FILE *list = fopen(path, "r");
    while (list && fgets(line, sizeof line, list)) {
        long number, one, other = 0;
        if (sscanf(line, "%*d %ld %*o %ld %ld", &number, &one, &other) == 3 && number == id)
            found += one == first && (second < 0 || other == second);
    }
    if (list)
        fclose(list);
    return found;
}

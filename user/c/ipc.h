/* The functions that the programs about SysV objects share. */

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tell.h"

static inline void say(const char *what, int good)
{
    printf("%s: %s\n", what, good ? "yes" : "no");
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

/* Reads /proc/PID/status of processes while they end.
 *
 * exit_readers ROUNDS: forks a child that exits at once, ROUNDS times, while three threads read its status. A
 * name, where there is one, is this program's. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static atomic_int child, wrong, seen;

static void *read_on(void *unused)
{
    (void)unused;
    for (int pid; (pid = atomic_load(&child)) >= 0;) {
        char path[64], text[64] = "";
        snprintf(path, sizeof path, "/proc/%d/status", pid);
        int file = open(path, O_RDONLY);
        if (file < 0)
            continue;
        if (read(file, text, sizeof text - 1) > 0) {
            atomic_fetch_add(&seen, 1);
            if (strncmp(text, "Name:\texit_readers", 18) != 0)
                atomic_fetch_add(&wrong, 1);
        }
        close(file);
    }
    return NULL;
}

int main(int count, char **words)
{
    int rounds = count > 1 ? atoi(words[1]) : 1000, reaped = 0;
    pthread_t readers[3];
    atomic_store(&child, getpid());
    for (int i = 0; i < 3; i++)
        pthread_create(&readers[i], NULL, read_on, NULL);
    for (int i = 0; i < rounds; i++) {
        int pid = fork();
        if (pid == 0)
            _exit(0);
        atomic_store(&child, pid);
        reaped += waitpid(pid, NULL, 0) == pid;
    }
    atomic_store(&child, -1);
    for (int i = 0; i < 3; i++)
        pthread_join(readers[i], NULL);
    check("every child was reaped", reaped == rounds);
    check("their status was read", atomic_load(&seen) > 0);
    check("all have this program's name", atomic_load(&wrong) == 0);
    return failures != 0;
}

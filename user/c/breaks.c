/* A thread forks while another moves the break. The child's break is where its pages end. Linux copies the
 * two at different moments, and does not promise that.
 *
 * breaks: exits with 0 if it was so every time. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, ROUNDS = 100 };

static long bottom;
static volatile int over;
static void *move_break(void *arg)
{
    while (!over) {
        syscall(SYS_brk, bottom + 64 * PAGE);
        syscall(SYS_brk, bottom);
    }
    return arg;
}

/* Returns whether the last page below the break is mapped, and the one above is not. */
static int break_is_true(void)
{
    unsigned char in;
    long end = syscall(SYS_brk, 0);
    return (end == bottom || mincore((char *)end - PAGE, PAGE, &in) == 0) &&
           mincore((char *)end, PAGE, &in) == -1 && errno == ENOMEM;
}

int main(void)
{
    pthread_t mover;
    int good = 1;
    bottom = (syscall(SYS_brk, 0) + PAGE - 1) / PAGE * PAGE;
    syscall(SYS_brk, bottom);
    pthread_create(&mover, NULL, move_break, NULL);
    for (int round = 0; round < ROUNDS; round++) {
        int status = -1;
        pid_t pid = fork();
        if (pid == 0)
            _exit(break_is_true() ? 0 : 1);
        good &= waitpid(pid, &status, 0) == pid && status == 0;
    }
    over = 1;
    pthread_join(mover, NULL);
    printf("breaks: %s\n", good ? "done" : "FAILED");
    return !good;
}

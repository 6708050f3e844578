/* A wild access at the end of a call chain: outer -> middle -> inner.
 *
 * segv [read|write|exec|thread]: dies of SIGSEGV. Nothing after "about to fault" is printed.
 * segv call: makes a call that RadixVM lacks before. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KEEP __attribute__((noinline, noclone))
static volatile unsigned long wild = 0xdead000UL;

KEEP static int inner(const char *how)
{
    if (strcmp(how, "write") == 0)
        *(volatile int *)wild = 1;
    if (strcmp(how, "exec") == 0)
        ((void (*)(void))wild)();
    if (strcmp(how, "call") == 0)
        syscall(SYS_io_setup, 0x11, 0x22);
    return *(volatile int *)wild;
}

KEEP static int middle(const char *how)
{
    int value = inner(how);
    return value + 1;
}

KEEP static int outer(const char *how)
{
    int value = middle(how);
    return value * 2;
}

static void *in_a_thread(void *how)
{
    outer(how);
    return NULL;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "read";
    printf("about to fault: %s\n", how);
    fflush(stdout);
    if (strcmp(how, "thread") == 0) {
        pthread_t id;
        pthread_create(&id, NULL, in_a_thread, "read");
        pthread_join(id, NULL);
    } else {
        outer(how);
    }
    printf("segv: FAILED, still alive\n");
    return 1;
}

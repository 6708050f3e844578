/* Threads that sleep until their process ends. */

#include <sched.h>
#include <unistd.h>

static int sleeps(void *nothing)
{
    (void)nothing;
    for (;;)
        pause();
    return 0;
}

/* Starts one, and returns the result of clone. A sleeping thread uses the end of its stack only, so 64 stacks
 * do for all. */
static long start_sleeper(void)
{
    static char stacks[64][4096];
    static long next;
    int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    return clone(sleeps, stacks[next++ % 64] + sizeof *stacks, flags, NULL);
}

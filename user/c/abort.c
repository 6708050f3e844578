/* Dies of a signal without a wild access.
 *
 * abort [abort|raise|ill|fpe|trap|kill]: a shell sees the exit status 128 + the signal. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "abort";
    printf("about to die: %s\n", how);
    fflush(stdout);
    if (strcmp(how, "abort") == 0)
        abort();
    if (strcmp(how, "raise") == 0)
        raise(SIGTERM);
    if (strcmp(how, "ill") == 0)
        __asm__ volatile("ud2");
    if (strcmp(how, "fpe") == 0)
        __asm__ volatile("xor %%ecx, %%ecx; div %%ecx" ::: "eax", "ecx", "edx");
    if (strcmp(how, "trap") == 0)
        __asm__ volatile("int3");
    if (strcmp(how, "kill") == 0)
        kill(getpid(), SIGKILL);
    printf("abort: FAILED, still alive\n");
    return 1;
}

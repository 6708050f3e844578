/* Processes want more memory than there is. The largest is killed, and a small one beside it goes on.
 *
 * greedy ROUNDS: prints how each ended. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEP = 65536 };

/* Touches `bytes` bytes of new memory. It is mapped at once, because mmap fails with ENOMEM where a page
 * fault has the largest program killed. */
static void eat(long bytes)
{
    char *all = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED)
        _exit(9);
    for (long at = 0; at < bytes; at += STEP)
        memset(all + at, 1, STEP);
}

int main(int count, char **words)
{
    int rounds = count > 1 ? atoi(words[1]) : 1, ends[2], status;
    char byte;
    for (int i = 0; i < rounds; i++) {
        if (pipe(ends) != 0)
            return 1;
        pid_t small = fork();
        if (small == 0) {
            close(ends[1]);
            eat(8 << 20);
            /* Waits until the large one is gone. */
            _exit(read(ends[0], &byte, 1) == 0 ? 3 : 4);
        }
        pid_t large = fork();
        if (large == 0)
            eat(1L << 40);
        close(ends[0]);
        close(ends[1]);
        if (waitpid(large, &status, 0) != large || !WIFSIGNALED(status))
            return 2;
        printf("large: signal %d\n", WTERMSIG(status));
        if (waitpid(small, &status, 0) != small || !WIFEXITED(status))
            return 3;
        printf("small: status %d\n", WEXITSTATUS(status));
        fflush(stdout);
    }
    return 0;
}

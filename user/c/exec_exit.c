/* A process that has much memory runs another program, which ends at once, and so does the first process. The
 * memory is still being freed then. */
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PLACES = 400 };
static const long APART = 1L << 21;

int main(int count, char **words)
{
    if (count > 1)
        return 0;
    char *all = mmap(NULL, PLACES * APART, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED || madvise(all, PLACES * APART, MADV_NOHUGEPAGE) != 0)
        return 1;
    for (long place = 0; place < PLACES; place++)
        all[place * APART] = 1;
    pid_t child = fork();
    if (child == 0)
        execl("/proc/self/exe", words[0], "last", NULL);
    int status;
    if (waitpid(child, &status, 0) != child || status != 0)
        return 1;
    puts("done");
    return 0;
}

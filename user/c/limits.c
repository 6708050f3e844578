/* The limits of a process as /proc/PID/limits shows them: each with other values, but for file locks, which
 * have none, those of a child and of a thread. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIMITS = 16 };

static void print_file(const char *path)
{
    char text[4096];
    int file = open(path, O_RDONLY);
    long len = file < 0 ? 0 : read(file, text, sizeof text - 1);
    text[len > 0 ? len : 0] = 0;
    printf("%s:\n%s", path, text);
    close(file);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int number = 0; number < LIMITS; number++) {
        struct rlimit limit = {1000 + number, 2000 + number};
        if (number == RLIMIT_NICE || number == RLIMIT_RTPRIO)
            limit = (struct rlimit){0, 0};
        else if (number == RLIMIT_STACK || number == RLIMIT_DATA || number == RLIMIT_AS || number == RLIMIT_FSIZE)
            limit = (struct rlimit){(1L << 30) + number, (2L << 30) + number};
        else if (number == RLIMIT_NOFILE)
            limit = (struct rlimit){100, 200};
        if (number != RLIMIT_LOCKS && prlimit(0, number, &limit, NULL) != 0)
            printf("limit %d cannot be set\n", number);
    }
    print_file("/proc/self/limits");
    print_file("/proc/thread-self/limits");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        print_file("/proc/self/limits");
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    return 0;
}

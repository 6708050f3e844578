/* Starts another program and waits for it: starter [copy] PROGRAM ARGUMENTS. With `copy` it starts a copy at
 * /tmp/copy. Exits with 0 however the program ended, and with 1 if it was not started. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void require(int good, const char *what)
{
    if (!good) {
        perror(what);
        _exit(1);
    }
}

static void copy(const char *from, const char *to)
{
    char buffer[65536];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT, 0755);
    require(in >= 0 && out >= 0, "open");
    for (ssize_t count; (count = read(in, buffer, sizeof buffer)) > 0;)
        require(write(out, buffer, count) == count, "write");
    close(in);
    close(out);
}

int main(int count, char **words)
{
    words++;
    if (count > 2 && strcmp(words[0], "copy") == 0) {
        words++;
        copy(words[0], "/tmp/copy");
        words[0] = "/tmp/copy";
    }
    pid_t child = fork();
    require(child >= 0, "fork");
    if (child == 0) {
        execv(words[0], words);
        require(0, "execv");
    }
    int status;
    require(waitpid(child, &status, 0) == child, "waitpid");
    return WIFEXITED(status) && WEXITSTATUS(status) == 1;
}

/* Copies stdin to stdout to its end, and prints the number of bytes on stderr.
 *
 * stdin [BUFFER]: reads up to BUFFER bytes (default 4096) at a time. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char buffer[1 << 16];

int main(int argc, char **argv)
{
    size_t size = argc > 1 ? strtoul(argv[1], NULL, 10) : 4096;
    long total = 0;
    if (size < 1 || size > sizeof buffer) {
        fprintf(stderr, "usage: stdin [BUFFER], from 1 to %zu\n", sizeof buffer);
        return 2;
    }
    for (ssize_t count; (count = read(0, buffer, size)) > 0; total += count)
        for (ssize_t done = 0, step; done < count; done += step)
            if ((step = write(1, buffer + done, count - done)) < 0) {
                perror("write");
                return 1;
            }
    fprintf(stderr, "stdin: %ld bytes\n", total);
    return 0;
}
